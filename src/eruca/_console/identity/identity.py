"""Everything about who may do what, built in one place."""

from __future__ import annotations

from eruca._console.identity.audit import Audit
from eruca._console.identity.entrance import Entrance
from eruca._console.identity.gate import Gate
from eruca._console.identity.masking import Masking
from eruca._console.identity.openid import OpenId
from eruca._console.identity.options import IdentityOptions
from eruca._console.identity.passwords import PasswordHashing
from eruca._console.identity.sessions import Sessions
from eruca._console.identity.throttling import LoginThrottle
from eruca._console.identity.users import Users
from eruca._console.state import State
from eruca._ground.clock import Clock

_MINUTE_MS = 60_000


class Identity:
    """Users, sessions, the gate, the audit log and the masks of one console."""

    def __init__(self, options: IdentityOptions, state: State, clock: Clock) -> None:
        self.options = options
        self.users = Users(state, clock, PasswordHashing())
        self.sessions = Sessions(
            state, clock, idle_ms=options.idle_minutes * _MINUTE_MS, longest_ms=options.session_hours * 60 * _MINUTE_MS
        )
        self.audit = Audit(state, clock, days=options.audit_days)
        self.gate = Gate(self.sessions)
        self.entrance = Entrance(self.users, self.sessions, LoginThrottle(clock), self.audit)
        self.masking = Masking(state)
        #: Log-ins through a provider; None without one.
        self.openid = OpenId(options, clock) if options.oidc_issuer else None

    async def start(self) -> str | None:
        """Start; the state file is open. At the first start, returns the one-time password of the first user."""
        await self.masking.load()
        if self.openid is not None:
            await self.openid.start()
        return await self.users.make_first()

    async def stop(self) -> None:
        """Close the connections to the provider."""
        if self.openid is not None:
            await self.openid.stop()

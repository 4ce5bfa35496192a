"""Logging in and out: by password or through OpenID Connect, limited, noted, and always with a new session."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from eruca._console.identity.audit import Audit
from eruca._console.identity.openid import Proved
from eruca._console.identity.rights import User
from eruca._console.identity.sessions import Session, Sessions
from eruca._console.identity.throttling import LoginThrottle
from eruca._console.identity.users import Users
from eruca._ground import limits
from eruca._net.guards import Reporter
from eruca.errors import ConfigError, ErucaError

log = logging.getLogger(__name__)

LOG_IN: Final = "log_in"


class LogInRefused(ErucaError):
    """A log-in is not accepted; `wait_s` is how long further ones are refused, 0 for a wrong name or password."""

    def __init__(self, wait_s: float = 0.0) -> None:
        super().__init__(f"too many attempts: wait {wait_s:.0f} seconds" if wait_s else "wrong name or password")
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class Visitor:
    """Where a request came from."""

    address: str
    agent: str


class Entrance:
    """Lets users in and out."""

    def __init__(self, users: Users, sessions: Sessions, throttle: LoginThrottle, audit: Audit) -> None:
        self._users = users
        self._sessions = sessions
        self._throttle = throttle
        self._audit = audit
        self._reporter = Reporter(log)

    async def log_in(self, name: str, password: str, visitor: Visitor) -> str:
        """Return the id of a new session. Raises LogInRefused, and TooManyCalls when too many log in at once."""
        self._begin(name, visitor)
        user = await self._users.log_in(name, password) if len(name) <= limits.CONSOLE_USER_CHARS_MAX else None
        if user is None:
            self._reporter.report_peer(visitor.address, f"a log-in to the console from {visitor.address} was refused")
            raise LogInRefused
        self._throttle.succeed(visitor.address, name)
        return await self._enter(user, visitor, "password")

    async def welcome(self, proved: Proved, visitor: Visitor) -> str:
        """Return the id of a new session for a user that the provider has proved. Raises ConfigError."""
        user = await self._users.enter(proved.issuer, proved.subject, proved.name, proved.role)
        return await self._enter(user, visitor, proved.issuer)

    async def change_password(self, user: User, old: str, new: str, visitor: Visitor) -> str:
        """Replace the password of a user; all sessions end, and the id of a new one is returned.

        Raises ConfigError, and LogInRefused after too many wrong passwords.
        """
        self._begin(user.name, visitor)
        if await self._users.log_in(user.name, old) is None:
            raise ConfigError("the present password is wrong", hint="type the one that you logged in with")
        self._throttle.succeed(visitor.address, user.name)
        await self._users.choose_password(user, old, new)
        changed = await self._users.show(user.name)
        await self._note(changed.user, visitor, "password.change", "")
        return await self._sessions.begin(changed.user, address=visitor.address, agent=visitor.agent)

    async def log_out(self, session: Session, visitor: Visitor, *, everywhere: bool = False) -> None:
        """End a session, or all of its user."""
        if everywhere:
            count = await self._sessions.end_all(session.user.name)
            await self._note(session.user, visitor, "log_out.everywhere", f"{count} sessions")
        else:
            await self._sessions.end(session)
            await self._note(session.user, visitor, "log_out", "")

    def _begin(self, name: str, visitor: Visitor) -> None:
        if (wait_s := self._throttle.begin(visitor.address, name)) > 0:
            raise LogInRefused(wait_s)

    async def _enter(self, user: User, visitor: Visitor, how: str) -> str:
        session_id = await self._sessions.begin(user, address=visitor.address, agent=visitor.agent)
        await self._users.note_login(user.name)
        await self._note(user, visitor, LOG_IN, how)
        return session_id

    async def _note(self, user: User, visitor: Visitor, action: str, how: str) -> None:
        await self._audit.add(
            user=user.name, action=action, target=user.name, outcome="done", reason=how, address=visitor.address
        )

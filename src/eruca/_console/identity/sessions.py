"""Sessions: a random id in a cookie, its hash in the state file. They end when idle, when old, and with the user."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from eruca._console.identity.rights import User
from eruca._console.identity.users import read_account
from eruca._console.state import State
from eruca._ground import limits
from eruca._ground.clock import Clock
from eruca._ground.times import from_epoch_ms

_ID_BYTES: Final = 32
_AGENT_CHARS_MAX: Final = 200
# Requests within this share of the idle time are one activity: a page that refreshes writes nothing.
_SEEN_SHARE: Final = 20
_CSRF_PURPOSE: Final = b"eruca console: request forgery"


@dataclass(frozen=True, slots=True)
class Session:
    """A session of the visitor who sent its id."""

    user: User
    #: Its name in lists and in the state file.
    hash: str
    # The token that forms send back.
    csrf: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session in a list."""

    hash: str
    user: str
    address: str
    agent: str
    made_at: datetime | None
    seen_at: datetime | None


class Sessions:
    """All sessions, in the state file: a restart of the console ends none."""

    def __init__(self, state: State, clock: Clock, *, idle_ms: int, longest_ms: int) -> None:
        self._state = state
        self._clock = clock
        self._idle_ms = idle_ms
        self._longest_ms = longest_ms

    async def begin(self, user: User, *, address: str, agent: str) -> str:
        """Begin a session with a new id, which is returned; of too many of one user, the oldest ends."""
        made = make_id()
        now = self._clock.now_ms()

        def insert(db: sqlite3.Connection) -> None:
            values = (hash_id(made), user.name, now, now, address, agent[:_AGENT_CHARS_MAX])
            db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", values)
            self._delete_ended(db)
            db.execute(
                "DELETE FROM sessions WHERE user = ? AND hash NOT IN"
                " (SELECT hash FROM sessions WHERE user = ? ORDER BY seen_ms DESC, rowid DESC LIMIT ?)",
                (user.name, user.name, limits.CONSOLE_SESSIONS_MAX),
            )

        await self._state.run(insert)
        return made

    async def find(self, session_id: str, *, is_active: bool = True) -> Session | None:
        """Return the session with an id, if it has not ended; `is_active`: the visitor did something."""
        if not 0 < len(session_id) <= 2 * _ID_BYTES:
            return None
        hashed = hash_id(session_id)
        user = await self._find_user(hashed, is_active=is_active)
        return None if user is None else Session(user, hashed, make_csrf(session_id))

    async def is_live(self, session: Session) -> bool:
        """Whether a session has not ended, and its user may still do the same; for what is streamed for a long time."""
        return await self._find_user(session.hash, is_active=False) == session.user

    async def list(self, user: str) -> list[SessionRow]:
        """Return the sessions of a user, the latest first."""
        rows = await self._state.read("SELECT * FROM sessions WHERE user = ? ORDER BY seen_ms DESC", user)
        return [
            SessionRow(
                hash=row["hash"],
                user=row["user"],
                address=row["address"],
                agent=row["agent"],
                made_at=from_epoch_ms(row["made_ms"]),
                seen_at=from_epoch_ms(row["seen_ms"]),
            )
            for row in rows
            if self._is_open(row["made_ms"], row["seen_ms"])
        ]

    async def end(self, session: Session) -> None:
        """End a session."""
        await self._state.write("DELETE FROM sessions WHERE hash = ?", session.hash)

    async def end_all(self, user: str) -> int:
        """End all sessions of a user; returns how many there were."""
        return await self._state.write("DELETE FROM sessions WHERE user = ?", user)

    async def _find_user(self, hashed: str, *, is_active: bool) -> User | None:
        now = self._clock.now_ms()

        def find(db: sqlite3.Connection) -> User | None:
            row = db.execute(
                "SELECT users.*, sessions.made_ms AS began_ms, sessions.seen_ms AS used_ms FROM sessions"
                " JOIN users ON users.name = sessions.user WHERE sessions.hash = ? AND users.disabled = 0",
                (hashed,),
            ).fetchone()
            if row is None:
                return None
            if not self._is_open(row["began_ms"], row["used_ms"]):
                self._delete_ended(db)
                return None
            if is_active and now - row["used_ms"] > self._idle_ms / _SEEN_SHARE:
                db.execute("UPDATE sessions SET seen_ms = ? WHERE hash = ?", (now, hashed))
            return read_account(row).user

        return await self._state.run(find)

    def _is_open(self, made_ms: int, seen_ms: int) -> bool:
        now = self._clock.now_ms()
        return now - seen_ms <= self._idle_ms and now - made_ms <= self._longest_ms

    def _delete_ended(self, db: sqlite3.Connection) -> None:
        now = self._clock.now_ms()
        db.execute(
            "DELETE FROM sessions WHERE seen_ms < ? OR made_ms < ?", (now - self._idle_ms, now - self._longest_ms)
        )


def make_id() -> str:
    """Return a random id of 256 bits."""
    return secrets.token_urlsafe(_ID_BYTES)


def hash_id(session_id: str) -> str:
    """Return what is stored of an id. It is random, so it needs neither salt nor a slow hash."""
    return hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()


def make_csrf(session_id: str) -> str:
    """Return the token that forms send back. It proves that the sender has read a page of this session."""
    return hmac.new(session_id.encode("utf-8", "replace"), _CSRF_PURPOSE, hashlib.sha256).hexdigest()


def is_csrf(session_id: str, token: str) -> bool:
    """Whether a token is that of a session, compared in constant time."""
    return hmac.compare_digest(make_csrf(session_id).encode(), token.encode("utf-8", "replace"))

"""The users of the console: who they are, and what they log in with."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from eruca._console.identity.passwords import PasswordHashing, check_password, make_one_time_password, needs_new_hash
from eruca._console.identity.rights import Grant, Role, User, check_user_name, read_grants, write_grants
from eruca._console.state import Row, State
from eruca._ground import limits
from eruca._ground.clock import Clock
from eruca._ground.times import from_epoch_ms
from eruca.errors import ConfigError

#: The user that the first start makes.
FIRST_USER: Final = "admin"
_COLUMNS: Final = "name, role, grants, must_change, disabled, issuer, subject, made_ms, seen_ms"


@dataclass(frozen=True, slots=True)
class Account:
    """A user with the facts that only administrators need."""

    user: User
    disabled: bool
    issuer: str
    made_at: datetime | None
    seen_at: datetime | None


class Users:
    """All users, in the state file. Passwords are hashed before they get there."""

    def __init__(self, state: State, clock: Clock, hashing: PasswordHashing) -> None:
        self._state = state
        self._clock = clock
        self._hashing = hashing

    async def make_first(self) -> str | None:
        """Make the first administrator if there is no user; returns the one-time password.

        As long as nobody has used it, each start makes another: the first one may have been lost.
        """
        rows = await self._state.read(f"SELECT {_COLUMNS} FROM users LIMIT 2")
        if rows:
            found = read_account(rows[0])
            is_unused = found.user.name == FIRST_USER and found.user.must_change and found.seen_at is None
            return await self.renew(FIRST_USER) if is_unused and len(rows) == 1 else None
        password = make_one_time_password()
        hashed = await self._hashing.hash(password)
        first = User(FIRST_USER, Role.ADMIN, must_change=True)

        def make(db: sqlite3.Connection) -> bool:
            if db.execute("SELECT 1 FROM users LIMIT 1").fetchone():
                return False
            self._insert(db, first, hashed)
            return True

        return password if await self._state.run(make) else None

    async def list(self) -> list[Account]:
        """Return all users by name."""
        rows = await self._state.read(f"SELECT {_COLUMNS} FROM users ORDER BY name")
        return [read_account(row) for row in rows]

    async def find(self, name: str) -> Account | None:
        """Return a user."""
        rows = await self._state.read(f"SELECT {_COLUMNS} FROM users WHERE name = ?", name)
        return read_account(rows[0]) if rows else None

    async def show(self, name: str) -> Account:
        """Return a user; raises ConfigError if there is none."""
        if (found := await self.find(name)) is None:
            raise _explain_unknown(name)
        return found

    async def log_in(self, name: str, password: str) -> User | None:
        """Return the user with this name and password. Without one, it takes as long."""
        rows = await self._state.read(f"SELECT {_COLUMNS}, password FROM users WHERE name = ? AND disabled = 0", name)
        hashed: str | None = rows[0]["password"] if rows else None
        if not await self._hashing.check(password, hashed) or hashed is None:
            return None
        if needs_new_hash(hashed):
            fresh = await self._hashing.hash(password)
            await self._state.write(
                "UPDATE users SET password = ? WHERE name = ? AND password = ?", fresh, name, hashed
            )
        return read_account(rows[0]).user

    async def note_login(self, name: str) -> None:
        """Remember when a user logged in."""
        await self._state.write("UPDATE users SET seen_ms = ? WHERE name = ?", self._clock.now_ms(), name)

    async def create(self, name: str, role: Role, grants: Sequence[Grant]) -> tuple[User, str]:
        """Create a user; returns it and its one-time password."""
        user = User(check_user_name(name), role, tuple(grants), must_change=True)
        password = make_one_time_password()
        hashed = await self._hashing.hash(password)

        def insert(db: sqlite3.Connection) -> None:
            if db.execute("SELECT 1 FROM users WHERE name = ?", (name,)).fetchone():
                raise ConfigError(f"there is a user {name} already", hint="change it, or choose another name")
            self._insert(db, user, hashed)

        await self._state.run(insert)
        return user, password

    async def update(self, name: str, role: Role, grants: Sequence[Grant], *, disabled: bool) -> None:
        """Change a user. Raises ConfigError if no administrator would be left who logs in with a password."""
        values = (role.value, write_grants(tuple(grants)), int(disabled), name)

        def change(db: sqlite3.Connection) -> None:
            statement = "UPDATE users SET role = ?, grants = ?, disabled = ? WHERE name = ?"
            if db.execute(statement, values).rowcount == 0:
                raise _explain_unknown(name)
            if disabled:
                db.execute("DELETE FROM sessions WHERE user = ?", (name,))
            _require_admin(db)

        await self._state.run(change)

    async def delete(self, name: str) -> None:
        """Delete a user and end the user's sessions. Raises ConfigError for the last administrator."""

        def delete(db: sqlite3.Connection) -> None:
            if db.execute("DELETE FROM users WHERE name = ?", (name,)).rowcount == 0:
                raise _explain_unknown(name)
            _require_admin(db)

        await self._state.run(delete)

    async def renew(self, name: str) -> str:
        """Replace the password of a user by a one-time password, which is returned; ends all sessions of the user."""
        if not (await self.show(name)).user.is_local:
            raise ConfigError(f"{name} has no password here", hint="it is changed at the provider of OpenID Connect")
        password = make_one_time_password()
        await self._put_password(name, await self._hashing.hash(password), must_change=True)
        return password

    async def choose_password(self, user: User, old: str, new: str) -> None:
        """Replace the password of a user who has proved to know the old one; ends all sessions of the user.

        Raises ConfigError for a new one that is not good enough.
        """
        if old == new:
            raise ConfigError("the new password is the old one", hint="choose another one")
        hashed = await self._hashing.hash(check_password(new, user.name))
        await self._put_password(user.name, hashed, must_change=False)

    async def enter(self, issuer: str, subject: str, name: str, role: Role) -> User:
        """Return the user of an identity of OpenID Connect, made at its first log-in, with the role of this log-in.

        Raises ConfigError if the name belongs to someone else, or the user is disabled.
        """
        check_user_name(name)

        def enter(db: sqlite3.Connection) -> User:
            statement = f"SELECT {_COLUMNS} FROM users WHERE issuer = ? AND subject = ?"
            row = db.execute(statement, (issuer, subject)).fetchone()
            if row is None:
                if db.execute("SELECT 1 FROM users WHERE name = ?", (name,)).fetchone():
                    raise ConfigError(
                        f"the name {name} belongs to another user", hint="an administrator can delete that user"
                    )
                user = User(name, role, is_local=False)
                self._insert(db, user, None, issuer, subject)
                return user
            found = read_account(row)
            if found.disabled:
                raise ConfigError(f"{found.user.name} is disabled", hint="ask an administrator")
            db.execute("UPDATE users SET role = ? WHERE name = ?", (role.value, found.user.name))
            return replace(found.user, role=role)

        return await self._state.run(enter)

    async def _put_password(self, name: str, hashed: str, *, must_change: bool) -> None:
        def put(db: sqlite3.Connection) -> None:
            db.execute("UPDATE users SET password = ?, must_change = ? WHERE name = ?", (hashed, must_change, name))
            db.execute("DELETE FROM sessions WHERE user = ?", (name,))

        await self._state.run(put)

    def _insert(
        self, db: sqlite3.Connection, user: User, hashed: str | None, issuer: str | None = None, subject: str = ""
    ) -> None:
        if db.execute("SELECT count(*) FROM users").fetchone()[0] >= limits.CONSOLE_USERS_MAX:
            raise ConfigError(f"there are {limits.CONSOLE_USERS_MAX} users already", hint="delete some first")
        values: tuple[Any, ...] = (
            *(user.name, user.role.value, write_grants(user.grants), hashed, int(user.must_change)),
            *(0, issuer, subject if issuer else None, self._clock.now_ms(), 0),
        )
        db.execute("INSERT INTO users VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def read_account(row: Row) -> Account:
    """Return a user from a row of the table."""
    user = User(
        name=row["name"],
        role=Role(row["role"]),
        grants=read_grants(row["grants"]),
        must_change=bool(row["must_change"]),
        is_local=row["issuer"] is None,
    )
    return Account(
        user=user,
        disabled=bool(row["disabled"]),
        issuer=row["issuer"] or "",
        made_at=from_epoch_ms(row["made_ms"]),
        seen_at=from_epoch_ms(row["seen_ms"]) if row["seen_ms"] else None,
    )


def _require_admin(db: sqlite3.Connection) -> None:
    """Undo a change after which nobody could administer users. Roles of others are decided by their provider."""
    statement = "SELECT 1 FROM users WHERE role = ? AND disabled = 0 AND issuer IS NULL LIMIT 1"
    if db.execute(statement, (Role.ADMIN.value,)).fetchone() is None:
        raise ConfigError("this is the last administrator with a password", hint="make another user an admin first")


def _explain_unknown(name: str) -> ConfigError:
    return ConfigError(f"there is no user {name[: limits.CONSOLE_USER_CHARS_MAX]}", hint="see the list of users")

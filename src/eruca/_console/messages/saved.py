"""Filters that a user has saved under a name."""

from __future__ import annotations

import sqlite3

import msgspec

from eruca._console.messages.filtering import parse_filter
from eruca._console.state import Schema, State
from eruca._ground.limits import CONSOLE_FILTER_NAME_CHARS_MAX, CONSOLE_SAVED_FILTERS_MAX
from eruca.errors import ConfigError

FILTERS = Schema(
    "filters",
    (
        "CREATE TABLE filters (user TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (user, name))"
        " WITHOUT ROWID",
    ),
)


class SavedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """One filter of a user."""

    name: str
    text: str


class SavedFilters:
    """The filters of all users."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def list(self, user: str) -> list[SavedFilter]:
        """Return the filters of a user by name."""
        rows = await self._state.read("SELECT name, text FROM filters WHERE user = ? ORDER BY name", user)
        return [SavedFilter(name=row["name"], text=row["text"]) for row in rows]

    async def save(self, user: str, name: str, text: str) -> None:
        """Save a filter; one with the same name is replaced. Raises ConfigError if it is not valid."""
        name = " ".join(name.split())
        if not 0 < len(name) <= CONSOLE_FILTER_NAME_CHARS_MAX or not name.isprintable():
            raise ConfigError(
                "the filter needs a name",
                hint=f"at most {CONSOLE_FILTER_NAME_CHARS_MAX} characters, for example: large",
            )
        parse_filter(text)

        def save(db: sqlite3.Connection) -> bool:
            db.execute("INSERT OR REPLACE INTO filters (user, name, text) VALUES (?, ?, ?)", (user, name, text))
            row = db.execute("SELECT count(*) FROM filters WHERE user = ?", (user,)).fetchone()
            if row[0] > CONSOLE_SAVED_FILTERS_MAX:
                raise ConfigError(f"you have {CONSOLE_SAVED_FILTERS_MAX} saved filters", hint="delete one first")
            return True

        await self._state.run(save)

    async def delete(self, user: str, name: str) -> None:
        """Delete a filter, if there is one with this name."""
        await self._state.write("DELETE FROM filters WHERE user = ? AND name = ?", user, name)

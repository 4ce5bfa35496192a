"""The names that a user has marked with a star, by cluster: topics and groups."""

from __future__ import annotations

from eruca._console.state import Schema, State
from eruca.errors import ConfigError

#: Of one user in one cluster.
FAVOURITES_MAX = 500

SCHEMA = Schema(
    "favourites",
    (
        "CREATE TABLE favourites (user TEXT NOT NULL, cluster TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,"
        " PRIMARY KEY (user, cluster, kind, name)) WITHOUT ROWID",
    ),
)


class Favourites:
    """Keeps the marked names."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def list(self, user: str, cluster: str, kind: str = "topic") -> set[str]:
        """Return the marked names of a kind, `topic` or `group`."""
        rows = await self._state.read(
            "SELECT name FROM favourites WHERE user = ? AND cluster = ? AND kind = ?", user, cluster, kind
        )
        return {str(row["name"]) for row in rows}

    async def toggle(self, user: str, cluster: str, name: str, kind: str = "topic") -> bool:
        """Mark a name, or unmark it; returns whether it is marked now. Raises ConfigError if there are too many."""
        gone = await self._state.write(
            "DELETE FROM favourites WHERE user = ? AND cluster = ? AND kind = ? AND name = ?", user, cluster, kind, name
        )
        if gone:
            return False
        added = await self._state.write(
            "INSERT INTO favourites SELECT ?, ?, ?, ? WHERE"
            " (SELECT count(*) FROM favourites WHERE user = ? AND cluster = ?) < ?",
            *(user, cluster, kind, name, user, cluster, FAVOURITES_MAX),
        )
        if not added:
            raise ConfigError(f"there are {FAVOURITES_MAX} favourites already", hint="remove some")
        return True

"""The log of every change."""

from __future__ import annotations

import json
import time
from typing import Any

from eruca._console.state import Schema, State

SCHEMA = Schema(
    "audit",
    (
        "CREATE TABLE audit (id INTEGER PRIMARY KEY, at REAL NOT NULL, user TEXT NOT NULL, cluster TEXT NOT NULL,"
        " action TEXT NOT NULL, target TEXT NOT NULL, command TEXT NOT NULL, before TEXT NOT NULL,"
        " after TEXT NOT NULL, outcome TEXT NOT NULL)",
    ),
)


class Audit:
    """The log of every change."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def add(
        self, *, user: str, cluster: str, action: str, target: str, command: str, before: Any, after: Any, outcome: str
    ) -> None:
        """Note a change; returns when it is in the file."""
        await self._state.write(
            "INSERT INTO audit (at, user, cluster, action, target, command, before, after, outcome)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            time.time(), user, cluster, action, target, command, json.dumps(before), json.dumps(after), outcome,
        )  # fmt: skip

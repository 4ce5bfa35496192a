"""Delayed messages: list those that wait for their time, and cancel them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import LIMIT, Listed


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    """One message that waits for its time."""

    # Where it will be delivered.
    topic: str
    broker: str
    message_id: str
    offset_id: str
    # When it is due.
    due_at: datetime | None
    born_at: datetime | None
    # 1 to 18; 0: it has a time of its own.
    level: int
    tags: str = ""
    keys: list[str] = []
    size: int = 0


class LevelProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one delay level of a broker is."""

    broker: str
    level: int
    # How many messages wait in it.
    waiting: int
    offset: int
    end: int


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of cancelling one delayed message."""

    message_id: str
    topic: str
    # `cancelled`, `planned`, `failed` or `unknown` (no such message waits; see `reason`).
    outcome: str
    reason: str = ""


class DelayedMessages:
    """`admin.delayed`"""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, topic: str | None = None, broker: str | None = None, limit: int = LIMIT) -> Listed[Delayed]:
        """Return the messages that wait for their time: of a delay level, or with a time of their own (`timer`)."""
        raise NotImplementedError

    async def levels(self) -> Listed[LevelProgress]:
        """Return how many messages wait in each delay level of each broker."""
        raise NotImplementedError

    async def cancel(self, topic: str, message_id: str, *, dry_run: bool = False) -> Cancelled:
        """Cancel a message with a time of its own. Those of a delay level cannot be cancelled."""
        raise NotImplementedError

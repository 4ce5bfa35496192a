"""`DelayedMessages` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.delayed` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from eruca._admin.delayed import Cancelled, Delayed, LevelProgress
from eruca._admin.delayed import DelayedMessages as AsyncDelayedMessages
from eruca._admin.results import LIMIT, Listed
from eruca._admin.sync.base import PlainPart


class DelayedMessages(PlainPart[AsyncDelayedMessages]):
    """Lists and cancels delayed messages: `admin.delayed`."""

    def list(self, *, topic: str | None = None, broker: str | None = None, limit: int = LIMIT) -> Listed[Delayed]:
        """Return the messages that wait for their time, those that are due first.

        They have a delay level, or an exact time (`timer`). Of the latter the newest 10,000 are looked through.
        """
        return self._run(self._twin.list(topic=topic, broker=broker, limit=limit))

    def levels(self, *, broker: str | None = None) -> Listed[LevelProgress]:
        """Return how many messages wait in each delay level of each broker."""
        return self._run(self._twin.levels(broker=broker))

    def cancel(self, topic: str, message_id: str, *, dry_run: bool = False) -> Cancelled:
        """Cancel a message with an exact time. Those of a delay level cannot be cancelled."""
        return self._run(self._twin.cancel(topic, message_id, dry_run=dry_run))

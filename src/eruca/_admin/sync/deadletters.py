"""`DeadLetters` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.deadletters` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from collections.abc import Iterator

from eruca._admin.deadletters import ALL, GroupLetters, Journal, Resent, Wanted
from eruca._admin.deadletters import DeadLetters as AsyncDeadLetters
from eruca._admin.results import LIMIT, Listed
from eruca._admin.storedmessages import StoredMessage
from eruca._admin.sync.base import PlainPart


class DeadLetters(PlainPart[AsyncDeadLetters]):
    """Lists dead letters and sends them again: `admin.dead_letters`."""

    def list(self, *, limit: int = LIMIT) -> Listed[GroupLetters]:
        """Return every group that has dead letters, and how many each has."""
        return self._run(self._twin.list(limit=limit))

    def count(self, group: str) -> int:
        """Return the number of dead letters of a group. Raises NoRoute if no broker knows it."""
        return self._run(self._twin.count(group))

    def read(self, group: str, wanted: Wanted = ALL) -> Iterator[StoredMessage]:
        """Yield the dead letters of a group, oldest first on each broker. Raises NoRoute if no broker knows it."""
        return self._iterate(self._twin.read(group, wanted))

    def find(self, group: str, name: str) -> StoredMessage:
        """Return the dead letter with a message id, offset id or origin id. Raises ConfigError."""
        return self._run(self._twin.find(group, name))

    def resend(
        self,
        group: str,
        wanted: Wanted = ALL,
        *,
        only_group: bool = False,
        topic: str | None = None,
        journal: Journal | None = None,
        dry_run: bool = False,
    ) -> Iterator[Resent]:
        """Send dead letters again and yield the outcome of each, in order.

        Each goes to the topic it came from, where every group of that topic receives it; with `only_group` to the retry
        topic of the group, which only this group reads; or to `topic`. Id, keys, tags, properties and body are
        unchanged. The dead letter itself stays until it expires; a `journal` records which ones were sent. A letter
        that cannot be sent does not stop the others.
        """
        return self._iterate(
            self._twin.resend(group, wanted, only_group=only_group, topic=topic, journal=journal, dry_run=dry_run)
        )

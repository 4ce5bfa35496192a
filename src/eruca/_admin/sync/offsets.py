"""`Offsets` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.offsets` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from eruca._admin.lag import QueueLag
from eruca._admin.moving import Moved
from eruca._admin.offsets import Offsets as AsyncOffsets
from eruca._admin.progress import QueueProgress
from eruca._admin.results import LIMIT, Listed
from eruca._admin.savedoffsets import SavedOffsets
from eruca._admin.sync.base import PlainPart


class Offsets(PlainPart[AsyncOffsets]):
    """Shows, moves, saves and restores the offsets of groups: `admin.offsets`."""

    def show(self, group: str, topic: str | None = None, *, limit: int = LIMIT) -> Listed[QueueProgress]:
        """Return the progress of a group in one topic, or in all it has offsets in; empty if no broker knows it."""
        return self._run(self._twin.show(group, topic, limit=limit))

    def lag(
        self, groups: Sequence[str] = (), topics: Sequence[str] = (), *, times: bool = True, limit: int = LIMIT
    ) -> Listed[QueueLag]:
        """Return how far groups are behind in each queue: the named groups and topics, or all of them.

        If there are more than `limit`, those that are furthest behind are returned. Without `times` it is quicker: then
        no message is read to find out how long it has been waiting.
        """
        return self._run(self._twin.lag(groups, topics, times=times, limit=limit))

    def export(self, group: str, topic: str | None = None) -> SavedOffsets:
        """Return the offsets a group has committed, to restore them later. Raises NoRoute if it has none."""
        return self._run(self._twin.export(group, topic))

    def reset(
        self,
        group: str,
        topic: str,
        to: datetime | Literal["earliest", "latest"],
        *,
        force: bool = True,
        dry_run: bool = False,
    ) -> Moved:
        """Move a group to a time, or to "earliest" or "latest". Returns the outcome of each queue.

        If members are connected, the broker tells them, and they move and commit. If none is, the offsets are written
        to the broker; a group that never existed gets offsets too and starts there. Without `force` a group only moves
        back. A broker that fails does not stop the others.
        """
        return self._run(self._twin.reset(group, topic, to, force=force, dry_run=dry_run))

    def skip(self, group: str, topic: str, *, dry_run: bool = False) -> Moved:
        """Move a group past all messages it has not consumed yet."""
        return self._run(self._twin.skip(group, topic, dry_run=dry_run))

    def set(self, group: str, topic: str, broker: str, queue: int, offset: int, *, dry_run: bool = False) -> Moved:
        """Move a group to an offset of one queue. Raises ConfigError while members are connected."""
        return self._run(self._twin.set(group, topic, broker, queue, offset, dry_run=dry_run))

    def shift(self, group: str, topic: str, by: int, *, dry_run: bool = False) -> Moved:
        """Move a group by some messages in each queue of a topic, back or forward, within what the queue has.

        Raises ConfigError while members are connected.
        """
        return self._run(self._twin.shift(group, topic, by, dry_run=dry_run))

    def clone(self, source: str, target: str, topic: str | None = None, *, dry_run: bool = False) -> Moved:
        """Copy the offsets of one group to another, in one topic or in all. Returns the outcome of each queue.

        Raises ConfigError while members of the target are connected: they would overwrite the offsets with their own.
        """
        return self._run(self._twin.clone(source, target, topic, dry_run=dry_run))

    def restore(self, saved: SavedOffsets, *, group: str | None = None, dry_run: bool = False) -> Moved:
        """Write exported offsets back, to the same group or to another. Queues that are gone are reported as failed.

        Raises ConfigError while members are connected.
        """
        return self._run(self._twin.restore(saved, group=group, dry_run=dry_run))

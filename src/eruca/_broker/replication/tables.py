"""The tables that a slave copies from its master: topics, groups, consumer offsets and delayed delivery."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from eruca._broker.delaying.schedule import Schedule
from eruca._broker.delaying.timing import Timing
from eruca._broker.groups.groups import Groups
from eruca._broker.groups.offsets import Offsets
from eruca._broker.topics import Topics
from eruca._wire.bodies import (
    ConsumerOffsets,
    DataVersion,
    DataVersions,
    DelayOffsets,
    GroupConfigTable,
    TopicConfigTable,
    encode_json,
)

_COUNTER_BITS = 20


@dataclass(frozen=True, slots=True, eq=False)
class CopiedTables:
    """The tables of one broker: a master reports their versions, a slave adopts those of its master."""

    _topics: Topics
    _groups: Groups
    _offsets: Offsets
    _schedule: Schedule
    _timing: Timing

    def count_versions(self) -> DataVersions:
        """Return the version of each table."""
        return DataVersions(
            # They are small, and their changes are not counted.
            delays=zlib.crc32(encode_json(self._schedule.snapshot())),
            groups=_count(self._groups.data_version),
            offsets=self._offsets.version,
            topics=_count(self._topics.data_version),
        )

    def take_topics(self, table: TopicConfigTable) -> None:
        """Adopt the master's topics. The queues of a deleted topic stay: the log shows if it is created again."""
        if table.data_version != self._topics.data_version:
            self._topics.replace(table)

    def take_groups(self, table: GroupConfigTable) -> None:
        """Adopt the master's groups."""
        if table.data_version != self._groups.data_version:
            self._groups.replace(table)

    def take_offsets(self, table: ConsumerOffsets) -> None:
        """Adopt consumer offsets; they are saved periodically with all others."""
        self._offsets.merge(table)

    def take_delays(self, table: DelayOffsets) -> None:
        """Adopt the progress of delayed delivery."""
        if table.eruca_timer is not None:
            self._timing.inherit(table.eruca_timer)
        self._schedule.adopt(table.offset_table)


def _count(version: DataVersion) -> int:
    return (version.timestamp << _COUNTER_BITS) + version.counter

"""How a read is divided into tasks: large queues are split, small ones share a task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from eruca._wire.bodies import MessageQueue

# A task has an overhead of tens of milliseconds, in which this many messages can be read.
_SHARED_RECORDS: Final = 32_768
# A failed task starts again from its beginning, and one queue should keep more than one core busy.
_RECORDS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Messages of one queue from `begin` up to but excluding `end`, and the address of its broker."""

    queue: MessageQueue
    begin: int
    end: int
    address: str

    @property
    def count(self) -> int:
        """The number of messages."""
        return self.end - self.begin


class PulledPartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Iterable[QueueRange]) -> None:
        self.ranges = list(ranges)

    def __repr__(self) -> str:
        return f"PulledPartition({self.ranges})"


def plan_partitions(
    ranges: Iterable[QueueRange],
    *,
    min_partitions: int | None = None,
    max_partitions: int | None = None,
    records_max: int | None = None,
) -> list[PulledPartition]:
    """Lay all messages in one line, queue by queue, and cut it into tasks of equal length.

    The number of tasks follows from the bounds; unless queues are large, it is at most one per queue. `max_partitions`
    takes precedence over the other bounds.
    """
    line = sorted(
        (each for each in ranges if each.count > 0),
        key=lambda each: (each.queue.broker_name, each.queue.topic, each.queue.queue_id, each.begin),
    )
    total = sum(each.count for each in line)
    if not total:
        return []
    count = min(len(line), _divide_up(total, _SHARED_RECORDS))
    count = max(count, min_partitions or 1, _divide_up(total, records_max or _RECORDS_MAX))
    count = min(count, max_partitions or count, total)
    # If it does not divide evenly, the first tasks have one message more.
    size, longer = divmod(total, count)
    partitions: list[PulledPartition] = []
    taken: list[QueueRange] = []
    room = size + (1 if longer else 0)
    for each in line:
        begin = each.begin
        while begin < each.end:
            end = min(each.end, begin + room)
            taken.append(QueueRange(each.queue, begin, end, each.address))
            room -= end - begin
            begin = end
            if not room:
                partitions.append(PulledPartition(taken))
                taken = []
                room = size + (1 if len(partitions) < longer else 0)
    assert not taken and len(partitions) == count
    return partitions


def _divide_up(total: int, size: int) -> int:
    return -(-total // size)

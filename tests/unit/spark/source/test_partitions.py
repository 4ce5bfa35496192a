"""Cutting a read into tasks: nothing twice, nothing left out, and as even as can be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca._spark.source.partitions import PulledPartition, QueueRange, plan_partitions
from eruca._wire.bodies import MessageQueue


def make_ranges(*counts: int, begin: int = 0) -> list[QueueRange]:
    return [
        QueueRange(MessageQueue("broker-a", number, "t"), begin, begin + count, "host:1")
        for number, count in enumerate(counts)
    ]


def count_each(partitions: list[PulledPartition]) -> list[int]:
    return [sum(each.count for each in partition.ranges) for partition in partitions]


def test_a_small_batch_of_many_queues_is_one_task() -> None:
    assert count_each(plan_partitions(make_ranges(*[71] * 14))) == [14 * 71]


def test_nothing_to_read_is_no_task() -> None:
    assert plan_partitions(make_ranges(0, 0)) == []
    assert plan_partitions([]) == []


def test_large_queues_are_a_task_each_and_huge_ones_several() -> None:
    assert count_each(plan_partitions(make_ranges(500_000, 500_000))) == [500_000, 500_000]
    assert count_each(plan_partitions(make_ranges(2_000_000))) == [1_000_000] * 2


def test_bounds() -> None:
    assert count_each(plan_partitions(make_ranges(10), min_partitions=4)) == [3, 3, 2, 2]
    assert count_each(plan_partitions(make_ranges(3), min_partitions=9)) == [1, 1, 1]
    assert count_each(plan_partitions(make_ranges(10, 10), records_max=6)) == [5] * 4
    assert count_each(plan_partitions(make_ranges(100), records_max=10, max_partitions=3)) == [34, 33, 33]
    assert count_each(plan_partitions(make_ranges(90, 5, 5), min_partitions=2)) == [50, 50]


@given(
    counts=st.lists(st.integers(0, 300), max_size=12),
    begin=st.integers(0, 10**12),
    least=st.none() | st.integers(1, 40),
    most=st.none() | st.integers(1, 40),
    records=st.none() | st.integers(1, 100),
)
def test_every_message_is_in_one_task(
    counts: list[int], begin: int, least: int | None, most: int | None, records: int | None
) -> None:
    ranges = make_ranges(*counts, begin=begin)
    partitions = plan_partitions(ranges, min_partitions=least, max_partitions=most, records_max=records)
    seen = [
        (each.queue.queue_id, offset)
        for partition in partitions
        for each in partition.ranges
        for offset in range(each.begin, each.end)
    ]
    assert seen == [(each.queue.queue_id, offset) for each in ranges for offset in range(each.begin, each.end)]
    sizes = count_each(partitions)
    if not seen:
        assert sizes == []
        return
    assert max(sizes) - min(sizes) <= 1
    assert most is None or len(sizes) <= most
    if most is None or least is None or least <= most:
        assert len(sizes) >= min(least or 1, most or len(seen), len(seen))
    if records is not None and most is None:
        assert max(sizes) <= records

"""The delay schedule: nothing early, nothing twice, nothing left out, whatever the queues and the clock do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca._core.schedule import (
    RETRY_MS,
    Correct,
    DelaySchedule,
    Deliver,
    Delivered,
    DeliveryFailed,
    QueueRead,
    Skip,
    WaitUntil,
)

NOW = 1_000_000
SECOND = 1000


def read(schedule: DelaySchedule, entries: list[tuple[int, int, int]], level: int = 1, low: int = 0) -> QueueRead:
    """The event a driver makes of a queue whose first entry has offset 0."""
    cursor = schedule.cursor(level)
    return QueueRead(level, low, len(entries), entries[max(0, cursor) :])


def test_what_is_due_is_delivered_in_order_and_the_rest_waits() -> None:
    schedule = DelaySchedule(1, {})
    entries = [(0, 10, NOW - 5), (10, 20, NOW), (30, 10, NOW + 1), (40, 10, NOW + 2)]
    assert schedule.handle(read(schedule, entries), NOW) == [
        Deliver(1, 0, 0, 10),
        Deliver(1, 1, 10, 20),
        WaitUntil(1, NOW + 1),
    ]


def test_the_cursor_moves_with_each_delivery_only() -> None:
    schedule = DelaySchedule(2, {2: 7})
    entries = [(0, 10, NOW), (10, 10, NOW)]
    schedule.handle(read(schedule, entries), NOW)
    assert schedule.offsets == {2: 7}
    assert schedule.handle(Delivered(1, 0), NOW) == []
    assert schedule.offsets == {1: 1, 2: 7}
    assert schedule.handle(read(schedule, entries), NOW) == [Deliver(1, 1, 10, 10)]


def test_a_refused_delivery_is_tried_again_after_a_pause() -> None:
    schedule = DelaySchedule(1, {})
    entries = [(0, 10, NOW)]
    assert schedule.handle(DeliveryFailed(1, 0), NOW) == [WaitUntil(1, NOW + RETRY_MS)]
    assert schedule.handle(read(schedule, entries), NOW + RETRY_MS - 1) == [WaitUntil(1, NOW + RETRY_MS)]
    assert schedule.handle(read(schedule, entries), NOW + RETRY_MS) == [Deliver(1, 0, 0, 10)]


def test_a_due_time_is_waited_for_however_far_off_it_is() -> None:
    schedule = DelaySchedule(1, {})
    due_ms = NOW + 86_400_000
    assert schedule.handle(read(schedule, [(0, 10, due_ms)]), NOW) == [WaitUntil(1, due_ms)]
    assert schedule.handle(read(schedule, [(0, 10, due_ms)]), due_ms) == [Deliver(1, 0, 0, 10)]


def test_a_cursor_outside_its_queue_is_brought_back() -> None:
    schedule = DelaySchedule(1, {1: 2})
    assert schedule.handle(QueueRead(1, 5, 9, ()), NOW) == [Correct(1, 2, 5)]
    assert schedule.cursor(1) == 5
    assert schedule.handle(QueueRead(1, 0, 3, ()), NOW) == [Correct(1, 5, 3)]
    assert schedule.handle(QueueRead(1, 0, 3, ()), NOW) == []


def test_an_entry_without_a_message_is_skipped() -> None:
    schedule = DelaySchedule(1, {})
    assert schedule.handle(read(schedule, [(0, 0, 0), (9, 10, NOW)]), NOW) == [
        Skip(1, 0),
        Deliver(1, 1, 9, 10),
    ]


def test_levels_are_counted_from_one() -> None:
    assert DelaySchedule(18, {}).levels == list(range(1, 19))


@given(
    st.lists(st.integers(0, 5000), max_size=30),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5)), max_size=40),
)
def test_every_message_is_delivered_once_in_order_and_never_early(
    stored_ms: list[int], turns: list[tuple[int, int]]
) -> None:
    delay_ms = 2 * SECOND
    entries = [(number * 10, 10, ms + delay_ms) for number, ms in enumerate(sorted(stored_ms))]
    schedule = DelaySchedule(1, {})
    delivered: list[int] = []
    now = 5000
    # At the end time stops at a moment when all are due, and nothing fails anymore.
    for step_ms, done_max in [*turns, (100_000, len(entries))]:
        now += step_ms
        done = 0
        for action in schedule.handle(read(schedule, entries), now):
            if not isinstance(action, Deliver):
                assert isinstance(action, WaitUntil)
                assert action.due_ms > now
                continue
            if done == done_max:
                schedule.handle(DeliveryFailed(1, action.offset), now)
                break
            done += 1
            assert entries[action.offset][2] <= now
            delivered.append(action.offset)
            schedule.handle(Delivered(1, action.offset), now)
    assert delivered == list(range(len(entries)))

"""How long messages have been waiting, from looks at offsets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eruca._admin.lag import QueueLag
from eruca._console.watching.aging import Aging, Ends, measure_rate

T0 = datetime(2026, 11, 19, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def row(offset: int, end: int, *, group: str = "billing", consumed_at: datetime | None = None) -> QueueLag:
    return QueueLag(
        group=group,
        topic="orders",
        broker="broker-a",
        queue=0,
        offset=offset,
        end=end,
        lag=end - offset,
        consumed_at=consumed_at,
    )


def test_time_of_a_message_is_between_the_looks_around_it() -> None:
    ends = Ends()
    ends.learn(at(0), 100)
    ends.learn(at(10), 110)
    ends.learn(at(20), 210)
    assert ends.find_stored(99) is None  # before the first look
    assert ends.find_stored(109) == at(10)
    assert ends.find_stored(104) == at(5)
    assert ends.find_stored(159) == at(15)
    assert ends.find_stored(210) is None  # not stored yet


def test_a_pause_costs_no_room_and_its_end_counts() -> None:
    ends = Ends()
    for second in range(1000):
        ends.learn(at(second), 7)
    ends.learn(at(1000), 8)
    assert len(ends.ends) == 3
    assert ends.find_stored(7) == at(1000)


def test_looks_are_bounded_and_old_ones_become_rarer() -> None:
    ends = Ends()
    for second in range(1000):
        ends.learn(at(second), second)
    assert len(ends.ends) <= 33
    found = ends.find_stored(990)
    assert found is not None
    assert abs((found - at(990)).total_seconds()) <= 1.0
    assert ends.at == sorted(ends.at)


def test_a_queue_whose_end_went_back_is_another() -> None:
    ends = Ends()
    ends.learn(at(0), 100)
    ends.learn(at(10), 3)
    assert ends.find_stored(50) is None
    assert ends.ends == [3]


def test_age_and_movement_of_a_group_that_falls_behind() -> None:
    aging = Aging()
    (first,) = aging.learn([row(10, 10)], at(0))
    assert (first.age, first.still, first.incoming) == (None, 0.0, None)
    (second,) = aging.learn([row(10, 20)], at(10))
    assert (second.incoming, second.outgoing) == (10, 0)
    assert second.age == pytest.approx(9.0)
    (third,) = aging.learn([row(10, 20)], at(30))
    assert third.age == pytest.approx(29.0)
    assert third.still == pytest.approx(20.0)
    assert not third.is_minimum
    (fourth,) = aging.learn([row(15, 20)], at(40))
    assert (fourth.outgoing, fourth.still) == (5, 0.0)
    assert fourth.age == pytest.approx(34.0)
    (fifth,) = aging.learn([row(20, 20)], at(50))
    assert (fifth.age, fifth.still) == (None, 0.0)


def test_a_queue_without_news_is_not_still_for_longer_than_its_message_waits() -> None:
    aging = Aging()
    for second in range(0, 100, 10):
        aging.learn([row(10, 10)], at(second))
    (found,) = aging.learn([row(10, 11)], at(100))
    assert found.still <= 10.0


def test_what_was_so_at_the_first_look_is_a_minimum_and_is_read() -> None:
    aging = Aging()
    aged = aging.learn([row(10, 20)], at(0))
    assert aged[0].is_minimum
    unknown = aging.list_unknown(aged)
    assert [each.offset for each in unknown] == [10]
    waited = QueueLag(
        group="billing",
        topic="orders",
        broker="broker-a",
        queue=0,
        offset=10,
        end=20,
        lag=10,
        lag_time=timedelta(seconds=600),
    )
    aging.learn_waits([waited], at(0))
    assert aging.correct(aged, at(0))[0].age == 600.0
    (later,) = aging.learn([row(10, 25)], at(10))
    assert later.age == 610.0
    assert (later.still, later.is_minimum) == (10.0, True)
    # It was read once: that is enough while it does not move.
    assert aging.list_unknown([later]) == []
    (moved,) = aging.learn([row(11, 25, consumed_at=at(-595))], at(20))
    assert not moved.is_minimum
    # It moves: the last message it consumed is close enough.
    assert moved.age == 615.0
    assert aging.list_unknown([moved]) == []


def test_groups_of_one_queue_do_not_disturb_each_other() -> None:
    aging = Aging()
    aging.learn([row(0, 5), row(5, 5, group="audit")], at(0))
    slow, quick = aging.learn([row(0, 8), row(8, 8, group="audit")], at(10))
    assert (slow.outgoing, quick.outgoing) == (0, 3)
    assert quick.age is None


def test_rate() -> None:
    assert measure_rate(50, timedelta(seconds=10)) == 5.0
    assert measure_rate(50, timedelta()) == 0.0

"""How a limit is shared out between queues, and when a batch is worth its while."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from eruca._spark.source.readlimits import RECORD_BYTES_GUESS, Patience, ReadLimits, RecordSizes, share_out
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import MessageQueue


def queue(number: int) -> MessageQueue:
    """One of many queues."""
    return MessageQueue("broker-a", number, "orders")


WAITING = st.dictionaries(st.integers(0, 12).map(queue), st.integers(0, 2**62), max_size=13)


@given(WAITING, st.integers(1, 2**63 - 1), st.integers(0, 100))
def test_a_limit_is_used_up_and_never_exceeded(waiting: dict[MessageQueue, int], limit: int, turn: int) -> None:
    shares = share_out(limit, waiting, turn=turn)
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 < shares[each] <= waiting[each] for each in shares)


@given(WAITING, st.integers(13, 2**63 - 1))
def test_every_queue_gets_something_where_there_is_room(waiting: dict[MessageQueue, int], limit: int) -> None:
    assert set(share_out(limit, waiting)) == {each for each, count in waiting.items() if count}


@given(
    st.dictionaries(st.integers(0, 12).map(queue), st.tuples(st.integers(1, 10**6), st.integers(1, 5000)), min_size=1),
    st.integers(1, 10**9),
    st.integers(0, 50),
)
def test_bytes_are_not_exceeded_but_by_a_single_message(
    given: dict[MessageQueue, tuple[int, int]], limit: int, turn: int
) -> None:
    waiting, costs = ({each: pair[at] for each, pair in given.items()} for at in (0, 1))
    shares = share_out(limit, waiting, turn=turn, costs=costs)
    spent = sum(count * costs[each] for each, count in shares.items())
    assert spent <= limit or sum(shares.values()) == 1
    assert shares
    assert all(0 < shares[each] <= waiting[each] for each in shares)


def test_shares_are_in_proportion_to_what_waits() -> None:
    assert share_out(100, {queue(0): 9000, queue(1): 900, queue(2): 100}) == {queue(0): 88, queue(1): 10, queue(2): 2}
    assert share_out(10, {queue(0): 3, queue(1): 4}) == {queue(0): 3, queue(1): 4}
    assert share_out(10, {queue(0): 0}) == {}


def test_queues_take_turns_where_not_all_can_have_something() -> None:
    waiting = {queue(number): 1000 if number == 0 else 1 for number in range(5)}
    served = [set(share_out(2, waiting, turn=turn)) for turn in range(5)]
    assert set().union(*served) == set(waiting)
    # The large messages of one queue do not keep the others from their turn.
    costs = {each: 400 if each == queue(0) else 300 for each in waiting}
    served = [set(share_out(350, waiting, turn=turn, costs=costs)) for turn in range(5)]
    assert set().union(*served) == set(waiting)


def test_limits_near_the_largest_number_do_not_overflow() -> None:
    largest = 2**63 - 1
    waiting = {queue(0): largest, queue(1): largest}
    shares = share_out(largest, waiting)
    assert sum(shares.values()) == largest
    assert ReadLimits(rows_max=largest).describe() == ReadMaxRows(largest)
    assert share_out(largest, {queue(0): 5}) == {queue(0): 5}


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (ReadLimits(), ReadAllAvailable()),
        (ReadLimits(rows_max=5, bytes_max=7, rows_min=3), ReadMaxRows(5)),
        (ReadLimits(bytes_max=7, rows_min=3), ReadMaxBytes(7)),
        (ReadLimits(rows_min=3), ReadMinRows(3)),
    ],
)
def test_spark_is_told_one_limit_and_all_hold(limits: ReadLimits, told: object) -> None:
    assert limits.describe() == told
    if limits != ReadLimits():
        assert limits.narrow(limits.describe()) == limits
    assert limits.narrow(ReadAllAvailable()) == ReadLimits()


def test_a_limit_of_spark_counts_too() -> None:
    limits = ReadLimits(rows_max=10, bytes_max=100)
    assert limits.narrow(ReadMaxRows(3)) == ReadLimits(rows_max=3, bytes_max=100)
    assert limits.narrow(ReadMaxRows(30)) == limits
    assert ReadLimits().narrow(ReadMaxBytes(9)) == ReadLimits(bytes_max=9)


def test_sizes_are_guessed_large_and_then_measured() -> None:
    sizes = RecordSizes()
    assert sizes.estimate(queue(0)) == RECORD_BYTES_GUESS
    sizes.learn(queue(0), [100, 300])
    assert sizes.estimate(queue(0)) == 200
    sizes.learn(queue(0), [1000])
    assert sizes.estimate(queue(0)) == 1000, "larger ones count at once"
    sizes.learn(queue(0), [200])
    assert sizes.estimate(queue(0)) == 600, "smaller ones little by little"
    sizes.learn(queue(0), [])
    assert sizes.estimate(queue(0)) == 600


def test_a_batch_waits_for_more_but_not_for_ever() -> None:
    clock = VirtualClock()
    patience, limits = Patience(clock), ReadLimits(rows_min=100, delay_ms_max=60_000)
    assert not patience.has_to_wait(0, limits)
    clock.advance(600_000)
    assert patience.has_to_wait(1, limits), "the time counts from when something waits"
    clock.advance(59_999)
    assert patience.has_to_wait(99, limits)
    clock.advance(1)
    assert not patience.has_to_wait(99, limits)
    assert patience.has_to_wait(5, limits), "what comes next waits anew"
    assert not patience.has_to_wait(100, limits)
    assert not patience.has_to_wait(5, ReadLimits())


# -- a part for each topic ---------------------------------------------------------------------------------------------

TOPICS = ("clicks", "orders", "payments")
MIXED = st.dictionaries(
    st.tuples(st.sampled_from(TOPICS), st.integers(0, 3)).map(lambda it: MessageQueue("broker-a", it[1], it[0])),
    st.integers(0, 10**6),
    min_size=1,
)


def sum_topics(counts: dict[MessageQueue, int]) -> dict[str, int]:
    """The messages of each topic."""
    found: dict[str, int] = {}
    for each, count in counts.items():
        found[each.topic] = found.get(each.topic, 0) + count
    return found


@given(MIXED, st.integers(1, 10**6), st.integers(0, 100), st.integers(1, 10**6))
def test_each_topic_gets_its_part_and_the_limit_is_used_up(
    waiting: dict[MessageQueue, int], limit: int, turn: int, least: int
) -> None:
    shares = share_out(limit, waiting, turn=turn, topic_min=least)
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 < shares[each] <= waiting[each] for each in shares)
    given, there = sum_topics(shares), {topic: count for topic, count in sum_topics(waiting).items() if count}
    wanted = {topic: min(least, count) for topic, count in there.items()}
    # If there is not enough for all parts, topics that want more get equal ones.
    level = limit // len(wanted) if wanted else 0
    assert all(given.get(topic, 0) >= min(want, level) for topic, want in wanted.items())
    if sum(wanted.values()) <= limit:
        assert all(given.get(topic, 0) >= want for topic, want in wanted.items())
    # The order in which queues were found makes no difference.
    backwards = dict(reversed(waiting.items()))
    assert share_out(limit, backwards, turn=turn, topic_min=least) == shares


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)).map(lambda it: MessageQueue("broker-a", it[1], it[0])),
        st.tuples(st.integers(1, 10**5), st.integers(1, 5000)),
        min_size=1,
    ),
    st.integers(1, 10**5),
    st.integers(1, 50),
)
def test_no_queue_starves_whatever_its_messages_cost(
    given: dict[MessageQueue, tuple[int, int]], limit: int, least: int
) -> None:
    waiting, costs = ({each: pair[at] for each, pair in given.items()} for at in (0, 1))
    served: set[MessageQueue] = set()
    for turn in range(len(TOPICS) * 4 * 3):
        shares = share_out(limit, waiting, turn=turn, costs=costs, topic_min=least)
        assert shares
        assert sum(count * costs[each] for each, count in shares.items()) <= limit or sum(shares.values()) == 1
        served |= shares.keys()
    assert served == set(waiting)


def test_a_small_topic_is_not_slowed_down_by_a_huge_one() -> None:
    waiting = {MessageQueue("b", number, "clicks"): 10**9 for number in range(4)}
    waiting |= {MessageQueue("b", 0, "orders"): 300, MessageQueue("b", 1, "orders"): 100}
    assert sum_topics(share_out(1000, waiting)) == {"clicks": 998, "orders": 2}
    shares = share_out(1000, waiting, topic_min=200)
    assert sum_topics(shares) == {"clicks": 800, "orders": 200}
    # Queues of a topic share its part in proportion to what waits.
    assert [shares[MessageQueue("b", number, "orders")] for number in (0, 1)] == [150, 50]
    # What a topic does not need is for the others.
    assert sum_topics(share_out(1000, waiting, topic_min=600)) == {"clicks": 600, "orders": 400}


def test_topics_take_turns_where_not_all_can_have_something() -> None:
    waiting = {MessageQueue("b", number, topic): 50 for topic in TOPICS for number in range(2)}
    served = [set(share_out(1, waiting, turn=turn, topic_min=5)) for turn in range(6)]
    assert [len(each) for each in served] == [1] * 6
    assert set().union(*served) == set(waiting)

"""Queue locks: one holder, renewed or ended, and gone with their group or topic."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._broker.app import Broker
from eruca._broker.groups.locks import QueueLocks
from eruca._broker.options import BrokerOptions, LiveOptions
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import LockBody, MessageQueue
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import DeleteGroupHeader, TopicHeader
from tests.integration.broker.peer import Peer

LIVE_MS = 60_000


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue("broker-a", number, topic)


def make_locks(**limits: Any) -> tuple[QueueLocks, VirtualClock]:
    clock = VirtualClock()
    return QueueLocks(clock, LiveOptions(BrokerOptions(lock_live_ms=LIVE_MS, **limits))), clock


def find_holder(locks: QueueLocks, group: str, queue: MessageQueue) -> str | None:
    """The client that holds a queue now."""
    lock = locks._groups.get(group, {}).get(queue)
    return lock.client_id if lock is not None and locks._clock.monotonic() <= lock.ends_at else None


def test_a_queue_has_one_holder() -> None:
    locks, _ = make_locks()
    assert locks.lock("G", "a", [queue(0), queue(1)]) == [queue(0), queue(1)]
    assert locks.lock("G", "b", [queue(1), queue(2)]) == [queue(2)]
    assert find_holder(locks, "G", queue(1)) == "a"
    assert locks.lock("H", "b", [queue(1)]) == [queue(1)]  # another group
    assert locks.lock("G", "a", [queue(0), queue(0)]) == [queue(0)]
    assert len(locks) == 4


def test_a_lock_ends_a_minute_after_its_last_renewal() -> None:
    locks, clock = make_locks()
    locks.lock("G", "a", [queue(0)])
    clock.advance(50_000)
    locks.lock("G", "a", [queue(0)])
    clock.advance(60_000)
    assert locks.lock("G", "b", [queue(0)]) == []
    clock.advance(1)
    assert find_holder(locks, "G", queue(0)) is None
    assert locks.lock("G", "b", [queue(0)]) == [queue(0)]
    assert locks.lock("G", "a", [queue(0)]) == []


def test_members_that_take_over_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever may consume as a group can take over its locks as often as they end."""
    locks, clock = make_locks()
    with caplog.at_level(logging.DEBUG):
        for holder in "abc":
            assert len(locks.lock("G", holder, map(queue, range(1000)))) == 1000
            clock.advance(60_001)
    assert [text for text in caplog.messages if "takes over" in text] == [
        "group G: b takes over queue 0 of T because a did not renew its lock"
    ]


def test_setting_the_wall_clock_neither_ends_nor_prolongs_a_lock() -> None:
    locks, clock = make_locks()
    locks.lock("G", "a", [queue(0)])
    clock.set_ms(clock.now_ms() + 10 * LIVE_MS)
    assert find_holder(locks, "G", queue(0)) == "a"


def test_only_the_holder_unlocks() -> None:
    locks, _ = make_locks()
    locks.lock("G", "a", [queue(0), queue(1)])
    locks.unlock("G", "b", [queue(0)])
    locks.unlock("Nobody", "a", [queue(0)])
    assert find_holder(locks, "G", queue(0)) == "a"
    locks.unlock("G", "a", [queue(0), queue(7)])
    assert find_holder(locks, "G", queue(0)) is None
    assert locks.lock("G", "b", [queue(0), queue(1)]) == [queue(0)]


def test_locks_go_with_their_group_their_topic_and_their_time() -> None:
    locks, clock = make_locks()
    locks.lock("G", "a", [queue(0), queue(0, "U")])
    locks.lock("H", "a", [queue(0)])
    locks.remove_topic("T")
    assert (len(locks), find_holder(locks, "G", queue(0, "U"))) == (1, "a")
    locks.remove_group("G")
    assert len(locks) == 0
    locks.lock("G", "a", [queue(0)])
    clock.advance(40_000)
    locks.lock("G", "b", [queue(1)])
    clock.advance(20_001)
    locks.remove_expired()
    assert (len(locks), find_holder(locks, "G", queue(1))) == (1, "b")


def test_a_group_cannot_lock_without_end(caplog: pytest.LogCaptureFixture) -> None:
    locks, _ = make_locks(locks_of_group_max=100)
    assert len(locks.lock("G", "a", (queue(number) for number in range(105)))) == 100
    assert len(locks) == 100
    assert "(maxQueueLocksPerGroup=100)" in caplog.text


def test_all_groups_together_cannot_lock_without_end(caplog: pytest.LogCaptureFixture) -> None:
    locks, clock = make_locks(locks_max=10)
    assert len([group for group in range(20) if locks.lock(f"G{group}", "a", [queue(0)])]) == 10
    locks.unlock("G0", "a", [queue(0)])
    assert locks.lock("G15", "a", [queue(0)]) == [queue(0)]
    assert locks.lock("G16", "a", [queue(0)]) == []
    assert "(maxQueueLocks=10)" in caplog.text
    locks.remove_group("G15")
    locks.remove_topic(queue(0).topic)
    assert len(locks) == 0
    locks.lock("G", "a", [queue(0), queue(1)])
    clock.advance(3_600_000)
    locks.remove_expired()
    assert len(locks) == 0


async def test_names_that_cannot_be_are_not_locked(broker: Broker, peer: Peer) -> None:
    for group, client_id, topic in (("a.b", "c", "T"), ("G", "c" * 513, "T"), ("G", "c", "T" * 1000), ("G", "", "T")):
        body = LockBody(consumer_group=group, client_id=client_id, mq_set=[MessageQueue("broker-a", 0, topic)])
        assert (await peer.refused(RequestCode.LOCK_BATCH_MQ, None, body))[0] == ResponseCode.SYSTEM_ERROR
    assert len(broker.locks) == 0


STEPS = st.lists(
    st.tuples(st.sampled_from(["lock", "unlock", "wait"]), st.sampled_from("abc"), st.integers(0, 3)), max_size=40
)


@given(STEPS, st.sampled_from([None, 10_000, 20_000]))
def test_two_members_never_hold_the_same_queue(steps: list[tuple[str, str, int]], live_ms: int | None) -> None:
    """Members of both kinds: `a` may ask for shorter locks, the others do not."""
    locks, clock = make_locks()
    believed: dict[tuple[str, int], int] = {}  # which client holds what, and until when it may rely on it
    for what, client, number in steps:
        if what == "wait":
            clock.advance(number * 15_000)
        elif what == "unlock":
            locks.unlock("G", client, [queue(number)])
            believed.pop((client, number), None)
        elif locks.lock("G", client, [queue(number)], live_ms if client == "a" else None):
            believed[client, number] = clock.now_ms() + ((live_ms if client == "a" else None) or LIVE_MS)
        for each in range(4):
            holders = [name for (name, held), until in believed.items() if held == each and until >= clock.now_ms()]
            assert len(holders) <= 1


async def test_a_client_that_renews_often_may_ask_for_a_shorter_lock(broker: Broker, peer: Peer) -> None:
    """A crash then frees its queues sooner; no lock is longer than all others, or so short that it is lost at once."""

    async def lock(client_id: str, number: int, live_ms: int | None) -> int | None:
        body = LockBody(client_id=client_id, consumer_group="G", eruca_lock_ms=live_ms, mq_set=[queue(number)])
        answer = (await peer.expect(RequestCode.LOCK_BATCH_MQ, None, body)).body
        if answer.locked:
            lock = broker.locks._groups["G"][queue(number)]
            left_s = lock.ends_at - broker.clock.monotonic()
            assert left_s <= (live_ms or 60_000) / 1000 or live_ms == 1
        return answer.eruca_lock_ms if answer.locked else -1

    assert await lock("a", 0, 10_000) == 10_000
    assert await lock("b", 0, 10_000) == -1
    assert await lock("a", 1, 1) == 1000
    assert await lock("a", 2, 2**62) == 60_000
    assert await lock("a", 3, None) is None


async def test_clients_lock_and_unlock(broker: Broker, peer: Peer) -> None:
    body = LockBody(client_id="a", consumer_group="G", mq_set=[queue(3), queue(1)])
    answer = await peer.expect(RequestCode.LOCK_BATCH_MQ, None, body)
    assert answer.body.locked == [queue(3), queue(1)]
    assert answer.ext is None
    other = LockBody(client_id="b", consumer_group="G", mq_set=[queue(3), queue(2)])
    assert (await peer.expect(RequestCode.LOCK_BATCH_MQ, None, other)).body.locked == [queue(2)]
    await peer.expect(RequestCode.UNLOCK_BATCH_MQ, None, body)
    assert (await peer.expect(RequestCode.LOCK_BATCH_MQ, None, other)).body.locked == [queue(3), queue(2)]
    code, _ = await peer.refused(RequestCode.LOCK_BATCH_MQ)
    assert code == ResponseCode.SYSTEM_ERROR


async def test_deleting_a_topic_or_a_group_frees_its_queues(broker: Broker, peer: Peer) -> None:
    await peer.make_topic("T")
    body = LockBody(client_id="a", consumer_group="G", mq_set=[queue(0), queue(0, "U")])
    await peer.expect(RequestCode.LOCK_BATCH_MQ, None, body)
    await peer.expect(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic="T"))
    assert find_holder(broker.locks, "G", queue(0)) is None
    assert find_holder(broker.locks, "G", queue(0, "U")) == "a"
    await peer.expect(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupHeader(group_name="G"))
    assert len(broker.locks) == 0

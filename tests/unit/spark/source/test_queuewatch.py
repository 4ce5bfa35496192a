"""Queues that come, go, and are away for a moment."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import pytest

from eruca._client.session.route import Route
from eruca._spark.offsets import Offsets
from eruca._spark.source.queuewatch import FRESH_MS, QueueWatch, Subscribed
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConnectFailed, NetError

A0, A1 = MessageQueue("broker-a", 0, "orders"), MessageQueue("broker-a", 1, "orders")
B0 = MessageQueue("broker-b", 0, "orders")
ORDERS = Subscribed(topics=frozenset({"orders"}))


class FakeView:
    """A cluster whose answers a test writes down."""

    def __init__(self, ends: Offsets) -> None:
        self.insists = False
        self.ends = dict(ends)
        self.begins: Offsets = {}
        self.masters = {queue.broker_name for queue in ends}
        self.slaves: set[str] = set()
        self.unreadable: set[str] = set()
        self.has_names = True
        self.asked: list[str] = []

    def _check(self, what: str) -> None:
        self.asked.append(what)
        if not self.has_names:
            raise NetError("no name server answers")

    def match_topics(self, pattern: str) -> list[str]:
        self._check("topics")
        return sorted({queue.topic for queue in self.ends})

    def find_routes(self, topics: Collection[str]) -> dict[str, Route | None]:
        self._check("routes")
        return {topic: self._make_route(topic) for topic in topics}

    def _make_route(self, topic: str) -> Route | None:
        there = sorted(
            queue for queue in self.ends if queue.topic == topic and queue.broker_name in self.masters | self.slaves
        )
        if not there:
            return None
        brokers = {
            queue.broker_name: {(0 if queue.broker_name in self.masters else 1): queue.broker_name} for queue in there
        }
        read = tuple(queue for queue in there if queue.broker_name not in self.unreadable)
        return Route(topic, read, read, brokers)

    def list_masters(self) -> dict[str, str]:
        self._check("masters")
        return {name: name for name in self.masters}

    def find_ends(self, queues: Collection[MessageQueue]) -> Offsets:
        self.asked.append("ends")
        return {queue: self.ends[queue] for queue in queues if queue.broker_name in self.masters | self.slaves}

    def find_begins(self, queues: Collection[MessageQueue]) -> Offsets:
        return {queue: self.begins.get(queue, 0) for queue in queues}

    def find_address(self, queue: MessageQueue) -> str:
        return queue.broker_name

    def measure(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, list[int]]:
        return {}


def test_queues_that_are_added_are_seen() -> None:
    view, clock = FakeView({A0: 5}), VirtualClock()
    watch = QueueWatch(view, ORDERS, clock)
    assert watch.look({A0: 5}, must_answer=False).ends == {A0: 5}
    view.ends[A1] = 3
    assert set(watch.look({A0: 5}, must_answer=False).ends) == {A0}, "routes are not asked for all the time"
    clock.advance(FRESH_MS)
    sight = watch.look({A0: 5}, must_answer=False)
    assert (sight.ends, sight.begins) == ({A0: 5, A1: 3}, {A1: 0})


def test_topics_that_come_to_match_are_seen() -> None:
    view, clock = FakeView({A0: 5}), VirtualClock()
    watch = QueueWatch(view, Subscribed(pattern="o.*|pay.*"), clock)
    watch.look({}, must_answer=False)
    paid = MessageQueue("broker-a", 0, "payments")
    view.ends[paid] = 2
    clock.advance(FRESH_MS)
    assert paid in watch.look({}, must_answer=False).ends


def test_only_what_is_assigned_is_read() -> None:
    watch = QueueWatch(FakeView({A0: 5, A1: 6}), Subscribed(assigned=frozenset({A1})), VirtualClock())
    assert watch.look({}, must_answer=False).ends == {A1: 6}


def test_a_deleted_topic_is_gone() -> None:
    other = MessageQueue("broker-a", 0, "other")
    view = FakeView({A0: 5, other: 1})
    watch = QueueWatch(view, ORDERS, VirtualClock())
    del view.ends[A0]
    sight = watch.look({A0: 5}, must_answer=False)
    assert (sight.gone, sight.away) == ({A0}, set())


def test_a_topic_with_fewer_queues_has_lost_some() -> None:
    view = FakeView({A0: 5})
    sight = QueueWatch(view, ORDERS, VirtualClock()).look({A0: 5, A1: 3}, must_answer=False)
    assert (sight.gone, sight.away) == ({A1}, set())


def test_a_broker_that_is_away_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    view, clock = FakeView({A0: 5, B0: 7}), VirtualClock()
    watch = QueueWatch(view, ORDERS, clock)
    watch.look({}, must_answer=False)
    view.masters.discard("broker-b")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):  # its route is still there, and then not anymore
            sight = watch.look({A0: 5, B0: 7}, must_answer=False)
            assert (sight.gone, sight.away, sight.ends) == (set(), {B0}, {A0: 5})
            clock.advance(FRESH_MS)
    assert len(caplog.records) == 1, "it is not said all the time"
    with pytest.raises(ConnectFailed, match="orders/broker-b/0"):
        watch.look({A0: 5, B0: 7}, must_answer=True)
    assert watch.look({A0: 5}, must_answer=True, only=[A0]).ends == {A0: 5}


def test_name_servers_that_are_away_are_no_matter_once_routes_are_known() -> None:
    view, clock = FakeView({A0: 5}), VirtualClock()
    watch = QueueWatch(view, ORDERS, clock)
    view.has_names = False
    with pytest.raises(NetError):
        watch.look({}, must_answer=False)
    view.has_names = True
    watch.look({}, must_answer=False)
    view.has_names = False
    clock.advance(FRESH_MS)
    assert watch.look({A0: 5}, must_answer=False).ends == {A0: 5}


def test_a_broker_that_registers_between_two_questions_is_no_loss() -> None:
    class Registering(FakeView):
        """Its route comes with the second question."""

        def find_routes(self, topics: Collection[str]) -> dict[str, Route | None]:
            found = super().find_routes(topics)
            return dict.fromkeys(topics) if self.asked.count("routes") == 1 else found

    sight = QueueWatch(Registering({A0: 5}), ORDERS, VirtualClock()).look({A0: 5}, must_answer=False)
    assert (sight.gone, sight.away) == (set(), {A0})


def test_a_topic_that_may_not_be_read_for_now_is_no_loss() -> None:
    view = FakeView({A0: 5})
    view.unreadable.add("broker-a")
    sight = QueueWatch(view, ORDERS, VirtualClock()).look({A0: 5}, must_answer=False)
    assert (sight.gone, sight.away) == (set(), {A0})


def test_a_slave_that_lags_is_no_loss() -> None:
    view = FakeView({A0: 5})
    view.masters, view.slaves = set(), {"broker-a"}
    watch = QueueWatch(view, ORDERS, VirtualClock())
    sight = watch.look({A0: 9}, must_answer=False)
    assert (sight.ends, sight.away) == ({}, {A0})
    assert watch.look({A0: 3}, must_answer=False).ends == {A0: 5}


def test_what_is_not_subscribed_any_more_stays_as_it_is() -> None:
    view = FakeView({A0: 5, MessageQueue("broker-a", 0, "old"): 9})
    old = MessageQueue("broker-a", 0, "old")
    sight = QueueWatch(view, ORDERS, VirtualClock()).look({A0: 5, old: 4}, must_answer=True)
    assert (sight.ends, sight.gone, sight.away) == ({A0: 5}, set(), set())

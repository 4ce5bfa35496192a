"""The planner of a stream: what it answers to Spark, with a cluster that a test writes down."""

from __future__ import annotations

import json
import pickle
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from eruca._client.session.route import Route
from eruca._spark.columns import MESSAGE_COLUMNS
from eruca._spark.offsets import Offsets, decode_offsets, encode_offsets
from eruca._spark.source.options import read_options
from eruca._spark.source.stream import StreamPlanner, TopicStreamReader
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConnectFailed, OffsetLost

Q0, Q1, Q2 = (MessageQueue("broker-a", number, "orders") for number in range(3))
OPTIONS = {"nameServer": "127.0.0.1:1", "subscribe": "orders"}


class FakeView:
    """A cluster of one broker."""

    def __init__(self, ends: Offsets) -> None:
        self.insists = False
        self.ends = dict(ends)
        self.begins: Offsets = {}
        self.is_up = True
        self.sizes: dict[MessageQueue, int] = {}
        self.asked = 0

    def match_topics(self, pattern: str) -> list[str]:
        return ["orders"]

    def find_routes(self, topics: Collection[str]) -> dict[str, Route | None]:
        queues = tuple(sorted(self.ends))
        route = Route("orders", queues, queues, {"broker-a": {0: "here"}}) if queues else None
        return {topic: route if topic == "orders" else None for topic in topics}

    def list_masters(self) -> dict[str, str]:
        return {"broker-a": "here"}

    def find_ends(self, queues: Collection[MessageQueue]) -> Offsets:
        self.asked += 1
        return {queue: self.ends[queue] for queue in queues} if self.is_up else {}

    def find_begins(self, queues: Collection[MessageQueue]) -> Offsets:
        return {queue: self.begins.get(queue, 0) for queue in queues}

    def find_address(self, queue: MessageQueue) -> str:
        return "here"

    def measure(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, list[int]]:
        return {queue: [self.sizes[queue]] for queue in places if queue in self.sizes}


class Stage:
    """A planner, its cluster and its clock."""

    def __init__(self, ends: Offsets, **options: object) -> None:
        self.view, self.clock = FakeView(ends), VirtualClock()
        self.slept: list[float] = []
        given = OPTIONS | {name: str(value) for name, value in options.items()}
        self.planner = StreamPlanner(read_options(given), view=self.view, clock=self.clock, sleep=self.slept.append)

    def go_on(self, start: Offsets, limit: Any = None) -> Offsets:
        """Where the next batch ends."""
        asked = self.planner.limits.describe() if limit is None else limit
        return decode_offsets(self.planner.find_end(encode_offsets(start), asked))

    def list_ranges(self, start: Offsets, end: Offsets) -> list[tuple[MessageQueue, int, int]]:
        """What the tasks of a batch read."""
        tasks = self.planner.plan(encode_offsets(start), encode_offsets(end))
        return [(each.queue, each.begin, each.end) for task in tasks for each in task.ranges]


def test_all_there_is_is_read_without_a_limit() -> None:
    stage = Stage({Q0: 10, Q1: 3})
    end = stage.go_on({Q0: 4, Q1: 0})
    assert end == {Q0: 10, Q1: 3}
    assert stage.list_ranges({Q0: 4, Q1: 0}, end) == [(Q0, 4, 10), (Q1, 0, 3)]
    reported = stage.planner.describe_ends()
    assert reported == encode_offsets({Q0: 10, Q1: 3}, behind={"orders": 0}, nameServer="127.0.0.1:1")


def test_what_a_batch_leaves_is_reported() -> None:
    stage = Stage({Q0: 10, Q1: 30}, maxOffsetsPerTrigger=8)
    assert stage.planner.describe_ends() is None
    end = stage.go_on({Q0: 4, Q1: 0})
    reported = stage.planner.describe_ends()
    assert reported is not None and reported["behind"] == {"orders": 36 - 8}
    stage.view.ends[Q1] = 31
    assert stage.planner.describe_ends() == reported, "as of the last look"
    stage.go_on(end, ReadAllAvailable())
    reported = stage.planner.describe_ends()
    assert reported is not None and reported["behind"] == {"orders": 0}


def test_without_news_the_very_start_comes_back() -> None:
    stage = Stage({Q0: 10})
    start = {"topics": {"orders": {"broker-a": {"0": 10}}}, "nameServer": "of an earlier run"}
    assert stage.planner.find_end(start, ReadAllAvailable()) is start, "Spark compares texts"
    assert stage.slept == []
    stage.planner.find_end(start, ReadAllAvailable())
    assert stage.slept == [pytest.approx(0.05)], "brokers are not asked a hundred times a second"


def test_offsets_say_where_to_commit_them_and_have_their_keys_in_order() -> None:
    stage = Stage({Q0: 10, Q2: 5, Q1: 7}, commitOffsetsToGroup="billing")
    end = stage.planner.find_end(encode_offsets({Q2: 1, Q0: 1, Q1: 1}), ReadAllAvailable())
    assert (end["group"], end["nameServer"]) == ("billing", "127.0.0.1:1")
    assert json.dumps(end) == json.dumps(end, sort_keys=True)


def test_limits_of_all_kinds_hold_together() -> None:
    stage = Stage({Q0: 1000, Q1: 1000}, maxOffsetsPerTrigger=100, maxBytesPerTrigger=5000)
    stage.view.sizes = {Q0: 100, Q1: 900}
    start = {Q0: 0, Q1: 0}
    end = stage.go_on(start)
    assert sum(end.values()) <= 100
    assert end[Q0] * 100 + end[Q1] * 900 <= 5000
    assert min(end.values()) > 0
    assert stage.go_on(start, ReadMaxRows(1)) in ({Q0: 1, Q1: 0}, {Q0: 0, Q1: 1})
    assert stage.go_on(start, ReadAllAvailable()) == {Q0: 1000, Q1: 1000}


def test_messages_nobody_has_seen_are_taken_for_large() -> None:
    stage = Stage({Q0: 1000}, maxBytesPerTrigger=64 * 1024)
    assert stage.go_on({Q0: 0}) == {Q0: 4}


def test_a_batch_waits_for_more_unless_no_more_is_to_be_read() -> None:
    stage = Stage({Q0: 10}, minOffsetsPerTrigger=20, maxTriggerDelay="1m")
    assert stage.go_on({Q0: 0}) == {Q0: 0}
    stage.view.ends[Q0] = 25
    assert stage.go_on({Q0: 0}) == {Q0: 25}
    assert stage.go_on({Q0: 20}) == {Q0: 20}
    stage.clock.advance(60_000)
    assert stage.go_on({Q0: 20}) == {Q0: 25}
    stage.planner.pin_end()
    assert stage.go_on({Q0: 20}) == {Q0: 25}


def test_what_is_available_now_ends_where_it_was() -> None:
    stage = Stage({Q0: 10, Q1: 10}, maxOffsetsPerTrigger=15)
    stage.planner.pin_end()
    stage.view.ends = {Q0: 99, Q1: 99, Q2: 99}
    at = {Q0: 0}
    for _ in range(5):
        at = stage.go_on(at)
    assert at == {Q0: 10, Q1: 10}
    assert stage.go_on({Q0: 50, Q1: 10}) == {Q0: 50, Q1: 10}, "a start behind the end is left as it is"


def test_what_is_available_now_does_not_end_because_a_broker_is_away() -> None:
    stage = Stage({Q0: 10})
    stage.planner.pin_end()
    stage.view.is_up = False
    with pytest.raises(ConnectFailed):
        stage.go_on({Q0: 0})


def test_a_stream_stands_still_while_a_broker_is_away() -> None:
    stage = Stage({Q0: 10})
    assert stage.go_on({Q0: 0}) == {Q0: 10}
    stage.view.is_up = False
    assert stage.go_on({Q0: 10}) == {Q0: 10}
    stage.view.is_up = True
    stage.view.ends[Q0] = 12
    assert stage.go_on({Q0: 10}) == {Q0: 12}


@pytest.mark.parametrize("loss", ["true", "false", "warn"])
def test_losses_stop_a_stream_only_if_they_are_to(loss: str) -> None:
    stage = Stage({Q0: 10}, failOnDataLoss=loss)
    stage.view.begins[Q0] = 6
    if loss == "true":
        with pytest.raises(OffsetLost, match="begins at 6"):
            stage.go_on({Q0: 2})
        return
    end = stage.go_on({Q0: 2})
    assert stage.list_ranges({Q0: 2}, end) == [(Q0, 6, 10)]


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_batch_of_an_earlier_run_is_looked_at_again(loss: str) -> None:
    stage = Stage({Q0: 100}, failOnDataLoss=loss)
    assert stage.list_ranges({Q0: 2}, {Q0: 8}) == [(Q0, 2, 8)]
    stage.view.begins[Q0] = 20
    if loss == "true":
        with pytest.raises(OffsetLost, match="from 10 to 30"):
            stage.list_ranges({Q0: 10}, {Q0: 30})
    else:
        assert stage.list_ranges({Q0: 10}, {Q0: 30}) == [(Q0, 20, 30)]


def test_tasks_are_planned_once_for_each_batch() -> None:
    stage = Stage({Q0: 100})
    first = stage.planner.plan(encode_offsets({Q0: 2}), encode_offsets({Q0: 8}))
    asked = stage.view.asked
    assert stage.planner.plan(encode_offsets({Q0: 2}), encode_offsets({Q0: 8})) is first
    assert stage.view.asked == asked
    assert stage.planner.plan(encode_offsets({Q0: 8}), encode_offsets({Q0: 8})) == []


def test_a_reader_travels_to_its_tasks_without_connections() -> None:
    reader = TopicStreamReader(read_options(OPTIONS), MESSAGE_COLUMNS[:3])
    copy = pickle.loads(pickle.dumps(reader))
    assert isinstance(copy, TopicStreamReader)
    copy.stop()

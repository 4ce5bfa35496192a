"""Looks at a broker: lag in messages and in time, rates, stuck and absent groups, brokers that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eruca import Consumer, Message, Offsets
from eruca._console.clusters import Cluster
from eruca._console.state import State
from eruca._console.watching import alarmtables, history
from eruca._console.watching.alarms import AlarmState
from eruca._console.watching.history import GROUP
from eruca._console.watching.options import WatchingOptions
from eruca._console.watching.rules import Rule, RuleKind
from eruca._console.watching.samples import Sample, Trend
from eruca._console.watching.sampling import INTERVAL_S_MAX, Sampler, choose_interval
from eruca._console.watching.watching import Watching
from eruca._testing.embedded import EmbeddedBroker
from eruca._wire.bodies import MessageQueue
from eruca.admin import Admin
from tests.integration.admin.conftest import admin, broker
from tests.integration.admin.staging import send, wait_until
from tests.integration.broker.conftest import allow_new_files

__all__ = ["admin", "allow_new_files", "broker"]

TOPIC = "orders"


class Watch:
    """A sampler whose clock is moved by the test: looks are as far apart as it wants."""

    def __init__(self, admin: Admin) -> None:
        self.ahead = timedelta()
        self.taken: list[Sample] = []
        self.sampler = Sampler("main", admin, self._take, interval_s=10.0, now=self.tell_time)

    def tell_time(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    async def _take(self, sample: Sample) -> None:
        self.taken.append(sample)

    async def look(self, *, after: float = 0.0) -> Sample:
        self.ahead += timedelta(seconds=after)
        await self.sampler.look()
        return self.taken[-1]


@pytest.fixture
async def watch(broker: EmbeddedBroker, admin: Admin) -> Watch:
    await asyncio.to_thread(broker.create_topic, TOPIC, 2)
    return Watch(admin)


async def commit(admin: Admin, broker: EmbeddedBroker, group: str, *places: int) -> None:
    for number, place in enumerate(places):
        queue = MessageQueue("embedded", number, TOPIC)
        await admin.connection.calls.write_offset(broker.address, group, queue, place, wait=True)


async def test_lag_grows_and_shrinks(broker: EmbeddedBroker, admin: Admin, watch: Watch) -> None:
    await commit(admin, broker, "billing", 0, 0)
    first = (await watch.look()).groups["billing"]
    assert (first.lag, first.age, first.incoming, first.trend) == (0, None, None, Trend.QUIET)
    await send(admin, TOPIC, 20)
    second = (await watch.look(after=10)).groups["billing"]
    assert (second.lag, second.outgoing, second.topics) == (20, 0.0, (TOPIC,))
    assert second.incoming == pytest.approx(2.0, rel=0.3)
    # They were stored between the two looks.
    assert second.age is not None
    assert 0 <= second.age <= 11
    assert (second.members, second.trend) == (0, Trend.ABSENT)
    third = (await watch.look(after=60)).groups["billing"]
    assert third.age is not None
    assert 59 <= third.age <= 75
    assert third.still is not None
    assert (third.still.topic, third.still.broker, third.still.is_minimum) == (TOPIC, "embedded", False)
    assert third.still.seconds >= 59
    ends = sorted(row.end for row in (await admin.topics.queues(TOPIC)).items)
    await commit(admin, broker, "billing", *[row.end for row in (await admin.topics.queues(TOPIC)).items])
    fourth = (await watch.look(after=10)).groups["billing"]
    assert (fourth.lag, fourth.age, fourth.still, sum(ends)) == (0, None, None, 20)
    assert fourth.outgoing == pytest.approx(2.0, rel=0.3)


async def test_the_age_of_an_old_backlog_is_read_from_the_message(
    broker: EmbeddedBroker, admin: Admin, watch: Watch
) -> None:
    await send(admin, TOPIC, 4)
    await commit(admin, broker, "billing", 0, 0)
    first = (await watch.look()).groups["billing"]
    # It has been so since before the first look, so offsets do not tell.
    assert first.age is not None
    assert 0 < first.age < 60
    later = (await watch.look(after=600)).groups["billing"]
    assert later.age is not None
    assert later.age == pytest.approx(first.age + 600, abs=60)
    assert later.still is not None
    assert later.still.is_minimum


@asynccontextmanager
async def member(broker: EmbeddedBroker, release: asyncio.Event) -> AsyncIterator[Consumer]:
    """A member whose handler does not return before it is released."""
    consumer = Consumer(broker.nameserver, group="billing", start="earliest", offsets=Offsets(interval=0.1))

    @consumer.handler(TOPIC)
    async def wait(message: Message) -> None:
        await release.wait()

    async with consumer:
        yield consumer


async def test_a_member_that_hangs_is_stuck_and_then_catches_up(
    broker: EmbeddedBroker, admin: Admin, watch: Watch
) -> None:
    await commit(admin, broker, "billing", 0, 0)
    await watch.look()
    await send(admin, TOPIC, 20)
    release = asyncio.Event()
    async with member(broker, release):

        async def has_member() -> bool:
            return bool((await admin.groups.members("billing")).items)

        await wait_until(has_member, "a member of billing")
        await watch.look(after=10)
        stuck = (await watch.look(after=120)).groups["billing"]
        assert (stuck.trend, stuck.members, stuck.lag) == (Trend.STUCK, 1, 20)
        release.set()

        async def is_done() -> bool:
            return not sum(row.lag for row in (await admin.offsets.show("billing")).items)

        await wait_until(is_done, "the backlog is consumed")
        done = (await watch.look(after=10)).groups["billing"]
        assert (done.lag, done.trend) == (0, Trend.CURRENT)


async def test_brokers_and_what_is_not_seen(broker: EmbeddedBroker, admin: Admin, watch: Watch) -> None:
    await commit(admin, broker, "billing", 0, 0)
    sample = await watch.look()
    (seen,) = sample.brokers
    assert (seen.broker, seen.gone_since) == ("embedded", None)
    assert seen.disk is not None
    assert 0 < seen.disk < 1
    assert (sample.groups_known, sample.groups_complete, sample.brokers_complete, sample.problems) == (
        True,
        True,
        True,
        [],
    )
    await asyncio.to_thread(broker.stop)
    sample = await watch.look(after=40)
    assert not sample.groups_known
    assert not sample.groups_complete
    assert sample.problems
    # The last known state of groups is still shown.
    assert set(sample.groups) == {"billing"}
    (gone,) = sample.brokers
    assert gone.gone_since is not None


async def test_looks_are_stored_and_alarms_fire_and_end(broker: EmbeddedBroker, admin: Admin, tmp_path: Path) -> None:
    state = State(tmp_path / "console", [history.SCHEMA, alarmtables.SCHEMA])
    await state.open()
    watching = Watching([Cluster("main", admin)], state, WatchingOptions(interval_ms=100))
    await watching.tables.put_rule(Rule(id=0, name="behind", kind=RuleKind.LAG, threshold=10, prefix="bill"))
    await asyncio.to_thread(broker.create_topic, TOPIC, 2)
    await commit(admin, broker, "billing", 0, 0)
    await commit(admin, broker, "audit", 0, 0)
    await watching.start()
    try:
        await send(admin, TOPIC, 12)

        async def fires() -> bool:
            return [alarm.target for alarm in watching.list_open("main")] == ["billing"]

        await wait_until(fires, "an alarm about billing")
        noted = await watching.acknowledge(watching.list_open("main")[0].id, "ada", "on it")
        assert noted is not None
        assert noted.state is AlarmState.ACKNOWLEDGED
        await commit(admin, broker, "billing", *[row.end for row in (await admin.topics.queues(TOPIC)).items])

        async def is_over() -> bool:
            return not watching.list_open("main")

        await wait_until(is_over, "the end of the alarm")
        ((past,), more) = await watching.tables.list_past("main", 10)
        assert (past.state, past.acknowledged_by, past.note, past.peak, more) == (
            AlarmState.RESOLVED, "ada", "on it", 12, False,
        )  # fmt: skip
        now = datetime.now(UTC)

        async def is_drawn() -> bool:
            points = await watching.history.read("main", GROUP, "billing", now - timedelta(minutes=5), now)
            lags = [point.lag for point in points]
            return 12 in lags and lags[-1] == 0

        await wait_until(is_drawn, "the rise and the fall in the history")
    finally:
        await watching.stop()
        await state.close()


def test_looks_take_a_small_share_of_the_time() -> None:
    assert choose_interval(0.01, 3, 10.0) == 10.0
    assert choose_interval(0.5, 3, 10.0) == 25.0
    assert choose_interval(0.01, 2_000, 10.0) == 40.0
    assert choose_interval(60.0, 2_000, 10.0) == INTERVAL_S_MAX

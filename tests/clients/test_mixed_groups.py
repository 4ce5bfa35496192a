"""Java and Python members of one group: one owner for each queue after each change, nothing lost, nothing doubled."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eruca import ClientOptions, MessageQueue, Producer, Rebalance
from eruca._client.pull.scheduledpull import PullContext, ScheduledPull
from tests.clients.churnruns import LOCK_LIVE_MS, PATIENT_SECONDS, QUEUES, WINDOW_SECONDS, ChurnRun, run_churn
from tests.clients.history import History
from tests.clients.members import JavaFeed, JavaMember, Member, MemberSettings, poll, wait_for_owners
from tests.clients.pythonmember import PythonMember
from tests.clients.stage import QUICK_OPTIONS, create_topic, list_numbers, send_numbered, wait_until
from tests.figures import note_figures
from tests.interop.brokers import BROKER_NAME, SETTINGS, ErucaCluster
from tests.interop.javapeer import (
    START_SECONDS_MAX,
    JavaProcess,
    Peer,
    find_broker_port,
    prepare_peer,
)
from tests.needs import starts
from tests.patience import PATIENCE_S

SEED = 20_260_116
CRASHES_MIN = 4
# Work as long as the time between commits, so that a killed member always has begun what it could wrongly commit, and
# threads enough for two members to do it all.
BUSY: dict[str, Any] = {"work_ms": 50, "persist_ms": 50, "threads": 32}
REST_SECONDS_MAX = PATIENCE_S
ARRIVE_SECONDS_MAX = PATIENCE_S


@pytest.fixture(scope="module")
@starts("java")
def peer() -> Peer:
    return prepare_peer()


@pytest.fixture(scope="module")
def eruca(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    settings = {**SETTINGS, "rebalanceLockMaxLiveTime": LOCK_LIVE_MS}
    with ErucaCluster(tmp_path_factory.mktemp("cluster"), settings) as cluster:
        yield cluster
        assert cluster.list_complaints() == []


def test_mixed_group_survives_a_few_changes(peer: Peer, eruca: ErucaCluster, tmp_path: Path) -> None:
    settings = MemberSettings(eruca.name_server, "group-few", "mixed-few", **BUSY)
    run = ChurnRun(seed=SEED, changes=4, between=200, window_s=PATIENT_SECONDS)
    result = run_churn(run, peer, eruca, tmp_path, settings)
    assert result.crashes >= 1


@pytest.mark.whole
@pytest.mark.parametrize("strategy", ["average", "circle", "consistent-hash"])
def test_mixed_group_survives_twenty_changes(strategy: str, peer: Peer, eruca: ErucaCluster, tmp_path: Path) -> None:
    topic = f"mixed-{strategy}"
    settings = MemberSettings(eruca.name_server, f"group-{topic}", topic, strategy, **BUSY)
    result = run_churn(ChurnRun(seed=SEED), peer, eruca, tmp_path, settings)
    assert result.crashes >= CRASHES_MIN
    assert result.quiet > result.sent / 10


# --- machine rooms ----------------------------------------------------------------------------------------------

NEAR, FAR = "r1@a", "r2@b"


class FarBroker(JavaProcess):
    """One more broker of a cluster, which stands in another room."""

    def __init__(self, home: Path, name_server: str) -> None:
        self.kind = "eruca"
        self.name_server = name_server
        port = find_broker_port()
        self.broker = f"127.0.0.1:{port}"
        home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "eruca", "broker", "-o", "json", "-n", name_server, "--broker-name", FAR]
        command += ["--listen-port", str(port), "--store-path-root-dir", str(home / "store")]
        super().__init__(command, home / "far.log", talks=True)
        self.wait_for(lambda text: text.startswith("{"), START_SECONDS_MAX)


@pytest.mark.whole
def test_mixed_group_of_a_machine_room_has_the_queues_of_its_room(peer: Peer, tmp_path: Path) -> None:
    """A topic in two rooms: a member for one room has only its queues, a member for both has all."""
    topic = "rooms"
    with ExitStack() as stack:
        near = stack.enter_context(ErucaCluster(tmp_path / "near", {**SETTINGS, "brokerName": NEAR}))
        far = stack.enter_context(FarBroker(tmp_path / "far", near.name_server))
        feed = stack.enter_context(JavaFeed(peer, tmp_path / "far-feed", far, FAR))
        far_queues = feed.create_topic(topic, QUEUES)
        one_room = MemberSettings(near.name_server, "group-near", topic, "machine-room r1", **BUSY)
        run = ChurnRun(seed=SEED, places=("java", "python", "plain"), changes=3, between=200, window_s=PATIENT_SECONDS)
        result = run_churn(run, peer, near, tmp_path, one_room, NEAR)
        assert result.crashes >= 1

        near_queues = {MessageQueue(NEAR, number, topic) for number in range(QUEUES)}
        both_rooms = replace(one_room, group="group-both", strategy="machine-room r1 r2")
        members: list[Member] = [
            stack.enter_context(JavaMember(peer, tmp_path, "both1", both_rooms)),
            stack.enter_context(PythonMember(tmp_path, "both2", both_rooms)),
            stack.enter_context(PythonMember(tmp_path, "both3", both_rooms, plain=True)),
        ]
        owners = wait_for_owners(members, near_queues | far_queues, REST_SECONDS_MAX)
        assert sorted(Counter(owners.values()).values()) == [5, 5, 6]


# --- queues that are written down -------------------------------------------------------------------------------


def test_mixed_group_by_config_keeps_to_what_is_written(peer: Peer, eruca: ErucaCluster, tmp_path: Path) -> None:
    """The queues of a member that is gone wait for it, and for no other."""
    topic = "config"
    java = MemberSettings(eruca.name_server, "group-config", topic, f"config {BROKER_NAME} 0 1 2 3 4", work_ms=2)
    python = replace(java, strategy=f"config {BROKER_NAME} 5 6 7")
    history = History(commit_seconds=WINDOW_SECONDS, catch_up_seconds=WINDOW_SECONDS)
    with ExitStack() as stack:
        feed = stack.enter_context(JavaFeed(peer, tmp_path / "feed", eruca))
        queues = feed.create_topic(topic, QUEUES)
        written = {queue: "java" if queue.queue_id < 5 else "python" for queue in queues}
        stays = stack.enter_context(JavaMember(peer, tmp_path, "java", java))
        history.add(stays)
        feed.start(topic, QUEUES, keys=24, per_second=400)
        for name in ("python", "again"):
            member = stack.enter_context(PythonMember(tmp_path, name, python))
            history.add(member)
            with history.change(f"{name} joins") as change:
                change.settle(wait_for_owners([stays, member], queues, REST_SECONDS_MAX))
            assert {queue: owner.replace("again", "python") for queue, owner in change.after.items()} == written
            history.wait_for_more(100, ARRIVE_SECONDS_MAX)
            with history.change(f"{name} leaves") as change:
                member.stop()
                rest = {queue for queue, owner in written.items() if owner == "java"}
                change.settle(wait_for_owners([stays], rest, REST_SECONDS_MAX))
        last = stack.enter_context(PythonMember(tmp_path, "last", python))
        history.add(last)
        with history.change("the last joins") as change:
            change.settle(wait_for_owners([stays, last], queues, REST_SECONDS_MAX))
        sent = feed.finish()
        history.wait_until_consumed(sent, ARRIVE_SECONDS_MAX)
        assert history.check(sent).total() == 0


# --- listeners --------------------------------------------------------------------------------------------------


def test_listener_hears_of_every_change_that_java_members_make(peer: Peer, eruca: ErucaCluster, tmp_path: Path) -> None:
    topic = "listener"
    settings = MemberSettings(eruca.name_server, "group-listener", topic)
    with ExitStack() as stack:
        queues = stack.enter_context(JavaFeed(peer, tmp_path / "feed", eruca)).create_topic(topic, QUEUES)
        listener = stack.enter_context(PythonMember(tmp_path, "listener", settings))

        def rest(*others: Member) -> int:
            """Wait until the group is at rest and the listener knows it; returns how many queues it was told of."""
            owners = wait_for_owners([listener, *others], queues, REST_SECONDS_MAX)
            mine = {queue for queue, owner in owners.items() if owner == "listener"}
            for _ in poll(REST_SECONDS_MAX):
                if listener.hear_queues() == mine:
                    return len(mine)
            raise AssertionError(f"told of {listener.hear_queues()}, has {mine}")

        assert rest() == 8
        one = stack.enter_context(JavaMember(peer, tmp_path, "j1", settings))
        assert rest(one) == 4
        two = stack.enter_context(JavaMember(peer, tmp_path, "j2", settings))
        assert rest(one, two) in (2, 3)
        one.kill()
        assert rest(two) == 4
        two.stop()
        assert rest() == 8


# --- scheduled pull ---------------------------------------------------------------------------------------------


async def test_scheduled_pulls_share_the_queues_whoever_comes_and_goes(eruca: ErucaCluster) -> None:
    topic, group = "scheduled", "group-scheduled"
    done: Counter[bytes] = Counter()

    def make() -> ScheduledPull:
        scheduled = ScheduledPull(
            eruca.name_server,
            group=group,
            start="earliest",
            delay=0.01,
            rebalance=Rebalance(interval=0.3),
            options=ClientOptions(**QUICK_OPTIONS),
        )

        @scheduled.callback(topic)
        async def read(queue: MessageQueue, context: PullContext) -> None:
            offset = await context.consumer.committed(queue)
            assert offset is not None
            result = await context.consumer.pull(queue, offset)
            await context.consumer.commit({queue: result.next_offset})
            done.update(message.body for message in result.messages)

        return scheduled

    async with Producer(eruca.name_server, group=topic) as producer, AsyncExitStack() as stack:
        await create_topic(producer, topic, QUEUES)
        queues = await producer.list_queues(topic)
        members: list[ScheduledPull] = []

        def is_shared() -> bool:
            owned = [queue for member in members for queue in member.queues]
            return sorted(owned) == sorted(queues) and all(len(m.queues) >= QUEUES // len(members) for m in members)

        sent = 0
        for size in (1, 2, 3, 2, 4, 1, 2):
            while len(members) < size:
                members.append(await stack.enter_async_context(make()))
            while len(members) > size:
                await members.pop(0).close()
            await wait_until(is_shared, f"one owner for each queue among {size}")
            await send_numbered(producer, topic, range(sent, sent + 80))
            sent += 80
        await wait_until(lambda: len(done) == sent, "every message")
        assert done.keys() == set(list_numbers(sent))
        # Only what the callback of a queue had pulled when another got it.
        note_figures(f"scheduled: 10 changes, {sent} sent, 0 lost, {done.total() - sent} repeated")

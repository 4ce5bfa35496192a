"""A cluster with 10,000 topics and 2,000 groups that are behind: answers come soon and need little memory."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from eruca import Producer
from eruca.admin import Admin, Listed
from tests.admin.stage import poll
from tests.figures import note_figures
from tests.integration.cli.upprocess import make_command, make_environment
from tests.interop.brokers import BROKER_NAME, ErucaCluster

Row = TypeVar("Row")

TOPICS, GROUPS, QUEUES = 10_000, 2_000, 4
SECONDS_MAX = 3.0
MEMORY_MAX = 64 * 1024 * 1024
# For the data of a whole command, with Python and all it imports; beyond it, it fails.
PROCESS_MEMORY_MAX = 128 * 1024 * 1024
# A busy machine may take longer; one of these runs must not.
RUNS_MAX = 10
_SENDS_AT_ONCE = 50


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    """A broker whose tables were filled before it started, with the files that Java's broker writes too."""
    home = tmp_path_factory.mktemp("crowded")
    tables = home / "data" / "store" / "config"
    tables.mkdir(parents=True)
    topics = {
        f"topic-{number:05}": {
            "order": False,
            "perm": 6,
            "readQueueNums": QUEUES,
            "topicFilterType": "SINGLE_TAG",
            "topicName": f"topic-{number:05}",
            "topicSysFlag": 0,
            "writeQueueNums": QUEUES,
        }
        for number in range(TOPICS)
    }
    groups = {f"group-{number:04}": {"groupName": f"group-{number:04}"} for number in range(GROUPS)}
    offsets = {
        f"topic-{number:05}@group-{number:04}": {str(queue): 0 for queue in range(QUEUES)} for number in range(GROUPS)
    }
    version = {"counter": 1, "timestamp": 1_700_000_000_000}
    _write(tables / "topics.json", {"dataVersion": version, "topicConfigTable": topics})
    _write(tables / "subscriptionGroup.json", {"dataVersion": version, "subscriptionGroupTable": groups})
    _write(tables / "consumerOffset.json", {"offsetTable": offsets})
    with ErucaCluster(home) as cluster:
        asyncio.run(_send_to_each(cluster.name_server))
        yield cluster


async def _send_to_each(nameserver: str) -> None:
    """Send a message to each topic that a group reads, so that all groups are behind."""
    slots = asyncio.Semaphore(_SENDS_AT_ONCE)

    async def send(producer: Producer, number: int) -> None:
        async with slots:
            await producer.send(f"topic-{number:05}", b"unread")

    async with Producer(nameserver, group="senders") as producer:
        await asyncio.gather(*[send(producer, number) for number in range(GROUPS)])


def _write(path: Path, table: object) -> None:
    path.write_text(json.dumps(table))


async def _measure(ask: Callable[[], Awaitable[Listed[Row]]], what: str) -> Listed[Row]:
    """Ask twice: once for the time, and once for the memory, which is slower."""
    started = time.perf_counter()
    found = await ask()
    seconds = time.perf_counter() - started
    tracemalloc.start()
    try:
        await ask()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    print(f"{what}: {len(found.items)} rows, {seconds:.2f} s, {peak / 1024**2:.1f} MiB at most")
    assert seconds <= SECONDS_MAX and peak <= MEMORY_MAX
    assert found.problems == []
    return found


async def test_lists_of_a_crowded_cluster(crowded: ErucaCluster) -> None:
    async with Admin(crowded.name_server) as admin:
        # Until the broker has registered them all.
        await poll(lambda: admin.topics.list(limit=2 * TOPICS), lambda found: len(found.items) >= TOPICS)
        topics = await _measure(lambda: admin.topics.list(limit=2 * TOPICS), "topics.list")
        assert len(topics.items) == TOPICS and not topics.cut
        page = await _measure(lambda: admin.topics.list(after="topic-04999"), "topics.list, a page")
        assert (len(page.items), page.cut) == (1000, True)
        groups = await _measure(lambda: admin.groups.list(limit=2 * GROUPS), "groups.list")
        assert len(groups.items) == GROUPS and not groups.cut
        settings = await _measure(lambda: admin.topics.settings(limit=2 * TOPICS), "topics.settings")
        assert len([row for row in settings.items if row.broker == BROKER_NAME]) >= TOPICS
        lag = await _measure(lambda: admin.offsets.lag(limit=QUEUES * GROUPS), "offsets.lag")
        assert len(lag.items) == QUEUES * GROUPS
        await _measure(admin.brokers.consume_stats, "brokers.consume_stats")
        started = time.perf_counter()
        shown = await admin.topics.show("topic-00001")
        assert shown.groups == ["group-0001"] and time.perf_counter() - started <= SECONDS_MAX
        started = time.perf_counter()
        group = await admin.groups.show("group-0001")
        assert {row.offset for row in group.queues} == {0} and time.perf_counter() - started <= SECONDS_MAX


@pytest.mark.parametrize(
    ("command", "status", "rows"),
    [
        (["topic", "list", "--limit", "0"], 0, TOPICS),
        (["topic", "list", "-o", "json"], 0, TOPICS),
        (["group", "list", "--limit", "0"], 0, GROUPS),
        (["group", "list", "-o", "json"], 0, GROUPS),
        (["doctor"], 3, 20),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_commands_in_a_crowded_cluster(crowded: ErucaCluster, command: list[str], status: int, rows: int) -> None:
    runs = []
    for _ in range(RUNS_MAX):
        seconds, told = run_measured(*command, "-n", crowded.name_server, status=status)
        assert told.count("\n") >= rows
        runs.append(seconds)
        if seconds <= SECONDS_MAX:
            break
    note_figures(f"eruca {' '.join(command)}: {runs[-1]:.1f} s, {len(told.splitlines())} lines")
    assert runs[-1] <= SECONDS_MAX, runs


def run_measured(*arguments: str, status: int) -> tuple[float, str]:
    """Run a command as a process with little memory; returns the seconds it took, and what it printed."""
    started = time.perf_counter()
    with subprocess.Popen(make_command(*arguments), env=make_environment(), stdout=subprocess.PIPE, text=True) as run:
        resource.prlimit(run.pid, resource.RLIMIT_DATA, (PROCESS_MEMORY_MAX, PROCESS_MEMORY_MAX))
        told, _ = run.communicate()
    assert run.returncode == status, told
    return time.perf_counter() - started, told

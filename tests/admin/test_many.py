"""A cluster with 10,000 topics and 2,000 groups that are behind: answers come soon and need little memory."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from eruca.admin import Admin, Listed
from tests.admin.stage import poll
from tests.crowd import GROUPS, QUEUES, TOPICS, send_to_each, write_crowd
from tests.figures import note_figures
from tests.integration.cli.upprocess import make_command, make_environment
from tests.interop.brokers import BROKER_NAME, ErucaCluster

Row = TypeVar("Row")

SECONDS_MAX = 3.0
MEMORY_MAX = 64 * 1024 * 1024
# For the data of a whole command, with Python and all it imports; beyond it, it fails.
PROCESS_MEMORY_MAX = 128 * 1024 * 1024
# A busy machine may take longer; one of these runs must not.
RUNS_MAX = 10


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    """A broker whose tables were filled before it started, with the files that Java's broker writes too."""
    home = tmp_path_factory.mktemp("crowded")
    write_crowd(home)
    with ErucaCluster(home) as cluster:
        asyncio.run(send_to_each(cluster.name_server))
        yield cluster


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

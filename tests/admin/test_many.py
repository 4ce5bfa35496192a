"""A cluster with 10,000 topics and 2,000 groups that are behind: answers come soon and need little memory."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from eruca.admin import Admin
from tests.admin.stage import poll
from tests.crowd import GROUPS, QUEUES, SETTINGS, TOPICS, send_to_each, write_crowd
from tests.figures import note_figures
from tests.integration.cli.upprocess import make_command, make_environment
from tests.interop.brokers import BROKER_NAME, PATIENCE, ErucaCluster, JavaCluster
from tests.interop.brokers import SETTINGS as CLUSTER_SETTINGS
from tests.interop.javapeer import prepare_peer
from tests.patience import Stopwatch

Answer = TypeVar("Answer")

SECONDS_MAX = 3.0
MEMORY_MAX = 64 * 1024 * 1024
# For the data of a whole command, with Python and all it imports; beyond it, it fails.
PROCESS_MEMORY_MAX = 128 * 1024 * 1024
# How many times each command answers, every time in time.
ANSWERS = 3


@pytest.fixture(
    scope="module", params=["eruca", pytest.param("java", marks=[pytest.mark.whole, pytest.mark.needs("java")])]
)
def crowded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ErucaCluster | JavaCluster]:
    """A broker whose tables were filled before it started; Java's reads the same files."""
    home = tmp_path_factory.mktemp(f"crowded-{request.param}")
    write_crowd(home, request.param)
    if request.param == "eruca":
        started: ErucaCluster | JavaCluster = ErucaCluster(home, SETTINGS)
    else:
        started = JavaCluster(prepare_peer(), home, {**CLUSTER_SETTINGS, **PATIENCE})
    with started as cluster:
        asyncio.run(fill(cluster))
        yield cluster


async def fill(cluster: ErucaCluster | JavaCluster) -> None:
    """Wait until the broker has registered its topics, then send to those that groups read."""
    async with Admin(cluster.name_server) as admin:
        await poll(lambda: _count_topics(admin), lambda count: count >= TOPICS)
    await send_to_each(cluster.name_server)


async def _count_topics(admin: Admin) -> int:
    return len(await admin.connection.list_topics())


def find_pid(cluster: ErucaCluster | JavaCluster) -> int:
    """The process of the broker."""
    return cluster.pid if isinstance(cluster, ErucaCluster) else cluster.broker_pid


async def _measure(crowded: ErucaCluster | JavaCluster, ask: Callable[[], Awaitable[Answer]], what: str) -> Answer:
    """Ask once, which must be in time, and once more for the memory, which is slower."""
    watch = await asyncio.to_thread(Stopwatch, os.getpid(), find_pid(crowded))
    found = await ask()
    seconds = await asyncio.to_thread(watch.read)
    tracemalloc.start()
    try:
        await ask()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    note_figures(f"{crowded.kind}, {what}: {seconds:.2f} s, {peak / 1024**2:.1f} MiB at most")
    assert seconds <= SECONDS_MAX
    assert peak <= MEMORY_MAX
    return found


async def test_lists_of_a_crowded_cluster(crowded: ErucaCluster | JavaCluster) -> None:
    async with Admin(crowded.name_server) as admin:
        # Until the broker has registered them all.
        await poll(lambda: admin.topics.list(limit=2 * TOPICS), lambda found: len(found.items) >= TOPICS)
        topics = await _measure(crowded, lambda: admin.topics.list(limit=2 * TOPICS), "topics.list, 10,000 rows")
        assert (len(topics.items), topics.cut, topics.problems) == (TOPICS, False, [])
        page = await _measure(crowded, lambda: admin.topics.list(after="topic-04999"), "topics.list, 1,000 rows")
        assert (len(page.items), page.cut, page.problems) == (1000, True, [])
        groups = await _measure(crowded, lambda: admin.groups.list(limit=2 * GROUPS), "groups.list, 2,000 rows")
        assert (len(groups.items), groups.cut, groups.problems) == (GROUPS, False, [])
        settings = await _measure(crowded, lambda: admin.topics.settings(limit=2 * TOPICS), "topics.settings")
        assert len([row for row in settings.items if row.broker == BROKER_NAME]) >= TOPICS and settings.problems == []
        lag = await _measure(crowded, lambda: admin.offsets.lag(limit=QUEUES * GROUPS), "offsets.lag, 8,000 rows")
        assert (len(lag.items), lag.problems) == (QUEUES * GROUPS, [])
        stats = await _measure(crowded, admin.brokers.consume_stats, "brokers.consume_stats")
        assert stats.items and stats.problems == []
        shown = await _measure(crowded, lambda: admin.topics.show("topic-00001"), "topics.show")
        assert shown.groups == ["group-0001"]
        group = await _measure(crowded, lambda: admin.groups.show("group-0001"), "groups.show")
        assert {row.offset for row in group.queues} == {0}


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
def test_commands_in_a_crowded_cluster(
    crowded: ErucaCluster | JavaCluster, command: list[str], status: int, rows: int
) -> None:
    for number in range(ANSWERS):
        seconds, told = run_measured(crowded, *command, status=status)
        assert told.count("\n") >= rows
        what = f"{crowded.kind}, eruca {' '.join(command)}, answer {number + 1} of {ANSWERS}"
        note_figures(f"{what}: {seconds:.1f} s, {len(told.splitlines())} lines")
        assert seconds <= SECONDS_MAX


def run_measured(crowded: ErucaCluster | JavaCluster, *arguments: str, status: int) -> tuple[float, str]:
    """Run a command as a process with little memory; returns the seconds it took, and what it printed."""
    command = make_command(*arguments, "-n", crowded.name_server)
    with subprocess.Popen(command, env=make_environment(), stdout=subprocess.PIPE, text=True) as run:
        watch = Stopwatch(run.pid, find_pid(crowded))
        resource.prlimit(run.pid, resource.RLIMIT_DATA, (PROCESS_MEMORY_MAX, PROCESS_MEMORY_MAX))
        assert run.stdout is not None
        told = run.stdout.read()
        os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
        seconds = watch.read()
    assert run.returncode == status, told
    return seconds, told

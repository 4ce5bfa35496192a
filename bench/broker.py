"""The official Java client against Eruca and against the Java broker, in turns, in one run.

Both brokers are started fresh on loopback, each with its own name server. The load programs are the Java peer's.
Figures are messages a second as the client sees them; details have the broker's CPU seconds for a million messages and
its anonymous memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.runner import Aim, BenchError, Run, Sample
from tests.interop.javapeer import JavaBroker, JavaNameServer, find_ports, prepare_peer
from tests.paths import PEER

_SECONDS_MAX = 300
_REPEATS = 3
_QUICK_SHARE = 20


@dataclass(frozen=True, slots=True)
class _Load:
    """One line of the benchmark: what the client does."""

    name: str
    mode: str
    count: int
    arguments: tuple[str, ...] = ()
    # Consumers read what an earlier load left in this topic.
    reads: str = ""
    # Must not be below the Java broker.
    aimed: bool = True


LOADS = (
    _Load("sync send, 16 threads, 128 B", "sync", 100_000, ("--threads", "16", "--size", "128")),
    _Load("sync send, 64 threads, 1 KiB", "sync", 100_000, ("--threads", "64", "--size", "1024")),
    _Load(
        "async send, 256 in flight, 128 B",
        "async",
        200_000,
        ("--threads", "2", "--inflight", "256", "--size", "128"),
    ),
    _Load("oneway send, 128 B", "oneway", 200_000, ("--threads", "2", "--size", "128")),
    _Load("batch of 100, 128 B", "batch", 500_000, ("--threads", "2", "--batch", "100", "--size", "128"), aimed=False),
    _Load("push consumption", "consume", 400_000, (), reads="batch"),
    _Load("lite pull consumption", "pull", 400_000, (), reads="batch"),
)


@dataclass(frozen=True, slots=True)
class _Side:
    """One broker under test."""

    name: str
    nameserver: str
    pid: int


def run_bench(run: Run) -> None:
    """Measure every load on both brokers, one after the other, several times."""
    run.repeats = min(run.repeats, _REPEATS)  # a round of all loads on both takes two minutes
    with run.scratch() as directory, _start_java(directory) as java, _start_eruca(directory) as eruca:
        round_number = [0]
        for load in LOADS:
            sides = {side.name: _measure(run, load, side, round_number) for side in (eruca, java)}
            ours = sides.pop("eruca")
            run.measure(load.name, "messages/s", ours, sides)
        for figure, load in zip(run.figures, LOADS, strict=True):
            if not load.aimed:
                continue
            # The aim is a ratio: not below the Java broker in the same run.
            theirs = sorted(sample.value for sample in figure.peers["java"])
            figure.aim = Aim(theirs[len(theirs) // 2])


def _measure(run: Run, load: _Load, side: _Side, round_number: list[int]) -> Callable[[], Sample]:
    count = load.count // _QUICK_SHARE if run.quick else load.count

    def once() -> Sample:
        round_number[0] += 1
        topic = f"Bench_{load.reads or load.mode}_{side.name}"
        # A topic of its own each time, but for consumers, who come with a new group to the same backlog.
        if not load.reads and load.mode != "batch":
            topic = f"{topic}_{round_number[0]}"
        command = [str(PEER / "bench.sh"), "--namesrv", side.nameserver, "--mode", load.mode, "--topic", topic]
        command += ["--count", str(count), "--pid", str(side.pid), *load.arguments]
        return _run_load(command)

    return once


def _run_load(command: list[str]) -> Sample:
    ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=_SECONDS_MAX, check=False, text=True)
    try:
        result = json.loads(ended.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise BenchError(f"the load program printed no result: {ended.stdout[:200]!r}") from None
    if "error" in result or not result.get("msgs_per_s"):
        raise BenchError(f"the load program failed: {result.get('error', result)}")
    details = {
        "broker CPU s per million": float(result.get("broker_cpu_s_per_1M", 0)),
        "broker anonymous MiB": float(result.get("broker_rss_anon_mib", 0)),
        "p99 us": float(result.get("lat_us_p99", 0)),
    }
    speed = result.get("drain_msgs_per_s", result["msgs_per_s"])
    return Sample(float(speed), details)


@contextmanager
def _start_java(directory: Path) -> Iterator[_Side]:
    peer = prepare_peer()
    home = directory / "java"
    home.mkdir()
    with JavaNameServer(peer, home / "nameserver") as nameserver:
        store = home / "store"
        properties = {"mappedFileSizeCommitLog": 268_435_456, "autoCreateTopicEnable": "true"}
        with JavaBroker(
            peer, nameserver.address, store, name="java", home=home / "broker", properties=properties, heap="2g"
        ) as broker:
            yield _Side("java", nameserver.address, broker.pid)


@contextmanager
def _start_eruca(directory: Path) -> Iterator[_Side]:
    ports = ["--nameserver-port", "0", "--listen-port", str(find_ports(-2, 1))]
    command = [sys.executable, "-m", "eruca", "up", "--output", "json", "--data", str(directory / "eruca"), *ports]
    command += ["--option", "mappedFileSizeCommitLog=268435456"]
    environment = {key: text for key, text in os.environ.items() if not key.startswith(("ERUCA_", "NAMESRV"))}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise BenchError("eruca up did not start")
            yield _Side("eruca", json.loads(line)["nameserver"], process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < deadline:
                try:
                    process.wait(1)
                except subprocess.TimeoutExpired:
                    continue
            if process.poll() is None:
                process.kill()

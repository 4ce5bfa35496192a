"""The official Java client against Eruca and against the Java broker, in turns, in one run.

Both brokers are started fresh on loopback, each with its own name server. The load programs are the Java peer's.
Figures are messages per second as the client sees them; details are the broker's CPU seconds per million messages and
its anonymous memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.parts.javaload import REPEATS, WARM_UP, Load, prepare_server, run_load, start_eruca
from bench.runner import Aim, Figure, Run, Sample
from tests.interop.javapeer import JavaBroker, JavaNameServer, find_ports

KNOWS_BEFORE = True


@dataclass(frozen=True, slots=True)
class _Load(Load):
    """A load that may consume."""

    # Consumers read what an earlier load left in this topic.
    reads: str = ""


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
    """Measure every load on both brokers, alternately, several times."""
    run.repeats = min(run.repeats, REPEATS)
    with (
        run.scratch() as directory,
        _start_java(directory) if run.before is None else _start_eruca(directory, "before", run.before) as peer,
        _start_eruca(directory) as eruca,
    ):
        round_number = [0]
        if not run.quick:
            for side in (peer, eruca):
                _measure(run, _Load(*WARM_UP), side, round_number)()
        for load in LOADS:
            _measure_load(run, load, eruca, peer, round_number)


def _measure_load(run: Run, load: _Load, eruca: _Side, peer: _Side, round_number: list[int]) -> Figure:
    ours, theirs = (_measure(run, load, side, round_number) for side in (eruca, peer))
    if run.before is not None:
        return run.measure_beside_before(load.name, "messages/s", ours, theirs)
    figure = run.measure(load.name, "messages/s", ours, {peer.name: theirs})
    if load.aimed:
        # The aim is a ratio: not below the Java broker in the same run.
        figure.aim = Aim(figure.value / figure.ratio_to(peer.name))
    return figure


def _measure(run: Run, load: _Load, side: _Side, round_number: list[int]) -> Callable[[], Sample]:
    count = load.count_for(run)

    def once() -> Sample:
        round_number[0] += 1
        topic = f"Bench_{load.reads or load.mode}_{side.name}"
        # A new topic each time, except for consumers, which read the same backlog with a new group.
        if not load.reads and load.mode != "batch":
            topic = f"{topic}_{round_number[0]}"
        return _describe(run_load(side.nameserver, load.mode, topic, count, "--pid", str(side.pid), *load.arguments))

    return once


def _describe(result: dict[str, float]) -> Sample:
    details = {
        "broker CPU s per million": float(result.get("broker_cpu_s_per_1M", 0)),
        "broker anonymous MiB": float(result.get("broker_rss_anon_mib", 0)),
        "p99 us": float(result.get("lat_us_p99", 0)),
    }
    speed = result.get("drain_msgs_per_s", result["msgs_per_s"])
    return Sample(float(speed), details)


@contextmanager
def _start_java(directory: Path) -> Iterator[_Side]:
    peer = prepare_server()
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
def _start_eruca(directory: Path, name: str = "eruca", python: Path | None = None) -> Iterator[_Side]:
    # The peer has no console beside it.
    ports = ["--nameserver-port", "0", "--listen-port", str(find_ports(-2, 1)), "--console-listen-port", "-1"]
    settings = ["--data", str(directory / name), *ports, "--option", "mappedFileSizeCommitLog=268435456"]
    with start_eruca("up", *settings, python=python) as (pid, line):
        yield _Side(name, json.loads(line)["nameserver"], pid)

"""The official Java client against a pair of ours and a pair of Java brokers that answer when both have a message.

Both pairs are a name server, a SYNC_MASTER and a slave, started fresh on loopback. The load programs are the Java
peer's, the same for both, and take turns. Aims are for ASYNC_FLUSH; with SYNC_FLUSH the disk of the machine is measured
too, so those figures are for information. Details have the CPU seconds of master and slave for a million messages. In a
comparison with an earlier checkout, the other pair runs that checkout.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.parts.javaload import REPEATS, WARM_UP, Load, prepare_server, run_load, start_eruca
from bench.parts.load import read_cpu_seconds
from bench.runner import Aim, BenchError, Figure, Run, Sample
from tests.interop.brokers import PATIENCE
from tests.interop.javapeer import JavaBroker, JavaNameServer, Peer, find_broker_port, find_ports
from tests.replication.pairs import Watch

KNOWS_BEFORE = True
_SYNC_SECONDS_MAX = 60.0
# As in the load program.
_WARM_MAX, _WARM_SHARE = 50_000, 4
_SEGMENT_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Load(Load):
    """A load that may be paced; then its aim is not to be slower than the Java pair."""

    # Only sends at a fixed rate show how long one takes; otherwise the queue in front of the broker is measured.
    paced: bool = False


_PACED = _Load("1,000 sends a second, 128 B", "e2e", 10_000, ("--rate", "1000", "--size", "128"), paced=True)
LOADS = (
    _Load("sync send, 16 threads, 128 B", "sync", 60_000, ("--threads", "16", "--size", "128")),
    _Load("sync send, 64 threads, 1 KiB", "sync", 60_000, ("--threads", "64", "--size", "1024")),
    _Load(
        "async send, 256 in flight, 128 B", "async", 120_000, ("--threads", "2", "--inflight", "256", "--size", "128")
    ),
    _Load("batch of 100, 128 B", "batch", 400_000, ("--threads", "2", "--batch", "100", "--size", "128"), aimed=False),
    _PACED,
)
DISK_LOADS = (
    _Load("sync send, 64 threads, 1 KiB", "sync", 20_000, ("--threads", "64", "--size", "1024"), aimed=False),
)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A master and a slave under test."""

    name: str
    nameserver: str
    master: str
    slave: str
    pids: tuple[int, int]


def run_bench(run: Run) -> None:
    """Measure every load on both pairs, alternately, several times; then some with the disk."""
    run.repeats = min(run.repeats, REPEATS)
    java = None if run.before else prepare_server()
    for flush, loads in (("ASYNC_FLUSH", LOADS), ("SYNC_FLUSH", DISK_LOADS)):
        with (
            run.scratch() as directory,
            _start_java(java, directory, flush)
            if java
            else _start_eruca(directory, flush, "before", run.before) as peer,
            _start_eruca(directory, flush) as eruca,
        ):
            rounds = [0]
            if not run.quick:
                for pair in (peer, eruca):
                    _measure(run, _Load(*WARM_UP), pair, rounds)()
            for load in loads:
                _measure_load(run, load, f"{load.name}, {flush}", eruca, peer, rounds)
            if flush == "ASYNC_FLUSH" and run.before is None:
                _measure_catching_up(run, eruca, directory, rounds)
    run.note("An async send counts with whatever answer; a sync send counts only when both brokers have it.")


def _measure_load(run: Run, load: _Load, name: str, eruca: _Pair, peer: _Pair, rounds: list[int]) -> None:
    ours, theirs = (_measure(run, load, pair, rounds) for pair in (eruca, peer))
    if run.before is not None:
        run.measure_beside_before(name, "us p50" if load.paced else "messages/s", ours, theirs)
        return
    figure = run.measure(name, "us p99" if load.paced else "messages/s", ours, {peer.name: theirs})
    if load.aimed:
        # The aim is a ratio: not below the Java pair in the same run.
        figure.aim = Aim(figure.value / figure.ratio_to(peer.name), at_least=not load.paced)
    _add_latencies(run, load, figure)


def _add_latencies(run: Run, load: _Load, figure: Figure) -> None:
    """Separate figures for how long a send takes."""
    for key in ("p50 us",) if load.paced else ("p50 us", "p99 us"):
        run.figures.append(
            Figure(
                f"{figure.name}: {key.removesuffix(' us')}",
                "us",
                [Sample(sample.details[key]) for sample in figure.samples],
                {name: [Sample(each.details[key]) for each in samples] for name, samples in figure.peers.items()},
            )
        )


def _measure_catching_up(run: Run, pair: _Pair, directory: Path, rounds: list[int]) -> None:
    """Check that producers do not notice an empty slave catching up with the master."""
    alone = _measure(run, _PACED, pair, rounds)

    def beside() -> Sample:
        home = directory / f"late-{rounds[0]}"
        with _start_broker(pair.nameserver, home, "SLAVE", 2, "ASYNC_FLUSH") as (address, _):
            sample = alone()
            with_late = replace(pair, slave=address)
            began = time.monotonic()
            size = asyncio.run(_wait_until_synced(with_late))
            more_s = time.monotonic() - began
        shutil.rmtree(home)
        return Sample(sample.value, {**sample.details, "log MiB": size / 2**20, "behind at the end s": more_s})

    run.measure("1,000 sends a second while an empty slave catches up", "us p99", beside, {"no such slave": alone})


def _measure(run: Run, load: _Load, pair: _Pair, rounds: list[int]) -> Callable[[], Sample]:
    count = load.count_for(run)

    def once() -> Sample:
        rounds[0] += 1
        topic = f"Bench_{load.mode}_{rounds[0]}"
        before = [read_cpu_seconds(pid) for pid in pair.pids]
        result = run_load(pair.nameserver, load.mode, topic, count, *load.arguments)
        master, slave = (read_cpu_seconds(pid) - began for pid, began in zip(pair.pids, before, strict=True))
        asyncio.run(_wait_until_synced(pair))
        millions = (count + min(_WARM_MAX, count // _WARM_SHARE)) / 1e6
        prefix = "send" if load.paced else "lat"
        details = {
            "p50 us": float(result[f"{prefix}_us_p50"]),
            "p99 us": float(result[f"{prefix}_us_p99"]),
            "failed": float(result.get("failed", 0)),
            "master CPU s per million": master / millions,
            "slave CPU s per million": slave / millions,
        }
        if load.paced:
            # The slowest of a hundred differ more from round to round than two checkouts do.
            return Sample(details["p99 us" if run.before is None else "p50 us"], details)
        return Sample(float(result["msgs_per_s"]), details)

    return once


async def _wait_until_synced(pair: _Pair) -> int:
    """Wait for replication, so that it does not slow down the next measurement; returns where the logs end."""
    async with Watch(pair.nameserver) as watch:
        return await watch.wait_until_synced([pair.master, pair.slave], _SYNC_SECONDS_MAX)


# --- the pairs ----------------------------------------------------------------------------------------------------


@contextmanager
def _start_java(peer: Peer, directory: Path, flush: str) -> Iterator[_Pair]:
    home = directory / "java"
    with ExitStack() as stack:
        nameserver = stack.enter_context(JavaNameServer(peer, home / "nameserver"))
        brokers = [
            stack.enter_context(
                JavaBroker(
                    peer,
                    nameserver.address,
                    home / role / "store",
                    name="java",
                    home=home / role,
                    properties={
                        **PATIENCE,
                        "brokerRole": role,
                        "brokerId": number,
                        "flushDiskType": flush,
                        "mappedFileSizeCommitLog": _SEGMENT_BYTES,
                    },
                    heap="1g",
                )
            )
            for number, role in enumerate(("SYNC_MASTER", "SLAVE"))
        ]
        master, slave = brokers
        pair = _Pair("java", nameserver.address, master.address, slave.address, (master.pid, slave.pid))
        _wait_for_link(pair)
        yield pair


@contextmanager
def _start_eruca(directory: Path, flush: str, name: str = "eruca", python: Path | None = None) -> Iterator[_Pair]:
    home = directory / name
    with ExitStack() as stack:
        names = f"127.0.0.1:{find_ports()}"
        stack.enter_context(_start_ours("nameserver", {"listenPort": names.rpartition(":")[2]}, python))
        started = [
            stack.enter_context(_start_broker(names, home / role, role, number, flush, python))
            for number, role in enumerate(("SYNC_MASTER", "SLAVE"))
        ]
        (master, master_pid), (slave, slave_pid) = started
        pair = _Pair(name, names, master, slave, (master_pid, slave_pid))
        _wait_for_link(pair)
        yield pair


@contextmanager
def _start_broker(
    names: str, store: Path, role: str, number: int, flush: str, python: Path | None = None
) -> Iterator[tuple[str, int]]:
    """Start a broker of ours; returns its address and its process id."""
    port = find_broker_port()
    settings: dict[str, object] = {
        "brokerName": "eruca",
        "brokerRole": role,
        "brokerId": number,
        "listenPort": port,
        "namesrvAddr": names,
        "flushDiskType": flush,
        "storePathRootDir": store,
        "mappedFileSizeCommitLog": _SEGMENT_BYTES,
    }
    with _start_ours("broker", settings, python) as pid:
        yield f"127.0.0.1:{port}", pid


@contextmanager
def _start_ours(kind: str, settings: Mapping[str, object], python: Path | None) -> Iterator[int]:
    """Start a server of ours in a separate process; returns the process id."""
    with start_eruca(kind, *(f"--option={key}={value}" for key, value in settings.items()), python=python) as (pid, _):
        yield pid


def _wait_for_link(pair: _Pair) -> None:
    """Wait until a message that is sent is on both, which takes a Java slave some seconds."""
    deadline = time.monotonic() + _SYNC_SECONDS_MAX
    while True:
        result = _try_link(pair)
        if result.get("ok", 0) and not result.get("failed", 1):
            return
        if time.monotonic() > deadline:
            raise BenchError(f"the slave of {pair.name} does not follow: {result}")


def _try_link(pair: _Pair) -> dict[str, float]:
    try:
        return run_load(pair.nameserver, "sync", "Bench_link", 100, "--threads", "1", "--warmup", "0")
    except BenchError:
        return {}

"""Our clients, async and plain, compared with the other Python clients and the official Java client on one broker.

Every client is a separate process that does the same work: one send after the other, 64 sends in flight, and
consumption of a filled topic by a handler that does nothing. Figures are messages per second; the last two are messages
per CPU second of the client. A client that cannot be installed or run here is listed with the reason and left out.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.parts import others
from bench.runner import Aim, BenchError, Figure, Measurement, Run, Sample, make_environment
from tests.interop.brokers import ErucaCluster
from tests.interop.javapeer import VERSION as JAVA_VERSION
from tests.interop.javapeer import Peer, prepare_peer
from tests.paths import REPOSITORY

KNOWS_BEFORE = True
TIMES_PYTHON = 3.0
SHARE_OF_JAVA = 0.5
SEND_TOPIC = "BenchSend"
CONSUME_TOPIC = "BenchConsume"
_QUEUES = 8
_REPEATS = 3
_PROBE = 200
# A slow client is stopped after this long; what it did until then counts.
_PART_SECONDS_MAX = 30
_PROCESS_SECONDS_MAX = 120
# One of them loses a few in a thousand to an internal race ("no route info") when threads share a producer.
_FAILED_SHARE_MAX = 0.05
_CPU = "CPU us a message"
_SETTINGS = {"mappedFileSizeCommitLog": 268_435_456}
_JVM_FLAGS = ("-Xms512m", "-Xmx512m", "-Drocketmq.client.logLevel=WARN")
_JAVA_PROGRAM = REPOSITORY / "bench" / "parts" / "java" / "Load.java"


@dataclass(frozen=True, slots=True)
class _Scenario:
    """What the clients do, and how much of it."""

    name: str
    count: int
    warmup: int
    topic: str = SEND_TOPIC


SINGLE = _Scenario("single", 10_000, 2_000)
CONCURRENT = _Scenario("concurrent", 60_000, 15_000)
THREADS = _Scenario("threads", 60_000, 15_000)
CONSUME = _Scenario("consume", 300_000, 30_000, CONSUME_TOPIC)


@dataclass(frozen=True, slots=True)
class _Client:
    """One way to use one client: the command that does a scenario."""

    name: str
    command: tuple[str, ...]
    scenario: _Scenario
    # Whether it is one of the other Python clients, which ours should beat.
    is_other: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the load goes, and where the programs may leave their files."""

    name_server: str
    broker: str
    broker_pid: int
    home: Path


def run_bench(run: Run) -> None:
    """Measure all clients in turns, scenario by scenario."""
    run.repeats = min(run.repeats, _REPEATS)
    peer = prepare_peer()
    with run.scratch() as directory, ErucaCluster(directory / "broker", _SETTINGS) as cluster:
        place = _Place(cluster.name_server, cluster.broker, cluster.pid, directory)
        _fill_topics(run, peer, place)
        ours, plain = _list_ours()
        if run.before is not None:
            _measure_beside_before(run, place, run.before)
            return
        rivals = [client for client in _list_others(run, peer) if _probe(run, client, place)]
        java = _Client(f"Java {JAVA_VERSION}", _java_command(peer, place), SINGLE)
        for name, first, second, scenarios in (
            ("one send after the other, 128 B", plain, ours, (SINGLE,)),
            ("64 sends in flight, 128 B", ours, replace(plain, scenario=THREADS), (CONCURRENT, THREADS)),
            ("consumption", ours, plain, (CONSUME,)),
        ):
            main, *_ = scenarios
            measured = [_use(first, main), _use(second, second.scenario if second.scenario is THREADS else main)]
            measured += [rival for rival in rivals if rival.scenario in scenarios]
            measured.append(_use(java, main))
            figure = _measure(run, name, measured, place)
            best = _find_best(figure, [client.name for client in measured if client.is_other])
            if best:
                figure.aim = Aim(best if main is SINGLE else TIMES_PYTHON * best)
            if main is not SINGLE:
                _add_cpu_figure(run, figure, java.name)


def _measure_beside_before(run: Run, place: _Place, python: Path) -> None:
    """Measure our clients alternately with those of an earlier checkout, both on the broker of this checkout."""
    for ours, before in zip(_list_ours(), _list_ours(python), strict=True):
        for scenario in (SINGLE, THREADS if "--plain" in ours.command else CONCURRENT, CONSUME):
            now, then = (_measurement(run, _use(client, scenario), place) for client in (ours, before))
            run.measure_beside_before(f"{ours.name}: {scenario.name}", "messages/s", now, then)


def _use(client: _Client, scenario: _Scenario) -> _Client:
    return replace(client, scenario=scenario)


def _list_ours(python: Path = Path(sys.executable)) -> tuple[_Client, _Client]:
    command = (str(python), "-m", "bench.parts.load_eruca")
    return _Client("eruca async", command, SINGLE), _Client("eruca plain", (*command, "--plain"), SINGLE)


def _list_others(run: Run, peer: Peer) -> list[_Client]:
    """Every way to use the other Python clients that could be installed."""
    found = []
    for packages, module, more in (
        (("rocketmq",), "bench.parts.load_rocketmq", ()),
        (("pyrocketmq", "jpype1", "packaging"), "bench.parts.load_pyrocketmq", ("--jars", str(peer.jars))),
    ):
        name = f"{packages[0]} {others.find_version(packages[0])}"
        try:
            python = others.install(packages)
        except BenchError as error:
            run.note(f"{name} could not be run: {error}")
            continue
        command = (str(python), "-m", module, *more)
        found += [
            _Client(name, command, SINGLE, is_other=True),
            _Client(f"{name} callbacks", command, CONCURRENT, is_other=True),
            _Client(f"{name} threads", command, THREADS, is_other=True),
            _Client(name, command, CONSUME, is_other=True),
        ]
        if packages[0] == "rocketmq":
            # Its default is one thread for each core; Java's, and what our handler is given, is 20.
            found.append(_Client(f"{name} 20 threads", (*command, "--threads", "20"), CONSUME, is_other=True))
    return found


def _probe(run: Run, client: _Client, place: _Place) -> bool:
    """Return whether it runs here; if not, add a note with the reason."""
    try:
        _run_client(replace(client, scenario=replace(client.scenario, count=_PROBE, warmup=1)), place)
    except BenchError as error:
        run.note(f"{client.name} ({client.scenario.name}) could not be run: {error}")
        return False
    return True


def _fill_topics(run: Run, peer: Peer, place: _Place) -> None:
    command = _java_command(peer, place)
    count = run.scale(CONSUME.count)
    create = (*command, "create", "--topic", f"{SEND_TOPIC},{CONSUME_TOPIC}", "--queues", str(_QUEUES))
    _run_program((*create, "--broker", place.broker, "--name-server", place.name_server), place)
    fill = (*command, "fill", "--topic", CONSUME_TOPIC, "--count", str(count), "--group", "Filler")
    _run_program((*fill, "--name-server", place.name_server), place)


def _java_command(peer: Peer, place: _Place) -> tuple[str, ...]:
    # The java command compiles a single source file itself; that cost comes before the measured part.
    return ("java", *_JVM_FLAGS, f"-Duser.home={place.home}", "-cp", f"{peer.jars}/*", str(_JAVA_PROGRAM))


def _measure(run: Run, name: str, clients: list[_Client], place: _Place) -> Figure:
    first, *peers = clients
    beside = {client.name: _measurement(run, client, place) for client in peers}
    return run.measure(f"{first.name}: {name}", "messages/s", _measurement(run, first, place), beside)


def _measurement(run: Run, client: _Client, place: _Place) -> Measurement:
    scenario = client.scenario
    smaller = replace(scenario, count=run.scale(scenario.count), warmup=run.scale(scenario.warmup))
    return lambda: _run_client(replace(client, scenario=smaller), place)


def _find_best(figure: Figure, names: list[str]) -> float:
    """The median of the fastest of these peers; 0 when there is none."""
    return max((_median(figure.peers[name], lambda sample: sample.value) for name in names), default=0.0)


def _add_cpu_figure(run: Run, figure: Figure, java: str) -> None:
    """Add the same measurements as messages per CPU second of the client."""

    def convert(samples: list[Sample]) -> Sample:
        return Sample(1e6 / _median(samples, lambda sample: sample.details[_CPU]))

    peers = {name: convert(samples) for name, samples in figure.peers.items()}
    aim = Aim(SHARE_OF_JAVA * peers[java].value)
    run.add_figure(f"{figure.name}, by CPU", "messages/CPU s", convert(figure.samples), peers, aim=aim)


def _median(samples: list[Sample], read: Callable[[Sample], float]) -> float:
    return statistics.median(read(sample) for sample in samples)


_groups = iter(range(1, 1_000_000))


def _run_client(client: _Client, place: _Place) -> Sample:
    scenario = client.scenario
    arguments = {
        "topic": scenario.topic,
        "count": scenario.count,
        "warmup": scenario.warmup,
        # Consumers read the same backlog with a new group each time.
        "group": f"Bench{next(_groups)}",
        "name-server": place.name_server,
        "broker-pid": place.broker_pid,
        "seconds-max": _PART_SECONDS_MAX,
    }
    command = [*client.command, scenario.name]
    for key, value in arguments.items():
        command += [f"--{key}", str(value)]
    result = _run_program(tuple(command), place)
    messages, failed = result["messages"], result["failed"]
    if not messages or failed > messages * _FAILED_SHARE_MAX:
        raise BenchError(f"{client.name}: {messages:.0f} messages done and {failed:.0f} failed")
    details = {
        _CPU: result["cpu_seconds"] / messages * 1e6,
        "broker CPU us a message": result["broker_cpu_seconds"] / messages * 1e6,
        "failed": failed,
    }
    return Sample(messages / result["seconds"], details)


def _run_program(command: tuple[str, ...], place: _Place) -> dict[str, float]:
    """Run a load program and return what it printed, or the reason when it printed no result."""
    # The C++ and the Java client write log files into the home directory.
    environment = make_environment(command[0]) | {"HOME": str(place.home)}
    try:
        ended = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            timeout=_PROCESS_SECONDS_MAX,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(str(error)) from error
    for line in reversed(ended.stdout.splitlines()):
        if line.startswith('{"messages"'):
            result: dict[str, float] = json.loads(line)
            return result
    raise BenchError(others.find_reason(ended.stdout + ended.stderr) or f"ended with status {ended.returncode}")

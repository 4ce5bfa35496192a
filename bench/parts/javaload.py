"""Shared by the broker benchmarks: the load program of the Java peer, and servers for it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.runner import BenchError, Run, make_environment
from tests.interop.javapeer import Peer, prepare_peer
from tests.paths import PEER

# A round of all loads on both sides takes two minutes.
REPEATS = 3
_SECONDS_MAX = 300
_STOP_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class Load:
    """One line of a benchmark: what the client does."""

    name: str
    mode: str
    count: int
    arguments: tuple[str, ...] = ()
    # Must not be below Java's side.
    aimed: bool = True

    def count_for(self, run: Run) -> int:
        """Return the number of messages for a run."""
        return run.scale(self.count)


# Gives the JVM time to compile hot code.
WARM_UP: Final = ("warm-up", "sync", 40_000, ("--threads", "16", "--size", "128"))


class _LongLived(Peer):
    """The official jars with flags for a long-running server, not for a short test."""

    def command(
        self, main: str, *arguments: str, home: Path, heap: str = "256m", system: Mapping[str, object] | None = None
    ) -> list[str]:
        """The command line that runs a main class with all its files below `home`."""
        line = super().command(main, *arguments, home=home, heap=heap, system=system)
        short = {"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}
        return [line[0], "-XX:+UseG1GC", *[part for part in line[1:] if part not in short]]


def prepare_server() -> Peer:
    """The Java peer as it is started in production."""
    found = prepare_peer()
    return _LongLived(found.jars, found.classes)


def run_load(nameserver: str, mode: str, topic: str, count: int, *arguments: str) -> dict[str, float]:
    """Run the program to its end; returns what it measured."""
    command = [str(PEER / "bench.sh"), "--namesrv", nameserver, "--mode", mode, "--topic", topic]
    command += ["--count", str(count), *arguments]
    ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=_SECONDS_MAX, check=False, text=True)
    try:
        result: dict[str, float] = json.loads(ended.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise BenchError(f"the load program printed no result: {ended.stdout[:200]!r}") from None
    if "error" in result or not result.get("msgs_per_s"):
        raise BenchError(f"the load program failed: {result.get('error', result)}")
    return result


@contextmanager
def start_eruca(kind: str, *arguments: str, python: Path | None = None) -> Iterator[tuple[int, str]]:
    """Run a server of ours in a separate process; yields the process id and the line it prints when it is ready."""
    command = [str(python or sys.executable), "-m", "eruca", kind, "--output", "json", *arguments]
    environment = make_environment(command[0])
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise BenchError(f"eruca {kind} did not start")
            yield process.pid, line
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()

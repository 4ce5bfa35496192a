"""How long `eruca up` takes until its first send and to stop, and how much anonymous memory it uses.

It is compared with a bare server: a Python process that imports the same loop, listens, and answers one line.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.runner import Aim, BenchError, Run, Sample, make_environment
from eruca._client.produce.producer import Producer

START_AIM = Aim(2000, at_least=False)
STOP_AIM = Aim(2000, at_least=False)
MEMORY_AIM = Aim(120, at_least=False)
_SECONDS_MAX = 60
_BARE = """
import asyncio, signal, uvloop
async def answer(reader, writer):
    writer.write(await reader.readline())
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stopping.wait()
uvloop.run(main())
"""


def run_bench(run: Run) -> None:
    """Measure start, memory and stop, each in turns with the bare server."""
    lives: dict[str, list[tuple[float, float, float]]] = {"ours": [], "a bare server": []}

    def live(name: str, start: Callable[[], tuple[float, float, float]]) -> Callable[[], Sample]:
        def measure() -> Sample:
            lives[name].append(start())
            return Sample(lives[name][-1][0])

        return measure

    def live_up() -> tuple[float, float, float]:
        with run.scratch() as directory:
            return _live(_up_command(directory), directory, _send_first)

    def live_bare() -> tuple[float, float, float]:
        with run.scratch() as directory:
            return _live([sys.executable, "-c", _BARE], directory, _ask_bare)

    peers = {"a bare server": live("a bare server", live_bare)}
    run.measure("start to first send", "ms", live("ours", live_up), peers, aim=START_AIM)
    for place, name, unit, aim in (
        (1, "anonymous memory after the first send", "MB", MEMORY_AIM),
        (2, "stop with everything on the disk", "ms", STOP_AIM),
    ):
        medians = {who: sorted(life[place] for life in found)[len(found) // 2] for who, found in lives.items()}
        ours = Sample(medians.pop("ours"))
        run.add_figure(name, unit, ours, {who: Sample(value) for who, value in medians.items()}, aim=aim)


def _live(command: list[str], directory: Path, first_call: Callable[[str], None]) -> tuple[float, float, float]:
    """Start and stop a server; returns milliseconds to the first answer, anonymous MB, and milliseconds to stop."""
    begun = time.monotonic()
    with _started(command, directory) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise BenchError(f"{command[1:4]} did not start")
        first_call(line)
        answered = time.monotonic()
        memory = _read_anonymous(process.pid)
        told = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(_SECONDS_MAX)
        if process.returncode:
            raise BenchError(f"{command[1:4]} ended with status {process.returncode}")
        return (answered - begun) * 1000, memory, (time.monotonic() - told) * 1000


@contextmanager
def _started(command: list[str], directory: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, cwd=directory, env=make_environment(command[0]), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _up_command(directory: Path) -> list[str]:
    ports = ["--nameserver-port", "0", "--listen-port", "0"]
    return [sys.executable, "-m", "eruca", "up", "--output", "json", "--data", str(directory / "data"), *ports]


def _send_first(line: str) -> None:
    async def send() -> None:
        async with Producer(json.loads(line)["nameserver"]) as producer:
            await producer.send("first", b"message")

    asyncio.run(send())


def _ask_bare(line: str) -> None:
    with socket.create_connection(("127.0.0.1", int(line))) as link:
        link.sendall(b"hello\n")
        link.recv(16)


def _read_anonymous(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    match = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    if match is None:
        raise BenchError("this system does not report the anonymous memory of a process")
    return int(match[1]) / 1000

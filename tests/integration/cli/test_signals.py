"""What signals do to a server, and what is left of it afterwards."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from eruca._cli import running
from tests.integration.cli.upprocess import SECONDS_MAX, Up, choose_ports, make_command, make_environment
from tests.patience import PATIENCE_S


def test_sighup_does_not_end_a_server_without_a_terminal(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        up.run("send", "T", "one")
        os.kill(up.pid, signal.SIGHUP)
        assert up.run("send", "T", "two").returncode == 0
        status, said = up.end()
    assert (status, "there are no log files to reopen" in said) == (0, True)
    assert not (tmp_path / "eruca-data" / "store" / "abort").exists()


def test_a_closed_terminal_stops_a_server_cleanly(tmp_path: Path) -> None:
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        make_command("up", "--output", "json", *choose_ports()),
        cwd=tmp_path,
        env=make_environment(),
        stdin=inner,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        # Twice, as shell and kernel do it; neither makes it hurry.
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
        os.close(outer)
        os.close(inner)
    assert process.returncode == 0
    assert (tmp_path / "eruca-data" / "store" / "commitlog").is_dir()
    assert not (tmp_path / "eruca-data" / "store" / "abort").exists()


def test_who_ignores_sighup_goes_on_ignoring_it(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with Up(tmp_path) as up:
            os.kill(up.pid, signal.SIGHUP)
            assert up.run("send", "T", "one").returncode == 0
            assert up.end() == (0, "")
    finally:
        signal.signal(signal.SIGHUP, before)


def wait_until_asleep(pid: int) -> None:
    """Wait until the first thread of a process waits for something."""
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < deadline


def test_a_fault_below_python_leaves_a_trace(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        # In the middle of a call, Python's handler may find a frame that is not complete, and fault itself.
        wait_until_asleep(up.pid)
        status, said = up.end(signal.SIGBUS)
    assert status == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in said
    assert "most recent call first" in said


class _Slow:
    """A server whose start takes for ever."""

    def __init__(self) -> None:
        self.starting = asyncio.Event()
        self.said: list[str] = []

    async def start(self) -> None:
        self.starting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.said.append("cancelled")
            raise

    async def stop(self) -> None:
        self.said.append("stopped")

    def look_again(self) -> None:
        self.said.append("looked again")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_start_that_takes_long(number: signal.Signals) -> None:
    server = _Slow()
    services = [running.Service(server, "")]
    loop = asyncio.get_running_loop()
    run = asyncio.create_task(running._run(services, lambda: server.said.append("announced")))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await server.starting.wait()
            os.kill(os.getpid(), number)
            await run
    finally:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(each)
    assert server.said == ["cancelled", "stopped"]


def test_the_handlers_of_signals_are_gone_with_their_loop() -> None:
    """A uvloop does not remove them when it is closed: Ctrl-C did nothing in what came after it."""

    async def handle() -> None:
        with running.handle_signals({signal.SIGINT: lambda: None, signal.SIGTERM: lambda: None}):
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler

    running.run_loop(handle())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

"""`eruca up` in a process that is killed and started again, on the same directory and the same ports."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.brokers import BROKER_NAME
from tests.interop.javapeer import find_broker_port, find_ports
from tests.paths import REPOSITORY

_START_SECONDS_MAX = 60.0


def make_environment() -> dict[str, str]:
    """The environment of a process of ours, without settings of the user who runs the tests."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("ERUCA_", "NAMESRV"))}
    return {**kept, "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))}


class KilledBroker:
    """A name server and a broker in one process."""

    def __init__(self, home: Path, settings: Mapping[str, object]) -> None:
        self._home = home
        self._settings = {"brokerName": BROKER_NAME, **settings}
        self._process: asyncio.subprocess.Process | None = None
        names, port = find_ports(), find_broker_port()
        self.nameserver, self.address = f"127.0.0.1:{names}", f"127.0.0.1:{port}"
        self._ports = ["--nameserver-port", str(names), "--listen-port", str(port), "--metrics-port", "0"]
        self._ports += ["--console-listen-port", "-1"]
        self.log = home / "broker.log"

    async def start(self, **more: object) -> None:
        """Start it and wait until it is up; `more` are settings for this time only."""
        command = [sys.executable, "-m", "eruca", "up", "-o", "json", "--data", str(self._home / "data"), *self._ports]
        for key, value in {**self._settings, **more}.items():
            command += ["--option", f"{key}={value}"]
        with self.log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=log, env=make_environment(), cwd=self._home
            )
        assert process.stdout is not None
        async with asyncio.timeout(_START_SECONDS_MAX):
            line = await process.stdout.readline()
        if not line:
            raise AssertionError(f"the broker did not start: {self.read_log()[-2000:]}")
        facts: dict[str, Any] = json.loads(line)
        assert facts["broker"] == self.address, facts

    def kill(self) -> None:
        """`kill -9`, now."""
        assert self._process is not None
        assert self._process.returncode is None, f"the broker ended by itself: {self.read_log()[-2000:]}"
        self._process.send_signal(signal.SIGKILL)

    async def wait(self) -> None:
        """Wait for the end of a process that was killed."""
        assert self._process is not None
        await self._process.communicate()
        assert self._process.returncode == -signal.SIGKILL

    async def end(self) -> int:
        """Stop it cleanly, if it runs; returns its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.returncode is None:
            process.terminate()
        await process.communicate()
        return process.returncode or 0

    def read_log(self) -> str:
        """All it has logged."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def list_complaints(self) -> list[str]:
        """Internal errors that it has logged."""
        return [line for line in self.read_log().splitlines() if re.search(r"\bERROR\b|Traceback|Error:", line)]

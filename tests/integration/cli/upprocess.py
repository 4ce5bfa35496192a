"""`eruca` as its user runs it: a separate process, with its own directory and free ports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from click.testing import CliRunner

from eruca._cli.main import main
from tests.interop.javapeer import find_ports
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S

SECONDS_MAX = PATIENCE_S
# The ports of metrics, chosen by the system, and of no console.
OTHER_PORTS = ("--metrics-port", "0", "--console-listen-port", "-1")


def make_environment() -> dict[str, str]:
    """The environment without the settings of the user who runs the tests."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("ERUCA_", "NAMESRV"))}
    return {**kept, "PYTHONPATH": str(REPOSITORY / "src"), "COLUMNS": "200"}


def make_command(*arguments: str | Path) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "eruca", *map(str, arguments)]


def run_eruca(
    *arguments: str | Path, cwd: Path, stdin: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; whatever happens, it shows no traceback."""
    finished = subprocess.run(
        make_command(*arguments),
        cwd=cwd,
        input=stdin,
        env={**make_environment(), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert "Traceback" not in finished.stderr, finished.stderr
    return finished


@dataclass(frozen=True)
class Finished:
    """How a command ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


def run_here(*arguments: str) -> Finished:
    """Run a command in this process; whatever happens, it ends without an unexpected exception."""
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Finished(result.exit_code, result.stdout, result.stderr)


class Up:
    """A running server command; `address` is its name server's."""

    def __init__(self, directory: Path, *arguments: str | Path, command: str = "up") -> None:
        self.directory = directory
        self.arguments: Sequence[str | Path] = arguments or choose_ports()
        # Not a pipe: nothing reads it meanwhile, and a server that logs much would block when it is full.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._said = ""
        self._process = subprocess.Popen(
            make_command(command, "--output", "json", *self.arguments),
            cwd=directory,
            env=make_environment(),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"{command} did not start: {self.end()[1]}")
        self.facts: dict[str, Any] = json.loads(line)
        self.address: str = self.facts.get("nameserver", "")
        self.pid = self._process.pid

    def run(self, *arguments: str, stdin: str = "") -> Finished:
        """Run a command against it: in this process, which is quicker, unless it reads standard input."""
        arguments = (*arguments, "-n", self.address)
        if stdin:
            process = run_eruca(*arguments, cwd=self.directory, stdin=stdin)
            return Finished(process.returncode, process.stdout, process.stderr)
        return run_here(*arguments)

    def run_json(self, *arguments: str, stdin: str = "") -> list[Any]:
        """Run a command against it that must succeed; returns its output, line by line."""
        finished = self.run(*arguments, "-o", "json", stdin=stdin)
        assert finished.returncode == 0, finished.stderr
        return [json.loads(line) for line in finished.stdout.splitlines()]

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait; returns the exit status and what was printed to stderr."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.communicate(timeout=SECONDS_MAX)
        if not self._errors.closed:
            self._errors.seek(0)
            self._said = self._errors.read()
            self._errors.close()
        return self._process.returncode, self._said

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def choose_ports() -> list[str]:
    """Flags for free ports."""
    return ["--nameserver-port", str(find_ports()), "--listen-port", str(find_ports(-2, 1)), *OTHER_PORTS]

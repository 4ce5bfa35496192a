"""A Spark driver in a separate process session, so that all of it can be killed: Python, the JVM, and every worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.paths import REPOSITORY
from tests.torture.killedbroker import make_environment

_END_S: Final = 60.0


class KilledDriver:
    """One run of a driver: a module of ours, and its arguments."""

    def __init__(self, module: str, told: Mapping[str, Any], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(told)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=make_environment(),
                cwd=REPOSITORY,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        """Is it still running?"""
        return self._process.poll() is None

    def kill(self) -> int:
        """`kill -9` for every process of its session; returns how many there were."""
        # Workers create their own process groups, but stay in the session.
        killed: set[int] = set()
        while found := set(list_session(self._process.pid)) - killed:
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            killed |= found
        self._close()
        return len(killed)

    def end(self) -> int:
        """Wait for its normal end; returns its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the driver has not ended after {_END_S} s: {self.read_log()[-2000:]}") from None

    def read_log(self) -> str:
        """All it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def list_session(leader: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it ended while we looked
        # pid (name) state parent group session ...; the name may have blanks.
        state, _, _, session = stat.rpartition(")")[2].split()[:4]
        if int(session) == leader and state != "Z":
            found.append(int(entry.name))
    return found

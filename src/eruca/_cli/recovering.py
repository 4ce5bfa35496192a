"""What a user sees while a store recovers: nothing if it is quick, otherwise a bar or a line now and then."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

log = logging.getLogger(__name__)

# Nothing is shown if it takes less.
_QUIET_SECONDS = 1.0
_LINE_SECONDS = 5.0
_MIB = 1024 * 1024


class RecoveryWatch:
    """Shows progress; called with the bytes that recovery has read, from its thread."""

    def __init__(self, commitlog: Path) -> None:
        self._commitlog = commitlog
        self._read = 0
        self._started = 0.0
        self._said = 0.0
        self._bar: Progress | None = None

    def __call__(self, count: int) -> None:
        """Count bytes, and report if it takes long."""
        now = time.monotonic()
        self._started = self._started or now
        self._read += count
        if now - self._started < _QUIET_SECONDS:
            return
        if sys.stderr.isatty():
            self._show()
        elif now - self._said >= _LINE_SECONDS:
            self._said = now
            log.warning("recovering the store: %d of at most %d MiB read", self._read // _MIB, self._measure() // _MIB)

    def close(self) -> None:
        """End the display: recovery is over."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(binary_units=True),
                TransferSpeedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task("recovering the store", total=max(self._measure(), 1))
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=self._read)

    def _measure(self) -> int:
        """Return the size of the whole log; recovery may start in the middle of it."""
        total = 0
        with contextlib.suppress(OSError):
            total = sum(path.stat().st_size for path in self._commitlog.iterdir() if path.name.isdigit())
        return total

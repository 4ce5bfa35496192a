"""Compares this checkout with an earlier one whose modules differ: each measures itself, alternately, row by row."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from bench.parts.others import find_reason
from bench.runner import BenchError, Run, Sample, make_environment
from tests.paths import REPOSITORY

_STOP_SECONDS_MAX = 120
_PROGRAM = Path(__file__).with_name("rows.py")


def compare_rows(run: Run, name: str, sizes: Mapping[str, float], *, lives: int) -> None:
    """Measure the rows that both checkouts have, with their own code for them and the same sizes for both.

    Processes that do the same work differ a little throughout their lives, so each side is started several times.
    """
    assert run.before is not None
    for _ in range(1 if run.quick else lives):
        with (
            run.scratch() as directory,
            _Process(Path(sys.executable), REPOSITORY, name, directory / "now", sizes) as now,
            _Process(run.before, run.before.parents[2], name, directory / "before", sizes) as before,
        ):
            compare_sides(run, now, before, lives=lives)


class Rows(Protocol):
    """The rows of one checkout, one after the other."""

    def find_next(self) -> tuple[str, str] | None:
        """Wait for the next row: its name and its unit; None after the last."""

    def measure(self) -> Sample:
        """Measure the row that is ready."""

    def skip(self) -> None:
        """Skip the row that is ready."""


def compare_sides(run: Run, now: Rows, before: Rows, *, lives: int) -> None:
    """Walk through the rows of both; one that only this checkout has is left out."""
    ours, theirs = now.find_next(), before.find_next()
    while ours:
        if ours == theirs:
            run.measure_beside_before(*ours, now.measure, before.measure, lives=lives)
            # Both make the next row ready at the same time.
            now.skip()
            before.skip()
            theirs = before.find_next()
        else:
            # Most likely a newer one.
            now.skip()
            note = f"{ours[0]} is left out: it is not the next row of the earlier checkout"
            if note not in run.notes:
                run.note(note)
        ours = now.find_next()
    if theirs:
        raise BenchError(f"the earlier checkout measures {theirs[0]!r} ({theirs[1]}), and this one does not")


class _Process:
    """A process that measures the rows of one checkout."""

    def __init__(self, python: Path, checkout: Path, name: str, directory: Path, sizes: Mapping[str, float]) -> None:
        directory.mkdir()
        self._said = directory.with_suffix(".err")
        with open(self._said, "wb") as errors:
            self._process = subprocess.Popen(
                # Modules are imported from the checkout, not from the folder of the program.
                [str(python), "-P", str(_PROGRAM), name, str(directory), json.dumps(sizes)],
                cwd=checkout,
                env={**make_environment(python), "PYTHONPATH": str(checkout)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def find_next(self) -> tuple[str, str] | None:
        row = self._read()
        return None if row is None else (row["name"], row["unit"])

    def measure(self) -> Sample:
        self._write("again")
        sample = self._read()
        if sample is None:
            raise BenchError("a process ended in the middle of a row")
        return Sample(sample["value"], sample["details"])

    def skip(self) -> None:
        self._write("next")

    def _write(self, wish: str) -> None:
        assert self._process.stdin is not None
        # A process that has ended reports why when it is read.
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{wish}\n")
            self._process.stdin.flush()

    def _read(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        if self._process.wait(_STOP_SECONDS_MAX):
            said = self._said.read_text(encoding="utf-8", errors="replace")
            raise BenchError(f"{self._said.stem} ended with {self._process.returncode}: {find_reason(said)}")
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.communicate(timeout=_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

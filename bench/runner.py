"""Runs a benchmark: alternates between ours and the peers, keeps medians, writes one JSON document.

A figure alone tells more about the machine than about the program. So every figure has peers that do the basic part of
the same work, measured alternately in the same run (ours, peer, ours, peer, ...): anything that slows the machine down
slows both, and the ratio stays the same.

Compared with an earlier checkout there are more and shorter rounds. The order alternates, and the two samples of a
round make one ratio: the result is the median of these ratios, with a confidence interval.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from math import comb
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import bench
import eruca
from eruca._wire.kernel import reading
from eruca.errors import ErucaError

REPEATS = 5
REPEATS_QUICK = 1
# How much a change may cost compared with an earlier checkout; smaller differences are indistinguishable from noise.
BEFORE_SHARE_MIN = 0.97
# Rounds beside an earlier checkout: an even number, so that each side goes first equally often. Slow
# figures get fewer rounds; with at most ten figures, a run ends within about eight minutes.
ROUNDS = 12
ROUNDS_MIN = 6
FIGURE_SECONDS = 50.0
# While the interval contains the aim, whichever side the median is on, more rounds follow, up to these bounds.
ROUNDS_MAX = 40
FIGURE_SECONDS_MAX = 100.0
# The share of the work that a round does in a quick run, and when there are more rounds than usual.
_QUICK_SHARE = 20
_BESIDE_SHARE = 2
# How often the interval of a ratio may exclude the true median.
_MISSED_SHARE_MAX = 0.05
_BEFORE = "before"
# What a whole run may need in the temporary directory.
DISK_BYTES_MAX = 6 * 1024**3
_NOT_BENCHES = {"runner", "parts", "__main__"}


class BenchError(ErucaError):
    """A benchmark cannot run here, or what it measured did not work correctly."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: the figure itself, and other details observed with it."""

    value: float
    details: dict[str, float] = field(default_factory=dict)


Measurement = Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Aim:
    """The target for a figure."""

    limit: float
    at_least: bool = True

    def is_met(self, value: float) -> bool:
        """Return whether the value reaches it."""
        return value >= self.limit if self.at_least else value <= self.limit

    def describe(self, unit: str) -> str:
        """Return the aim in readable form."""
        return f"{'≥' if self.at_least else '≤'} {format_number(self.limit)} {unit}"


@dataclass(slots=True)
class Figure:
    """One measurement beside those of its peers."""

    name: str
    unit: str
    samples: list[Sample]
    peers: dict[str, list[Sample]]
    aim: Aim | None = None

    @property
    def value(self) -> float:
        """The median of our samples."""
        return _median(self.samples)

    @property
    def is_met(self) -> bool | None:
        """Whether the aim is reached; None without an aim."""
        return None if self.aim is None else self.aim.is_met(self.value)

    def ratio_to(self, peer: str) -> float:
        """Our median divided by the peer's."""
        return self.value / _median(self.peers[peer])

    def to_json(self) -> dict[str, Any]:
        """The figure as it is in the document."""
        aim = None if self.aim is None else {"limit": self.aim.limit, "at_least": self.aim.at_least}
        return {
            "name": self.name,
            "unit": self.unit,
            "value": _round(self.value),
            "samples": [_round(sample.value) for sample in self.samples],
            "details": _median_details(self.samples),
            "peers": [
                {
                    "name": name,
                    "value": _round(_median(samples)),
                    "samples": [_round(sample.value) for sample in samples],
                    "details": _median_details(samples),
                    "ratio": _round(self.ratio_to(name)),
                }
                for name, samples in self.peers.items()
            ],
            "aim": aim,
            "met": self.is_met,
        }


class Comparison(Figure):
    """One measurement beside that of an earlier checkout; the aim is for the ratio.

    The samples of a round belong together: other load on the machine affected both.
    """

    @property
    def is_met(self) -> bool | None:
        """Whether the ratio is good enough."""
        return None if self.aim is None else self.aim.is_met(self.ratio_to(_BEFORE))

    @property
    def is_unclear(self) -> bool:
        """Whether the rounds vary too much to tell on which side of the aim the ratio is."""
        return self.aim is not None and _is_within(self.aim.limit, find_interval(self._ratios(_BEFORE)))

    def ratio_to(self, peer: str) -> float:
        """The median of the ratios of all rounds."""
        return statistics.median(self._ratios(peer))

    def to_json(self) -> dict[str, Any]:
        """The figure as it is in the document."""
        document = super().to_json()
        ratios = self._ratios(_BEFORE)
        (peer,) = document["peers"]
        peer["ratios"] = [_round(ratio) for ratio in ratios]
        peer["interval"] = [_round(end) for end in find_interval(ratios)]
        peer["detail_ratios"] = {
            key: _round(statistics.median(self._ratios(_BEFORE, lambda sample, key=key: sample.details[key])))  # type: ignore[misc]
            for key in document["details"]
            if all(sample.details.get(key) for sample in self.peers[_BEFORE])
        }
        return document

    def _ratios(self, peer: str, read: Callable[[Sample], float] = lambda sample: sample.value) -> list[float]:
        return [read(ours) / read(theirs) for ours, theirs in zip(self.samples, self.peers[peer], strict=True)]


class Run:
    """Passed to a benchmark: disk space, and the methods that measure."""

    def __init__(self, directory: Path, *, quick: bool, progress: Progress, before: Path | None = None) -> None:
        self.directory = directory
        self.quick = quick
        #: The Python of an earlier checkout, which is then the only peer.
        self.before = None if before is None else find_python(before)
        self.repeats = REPEATS_QUICK if quick else REPEATS
        self.figures: list[Figure] = []
        self.notes: list[str] = []
        self._progress = progress

    def scale(self, count: int) -> int:
        """How much of the usual work one round does."""
        return count // (_QUICK_SHARE if self.quick else _BESIDE_SHARE if self.before else 1)

    def measure_beside_before(
        self, name: str, unit: str, ours: Measurement, before: Measurement, *, lives: int = 1
    ) -> Comparison:
        """Measure in turns with the earlier checkout; a change may not make this slower.

        With several `lives`, this is called once for each and does its share of the rounds.
        """
        found = [figure for figure in self.figures if isinstance(figure, Comparison) and figure.name == name]
        # For a rate, more is better; for everything else, less.
        is_rate = unit.endswith("/s")
        aim = Aim(BEFORE_SHARE_MIN if is_rate else 1 / BEFORE_SHARE_MIN, at_least=is_rate)
        figure = found[0] if found else Comparison(name, unit, [], {_BEFORE: []}, aim)
        turns = [(figure.samples, ours), (figure.peers[_BEFORE], before)]
        seconds = 0.0
        with self.show(name, (1 if self.quick else ROUNDS // lives) * len(turns)) as step:
            for number in count():
                if number and (self.quick or _is_enough(figure, number * lives, seconds * lives)):
                    break
                started = time.monotonic()
                for samples, measurement in reversed(turns) if number % 2 else turns:
                    _take(samples, measurement)
                    step()
                seconds += time.monotonic() - started
        if not found:
            self.figures.append(figure)
        return figure

    def note(self, text: str) -> None:
        """Add a note for readers of the figures."""
        self.notes.append(text)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """An empty directory that is removed afterwards."""
        path = Path(tempfile.mkdtemp(dir=self.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    @contextmanager
    def show(self, what: str, steps: int) -> Iterator[Callable[[], None]]:
        """Show progress; the returned function marks one of the steps as done."""
        task = self._progress.add_task(what, total=steps)
        try:
            yield lambda: self._progress.advance(task)
        finally:
            self._progress.update(task, completed=steps)

    def measure(
        self,
        name: str,
        unit: str,
        ours: Measurement,
        peers: dict[str, Measurement],
        *,
        aim: Aim | None = None,
    ) -> Figure:
        """Measure in turns and keep the figure."""
        figure = Figure(name, unit, [], {peer: [] for peer in peers}, aim)
        with self.show(name, self.repeats * (1 + len(peers))) as step:
            for _ in range(self.repeats):
                for samples, measurement in [
                    (figure.samples, ours),
                    *((figure.peers[peer], peers[peer]) for peer in peers),
                ]:
                    _take(samples, measurement)
                    step()
        self.figures.append(figure)
        return figure

    def add_figure(
        self, name: str, unit: str, ours: Sample, peers: dict[str, Sample], *, aim: Aim | None = None
    ) -> Figure:
        """Keep a figure that was measured once, in another way."""
        figure = Figure(name, unit, [ours], {peer: [sample] for peer, sample in peers.items()}, aim)
        self.figures.append(figure)
        return figure


def list_benches() -> list[str]:
    """The names of all benchmarks."""
    names = {module.name for module in pkgutil.iter_modules(bench.__path__)}
    return sorted(names - _NOT_BENCHES)


def find_python(checkout: Path) -> Path:
    """Return the interpreter that a checkout was set up with."""
    python = checkout.absolute() / ".venv" / "bin" / "python"
    if not python.is_file():
        raise BenchError(f"{checkout} has no environment", hint=f"run `make .venv/.locked` in {checkout} first")
    return python


def make_environment(python: str | Path) -> dict[str, str]:
    """Return the environment of a measured program: of our own variables it gets only `ERUCA_PLAIN`.

    PYTHONPATH would put the code of this checkout ahead of the other interpreter's.
    """
    left_out = ("ERUCA_", "NAMESRV", "ROCKETMQ", *(() if str(python) == sys.executable else ("PYTHONPATH",)))
    return {key: text for key, text in os.environ.items() if key == "ERUCA_PLAIN" or not key.startswith(left_out)}


def describe_before(python: Path) -> dict[str, Any]:
    """The commit of the earlier checkout, and what it reports about itself."""
    checkout = python.parents[2]
    program = "import json; from bench.runner import describe_machine; print(json.dumps(describe_machine()))"
    said: dict[str, Any] = json.loads(_ask([str(python), "-c", program], checkout))
    try:
        commit = _ask(["git", "describe", "--always", "--dirty"], checkout)
    except BenchError:
        commit = "an unknown commit"
    return {"commit": commit, **{key: said.get(key) for key in ("python", "eruca", "compiled")}}


def _ask(command: list[str], checkout: Path) -> str:
    environment = make_environment(command[0])
    try:
        ended = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchError(str(error)) from error
    if ended.returncode:
        raise BenchError(f"{Path(command[0]).name} failed in the earlier checkout: {ended.stderr.strip()[-300:]}")
    return ended.stdout.strip()


def run_bench(name: str, console: Console, *, quick: bool, before: Path | None = None) -> dict[str, Any]:
    """Run one benchmark and return its document."""
    module = importlib.import_module(f"bench.{name}")
    measure: Callable[[Run], None] = module.run_bench
    if before is not None and not getattr(module, "KNOWS_BEFORE", False):
        raise BenchError(f"the benchmark {name} cannot be compared with another checkout", hint="leave out --before")
    if not quick and shutil.disk_usage(tempfile.gettempdir()).free < DISK_BYTES_MAX:
        raise BenchError(
            f"a run needs {DISK_BYTES_MAX // 1024**3} GiB of free space for temporary files",
            hint="set TMPDIR to another directory, or try --quick",
        )
    machine = describe_machine()
    started = time.monotonic()
    columns = (*Progress.get_default_columns()[:3], TimeElapsedColumn(), TextColumn("{task.completed}/{task.total}"))
    with (
        tempfile.TemporaryDirectory(prefix="eruca-bench-") as directory,
        Progress(*columns, console=console) as progress,
    ):
        run = Run(Path(directory), quick=quick, progress=progress, before=before)
        earlier = None if run.before is None else describe_before(run.before)
        if earlier and earlier["compiled"] != machine["compiled"]:
            run.note("only one of the two checkouts runs compiled, so the ratios are not meaningful")
        measure(run)
    return {
        "bench": name,
        "quick": quick,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": _round(time.monotonic() - started),
        "machine": machine,
        "before": earlier,
        "notes": run.notes,
        "figures": [figure.to_json() for figure in run.figures],
    }


def describe_machine() -> dict[str, Any]:
    """Return facts that figures depend on, without identifying the machine."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": _round(pages / 1024**3),
        # The load average of the minute before; above about 0.5, absolute figures are too low.
        "load_before": _round(os.getloadavg()[0]),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "eruca": eruca.__version__,
        "compiled": reading.compiled,
    }


def save_document(document: dict[str, Any], directory: Path) -> Path:
    """Write the document to a file named after the benchmark and the time."""
    directory.mkdir(parents=True, exist_ok=True)
    stamp = datetime.fromisoformat(document["time"]).strftime("%Y%m%dT%H%M%SZ")
    path = directory / f"{document['bench']}-{stamp}.json"
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def print_table(document: dict[str, Any], console: Console) -> None:
    """Print the figures as a table."""
    table = Table(title=f"bench {document['bench']}{' (quick: not a measurement)' if document['quick'] else ''}")
    if before := document["before"]:
        table.caption = f"before is {before['commit']}{'' if before['compiled'] else ', plain'}"
    headings = ["what", "figure", "beside", "peer's figure", "ratio", "aim", "met"]
    for heading in (*headings, "CPU, ratio") if before else headings:
        table.add_column(heading, justify="left" if heading in ("what", "beside") else "right")
    for figure in document["figures"]:
        aim = Aim(**figure["aim"]).describe("of before" if before else figure["unit"]) if figure["aim"] else ""
        verdict = _format_verdict(figure)
        own = (figure["name"], f"{format_number(figure['value'])} {figure['unit']}")
        for number, peer in enumerate(figure["peers"]):
            first = number == 0
            table.add_row(
                *(own if first else ("", "")),
                peer["name"],
                format_number(peer["value"]),
                _format_ratio(peer),
                *((aim, verdict) if first else ("", "")),
                *([_format_cpu(peer)] if before else ()),
                end_section=number == len(figure["peers"]) - 1,
            )
        details = ", ".join(_format_details(figure))
        if details:
            console.print(f"[dim]{figure['name']}:[/dim] {details}", highlight=False)
    console.print(table)
    for note in document["notes"]:
        console.print(note, highlight=False)


def format_number(value: float) -> str:
    """Format a number with its meaningful digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _format_ratio(peer: dict[str, Any]) -> str:
    if "interval" not in peer:
        return f"{peer['ratio']:.3g}"
    low, high = peer["interval"]
    return f"{peer['ratio']:.3f} ({low:.3f} to {high:.3f})"


def _format_verdict(figure: dict[str, Any]) -> str:
    if figure["met"] is False:
        intervals = [peer["interval"] for peer in figure["peers"] if "interval" in peer]
        if any(_is_within(figure["aim"]["limit"], interval) for interval in intervals):
            return "[yellow]unclear[/yellow]"
    return {None: "", True: "[green]met[/green]", False: "[red]not met[/red]"}[figure["met"]]


def _format_cpu(peer: dict[str, Any]) -> str:
    """Return the ratio of the first CPU time among the details, which a busy machine affects least."""
    found = [ratio for key, ratio in peer["detail_ratios"].items() if "cpu" in key.lower()]
    return f"{found[0]:.3f}" if found else ""


def _format_details(figure: dict[str, Any]) -> Iterator[str]:
    """Yield the details; in a comparison with an earlier checkout, with the ratio of each."""
    ratios = {key: ratio for peer in figure["peers"] for key, ratio in peer.get("detail_ratios", {}).items()}
    for key, value in figure["details"].items():
        yield f"{key} {format_number(value)}" + (f" ({ratios[key]:.3f} of before)" if key in ratios else "")


def find_interval(values: list[float]) -> tuple[float, float]:
    """Return two of the values that enclose the true median 95 times in 100; with fewer than six, the extremes.

    A binomial distribution determines how many to leave out at either end: each value is above or below the true
    median.
    """
    ordered = sorted(values)
    left_out = 0
    while 2 * sum(comb(len(values), low) for low in range(left_out + 1)) <= _MISSED_SHARE_MAX * 2 ** len(values):
        left_out += 1
    first = max(0, left_out - 1)
    return ordered[first], ordered[-1 - first]


def _is_enough(figure: Comparison, rounds: int, seconds: float) -> bool:
    """Have there been enough rounds for a verdict, or as many as a figure may have?"""
    if rounds < ROUNDS_MIN or len(figure.samples) % 2:
        return False
    if rounds >= ROUNDS_MAX or seconds > FIGURE_SECONDS_MAX:
        return True
    return (rounds >= ROUNDS or seconds > FIGURE_SECONDS) and not figure.is_unclear


def _is_within(limit: float, interval: Sequence[float]) -> bool:
    low, high = interval
    return low < limit < high


def _take(samples: list[Sample], measurement: Measurement) -> None:
    gc.collect()
    samples.append(measurement())


def _median(samples: list[Sample]) -> float:
    return statistics.median([sample.value for sample in samples])


def _median_details(samples: list[Sample]) -> dict[str, float]:
    keys = samples[0].details if samples else ()
    return {key: _round(statistics.median([sample.details[key] for sample in samples])) for key in keys}


def _round(value: float) -> float:
    """Round to four significant digits: the rest is noise."""
    return float(f"{value:.4g}")

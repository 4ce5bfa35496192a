"""Runs a benchmark: takes turns between ours and the peers, keeps medians, writes one JSON document.

A figure alone says more about the machine than about the program. So every figure has peers that do the plain part
of the same work, measured in the same run and in turns (ours, peer, ours, peer, ...): what slows the machine down
slows both, and the ratio stays.
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
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import bench
import eruca
from eruca.errors import ErucaError
from eruca.wire.kernel import reading

REPEATS = 5
REPEATS_QUICK = 1
# What a change may cost beside an earlier checkout; less than this cannot be told from noise.
BEFORE_SHARE_MIN = 0.97
# What a whole run may need in the temporary directory.
DISK_BYTES_MAX = 6 * 1024**3
_NOT_BENCHES = {"runner", "parts", "__main__"}


class BenchError(ErucaError):
    """A benchmark cannot run here, or measured something that did not do its work."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: the figure itself and what else was seen on the way."""

    value: float
    details: dict[str, float] = field(default_factory=dict)


Measurement = Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure is meant to reach."""

    limit: float
    at_least: bool = True

    def is_met(self, value: float) -> bool:
        """Does the value reach it?"""
        return value >= self.limit if self.at_least else value <= self.limit

    def describe(self, unit: str) -> str:
        """The aim for people."""
        return f"{'≥' if self.at_least else '≤'} {format_number(self.limit)} {unit}"


@dataclass(slots=True)
class Figure:
    """One measured thing beside its peers."""

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
        """Is the aim reached? None without an aim."""
        return None if self.aim is None else self.aim.is_met(self.value)

    def ratio_to(self, peer: str) -> float:
        """Our median divided by the peer's."""
        return self.value / _median(self.peers[peer])

    def to_json(self) -> dict[str, Any]:
        """The figure as it stands in the document."""
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


class Run:
    """What a benchmark is given: room on the disk, and the way to measure."""

    def __init__(self, directory: Path, *, quick: bool, progress: Progress, before: Path | None = None) -> None:
        self.directory = directory
        self.quick = quick
        #: The Python of an earlier checkout, which then is the only peer.
        self.before = None if before is None else find_python(before)
        self.repeats = REPEATS_QUICK if quick else REPEATS
        self.figures: list[Figure] = []
        self.notes: list[str] = []
        self._progress = progress

    def measure_beside_before(self, name: str, unit: str, ours: Measurement, before: Measurement) -> Figure:
        """Measure in turns with the earlier checkout; a change may not make this slower."""
        figure = self.measure(name, unit, ours, {"before": before})
        figure.aim = Aim(BEFORE_SHARE_MIN * figure.value / figure.ratio_to("before"))
        return figure

    def note(self, text: str) -> None:
        """Keep a sentence that readers of the figures must know."""
        self.notes.append(text)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """An empty directory that is gone afterwards."""
        path = Path(tempfile.mkdtemp(dir=self.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    @contextmanager
    def show(self, what: str, steps: int) -> Iterator[Callable[[], None]]:
        """Show that something is going on; the function it gives marks one of the steps as done."""
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
                    gc.collect()
                    samples.append(measurement())
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
        raise BenchError(f"{checkout} has no environment", hint=f"run `make setup` in {checkout} first")
    return python


def run_bench(name: str, console: Console, *, quick: bool, before: Path | None = None) -> dict[str, Any]:
    """Run one benchmark and return its document."""
    module = importlib.import_module(f"bench.{name}")
    measure: Callable[[Run], None] = module.run_bench
    if before is not None and not getattr(module, "KNOWS_BEFORE", False):
        raise BenchError(f"the benchmark {name} cannot be measured beside another checkout", hint="leave out --before")
    if not quick and shutil.disk_usage(tempfile.gettempdir()).free < DISK_BYTES_MAX:
        raise BenchError(
            f"a run needs {DISK_BYTES_MAX // 1024**3} GiB of free space for temporary files",
            hint="name another place with TMPDIR, or try --quick",
        )
    machine = describe_machine()
    started = time.monotonic()
    columns = (*Progress.get_default_columns()[:3], TimeElapsedColumn(), TextColumn("{task.completed}/{task.total}"))
    with (
        tempfile.TemporaryDirectory(prefix="eruca-bench-") as directory,
        Progress(*columns, console=console) as progress,
    ):
        run = Run(Path(directory), quick=quick, progress=progress, before=before)
        measure(run)
    return {
        "bench": name,
        "quick": quick,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": _round(time.monotonic() - started),
        "machine": machine,
        "notes": run.notes,
        "figures": [figure.to_json() for figure in run.figures],
    }


def describe_machine() -> dict[str, Any]:
    """Facts a figure depends on, and none that name the machine."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": _round(pages / 1024**3),
        # How busy others kept the machine in the minute before; above 0.5 or so, absolute figures are too low.
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
    """Show the figures to people."""
    table = Table(title=f"bench {document['bench']}{' (quick: no figure means anything)' if document['quick'] else ''}")
    for heading in ("what", "figure", "beside", "peer's figure", "ratio", "aim", "met"):
        table.add_column(heading, justify="left" if heading in ("what", "beside") else "right")
    for figure in document["figures"]:
        aim = Aim(**figure["aim"]).describe(figure["unit"]) if figure["aim"] else ""
        verdict = {None: "", True: "[green]met[/green]", False: "[red]not met[/red]"}[figure["met"]]
        own = (figure["name"], f"{format_number(figure['value'])} {figure['unit']}")
        for number, peer in enumerate(figure["peers"]):
            first = number == 0
            table.add_row(
                *(own if first else ("", "")),
                peer["name"],
                format_number(peer["value"]),
                f"{peer['ratio']:.3g}",
                *((aim, verdict) if first else ("", "")),
                end_section=number == len(figure["peers"]) - 1,
            )
        details = ", ".join(f"{key} {format_number(value)}" for key, value in figure["details"].items())
        if details:
            console.print(f"[dim]{figure['name']}:[/dim] {details}", highlight=False)
    console.print(table)
    for note in document["notes"]:
        console.print(note, highlight=False)


def format_number(value: float) -> str:
    """A number with as many digits as mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _median(samples: list[Sample]) -> float:
    return statistics.median([sample.value for sample in samples])


def _median_details(samples: list[Sample]) -> dict[str, float]:
    keys = samples[0].details if samples else ()
    return {key: _round(statistics.median([sample.details[key] for sample in samples])) for key in keys}


def _round(value: float) -> float:
    """Four significant digits: what follows is noise."""
    return float(f"{value:.4g}")

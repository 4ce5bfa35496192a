"""The benchmarks run and give the document their readers expect; how fast anything is does not matter here."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from bench.parts.beside import compare_sides
from bench.runner import (
    ROUNDS,
    ROUNDS_MAX,
    Aim,
    BenchError,
    Comparison,
    Figure,
    Measurement,
    Run,
    Sample,
    find_interval,
    find_python,
    list_benches,
    make_environment,
    print_table,
    run_bench,
)
from tests.paths import REPOSITORY

STORE_FIGURES = [
    "append 1 KiB",
    "append 1 KiB, no index",
    "append 128 B",
    "append 128 B, no index",
    "append batch of 100 x 1 KiB",
    "append batch of 100 x 1 KiB, no index",
    "group commit, 64 writers, 1 KiB",
    "sequential read, pulls of 32",
    "crash recovery, 1 KiB",
    "anonymous memory, largest over small store",
]


@pytest.fixture(autouse=True)
def collect_no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds whose samples are given leave no garbage, and looking for it in all that a long run of tests has loaded
    takes seconds each time. Benchmarks that run here have processes of their own.
    """
    monkeypatch.setattr("bench.runner.gc", SimpleNamespace(collect=lambda: 0))


def run_quickly(name: str, directory: Path, *arguments: str) -> dict[str, Any]:
    """Run one benchmark as `make bench` does, with its temporary files and its results in a directory."""
    temporary = directory / "temporary"
    temporary.mkdir()
    finished = subprocess.run(
        [sys.executable, "-m", "bench", "--only", name, "--quick", "--results", str(directory / "results"), *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "ratio" in finished.stderr
    assert list(temporary.iterdir()) == []
    (saved,) = (directory / "results").iterdir()
    assert saved.name.startswith(f"{name}-")
    document: dict[str, Any] = json.loads(finished.stdout)
    assert json.loads(saved.read_text(encoding="utf-8")) == document
    return document


def check_figure(figure: dict[str, Any]) -> None:
    assert figure["value"] > 0
    assert figure["samples"]
    assert figure["unit"]
    assert figure["peers"], f"{figure['name']} stands alone"
    for peer in figure["peers"]:
        assert peer["value"] > 0
        assert len(peer["samples"]) == len(figure["samples"])
        assert peer["ratio"] == pytest.approx(figure["value"] / peer["value"], rel=0.01)
    assert figure["met"] in ((True, False) if figure["aim"] else (None,))


def test_store_bench_gives_its_document(tmp_path: Path) -> None:
    document = run_quickly("store", tmp_path)
    assert document["bench"] == "store"
    assert document["quick"] is True
    assert document["machine"].keys() >= {"cores", "memory_gib", "load_before", "python", "compiled"}
    assert [figure["name"] for figure in document["figures"]] == STORE_FIGURES
    for figure in document["figures"]:
        check_figure(figure)
    aims = {figure["name"]: figure["aim"]["limit"] for figure in document["figures"] if figure["aim"]}
    assert aims == {
        "append 1 KiB": 250_000,
        "crash recovery, 1 KiB": 300,
        "anonymous memory, largest over small store": 1.1,
    }


def make_checkout(directory: Path) -> Path:
    """Make another checkout, which has the files and the environment of this one."""
    directory.mkdir()
    for name in ("bench", "tests"):
        (directory / name).symlink_to(REPOSITORY / name)
    (directory / ".venv").symlink_to(sys.prefix)
    return directory


def test_store_bench_is_measured_beside_an_earlier_checkout(tmp_path: Path) -> None:
    before = make_checkout(tmp_path / "before")
    document = run_quickly("store", tmp_path, "--before", str(before))
    assert [figure["name"] for figure in document["figures"]] == STORE_FIGURES
    assert document["notes"] == []
    assert document["before"]["compiled"] is document["machine"]["compiled"]
    for figure in document["figures"]:
        check_figure(figure)
        (peer,) = figure["peers"]
        assert peer["name"] == "before"
        assert peer["interval"][0] <= peer["ratio"] <= peer["interval"][1]
        assert figure["aim"]["at_least"] is figure["unit"].endswith("/s")
        assert figure["met"] is (
            peer["ratio"] >= figure["aim"]["limit"]
            if figure["aim"]["at_least"]
            else peer["ratio"] <= figure["aim"]["limit"]
        )
    assert document["figures"][0]["peers"][0]["detail_ratios"].keys() >= {"thread cpu us", "process cpu us"}


class FakeRows:
    """Rows of a checkout that need no work."""

    def __init__(self, *names: str) -> None:
        self._names = list(names)
        self.skipped = 0

    def find_next(self) -> tuple[str, str] | None:
        return (self._names.pop(0), "records/s") if self._names else None

    def measure(self) -> Sample:
        return Sample(1.0)

    def skip(self) -> None:
        self.skipped += 1


def test_a_new_row_is_left_out_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    def compare(now: FakeRows, before: FakeRows) -> Run:
        run = Run(tmp_path, quick=True, progress=Progress(disable=True))
        compare_sides(run, now, before, lives=1)
        return run

    now = FakeRows("a", "new", "b")
    run = compare(now, FakeRows("a", "b"))
    assert [figure.name for figure in run.figures] == ["a", "b"]
    assert run.notes == ["new is left out: it is not the next row of the earlier checkout"]
    assert now.skipped == 3
    with pytest.raises(BenchError, match="the earlier checkout measures 'gone'"):
        compare(FakeRows("a", "b"), FakeRows("a", "gone", "b"))


def test_delay_bench_gives_its_document(tmp_path: Path) -> None:
    document = run_quickly("delay", tmp_path)
    for figure in document["figures"]:
        check_figure(figure)
    late, memory, far = document["figures"]
    assert (late["aim"]["limit"], memory["aim"]["limit"]) == (200, 200)
    assert late["details"]["delivered"] == 3000
    assert (far["details"]["delivered"], far["details"]["cancelled"]) == (475, 25)
    assert document["notes"] == ["seed 6"]


def test_benches_are_found_by_name() -> None:
    assert "store" in list_benches()
    assert not {"runner", "parts", "__main__"} & set(list_benches())


def test_unknown_bench_is_refused() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "bench", "--only", "nothing"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert "nothing" in finished.stderr


def test_figure_is_the_median_beside_the_median_of_its_peer() -> None:
    figure = Figure(
        "a",
        "records/s",
        [Sample(30, {"us": 3}), Sample(10, {"us": 1}), Sample(20, {"us": 2})],
        {"plain": [Sample(40), Sample(1000), Sample(1)]},
        Aim(20),
    )
    document = figure.to_json()
    assert (document["value"], document["details"], document["met"]) == (20, {"us": 2}, True)
    assert document["peers"][0]["ratio"] == 0.5
    assert not Aim(1.1, at_least=False).is_met(1.2)


def test_a_change_is_measured_in_turns_with_an_earlier_checkout(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    order: list[str] = []

    def measure(name: str, value: float) -> Measurement:
        def once() -> Sample:
            order.append(name)
            return Sample(value)

        return once

    run = Run(tmp_path, quick=False, progress=Progress(disable=True), before=tmp_path)
    slower = run.measure_beside_before("a", "messages/s", measure("now", 96), measure("before", 100))
    assert order == ["now", "before", "before", "now"] * (ROUNDS // 2)
    assert slower.is_met is False
    assert run.measure_beside_before("b", "messages/s", measure("now", 98), measure("before", 100)).is_met
    # Of what is not a rate, less is better.
    assert run.measure_beside_before("c", "ms", measure("now", 102), measure("before", 100)).is_met
    assert run.measure_beside_before("d", "ms", measure("now", 104), measure("before", 100)).is_met is False


def test_rounds_are_compared_one_by_one(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    run = Run(tmp_path, quick=False, progress=Progress(disable=True), before=tmp_path)
    # The machine gets slower and slower, and twice something disturbs one of the two.
    speeds = [100.0 - number for number in range(ROUNDS_MAX)]
    ours = [Sample(speed * 0.99, {"cpu us": 2.0}) for speed in speeds]
    before = [Sample(speed, {"cpu us": 4.0}) for speed in speeds]
    ours[1], before[2] = Sample(10.0, {"cpu us": 2.0}), Sample(20.0, {"cpu us": 4.0})
    given = {"ours": iter(ours), "before": iter(before)}
    for _ in range(2):
        figure = run.measure_beside_before(
            "a", "messages/s", lambda: next(given["ours"]), lambda: next(given["before"]), lives=2
        )
    assert run.figures == [figure]
    (peer,) = figure.to_json()["peers"]
    assert (peer["ratio"], peer["interval"], peer["detail_ratios"]) == (0.99, [0.99, 0.99], {"cpu us": 0.5})
    assert figure.is_met


@pytest.mark.parametrize(
    ("noisy", "rounds"),
    [
        # Rounds that agree, on either side of the aim; rounds that differ until enough of them agree; and for ever.
        ([0.99], ROUNDS),
        ([0.95], ROUNDS),
        ([0.8, 1.2, 1.1, 0.9, 1.3, 0.7, 1.4, 0.6] + [1.0] * ROUNDS_MAX, 18),
        ([0.8, 1.2] * ROUNDS_MAX, ROUNDS_MAX),
    ],
)
def test_rounds_go_on_while_they_differ_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noisy: list[float], rounds: int
) -> None:
    # However long a busy machine takes for a round.
    monkeypatch.setattr("bench.runner.FIGURE_SECONDS", math.inf)
    monkeypatch.setattr("bench.runner.FIGURE_SECONDS_MAX", math.inf)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    run = Run(tmp_path, quick=False, progress=Progress(disable=True), before=tmp_path)
    speeds = itertools.cycle(noisy)
    figure = run.measure_beside_before("a", "messages/s", lambda: Sample(next(speeds)), lambda: Sample(1.0))
    assert len(figure.samples) == len(figure.peers["before"]) == rounds
    assert figure.is_unclear is (rounds == ROUNDS_MAX)


@pytest.mark.parametrize(
    ("ratios", "verdict"), [((0.9, 0.95), "not met"), ((0.9, 1.02), "unclear"), ((0.98, 1.1), "met")]
)
def test_the_table_says_when_rounds_differ_too_much(ratios: tuple[float, float], verdict: str) -> None:
    low, high = ratios
    figure = Comparison("a", "messages/s", [Sample(low), Sample(low), Sample(high)], {"before": [Sample(1.0)] * 3})
    figure.aim = Aim(0.97)
    before = {"commit": "abc", "compiled": True}
    console = Console(record=True, width=160, file=io.StringIO())
    print_table({"bench": "a", "quick": False, "before": before, "figures": [figure.to_json()], "notes": []}, console)
    cells = [cell.strip() for cell in console.export_text().split("│")]
    assert verdict in cells
    assert f"{low:.3f} ({low:.3f} to {high:.3f})" in cells


def test_interval_holds_the_median_95_times_in_100() -> None:
    assert find_interval([3.0]) == (3.0, 3.0)
    assert find_interval([5.0, 1.0, 3.0, 2.0, 4.0]) == (1.0, 5.0)
    # 2 * (1 + 12 + 66) / 2**12 is less than 0.05, and with the next ones it is more.
    assert find_interval([float(number) for number in range(12)]) == (2.0, 9.0)


def test_a_measured_program_is_not_configured_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ERUCA_PLAIN", "ERUCA_SEEDS", "NAMESRV_ADDR", "PYTHONPATH"):
        monkeypatch.setenv(name, "1")
    given = {"ERUCA_PLAIN", "ERUCA_SEEDS", "NAMESRV_ADDR", "PYTHONPATH"}
    assert make_environment(sys.executable).keys() & given == {"ERUCA_PLAIN", "PYTHONPATH"}
    assert make_environment("/another/python").keys() & given == {"ERUCA_PLAIN"}


def test_an_earlier_checkout_must_be_set_up_and_known_to_the_benchmark(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="has no environment"):
        find_python(tmp_path)
    with pytest.raises(BenchError, match="up cannot be compared with another checkout"):
        run_bench("up", Console(), quick=True, before=tmp_path)

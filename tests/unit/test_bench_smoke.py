"""The benchmarks run and give the document their readers expect; how fast anything is does not matter here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from bench.runner import Aim, BenchError, Figure, Measurement, Run, Sample, find_python, list_benches, run_bench
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


def run_quickly(name: str, directory: Path) -> dict[str, Any]:
    """Run one benchmark as `make bench` does, with its temporary files and its results in a directory."""
    temporary = directory / "temporary"
    temporary.mkdir()
    finished = subprocess.run(
        [sys.executable, "-m", "bench", "--only", name, "--quick", "--results", str(directory / "results")],
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
    assert order == ["now", "before"] * run.repeats
    assert slower.is_met is False
    assert run.measure_beside_before("b", "messages/s", measure("now", 98), measure("before", 100)).is_met


def test_an_earlier_checkout_must_be_set_up_and_known_to_the_benchmark(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="has no environment"):
        find_python(tmp_path)
    with pytest.raises(BenchError, match="store cannot be measured beside another checkout"):
        run_bench("store", Console(), quick=True, before=tmp_path)

"""The runner of the long runs: it reports what failed and how to replay it, and resumes where it stopped."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.crash.scenarios import SCENARIOS, Scenario, find_scenarios
from tests.torture import runner
from tests.torture.__main__ import report
from tests.torture.runner import Outcome, run_chunk, run_here, run_in_order
from tests.torture.spark import PARTS, find_part


def fail_at_seven(case: int) -> None:
    """A scenario with one bad case."""
    assert case != 7, "seven is bad"


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A scenario that only this test knows."""
    made = Scenario("sevens", "fails at seven", fail_at_seven, lambda: 10, group="none")
    monkeypatch.setitem(SCENARIOS, made.name, made)
    return made


def test_a_failure_is_reported_with_its_replay_command(scenario: Scenario) -> None:
    failures, _ = run_chunk(scenario.name, list(range(10)))
    assert [case for case, _ in failures] == [7]
    output = io.StringIO()
    console = Console(file=output, soft_wrap=True)
    outcome = Outcome(0, done=10, total=10, failures=failures)
    assert report([scenario], [outcome], console) == 1
    assert "seven is bad" in output.getvalue()
    assert "python -m tests.torture --only sevens --from-seed 7 --seeds 1" in output.getvalue()
    assert report([scenario], [Outcome(0, done=10, total=10)], console) == 0


def test_one_case_runs_in_this_process(scenario: Scenario) -> None:
    console = Console(file=io.StringIO())
    assert run_here(scenario, 6, console) == 0
    assert run_here(scenario, 7, console) == 1


def test_results_come_in_order_and_no_case_is_taken_long_before_its_turn() -> None:
    cases = iter([-3, 1, -2, 5, 4])
    results = run_in_order(abs, cases, jobs=1, deadline=None)
    assert next(results) == (-3, 3)
    assert next(cases) == -2
    assert list(results) == [(1, 1), (5, 5), (4, 4)]
    assert list(run_in_order(abs, [1], jobs=1, deadline=0.0)) == []


def test_a_stopped_run_goes_on_and_a_finished_one_begins_anew(tmp_path: Path) -> None:
    place = tmp_path / "state" / "sevens.json"
    assert runner._read_place(place) == 0
    runner._write_place(place, 4, 10)
    assert runner._read_place(place) == 4
    runner._write_place(place, 10, 10)
    assert runner._read_place(place) == 0


def test_names_and_groups_are_found(scenario: Scenario) -> None:
    assert {found.name for found in find_scenarios("store")} == set(SCENARIOS) - {scenario.name, "damage"}
    assert [found.name for found in find_scenarios("power")] == ["power"]
    assert find_scenarios("no such thing") == []
    assert scenario.pick_slice(5) == [0, 2, 4, 6, 8]
    assert scenario.pick_slice(100) == list(range(10))


def test_every_part_of_spark_can_be_found() -> None:
    assert [find_part(name).__name__ for name in PARTS] == ["run_stream", "run_sink", "run_rebuild"]

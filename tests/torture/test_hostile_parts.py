"""A small form of `make torture ONLY=hostile`: every part, against real servers, beside a good client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.torture.hostile import Aims, Row, make_row, run_hostile
from tests.torture.hostilegood import Measured
from tests.torture.hostileparts import PARTS

SIZE = 0.02
# In a short run percentiles are meaningless, and one stall of a disk is a silence.
AIMS = Aims(silence_ms=3000.0, slower=1000.0)


def test_every_part_in_a_small_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    misses = asyncio.run(run_hostile(tmp_path, list(PARTS), AIMS, size=SIZE))
    assert misses == []
    said = capsys.readouterr().out
    for name in PARTS:
        assert f"  {name} " in said


def test_a_miss_is_named() -> None:
    idle = make_row("idle", Measured(pings_ms=[1.0], rounds_ms=[1.0] * 200, memory=1), 1.0)
    good = make_row("good", Measured(pings_ms=[99.0], rounds_ms=[4.0] * 200, memory=400_000_000), 1.0)
    aims = Aims.choose(busy=False)
    assert good.list_misses(aims, idle) == []
    bad = Row("bad", 101.0, 500_000_001, 10.1, 1.0, ["ConnectionError: gone"])
    assert bad.list_misses(aims, idle) == [
        "bad: the good client: ConnectionError: gone",
        "bad: silent for 101 ms, at most 100",
        "bad: 500 MB of memory, at most 500",
        "bad: p99 of send and pull 10.1 ms, at most 10.0",
    ]
    assert bad.list_misses(Aims.choose(busy=True), idle)[1:] == ["bad: 500 MB of memory, at most 500"]


def test_a_server_that_serves_nobody_is_a_miss() -> None:
    row = make_row("dead", Measured(), 1.0)
    assert row.problems == ["not served at all"]
    assert row.silence_ms == float("inf")

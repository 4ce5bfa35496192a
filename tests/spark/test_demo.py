"""`eruca demo --spark`, which is `make demo`: it ends on its own, and its figures agree or it fails."""

from __future__ import annotations

import importlib.util
import os
import re
import struct
import subprocess
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eruca._cli import demospark
from eruca._cli.demoorders import BROKEN, Consumed, Takings, make_orders, sum_up
from eruca.errors import ConfigError, ErucaError
from tests.figures import note_figures
from tests.paths import REPOSITORY
from tests.patience import SPARK_S


def run_demo(cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tour as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "eruca", "demo", "--spark", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), **environment},
        capture_output=True,
        text=True,
        timeout=SPARK_S,
        check=False,
    )


def test_the_tour_ends_by_itself_with_table_and_chart(tmp_path: Path) -> None:
    run = run_demo(tmp_path, "--orders=400", "--hours=3", "--seed=11")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    said = run.stdout
    assert "404 messages sent" in said
    assert re.search(r"400 orders consumed, [\d.,]+; 4 others", said)
    assert [int(rows) for rows in re.findall(r"^batch \d+: (\d+) messages$", said, re.MULTILINE)] == [101] * 4
    rows = re.findall(r"^\d{4}-\d\d-\d\d \d\d:00 +(\d+) +([\d.,]+) +(█+)$", said, re.MULTILINE)
    assert len(rows) == 3
    assert sum(int(orders) for orders, _, _ in rows) == 400
    assert max(len(bar) for _, _, bar in rows) == 36
    assert said.count("set aside: 1 (") == len(BROKEN)
    behind = re.findall(r"^orders +\S+ +\d+ +(\d+) +(\d+) +(\d+) +\S", said, re.MULTILINE)
    assert sum(int(offset) for offset, _, _ in behind) == 404
    assert all(offset == end and lag == "0" for offset, end, lag in behind)
    total = re.search(r"Spark's revenue matches what was sent, hour by hour: ([\d.,]+) in 400 orders", said)
    assert total is not None
    cents = sum(int(money.replace(",", "").replace(".", "")) for _, money, _ in rows)
    assert cents == int(total[1].replace(",", "").replace(".", ""))
    chart = tmp_path / "eruca-demo.png"
    assert f"Chart: {chart}" in said
    head = chart.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert all(size > 300 for size in struct.unpack(">II", head[16:]))
    assert list(tmp_path.iterdir()) == [chart]
    note_figures(f"demo: 400 orders (seed 11), {total[1]} taken, as Spark says")


def test_orders_are_the_same_for_the_same_seed() -> None:
    now = datetime(2026, 11, 15, 16, 40, tzinfo=UTC)
    orders = make_orders(1000, 5, 7, now)
    assert orders == make_orders(1000, 5, 7, now)
    assert orders != make_orders(1000, 5, 8, now)
    hours = sum_up(orders)
    assert [hour.hour for hour in hours] == [11, 12, 13, 14, 15]
    assert sum(takings.orders for takings in hours.values()) == 1000
    assert sum(takings.cents for takings in hours.values()) == sum(order.cents for order in orders)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("consumed", "the group's result is wrong: 1 orders missing"),
        ("revenue", "Spark's revenue differs from what was sent: 1 hours differ"),
        ("aside", "3 bodies were set aside instead of 4"),
    ],
)
def test_figures_that_do_not_agree_are_a_failure(
    wrong: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = demospark.Plan(50, 2, 7, tmp_path / "chart.png")
    orders: list[Any] = []

    async def send(nameserver: str, made: list[Any]) -> int:
        orders.extend(made)
        return len(made) + len(BROKEN)

    async def consume(nameserver: str, count: int) -> Consumed:
        seen = Consumed({order.name for order in orders}, sum(order.cents for order in orders))
        seen.broken.update(BROKEN)
        if wrong == "consumed":
            seen.orders.remove("o-7")
        return seen

    def stream(*_: Any) -> tuple[dict[datetime, Takings], dict[str, int]]:
        found = sum_up(orders)
        if wrong == "revenue":
            next(iter(found.values())).cents += 1
        return found, {"it is not JSON": 3 if wrong == "aside" else 4}

    monkeypatch.setattr(demospark, "send_orders", send)
    monkeypatch.setattr(demospark, "consume_orders", consume)
    monkeypatch.setattr(demospark, "_start_spark", lambda directory: nullcontext())
    monkeypatch.setattr(demospark, "_stream", stream)
    with pytest.raises(ErucaError, match=said):
        demospark.tour(plan, "nowhere", tmp_path, lambda *_: None)


def test_without_java_the_next_step_is_named(tmp_path: Path) -> None:
    run = run_demo(tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert run.returncode == 1
    assert run.stderr.startswith(
        "eruca: Spark needs Java, which is not installed (install Java 17 (Debian: apt install"
    )


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"Spark needs Java 17, and .*/bin/java is version 8 \(install Java 17"):
        demospark.check_requirements()


def test_without_the_extra_the_next_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else find(name))
    with pytest.raises(ConfigError, match=r'eruca demo --spark needs pyspark \(pip install "eruca\[spark,charts\]"'):
        demospark.check_requirements()

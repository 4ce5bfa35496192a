"""`eruca offset` against a broker in this process. tests/delivery has it with members, and against the Java broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from eruca._cli.offset import parse_moment
from tests.integration.broker.conftest import allow_new_files
from tests.integration.cli.commands import Commands

__all__ = ["allow_new_files"]


@pytest.fixture(autouse=True)
def in_the_middle(cli: Commands) -> None:
    """A group at offset 1 of the first queue, and of 2 of the second."""
    cli.change("offset", "set", "billing", "orders", "embedded:0=1", "embedded:1=2")


def read(cli: Commands, group: str = "billing") -> list[Any]:
    return [row["offset"] for row in cli.rows("offset", "show", group)]


def test_progress_is_shown(cli: Commands) -> None:
    rows = cli.rows("offset", "show", "billing", "-t", "orders")
    assert [(row["offset"], row["end"], row["lag"]) for row in rows] == [(1, 3, 2), (2, 3, 1)]
    assert "last consumed" in cli.run("offset", "show", "billing").stdout


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        (["reset", "billing", "orders", "--to", "earliest"], [0, 0]),
        (["reset", "billing", "orders", "--to", "-1h", "--only-back"], [0, 0]),
        (["skip", "billing", "orders"], [3, 3]),
        (["shift", "billing", "orders", "--by=-1"], [0, 1]),
        (["shift", "billing", "orders", "--by", "5"], [3, 3]),
        (["set", "billing", "orders", "embedded:1=0"], [1, 0]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_a_group_is_moved_and_moved_back(cli: Commands, arguments: list[str], after: list[int]) -> None:
    moved = cli.check_change(lambda: read(cli), "offset", *arguments)
    assert {move["outcome"] for move in moved["moves"]} <= {"written", "unchanged"}
    cli.change("offset", *arguments)
    assert read(cli) == after
    if arguments[0] in ("skip", "set"):
        again = cli.change("offset", *arguments)
        assert ({move["outcome"] for move in again["moves"]}, again["undo"]) == ({"unchanged"}, [])


def test_offsets_are_cloned_and_that_is_undone(cli: Commands) -> None:
    cli.change("offset", "set", "audit", "orders", "embedded:0=0", "embedded:1=0")
    moved = cli.check_change(lambda: read(cli, "audit"), "offset", "clone", "billing", "audit")
    assert [move["after"] for move in moved["moves"]] == [1, 2]


def test_offsets_are_saved_and_restored(cli: Commands, tmp_path: Path) -> None:
    saved = tmp_path / "billing.json"
    assert "2 offsets exported" in cli.run("offset", "export", "billing", "--to", str(saved)).stderr
    assert json.loads(cli.run("offset", "export", "billing").stdout)["group"] == "billing"
    cli.change("offset", "skip", "billing", "orders")
    cli.check_change(lambda: read(cli), "offset", "import", str(saved))
    cli.change("offset", "import", str(saved))
    assert read(cli) == [1, 2]
    cli.change("offset", "import", str(saved), "--group", "copied")
    assert read(cli, "copied") == [1, 2]
    saved.write_text("{}", encoding="utf-8")
    assert "eruca offset export writes them" in cli.run("offset", "import", str(saved), "--yes", code=1).stderr
    saved.unlink()
    assert "cannot be read" in cli.run("offset", "import", str(saved), "--yes", code=1).stderr


def test_queues_that_are_gone_fail_and_the_others_do_not_wait(cli: Commands) -> None:
    result = cli.run("offset", "set", "billing", "orders", "embedded:0=0", "embedded:9=0", "--yes", code=1)
    assert "no such queue" in result.stdout and "1 failed, 1 written" in result.stderr
    assert read(cli) == [0, 2]


def test_the_table_has_the_command_that_moves_back(cli: Commands) -> None:
    shown = cli.run("offset", "skip", "billing", "orders", "--yes").stdout
    assert "undo: eruca offset set billing orders embedded:0=1 embedded:1=2" in shown


def test_it_asks_before_it_moves(cli: Commands) -> None:
    for arguments in (
        ["reset", "billing", "orders", "--to", "earliest"],
        ["skip", "billing", "orders"],
        ["shift", "billing", "orders", "--by", "1"],
        ["set", "billing", "orders", "embedded:0=0"],
        ["clone", "billing", "h"],
    ):
        assert "pass --yes" in cli.run("offset", *arguments, code=1).stderr
    assert read(cli) == [1, 2]


def test_what_is_not_there_is_named(cli: Commands) -> None:
    assert "eruca topic" in cli.run("offset", "reset", "g", "nowhere", "--to", "earliest", "--yes", code=1).stderr
    assert "eruca offset show nobody" in cli.run("offset", "clone", "nobody", "g", "--yes", code=1).stderr
    misspelt = cli.run("offset", "show", "billing", "-t", "ordres", code=1).stderr
    assert "no broker has a topic ordres" in misspelt and "eruca topic list" in misspelt
    elsewhere = cli.run("offset", "show", "nobody", "-t", "orders", code=1).stderr
    assert "group nobody has no offsets in topic orders" in elsewhere and "eruca group list" in elsewhere
    assert "BROKER:QUEUE=OFFSET" in cli.run("offset", "set", "g", "orders", "embedded=1", code=2).stderr


def test_moments() -> None:
    assert [parse_moment(text) for text in ("earliest", "latest", "now")] == ["earliest", "latest", "latest"]
    ago, now = parse_moment("-2h"), datetime.now(UTC)
    assert isinstance(ago, datetime) and abs(now - ago - timedelta(hours=2)) < timedelta(seconds=5)
    assert parse_moment("-999999999d") == "earliest"
    assert parse_moment("1700000000000") == datetime.fromtimestamp(1_700_000_000, UTC)
    assert parse_moment("2023-11-14T22:13:20+00:00") == datetime.fromtimestamp(1_700_000_000, UTC)
    for text in ("yesterday", "-99999", "2h"):
        with pytest.raises(click.BadParameter):
            parse_moment(text)

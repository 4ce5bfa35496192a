"""`eruca offset` against a broker in this process. tests/delivery has it with members, and against the Java broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click
import pytest
from click.testing import CliRunner, Result

from eruca._cli.main import main
from eruca._cli.offset import parse_moment
from eruca._testing.embedded import EmbeddedBroker
from tests.integration.admin.staging import send, stage
from tests.integration.broker.conftest import allow_new_files

__all__ = ["allow_new_files"]


@pytest.fixture
def broker(allow_new_files: None) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(hurry=True) as started:
        started.create_topic("orders", 1)
        stage(started.nameserver, lambda admin: send(admin, "orders", 5))
        yield started


def run(broker: EmbeddedBroker, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["offset", *arguments, "-n", broker.nameserver])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def parse(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_group_is_moved_and_shown(broker: EmbeddedBroker) -> None:
    assert run(broker, "show", "billing").exit_code == 1
    (move,) = parse(run(broker, "reset", "billing", "orders", "--to", "earliest", "--yes", "-o", "json"))
    assert (move["before"], move["after"], move["outcome"]) == (None, 0, "written")
    (row,) = parse(run(broker, "show", "billing", "-o", "json"))
    assert (row["offset"], row["end"], row["behind"]) == (0, 5, 5)
    assert "1 planned" in run(broker, "skip", "billing", "orders", "--dry-run").stderr
    skipped = run(broker, "skip", "billing", "orders", "--yes")
    assert skipped.exit_code == 0 and "1 written" in skipped.stderr
    (back,) = parse(run(broker, "reset", "billing", "orders", "--to", "-1h", "--only-back", "-y", "-o", "json"))
    assert (back["before"], back["after"]) == (5, 0)
    run(broker, "skip", "billing", "orders", "--yes")
    (copy,) = parse(run(broker, "clone", "billing", "audit", "--yes", "-o", "json"))
    assert (copy["topic"], copy["after"], copy["outcome"]) == ("orders", 5, "written")
    assert "orders" in run(broker, "show", "audit").stdout


def test_it_asks_before_it_moves(broker: EmbeddedBroker) -> None:
    for arguments in (["reset", "g", "orders", "--to", "earliest"], ["skip", "g", "orders"], ["clone", "g", "h"]):
        result = run(broker, *arguments)
        assert result.exit_code == 1 and "pass --yes" in result.stderr
    assert run(broker, "show", "g").exit_code == 1


def test_what_is_not_there_is_named(broker: EmbeddedBroker) -> None:
    assert "no route" in run(broker, "reset", "g", "nowhere", "--to", "earliest", "--yes").stderr
    assert "eruca offset show nobody" in run(broker, "clone", "nobody", "g", "--yes").stderr
    run(broker, "reset", "billing", "orders", "--to", "earliest", "--yes")
    misspelt = run(broker, "show", "billing", "-t", "ordres")
    assert (misspelt.exit_code, "no broker has a topic ordres" in misspelt.stderr) == (1, True)
    elsewhere = run(broker, "show", "nobody", "-t", "orders")
    assert (elsewhere.exit_code, "group nobody has no offsets in topic orders" in elsewhere.stderr) == (1, True)


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


def test_the_help_teaches() -> None:
    for command in ("show", "reset", "skip", "clone"):
        text = CliRunner().invoke(main, ["offset", command, "--help"]).stdout
        assert f"eruca offset {command}" in text and "Examples:" in text

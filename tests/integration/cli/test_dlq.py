"""`eruca dlq` against a broker in this process. tests/delivery has the same against the Java broker."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eruca._cli.main import main
from eruca._testing.embedded import EmbeddedBroker
from tests.integration.admin.staging import bury, read_bodies, stage
from tests.integration.broker.conftest import allow_new_files

__all__ = ["allow_new_files"]

GROUP = "billing"


@pytest.fixture
def broker(allow_new_files: None) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(hurry=True) as started:
        yield started


@pytest.fixture
def ids(broker: EmbeddedBroker) -> list[str]:
    """Three dead letters."""
    return stage(broker.nameserver, lambda admin: bury(admin, GROUP, "orders", 3))


def run(broker: EmbeddedBroker, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["dlq", *arguments, "-n", broker.nameserver])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def parse(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_groups_and_letters_are_listed(broker: EmbeddedBroker, ids: list[str]) -> None:
    letters = parse(run(broker, "list", GROUP, "-o", "json"))
    assert [row["message_id"] for row in letters] == ids
    listed = {"group": GROUP, "count": 3, "last_at": letters[-1]["stored_at"], "problem": ""}
    assert parse(run(broker, "list", "-o", "json")) == [listed]
    people = run(broker, "list", GROUP, "--key", "key1").stdout
    assert ids[1] in people and ids[0] not in people
    nobody = run(broker, "list", "nobody")
    assert nobody.exit_code == 1 and "eruca dlq list shows the groups that have some" in nobody.stderr


def test_a_group_without_any(broker: EmbeddedBroker) -> None:
    stage(broker.nameserver, lambda admin: admin.groups.create("quiet"))
    assert (run(broker, "list", "quiet").exit_code, run(broker, "list", "quiet").stdout) == (0, "")
    assert run(broker, "list", "quiet").stderr == "eruca: group quiet has no dead letters\n"
    assert "`eruca dlq list quiet` lists all" in run(broker, "list", "quiet", "--key", "key1").stderr
    for arguments in (["resend", "quiet", "--all", "--yes"], ["export", "quiet"]):
        assert run(broker, *arguments).exit_code == 0
    assert run(broker, "resend", "quiet", "nothing").exit_code == 1


def test_one_is_shown_with_its_body(broker: EmbeddedBroker, ids: list[str]) -> None:
    people = run(broker, "show", GROUP, ids[2]).stdout
    assert "body 2" in people and "key2" in people and "number" in people
    row = json.loads(run(broker, "show", GROUP, ids[2], "-o", "json").stdout)
    assert base64.b64decode(row["body_base64"]) == b"body 2"
    assert run(broker, "show", GROUP, "nothing").exit_code == 1


def test_resend_has_an_outcome_for_each(broker: EmbeddedBroker, ids: list[str], tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.jsonl")
    first = run(broker, "resend", GROUP, ids[0], "nothing", "--journal", journal, "-o", "json")
    assert [row["outcome"] for row in parse(first)] == ["sent", "failed"]
    assert first.exit_code == 1 and "1 failed, 1 sent" in first.stderr
    rest = run(broker, "resend", GROUP, "--all", "--yes", "--journal", journal)
    assert rest.exit_code == 0 and "2 sent, 1 skipped" in rest.stderr
    assert rest.stdout.count("orders") == 3
    assert len(stage(broker.nameserver, lambda admin: read_bodies(admin, "orders"))) == 6


def test_resend_asks_before_all_are_sent(broker: EmbeddedBroker, ids: list[str]) -> None:
    asked = run(broker, "resend", GROUP, "--all")
    assert asked.exit_code == 1 and "pass --yes" in asked.stderr
    planned = run(broker, "resend", GROUP, "--all", "--dry-run", "--only-group", "-o", "json")
    assert {(row["topic"], row["outcome"]) for row in parse(planned)} == {(f"%RETRY%{GROUP}", "planned")}
    assert len(stage(broker.nameserver, lambda admin: read_bodies(admin, "orders"))) == 3


@pytest.mark.parametrize(
    "arguments",
    [[], ["one", "--all"], ["one", "--only-group", "--to-topic", "x"]],
    ids=["neither", "both", "two places"],
)
def test_resend_wants_to_know_what_and_where(broker: EmbeddedBroker, arguments: list[str]) -> None:
    assert run(broker, "resend", GROUP, *arguments).exit_code == 2


def test_export_to_lines_and_to_files(broker: EmbeddedBroker, ids: list[str], tmp_path: Path) -> None:
    lines = tmp_path / "letters.jsonl"
    assert run(broker, "export", GROUP, "--to", str(lines)).stderr == "eruca: 3 exported\n"
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [base64.b64decode(row["body_base64"]) for row in rows] == [b"body 0", b"body 1", b"body 2"]
    assert parse(run(broker, "export", GROUP, ids[1])) == [rows[1]]
    assert run(broker, "export", GROUP, "--directory", str(tmp_path / "out")).exit_code == 0
    assert (tmp_path / "out" / f"{rows[0]['offset_id']}.body").read_bytes() == b"body 0"
    assert len(list((tmp_path / "out").iterdir())) == 6
    assert run(broker, "export", GROUP, "--directory", str(tmp_path), "--to", str(lines)).exit_code == 2
    assert "cannot be written" in run(broker, "export", GROUP, "--to", str(tmp_path / "no" / "file")).stderr


def test_the_help_teaches() -> None:
    for command in ("list", "show", "resend", "export"):
        text = CliRunner().invoke(main, ["dlq", command, "--help"]).stdout
        assert f"eruca dlq {command}" in text and "Examples:" in text

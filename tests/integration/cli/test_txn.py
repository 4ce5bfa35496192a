"""`eruca txn` against a broker in this process, and against its store directory."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eruca._admin.transactiontable import State
from eruca._cli.main import main
from eruca._testing.embedded import EmbeddedBroker
from eruca.admin import Admin
from tests.integration.admin.staging import TRANSACTION_GROUP, decide, prepare, stage, wait_for_state
from tests.integration.broker.conftest import allow_new_files

__all__ = ["allow_new_files"]


@pytest.fixture
def broker(tmp_path: Path, allow_new_files: None) -> Iterator[EmbeddedBroker]:
    """Gives `lost` up, and has one each that is open, committed and rolled back."""
    with EmbeddedBroker(tmp_path, hurry=True, transaction_check_max=1) as started:
        started.create_topic("orders", 1)
        stage(started.nameserver, make_lost)
    # Does not ask anymore, so that the rest stays as it is.
    with EmbeddedBroker(tmp_path, transaction_check_interval_ms=3_600_000) as started:
        stage(started.nameserver, make_others)
        yield started


async def make_lost(admin: Admin) -> None:
    await prepare(admin, "orders", "lost")
    await wait_for_state(admin, "lost", State.GIVEN_UP)


async def make_others(admin: Admin) -> None:
    await prepare(admin, "orders", "open")
    await decide(admin, await prepare(admin, "orders", "done"), commit=True)
    await decide(admin, await prepare(admin, "orders", "undone"), commit=False)
    await wait_for_state(admin, "undone", State.ROLLED_BACK)


def run(broker: EmbeddedBroker, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["txn", *arguments, "-n", broker.nameserver])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def parse(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def list_states(broker: EmbeddedBroker, *arguments: str) -> dict[object, object]:
    return {row["message_id"]: row["state"] for row in parse(run(broker, "list", "-o", "json", *arguments))}


def test_the_table_is_the_same_from_the_commit_log(broker: EmbeddedBroker, tmp_path: Path) -> None:
    everything = {"lost": "given up", "open": "prepared", "done": "committed", "undone": "rolled back"}
    assert list_states(broker) == {"lost": "given up", "open": "prepared"}
    assert list_states(broker, "--state", "all") == everything
    store = str(tmp_path / "store")
    assert list_states(broker, "--state", "all", "--store", store) == everything
    assert list_states(broker, "--state", "committed", "--store", store) == {"done": "committed"}
    assert list_states(broker, "--group", "others") == list_states(broker, "--topic", "others") == {}
    online = parse(run(broker, "list", "--state", "all", "-o", "json"))
    offline = parse(run(broker, "list", "--state", "all", "-o", "json", "--store", store))
    assert [{**row, "broker": "embedded"} for row in offline] == online
    people = run(broker, "list").stdout
    assert TRANSACTION_GROUP in people and "orders" in people and "given up" in people


def test_one_is_shown(broker: EmbeddedBroker) -> None:
    row = json.loads(run(broker, "show", "open", "-o", "json").stdout)
    assert (row["state"], base64.b64decode(row["message"]["body_base64"])) == ("prepared", b"half open")
    assert "half lost" in run(broker, "show", "lost").stdout
    missing = run(broker, "show", "nothing")
    assert missing.exit_code == 1 and "txn list --state all" in missing.stderr


def test_resume_and_discard_say_what_became_of_each(broker: EmbeddedBroker) -> None:
    assert "1 planned" in run(broker, "resume", "lost", "--dry-run").stderr
    assert "1 planned" in run(broker, "discard", "open", "--dry-run").stderr
    assert list_states(broker) == {"open": "prepared", "lost": "given up"}
    resumed = run(broker, "resume", "lost", "done", "nothing")
    assert resumed.exit_code == 1 and "1 failed, 1 resumed, 1 skipped" in resumed.stderr
    assert list_states(broker) == {"open": "prepared", "lost": "prepared"}
    asked = run(broker, "discard", "--all")
    assert asked.exit_code == 1 and "pass --yes" in asked.stderr
    discarded = run(broker, "discard", "--all", "--group", TRANSACTION_GROUP, "--yes", "-o", "json")
    assert {row["message_id"]: row["outcome"] for row in parse(discarded)} == {"lost": "discarded", "open": "discarded"}
    assert list_states(broker) == {}
    assert list_states(broker, "--state", "rolled-back").keys() == {"lost", "open", "undone"}
    assert "nothing to do" in run(broker, "resume", "--all").stderr


@pytest.mark.parametrize("arguments", [[], ["one", "--all"], ["one", "--group", "g"]])
def test_it_wants_to_know_which(broker: EmbeddedBroker, arguments: list[str]) -> None:
    assert run(broker, "resume", *arguments).exit_code == 2


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["txn", "list", "--store", str(tmp_path)])
    assert result.exit_code == 1 and "is not a store" in result.stderr


def test_the_help_teaches() -> None:
    for command in ("list", "show", "resume", "discard"):
        text = CliRunner().invoke(main, ["txn", command, "--help"]).stdout
        assert f"eruca txn {command}" in text and "Examples:" in text

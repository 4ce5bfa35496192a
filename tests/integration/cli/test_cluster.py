"""`eruca cluster` as an operator meets it: tables, JSON, refusals with the next step, exit status."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from eruca._cli.main import main
from eruca._wire.bodies.replication import DivergedTail
from tests.integration.admin.fakemembers import FakeGroup
from tests.patience import PATIENCE_S


class Stage:
    """Members of a broker name in a separate thread, because a command has a loop of its own."""

    def __init__(self, **how: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.group = FakeGroup(**how)
        self.call(self.group.__aenter__())

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def close(self) -> None:
        self.call(self.group.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, *arguments: str) -> Result:
        nameserver = self.group.nameserver.address
        result = CliRunner().invoke(main, ["cluster", *arguments, "-n", nameserver])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def parse(self, *arguments: str) -> list[Any]:
        result = self.run(*arguments, "-o", "json")
        assert result.exit_code == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A master and two slaves, with two copies of what is acknowledged."""
    started = Stage(slaves=2)
    yield started
    started.close()


def test_members_are_listed(stage: Stage) -> None:
    rows = stage.parse("list")
    assert [(row["broker"], row["broker_id"], row["role"], row["epoch"]) for row in rows] == [
        ("a", 0, "MASTER", 1),
        ("a", 1, "SLAVE", 1),
        ("a", 2, "SLAVE", 1),
    ]
    assert rows[0]["lag_bytes"] is None and rows[1]["lag_bytes"] == 0 and rows[1]["writable"] is False
    shown = stage.run("list").stdout
    assert "MASTER" in shown and "0 B, 0.0 s" in shown and stage.group.members[2].address in shown
    assert stage.run("list").stderr == stage.run("lag").stderr == ""
    stage.call(stage.group.kill(0))
    result = stage.run("list")
    assert "does not answer" in result.stdout and "not connected" in result.stdout
    assert "a has no master" in result.stderr and "a has no master" in stage.run("lag").stderr


@pytest.mark.parametrize("command", ["list", "lag"])
def test_nobody_at_all_is_an_error(stage: Stage, command: str) -> None:
    for number in range(3):
        stage.call(stage.group.kill(number))
    result = stage.run(command)
    assert result.exit_code == 1 and "no broker is registered" in result.stderr


def test_all_that_members_say_is_shown(stage: Stage) -> None:
    shown = stage.run("replicas", "a").stdout
    assert "1 from 0" in shown and "2 members have a message" in shown and "in sync" in shown
    rows = stage.parse("replicas")
    assert rows[0]["state"]["epochs"][0]["epoch"] == 1 and rows[1]["state"]["master"]["connected"] is True
    missing = stage.run("replicas", "nobody")
    assert missing.exit_code == 1 and "no broker is named nobody" in missing.stderr and "cluster list" in missing.stderr


def test_lag_is_shown(stage: Stage) -> None:
    stage.group.members[1].speed = 0
    stage.group.members[0].tail = 3_001_000
    shown = stage.run("lag").stdout
    assert "2.9 MiB" in shown and "fenced" in shown
    assert {row["broker_id"]: row["lag_bytes"] for row in stage.parse("lag", "a")} == {1: 3_000_000, 2: 0}
    assert yaml.safe_load_all(stage.run("lag", "-o", "yaml").stdout) is not None


def test_what_was_set_aside_is_listed(stage: Stage) -> None:
    stage.group.members[2].diverged = [DivergedTail(file="1-10-20.log", epoch=1, begin=10, end=2058, found_ms=1)]
    shown = stage.run("diverged").stdout
    assert "1-10-20.log" in shown and "2.0 KiB" in shown
    assert "see eruca cluster diverged" in stage.run("replicas", "a").stdout


def test_a_slave_is_promoted(stage: Stage) -> None:
    new = stage.group.members[1]
    planned = stage.run("promote", "a:1", "--dry-run")
    assert planned.exit_code == 0 and "this was a dry run" in planned.stdout and new.role == "SLAVE"
    result = stage.run("promote", "a:1", "-o", "json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["master"], report["epoch"], report["done"]) == (new.address, 1100, True)
    assert f"{new.address} is the master, epoch 1100" in result.stderr
    assert "is already the master" in stage.run("promote", new.address).stderr
    shown = stage.run("promote", new.address, "--dry-run").stdout
    assert "nothing to do: it is the master already" in shown and "yes" not in shown


def test_a_refusal_says_what_would_be_lost_and_what_forces_it(stage: Stage) -> None:
    stage.group.members[1].speed = 0
    stage.group.members[1].tail = 900
    stage.call(stage.group.kill(0))
    refused = stage.run("promote", "a:1")
    assert refused.exit_code == 1 and "Traceback" not in refused.stderr
    assert "100 bytes would be lost" in refused.stderr and "--force" in refused.stderr
    assert "would be refused" in stage.run("promote", "a:1", "--dry-run").stdout
    forced = stage.run("promote", "a:1", "--force")
    assert forced.exit_code == 0 and "warning: forced although" in forced.stderr


def test_a_master_steps_down(stage: Stage) -> None:
    result = stage.run("demote", "a:0")
    assert result.exit_code == 0, result.stderr
    assert stage.group.members[0].role == "SLAVE"
    master = next(member for member in stage.group.members if member.role == "MASTER")
    alone = stage.run("demote", master.address, "--no-successor")
    assert alone.exit_code == 0 and "nobody" in alone.stdout
    assert not any(member.role == "MASTER" for member in stage.group.members)


@pytest.mark.parametrize(("broker", "says"), [("a:9", "eruca cluster list"), ("nonsense", "HOST:PORT or NAME:ID")])
def test_a_broker_that_is_not_there(stage: Stage, broker: str, says: str) -> None:
    for command in ("promote", "demote"):
        result = stage.run(command, broker)
        assert result.exit_code == 1 and says in result.stderr


def test_no_name_server_is_one_line() -> None:
    result = CliRunner().invoke(main, ["cluster", "list", "-n", "127.0.0.1:1"])
    assert result.exit_code == 1 and "no name server answers" in result.stderr


def test_the_help_teaches() -> None:
    assert "eruca cluster promote broker-a:1" in CliRunner().invoke(main, ["cluster", "--help"]).stdout
    for command in ("list", "replicas", "lag", "promote", "demote", "diverged"):
        text = CliRunner().invoke(main, ["cluster", command, "--help"]).stdout
        assert f"eruca cluster {command}" in text and "Examples:" in text

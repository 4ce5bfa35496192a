"""The level of the log of a server: set at the start, and changed while it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.upprocess import Up, choose_ports, run_eruca
from tests.interop.javapeer import find_ports


def read_messages(said: str) -> str:
    """The messages of a log; what is not JSON is a note for people."""
    return "\n".join(json.loads(line)["message"] for line in said.splitlines() if line.startswith("{"))


def test_it_changes_while_a_broker_runs_and_stays(tmp_path: Path) -> None:
    ports = [*choose_ports(), "--log-json"]
    with Up(tmp_path, *ports) as up:
        assert up.run("broker", "config", "set", "logLevel=debug").returncode == 0
        assert up.run("topic", "create", "orders").returncode == 0
        assert up.run("broker", "config", "set", "logLevel=ERROR").returncode == 0
        wrong = up.run("broker", "config", "set", "logLevel=LOUD")
        assert wrong.returncode == 1 and "expected one of DEBUG, INFO, WARNING, ERROR" in wrong.stdout
        status, said = up.end()
    assert status == 0
    # `eruca up` begins with warnings only, and after the last change there are only errors.
    told = read_messages(said)
    assert "topic orders was created" in told
    assert "is listening" not in told and "stopping" not in told
    printed = run_eruca("up", *ports, "-p", "-o", "json", cwd=tmp_path).stdout
    rows = {row["key"]: row for row in map(json.loads, printed.splitlines())}
    assert rows["logLevel"]["value"] == "ERROR" and rows["logLevel"]["source"].endswith("erucaOptions.properties")


def test_it_changes_while_a_name_server_runs(tmp_path: Path) -> None:
    port = str(find_ports())
    server = Up(tmp_path, "--listen-port", port, "--log-json", command="nameserver")
    assert server.run("nameserver", "config", "set", "logLevel=WARNING").returncode == 0
    status, said = server.end()
    assert status == 0
    told = read_messages(said)
    assert "is listening" in told and "stopping" not in told


@pytest.mark.parametrize(("flags", "level"), [(("-v",), "INFO"), (("-vv",), "DEBUG")])
def test_it_can_be_set_by_a_short_flag(flags: tuple[str, ...], level: str, tmp_path: Path) -> None:
    printed = run_eruca(*flags, "broker", "--log-level", "ERROR", "-p", "-o", "json", cwd=tmp_path).stdout
    rows = {row["key"]: row for row in map(json.loads, printed.splitlines())}
    assert (rows["logLevel"]["value"], rows["logLevel"]["source"]) == (level, "-v")


def test_a_wrong_level_is_an_error(tmp_path: Path) -> None:
    finished = run_eruca("broker", "--log-level", "LOUD", cwd=tmp_path)
    assert finished.returncode == 1
    assert "logLevel=LOUD: expected one of DEBUG, INFO, WARNING, ERROR" in finished.stderr

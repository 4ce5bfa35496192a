"""`eruca filterserver`: what it teaches, and what it refuses before it listens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eruca._cli.main import main
from tests.accounts import write_accounts


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["filterserver", *arguments])


def test_help_teaches_how_a_filter_looks() -> None:
    text = " ".join(run("--help").output.split())
    for taught in ("alloc(size) -> address", "--filter-server-nums 1", "FilterClass", "may import nothing", "-b"):
        assert taught in text


def test_the_settings_are_printed_with_their_origin() -> None:
    result = run("-p", "-o", "json", "-b", "10.0.0.5:10911", "--option", "filterFuel=5000")
    rows = {row["key"]: row for row in map(json.loads, result.stdout.splitlines())}
    assert rows["connectWhichBroker"]["value"] == "10.0.0.5:10911"
    assert (rows["filterFuel"]["value"], rows["filterFuel"]["source"]) == ("5000", "--option filterFuel")
    assert rows["clientUploadFilterClassEnable"]["source"] == "default"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--host", "0.0.0.0"], "other machines can reach"),
        (["-b", "nowhere"], "is not host:port"),
        (["--filter-fuel", "1"], "the minimum is 1000"),
        (["--filter-plugin-path", "no-such-directory"], "there is no such directory"),
    ],
    ids=["host", "broker", "fuel", "plugins"],
)
def test_what_cannot_work_is_refused(arguments: list[str], reason: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert reason in result.stderr


def test_it_does_not_lend_its_account_to_everybody(tmp_path: Path) -> None:
    keys = ["--option", "brokerAccessKey=the-brokers", "--option", "brokerSecretKey=secret-of-brokers"]
    refused = run("-p", *keys)
    assert refused.exit_code == 1
    said = " ".join(refused.stderr.split())
    assert "with the account of brokerAccessKey for whoever connects" in said
    assert "set aclEnable=true too; --insecure allows everyone" in said
    assert "secret-of-brokers" not in said
    write_accounts(tmp_path / "plain_acl.yml")
    accounts = ["--option", "aclEnable=true", "--option", f"aclFile={tmp_path / 'plain_acl.yml'}"]
    assert run("-p", *keys, *accounts).exit_code == 0
    assert run("-p", *keys, "--insecure").exit_code == 0


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    result = run("-b", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "pip install 'eruca[filterserver]'" in result.stderr

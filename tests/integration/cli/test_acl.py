"""`eruca acl` against a broker with accounts, which `eruca init` made; no command prints a secret."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eruca._cli.main import main
from eruca._client.accountfile import read_account_file
from tests.integration.cli.commands import Commands
from tests.integration.cli.upprocess import Up, choose_ports, run_eruca


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def guarded(place: Path) -> Iterator[Commands]:
    assert run_eruca("init", "conf", cwd=place).returncode == 0
    with Up(place, "-c", place / "conf" / "broker.conf", *choose_ports()) as up:
        yield Commands(up.address, "--account", str(place / "conf" / "tools.yml"))


def find(cli: Commands, account: str) -> list[dict[str, Any]]:
    return [row for row in cli.rows("acl", "list") if row["access_key"] == account]


def list_secrets(place: Path) -> list[str]:
    accounts = (place / "conf" / "plain_acl.yml").read_text(encoding="utf-8")
    return [line.split()[-1] for line in accounts.splitlines() if "secretKey" in line and len(line.split()[-1]) > 3]


def test_an_account_that_is_refused_leaves_no_file(guarded: Commands, place: Path) -> None:
    file = place / "refused.yml"
    short = guarded.run("acl", "create", "shop", "--new-secret", str(file), code=2)
    assert "the name of an account has 7 characters or more" in " ".join(short.stderr.split())
    wrong = ["shop-front", "--new-secret", str(file), "--addresses", "10.1.2.3.4.5"]
    refused = guarded.run("acl", "create", *wrong, code=1)
    assert "1 failed" in refused.stderr and "the account is in" not in refused.stderr
    assert not file.exists()


def test_without_an_account_the_next_step_is_named(guarded: Commands) -> None:
    stranger = Commands(guarded.nameserver)
    for words in (["topic", "list"], ["broker", "list"], ["lag"], ["admin", "topicList"]):
        assert "ERUCA_ACCESS_KEY and ERUCA_SECRET_KEY, or --account" in stranger.run(*words, code=1).stderr
    (finding,) = stranger.document("doctor", code=3)["findings"]
    assert finding["id"] == "not-examined" and "--account" in finding["what"]


def test_an_account_is_made_with_a_new_secret_and_used(guarded: Commands, place: Path) -> None:
    file = place / "shop.yml"
    planned = guarded.document("acl", "create", "shop-front", "--new-secret", str(file), "--dry-run")
    assert planned["changes"][0]["outcome"] == "planned" and not file.exists()
    rights = ["--topic", "orders=PUB|SUB", "--group", "billing=SUB"]
    result = guarded.run("acl", "create", "shop-front", "--new-secret", str(file), *rights)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    account = read_account_file(file)
    assert account.access_key == "shop-front" and account.secret_key not in result.output
    (row,) = guarded.rows("acl", "list", "shop-front")
    assert (row["topics"], row["groups"], row["admin"]) == ({"orders": "PUB|SUB"}, {"billing": "SUB"}, False)
    guarded.run("topic", "create", "orders")
    theirs = Commands(guarded.nameserver, "--account", str(file))
    send = ["send", "orders", "signed", "-n", theirs.nameserver, "--account", str(file)]
    guarded.wait_until(lambda: CliRunner().invoke(main, send).exit_code == 0, "the name server knows the account")
    refused = theirs.run("topic", "create", "bills", code=1)
    assert "admin: true" in " ".join(refused.output.split())
    again = guarded.run("acl", "create", "shop-front", "--new-secret", str(file), code=1)
    assert "exists already" in again.stderr
    assert "eruca acl update" in guarded.run("acl", "create", "shop-front", "--secret-file", str(file), code=1).stderr


def test_permissions_are_changed_and_that_is_undone(guarded: Commands, place: Path) -> None:
    guarded.run("acl", "create", "changing", "--new-secret", str(place / "changing.yml"), "-t", "orders=SUB")
    guarded.check_change(lambda: find(guarded, "changing"), "acl", "update", "changing", "--topic", "orders=PUB")
    guarded.check_change(lambda: find(guarded, "changing"), "acl", "update", "changing", "--default-group", "SUB")
    assert "nothing to change" in guarded.run("acl", "update", "changing", code=2).stderr
    assert "NAME=PERMISSION" in guarded.run("acl", "update", "changing", "-t", "orders", code=2).stderr
    before = read_account_file(place / "changing.yml").secret_key
    guarded.run("acl", "update", "changing", "--new-secret", str(place / "changed.yml"))
    after = read_account_file(place / "changed.yml").secret_key
    assert before != after and after in list_secrets(place)


def test_an_account_is_deleted_only_with_yes(guarded: Commands, place: Path) -> None:
    guarded.run("acl", "create", "doomed-one", "--new-secret", str(place / "doomed.yml"))
    assert "pass --yes" in guarded.run("acl", "delete", "doomed-one", code=1).stderr
    assert guarded.document("acl", "delete", "doomed-one", "--dry-run")["changes"][0]["outcome"] == "planned"
    assert find(guarded, "doomed-one")
    assert guarded.document("acl", "delete", "doomed-one", "--yes")["undo"] == []
    missing = guarded.run("acl", "list", "doomed-one", code=3)
    assert "eruca acl create" in missing.stderr


def test_addresses_are_set_and_that_is_undone(guarded: Commands) -> None:
    changed = guarded.check_change(
        lambda: guarded.rows("acl", "addresses", "list"), "acl", "addresses", "set", "10.1.2.*", "10.1.3.7"
    )
    assert changed["changes"][0]["after"]["addresses"] == ["10.1.2.*", "10.1.3.7"]
    assert "pass --yes" in guarded.run("acl", "addresses", "set", code=1).stderr


def test_versions_count_changes(guarded: Commands, place: Path) -> None:
    (before,) = guarded.rows("acl", "versions")
    guarded.run("acl", "create", "counted", "--new-secret", str(place / "counted.yml"))
    (after,) = guarded.rows("acl", "versions")
    assert after["counter"] > before["counter"] and after["file"].endswith("plain_acl.yml")


def test_no_secret_is_printed(guarded: Commands, place: Path) -> None:
    said = ""
    for arguments in (
        ["acl", "list"],
        ["acl", "addresses", "list"],
        ["acl", "versions"],
        ["broker", "config", "get"],
        ["broker", "show", "broker-a", "--raw"],
        ["nameserver", "config", "get"],
    ):
        for output in ("table", "json", "yaml"):
            said += guarded.run(*arguments, "-o", output).output
    options = guarded.rows("broker", "config", "get")[0]["options"]
    assert options["brokerSecretKey"] == "******"
    assert [secret for secret in list_secrets(place) if secret in said] == []
    assert len(list_secrets(place)) >= 2


def test_a_secret_in_an_option_is_hidden_and_not_undone(guarded: Commands) -> None:
    refused = guarded.run("broker", "config", "set", "brokerSecretKey=opensesame", code=1)
    assert "opensesame" not in refused.output
    odd = guarded.run("broker", "config", "set", "brokerSecretKey:opensesame", code=2)
    assert "opensesame" not in odd.output and "KEY=VALUE" in odd.stderr


def test_a_secret_needs_a_source(guarded: Commands, place: Path) -> None:
    assert "--new-secret FILE" in guarded.run("acl", "create", "nobody-yet", code=1).stderr
    other = guarded.run("acl", "create", "nobody-yet", "--secret-file", str(place / "conf" / "tools.yml"), code=1)
    assert "the file of another account" in other.stderr
    both = ["--secret-file", "a", "--new-secret", "b"]
    assert "mutually exclusive" in guarded.run("acl", "create", "nobody-yet", *both, code=2).stderr
    far = guarded.run("acl", "create", "nobody-yet", "--new-secret", str(place / "no" / "x.yml"), code=1)
    assert "cannot be written" in far.stderr

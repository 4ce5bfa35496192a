"""`eruca init`: files that servers and clients read as they are, with modes and secrets of their own."""

from __future__ import annotations

import stat
from pathlib import Path

from click.testing import CliRunner, Result

from eruca._access.accountfiles import read_book
from eruca._access.accounts import PUB, SUB
from eruca._cli.main import main
from eruca._client.accountfile import read_account_file
from eruca._ground.javaconf import read_conf


def init(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["init", *arguments])


def test_what_it_writes(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "conf"
    result = init(str(directory))
    assert result.exit_code == 0, result.output
    assert f"eruca up -c {directory}/broker.conf" in result.output
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = sorted(path.name for path in directory.iterdir())
    assert files == ["broker.conf", "nameserver.conf", "plain_acl.yml", "tls.crt", "tls.key", "tools.yml"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes.pop("tls.crt") in (0o600, 0o644)
    assert set(modes.values()) == {0o600}

    book = read_book(directory / "plain_acl.yml")
    assert (book.notes, book.white_addresses, book.broker_addresses) == ((), (), ())
    admin, broker = book.accounts.values()
    assert admin.admin and not admin.is_set_apart and admin.may_use_topic("any", PUB)
    assert broker.broker and not broker.admin and not broker.upload
    assert broker.may_use_topic("any", SUB) and not broker.may_use_topic("any", PUB)

    tools = read_account_file(directory / "tools.yml")
    assert (tools.access_key, tools.secret_key) == (admin.access_key, admin.secret_key)
    tls = {"tls.server.certPath": f"{directory}/tls.crt", "tls.server.keyPath": f"{directory}/tls.key"}
    conf = read_conf(directory / "broker.conf")
    assert conf == {
        "aclEnable": "true",
        "brokerAccessKey": broker.access_key,
        "brokerSecretKey": broker.secret_key,
        "namesrvAddr": "127.0.0.1:9876",
        **tls,
        "tls.enable": "true",
        "tls.client.trustCertPath": f"{directory}/tls.crt",
    }
    assert read_conf(directory / "nameserver.conf") == {"aclEnable": "true", **tls}
    assert not any(secret in result.output for secret in (admin.secret_key, broker.secret_key))


def test_every_secret_is_another_one(tmp_path: Path) -> None:
    found = set()
    for name in ("one", "two"):
        assert init(str(tmp_path / name)).exit_code == 0
        found |= {account.secret_key for account in read_book(tmp_path / name / "plain_acl.yml").accounts.values()}
    assert len(found) == 4 and min(map(len, found)) >= 40


def test_for_other_machines(tmp_path: Path) -> None:
    assert init(str(tmp_path / "conf"), "--host", "10.0.0.5").exit_code == 0
    conf = read_conf(tmp_path / "conf" / "broker.conf")
    assert (conf["bindAddress"], conf["brokerIP1"], conf["namesrvAddr"]) == ("10.0.0.5", "10.0.0.5", "10.0.0.5:9876")
    assert read_conf(tmp_path / "conf" / "nameserver.conf")["bindAddress"] == "10.0.0.5"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "tools.yml").write_text("mine")
    result = init(str(tmp_path))
    assert result.exit_code == 1
    assert "has tools.yml already" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tools.yml"]
    assert (tmp_path / "tools.yml").read_text() == "mine"

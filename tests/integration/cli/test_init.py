"""`eruca init`, and the servers and commands that use what it wrote, unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.upprocess import Up, choose_ports, run_eruca
from tests.interop.javapeer import find_ports

FILES = {"broker.conf", "nameserver.conf", "plain_acl.yml", "tools.yml", "tls.crt", "tls.key"}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    done = run_eruca("init", "conf", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "eruca up -c conf/broker.conf" in done.stdout
    directory = tmp_path / "conf"
    assert {path.name for path in directory.iterdir()} == FILES
    return directory


def test_up_with_accounts(tmp_path: Path, conf: Path) -> None:
    account = ("--account", str(conf / "tools.yml"))
    with Up(tmp_path, "-c", conf / "broker.conf", *choose_ports()) as up:
        (sent,) = up.run_json("send", "hello", "my first message", *account)
        assert sent["status"] == "STORED"
        assert [row["body"] for row in up.run_json("tail", "hello", *account)] == ["my first message"]
        assert [row["role"] for row in up.run_json("cluster", "list", *account)] == ["MASTER"]
        # Over TLS: the certificate is its own CA.
        over_tls = ("--tls-ca", str(conf / "tls.crt"))
        assert len(up.run_json("tail", "hello", "--from", "earliest", *account, *over_tls)) == 1
        refused = up.run("send", "hello", "without an account")
        assert refused.returncode == 1
        assert "No accessKey is configured" in refused.stderr and "--account" in refused.stderr
        secrets = [
            line.split()[-1] for line in (conf / "plain_acl.yml").read_text().splitlines() if "secretKey" in line
        ]
        _, said = up.end()
    shown = said + refused.stderr + str(up.facts)
    assert [secret for secret in secrets if len(secret) > 3 and secret in shown] == []


def test_each_server_on_its_own(tmp_path: Path, conf: Path) -> None:
    nameserver: list[str | Path] = ["-c", conf / "nameserver.conf", "--listen-port", str(find_ports())]
    with Up(tmp_path, *nameserver, command="nameserver") as names:
        broker: list[str | Path] = [
            "-c",
            conf / "broker.conf",
            "-n",
            names.address,
            "--listen-port",
            str(find_ports(-2, 1)),
        ]
        with Up(tmp_path, *broker, command="broker"):
            (sent,) = names.run_json("send", "hello", "one", "--account", str(conf / "tools.yml"))
            assert sent["status"] == "STORED"


def test_without_accounts_a_server_does_not_start(tmp_path: Path, conf: Path) -> None:
    (conf / "plain_acl.yml").unlink()
    for command, file in (("up", "broker.conf"), ("broker", "broker.conf"), ("nameserver", "nameserver.conf")):
        ports = choose_ports() if command == "up" else []
        done = run_eruca(command, "-c", conf / file, *ports, cwd=tmp_path)
        assert done.returncode == 1
        assert "plain_acl.yml does not exist" in done.stderr and "`eruca init`" in done.stderr

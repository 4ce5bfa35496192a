"""Commands with TLS: flags, variables, and a server whose certificate is exchanged."""

from __future__ import annotations

import os
import signal
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.authority import Authority
from tests.integration.cli.upprocess import Up, choose_ports, run_eruca
from tests.patience import PATIENCE_S


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs certificates."""
    return Authority(tmp_path)


@pytest.fixture
def up(tmp_path: Path, authority: Authority) -> Iterator[Up]:
    """Servers that accept only TLS."""
    pair = authority.issue("server")
    options = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": pair.certificate,
        "tls.server.keyPath": pair.key,
        # Only SIGHUP makes them look again in time.
        "tls.server.reloadInterval": 3_600_000,
        "tls.enable": "true",
        "tls.client.trustCertPath": authority.ca,
    }
    words = [word for key, value in options.items() for word in ("--option", f"{key}={value}")]
    with Up(tmp_path, *choose_ports(), *words) as started:
        yield started


def test_commands_use_tls_by_flags_and_variables(up: Up, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = str(authority.ca)
    assert up.run("send", "T", "one", "--tls-ca", ca).returncode == 0
    assert up.run("send", "T", "two", "--tls-no-verify").returncode == 0
    plain = up.run("send", "T", "none")
    assert plain.returncode == 1 and "does the port require TLS?" in plain.stderr
    strange = up.run("send", "T", "none", "--tls")
    assert strange.returncode == 1 and "the certificate is not accepted" in strange.stderr
    missing = up.run("send", "T", "none", "--tls-ca", "/none/ca.pem")
    assert missing.returncode == 1 and "CA certificates /none/ca.pem: No such file" in missing.stderr
    monkeypatch.setenv("ERUCA_TLS_CA", ca)
    assert up.run("send", "T", "three").returncode == 0
    bodies = [row["body"] for row in up.run_json("tail", "T", "--from", "earliest")]
    assert sorted(bodies) == ["one", "three", "two"]


def test_sighup_exchanges_the_certificate(up: Up, authority: Authority) -> None:
    host, _, port = up.address.rpartition(":")

    def read_certificate() -> str:
        return ssl.get_server_certificate((host, int(port)), timeout=PATIENCE_S)

    before = read_certificate()
    authority.issue("server")
    assert read_certificate() == before
    os.kill(up.pid, signal.SIGHUP)
    end = time.monotonic() + PATIENCE_S
    while read_certificate() == before:
        assert time.monotonic() < end, "the new certificate was not read"
    assert up.run("send", "T", "one", "--tls-ca", str(authority.ca)).returncode == 0


def test_the_password_of_a_key_is_not_printed(tmp_path: Path) -> None:
    options = ("--option", "tls.server.keyPassword=verysecret", "--option", "tls.client.keyPassword=alsosecret")
    finished = run_eruca("broker", "-p", *options, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "tls.server.keyPassword" in finished.stdout
    assert "verysecret" not in finished.stdout and "alsosecret" not in finished.stdout


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("bad")
    options = ("--option", "tls.server.certPath=bad.pem", "--option", "tls.server.keyPath=bad.pem")
    finished = run_eruca("up", *choose_ports(), *options, cwd=tmp_path)
    assert finished.returncode == 1
    assert "TLS: certificate bad.pem with key bad.pem: it is not a PEM file" in finished.stderr

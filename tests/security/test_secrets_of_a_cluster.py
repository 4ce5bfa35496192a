"""A cluster with everything that has a secret, as users run it, at the highest log level; then a search.

A name server, a master, its slave and a filter server, each a process, all with accounts and only with TLS, their keys
encrypted; commands with the right keys and with wrong ones; accounts that are changed and certificates that are
exchanged meanwhile, also for files that cannot be used; the port for metrics, with its token and without.
"""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from eruca import Tls
from eruca._net.caller import Caller
from eruca._net.tls import OutgoingTls
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.command import make_request
from eruca._wire.headers import AccessKeyHeader, UpdateAccountHeader
from eruca._wire.signature import Credentials
from tests.accounts import describe, write_accounts
from tests.authority import Authority
from tests.integration.broker.peer import TIMEOUT_MS, find_port
from tests.integration.cli.upprocess import make_command, make_environment, run_eruca
from tests.interop.javapeer import find_ports
from tests.patience import PATIENCE_S
from tests.security.test_secrets import MARK, find_marks

ADMIN, SHOP = Credentials("operator", f"{MARK}-of-the-operator"), Credentials("the-shop", f"{MARK}-of-the-shop")
BROKER = Credentials("the-brokers", f"{MARK}-of-the-brokers")
KEY_PASSWORD, NEW = f"{MARK}-of-the-key", f"{MARK}-of-a-new-account"
TOKEN = f"{MARK}-of-the-metrics"
SECRETS = {
    "ERUCA_METRICS_TOKEN": TOKEN,
    "ERUCA_BROKER_SECRET_KEY": BROKER.secret_key,
    "ERUCA_TLS_SERVER_KEY_PASSWORD": KEY_PASSWORD,
    "ERUCA_TLS_CLIENT_KEY_PASSWORD": KEY_PASSWORD,
}


class Running:
    """A server in a process; what it says goes to files."""

    def __init__(self, home: Path, name: str, command: str, **options: Any) -> None:
        self.log = home / f"{name}.log"
        words = [word for key, value in options.items() for word in ("--option", f"{key.replace('_', '.')}={value}")]
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                make_command("-vv", command, "--output", "json", "--log-json", *words),
                cwd=home,
                env=make_environment() | SECRETS,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log.read_text()
        self.facts: dict[str, str] = json.loads(line)

    def wait_for(self, text: str) -> None:
        """Wait for a line of the log, which every command writes to."""
        with open(self.log, encoding="utf-8") as log:
            while text not in (line := log.readline()):
                assert line or self._process.poll() is None, f"{text!r} is not in {self.log.read_text()}"

    def hang_up(self) -> None:
        """Tell it to read its certificates again."""
        self._process.send_signal(signal.SIGHUP)

    def end(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    home = tmp_path / "certificates"
    home.mkdir()
    return Authority(home)


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    path = tmp_path / "accounts" / "plain_acl.yml"
    write_accounts(
        path,
        describe(ADMIN, admin=True),
        describe(BROKER, broker=True),
        describe(SHOP, defaultTopicPerm="PUB|SUB", defaultGroupPerm="SUB"),
    )
    return path


@pytest.fixture
def cluster(tmp_path: Path, authority: Authority, accounts: Path) -> Iterator[dict[str, Running]]:
    """All servers."""
    pair = authority.issue("server", password=KEY_PASSWORD)
    home = tmp_path / "home"
    home.mkdir()
    everywhere = {
        "aclEnable": "true",
        "aclFile": accounts,
        "aclReloadInterval": 20,
        "brokerAccessKey": BROKER.access_key,
        "metricsPort": 0,
        "tls_server_mode": "enforcing",
        "tls_server_certPath": pair.certificate,
        "tls_server_keyPath": pair.key,
        "tls_server_need_client_auth": "optional",
        "tls_server_trustCertPath": authority.ca,
        "tls_enable": "true",
        "tls_client_trustCertPath": authority.ca,
        "tls_client_certPath": pair.certificate,
        "tls_client_keyPath": pair.key,
    }
    with ExitStack() as stack:
        running: dict[str, Running] = {}

        def start(name: str, command: str, **options: Any) -> Running:
            running[name] = Running(home, name, command, **everywhere, **options)
            stack.callback(running[name].end)
            return running[name]

        names = {"listenPort": find_ports(), "kvConfigPath": home / "kv.json", "configStorePath": home / "names.conf"}
        where = start("names", "nameserver", **names).facts["nameserver"]
        small = {"namesrvAddr": where, "mappedFileSizeCommitLog": 1 << 20}
        master = start(
            "master", "broker", listenPort=find_port(), storePathRootDir=home / "m", filterServerNums=1, **small
        )
        slave = {"brokerRole": "SLAVE", "brokerId": 1, "listenPort": find_port(), "storePathRootDir": home / "s"}
        start("slave", "broker", **slave, **small)
        start("filters", "filterserver", connectWhichBroker=master.facts["broker"])
        yield running


async def change_accounts(address: str, ca: Path) -> None:
    """Create an account by a request, change it, delete it."""
    caller = Caller(tls=OutgoingTls(Tls(ca=ca)), credentials=ADMIN)
    codes = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG
    try:
        for secret, expected in ((NEW, True), (f"{NEW}-again", True), (f"{NEW}\n", False), (NEW[:3], False)):
            header = UpdateAccountHeader(access_key="new-account", secret_key=secret)
            answer = await caller.call(address, make_request(codes[0], header), TIMEOUT_MS)
            assert (answer.code == ResponseCode.SUCCESS) == expected, answer.remark
            assert MARK not in f"{answer.remark} {answer.ext_dict()} {answer.body!r}"
        answer = await caller.call(address, make_request(codes[1], AccessKeyHeader("new-account")), TIMEOUT_MS)
        assert answer.code == ResponseCode.SUCCESS
    finally:
        await caller.close()


def fetch_all(url: str, authority: Authority) -> list[str]:
    """What the port for metrics says to those who have its token, and to others."""
    said = []
    context = ssl.create_default_context(cafile=str(authority.ca))
    for token in (TOKEN, f"{MARK}-guessed", ""):
        # Whether a server is ready depends on the others.
        for path, expected in (("metrics", 200 if token == TOKEN else 401), ("readyz", None), ("nothing", 404)):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            try:
                answer = urlopen(Request(url.replace("/metrics", f"/{path}"), headers=headers), context=context)
            except HTTPError as error:
                answer = error
            with answer:
                said.append(f"{answer.headers} {answer.read().decode()}")
                assert expected in (None, answer.status)
    assert "eruca_process_" in said[0]
    return said


def test_a_cluster_with_everything_shows_no_secret(
    cluster: dict[str, Running], tmp_path: Path, authority: Authority, accounts: Path
) -> None:
    said = []
    names, master = cluster["names"].facts["nameserver"], cluster["master"].facts["broker"]

    def run(who: Credentials, *words: str) -> subprocess.CompletedProcess[str]:
        keys = {"ERUCA_ACCESS_KEY": who.access_key, "ERUCA_SECRET_KEY": who.secret_key}
        where = ("--tls-ca", str(authority.ca), "-n", names)
        done = run_eruca("-vv", *words, *where, cwd=tmp_path, environment=keys)
        said.append(done.stdout + done.stderr)
        return done

    assert run(ADMIN, "cluster", "list").returncode == 0
    assert run(SHOP, "send", "TBW102", "hello").returncode == 0
    assert "hello" in run(SHOP, "tail", "TBW102").stdout
    assert run(Credentials(SHOP.access_key, f"{MARK}-guessed"), "send", "TBW102", "hello").returncode == 1
    assert "nobody" in run(SHOP, "offset", "show", "nobody").stderr
    asyncio.run(change_accounts(master, authority.ca))
    cluster["slave"].wait_for("authenticated")
    # Mistakes in files that have secrets.
    good = accounts.read_bytes()
    accounts.write_bytes(good + b"- accessKey: [\n")
    cluster["master"].wait_for("reading the accounts again failed")
    accounts.write_bytes(good.replace(b"admin: true", b"admin: maybe"))
    cluster["master"].wait_for("is neither true nor false")
    accounts.write_bytes(good)
    for name in cluster:
        said += fetch_all(cluster[name].facts["metrics"], authority)
    pair = authority.issue("server", password=f"{MARK}-another")
    for name in ("master", "names"):
        cluster[name].hang_up()
        cluster[name].wait_for("its password is wrong or missing")
    assert pair.key.exists()
    for server in cluster.values():
        server.end()
    marks = [mark for text in said for mark in find_marks("command", text)]
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != accounts:
            marks += find_marks(path.name, path.read_bytes())
    assert marks == []
    assert all(server.log.stat().st_size > 0 for server in cluster.values())

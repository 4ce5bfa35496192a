"""TLS between the official Java client and Eruca, and between our client and the official Java servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eruca import Tls
from eruca.errors import NetError
from eruca.sync import ClientOptions, Consumer, Producer
from tests.authority import Authority
from tests.interop.brokers import PATIENCE, SETTINGS, Cluster, ErucaCluster, JavaCluster
from tests.interop.javapeer import JavaProgram, Peer, PeerError
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.whole

TOPIC, GROUP = "orders", "billing"
# How long a client of ours tries that must fail.
SHORT_S = 3.0
MODES = ("disabled", "permissive", "enforcing")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the certificates of both sides."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    authority.issue("server")
    authority.issue("client")
    return authority


def find(authority: Authority, name: str) -> Path:
    """A file of the authority."""
    return authority.ca.parent / name


# --- Java's client on Eruca -------------------------------------------------------------------------------------------


class JavaClients:
    """The official client, once for each way to use TLS: system properties count for a whole process."""

    def __init__(self, peer: Peer, home: Path, authority: Authority, stack: ExitStack) -> None:
        verifying = {
            "tls.enable": "true",
            "tls.test.mode.enable": "false",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": authority.ca,
        }
        pair = {
            "tls.client.certPath": find(authority, "client.pem"),
            "tls.client.keyPath": find(authority, "client.key"),
        }
        self._ways: dict[str, dict[str, Any]] = {
            "plain": {},
            "tls": {"tls.enable": "true"},
            "verifying": verifying,
            "presenting": {**verifying, **pair},
        }
        self._peer, self._home, self._stack = peer, home, stack
        self._programs: dict[str, JavaProgram] = {}

    def ask(self, way: str, what: str, cluster: Cluster, **fields: Any) -> str:
        """Do something; gives the result, or the problem."""
        if way not in self._programs:
            program = JavaProgram(self._peer, "eruca.interop.Accounts", self._home / way, system=self._ways[way])
            self._programs[way] = self._stack.enter_context(program)
        where = {"nameServer": cluster.name_server, "address": cluster.broker, "broker": "broker-a"}
        usual = {"topic": TOPIC, "group": GROUP, "seconds": PATIENCE_S}
        (row,) = self._programs[way].ask({"do": what, **where, **usual, **fields})
        return str(row["result"] if "result" in row else row["problem"])

    def check(self, way: str, cluster: Cluster, *, works: bool) -> None:
        """Send and consume, or fail to."""
        if works:
            assert self.ask(way, "send", cluster, body=way) == "SEND_OK"
            assert self.ask(way, "consume", cluster, group=f"{GROUP}-{way}") != "null"
            return
        try:
            told = self.ask(way, "send", cluster, body=way)
        except PeerError as error:
            told = str(error)
        assert re.search(r"No route info of this topic|Remoting(SendRequest|Connect|Timeout)Exception", told), told


@pytest.fixture(scope="module")
def java(peer: Peer, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClients]:
    with ExitStack() as stack:
        yield JavaClients(peer, tmp_path_factory.mktemp("java-tls"), authority, stack)


@contextmanager
def run_eruca(home: Path, authority: Authority, mode: str, **more: Any) -> Iterator[ErucaCluster]:
    """Eruca with a certificate of the authority."""
    options = {
        **SETTINGS,
        "tls.server.mode": mode,
        "tls.server.certPath": find(authority, "server.pem"),
        "tls.server.keyPath": find(authority, "server.key"),
        **more,
    }
    if mode == "enforcing":
        options |= {"tls.enable": "true", "tls.client.trustCertPath": authority.ca}
    with ErucaCluster(home, options) as cluster:
        yield cluster
        assert cluster.list_complaints() == []


def test_a_java_client_with_tls_and_an_eruca_with_nothing(java: JavaClients, tmp_path: Path) -> None:
    """Both as they are: `-Dtls.enable=true`, and `eruca up`."""
    with ErucaCluster(tmp_path, {}) as cluster:
        java.check("tls", cluster, works=True)
        java.check("plain", cluster, works=True)
        assert cluster.list_complaints() == []


@pytest.mark.parametrize("mode", MODES)
def test_java_clients_in_each_mode(java: JavaClients, authority: Authority, tmp_path: Path, mode: str) -> None:
    with run_eruca(tmp_path, authority, mode) as cluster:
        java.check("plain", cluster, works=mode != "enforcing")
        java.check("tls", cluster, works=mode != "disabled")
        java.check("verifying", cluster, works=mode != "disabled")


@pytest.mark.parametrize("auth", ["optional", "require"])
def test_java_clients_with_certificates(java: JavaClients, authority: Authority, tmp_path: Path, auth: str) -> None:
    trust = {"tls.server.need.client.auth": auth, "tls.server.trustCertPath": authority.ca}
    with run_eruca(tmp_path, authority, "permissive", **trust) as cluster:
        java.check("presenting", cluster, works=True)
        java.check("verifying", cluster, works=auth == "optional")
        java.check("plain", cluster, works=True)  # who presents nothing because there is no TLS is not asked


def test_a_java_client_that_verifies_refuses_a_stranger(java: JavaClients, tmp_path: Path) -> None:
    with ErucaCluster(tmp_path, {}) as cluster:
        java.check("verifying", cluster, works=False)


# --- our client on Java -----------------------------------------------------------------------------------------------


@contextmanager
def run_java(peer: Peer, home: Path, authority: Authority, mode: str, **more: Any) -> Iterator[JavaCluster]:
    """The official servers with a certificate of the authority."""
    system = {
        "tls.server.mode": mode,
        "tls.test.mode.enable": "false",
        "tls.server.certPath": find(authority, "server.pem"),
        "tls.server.keyPath": find(authority, "server.key"),
        **more,
    }
    if mode == "enforcing":
        system["tls.enable"] = "true"  # for the broker, which registers with the name server
    with JavaCluster(peer, home, {**SETTINGS, **PATIENCE}, system=system) as cluster:
        yield cluster


def check_ours(cluster: Cluster, tls: Tls | None, *, works: bool) -> None:
    """Send and consume, or fail to."""
    timeout = PATIENCE_S if works else SHORT_S
    options = ClientOptions(tls=tls or False, call_timeout=timeout)
    with Producer(cluster.name_server, group="producers", options=options, timeout=timeout) as producer:
        if not works:
            with pytest.raises(NetError):
                producer.send(TOPIC, b"ours")
            return
        producer.send(TOPIC, b"ours")
    group = f"ours-{id(tls)}"
    subscribe = {TOPIC: "*"}
    with Consumer(cluster.name_server, group=group, subscribe=subscribe, start="earliest", options=options) as consumer:
        message = next(iter(consumer))
        message.ack()
        assert message.body == b"ours"


@pytest.mark.parametrize("mode", MODES)
def test_our_client_on_java_in_each_mode(peer: Peer, authority: Authority, tmp_path: Path, mode: str) -> None:
    with run_java(peer, tmp_path, authority, mode) as cluster:
        check_ours(cluster, None, works=mode != "enforcing")
        check_ours(cluster, Tls(ca=authority.ca), works=mode != "disabled")
        check_ours(cluster, Tls(), works=False)  # the authority is not one of the system's


def test_our_client_on_java_with_nothing(peer: Peer, tmp_path: Path) -> None:
    """Java's servers make their own certificate too."""
    with JavaCluster(peer, tmp_path, {**SETTINGS, **PATIENCE}, system={"tls.server.mode": "permissive"}) as cluster:
        check_ours(cluster, Tls(verify=False), works=True)
        check_ours(cluster, Tls(), works=False)


@pytest.mark.parametrize("auth", ["optional", "require"])
def test_our_certificate_on_java(peer: Peer, authority: Authority, tmp_path: Path, auth: str) -> None:
    trust = {
        "tls.server.need.client.auth": auth,
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": authority.ca,
    }
    pair: dict[str, Any] = {"certificate": find(authority, "client.pem"), "key": find(authority, "client.key")}
    with run_java(peer, tmp_path, authority, "permissive", **trust) as cluster:
        check_ours(cluster, Tls(ca=authority.ca, **pair), works=True)
        check_ours(cluster, Tls(ca=authority.ca), works=auth == "optional")

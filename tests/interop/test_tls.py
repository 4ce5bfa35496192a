"""TLS between the official Java client and Eruca, and between our client and the official Java servers."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eruca import Tls
from eruca._net.tls import make_client_context
from eruca.errors import NetError
from eruca.sync import ClientOptions, Consumer, Producer, PullConsumer
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


def verify(authority: Authority) -> dict[str, Any]:
    """The system properties of a client of Java that accepts only certificates of the authority."""
    return {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": authority.ca,
    }


def present(authority: Authority) -> dict[str, Any]:
    """The keys of a client that presents a certificate, the same for Java and Eruca."""
    return {
        "tls.client.certPath": find(authority, "client.pem"),
        "tls.client.keyPath": find(authority, "client.key"),
    }


# --- Java's client on Eruca -------------------------------------------------------------------------------------------


class JavaClients:
    """The official client, once for each way to use TLS: system properties count for a whole process."""

    def __init__(self, peer: Peer, home: Path, authority: Authority, stack: ExitStack) -> None:
        verifying = verify(authority)
        pair = present(authority)
        self._ways: dict[str, dict[str, Any]] = {
            "plain": {},
            "tls": {"tls.enable": "true"},
            "verifying": verifying,
            "presenting": {**verifying, **pair},
        }
        self._peer, self._home, self._stack = peer, home, stack
        self._programs: dict[str, JavaProgram] = {}

    def ask(self, way: str, what: str, cluster: Cluster, **fields: Any) -> str:
        """Do something; return the result, or the problem."""
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
        options |= {"tls.enable": "true", "tls.client.trustCertPath": authority.ca, **present(authority)}
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("auth", ["optional", "require"])
def test_java_clients_with_certificates(
    java: JavaClients, authority: Authority, tmp_path: Path, auth: str, mode: str
) -> None:
    trust = {"tls.server.need.client.auth": auth, "tls.server.trustCertPath": authority.ca}
    with run_eruca(tmp_path, authority, mode, **trust) as cluster:
        java.check("presenting", cluster, works=mode != "disabled")
        java.check("verifying", cluster, works=mode != "disabled" and auth == "optional")
        # Who presents nothing because there is no TLS is not asked.
        java.check("plain", cluster, works=mode != "enforcing")


def test_certificates_are_exchanged_while_java_clients_send(peer: Peer, authority: Authority, tmp_path: Path) -> None:
    """Connections that are open stay so, new ones get the new certificate, and no send is lost."""
    pair = {"tls.server.certPath": tmp_path / "own.pem", "tls.server.keyPath": tmp_path / "own.key"}
    own = Authority(tmp_path, "own-ca")
    own.issue("own")
    trusting = {**verify(authority), "tls.client.trustCertPath": own.ca}
    with (
        ErucaCluster(tmp_path / "up", {**SETTINGS, **pair, "tls.server.reloadInterval": 50}) as cluster,
        JavaProgram(peer, "eruca.interop.KeepSending", tmp_path / "java", system=trusting) as program,
    ):
        where = {"nameServer": cluster.name_server, "topic": TOPIC, "address": cluster.broker, "queues": 4}
        program.ask({"do": "createTopic", **where})
        context = make_client_context(Tls(ca=own.ca))
        seen = {read_certificate(context, cluster.broker)}
        names = []
        for number in range(6):
            names.append(f"sender-{number}")
            program.ask({"do": "start", "name": names[-1], **where})
            wait_for_sends(program, names)
            own.issue("own")
            while (found := read_certificate(context, cluster.broker)) in seen:
                pass
            seen.add(found)
            wait_for_sends(program, names)
        rows = [program.ask({"do": "stop", "name": name})[0] for name in names]
        assert [row["failures"] for row in rows] == [[]] * len(names)
        acknowledged = sum(row["taken"]["broker-a"] for row in rows)
        assert count_messages(cluster, own.ca) == acknowledged > 100


def read_certificate(context: ssl.SSLContext, address: str) -> bytes | None:
    """The certificate that a server presents on a new connection."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), PATIENCE_S) as sock,
        context.wrap_socket(sock, server_hostname=host) as encrypted,
    ):
        return encrypted.getpeercert(binary_form=True)


def wait_for_sends(program: JavaProgram, names: list[str]) -> None:
    """Wait until every sender has sent ten more."""

    def count(name: str) -> int:
        (row,) = program.ask({"do": "status", "name": name})
        return int(row["taken"].get("broker-a", 0)) + int(row["failed"])

    for name in names:
        before = count(name)
        while count(name) < before + 10:
            pass


def count_messages(cluster: Cluster, ca: Path) -> int:
    """How many messages the topic has."""
    options = ClientOptions(tls=Tls(ca=ca), call_timeout=PATIENCE_S)
    with PullConsumer(cluster.name_server, group="counters", options=options) as consumer:
        return sum(consumer.end_offset(queue) for queue in consumer.list_queues(TOPIC))


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
        system |= {"tls.enable": "true", **present(authority)}  # for the broker, which registers with the name server
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("auth", ["optional", "require"])
def test_our_certificate_on_java(peer: Peer, authority: Authority, tmp_path: Path, auth: str, mode: str) -> None:
    trust = {
        "tls.server.need.client.auth": auth,
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": authority.ca,
    }
    pair: dict[str, Any] = {"certificate": find(authority, "client.pem"), "key": find(authority, "client.key")}
    with run_java(peer, tmp_path, authority, mode, **trust) as cluster:
        check_ours(cluster, Tls(ca=authority.ca, **pair), works=mode != "disabled")
        check_ours(cluster, Tls(ca=authority.ca), works=mode != "disabled" and auth == "optional")
        check_ours(cluster, None, works=mode != "enforcing")

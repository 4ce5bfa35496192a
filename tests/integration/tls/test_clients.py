"""Clients with and without TLS on servers of each mode."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from eruca import ClientOptions, Producer, PullConsumer, Tls, sync
from eruca._broker.options import FAST_PORT_BELOW, HA_PORT_ABOVE
from eruca._client.session.session import Session
from eruca._net.caller import Caller
from eruca._net.tls import OutgoingTls, make_client_context
from eruca._net.tlsoptions import ClientAuth, TlsMode
from eruca._wire.codes import RequestCode
from eruca._wire.command import make_request
from eruca.errors import ConfigError, NetError
from tests.authority import Authority
from tests.integration.tls.conftest import StartCluster
from tests.patience import PATIENCE_S
from tests.unit.net.rawpeer import open_peer

TIMEOUT_S = float(PATIENCE_S)
# How long a client that must fail tries.
SHORT_S = 1.0


async def send_and_read(address: str, tls: Any, *, timeout: float = TIMEOUT_S, bodies: int = 20) -> None:
    """Send messages and read them back."""
    options = ClientOptions(tls=tls, call_timeout=timeout)
    async with Producer(address, group="tls", options=options, timeout=timeout) as producer:
        sent = [await producer.send("orders", b"%d" % number) for number in range(bodies)]
    async with PullConsumer(address, group="readers", options=options) as consumer:
        found: set[bytes] = set()
        for queue in {receipt.queue for receipt in sent}:
            offset = 0
            while offset <= max(receipt.offset for receipt in sent if receipt.queue == queue):
                result = await consumer.pull(queue, offset)
                found |= {message.body for message in result.messages}
                offset = result.next_offset
    assert found >= {b"%d" % number for number in range(bodies)}


async def fail_to_send(address: str, tls: Any) -> str:
    """Return why a client cannot send. On a busy machine a handshake takes longer than its first try."""
    timeout = SHORT_S
    while True:
        with pytest.raises(NetError) as caught:
            await send_and_read(address, tls, timeout=timeout)
        if "in time" not in str(caught.value) or timeout > TIMEOUT_S:
            return str(caught.value)
        timeout *= 4


@pytest.mark.parametrize("mode", list(TlsMode))
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
async def test_each_kind_of_client_in_each_mode(
    start_cluster: StartCluster,
    authority: Authority,
    mode: TlsMode,
    encrypted: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The servers connect to each other as their ports want it.
    own = {"outgoing": True, "outgoing_trust": str(authority.ca)} if mode is TlsMode.ENFORCING else {}
    cluster = await start_cluster(mode=mode, **own)
    await cluster.add_broker()
    tls = Tls(ca=authority.ca) if encrypted else None
    if mode is TlsMode.PERMISSIVE or encrypted is (mode is TlsMode.ENFORCING):
        await send_and_read(cluster.address, tls)
        return
    with pytest.raises(NetError):
        await send_and_read(cluster.address, tls, timeout=SHORT_S)
    told = "it uses TLS, which is not accepted here" if encrypted else "it does not use TLS, which this port requires"
    assert told in caplog.text


async def test_a_server_without_any_setting_accepts_tls(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(own=True)
    await cluster.add_broker()
    await send_and_read(cluster.address, Tls(verify=False))
    assert "not accepted: self-signed certificate" in await fail_to_send(cluster.address, True)


async def test_every_port_of_a_broker_accepts_tls(start_cluster: StartCluster, authority: Authority) -> None:
    cluster = await start_cluster(mode=TlsMode.ENFORCING, outgoing=True, outgoing_trust=str(authority.ca))
    broker = await cluster.add_broker()
    tls = Tls(ca=authority.ca)
    context = await asyncio.to_thread(make_client_context, tls)
    main = broker.standing.port
    for port in (main, main - FAST_PORT_BELOW, main + HA_PORT_ABOVE):
        async with open_peer(port, context) as peer:
            peer.write_bytes(b"GET / HTTP/1.0\r\n\r\n")
            assert await peer.wait_for_end() == b""
        async with open_peer(port) as plain:
            plain.write_bytes(bytes(64))
            assert await plain.wait_for_end() == b""


@pytest.mark.parametrize("auth", [ClientAuth.OPTIONAL, ClientAuth.REQUIRE])
async def test_certificates_of_clients(start_cluster: StartCluster, authority: Authority, auth: ClientAuth) -> None:
    mine = await asyncio.to_thread(authority.issue, "client")
    own = await asyncio.to_thread(authority.issue, "own")
    cluster = await start_cluster(
        client_auth=auth,
        trust=str(authority.ca),
        outgoing=True,
        outgoing_trust=str(authority.ca),
        outgoing_certificate=str(own.certificate),
        outgoing_key=str(own.key),
    )
    broker = await cluster.add_broker()
    with_certificate = Tls(ca=authority.ca, certificate=mine.certificate, key=mine.key)
    options = ClientOptions(tls=with_certificate, call_timeout=TIMEOUT_S)
    async with Producer(cluster.address, group="tls", options=options, timeout=TIMEOUT_S) as producer:
        await producer.send("orders", b"mine")
        seen = {link.certificate for server in broker.ports.servers for link in server.links}
    assert seen == {mine.fingerprint}
    # The broker presented its own to the name server.
    registered = {link.certificate for link in cluster.names.server.links}
    assert own.fingerprint in registered
    if auth is ClientAuth.OPTIONAL:
        await send_and_read(cluster.address, Tls(ca=authority.ca))
        return
    with pytest.raises(NetError):
        await send_and_read(cluster.address, Tls(ca=authority.ca), timeout=SHORT_S)


async def test_an_impostor_gets_neither_message_nor_signature(
    start_cluster: StartCluster, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    other = await asyncio.to_thread(authority.issue, "other", ("other.example",))
    cluster = await start_cluster(certificate=str(other.certificate), key=str(other.key))
    await cluster.add_broker()
    options = ClientOptions(tls=Tls(ca=authority.ca), access_key="shop", secret_key="12345678", call_timeout=SHORT_S)
    async with Producer(cluster.address, group="tls", options=options, timeout=SHORT_S) as producer:
        with pytest.raises(NetError, match=r"certificate is not valid for '127\.0\.0\.1'"):
            await producer.send("orders", b"secret")
    seen = {link.peer for link in cluster.names.server.links}
    assert len(seen) == 1, "only the broker is connected"


async def test_a_missing_file_is_named_at_once(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(own=True)
    async with Producer(cluster.address, group="tls", options=ClientOptions(tls=Tls(ca="/none/ca.pem"))) as producer:
        with pytest.raises(ConfigError, match=r"CA certificates /none/ca\.pem: No such file"):
            await producer.send("orders", b"x")


async def test_clients_with_other_settings_of_tls_have_other_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ERUCA_TLS", "ERUCA_TLS_CA", "ERUCA_TLS_CERT", "ERUCA_TLS_KEY"):
        monkeypatch.delenv(name, raising=False)
    plain, encrypted = ClientOptions(), ClientOptions(tls=True)
    assert plain != encrypted == ClientOptions(tls=Tls()) and plain == ClientOptions(tls=False)
    assert ClientOptions(tls=Tls(ca="a.pem")) != ClientOptions(tls=Tls(ca="b.pem"))
    assert ClientOptions(tls=Tls(verify=False)) != ClientOptions(tls=Tls())
    monkeypatch.setenv("ERUCA_TLS_CA", "a.pem")
    assert ClientOptions() == ClientOptions(tls=Tls(ca="a.pem")) == ClientOptions(tls=True)
    sessions = [Session(options) for options in (plain, encrypted)]
    assert sessions[0].caller is not sessions[1].caller


async def test_plain_clients_use_tls_too(start_cluster: StartCluster, authority: Authority) -> None:
    cluster = await start_cluster()
    await cluster.add_broker()

    def send() -> int:
        options = sync.ClientOptions(tls=sync.Tls(ca=authority.ca), call_timeout=TIMEOUT_S)
        with sync.Producer(cluster.address, group="tls", options=options, timeout=TIMEOUT_S) as producer:
            return producer.send("orders", b"x").offset

    assert await asyncio.to_thread(send) == 0


async def test_a_closed_client_has_no_connection_left(start_cluster: StartCluster, authority: Authority) -> None:
    """TLS ends with a goodbye; a program may end its loop right after it."""
    cluster = await start_cluster()
    caller = Caller(tls=OutgoingTls(Tls(ca=authority.ca)))
    assert (
        await caller.call(cluster.address, make_request(RequestCode.GET_NAMESRV_CONFIG), PATIENCE_S * 1000)
    ).code == 0
    link = caller.find_link(cluster.address)
    assert link is not None and link._transport is not None
    sock = link._transport.get_extra_info("socket")
    assert sock.fileno() > 0
    await caller.close()
    assert sock.fileno() == -1

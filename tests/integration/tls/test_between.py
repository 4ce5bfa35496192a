"""Servers that connect to each other with TLS: registration, replication, filter servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eruca import ClientOptions, Producer, Tls
from eruca._broker.app import Broker
from eruca._broker.options import HA_PORT_ABOVE, BrokerRole
from eruca._filterserver.app import FilterServer
from eruca._filterserver.options import FilterServerOptions
from eruca._net.tlsoptions import ClientAuth, TlsMode, TlsOptions
from eruca._wire.replication import LogReport, encode_report
from eruca.errors import ConfigError
from tests.authority import Authority
from tests.integration.broker.replication.members import HURRY, wait_until
from tests.integration.tls.conftest import StartCluster
from tests.patience import PATIENCE_S
from tests.unit.net.rawpeer import open_peer

SLAVE: dict[str, Any] = {**HURRY, "role": BrokerRole.SLAVE}


async def send(address: str, authority: Authority, count: int = 20) -> None:
    """Send messages with TLS."""
    options = ClientOptions(tls=Tls(ca=authority.ca), call_timeout=PATIENCE_S)
    async with Producer(address, group="tls", options=options, timeout=PATIENCE_S) as producer:
        for number in range(count):
            await producer.send("orders", b"%d" % number * 100)


def read_log(broker: Broker) -> bytes | None:
    """Everything in the log of a broker."""
    return broker.store.log.read_bytes(0, broker.store.log.readable_end)


async def test_a_cluster_where_nothing_is_plain(start_cluster: StartCluster, authority: Authority) -> None:
    own = await asyncio.to_thread(authority.issue, "own")
    cluster = await start_cluster(
        mode=TlsMode.ENFORCING,
        client_auth=ClientAuth.OPTIONAL,
        trust=str(authority.ca),
        outgoing=True,
        outgoing_trust=str(authority.ca),
        outgoing_certificate=str(own.certificate),
        outgoing_key=str(own.key),
    )
    master = await cluster.add_broker(**HURRY)
    slave = await cluster.add_broker(1, **SLAVE)
    await send(cluster.address, authority)
    await wait_until(lambda: slave.store.log.readable_end == master.store.log.readable_end > 0, "the slave has all")
    assert read_log(slave) == read_log(master)
    (link,) = master.replication.server.links
    assert link.machine.is_fenced and link.certificate == own.fingerprint
    await wait_until(lambda: "orders" in slave.topics.snapshot().topic_config_table, "the slave has the topic")


async def test_a_slave_does_not_copy_from_an_impostor(start_cluster: StartCluster, authority: Authority) -> None:
    other = await asyncio.to_thread(authority.issue, "other", ("other.example",))
    cluster = await start_cluster()
    master = await cluster.add_broker(**HURRY)
    await send(cluster.address, authority)
    # This slave trusts another authority than the one that signed the certificate of its master.
    stranger = await asyncio.to_thread(Authority, other.key.parent, "stranger")
    tls = TlsOptions(outgoing=True, outgoing_trust=str(stranger.ca))
    slave = await cluster.add_broker(1, tls=tls, ha_master=f"127.0.0.1:{master.standing.port + HA_PORT_ABOVE}", **SLAVE)
    await wait_until(lambda: slave.replication.follower._said, "it was logged that the master is not accepted")
    assert slave.store.log.readable_end == 0
    assert not master.replication.server.links


@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PERMISSIVE])
async def test_slaves_of_java_speak_plain(start_cluster: StartCluster, authority: Authority, mode: TlsMode) -> None:
    cluster = await start_cluster(mode=mode)
    master = await cluster.add_broker(**HURRY)
    async with open_peer(master.standing.port + HA_PORT_ABOVE) as slave:
        slave.write_bytes(encode_report(LogReport(0)))
        await wait_until(lambda: len(master.replication.server.list_slaves()) == 1, "the slave is accepted")
        (link,) = master.replication.server.links
        assert not link.machine.is_fenced and link.certificate is None


async def test_a_filter_server_with_tls(start_cluster: StartCluster, authority: Authority) -> None:
    cluster = await start_cluster(mode=TlsMode.ENFORCING, outgoing=True, outgoing_trust=str(authority.ca))
    broker = await cluster.add_broker(filter_servers_max=1)
    server = FilterServer(FilterServerOptions(broker=broker.standing.address), tls=cluster.tls)
    await server.start()
    try:
        assert server.broker_name == broker.options.name
        host, _, port = server.address.rpartition(":")
        async with open_peer(f"{host}:{port}") as plain:
            plain.write_bytes(bytes(8))
            assert await plain.wait_for_end() == b""
    finally:
        await server.stop()


@pytest.mark.parametrize("kind", ["server", "client"])
async def test_a_broker_does_not_start_with_bad_files(
    start_cluster: StartCluster, authority: Authority, kind: str
) -> None:
    cluster = await start_cluster(own=True)
    pair = await asyncio.to_thread(authority.issue, "broken")
    await asyncio.to_thread(pair.certificate.write_text, "broken")
    given: dict[str, Any] = {"certificate": str(pair.certificate), "key": str(pair.key)}
    if kind == "client":
        given = {f"outgoing_{name}": path for name, path in given.items()} | {"outgoing": True}
    with pytest.raises(ConfigError, match=r"TLS: certificate .*broken\.pem.*it is not a PEM file"):
        await cluster.add_broker(tls=TlsOptions(**given))
    await cluster.add_broker()
    assert len(cluster.brokers) == 1

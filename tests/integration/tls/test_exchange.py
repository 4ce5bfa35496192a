"""Certificates are exchanged, and crowds hang in handshakes, while producers send: nothing is lost."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack

from eruca import ClientOptions, Producer, Tls
from eruca._broker.app import Broker
from eruca._net.tls import make_client_context
from eruca._net.tlsoptions import TlsMode
from eruca._wire.frame import make_request
from tests.authority import Authority
from tests.integration.broker.replication.members import wait_until
from tests.integration.tls.conftest import StartCluster
from tests.patience import PATIENCE_S
from tests.unit.net.rawpeer import open_peer

EXCHANGES = 12
CROWD = 400
HALF_A_HELLO = bytes.fromhex("160301")


class Load:
    """Producers that send all the time, each over new connections repeatedly."""

    def __init__(self, address: str, authority: Authority) -> None:
        self._address = address
        self._ca = authority.ca
        self._is_over = False
        self.sent: list[bytes] = []
        self.connections = 0

    async def run(self, number: int) -> None:
        """Send until it is over."""
        while not self._is_over:
            # Another instance: clients with equal options would share their connections.
            options = ClientOptions(
                tls=Tls(ca=self._ca), instance=f"{number}-{self.connections}", call_timeout=PATIENCE_S
            )
            self.connections += 1
            async with Producer(self._address, group=f"g{number}", options=options, timeout=PATIENCE_S) as producer:
                for _ in range(20):
                    body = b"%d-%d" % (number, len(self.sent))
                    await producer.send("orders", body)
                    self.sent.append(body)

    async def wait_for(self, sent: int, connections: int) -> None:
        """Wait until this number of messages was sent, over this number of connections."""
        await wait_until(lambda: len(self.sent) >= sent and self.connections >= connections, "producers send")

    def end(self) -> None:
        """Send no more."""
        self._is_over = True


def count_stored(broker: Broker) -> int:
    """How many messages of the topic a broker has."""
    return sum(queue.max_offset for queue in broker.store.queues if queue.topic == "orders")


async def read_certificate(context: ssl.SSLContext, address: str) -> bytes | None:
    """The certificate that a server presents."""
    async with open_peer(address, context) as peer:
        connection: ssl.SSLObject = peer.writer.get_extra_info("ssl_object")
        return connection.getpeercert(binary_form=True)


async def test_certificates_are_exchanged_under_load_and_no_send_is_lost(
    start_cluster: StartCluster, authority: Authority
) -> None:
    cluster = await start_cluster(mode=TlsMode.ENFORCING, reload_ms=10, outgoing=True, outgoing_trust=str(authority.ca))
    broker = await cluster.add_broker()
    context = await asyncio.to_thread(make_client_context, Tls(ca=authority.ca))
    load = Load(cluster.address, authority)
    tasks = [asyncio.create_task(load.run(number)) for number in range(4)]
    presented = {await read_certificate(context, broker.standing.address)}
    for _ in range(EXCHANGES):
        before, connected = len(load.sent), load.connections
        await asyncio.to_thread(authority.issue, "server")
        while (found := await read_certificate(context, broker.standing.address)) in presented:
            pass  # each attempt is a connection, so this is load too
        presented.add(found)
        await load.wait_for(before + 1, connected + 1)
    load.end()
    await asyncio.gather(*tasks)
    assert len(presented) == EXCHANGES + 1
    assert len(set(load.sent)) == len(load.sent)
    assert count_stored(broker) == len(load.sent)


async def test_a_crowd_in_handshakes_keeps_nobody_out(start_cluster: StartCluster, authority: Authority) -> None:
    cluster = await start_cluster()
    broker = await cluster.add_broker()
    load = Load(cluster.address, authority)
    async with AsyncExitStack() as stack:
        for number in range(CROWD):
            peer = await stack.enter_async_context(open_peer(broker.standing.address))
            peer.write_bytes(HALF_A_HELLO if number % 2 else b"")
        tasks = [asyncio.create_task(load.run(number)) for number in range(2)]
        async with open_peer(broker.standing.address) as plain:
            await plain.ask(make_request(28))
        await load.wait_for(1, 10)
        load.end()
        await asyncio.gather(*tasks)
    assert count_stored(broker) == len(load.sent) > 0

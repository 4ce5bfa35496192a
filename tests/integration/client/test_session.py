"""The session: who shares it, whom it tells of its groups, and when."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from eruca._client.options import ClientOptions
from eruca._client.produce.producer import Producer
from eruca._client.session.session import _SESSIONS, Session
from eruca._nameserver.app import NameServer
from eruca.errors import ConfigError
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.unit.client.scripted import ScriptedBroker, ScriptedCluster, wait_until

OPTIONS = ClientOptions(ip="127.0.0.1")


def list_groups(broker: ScriptedBroker) -> list[set[str]]:
    return [{group.group_name for group in beat.producer_data_set} for beat in broker.heartbeats]


@pytest.fixture
async def peer(scripted: ScriptedCluster) -> ScriptedBroker:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    return broker


async def test_equal_settings_share_connections(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    first = await make_producer(scripted.address, group="a")
    second = await make_producer(scripted.address, group="b")
    third = await make_producer(scripted.address, group="c", options=ClientOptions(ip="127.0.0.1", instance="x"))
    session = first._session
    assert second._session is session
    assert third._session is not session
    assert third._session.client_id != session.client_id
    for producer in (first, second, third):
        await producer.send("orders", b"x")
    assert len(peer.server.links) == 2
    await first.close()
    assert session.caller.is_connected(peer.address)
    await second.close()
    await wait_until(lambda: len(peer.server.links) == 1)


async def test_a_group_is_announced_once_it_sends_and_unregistered_when_it_leaves(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, group="a")
    twin = await make_producer(scripted.address, group="a")
    await producer.send("orders", b"x")
    await wait_until(lambda: bool(peer.heartbeats))
    assert list_groups(peer)[0] == {"a", "CLIENT_INNER_PRODUCER"}
    assert peer.heartbeats[0].client_id == producer._session.client_id
    await twin.close()
    assert peer.goodbyes == []
    await producer.close()
    assert peer.goodbyes == ["a"]


async def test_a_group_that_comes_later_is_announced_at_once(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    # Not only when the next interval is over.
    options = ClientOptions(ip="127.0.0.1", heartbeat_interval=3600)
    first = await make_producer(scripted.address, group="a", options=options)
    await first.send("orders", b"x")
    await wait_until(lambda: peer.address in first._session._greeted)
    await make_producer(scripted.address, group="b", options=options)
    await wait_until(lambda: {"a", "b", "CLIENT_INNER_PRODUCER"} in list_groups(peer))
    assert len({beat.client_id for beat in peer.heartbeats}) == 1


async def test_a_heartbeat_on_its_way_does_not_speak_for_a_group_that_comes_meanwhile(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    first = await make_producer(scripted.address, group="a")
    session = first._session
    await session.routes.get("orders")
    beating = asyncio.get_running_loop().create_task(session.heartbeat())
    for _ in range(2):
        await asyncio.sleep(0)
    assert session._turns[peer.address].locked()
    await make_producer(scripted.address, group="b")
    await beating
    assert peer.address not in session._greeted
    await session.greet(peer.address)
    assert list_groups(peer)[-1] == {"a", "b", "CLIENT_INNER_PRODUCER"}


async def test_those_who_stay_are_announced_again_when_a_group_leaves(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    """Java's broker forgets with one group where the replies for the others go."""
    first = await make_producer(scripted.address, group="a")
    second = await make_producer(scripted.address, group="b")
    await first.send("orders", b"x")
    await wait_until(lambda: bool(peer.heartbeats))
    peer.heartbeats.clear()
    await second.close()
    assert peer.goodbyes == ["b", "CLIENT_INNER_PRODUCER"]
    assert list_groups(peer)[-1] == {"a", "CLIENT_INNER_PRODUCER"}


async def test_a_lost_connection_is_greeted_again(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, group="a")
    await producer.send("orders", b"x")
    await wait_until(lambda: peer.address in producer._session._greeted)
    for link in list(peer.server.links):
        link.abort()
    await wait_until(lambda: len(peer.heartbeats) == 2)
    assert list_groups(peer) == [{"a", "CLIENT_INNER_PRODUCER"}] * 2


async def test_heartbeats_come_in_intervals(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    options = ClientOptions(ip="127.0.0.1", heartbeat_interval=0.02, route_interval=0.02)
    producer = await make_producer(scripted.address, group="a", options=options)
    await producer.send("orders", b"x")
    await wait_until(lambda: len(peer.heartbeats) > 3)
    await wait_until(lambda: scripted.nameserver.asked.count("orders") > 3)
    assert peer.bodies == [b"x"]


async def test_a_broker_that_is_away_does_not_keep_the_others_from_their_heartbeats(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    away = await scripted.add_broker("away")
    scripted.add_topic("orders")
    # Longer than the longest pause between two tries to reach the one that is away.
    options = ClientOptions(ip="127.0.0.1", heartbeat_interval=1.2)
    producer = await make_producer(scripted.address, group="a", options=options)
    await producer._session.routes.get("orders")
    await away.server.stop()
    await producer._session.greet(peer.address)
    count = len(peer.heartbeats)
    await wait_until(lambda: len(peer.heartbeats) > count + 1)
    assert away.address not in producer._session._greeted


async def test_greeting_waits_for_the_broker_and_is_done_once(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, group="a")
    await producer._session.greet(peer.address)
    assert len(peer.heartbeats) == 1
    await producer._session.greet(peer.address)
    assert len(peer.heartbeats) == 1
    await producer._session.greet("127.0.0.1:1")  # a broker that is down is not an error


async def test_a_real_broker_knows_the_producer(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address, group="a")
    await producer.send("orders", b"x")
    clients = broker.clients
    await wait_until(lambda: bool(clients.producers.get("a")))
    (member,) = clients.producers["a"].values()
    assert member.client_id == producer._session.client_id
    await producer.close()
    await wait_until(lambda: not clients.producers.get("a"))


def test_clients_nobody_closed_do_not_live_on_in_the_next_loop() -> None:
    async def use() -> Session:
        producer = Producer("127.0.0.1:1", group="a", options=OPTIONS)
        await producer.start()
        return producer._session

    with pytest.warns(ResourceWarning, match="<Producer group='a' nameservers='127.0.0.1:1' started> was not closed"):
        first = asyncio.run(use())
    with pytest.warns(ResourceWarning, match="<Producer group='a'"):
        second = asyncio.run(use())
    assert second is not first
    assert len([key for key in _SESSIONS if key[0].is_closed()]) == 1
    _SESSIONS.clear()


def test_loops_in_several_threads_have_their_sessions_at_the_same_time() -> None:
    async def use(names: list[str]) -> None:
        options = [ClientOptions(nameservers="127.0.0.1:1", ip="127.0.0.1", instance=name) for name in names]
        for session in [Session.acquire(each) for each in options]:
            await session.release()

    def run(number: int) -> None:
        for turn in range(5):
            asyncio.run(use([f"{number}-{turn}-{each}" for each in range(30)]))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(run, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert _SESSIONS == {}


@pytest.mark.parametrize(
    "how",
    [{"access_key": "a"}, {"secret_key": "b"}, {"call_timeout": 0}, {"calls_max": 0}, {"route_interval": -1}],
)
def test_settings_that_cannot_work(how: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ClientOptions(**how)


def test_secrets_do_not_show() -> None:
    options = ClientOptions(access_key="shop", secret_key="hunter2", security_token="hunter3")
    assert "hunter" not in repr(options)


async def test_a_farewell_waits_for_the_heartbeat_before_it(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    """Java's broker may work on the two in another order; also when nobody waits for the heartbeat anymore."""
    producer = await make_producer(scripted.address, group="a")
    session = producer._session
    await producer.send("orders", b"x")
    await wait_until(lambda: peer.address in session._greeted)
    beating = asyncio.get_running_loop().create_task(session.heartbeat())
    for _ in range(2):
        await asyncio.sleep(0)
    beating.cancel()
    leaving = asyncio.get_running_loop().create_task(session.remove_producer(producer._engine))
    await asyncio.sleep(0)
    turn = session._turns[peer.address]
    assert turn.locked() and not leaving.done()
    before = len(peer.heartbeats)
    await leaving
    assert len(peer.heartbeats) == before + 1 and not turn.locked()
    assert peer.goodbyes

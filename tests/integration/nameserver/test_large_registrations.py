"""Registrations of very many topics or brokers: applied in slices, weighed, and removed without a search."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eruca._ground.limits import BODY_BYTES_AT_ONCE, REGISTRATION_TOPICS_MAX
from eruca._nameserver.app import NameServer
from eruca._nameserver.routes import RouteTables
from eruca._wire.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    decode_registration,
    encode_registration,
)
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import BrokerHeader, RegisterBrokerHeader
from eruca.errors import WireError
from tests.integration.nameserver.test_app import options_in, run_name_server
from tests.unit.net.rawpeer import open_peer, turn_until


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    async with run_name_server(options_in(tmp_path)) as server:
        yield server


def make_body(count: int, prefix: str = "topic") -> RegisterBrokerBody:
    names = [f"{prefix}-{number}" for number in range(count)]
    table = TopicConfigTable(
        data_version=DataVersion(count, 1), topic_config_table={name: TopicConfig(topic_name=name) for name in names}
    )
    return RegisterBrokerBody(filter_server_list=["127.0.0.1:30000"], topic_config_serialize_wrapper=table)


def make_header(name: str = "broker-a", address: str = "127.0.0.1:10911", **fields: Any) -> RegisterBrokerHeader:
    return RegisterBrokerHeader(
        broker_name=name, broker_addr=address, cluster_name="c", ha_server_addr="", broker_id=0, **fields
    )


def register(body: RegisterBrokerBody, opaque: int = 1, *, compressed: bool = False) -> Command:
    header = make_header(compressed=compressed)
    return make_request(
        RequestCode.REGISTER_BROKER, header, encode_registration(body, compressed=compressed), opaque=opaque
    )


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_large_registration_is_taken_before_what_follows_it(server: NameServer, compressed: bool) -> None:
    goodbye = BrokerHeader("broker-a", "127.0.0.1:10911", "c", 0)
    async with open_peer(server.server.port) as peer:
        large = register(make_body(5000), compressed=compressed)
        assert len(large.body) > BODY_BYTES_AT_ONCE or compressed
        peer.write(large, make_request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, opaque=2))
        assert (await peer.read()).code == ResponseCode.SUCCESS
        listed = await peer.read()
        assert (listed.opaque, listed.body.count(b"topic-")) == (2, 5000)
        peer.write(large, make_request(RequestCode.UNREGISTER_BROKER, goodbye, opaque=3))
        assert [(await peer.read()).code for _ in range(2)] == [ResponseCode.SUCCESS] * 2
        assert list(server.routes.list_topics()) == []


@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_registration_is_read_as_a_small_one_is(compressed: bool) -> None:
    body = make_body(3000)
    assert decode_registration(encode_registration(body, compressed=compressed), compressed=compressed) == body


@pytest.mark.parametrize("compressed", [False, True])
def test_more_topics_than_a_broker_can_have_are_refused(compressed: bool) -> None:
    data = encode_registration(make_body(REGISTRATION_TOPICS_MAX + 1), compressed=compressed)
    with pytest.raises(WireError, match="the maximum is 100000"):
        decode_registration(data, compressed=compressed)


async def test_registrations_are_weighed_and_the_heaviest_connection_goes(
    server: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    account = server._handlers.account
    account.bytes_max = 2_000_000
    async with open_peer(server.server.port) as good, open_peer(server.server.port) as heavy:
        header = make_header("broker-b", "127.0.0.1:10921")
        body = encode_registration(make_body(3, "small"))
        assert (await good.ask(make_request(RequestCode.REGISTER_BROKER, header, body))).code == ResponseCode.SUCCESS
        assert (await heavy.ask(register(make_body(1000)))).code == ResponseCode.SUCCESS
        before = account.total
        assert (await heavy.ask(register(make_body(1000)))).code == ResponseCode.SUCCESS
        assert account.total == before  # repeating it adds nothing
        heavy.write(register(make_body(5000)))
        await heavy.wait_for_end()
        await turn_until(lambda: len(list(server.routes.list_topics())) == 3)
        assert (await good.ask(make_request(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=9))).opaque == 9
    await turn_until(lambda: account.total == 0)
    assert len([record for record in caplog.records if "its registrations take" in record.getMessage()]) == 1


def test_brokers_that_go_together_are_not_searched_for_in_everything() -> None:
    """Ten thousand brokers of one connection: each is found by its own address and its own topics."""
    tables = RouteTables()
    link, other = object(), object()
    tables.register(make_header("stays", "127.0.0.1:1"), make_body(10, "kept"), other, 0.0)

    class Untouchable(dict[str, object]):
        def __iter__(self) -> None:  # type: ignore[override]
            raise AssertionError("everything was searched")

        items = values = keys = __iter__  # type: ignore[assignment]

    for number in range(2000):
        header = make_header(f"b{number}", f"10.0.0.1:{number}")
        tables.register(header, make_body(2, f"t{number}"), link, 0.0)
    tables._queues = Untouchable(tables._queues)  # type: ignore[assignment]
    tables._brokers = Untouchable(tables._brokers)  # type: ignore[assignment]
    assert len(tables.drop_link(link)) == 2000
    assert (len(tables._queues), len(tables._brokers)) == (10, 1)
    assert tables._topics.keys() == {"stays"} and tables._names == {"127.0.0.1:1": {"stays"}}


def test_a_broker_of_many_topics_goes_in_steps() -> None:
    calls: list[int] = []
    tables = RouteTables(lambda: calls.append(1))
    tables.register(make_header("other", "127.0.0.1:1"), make_body(5000, "t"), object(), 0.0)
    link = object()
    tables.register(make_header("many", "127.0.0.1:2"), make_body(5000, "t"), link, 0.0)
    tables.drop_link(link)
    lone = object()
    tables.register(make_header("lone", "127.0.0.1:3"), make_body(5000, "only"), lone, 0.0)
    tables.drop_link(lone)
    steps = 0
    while True:
        assert len(list(tables.list_topics())) == 5000
        for topic in tables.list_topics():
            route = tables.find_route(topic)
            assert route is not None and [queue.broker_name for queue in route.queue_datas] == ["other"]
        steps += 1
        if not tables.drop_some():
            break
    assert len(calls) == 2 and steps >= 8
    assert (tables._entries, tables._leaving) == (5000, {})


def test_a_broker_that_comes_back_at_once_has_only_what_it_brings() -> None:
    tables = RouteTables(lambda: None)
    link = object()
    tables.register(make_header("many", "127.0.0.1:2"), make_body(5000, "t"), link, 0.0)
    tables.drop_link(link)
    tables.register(make_header("many", "127.0.0.1:2"), make_body(10, "new"), object(), 0.0)
    assert len(list(tables.list_topics())) == tables._entries == 10
    assert not tables.drop_some()


async def test_a_connection_that_ends_within_its_registration_leaves_nothing(server: NameServer) -> None:
    async with open_peer(server.server.port) as peer:
        peer.write(register(make_body(20_000)))
        await turn_until(lambda: any(server.routes.list_topics()) or bool(server.server.links))
        peer.writer.transport.abort()
    await turn_until(lambda: not server.server.links)
    for _ in range(100):
        await asyncio.sleep(0)
    await turn_until(lambda: list(server.routes.list_topics()) == [])
    assert server.routes.describe_clusters().broker_addr_table == {}

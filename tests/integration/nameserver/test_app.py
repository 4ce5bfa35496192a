"""A name server on a loopback port: brokers register, clients ask, tools change things."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions, to_properties
from eruca._net.caller import Caller
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import (
    ClusterInfo,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicRouteData,
    encode_registration,
)
from eruca._wire.catalog import build_request, decode_answer, encode_request_body
from eruca._wire.codes import VERSION_ROUTE_STRICT_JSON, RequestCode, ResponseCode, SerializeType
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import (
    BrokerHeader,
    BrokerNameHeader,
    ClusterHeader,
    DataVersionAnswerHeader,
    DeleteTopicInNameServerHeader,
    KVConfigHeader,
    NamespaceHeader,
    PutKVConfigHeader,
    RegisterBrokerAnswerHeader,
    RegisterBrokerHeader,
    RouteHeader,
)
from eruca._wire.record import body_crc
from eruca.errors import ConnectFailed
from tests.unit.net.rawpeer import SECONDS_MAX, RawPeer, open_peer, turn_until, wait_for_links

MASTER, SLAVE = "127.0.0.1:10911", "127.0.0.1:10921"
BODY = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigTable(
        data_version=DataVersion(3, 1_700_000_000_000),
        topic_config_table={name: TopicConfig(topic_name=name) for name in ("T", "U")},
    )
)


def options_in(folder: Path, **more: Any) -> NameServerOptions:
    paths = {"kv_config_path": str(folder / "kv.json"), "config_store_path": str(folder / "namesrv.conf")}
    return NameServerOptions(**{"listen_port": 0, "scan_interval_ms": 10, **paths, **more})


@asynccontextmanager
async def run_name_server(options: NameServerOptions, clock: VirtualClock | None = None) -> AsyncIterator[NameServer]:
    server = NameServer(options, clock)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    async with run_name_server(options_in(tmp_path)) as running:
        yield running


@pytest.fixture
async def peer(server: NameServer) -> AsyncIterator[RawPeer]:
    async with open_peer(server.address) as connected:
        yield connected


def registration(
    address: str = MASTER,
    number: int = 0,
    body: RegisterBrokerBody = BODY,
    *,
    compressed: bool = False,
    crc: int | None = None,
    **envelope: Any,
) -> Command:
    data = encode_registration(body, compressed=compressed)
    header = RegisterBrokerHeader(
        "broker-a",
        address,
        "DefaultCluster",
        address[:-1] + "2",
        number,
        compressed,
        body_crc(data) if crc is None else crc,
    )
    return make_request(RequestCode.REGISTER_BROKER, header, data, **envelope)


async def ask(peer: RawPeer, code: RequestCode, header: Any = None, body: Any = None, **envelope: Any) -> Command:
    return await peer.ask(build_request(code, header, body, **envelope))


async def read_topics(peer: RawPeer, code: RequestCode, header: Any = None) -> list[str]:
    _, body = decode_answer(code, await ask(peer, code, header))
    assert isinstance(body, TopicList)
    return body.topic_list


async def find_route(peer: RawPeer, topic: str = "T", **envelope: Any) -> TopicRouteData | None:
    answer = await ask(peer, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic), **envelope)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    _, route = decode_answer(RequestCode.GET_ROUTEINFO_BY_TOPIC, answer)
    assert isinstance(route, TopicRouteData)
    return route


async def wait_until(peer: RawPeer, is_so: Callable[[TopicRouteData | None], bool]) -> None:
    """Query the route until it is as expected; each query is one round trip, without sleeping."""
    async with asyncio.timeout(SECONDS_MAX):
        while not is_so(await find_route(peer)):
            pass


# --- registration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("serialization", [SerializeType.JSON, SerializeType.ROCKETMQ])
@pytest.mark.parametrize("compressed", [False, True])
async def test_broker_registers_and_clients_find_it(
    peer: RawPeer, compressed: bool, serialization: SerializeType
) -> None:
    answer = await peer.ask(registration(compressed=compressed, serialization=serialization))
    assert answer.code == ResponseCode.SUCCESS and answer.serialization is serialization
    assert answer.has_ext and answer.ext_dict() == {} and answer.body == b""
    route = await find_route(peer)
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: MASTER}
    assert (route.queue_datas[0].read_queue_nums, route.queue_datas[0].perm) == (16, 6)
    assert await find_route(peer, "nothing") is None


async def test_slave_is_told_its_master(peer: RawPeer) -> None:
    await peer.ask(registration())
    answer = await peer.ask(registration(SLAVE, 1))
    header, _ = decode_answer(RequestCode.REGISTER_BROKER, answer)
    assert header == RegisterBrokerAnswerHeader("127.0.0.1:10912", MASTER)


async def test_order_config_comes_with_the_answer(peer: RawPeer) -> None:
    await ask(peer, RequestCode.PUT_KV_CONFIG, PutKVConfigHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:4"))
    _, body = decode_answer(RequestCode.REGISTER_BROKER, await peer.ask(registration()))
    assert body == KVTable(table={"T": "broker-a:4"})


async def test_oneway_registration_counts_and_is_not_answered(peer: RawPeer) -> None:
    peer.write(registration(opaque=1, oneway=True), registration(crc=1, opaque=2, oneway=True))
    route = await find_route(peer, opaque=3)
    assert route is not None


async def test_checksum_that_does_not_match_is_refused_before_the_body_is_read(peer: RawPeer) -> None:
    bad = registration(crc=1)
    bad.body = b"not JSON at all"
    answer = await peer.ask(bad)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert answer.has_ext and await find_route(peer) is None
    bad = registration(crc=0)
    bad.body = b"not JSON at all"
    answer = await peer.ask(bad)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "RegisterBrokerBody" in (answer.remark or "")
    assert (await peer.ask(registration(crc=0))).code == ResponseCode.SUCCESS


async def test_broker_of_3_0_registers_its_topics_alone(peer: RawPeer) -> None:
    data = encode_request_body(RequestCode.REGISTER_BROKER, BODY, version=37)
    table = json.dumps(json.loads(data)["topicConfigSerializeWrapper"]).encode()
    header = RegisterBrokerHeader("broker-a", MASTER, "DefaultCluster", "", 0)
    answer = await peer.ask(make_request(RequestCode.REGISTER_BROKER, header, table, version=36))
    assert answer.code == ResponseCode.SUCCESS
    assert await find_route(peer) is not None


async def test_data_version_is_compared(peer: RawPeer) -> None:
    code, header = RequestCode.QUERY_DATA_VERSION, BrokerHeader("broker-a", MASTER, "DefaultCluster", 0)
    same = BODY.topic_config_serialize_wrapper.data_version
    unknown = await ask(peer, code, header, same)
    assert decode_answer(code, unknown) == (DataVersionAnswerHeader(True), None)
    await peer.ask(registration())
    assert decode_answer(code, await ask(peer, code, header, same)) == (DataVersionAnswerHeader(False), same)
    other = await ask(peer, code, header, DataVersion(4, 1))
    assert decode_answer(code, other) == (DataVersionAnswerHeader(True), same)
    assert decode_answer(code, await ask(peer, code, header)) == (DataVersionAnswerHeader(True), same)


# --- brokers go -----------------------------------------------------------------------------------------------------


async def test_broker_that_unregisters_is_gone(peer: RawPeer) -> None:
    await peer.ask(registration())
    header = BrokerHeader("broker-a", MASTER, "DefaultCluster", 0)
    answer = await ask(peer, RequestCode.UNREGISTER_BROKER, header)
    assert answer.code == ResponseCode.SUCCESS and not answer.has_ext
    assert await find_route(peer) is None


async def test_broker_whose_connection_ends_is_gone_at_once(server: NameServer, peer: RawPeer) -> None:
    async with open_peer(server.address) as broker, open_peer(server.address) as slave:
        await broker.ask(registration())
        await slave.ask(registration(SLAVE, 1))
        await broker.close()
        await wait_until(peer, lambda route: route is None or route.broker_datas[0].broker_addrs == {1: SLAVE})
        # The slave is still there, and so are the queues of their common name.
        assert await find_route(peer) is not None
    await wait_until(peer, lambda route: route is None)


async def test_broker_that_registered_again_elsewhere_survives_its_old_connection(
    server: NameServer, peer: RawPeer
) -> None:
    async with open_peer(server.address) as old:
        await old.ask(registration())
        await peer.ask(registration())
    await wait_for_links(server.server, 1)
    assert await find_route(peer) is not None


async def test_silent_broker_expires_and_its_connection_is_closed(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with (
        run_name_server(options_in(tmp_path), clock) as server,
        open_peer(server.address) as broker,
        open_peer(server.address) as client,
    ):
        await broker.ask(registration())
        clock.advance(120_000)
        assert await find_route(client) is not None
        clock.set_ms(0)  # the wall clock has no effect
        clock.advance(1)
        await wait_until(client, lambda route: route is None)
        assert await broker.wait_for_end() == b""


@pytest.mark.parametrize("value", [str(10**12), str(10**400), "9" * 5000])
async def test_the_search_for_silent_brokers_follows_its_interval(tmp_path: Path, value: str) -> None:
    clock, code = VirtualClock(), RequestCode.UPDATE_NAMESRV_CONFIG
    async with (
        run_name_server(options_in(tmp_path, scan_interval_ms=2**31 - 1), clock) as server,
        open_peer(server.address) as broker,
        open_peer(server.address) as client,
    ):
        await broker.ask(registration())
        clock.advance(120_001)
        refused = await ask(client, code, body={"scanNotActiveBrokerInterval": value})
        assert (refused.code, server.running.current.scan_interval_ms) == (ResponseCode.SYSTEM_ERROR, 2**31 - 1)
        assert await find_route(client) is not None
        assert (await ask(client, code, body={"scanNotActiveBrokerInterval": "1"})).code == 0
        await wait_until(client, lambda route: route is None)


async def test_heartbeats_keep_a_broker(tmp_path: Path) -> None:
    clock = VirtualClock()
    options = options_in(tmp_path, broker_expiry_ms=100)
    async with run_name_server(options, clock) as server, open_peer(server.address) as broker:
        for _ in range(5):
            await broker.ask(registration())
            clock.advance(90)
            assert server.routes.expire(clock.monotonic(), 0.1) == []
            assert await find_route(broker) is not None


# --- questions ------------------------------------------------------------------------------------------------------


async def test_route_is_written_in_the_style_of_the_client(peer: RawPeer) -> None:
    await peer.ask(registration())
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    old, new = VERSION_ROUTE_STRICT_JSON - 1, VERSION_ROUTE_STRICT_JSON
    assert b'{0:"127.0.0.1:10911"}' in (await ask(peer, code, RouteHeader("T"), version=old)).body
    assert b'{"0":"127.0.0.1:10911"}' in (await ask(peer, code, RouteHeader("T", True), version=old)).body
    assert b'{"0":"127.0.0.1:10911"}' in (await ask(peer, code, RouteHeader("T"), version=new)).body


async def test_topic_without_route_is_refused_in_javas_words(peer: RawPeer) -> None:
    answer = await ask(peer, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader("Nowhere"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST and not answer.has_ext
    assert answer.remark == (
        "No topic route info in name server for the topic: Nowhere\n"
        "See http://rocketmq.apache.org/docs/faq/ for further details."
    )


@pytest.mark.parametrize("topic", ["x" * 1_000_000, "\x00" * 100_000, "\u2028\U0001f680", ""])
async def test_topic_of_any_kind_gets_an_answer(peer: RawPeer, topic: str) -> None:
    assert await find_route(peer, topic) is None


async def test_order_config_is_in_the_route_when_it_is_enabled(peer: RawPeer) -> None:
    await ask(peer, RequestCode.PUT_KV_CONFIG, PutKVConfigHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:4"))
    await peer.ask(registration())
    route = await find_route(peer)
    assert route is not None and route.order_topic_conf is None
    await ask(peer, RequestCode.UPDATE_NAMESRV_CONFIG, body={"orderMessageEnable": "true"})
    route, other = await find_route(peer), await find_route(peer, "U")
    assert route is not None and route.order_topic_conf == "broker-a:4"
    assert other is not None and other.order_topic_conf is None


async def test_lists(peer: RawPeer) -> None:
    await peer.ask(registration())
    _, clusters = decode_answer(
        RequestCode.GET_BROKER_CLUSTER_INFO, await ask(peer, RequestCode.GET_BROKER_CLUSTER_INFO)
    )
    assert isinstance(clusters, ClusterInfo)
    assert clusters.cluster_addr_table == {"DefaultCluster": ["broker-a"]}
    assert await read_topics(peer, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["T", "U"]
    by_cluster = RequestCode.GET_TOPICS_BY_CLUSTER
    assert await read_topics(peer, by_cluster, ClusterHeader("DefaultCluster")) == ["T", "U"]
    assert await read_topics(peer, by_cluster, ClusterHeader("none")) == []
    assert await read_topics(peer, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == ["DefaultCluster", "broker-a"]
    for code in (
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ):
        assert await read_topics(peer, code) == []


async def test_unknown_code_is_not_answered(peer: RawPeer) -> None:
    peer.write(make_request(999, opaque=1), make_request(RequestCode.SEND_MESSAGE_V2, opaque=2))
    assert (await ask(peer, RequestCode.GET_BROKER_CLUSTER_INFO, opaque=3)).opaque == 3


# --- an operator ----------------------------------------------------------------------------------------------------


async def test_permission_and_topics_are_changed(peer: RawPeer) -> None:
    await peer.ask(registration())
    name = BrokerNameHeader("broker-a")
    assert (await ask(peer, RequestCode.WIPE_WRITE_PERM_OF_BROKER, name)).ext_dict() == {"wipeTopicCount": "2"}
    route = await find_route(peer)
    assert route is not None and route.queue_datas[0].perm == 4
    assert (await ask(peer, RequestCode.ADD_WRITE_PERM_OF_BROKER, name)).ext_dict() == {"addTopicCount": "2"}
    answer = await ask(peer, RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNameServerHeader("T", "DefaultCluster"))
    assert answer.code == 0 and await find_route(peer) is None
    await ask(peer, RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNameServerHeader("U"))
    assert await read_topics(peer, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == []


async def test_key_value_config_lives_longer_than_the_server(tmp_path: Path) -> None:
    options = options_in(tmp_path)
    key = KVConfigHeader("N", "k")
    async with run_name_server(options) as server, open_peer(server.address) as peer:
        missing = await ask(peer, RequestCode.GET_KV_CONFIG, key)
        assert (missing.code, missing.remark) == (22, "No config item, Namespace: N Key: k")
        assert missing.has_ext and missing.ext_dict() == {}
        answer = await ask(peer, RequestCode.PUT_KV_CONFIG, PutKVConfigHeader("N", "k", "v=1;w"))
        assert answer.code == 0 and not answer.has_ext
    async with run_name_server(options) as server, open_peer(server.address) as peer:
        assert (await ask(peer, RequestCode.GET_KV_CONFIG, key)).ext_dict() == {"value": "v=1;w"}
        listed = await ask(peer, RequestCode.GET_KVLIST_BY_NAMESPACE, NamespaceHeader("N"))
        assert listed.body == b'{"table":{"k":"v=1;w"}}'
        assert (await ask(peer, RequestCode.DELETE_KV_CONFIG, key)).code == 0
        assert (await ask(peer, RequestCode.DELETE_KV_CONFIG, key)).code == 0
        unknown = await ask(peer, RequestCode.GET_KVLIST_BY_NAMESPACE, NamespaceHeader("M"))
        assert (unknown.code, unknown.remark) == (22, "No config item, Namespace: M")
        no_key = await peer.ask(Command(RequestCode.PUT_KV_CONFIG, ext={"namespace": "N", "value": "v"}))
        assert no_key.code == ResponseCode.SYSTEM_ERROR


async def test_key_value_config_is_logged_now_and_then(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "eruca._nameserver.kvconfig"):
        async with run_name_server(options_in(tmp_path, kv_log_interval_ms=1)) as server:
            await server.kv.put("N", "k", "v")
            await turn_until(lambda: caplog.messages.count("KV config: N k=v") >= 3)
            assert caplog.messages.count("KV config: N k=v") >= 3


async def test_options_are_shown_and_listed_ones_changed(server: NameServer, peer: RawPeer, tmp_path: Path) -> None:
    code = RequestCode.UPDATE_NAMESRV_CONFIG
    _, shown = decode_answer(RequestCode.GET_NAMESRV_CONFIG, await ask(peer, RequestCode.GET_NAMESRV_CONFIG))
    assert shown == to_properties(server.running.current)
    assert (await ask(peer, code)).code == 0  # without a body, as in Java
    assert (await ask(peer, code, body={"serverChannelMaxIdleTimeSeconds": "77"})).code == 0
    assert server.server.settings.idle_seconds == 77
    assert await asyncio.to_thread((tmp_path / "namesrv.conf").read_text) == "serverChannelMaxIdleTimeSeconds=77\n"
    refused = await ask(peer, code, body={"kvConfigPath": "/etc/passwd"})
    assert refused.code == ResponseCode.NO_PERMISSION
    assert (refused.remark or "").startswith("Can not update config in black list")
    assert (await ask(peer, code, body={"orderMessageEnable": "maybe"})).code == ResponseCode.SYSTEM_ERROR
    assert (await peer.ask(make_request(code, body=b"\xff\xfe"))).code == ResponseCode.SYSTEM_ERROR


# --- the whole ------------------------------------------------------------------------------------------------------


async def test_port_that_is_taken_is_an_error(server: NameServer, tmp_path: Path) -> None:
    other = NameServer(options_in(tmp_path, listen_port=server.server.port))
    with pytest.raises(ConnectFailed, match="cannot listen"):
        await other.start()
    await other.stop()


async def test_stop_is_no_loss_of_brokers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with run_name_server(options_in(tmp_path)) as server, open_peer(server.address) as broker:
        await broker.ask(registration())
        await server.stop()
        assert await broker.wait_for_end() == b""
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


async def test_two_name_servers_do_not_know_of_each_other(tmp_path: Path) -> None:
    first_options, second_options = options_in(tmp_path / "1"), options_in(tmp_path / "2")
    async with run_name_server(first_options) as first, run_name_server(second_options) as second:
        caller = Caller()
        assert (await caller.call(first.address, registration(), 5000)).code == 0
        question = RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader("T")
        assert (await caller.call(first.address, build_request(*question), 5000)).code == 0
        assert (await caller.call(second.address, build_request(*question), 5000)).code == 17
        await caller.close()

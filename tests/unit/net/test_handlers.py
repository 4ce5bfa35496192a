"""Handler tables: typed requests in, encoded answers out, rights asked for on the way."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from eruca._ground.limits import BODY_BYTES_AT_ONCE
from eruca._net.handlers import (
    HandlerTable,
    Reply,
    Request,
    encode_apart,
    encode_reply,
    expect_success,
    ignore_unknown,
    refuse_unknown,
)
from eruca._net.link import Answer, Link
from eruca._wire.bodies import ConsumerData, DataVersion, HeartbeatData, KVTable, TopicRouteData, decode_json
from eruca._wire.catalog import RequestSpec, Right, build_request, decode_answer, find_names
from eruca._wire.codes import VERSION_ROUTE_STRICT_JSON, RequestCode, ResponseCode, SerializeType
from eruca._wire.frame import Command, encode_command, make_request
from eruca._wire.headers import (
    BrokerHeader,
    DataVersionAnswerHeader,
    KVConfigAnswerHeader,
    KVConfigHeader,
    NamespaceHeader,
    RouteHeader,
    UnregisterClientHeader,
)
from eruca.errors import RequestRefused
from tests.unit.net.rawpeer import open_peer, run_server, split_frames

GET_KV = RequestCode.GET_KV_CONFIG


async def ask(table: HandlerTable, command: Command) -> Command:
    """Ask a server that has the table."""
    async with run_server(table.handlers, refuse_unknown) as server, open_peer(server.port) as peer:
        return await peer.ask(command)


@pytest.mark.parametrize("serialization", [SerializeType.JSON, SerializeType.ROCKETMQ])
async def test_handler_sees_types_and_answers_with_types(serialization: SerializeType) -> None:
    def compare(request: Request) -> Reply:
        assert isinstance(request.header, BrokerHeader) and isinstance(request.body, DataVersion)
        assert request.link.peer.startswith("127.0.0.1:")
        return Reply(DataVersionAnswerHeader(request.header.broker_id == 3), request.body)

    table = HandlerTable()
    table.add(RequestCode.QUERY_DATA_VERSION, compare)
    header = BrokerHeader("b", "127.0.0.1:1", "c", 3)
    command = build_request(
        RequestCode.QUERY_DATA_VERSION, header, DataVersion(7, 8), opaque=5, serialization=serialization
    )
    answer = await ask(table, command)
    assert answer.code == ResponseCode.SUCCESS and answer.serialization is serialization
    assert decode_answer(RequestCode.QUERY_DATA_VERSION, answer) == (DataVersionAnswerHeader(True), DataVersion(7, 8))


async def test_reply_may_come_later_or_never() -> None:
    async def answer_later(request: Request) -> Reply | None:
        key = request.header.key
        return None if key == "silent" else Reply(KVConfigAnswerHeader(f"{key}!"))

    table = HandlerTable()
    table.add(GET_KV, answer_later)
    async with run_server(table.handlers, refuse_unknown) as server, open_peer(server.port) as peer:
        peer.write(make_request(GET_KV, KVConfigHeader("n", "silent"), opaque=1))
        answer = await peer.ask(make_request(GET_KV, KVConfigHeader("n", "k"), opaque=2))
    assert answer.ext_dict() == {"value": "k!"}


async def test_handler_may_keep_silent() -> None:
    table = HandlerTable()
    table.add(GET_KV, lambda request: None if request.header.key == "silent" else Reply())
    async with run_server(table.handlers, refuse_unknown) as server, open_peer(server.port) as peer:
        peer.write(make_request(GET_KV, KVConfigHeader("n", "silent"), opaque=1))
        assert (await peer.ask(make_request(GET_KV, KVConfigHeader("n", "k"), opaque=2))).code == 0


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (make_request(GET_KV), "namespace"),
        (Command(GET_KV, ext={"namespace": "n"}, serialization=SerializeType.ROCKETMQ), "key"),
        (Command(RequestCode.QUERY_DATA_VERSION, ext={"brokerId": "x", "brokerName": "b"}), "BrokerHeader"),
        (
            make_request(RequestCode.QUERY_DATA_VERSION, BrokerHeader("b", "a", "c", 0), b"{"),
            "DataVersion",
        ),
    ],
    ids=["no ext", "field missing", "no number", "no JSON"],
)
async def test_request_that_is_not_what_its_code_says_is_refused(command: Command, named: str) -> None:
    table = HandlerTable()
    for code in (GET_KV, RequestCode.QUERY_DATA_VERSION):
        table.add(code, lambda request: Reply())
    answer = await ask(table, command)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None and named in answer.remark


async def test_body_is_written_as_the_requester_can_read_it() -> None:
    route = decode_json(
        TopicRouteData, b'{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c"}],"queueDatas":[]}'
    )
    table = HandlerTable()
    table.add(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda request: Reply(body=route))

    def request_of(version: int, strict: bool | None = None) -> Command:
        return make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader("T", strict), version=version)

    old, new = VERSION_ROUTE_STRICT_JSON - 1, VERSION_ROUTE_STRICT_JSON
    assert b'{0:"a:1"}' in (await ask(table, request_of(old))).body
    assert b'{"0":"a:1"}' in (await ask(table, request_of(old, strict=True))).body
    assert b'{"0":"a:1"}' in (await ask(table, request_of(new))).body


def test_reply_without_header_has_no_ext_and_an_empty_header_has_an_empty_one() -> None:
    command = make_request(GET_KV, opaque=4)
    (bare,) = split_frames(encode_reply(command, Reply()))
    (empty,) = split_frames(encode_reply(command, Reply(KVConfigAnswerHeader(), code=22, remark="none")))
    (raw,) = split_frames(encode_reply(command, Reply(body=b"\x00\x01")))
    assert not bare.has_ext and bare.body == b"" and bare.opaque == 4
    assert empty.has_ext and empty.ext_dict() == {} and (empty.code, empty.remark) == (22, "none")
    assert raw.body == b"\x00\x01"
    (typed,) = split_frames(
        encode_reply(make_request(RequestCode.GET_KVLIST_BY_NAMESPACE), Reply(body=KVTable(table={"a": "b"})))
    )
    assert typed.body == b'{"table":{"a":"b"}}'


async def test_right_of_the_catalog_is_asked_for_before_the_handler() -> None:
    asked: list[tuple[int, Right]] = []

    def authorize(link: Link, command: Command, spec: RequestSpec) -> None:
        asked.append((command.code, spec.right))
        if spec.right is Right.ADMIN:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "only an administrator may")

    def never(request: Request) -> Reply:
        raise AssertionError("it came through")

    def raw(link: Link, command: Command) -> Answer:
        return encode_command(command.answer(0))

    table = HandlerTable(authorize)
    table.add(RequestCode.DELETE_KV_CONFIG, never)
    table.add(GET_KV, lambda request: Reply())
    table.add_raw(RequestCode.REGISTER_BROKER, raw)
    async with run_server(table.handlers, refuse_unknown) as server, open_peer(server.port) as peer:
        refused = await peer.ask(make_request(RequestCode.DELETE_KV_CONFIG, KVConfigHeader("n", "k"), opaque=1))
        allowed = await peer.ask(make_request(GET_KV, KVConfigHeader("n", "k"), opaque=2))
        registered = await peer.ask(make_request(RequestCode.REGISTER_BROKER, opaque=3))
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "only an administrator may")
    assert allowed.code == registered.code == ResponseCode.SUCCESS
    assert [right for _, right in asked] == [Right.ADMIN, Right.INSPECT, Right.BROKER]


def test_code_that_nobody_may_send_gets_no_handler() -> None:
    table = HandlerTable()
    with pytest.raises(ValueError, match="SUSPEND_CONSUMER"):
        table.add(RequestCode.SUSPEND_CONSUMER, lambda request: Reply())
    with pytest.raises(ValueError, match="GET_BROKER_CLUSTER_ACL_CONFIG"):
        table.add_raw(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, lambda link, command: None)
    assert not table.handlers


async def test_rights_of_a_large_body_are_checked_before_its_handler() -> None:
    checked: list[int] = []
    handled: list[int] = []

    def authorize(link: Link, command: Command, spec: RequestSpec) -> None:
        names = find_names(spec, command, command.ext_dict())
        checked.append(len(names.groups))
        if "no" in names.groups:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "not this group")

    def take(request: Request) -> Reply:
        handled.append(len(request.body.consumer_data_set))
        return Reply()

    def beat(*more: str) -> Command:
        groups = [*[f"group-{number}-{'x' * 100}" for number in range(1000)], *more]
        data = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name=name) for name in groups])
        return build_request(RequestCode.HEART_BEAT, None, data, opaque=len(groups))

    table = HandlerTable(authorize)
    table.add(RequestCode.HEART_BEAT, take)
    async with run_server(table.handlers, refuse_unknown) as server, open_peer(server.port) as peer:
        allowed = await peer.ask(beat())
        refused = await peer.ask(beat("no"))
    assert allowed.code == ResponseCode.SUCCESS
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "not this group")
    assert (checked, handled) == ([1000, 1001], [1000])


async def test_unknown_codes() -> None:
    table = HandlerTable()
    table.add(GET_KV, lambda request: Reply())
    async with run_server(table.handlers, refuse_unknown) as server, open_peer(server.port) as peer:
        answer = await peer.ask(make_request(200_050, opaque=9))
    assert (answer.code, answer.remark) == (3, " request type 200050 not supported")
    async with run_server(table.handlers, ignore_unknown) as server, open_peer(server.port) as peer:
        peer.write(make_request(200_050, opaque=9))
        assert (await peer.ask(make_request(GET_KV, KVConfigHeader("n", "k"), opaque=10))).opaque == 10


def test_refused_answer_is_raised() -> None:
    request = make_request(GET_KV)
    good = request.answer(0)
    assert expect_success(good) is good
    with pytest.raises(RequestRefused) as caught:
        expect_success(request.answer(17, remark="no topic"))
    assert (caught.value.code, caught.value.remark) == (17, "no topic")
    with pytest.raises(RequestRefused, match="code 2"):
        expect_success(request.answer(2))


# -- large bodies and long questions ----------------------------------------------------------------------------------


async def test_a_large_body_is_read_in_a_thread_and_in_order() -> None:
    seen: list[str] = []

    def take(request: Request) -> Reply:
        seen.append(f"{len(request.body.consumer_data_set)} groups")
        return Reply()

    def leave(request: Request) -> Reply:
        seen.append("left")
        return Reply()

    table = HandlerTable()
    table.add(RequestCode.HEART_BEAT, take)
    table.add(RequestCode.UNREGISTER_CLIENT, leave)
    groups = [ConsumerData(group_name=f"group-{number}") for number in range(1000)]
    heartbeat = build_request(
        RequestCode.HEART_BEAT, body=HeartbeatData(client_id="c", consumer_data_set=groups), opaque=1
    )
    assert len(heartbeat.body) > BODY_BYTES_AT_ONCE
    goodbye = build_request(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader(client_id="c"), opaque=2)
    async with run_server(table.handlers, refuse_unknown) as server, open_peer(server.port) as peer:
        peer.write(heartbeat, goodbye)
        assert [(await peer.read()).opaque for _ in range(2)] == [1, 2]
    assert seen == ["1000 groups", "left"]


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b" " * (2 * 1024 * 1024 + 1), "the maximum is 2097152"),
        (b"{" * 100_000, "100000 objects, the maximum is 16384"),
    ],
)
async def test_a_body_that_takes_too_long_to_read_is_refused(body: bytes, remark: str) -> None:
    table = HandlerTable()
    table.add(RequestCode.HEART_BEAT, lambda request: Reply())
    answer = await ask(table, make_request(RequestCode.HEART_BEAT, body=body))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")


async def test_long_questions_of_a_connection_are_answered_one_at_a_time_and_few_in_all() -> None:
    running = most = 0

    async def walk(request: Request) -> Reply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return Reply(body=await encode_apart(request, KVTable(table={"a": "b"})))

    table = HandlerTable()
    table.add_long(RequestCode.GET_KVLIST_BY_NAMESPACE, walk)
    question = make_request(RequestCode.GET_KVLIST_BY_NAMESPACE, NamespaceHeader("n"))
    async with run_server(table.handlers, refuse_unknown) as server, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(open_peer(server.port)) for _ in range(6)]
        for peer in peers:
            peer.write(*[question] * 5)
        for peer in peers:
            for _ in range(5):
                assert decode_json(KVTable, (await peer.read()).body).table == {"a": "b"}
    assert most == 2

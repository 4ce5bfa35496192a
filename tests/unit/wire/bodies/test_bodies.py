"""Typed bodies: both ways, in all the forms that peers write."""

from __future__ import annotations

import inspect
import json
import struct
import zlib
from typing import Any

import msgspec
import pytest

from eruca._ground.limits import BODY_BYTES_AT_ONCE
from eruca._wire import bodies, fastjson
from eruca._wire.bodies import (
    BodyError,
    BrokerData,
    ClusterInfo,
    ConsumeFromWhere,
    ConsumerOffsets,
    ConsumerStatusBody,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeType,
    DataVersion,
    DelayOffsets,
    GroupConfig,
    HeartbeatData,
    JsonBody,
    KVTable,
    MessageModel,
    MessageQueue,
    QueueData,
    RegisterBrokerBody,
    ResetOffsetBody,
    TopicConfig,
    TopicConfigTable,
    TopicRouteData,
    TopicStatsTable,
    decode_heartbeat,
    decode_json,
    decode_options,
    decode_registration,
    decode_reset_offsets,
    encode_json,
    encode_options,
    encode_registration,
    encode_reset_offsets,
    encode_route,
)
from eruca.errors import WireError

QUEUE = MessageQueue("b", 3, "T")
QUEUE_TEXT = b'{"brokerName":"b","queueId":3,"topic":"T"}'
ALL_BODIES = [
    member
    for member in vars(bodies).values()
    if inspect.isclass(member) and issubclass(member, JsonBody) and member is not JsonBody
]


def fill(kind: Any) -> Any:
    """Make a value of a type, with everything in it."""
    match kind:
        case msgspec.inspect.StructType():
            return kind.cls(**{field.name: fill(field.type) for field in kind.fields if field.name != "topic_syn_flag"})
        case msgspec.inspect.ListType():
            return [fill(kind.item_type)]
        case msgspec.inspect.DictType():
            return {fill(kind.key_type): fill(kind.value_type)}
        case msgspec.inspect.UnionType():
            return fill(kind.types[0])
        case msgspec.inspect.EnumType():
            return next(iter(kind.cls))
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.IntType():
            return 7
        case msgspec.inspect.FloatType():
            return 1.25
        case msgspec.inspect.StrType():
            return "text \u2028"
        case msgspec.inspect.CustomType():
            return QUEUE
    raise AssertionError(kind)


@pytest.mark.parametrize("body_type", ALL_BODIES, ids=lambda body_type: body_type.__name__)
def test_every_body_goes_round_full_and_empty(body_type: type[JsonBody]) -> None:
    assert body_type.__doc__
    assert list(body_type.__struct_encode_fields__) == sorted(body_type.__struct_encode_fields__)
    full = fill(msgspec.inspect.type_info(body_type))
    assert decode_json(body_type, encode_json(full)) == full
    assert b"\xe2\x80" not in encode_json(full)
    # The forms fastjson has written over the years.
    assert decode_json(body_type, fastjson.write(full)) == full
    assert decode_json(body_type, fastjson.write(full, quote_object_keys=True)) == full
    if body_type.has_odd_keys:
        assert decode_json(body_type, fastjson.write(full, bare_int_keys=True)) == full
    written = fastjson.parse(encode_json(full))
    assert list(written) == sorted(written)

    needed = {field.name: fill(field.type) for field in msgspec.inspect.type_info(body_type).fields if field.required}  # type: ignore[attr-defined]
    sparse = body_type(**needed)
    assert decode_json(body_type, encode_json(sparse)) == sparse
    assert b"null" not in encode_json(sparse)
    optional = [field.encode_name for field in msgspec.structs.fields(body_type) if field.default is None]
    assert set(fastjson.parse(encode_json(sparse))) == set(body_type.__struct_encode_fields__) - set(optional)


@pytest.mark.parametrize("body_type", ALL_BODIES, ids=lambda body_type: body_type.__name__)
@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{", b'"text"', b"\xff", b"[" * 100_000, b'{"a":' * 100_000])
def test_every_body_refuses_rubbish(body_type: type[JsonBody], data: bytes) -> None:
    with pytest.raises(BodyError, match=f"^{body_type.__name__}: "):
        decode_json(body_type, data)


def test_errors_name_the_field() -> None:
    with pytest.raises(BodyError, match="GroupConfig: Object missing required field `groupName`"):
        decode_json(GroupConfig, b"{}")
    with pytest.raises(BodyError, match=r"TopicConfig: Expected `int`, got `str` - at `\$.perm`"):
        decode_json(TopicConfig, b'{"topicName":"T","perm":"all"}')
    with pytest.raises(BodyError, match=r"ResetOffsetBody: a map key is not a queue .*at `key` in `\$.offsetTable`"):
        decode_json(ResetOffsetBody, b'{"offsetTable":{"no queue":5}}')


def test_nulls_are_not_there() -> None:
    data = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","tagsSet":null,'
    data += (
        b'"codeSet":null,"expressionType":null,"subString":"*"}],"messageModel":"Clustering"}],"producerDataSet":null}'
    )
    heartbeat = decode_json(HeartbeatData, data)
    (consumer,) = heartbeat.consumer_data_set
    (subscription,) = consumer.subscription_data_set
    assert (subscription.tags_set, subscription.code_set, subscription.expression_type) == ([], [], "TAG")
    assert consumer.message_model is MessageModel.CLUSTERING
    assert heartbeat.producer_data_set == []
    with pytest.raises(BodyError, match="missing required field `clientID`"):
        decode_json(HeartbeatData, b'{"clientID":null}')
    odd = b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:{"maxOffset":null,"minOffset":1}}}'
    assert decode_json(TopicStatsTable, odd).offset_table[QUEUE].min_offset == 1


def test_a_large_heartbeat_is_read_group_by_group() -> None:
    groups = b",".join(
        [b'{"groupName":"g%d","subscriptionDataSet":[{"topic":"T","tagsSet":null}]}' % n for n in range(2000)]
    )
    data = b'{"clientID":"c","consumerDataSet":[' + groups + b'],"producerDataSet":[{"groupName":"p"}]}'
    assert len(data) > BODY_BYTES_AT_ONCE
    heartbeat = decode_heartbeat(data)
    assert heartbeat == decode_json(HeartbeatData, data)
    assert [consumer.group_name for consumer in heartbeat.consumer_data_set] == [f"g{n}" for n in range(2000)]
    with pytest.raises(BodyError, match="ConsumerData: Object missing required field `groupName`"):
        decode_heartbeat(data.replace(b'"groupName":"g7"', b'"group":"g7"'))
    assert decode_heartbeat(b'{"clientID":"c"}') == HeartbeatData(client_id="c")


def test_the_cpp_client_sends_numbers_for_names() -> None:
    data = b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":0,'
    data += b'"subscriptionDataSet":[{"subString":"*","subVersion":"1794749682154","topic":"T"}]}]}\n'
    heartbeat = decode_json(HeartbeatData, data)
    (consumer,) = heartbeat.consumer_data_set
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.BROADCASTING
    assert consumer.subscription_data_set[0].sub_version == 1794749682154
    assert b'"messageModel":"BROADCASTING"' in encode_json(heartbeat)
    for number in (b"2", b"-1"):
        with pytest.raises(BodyError, match=f"MessageModel has no number {number.decode()}"):
            decode_json(HeartbeatData, data.replace(b'"messageModel":0', b'"messageModel":' + number))


# --- routes ---------------------------------------------------------------------------------------------------------

ROUTE = TopicRouteData(
    broker_datas=[BrokerData(broker_addrs={0: "h:1", 1: "h:2"}, broker_name="b", cluster="c")],
    queue_datas=[QueueData(broker_name="b", perm=6, read_queue_nums=4, write_queue_nums=8, topic_sys_flag=1)],
)


def test_route_in_both_styles() -> None:
    strict = encode_route(ROUTE, strict=True)
    bare = encode_route(ROUTE, strict=False)
    assert json.loads(strict)["brokerDatas"][0]["brokerAddrs"] == {"0": "h:1", "1": "h:2"}
    assert b'{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"b","cluster":"c"}' in bare
    assert b" " not in bare
    assert bare.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":') == strict
    assert decode_json(TopicRouteData, strict) == ROUTE
    assert decode_json(TopicRouteData, bare) == ROUTE
    assert b"orderTopicConf" not in strict


def test_the_misspelt_flag_of_old_name_servers() -> None:
    data = encode_route(ROUTE, strict=False).replace(b"topicSysFlag", b"topicSynFlag")
    assert decode_json(TopicRouteData, data) == ROUTE


def test_cluster_info_with_bare_and_quoted_ids() -> None:
    data = b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1"},"brokerName":"b","cluster":"c"}},'
    data += b'"clusterAddrTable":{"c":["b"]}}'
    info = decode_json(ClusterInfo, data)
    assert info.broker_addr_table["b"].broker_addrs == {0: "h:1"}
    assert json.loads(encode_json(info)) == json.loads(data.replace(b"{0:", b'{"0":'))


# --- queues and numbers as keys --------------------------------------------------------------------------------------


def test_offset_tables() -> None:
    offsets = decode_json(ConsumerOffsets, b'{"offsetTable":{"T@G":{0:3,1:2}}}')
    assert offsets.offset_table == {"T@G": {0: 3, 1: 2}}
    assert encode_json(offsets) == b'{"offsetTable":{"T@G":{"0":3,"1":2}}}'
    assert decode_json(DelayOffsets, b'{"offsetTable":{2:1,3:1}}').offset_table == {2: 1, 3: 1}


@pytest.mark.parametrize(
    "key",
    [
        QUEUE_TEXT,
        b'{"topic":"T","queueId":3,"brokerName":"b"}',
        b'{"topic":"T","queueId":"3","brokerName":"b","new":1}',
        msgspec.json.encode(QUEUE_TEXT.decode()),
    ],
)
def test_queue_keys_in_every_form(key: bytes) -> None:
    body = decode_json(ResetOffsetBody, b'{"offsetTable":{' + key + b":5}}")
    assert body.offset_table == {QUEUE: 5}
    assert type(next(iter(body.offset_table))) is MessageQueue
    assert encode_json(body) == b'{"offsetTable":{' + QUEUE_TEXT + b":5}}"


def test_nested_queue_keys() -> None:
    status = ConsumerStatusBody(consumer_table={"c1": {QUEUE: 5}}, message_queue_table={QUEUE: 6})
    assert encode_json(status) == (
        b'{"consumerTable":{"c1":{' + QUEUE_TEXT + b':5}},"messageQueueTable":{' + QUEUE_TEXT + b":6}}"
    )
    stats = ConsumeStatsList(consume_stats_list=[{"g": [ConsumeStats(consume_tps=1e10)]}], total_diff=3)
    assert encode_json(stats) == (
        b'{"consumeStatsList":[{"g":[{"consumeTps":1.0E10,"offsetTable":{}}]}],"totalDiff":3}'
    )


def test_queues_are_keys_and_can_be_sorted() -> None:
    assert len({QUEUE, MessageQueue("b", 3, "T"), MessageQueue("b", 4, "T")}) == 2
    assert sorted([MessageQueue("b", 4, "T"), QUEUE])[0] is QUEUE


def test_reset_offsets_as_map_and_as_list() -> None:
    body = ResetOffsetBody(offset_table={QUEUE: 5})
    as_list = encode_reset_offsets(body, as_list=True)
    assert as_list == b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":3,"topic":"T"}]}'
    assert decode_reset_offsets(as_list) == body
    assert decode_reset_offsets(b'{ "offsetTable" : [ ] }') == ResetOffsetBody()
    assert decode_reset_offsets(encode_reset_offsets(body)) == body
    with pytest.raises(BodyError):
        decode_reset_offsets(b'{"offsetTable":[3]}')


# --- registration ---------------------------------------------------------------------------------------------------

TABLE = TopicConfigTable(
    data_version=DataVersion(3, 1794727724445),
    topic_config_table={
        "T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8),
        "中": TopicConfig(topic_name="中", perm=4),
    },
)
REGISTRATION = RegisterBrokerBody(filter_server_list=["h:3"], topic_config_serialize_wrapper=TABLE)


def test_registration_compressed_and_not() -> None:
    assert decode_registration(encode_registration(REGISTRATION)) == REGISTRATION
    packed = encode_registration(REGISTRATION, compressed=True)
    assert decode_registration(packed, compressed=True) == REGISTRATION
    plain = zlib.decompress(packed)
    version = b'{"counter":3,"timestamp":1794727724445}'
    lines = [b"T 4 8 6 SINGLE_TAG", "中 16 16 4 SINGLE_TAG".encode(), b'["h:3"]']
    expected = struct.pack(">i", len(version)) + version + struct.pack(">i", 2)
    expected += b"".join(struct.pack(">i", len(line)) + line for line in lines)
    assert plain == expected


def test_registration_of_an_old_broker_is_the_bare_table() -> None:
    body = decode_registration(encode_json(TABLE), version=36)
    assert body == RegisterBrokerBody(topic_config_serialize_wrapper=TABLE)


def pack(*parts: bytes | int) -> bytes:
    plain = b"".join(struct.pack(">i", part) if isinstance(part, int) else part for part in parts)
    return zlib.compress(plain)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no zlib", "damaged"),
        (pack(), "ends inside a length"),
        (pack(5, b"{}"), "5 bytes announced, 2 are left"),
        (pack(-1), "-1 bytes announced"),
        (pack(2, b"{}", 2**31 - 1), "the maximum is 100000"),
        (pack(2, b"{}", 1, 3, b"a b"), "topic line b'a b': 2 words"),
        (pack(2, b"{}", 1, 9, b"a x 1 6 S"), "topic line"),
        (pack(2, b"{}", 1, 5, b"\xff 1 1"), "topic line"),
        (pack(2, b"{}", 0, 1, b"x"), "filter servers"),
        (pack(2, b"{}", 0, 2, b"[]", b"x"), "1 bytes are left over"),
        (pack(2, b"[]", 0, 2, b"[]"), "DataVersion"),
    ],
)
def test_bad_compressed_registrations(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        decode_registration(data, compressed=True)


def test_a_zip_bomb_is_refused() -> None:
    bomb = zlib.compress(bytes(65 * 1024 * 1024))
    assert len(bomb) < 100_000
    with pytest.raises(WireError, match="unpacks to more than"):
        decode_registration(bomb, compressed=True)


# --- options --------------------------------------------------------------------------------------------------------


def test_options_text() -> None:
    options = decode_options("# note\n\na=1\n b = x=y \r\n!c\nname=中\nempty=\n".encode())
    assert options == {"a": "1", "b": "x=y", "name": "中", "empty": ""}
    assert encode_options(options).decode() == "a=1\nb=x=y\nname=中\nempty=\n"
    assert decode_options(encode_options(options)) == options
    assert decode_options(b"") == {}


@pytest.mark.parametrize("data", [b"novalue\n", b"=x\n", b"\xff=1"])
def test_bad_options_text(data: bytes) -> None:
    with pytest.raises(BodyError):
        decode_options(data)


@pytest.mark.parametrize("options", [{"a": "1\nrocketmqHome=/"}, {"a\nb": "1"}, {"a=b": "1"}, {"": "1"}, {"a": "\r"}])
def test_an_option_cannot_smuggle_another(options: dict[str, str]) -> None:
    with pytest.raises(BodyError, match="cannot be written as one line"):
        encode_options(options)


def test_empty_tables_are_written() -> None:
    assert encode_json(KVTable()) == b'{"table":{}}'
    assert encode_json(TopicConfigTable()) == b'{"dataVersion":{"counter":0,"timestamp":0},"topicConfigTable":{}}'
    assert encode_json(TopicConfig(topic_name="T")) == (
        b'{"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,'
        b'"writeQueueNums":16}'
    )

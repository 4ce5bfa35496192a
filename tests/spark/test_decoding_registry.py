"""Bodies that Confluent's serializers wrote, decoded with the registry that they registered their schemas in."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from eruca import Tls
from eruca._schemas.protobuf import compile_file, parse_files
from eruca._spark.decoding import SchemaRegistry, decode_avro, decode_protobuf, set_bad_aside
from eruca.errors import ConfigError
from tests.authority import Authority
from tests.interop.brokers import Cluster
from tests.schemaregistry import RegistryServer, frame
from tests.spark.producing import name_topic, send
from tests.spark.streams import open_stream, start_query
from tests.spark.test_decoding import collect, make_frame, make_message

LOGIN = ("ann", "hush")
OLD = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "cents", "type": "int"}, {"name": "note", "type": "string"}],
}
NEW = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "state", "type": "string", "default": "new"},
    ],
}
PROTO = """
syntax = "proto3";
package shop;
import "line.proto";
message Refund { string order = 1; }
message Order {
  message Empty {}
  message Item { int32 count = 1; }
  string id = 1;
  repeated Line lines = 2;
}
"""
LINE = 'syntax = "proto3"; package shop; message Line { string sku = 1; }'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority) -> Iterator[RegistryServer]:
    with RegistryServer(tls=authority.issue("registry"), login=LOGIN) as started:
        yield started


@pytest.fixture
def registry(server: RegistryServer, authority: Authority, tmp_path: Path) -> SchemaRegistry:
    """How users name it."""
    login = tmp_path / "login.yml"
    login.write_text("user: {}\npassword: {}\n".format(*LOGIN))
    return SchemaRegistry(server.address, tls=Tls(ca=authority.ca), login_file=login)


@pytest.fixture
def official(server: RegistryServer, authority: Authority) -> SchemaRegistryClient:
    """The client of the registry's makers."""
    return SchemaRegistryClient(
        {"url": server.address, "ssl.ca.location": str(authority.ca), "basic.auth.user.info": ":".join(LOGIN)}
    )


def save(path: Path, schema: Any) -> Path:
    path.write_text(json.dumps(schema))
    return path


def test_a_stream_of_two_schemas_becomes_one_table(
    spark: Any, cluster: Cluster, tmp_path: Path, registry: SchemaRegistry, official: SchemaRegistryClient
) -> None:
    topic = name_topic("avro")
    context = SerializationContext(topic, MessageField.VALUE)
    old, new = (AvroSerializer(official, json.dumps(schema)) for schema in (OLD, NEW))
    bodies = [
        old({"id": "o-1", "cents": 100, "note": "hello"}, context),
        new({"id": "o-2", "cents": 2**40, "state": "paid"}, context),
        frame(99, b"\x02x"),
        b"hello",
    ]
    send(cluster, topic, [each for each in bodies if each is not None], queues=1)
    frame_ = open_stream(spark, cluster, subscribe=topic)
    decoded = decode_avro(frame_, registry=registry, subject=f"{topic}-value")
    assert decoded.schema["value"].dataType.simpleString() == "struct<id:string,cents:bigint,state:string>"
    good: list[Any] = []
    bad: list[Any] = []
    writer = decoded.writeStream.foreachBatch(
        set_bad_aside(lambda rows, _: good.extend(rows.collect()), lambda rows, _: bad.extend(rows.collect()))
    )
    query = start_query(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True))
    query.awaitTermination()
    assert sorted(tuple(row.value) for row in good) == [("o-1", 100, "new"), ("o-2", 2**40, "paid")]
    assert sorted(row.error for row in bad) == [
        "it has no frame of a schema registry: it does not begin with a zero byte and a schema id",
        "the registry has no schema 99",
    ]


def test_protobuf_messages_are_found_by_their_place(
    spark: Any, cluster: Cluster, tmp_path: Path, registry: SchemaRegistry, official: SchemaRegistryClient
) -> None:
    (tmp_path / "line.proto").write_text(LINE)
    proto = tmp_path / "order.proto"
    proto.write_text(PROTO)
    topic = name_topic("protobuf")
    context = SerializationContext(topic, MessageField.VALUE)
    pool_names = ("shop.Order", "shop.Refund", "shop.Order.Item")
    order, refund, item = (make_message(proto, name) for name in pool_names)
    order.id, refund.order, item.count = "o-1", "o-1", 3
    order.lines.add().sku = "melon"
    bodies = [
        ProtobufSerializer(type(each), official, {"use.deprecated.format": False})(each, context)
        for each in (order, refund, item)
    ]
    # The first message of the file, and one that is nested.
    assert bodies[1][5:6] == b"\x00" and bodies[2][5:8] == b"\x04\x02\x02"
    send(cluster, topic, [*bodies, frame(1, b"", b"\x02\x12"), b"\x00\x00\x00\x00\x01"], queues=1)
    rows = spark.read.format("rocketmq").option("nameServer", cluster.name_server).option("subscribe", topic).load()
    rows = rows.selectExpr("int(queueOffset) AS number", "body")
    wrong = ["it is a shop.Refund, not a shop.Order", "it is a shop.Order.Item, not a shop.Order"]
    found = collect(decode_protobuf(rows, proto, "shop.Order", registry=registry))
    assert found[:3] == [{"id": "o-1", "lines": [{"sku": "melon"}]}, *wrong]
    assert found[3] == "schema 1 has no message at 9"
    assert found[4] == "it has no message indexes: it ends too early, or a number is too long"
    # The newest schema of the subject does as well, and any of its messages.
    newest = decode_protobuf(rows, message="shop.Order.Item", registry=registry, subject=f"{topic}-value")
    assert collect(newest)[2] == {"count": 3}
    with pytest.raises(ConfigError, match=r"which message of the newest schema of .*shop\.Refund, shop\.Order"):
        decode_protobuf(rows, registry=registry, subject=f"{topic}-value")


def test_schemas_that_refer_to_others(
    spark: Any, registry: SchemaRegistry, official: SchemaRegistryClient, server: RegistryServer
) -> None:
    line = {"type": "record", "name": "shop.Line", "fields": [{"name": "sku", "type": "string"}]}
    order = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "first", "type": "shop.Line"},
            {"name": "rest", "type": {"type": "array", "items": "shop.Line"}},
        ],
    }
    official.register_schema("line", Schema(json.dumps(line), "AVRO"))
    references = [SchemaReference("shop.Line", "line", 1)]
    number = official.register_schema("order", Schema(json.dumps(order), "AVRO", references))
    named: dict[str, Any] = {}
    fastavro.parse_schema(line, named_schemas=named)
    out = io.BytesIO()
    value = {"first": {"sku": "fig"}, "rest": [{"sku": "melon"}]}
    fastavro.schemaless_writer(out, fastavro.parse_schema(order, named_schemas=named), value)
    bodies = [frame(number, out.getvalue()), frame(number, out.getvalue()[:-1])]
    found = collect(decode_avro(make_frame(spark, bodies), registry=registry, subject="order"))
    assert found[0] == value and found[1].startswith("it does not match the Avro schema: it ends too early")
    # Text of Protobuf files is compiled, also where it imports others.
    server.registry.register("line.proto", {"schema": LINE, "schemaType": "PROTOBUF"})
    imports = [{"name": "line.proto", "subject": "line.proto", "version": 1}]
    kinds = {"schema": PROTO, "schemaType": "PROTOBUF", "references": imports}
    number = server.registry.register("order.proto", kinds)
    bodies = [frame(number, b"\x0a\x03o-1\x12\x03\x0a\x01x", b"\x02\x02"), bodies[0]]
    how: dict[str, Any] = {"message": "shop.Order", "registry": registry, "subject": "order.proto"}
    expected = [{"id": "o-1", "lines": [{"sku": "x"}]}, "schema 2 cannot be used: it is AVRO, not PROTOBUF"]
    bodies[1] = bodies[1][:5] + b"\x00" + bodies[1][5:]
    assert collect(decode_protobuf(make_frame(spark, bodies), **how)) == expected


def test_a_protobuf_file_that_comes_compiled(
    spark: Any, registry: SchemaRegistry, server: RegistryServer, tmp_path: Path
) -> None:
    (tmp_path / "line.proto").write_text(LINE)
    (tmp_path / "order.proto").write_text(PROTO)
    line, order = parse_files(compile_file(tmp_path / "order.proto"), "it")
    number = server.registry.register("line", {"schema": LINE, "schemaType": "PROTOBUF"})
    server.registry.compiled[number] = line.SerializeToString()
    imports = [{"name": "line.proto", "subject": "line", "version": 1}]
    number = server.registry.register("o", {"schema": PROTO, "schemaType": "PROTOBUF", "references": imports})
    server.registry.compiled[number] = order.SerializeToString()
    body = frame(number, b"\x0a\x03o-1\x12\x03\x0a\x01x", b"\x02\x02")
    how: dict[str, Any] = {"message": "shop.Order", "registry": registry, "subject": "o"}
    assert collect(decode_protobuf(make_frame(spark, [body]), **how)) == [{"id": "o-1", "lines": [{"sku": "x"}]}]


def test_a_registry_that_is_away_fails_the_query_and_no_body(
    spark: Any, tmp_path: Path, registry: SchemaRegistry, official: SchemaRegistryClient, server: RegistryServer
) -> None:
    body = AvroSerializer(official, json.dumps(OLD))(
        {"id": "o-1", "cents": 1, "note": ""}, SerializationContext("away", MessageField.VALUE)
    )
    hasty = SchemaRegistry(server.address, tls=registry.tls, login_file=registry.login_file, timeout=1.0, retries=0)
    decoded = decode_avro(
        make_frame(spark, [body]), registry=hasty, reader_schema_file=save(tmp_path / "new.avsc", NEW)
    )
    # Spark's own tries of a task, and ours for the next query.
    server.registry.faults += [503] * 100
    with pytest.raises(Exception, match="answers 503"):
        decoded.collect()
    server.registry.faults.clear()
    assert collect(decoded) == [{"id": "o-1", "cents": 1, "state": "new"}]


def test_a_directory_of_schemas(spark: Any, tmp_path: Path) -> None:
    home = tmp_path / "schemas"
    home.mkdir()
    save(home / "7.avsc", OLD)
    bodies = []
    for number, schema, value in (
        (7, OLD, {"id": "o-1", "cents": 1, "note": ""}),
        (8, NEW, {"id": "o-2", "cents": 2, "state": "paid"}),
    ):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        bodies.append(frame(number, out.getvalue()))
    reader = save(tmp_path / "new.avsc", NEW)
    frames = make_frame(spark, bodies)
    decoded = decode_avro(frames, registry=SchemaRegistry(home), reader_schema_file=reader)
    # What is read is what was there when the query was planned.
    save(home / "8.avsc", NEW)
    first = {"id": "o-1", "cents": 1, "state": "new"}
    assert collect(decoded) == [first, f"there is no schema 8 in {home}"]
    decoded = decode_avro(frames, registry=SchemaRegistry(home), reader_schema_file=reader)
    assert collect(decoded) == [first, {"id": "o-2", "cents": 2, "state": "paid"}]


def test_what_is_missing_is_named(tmp_path: Path, registry: SchemaRegistry, server: RegistryServer) -> None:
    frame_: Any = None
    reader = save(tmp_path / "new.avsc", NEW)
    for how, said in (
        ({}, "which schema were the bodies written with"),
        ({"subject": "s"}, "subject= needs a registry"),
        ({"registry": registry}, "needs one schema to read all bodies with"),
        ({"registry": registry, "subject": "s", "reader_schema_file": reader}, "needs one schema to read all"),
        ({"registry": registry, "schema_file": reader}, "schema_file and registry are mutually exclusive"),
        ({"registry": registry, "subject": "gone"}, "has no version latest of it"),
    ):
        with pytest.raises(ConfigError, match=said):
            decode_avro(frame_, **how)
    server.registry.register("p", {"schema": LINE, "schemaType": "PROTOBUF"})
    with pytest.raises(ConfigError, match="the newest schema of p cannot be used: it is PROTOBUF, not AVRO"):
        decode_avro(frame_, registry=registry, subject="p")
    for how, said in (
        ({}, "which schema were the bodies written with"),
        ({"subject": "s"}, "subject= needs a registry"),
        ({"registry": registry}, "needs one schema to read all bodies with"),
    ):
        with pytest.raises(ConfigError, match=said):
            decode_protobuf(frame_, **how)

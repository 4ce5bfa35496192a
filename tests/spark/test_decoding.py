"""Bodies into columns: every kind of body that fits, and a reason for every one that does not."""

from __future__ import annotations

import importlib.util
import io
import json
import random
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.errors import StreamingQueryException

from eruca._spark.decoding import decode_avro, decode_json, decode_protobuf, set_bad_aside, split_bad
from eruca.errors import ConfigError
from tests.figures import note_figures
from tests.patience import PATIENCE_S

SCHEMA = "id string, amount double not null, at timestamp, n int, items array<struct<q:int>>"
# Bodies and what must be said of them: the fields that are there, or the reason.
JSON_BODIES: list[tuple[bytes | None, dict[str, Any] | str]] = [
    (b'{"id":"a","amount":1.5}', {"id": "a", "amount": 1.5}),
    (b' {"amount":1}\n', {"amount": 1.0}),
    (b'{"id":"\xe7\x95\xaa\xe8\x8c\x84","amount":1}', {"id": "番茄", "amount": 1.0}),
    (b'{"amount":1,"at":"2026-01-01T08:00:00+08:00"}', {"amount": 1.0, "at": datetime(2026, 1, 1, tzinfo=UTC)}),
    (b'{"amount":1,"items":[{"q":1},{}],"more":[]}', {"amount": 1.0, "items": [{"q": 1}, {"q": None}]}),
    (b'{"amount":1,"__corrupt":"x","only":2}', {"amount": 1.0}),
    (None, "there is no body"),
    (b"", "it is not JSON"),
    (b"  ", "it is not JSON"),
    (b"hello", "it is not JSON"),
    (b'{"id":"a","amount":1.5', "it is not JSON"),
    (b"{'id':'a','amount':1}", "it is not JSON"),
    (b'{"amount":NaN}', "it is not JSON"),
    (b"\xef\xbb\xbf{}", "it is not JSON"),
    (b"\xff\xfe", "it is not UTF-8"),
    (b'{"id":"\xff","amount":1}', "it is not UTF-8"),
    (b"null", "it is JSON, but not an object"),
    (b"[]", "it is JSON, but not an object"),
    (b"12", "it is JSON, but not an object"),
    (b'"text"', "it is JSON, but not an object"),
    (b'[{"amount":2}]', "it is JSON, but not an object"),
    (b'{"amount":1.5} xx', "something follows the JSON object"),
    (b'{"amount":1.5}{"amount":2}', "something follows the JSON object"),
    (b'{"amount":1.5},{"amount":2}', "something follows the JSON object"),
    (b"{}", "amount is missing"),
    (b'{"amount":null}', "amount is missing"),
    (b'{"amount":"much"}', "amount is not double"),
    (b'{"amount":1,"at":"yesterday"}', "at is not timestamp"),
    (b'{"amount":1,"n":99999999999}', "n is not int"),
    (b'{"amount":1,"items":[{"q":1},{"q":"x"}]}', "items is not array<struct<q:int>>"),
]


def make_frame(spark: Any, bodies: Iterable[bytes | None]) -> Any:
    """A frame of numbered bodies."""
    return spark.createDataFrame(list(enumerate(bodies)), "number int, body binary")


def collect(frame: Any) -> list[Any]:
    """What was decoded, or the reason, in the order of the bodies."""
    rows = sorted(frame.collect(), key=lambda row: row.number)
    assert all((row.value is None) == (row.error is not None) for row in rows)
    return [_plain(row.value) if row.error is None else row.error for row in rows]


def _plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return {key: _plain(each) for key, each in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value.astimezone(UTC) if isinstance(value, datetime) else value


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_json_bodies_become_columns_or_a_reason(spark: Any) -> None:
    found = collect(decode_json(make_frame(spark, [body for body, _ in JSON_BODIES]), SCHEMA))
    nothing = dict.fromkeys(["id", "amount", "at", "n", "items"])
    wanted = [said if isinstance(said, str) else {**nothing, **said} for _, said in JSON_BODIES]
    assert dict(enumerate(found)) == dict(enumerate(wanted))
    bad = sum(isinstance(said, str) for said in wanted)
    note_figures(f"decoding: {len(wanted)} JSON bodies, {bad} of them bad, each with its reason")


def test_the_schema_of_json_may_be_a_struct_a_text_or_a_file(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql.types import DoubleType, StructField, StructType

    struct = StructType([StructField("amount", DoubleType(), nullable=False)])
    text, form = tmp_path / "text.ddl", tmp_path / "form.json"
    text.write_text("amount double not null\n")
    form.write_text(struct.json())
    frame = make_frame(spark, [b'{"amount":2}', b"{}"])
    for schema in (struct, "amount double not null", text, form):
        assert collect(decode_json(frame, schema)) == [{"amount": 2.0}, "amount is missing"]
    for wrong, said in (
        ("amount dubble", "not a schema"),
        ("double", "not a schema of fields"),
        ("{}", "not a schema"),
    ):
        with pytest.raises(ConfigError, match=said):
            decode_json(frame, wrong)
    with pytest.raises(ConfigError, match=r"gone\.ddl: No such file"):
        decode_json(frame, tmp_path / "gone.ddl")


def test_names_of_columns(spark: Any) -> None:
    frame = make_frame(spark, [b'{"amount":2}'])
    with pytest.raises(ConfigError, match=r"no column bodi to decode \(there are number, body\)"):
        decode_json(frame, "amount double", "bodi")
    with pytest.raises(ConfigError, match="a column number already"):
        decode_json(frame, "amount double", into="number")
    with pytest.raises(ConfigError, match=r"there is no column error \(decode_json"):
        split_bad(frame)
    once = decode_json(frame, "amount double")
    twice = decode_json(once, "amount int", into="value2", error="error2")
    assert twice.columns == ["number", "body", "value", "error", "value2", "error2"]
    assert twice.collect()[0].value2.amount == 2


# -- Avro --------------------------------------------------------------------------------------------------------------

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "cents", "type": ["null", "long"], "default": None},
        {"name": "weight", "type": ["float", "double"]},
        {"name": "paid", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "before", "type": "State"},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
        {"name": "notes", "type": {"type": "map", "values": "Line"}},
    ],
}  # fmt: skip
ORDER: dict[str, Any] = {
    "id": "o-1",
    "count": 3,
    "cents": 1999,
    "weight": 1.5,
    "paid": True,
    "raw": b"\x00\xff",
    "sum": Decimal("1234.50"),
    "day": date(2026, 11, 15),
    "at": datetime(2026, 11, 15, 7, 21, 6, 123000, tzinfo=UTC),
    "local": datetime(2026, 11, 15, 7, 21, 6, 123456),
    "clock": 26466123,
    "token": "0d8e1a2e-5f0a-4a57-b64f-0d1e2f3a4b5c",
    "state": "NEW",
    "mark": b"ok",
    "before": "DONE",
    "lines": [{"sku": "melon"}, {"sku": "pear"}],
    "notes": {"first": {"sku": "melon"}},
}


def write_avro(schema: Any, value: Any) -> bytes:
    """One datum."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def save_schema(path: Path, schema: Any) -> Path:
    """A schema file."""
    path.write_text(json.dumps(schema))
    return path


def test_avro_bodies_become_columns_or_a_reason(spark: Any, tmp_path: Path) -> None:
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    schema = save_schema(tmp_path / "order.avsc", AVRO)
    raw = {**ORDER, "clock": (datetime.min + timedelta(milliseconds=ORDER["clock"])).time()}
    good = write_avro(AVRO, raw)
    empty = write_avro(AVRO, {**raw, "cents": None, "lines": [], "notes": {}})
    mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(AVRO), "CRC-64-AVRO"))
    bodies = [good, empty, b"\xc3\x01" + mark + good, None, b"", good[:-3], good + b"!!", b"\xff" * 20]
    found = collect(decode_avro(make_frame(spark, bodies), schema))
    local = ORDER["local"]
    for each in found[:3]:
        # Spark hands out times without a zone as they are.
        assert each.pop("local").replace(tzinfo=None) == local.astimezone(UTC).replace(tzinfo=None)
        each["raw"], each["mark"] = bytes(each["raw"]), bytes(each["mark"])
    order = {key: value for key, value in ORDER.items() if key != "local"}
    assert found[0] == found[2] == order
    assert found[1] == {**order, "cents": None, "lines": [], "notes": {}}
    assert found[3] == "there is no body"
    wrong = "it does not match the Avro schema: "
    assert found[4] == wrong + "it ends too early"
    assert found[6] == wrong + "2 bytes are left over"
    assert all(str(said).startswith(wrong) for said in (found[5], found[7])), found


def test_a_value_that_no_column_holds_is_one_bad_row(spark: Any, tmp_path: Path) -> None:
    written = {"type": "record", "name": "Sum", "fields": [
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}  # fmt: skip
    narrow = json.loads(json.dumps(written).replace("9", "4"))
    bodies = [write_avro(written, {"sum": Decimal(text)}) for text in ("1.00", "1234567.00", "2.00")]
    first, second, third = collect(decode_avro(make_frame(spark, bodies), save_schema(tmp_path / "sum.avsc", narrow)))
    assert (first, third) == ({"sum": Decimal("1.00")}, {"sum": Decimal("2.00")})
    assert "precision" in second


def test_a_reader_schema_of_avro(spark: Any, tmp_path: Path) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]}
    new = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "long"}, {"name": "c", "type": "string", "default": "none"}]}  # fmt: skip
    frame = decode_avro(
        make_frame(spark, [write_avro(old, {"a": 7, "b": "x"})]),
        save_schema(tmp_path / "old.avsc", old),
        reader_schema_file=save_schema(tmp_path / "new.avsc", new),
    )
    assert frame.schema["value"].dataType.simpleString() == "struct<a:bigint,c:string>"
    assert collect(frame) == [{"a": 7, "c": "none"}]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (["string", "int"], "an Avro union of string and int has no Spark type"),
        (["null", "R"], "Avro record R contains itself"),
        ("null", "Avro type null has no Spark type"),
        ({"type": "record", "name": "E", "fields": []}, "Avro record E has no fields"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "Avro type F has no bytes"),
        ("Nobody", "Nobody"),
    ],
)
def test_an_avro_schema_that_spark_has_no_type_for(kind: Any, said: str, tmp_path: Path) -> None:
    from eruca._spark.decoding.avro import load_avro

    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    with pytest.raises(ConfigError, match=said):
        load_avro(save_schema(tmp_path / "schema.avsc", schema), None)


def test_an_avro_schema_that_is_none(tmp_path: Path) -> None:
    from eruca._spark.decoding.avro import load_avro

    (tmp_path / "text.avsc").write_text("hello")
    for name in ("text", "gone"):
        with pytest.raises(ConfigError, match=rf"Avro schema .*{name}\.avsc"):
            load_avro(tmp_path / f"{name}.avsc", None)


# -- Protobuf ----------------------------------------------------------------------------------------------------------

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "line.proto";

message Order {
  enum State { NEW = 0; DONE = 1; }
  string id = 1;
  int32 count = 2;
  optional sint64 cents = 3;
  float weight = 4;
  double volume = 5;
  bool paid = 6;
  bytes raw = 7;
  uint32 small = 8;
  fixed64 large = 9;
  State state = 10;
  repeated Line lines = 11;
  map<string, Line> notes = 12;
  google.protobuf.Timestamp at = 13;
  google.protobuf.Duration took = 14;
  google.protobuf.StringValue nick = 15;
  google.protobuf.Struct free = 16;
  Line only = 17;
  oneof how { string card = 18; int64 cash = 19; }
  repeated State past = 20;
}
"""
LINE = """
syntax = "proto3";
package shop;
message Line { string sku = 1; }
"""


@pytest.fixture
def proto(tmp_path: Path) -> Path:
    """A schema file that imports another."""
    (tmp_path / "line.proto").write_text(LINE)
    (tmp_path / "order.proto").write_text(PROTO)
    return tmp_path / "order.proto"


def make_message(proto: Path, name: str = "shop.Order") -> Any:
    """An empty message of a schema file."""
    from google.protobuf.message_factory import GetMessageClass

    from eruca._schemas.protobuf import compile_file, find_type

    return GetMessageClass(find_type(compile_file(proto), name))()


def fill(order: Any) -> bytes:
    """An order with something in every field, as bytes."""
    order.id, order.count, order.cents, order.weight, order.volume = "o-1", 3, -1999, 1.5, 2.5
    order.paid, order.raw, order.small, order.large, order.state = True, b"\x00\xff", 2**32 - 1, 2**64 - 1, 1
    order.lines.add().sku = "melon"
    order.notes["first"].sku = "pear"
    order.at.FromDatetime(datetime(2026, 11, 15, 7, 21, 6, 123456))
    order.took.FromTimedelta(timedelta(seconds=-1, microseconds=-5))
    order.nick.value = ""
    order.free["deep"] = [1, {"x": None}]
    order.card = "visa"
    order.past.extend([0, 7])
    return bytes(order.SerializeToString())


def test_protobuf_bodies_become_columns_or_a_reason(spark: Any, proto: Path) -> None:
    full = fill(make_message(proto))
    unknown = full + b"\xa0\x06\x01"  # field 100
    bodies = [full, b"", unknown, None, b"hello", full[:-1], b"\x0a\x01\xff"]
    found = collect(decode_protobuf(make_frame(spark, bodies), proto, "shop.Order"))
    assert found[0] == found[2] == {
        "id": "o-1", "count": 3, "cents": -1999, "weight": 1.5, "volume": 2.5, "paid": True, "raw": b"\x00\xff",
        "small": 2**32 - 1, "large": Decimal(2**64 - 1), "state": "DONE", "lines": [{"sku": "melon"}],
        "notes": {"first": {"sku": "pear"}}, "at": datetime(2026, 11, 15, 7, 21, 6, 123456, tzinfo=UTC),
        "took": timedelta(seconds=-1, microseconds=-5), "nick": "", "free": '{"deep": [1.0, {"x": null}]}',
        "only": None, "card": "visa", "cash": None, "past": ["NEW", "7"],
    }  # fmt: skip
    assert found[1] == {
        "id": "", "count": 0, "cents": None, "weight": 0.0, "volume": 0.0, "paid": False, "raw": b"", "small": 0,
        "large": Decimal(0), "state": "NEW", "lines": [], "notes": {}, "at": None, "took": None, "nick": None,
        "free": None, "only": None, "card": None, "cash": None, "past": [],
    }  # fmt: skip
    assert found[3] == "there is no body"
    assert all(str(said).startswith("it is not Protobuf: ") for said in found[4:]), found[4:]
    strict = decode_protobuf(make_frame(spark, [full, unknown]), proto, "shop.Order", refuse_unknown=True)
    assert collect(strict)[1] == "it is not a shop.Order: there is no field 100"


def test_a_descriptor_set_will_do(spark: Any, proto: Path, tmp_path: Path) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from eruca._schemas.protobuf import compile_file
    from eruca._spark.decoding.protobuf import load_protobuf

    content = compile_file(proto)
    whole, bare, partial = tmp_path / "whole.desc", tmp_path / "bare.desc", tmp_path / "partial.pb"
    whole.write_bytes(content)
    files = FileDescriptorSet.FromString(content).file
    # Without Protobuf's own files, which are everywhere; and without the neighbour, which is not.
    bare.write_bytes(FileDescriptorSet(file=[file for file in files if "google" not in file.name]).SerializeToString())
    partial.write_bytes(FileDescriptorSet(file=[files[-1]]).SerializeToString())
    body = fill(make_message(proto))
    for path in (whole, bare):
        frame = decode_protobuf(make_frame(spark, [body]), path)
        assert collect(frame)[0]["id"] == "o-1"
    with pytest.raises(ConfigError, match="made with --include_imports"):
        load_protobuf(partial, "shop.Order", False)


def test_a_required_field_of_protobuf(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "old.proto"
    path.write_text('syntax = "proto2"; message Old { required int32 a = 1; optional int32 b = 2 [default = 5]; }')
    found = collect(decode_protobuf(make_frame(spark, [b"\x08\x01", b"\x10\x01"]), path))
    assert found == [{"a": 1, "b": None}, "it is not a Old: a missing"]


@pytest.mark.parametrize(
    ("text", "message", "said"),
    [
        ("message A { int32 x = 1; } message B { A a = 1; }", "C", r"no message C \(there are A, B\)"),
        ("message Order { int32 x = 1; }", "Ordre", "did you mean Order?"),
        ("message A { int32 x = 1; } message B { A a = 1; }", "", "which message of .*there are A, B"),
        ("message Tree { repeated Tree branches = 1; }", "", "Tree contains itself"),
        ("message Nothing {}", "", "Nothing has no fields"),
        ("message Broken { int3 x = 1; }", "", "is not Protobuf: .*int3"),
    ],
)
def test_a_protobuf_schema_that_cannot_be_used(text: str, message: str, said: str, tmp_path: Path) -> None:
    from eruca._spark.decoding.protobuf import load_protobuf

    path = tmp_path / "schema.proto"
    path.write_text(f'syntax = "proto3"; {text}')
    with pytest.raises(ConfigError, match=said):
        load_protobuf(path, message, False)


def test_a_protobuf_schema_that_is_none(tmp_path: Path) -> None:
    from eruca._spark.decoding.protobuf import load_protobuf

    for name, said in (
        ("gone.proto", "No such file"),
        ("gone.desc", "No such file"),
        ("text.desc", "is not a descriptor set"),
    ):
        (tmp_path / "text.desc").write_text("hello")
        with pytest.raises(ConfigError, match=said):
            load_protobuf(tmp_path / name, "", False)


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_a_missing_package_is_named_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eruca._spark.decoding.avro import load_avro
    from eruca._spark.decoding.protobuf import load_protobuf

    find = importlib.util.find_spec
    hidden = {"fastavro", "google.protobuf", "grpc_tools"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in hidden else find(name))
    with pytest.raises(ConfigError, match=r'decode_avro needs fastavro \(pip install "eruca\[decoding\]"'):
        load_avro(tmp_path / "x.avsc", None)
    with pytest.raises(ConfigError, match=r'decode_protobuf needs protobuf \(pip install "eruca\[decoding\]"'):
        load_protobuf(tmp_path / "x.desc", "", False)
    hidden.remove("google.protobuf")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no compiler .* can read .*x.proto \(pip install grpcio-tools"):
        load_protobuf(tmp_path / "x.proto", "", False)


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["json", *[pytest.param(kind, marks=pytest.mark.whole) for kind in ("avro", "protobuf")]]
)
def test_the_stream_goes_on_and_bad_rows_are_in_a_side_table_once(
    kind: str, spark: Any, proto: Path, tmp_path: Path
) -> None:
    """Two runs over a folder of bodies, with a micro-batch whose good rows could not be written at first."""
    avro = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    schema = save_schema(tmp_path / "r.avsc", avro)
    line = make_message(proto, "shop.Line")
    line.sku = "melon"
    cases: dict[str, tuple[bytes, Callable[[Any], Any]]] = {
        "json": (b'{"n":1}', lambda frame: decode_json(frame, "n int")),
        "avro": (write_avro(avro, {"n": 1}), lambda frame: decode_avro(frame, schema)),
        "protobuf": (line.SerializeToString(), lambda frame: decode_protobuf(frame, proto, "shop.Line")),
    }
    body, decode = cases[kind]
    bodies, good, bad = (str(tmp_path / name) for name in ("bodies", "good", "bad"))
    failures = [1]

    def write(frame: Any, batch: int) -> None:
        if batch in failures:
            failures.remove(batch)
            raise OSError("no room")
        frame.write.mode("append").parquet(good)

    def run() -> Any:
        decoded = decode(spark.readStream.schema("number int, body binary").parquet(bodies))
        writer = decoded.writeStream.foreachBatch(set_bad_aside(write, bad))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(PATIENCE_S)
        except StreamingQueryException as problem:
            return str(problem)
        return query.exception()

    for outcomes in ([None], ["no room", None]):
        make_frame(spark, [body, b"\xff" * 3, body]).coalesce(1).write.mode("append").parquet(bodies)
        for outcome in outcomes:
            said = run()
            assert said is None if outcome is None else outcome in said, said
    assert spark.read.parquet(good).count() == 4
    rows = spark.read.parquet(bad).orderBy("batch").collect()
    assert [(row.batch, bytes(row.body)) for row in rows] == [(0, b"\xff" * 3), (1, b"\xff" * 3)]
    assert all(row.error for row in rows)


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_any_bytes_give_a_value_or_a_reason(kind: str, proto: Path, tmp_path: Path) -> None:
    """Random bytes, and good bodies with some bytes changed; in this process, without Spark."""
    import pyarrow as pa

    from eruca._spark.decoding.avro import load_avro
    from eruca._spark.decoding.bodies import BodySchema, decode_bodies
    from eruca._spark.decoding.protobuf import load_protobuf

    schema: BodySchema
    if kind == "avro":
        raw = {**ORDER, "clock": (datetime.min + timedelta(milliseconds=ORDER["clock"])).time()}
        sample, schema = write_avro(AVRO, raw), load_avro(save_schema(tmp_path / "order.avsc", AVRO), None)
    else:
        sample, schema = fill(make_message(proto)), load_protobuf(proto, "shop.Order", False)
    chance = random.Random(7)
    bodies = [chance.randbytes(chance.randrange(60)) for _ in range(500)]
    for _ in range(1500):
        changed = bytearray(sample)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        bodies.append(bytes(changed[: chance.choice([len(changed), chance.randrange(len(changed))])]))
    decoded = decode_bodies(schema, pa.array(bodies, pa.binary()))
    assert len(decoded) == len(bodies)
    decoded.validate(full=True)
    rows = decoded.to_pylist()
    assert all((row["value"] is None) == (row["error"] is not None) for row in rows)
    bad = sum(row["error"] is not None for row in rows)
    assert 0 < bad < len(rows)
    note_figures(f"decoding: {len(rows)} {kind} bodies of random bytes (seed 7), {bad} with a reason")


def test_times_are_right_in_another_time_zone(spark: Any, proto: Path, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}  # fmt: skip
    order = make_message(proto)
    order.at.FromJsonString("2026-11-15T07:21:06Z")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    try:
        json_body = make_frame(spark, [b'{"at":"2026-11-15T07:21:06Z"}'])
        avro_body = make_frame(spark, [write_avro(schema, {"at": datetime(2026, 11, 15, 7, 21, 6, tzinfo=UTC)})])
        decoded = [
            decode_json(json_body, "at timestamp"),
            decode_avro(avro_body, save_schema(tmp_path / "r.avsc", schema)),
            decode_protobuf(make_frame(spark, [order.SerializeToString()]), proto, "shop.Order"),
        ]
        shown = [row.shown for frame in decoded for row in frame.selectExpr("string(value.at) AS shown").collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert shown == ["2026-11-15 15:21:06"] * 3


def test_a_body_is_decoded_once(spark: Any, proto: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark may move a filter below what it filters on, and would decode everything for each filter again."""
    good, _ = split_bad(decode_json(make_frame(spark, [b"{}"]), "n int"))
    good.explain()
    assert capsys.readouterr().out.count("from_json(") == 1
    good, bad = split_bad(decode_protobuf(make_frame(spark, [b"{}"]), proto, "shop.Order"))
    for frame in (good, bad):
        frame.explain()
        assert capsys.readouterr().out.count("ArrowEvalPython") == 1

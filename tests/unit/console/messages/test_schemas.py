"""The file that names the schemas of topics: Avro and Protobuf, from files and from a local registry."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from eruca._console.messages.schemas import load_decoder
from eruca._schemas.protobuf import compile_file, find_type
from eruca.errors import ConfigError

RECORD = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "cents", "type": "long"}],
}
PROTO = 'syntax = "proto3"; package shop; message Order { string id = 1; int64 cents = 2; }'
VALUE = {"id": "o-1", "cents": 1999}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "order.avsc").write_text(json.dumps(RECORD))
    (tmp_path / "order.proto").write_text(PROTO)
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry" / "7.avsc").write_text(json.dumps(RECORD))
    (tmp_path / "registry" / "8.proto").write_text(PROTO)
    return tmp_path


def write_avro() -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(RECORD), VALUE)
    return stream.getvalue()


def write_protobuf(folder: Path) -> bytes:
    from google.protobuf.message_factory import GetMessageClass

    data: bytes = GetMessageClass(find_type(compile_file(folder / "order.proto"), "shop.Order"))(
        **VALUE
    ).SerializeToString()
    return data


def test_bodies_of_all_kinds_are_decoded(folder: Path) -> None:
    (folder / "schemas.yml").write_text(
        "avro-: {format: avro, schema: order.avsc}\n"
        "proto-: {format: protobuf, schema: order.proto, message: shop.Order}\n"
        "framed-: {format: avro, registry: registry}\n"
        "framed-proto-: {format: protobuf, registry: registry}\n"
    )
    decoder = load_decoder(folder / "schemas.yml")
    avro, proto = write_avro(), write_protobuf(folder)
    bodies = {
        "avro-1": (avro, "avro", VALUE),
        "proto-1": (proto, "protobuf", {"id": "o-1", "cents": "1999"}),
        "framed-1": (b"\0" + (7).to_bytes(4, "big") + avro, "avro", VALUE),
        "framed-proto-1": (b"\0" + (8).to_bytes(4, "big") + b"\0" + proto, "protobuf", {"id": "o-1", "cents": "1999"}),
    }
    for topic, (body, kind, value) in bodies.items():
        found = decoder.decode(topic, body)
        assert (found.kind, found.value, found.reason) == (kind, value, ""), topic
        assert decoder.decode(topic, b"\xff").reason.startswith(f"{kind}: "), topic
    assert decoder.decode("framed-1", b"\0" + (9).to_bytes(4, "big") + avro).reason.endswith(
        f"in {folder / 'registry'}"
    )
    assert decoder.decode("other", b"{}").kind == "json"
    assert load_decoder(None).decode("avro-1", b"{}").kind == "json"


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ("orders: avro", "expected format"),
        ("orders: {format: xml, schema: a}", "avro or protobuf"),
        ("orders: {format: avro}", "a schema or a registry"),
        ("orders: {format: avro, schema: a, registry: b}", "a schema or a registry"),
        ("orders: {format: avro, schema: a, password: b}", "expected format"),
        ("orders: {format: avro, schema: missing.avsc}", "missing.avsc"),
        ("orders: {format: avro, registry: 'ftp://x'}", "http://"),
        ("orders: {format: protobuf, schema: order.proto, message: shop.Other}", "has no message shop.Other"),
        ("- a", "not a mapping"),
    ],
)
def test_mistakes_are_named_when_the_console_starts(folder: Path, facts: Any, problem: str) -> None:
    (folder / "schemas.yml").write_text(facts)
    with pytest.raises(ConfigError, match=problem):
        load_decoder(folder / "schemas.yml")

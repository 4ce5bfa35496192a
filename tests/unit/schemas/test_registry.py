"""Schemas by id: addresses, local directories and files, and what a process keeps of them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from eruca import Tls
from eruca._ground.limits import SCHEMAS_MAX
from eruca._schemas.bodies import BadBody
from eruca._schemas.registry import AVRO, PROTOBUF, RemoteSource, SchemaCache, SchemaRegistry, open_source
from eruca.errors import ConfigError, ConnectFailed
from tests.authority import Authority

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
PROTO = 'syntax = "proto3"; package shop; message Order { string id = 1; }'


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"place": "ftp://registry"}, "does not begin with http:// or https://"),
        ({"place": "https://ann:hush@registry"}, "https://registry, contains a user or password"),
        ({"place": "https://"}, "is not an address"),
        ({"place": "https://registry:http"}, "is not an address"),
        ({"place": "https://registry?x=1"}, "is not an address"),
        ({"place": "http://registry", "tls": Tls()}, "is plain, but tls= is given"),
        ({"place": "https://registry", "tls": Tls(ca="/no/ca.pem")}, "ca.pem"),
        ({"place": "https://registry", "timeout": 0}, "timeout=0"),
        ({"place": "https://registry", "retries": -1}, "retries=-1"),
        ({"place": "schemas", "login_file": "login.yml"}, "is a local path"),
        ({"place": "schemas", "tls": Tls()}, "is a local path"),
    ],
)
def test_mistakes_are_named_at_once(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        SchemaRegistry(**how)
    assert "hush" not in str(caught.value)


def test_a_registry_can_be_sent_to_tasks_and_has_no_secrets(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    registry = SchemaRegistry("https://registry:8081/apis", tls=Tls(ca=authority.ca), login_file="/etc/login.yml")
    source = open_source(registry)
    assert source == RemoteSource(registry)
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source and hash(copy) == hash(source)


# -- local files -------------------------------------------------------------------------------------------------------


def test_the_files_of_a_directory_are_named_by_ids(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(RECORD))
    (tmp_path / "8.proto").write_text('syntax = "proto3"; import "line.proto"; message Order { Line line = 1; }')
    (tmp_path / "line.proto").write_text('syntax = "proto3"; message Line { string sku = 1; }')
    (tmp_path / "notes.avsc").write_text("not a schema")
    source = open_source(SchemaRegistry(tmp_path))
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source and hash(copy) == hash(source)
    schemas = copy.open()
    assert schemas.find(7).kind == AVRO and json.loads(schemas.find(7).text)["fields"] == RECORD["fields"]
    assert schemas.find(8).kind == PROTOBUF and b"Line" in schemas.find(8).descriptors
    with pytest.raises(BadBody, match=f"there is no schema 9 in {tmp_path}"):
        schemas.find(9)
    with pytest.raises(ConfigError, match="but no subject orders"):
        schemas.find_latest("orders")
    (tmp_path / "7.proto").write_text(PROTO)
    with pytest.raises(ConfigError, match="two files for schema 7"):
        open_source(SchemaRegistry(tmp_path))


def test_a_file_has_schemas_or_what_a_registry_answers(tmp_path: Path) -> None:
    place = tmp_path / "schemas.json"
    place.write_text(
        json.dumps({
            "1": RECORD,
            "2": json.dumps(RECORD),
            "3": {"schema": json.dumps(RECORD)},
            "4": PROTO,
            "5": {"schema": PROTO, "schemaType": "PROTOBUF"},
            "6": "bytes".join('""'),
            "7": {"schema": "{}", "schemaType": "JSON"},
        })
    )  # fmt: skip
    schemas = open_source(SchemaRegistry(place)).open()
    assert [schemas.find(number).kind for number in range(1, 8)] == [AVRO] * 3 + [PROTOBUF] * 2 + [AVRO, "JSON"]
    assert all(json.loads(schemas.find(number).text) == RECORD for number in (1, 2, 3))
    assert schemas.find(4) == schemas.find(5)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello", "is not JSON"),
        ("[]", "is not an object of schemas by id"),
        ("{}", "is not an object of schemas by id"),
        ('{"order": {}}', "is not an object of schemas by id"),
        ('{"7": 3}', "schema 7 is neither a schema nor a text"),
        ('{"7": "message {"}', "schema 7: .*Protobuf"),
        ('{"7": {"schema": "{}", "references": [{}]}}', "schema 7 has references"),
    ],
)
def test_a_file_that_cannot_be_used(content: str, said: str, tmp_path: Path) -> None:
    place = tmp_path / "schemas.json"
    place.write_text(content)
    with pytest.raises(ConfigError, match=said):
        open_source(SchemaRegistry(place))


def test_a_place_without_schemas(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no schema \(files are named by the id"):
        open_source(SchemaRegistry(tmp_path))
    with pytest.raises(ConfigError, match=r"gone\.json: No such file"):
        open_source(SchemaRegistry(tmp_path / "gone.json"))


# -- what a process keeps ----------------------------------------------------------------------------------------------


def test_a_schema_is_found_once_and_an_unknown_one_again_after_a_while() -> None:
    asked: list[int] = []
    known = {1}
    now = 0.0

    def make(schema_id: int) -> str:
        asked.append(schema_id)
        if schema_id == 3:
            raise ConnectFailed("no answer")
        if schema_id not in known:
            raise BadBody(f"no {schema_id}")
        return f"schema {schema_id}"

    cache = SchemaCache(make, now=lambda: now)
    assert [cache.get(1), cache.get(1)] == ["schema 1"] * 2
    for _ in range(2):
        with pytest.raises(BadBody, match="no 2"):
            cache.get(2)
    assert asked == [1, 2]
    known.add(2)
    now = 60.0
    assert cache.get(2) == "schema 2" and cache.get(1) == "schema 1"
    assert asked == [1, 2, 2]
    # Nothing is kept of a registry that does not answer.
    for _ in range(2):
        with pytest.raises(ConnectFailed):
            cache.get(3)
    assert asked[3:] == [3, 3]


def test_a_process_keeps_a_bounded_number() -> None:
    asked: list[int] = []

    def make(schema_id: int) -> int:
        asked.append(schema_id)
        return schema_id

    cache = SchemaCache(make)
    for number in range(SCHEMAS_MAX):
        cache.get(number)
    cache.get(0)
    cache.get(SCHEMAS_MAX)
    assert len(asked) == SCHEMAS_MAX + 1
    # The one that was not used for longest is gone.
    cache.get(0)
    assert len(asked) == SCHEMAS_MAX + 1
    cache.get(1)
    assert asked[-1] == 1

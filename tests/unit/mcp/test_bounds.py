"""Answers of tools: bounded, without secrets, with notes on what was cut."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from eruca._mcp.bounds import BYTES_MAX, ROWS_MAX, write_answer, write_error
from eruca.errors import NetError


class Row(msgspec.Struct):
    name: str
    wait: timedelta | None = None
    body: bytes = b""


def test_a_small_answer_is_complete_and_has_no_notes() -> None:
    text = write_answer({"rows": [Row("a", timedelta(seconds=90), b"\xffx")], "at": datetime(2026, 11, 15, tzinfo=UTC)})
    assert json.loads(text) == {
        "rows": [{"name": "a", "wait": 90.0, "body": "\\xffx"}],
        "at": "2026-11-15T00:00:00Z",
    }


@pytest.mark.parametrize("width", [1, 50, 5_000])
def test_a_long_list_is_cut_with_a_note(width: int) -> None:
    text = write_answer({"rows": [Row("x" * width) for _ in range(10_000)]}, ["said before"])
    answer = json.loads(text)
    assert len(text.encode()) <= BYTES_MAX
    assert 0 < len(answer["rows"]) <= ROWS_MAX
    assert answer["notes"][0] == "said before"
    assert f"rows: {len(answer['rows'])} of 10000 rows are shown" in answer["notes"][1]


def test_a_long_text_and_a_wide_map_are_cut_with_a_note() -> None:
    answer = json.loads(write_answer({"stack": "x" * 100_000, "options": {f"o{n}": "y" for n in range(1000)}}))
    assert len(answer["stack"]) == 2003
    assert len(answer["options"]) == ROWS_MAX
    assert len(answer["notes"]) == 2


def test_what_cannot_be_cut_is_not_returned() -> None:
    deep = {str(n): {str(m): "x" * 90 for m in range(40)} for n in range(40)}
    text = write_answer(deep)
    assert len(text.encode()) <= BYTES_MAX and "ask for less" in text


@pytest.mark.parametrize(
    "name", ["secretKey", "accessKey", "access_key", "tlsKeyPassword", "etcdPasswd", "securityToken", "privateKey"]
)
def test_secrets_are_hidden(name: str) -> None:
    text = write_answer({"brokers": [{"options": {name: "s3cr3t", "brokerName": "broker-a"}}]})
    assert "s3cr3t" not in text and json.loads(text)["brokers"][0]["options"] == {name: "***", "brokerName": "broker-a"}


def test_passwords_in_addresses_are_hidden() -> None:
    text = write_answer({"etcd": ["http://root:s3cr3t@127.0.0.1:2379"], "error": "cannot reach http://:s3cr3t@h:1/"})
    assert "s3cr3t" not in text and "http://***@127.0.0.1:2379" in text


def test_an_error_is_short_and_shows_no_password() -> None:
    """It may quote what a server answered."""
    text = write_error(NetError("http://root:s3cr3t@h:1 " + "x" * 100_000, hint="wait"))
    assert "s3cr3t" not in text and len(text) == 2003
    assert write_error(NetError("no answer", hint="wait")) == str(NetError("no answer", hint="wait"))

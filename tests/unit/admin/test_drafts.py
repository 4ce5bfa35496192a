"""Messages that are not sent yet: what is refused, what a copy keeps, and lines of JSON."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from eruca._admin.drafts import Draft, check_draft, copy_message, read_lines
from eruca._admin.storedmessages import StoredMessage, make_row
from eruca.errors import ConfigError, ErucaError


def make_message(**facts: Any) -> StoredMessage:
    """A stored message."""
    known: dict[str, Any] = {
        "topic": "orders",
        "stored_in": "orders",
        "broker": "broker-a",
        "queue": 1,
        "offset": 7,
        "message_id": "7F000001000026A20000000000000000",
        "offset_id": "7F00000100002A9F0000000000000123",
        "origin_id": "7F00000100002A9F0000000000000123",
        "tags": "paid",
        "keys": ["order-7", "customer-3"],
        "properties": {"KEYS": "order-7 customer-3", "TAGS": "paid", "UNIQ_KEY": "7F", "WAIT": "true", "region": "eu"},
        "body": b'{"amount": 12}',
        "body_is_packed": False,
        "born_at": None,
        "stored_at": None,
        "born_host": "10.0.0.7:40000",
        "store_host": "10.0.0.1:10911",
        "tries": 0,
        "position": 291,
        "size": 200,
    }
    return StoredMessage(**known | facts)


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"body": b""}, "empty"),
        ({"topic": "a/b"}, "a/b"),
        ({"properties": {"": "x"}}, "must not be empty"),
        ({"properties": {"x": ""}}, "must not be empty"),
        ({"properties": {"UNIQ_KEY": "x"}}, "UNIQ_KEY: the name is reserved"),
        ({"properties": {"DELAY": "3"}}, "DELAY: the name is reserved"),
        # It would cancel another message.
        ({"properties": {"TIMER_DEL_UNIQKEY": "x"}}, "TIMER_DEL_UNIQKEY: the name is reserved"),
        ({"keys": ["a b"]}, "a key has no spaces"),
        ({"keys": [""]}, "a key has no spaces"),
        ({"delay": timedelta(seconds=7)}, "no such delay level"),
        ({"shard": "a", "broker": "broker-a", "queue": 0}, "mutually exclusive"),
    ],
)
def test_what_cannot_be_sent_is_refused(facts: dict[str, Any], problem: str) -> None:
    with pytest.raises(ErucaError, match=problem):
        check_draft(Draft(**{"topic": "orders", "body": b"x", **facts}))


def test_what_can_be_sent_is_returned() -> None:
    for facts in ({}, {"delay": timedelta(seconds=30)}, {"delay": timedelta(seconds=7), "is_timer": True}):
        draft = Draft(topic="orders", body=b"x", keys=["a"], properties={"region": "eu"}, **facts)
        assert check_draft(draft) is draft


def test_a_copy_has_what_the_sender_wrote() -> None:
    message = make_message(properties={**make_message().properties, "RETRY_TOPIC": "orders", "TIMER_OUT_MS": "5"})
    copied = copy_message(message, "archive")
    assert copied == Draft(
        topic="archive",
        body=message.body,
        tags="paid",
        keys=["order-7", "customer-3"],
        properties={"region": "eu"},
    )
    assert check_draft(copied) is copied


def test_a_printed_message_can_be_imported() -> None:
    """The shape that commands and exports print is the one that is read."""
    for body in (b"hello", b"\x00\xff", '{"city": "上海"}'.encode()):
        message = make_message(body=body)
        (line,) = read_lines(json.dumps(make_row(message)).encode(), "archive", lines_max=5)
        assert line.draft == copy_message(message, "archive")


def test_lines_have_outcomes_of_their_own() -> None:
    rows: list[Any] = [
        {"body": "text", "keys": "a b", "tags": "t", "shard": "s"},
        {"body": {"amount": 1}},
        {"body_base64": base64.b64encode(b"\x00").decode()},
        [],
        {"tags": "x"},
        {"body_base64": "??"},
        {"body_base64": "é"},
        {"body": "x", "keys": [1]},
        {"body": "x", "keys": ["a b"]},
        {"body": "x", "properties": ["a"]},
        {"body": "x", "properties": {"a": 1}},
        {"body": ""},
    ]
    data = b"\n\n".join([*(msgspec.json.encode(row) for row in rows), b"{not json", b"[" * 100_000])
    lines = list(read_lines(data, "orders", lines_max=20))
    assert [line.line for line in lines] == list(range(1, 2 * len(lines), 2))
    drafts = [line.draft for line in lines if line.draft is not None]
    assert [(draft.body, draft.keys, draft.tags, draft.shard) for draft in drafts] == [
        (b"text", ["a", "b"], "t", "s"),
        (b'{"amount":1}', [], "", ""),
        (b"\x00", [], "", ""),
    ]
    problems = [line.problem for line in lines if line.draft is None]
    wanted = [
        "not a JSON object",
        "neither body",
        "not base64",
        "not base64",
        "a key is not",
        "no spaces",
        "keys are",
        "property a",
    ]
    for problem, part in zip(problems, [*wanted, "empty", "not JSON", "not JSON"], strict=True):
        assert part in problem, (problem, part)


def test_too_many_lines_are_refused() -> None:
    assert len(list(read_lines(b'{"body":"x"}\n' * 3, "orders", lines_max=3))) == 3
    with pytest.raises(ConfigError, match="more than 3 messages"):
        list(read_lines(b'{"body":"x"}\n' * 4, "orders", lines_max=3))

"""How one user sees a message: decoded, in each format, and without the fields that are hidden from the user."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eruca._admin.storedmessages import make_row
from eruca._console.identity.masking import MASK, Mask
from eruca._console.messages.decoding import Decoder, Schema, decode_json
from eruca._console.messages.filtering import parse_filter
from eruca._console.messages.viewing import MessageView, write_hex
from eruca._ground.limits import CONSOLE_BODY_BYTES_MAX, CONSOLE_BODY_DEPTH_MAX
from tests.unit.admin.test_drafts import make_message

BODY = {"amount": 12, "card": {"number": "4711", "owner": "ann"}}
HIDDEN = Mask(frozenset({("card", "number")}), frozenset({"token", "KEYS"}))


def view(body: bytes, mask: Mask | None = None, decoder: Decoder | None = None, **facts: Any) -> MessageView:
    """A message with a body, as a user with a mask sees it."""
    return MessageView(make_message(body=body, **facts), mask or Mask(), decoder or Decoder())


def test_json_is_indented_and_the_text_is_as_it_came() -> None:
    shown = view(json.dumps(BODY).encode())
    assert (shown.decoded.kind, shown.decoded.value) == ("json", BODY)
    assert json.loads(shown.show("decoded").text) == BODY and "\n  " in shown.show("decoded").text
    assert shown.show("text").text == json.dumps(BODY)
    assert shown.show("hex").text.startswith("00000000  7b 22 61 6d")
    assert shown.make_row() == make_row(make_message(body=json.dumps(BODY).encode()))


@pytest.mark.parametrize("body", [b"{", b"{]", b"[" * 200_000, b"5", b"null", b""])
def test_what_only_begins_like_json_is_text(body: bytes) -> None:
    assert decode_json(body).kind == "text" and decode_json(body).value is None


def test_bytes_are_shown_as_hex() -> None:
    shown = view(bytes(range(256)))
    for format in ("decoded", "text", "hex"):
        found = shown.show(format)
        assert (found.format, found.kind, found.size) == ("hex", "bytes", 256)
    assert shown.preview == "<256 bytes>" and shown["body"] is None
    assert write_hex(b"ab\x00").startswith("00000000  61 62 00 ") and write_hex(b"ab\x00").endswith("ab.")


def test_control_characters_do_not_reach_the_page() -> None:
    shown = view(b"a\x1b[31m\nb\x00")
    assert shown.show("text").text == "a\\x1b[31m\nb\\x00"
    assert shown.preview == "a\\x1b[31m b\\x00"


def test_long_bodies_are_cut() -> None:
    shown = view(b"a" * (CONSOLE_BODY_BYTES_MAX + 1))
    assert shown.show("text").cut and len(shown.show("text").text) == CONSOLE_BODY_BYTES_MAX
    assert len(shown.preview) == 160
    # A character at the cut is left out, not taken for bytes that are not text.
    split = view(b"a" * (CONSOLE_BODY_BYTES_MAX - 1) + "上海".encode())
    assert split.text == "a" * (CONSOLE_BODY_BYTES_MAX - 1)


@pytest.mark.parametrize("levels", [CONSOLE_BODY_DEPTH_MAX + 1, 500, 900, 40_000])
@pytest.mark.parametrize("mask", [Mask(), HIDDEN])
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_bodies_that_nest_too_deep_are_text(levels: int, mask: Mask, begin: bytes, end: bytes) -> None:
    """Whoever sends such a body must not break the list in which it is."""
    body = begin * levels + b"1" + end * levels
    found = view(body, mask)
    value, text = (MASK, MASK) if mask is HIDDEN else (None, body.decode())
    assert (found.decoded.kind, found.decoded.value, found.text) == ("text", value, text)
    assert found.make_row()["body"] == found.show("text").text == text and found.preview
    assert len(found.show("decoded").text) > 1
    assert parse_filter("body contains 'x' or body.a.b = 1").matches(found) is False


def test_a_schema_whose_values_nest_too_deep_says_so() -> None:
    deep: Any = 1
    for _ in range(CONSOLE_BODY_DEPTH_MAX + 1):
        deep = [deep]
    found = view(b"x", decoder=Decoder({"": Schema("avro", lambda body: deep)})).decoded
    assert (found.kind, found.value) == ("text", None) and "nested deeper than" in found.reason


# -- hidden fields -----------------------------------------------------------------------------------------------------


def test_a_hidden_field_is_nowhere() -> None:
    """Neither in a format, a row, a preview, a property nor a filter."""
    properties = {"KEYS": "key-4711", "token": "4711", "region": "eu"}
    shown = view(json.dumps(BODY).encode(), HIDDEN, properties=properties, keys=["key-4711"])
    seen = [shown.show(each).text for each in ("decoded", "text", "hex")]
    seen += [json.dumps(shown.make_row()), shown.preview, str(shown.properties), str(shown.keys), repr(shown.facts)]
    assert not [text for text in seen if "4711" in text or b"4711".hex(" ") in text]
    assert "NDcxMQ" not in json.dumps(shown.make_row())  # in base64
    for text in ("body.card.number = '4711'", "body contains '4711'", "properties.token = '4711'", "keys = 'key-4711'"):
        assert not parse_filter(text).matches(shown), text
    assert parse_filter(f"body.card.number = '{MASK}' and body.card.owner = 'ann' and body.amount = 12").matches(shown)
    assert shown.is_masked and shown.show("decoded").masked


def test_a_body_that_cannot_be_looked_into_is_hidden_as_a_whole() -> None:
    for body in (b"card 4711", b"\x004711\xff", b'{"card": 4711'):
        shown = view(body, HIDDEN)
        assert shown.show("text").text == MASK and "4711" not in shown.show("hex").text, body
        assert shown.preview == MASK and shown.make_row()["body"] == MASK


# -- schemas -----------------------------------------------------------------------------------------------------------


def test_the_longest_beginning_of_a_topic_has_its_schema() -> None:
    decoder = Decoder(
        {
            "": Schema("avro", lambda body: {"all": True}),
            "orders-": Schema("avro", lambda body: {"some": True}),
            "orders-eu": Schema("protobuf", lambda body: {"one": True}),
        }
    )
    found = [decoder.decode(topic, b"x").value for topic in ("a", "orders", "orders-us", "orders-eu-1")]
    assert found == [{"all": True}, {"all": True}, {"some": True}, {"one": True}]


def test_a_body_that_does_not_match_its_schema_is_shown_with_the_reason() -> None:
    def fail(body: bytes) -> Any:
        raise EOFError("too short")

    shown = view(b'{"a": 1}', decoder=Decoder({"orders": Schema("avro", fail)})).show("decoded")
    assert (shown.kind, shown.reason) == ("json", "avro: EOFError: too short")
    decoded = view(b"\x00", HIDDEN, Decoder({"orders": Schema("avro", lambda body: BODY)}))
    assert decoded.decoded.value == {"amount": 12, "card": {"number": MASK, "owner": "ann"}}
    assert decoded.preview == '{"amount":12,"card":{"number":"******","owner":"ann"}}'


async def test_a_schema_that_may_ask_a_registry_is_not_used_on_the_loop() -> None:
    import threading

    threads: list[str] = []

    def decode(body: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return {"a": 1}

    shown = view(b"x", decoder=Decoder({"orders": Schema("avro", decode, is_slow=True)}))
    await shown.prepare()
    assert shown.decoded.value == {"a": 1} and len(threads) == 1 and threads[0] != threading.main_thread().name

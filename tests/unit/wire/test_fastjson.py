"""The fastjson dialect: odd keys in, the same keys out, and nothing that eats memory or the stack."""

from __future__ import annotations

import time
from enum import StrEnum

import msgspec
import pytest

from eruca._ground.limits import JSON_DEPTH_MAX
from eruca._wire import fastjson
from eruca._wire.bodies import MessageQueue
from eruca._wire.fastjson import FastjsonError, parse, rewrite_to_strict, write, write_double

QUEUE_TEXT = '{"brokerName":"b","queueId":3,"topic":"T"}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"{}", {}),
        (b'{"a":[1,2.5,true,null,"x"]}', {"a": [1, 2.5, True, None, "x"]}),
        (b'{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        (b"{-1:0}", {"-1": 0}),
        (b'{ 0 : "a" ,\n1:"b" }', {"0": "a", "1": "b"}),
        (b"{name:1,_x$:2}", {"name": 1, "_x$": 2}),
        (b'{"T@G":{0:3,1:2}}', {"T@G": {"0": 3, "1": 2}}),
        (b'[{0:1},{"a":{1:[{2:{}}]}}]', [{"0": 1}, {"a": {"1": [{"2": {}}]}}]),
        (b'{{"brokerName":"b","queueId":3,"topic":"T"}:5}', {QUEUE_TEXT: 5}),
        (b'{{"topic":"T","queueId":3,"brokerName":"b"}:5}', {QUEUE_TEXT: 5}),
        (b'{ {"topic":"T", "queueId":3, "brokerName":"b"} :{0:1}, {}:2}', {QUEUE_TEXT: {"0": 1}, "{}": 2}),
        (b'{{brokerName:"b",queueId:3,topic:"T"}:5}', {QUEUE_TEXT: 5}),
        (b'{"{\\"brokerName\\":\\"b\\",\\"queueId\\":3,\\"topic\\":\\"T\\"}":5}', {QUEUE_TEXT: 5}),
        (b'{0:"{1:2}",1:"\\"{","x\\\\":"}"}', {"0": "{1:2}", "1": '"{', "x\\": "}"}),
        ('{0:"中\\u0001"}'.encode(), {"0": "中\x01"}),
    ],
)
def test_parse(text: bytes, value: object) -> None:
    assert parse(text) == value


def test_strict_text_is_left_as_it_is() -> None:
    text = b' {"a" : [1, {"b":"}{"} ] } '
    assert rewrite_to_strict(text) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not JSON"),
        (b"{0:1", "the text ends inside an object or a list"),
        (b"{0:1]", "']' closes nothing \\(byte 4\\)"),
        (b"}", "'}' closes nothing \\(byte 0\\)"),
        (b'{0:"abc}', "a string does not end \\(byte 3\\)"),
        (b'{0:1}"', "a string does not end \\(byte 5\\)"),
        (b"{0:1,,}", "not JSON"),
        (b"{0:1}{", "the text ends inside"),
        (b"{0:1}{}", "not JSON"),
        (b"{0:nul}", "not JSON"),
        (b"{0x1F:1}", "b'0x1F' is not a map key \\(byte 1\\)"),
        (b"{'a':1}", "b\"'a'\" is not a map key"),
        (b"{1.5:1}", "b'1.5' is not a map key"),
        (b"{[1]:1}", "a map key holds more than scalars \\(byte 1\\)"),
        (b'{{"a":{}}:1}', "a map key holds more than scalars \\(byte 6\\)"),
        (b'{{{"a":1}:1}:1}', "a map key holds more than scalars \\(byte 2\\)"),
        (b"{{0}:1}", "an object key is not JSON"),
        (b'{0:"\xff"}', "not JSON"),
    ],
)
def test_errors_say_what_is_wrong(text: bytes, message: str) -> None:
    with pytest.raises(FastjsonError, match=message):
        parse(text)


@pytest.mark.parametrize(
    "text", [b"[" * 200_000, b'{"a":' * 200_000, b"{" * 200_000, b"{0:" * 200_000, b"[{0:" * 100_000]
)
def test_nesting_bombs_are_refused(text: bytes) -> None:
    with pytest.raises(FastjsonError, match=r"nested deeper than 64|more than scalars"):
        parse(text)


def test_nesting_is_bounded_for_strict_json_too() -> None:
    assert parse(b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX)
    with pytest.raises(FastjsonError, match="nested deeper than 64"):
        parse(b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1))


def test_long_texts_take_linear_time() -> None:
    def measure(size: int) -> float:
        start = time.perf_counter()
        with pytest.raises(FastjsonError):
            parse(b'{0:"' + b"\\" * size)
        return time.perf_counter() - start

    # Trying every split of these backslashes would take minutes.
    assert measure(2_000_000) < 5


def test_many_colliding_keys_are_only_keys() -> None:
    text = b"{" + b",".join(b"%d:0" % (number << 64) for number in range(20_000)) + b"}"
    assert len(parse(text)) == 20_000


# --- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.25, "0.25"),
        (0.016666666666666666, "0.016666666666666666"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (1.5e-7, "1.5E-7"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (1e10, "1.0E10"),
        (-1.25e21, "-1.25E21"),
        (12345678.9, "1.23456789E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "5.0E-324"),
        (float("nan"), "null"),
        (float("inf"), "null"),
    ],
)
def test_doubles_look_like_java(value: float, text: str) -> None:
    assert write_double(value) == text


class Colour(StrEnum):
    RED = "RED"


class Sample(msgspec.Struct, rename="camel"):
    zebra: int
    apple_pie: str | None = None
    mango: object = msgspec.UNSET


def test_write_is_compact_alphabetical_and_without_nulls() -> None:
    assert write(Sample(1, "x", [Colour.RED, True, False, None, 1.5, b"ab"])) == (
        b'{"applePie":"x","mango":["RED",true,false,null,1.5,"YWI="],"zebra":1}'
    )
    assert write(Sample(1)) == b'{"zebra":1}'
    assert write({"a": None, "b": [], "c": {}}) == b'{"b":[],"c":{}}'
    assert write({Colour.RED: 1}) == b'{"RED":1}'
    assert write("a\u0001\n\u2028/中") == '"a\\u0001\\n\\u2028/中"'.encode()


def test_keys_by_choice() -> None:
    queue = MessageQueue("b", 3, "T")
    assert write({0: {1: "x"}}) == b'{"0":{"1":"x"}}'
    assert write({0: {1: "x"}}, bare_int_keys=True) == b'{0:{1:"x"}}'
    assert write({queue: 5}).decode() == f"{{{QUEUE_TEXT}:5}}"
    quoted = write({queue: 5}, quote_object_keys=True)
    assert msgspec.json.decode(quoted) == {QUEUE_TEXT: 5}
    assert parse(write({queue: {0: 1}}, bare_int_keys=True)) == {QUEUE_TEXT: {"0": 1}}


def test_write_refuses_what_has_no_form() -> None:
    with pytest.raises(FastjsonError, match="object has no JSON form"):
        write({"a": object()})
    with pytest.raises(FastjsonError, match="cannot be written as UTF-8"):
        write({"a": "\ud800"})
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(FastjsonError, match="nested deeper than 64"):
        fastjson.write(endless)

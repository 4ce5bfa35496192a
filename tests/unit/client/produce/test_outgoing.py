"""What a user sets on a message: properties as they are on the wire, and every limit with a clear error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest

from eruca._client.produce.choosing import choose_queue
from eruca._client.produce.outgoing import (
    Outgoing,
    build_properties,
    check_body,
    check_flag,
    describe_delay,
    find_delay_level,
)
from eruca._ground.limits import PROPERTIES_BYTES_MAX
from eruca._wire.properties import RESERVED, parse_properties
from eruca.errors import ConfigError, MessageIllegal, WrongType

ID = "7F00000100010000000000000000000A"


def test_a_plain_message_has_an_id_and_waits() -> None:
    assert build_properties(ID) == f"UNIQ_KEY\x01{ID}\x02WAIT\x01true"
    assert build_properties(ID, wait=False) == f"UNIQ_KEY\x01{ID}\x02WAIT\x01false"


def test_everything_a_user_may_say() -> None:
    text = build_properties(ID, "vip", ["o-1", "o-2"], {"a": "1", "b": "ü"}, True, {"DELAY": "3", "PGROUP": "g"})
    assert parse_properties(text) == {
        "UNIQ_KEY": ID,
        "WAIT": "true",
        "TAGS": "vip",
        "KEYS": "o-1 o-2",
        "DELAY": "3",
        "a": "1",
        "b": "ü",
        "PGROUP": "g",
    }
    assert not text.endswith("\x02")


def test_keys_may_be_one_text_or_nothing() -> None:
    assert parse_properties(build_properties(ID, keys="o-1"))["KEYS"] == "o-1"
    assert "KEYS" not in parse_properties(build_properties(ID, keys=[""]))
    assert "KEYS" not in parse_properties(build_properties(ID, keys=iter(())))
    assert parse_properties(build_properties(ID, keys=iter(["a", "b"])))["KEYS"] == "a b"


def test_what_the_user_set_is_the_user_s() -> None:
    text = build_properties(ID, properties={"traceparent": "mine"}, extra={"traceparent": "ours", "tracestate": "s"})
    assert text.count("traceparent") == 1
    assert parse_properties(text)["traceparent"] == "mine"
    assert parse_properties(text)["tracestate"] == "s"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"tags": "a\x01b"}, "separator"),
        ({"keys": ["a\x02b"]}, "separator"),
        ({"properties": {"a": "b\x01c"}}, "separator"),
        ({"properties": {"a\x02b": "c"}}, "separator"),
        ({"keys": ["o 1"]}, "space"),
        ({"properties": {"": "c"}}, "an empty name or value"),
        ({"properties": {"a": ""}}, "an empty name or value"),
        ({"properties": {"a": "\ud800"}}, "surrogate"),
    ],
)
def test_what_cannot_be_written_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(MessageIllegal, match=message):
        build_properties(ID, **how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"tags": ["a", "b"]}, r"tags must be a str, not list: \['a', 'b'\]"),
        ({"tags": 7}, "tags must be a str, not int"),
        ({"keys": 7}, "keys must be a str or several of them, not int: 7"),
        ({"keys": b"k"}, "keys must be a str or several of them, not bytes: b'k'"),
        ({"keys": ["k", 7]}, r"keys must be a str or several of them, not list: \['k', 7\]"),
        ({"properties": {"count": 7}}, "the property count must be a str, not int"),
        ({"properties": {"list": ["a"]}}, "the property list must be a str, not list"),
        ({"properties": {7: "a"}}, "the name of a property must be a str, not int"),
        ({"properties": ["a"]}, "properties must be a dict, not list"),
        ({"wait": "false"}, "wait must be True or False, not 'false'"),
        ({"wait": []}, r"wait must be True or False, not \[\]"),
    ],
)
def test_what_is_no_text_is_refused_by_its_name(how: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongType, match=message):
        build_properties(ID, **how)


def test_other_arguments_that_are_of_the_wrong_type() -> None:
    wrong: Any = 20
    with pytest.raises(WrongType, match="shard must be a str, not int"):
        choose_queue(wrong, None, None)
    with pytest.raises(WrongType, match="queue must be a MessageQueue, not int: 20; list_queues"):
        choose_queue(None, wrong, None)
    with pytest.raises(WrongType, match="selector must be a function, not int"):
        choose_queue(None, None, wrong)
    wrong = "5"
    with pytest.raises(WrongType, match="flag must be an int, not str"):
        check_flag(wrong)


def test_members_of_an_enum_are_their_value() -> None:
    class Kind(str, Enum):  # noqa: UP042 - as older programs have it
        VIP = "vip"

    text = build_properties(ID, Kind.VIP, [Kind.VIP], {"kind": Kind.VIP})
    properties = parse_properties(text)
    assert (properties["TAGS"], properties["KEYS"], properties["kind"]) == ("vip", "vip", "vip")


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_names_with_a_meaning_are_refused(name: str) -> None:
    with pytest.raises(MessageIllegal, match=f"the property name {name} is reserved"):
        build_properties(ID, properties={name: "x"})


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_properties_have_a_limit_in_bytes(letter: str) -> None:
    room = PROPERTIES_BYTES_MAX - len(build_properties(ID, properties={"a": "b"}).encode()) + 1
    fits = letter * (room // len(letter.encode()))
    assert len(build_properties(ID, properties={"a": fits}).encode()) <= PROPERTIES_BYTES_MAX
    with pytest.raises(MessageIllegal, match=f"at most {PROPERTIES_BYTES_MAX}"):
        build_properties(ID, properties={"a": fits + letter})


def test_a_delay_is_a_time_that_is_a_level() -> None:
    assert find_delay_level(0) == find_delay_level(timedelta(0)) == 0
    assert find_delay_level(1) == find_delay_level(timedelta(seconds=1)) == find_delay_level(1.0) == 1
    assert find_delay_level(60) == find_delay_level(timedelta(minutes=1)) == 5
    assert find_delay_level(timedelta(hours=2)) == 18
    with pytest.raises(MessageIllegal, match=r"nearest are 5 s and 10 s; timer= takes any delay") as caught:
        find_delay_level(timedelta(seconds=7))
    assert "delay=7 s: brokers have no such delay level" in str(caught.value)
    with pytest.raises(MessageIllegal, match=r"nearest is 2 h;"):
        find_delay_level(timedelta(days=1))
    with pytest.raises(MessageIllegal, match=r"nearest is 1 s;"):
        find_delay_level(0.005)
    with pytest.raises(MessageIllegal, match=r"nearest are 1 min and 2 min\)$"):
        find_delay_level(90, instead="")
    with pytest.raises(MessageIllegal, match=r"delay=3 s: .*nearest are 1 s and 5 s"):
        describe_delay(3, None, None)  # the third level is 10 s, but a number is always seconds


def test_a_delay_becomes_one_property() -> None:
    assert describe_delay(None, None, None) == describe_delay(0, None, None) == describe_delay(None, 0, None) == {}
    assert describe_delay(10, None, None) == describe_delay(None, 3, None) == {"DELAY": "3"}
    assert describe_delay(None, None, 20) == describe_delay(None, None, timedelta(seconds=20))
    assert describe_delay(None, None, 20) == {"TIMER_DELAY_MS": "20000"}
    moment = datetime.now(UTC) + timedelta(days=3)
    assert describe_delay(None, None, moment) == {"TIMER_DELIVER_MS": str(round(moment.timestamp() * 1000))}


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ((10, 3, None), MessageIllegal, "delay and delay_level are mutually exclusive"),
        ((10, None, 20), MessageIllegal, "delay and timer are mutually exclusive"),
        ((None, 3, 20), MessageIllegal, "delay_level and timer are mutually exclusive"),
        ((-1, None, None), ConfigError, "delay=-1"),
        ((True, None, None), ConfigError, "delay=True"),
        ((None, 2**31, None), MessageIllegal, "delay_level=2147483648: must be between 1 and 18"),
        (("10s", None, None), ConfigError, "delay='10s'"),
        ((None, -1, None), MessageIllegal, "delay_level=-1: must be between 1 and 18"),
        ((None, 2.0, None), WrongType, "delay_level must be an int, not float"),
        ((None, True, None), WrongType, "delay_level must be an int, not bool"),
        ((None, None, -5), ConfigError, "timer=-5"),
        ((None, 19, None), MessageIllegal, "delay_level=19: must be between 1 and 18"),
        (
            (None, None, timedelta(days=41)),
            ConfigError,
            r"timer=datetime.timedelta\(days=41\): must be at most 3456000 s",
        ),
        ((None, None, datetime(2999, 1, 1, tzinfo=UTC)), ConfigError, r"timer=.*2999.* must be at most 3456000 s"),
        ((None, None, datetime(2030, 1, 1)), ConfigError, "timer=.*the time has no time zone"),
    ],
)
def test_what_is_wrong_with_a_delay_names_the_argument(given: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        describe_delay(*given)


def test_bodies_are_bytes_of_some_length() -> None:
    body = b"abc"
    assert check_body(body) is body
    assert check_body(bytearray(body)) == body
    assert check_body(memoryview(body)[1:]) == b"bc"
    wrong: Any = "abc"
    with pytest.raises(WrongType, match=r"body must be bytes, not str: encode it, or use Producer\(serializer="):
        check_body(wrong)
    with pytest.raises(MessageIllegal, match="empty"):
        check_body(b"")
    assert check_body(b"12345", 5) == b"12345"
    with pytest.raises(MessageIllegal, match="6 bytes, at most 5"):
        check_body(b"123456", 5)


def test_flags_have_32_bits() -> None:
    with pytest.raises(MessageIllegal, match="more than 32 bits"):
        Outgoing(b"1", flag=2**40)
    assert check_flag(-(2**31)) == -(2**31)
    assert check_flag(2**31 - 1) == 2**31 - 1
    for flag in (2**31, -(2**31) - 1):
        with pytest.raises(MessageIllegal, match="32 bits"):
            check_flag(flag)

"""The properties string: Java's rules for reading, ours for writing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.properties import RESERVED, encode_properties, get_property, parse_properties, split_keys
from eruca.errors import WireError

GOLDEN_TEXT = (
    "a\x010\x02KEYS\x01k0 k2\x02UNIQ_KEY\x017F00000115625FFD2B274996EF140000"
    "\x02CLUSTER\x01DefaultCluster\x02TAGS\x01TagA"
)


def parse_like_java(text: str) -> dict[str, str]:
    """Java's index arithmetic, written out."""
    result = {}
    index = 0
    while index < len(text):
        end = text.find("\x02", index)
        end = len(text) if end < 0 else end
        if end - index >= 3:
            separator = text.find("\x01", index)
            if index < separator < end - 1:
                result[text[index:separator]] = text[separator + 1 : end]
        index = end + 1
    return result


def test_a_stored_string() -> None:
    properties = parse_properties(GOLDEN_TEXT.encode())
    assert properties == {
        "a": "0",
        "KEYS": "k0 k2",
        "UNIQ_KEY": "7F00000115625FFD2B274996EF140000",
        "CLUSTER": "DefaultCluster",
        "TAGS": "TagA",
    }
    assert encode_properties(properties) == GOLDEN_TEXT.encode()
    assert parse_properties(GOLDEN_TEXT) == parse_properties(GOLDEN_TEXT + "\x02") == properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("\x02\x02", {}),
        ("name", {}),
        ("\x01value", {}),
        ("name\x01", {}),
        ("a\x011\x02name\x01\x02b\x012", {"a": "1", "b": "2"}),
        ("a\x011\x012", {"a": "1\x012"}),
        ("WAIT\x01true\x02TAGS\x01b\x02WAIT\x01false", {"WAIT": "false", "TAGS": "b"}),
        ("a\x011\x02a\x01", {"a": "1"}),
    ],
)
def test_what_is_dropped_and_what_wins(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties == parse_like_java(text)


# Few letters and many separators, so that hypothesis meets the odd cases.
messy = st.text(st.sampled_from("ab\x01\x02"), max_size=24)


@given(messy)
def test_any_string_parses_as_in_java(text: str) -> None:
    assert parse_properties(text) == parse_like_java(text)


@given(messy, st.text(st.sampled_from("ab"), max_size=3))
def test_one_property_is_what_the_whole_parse_gives(text: str, name: str) -> None:
    value = parse_like_java(text).get(name)
    assert get_property(text.encode(), name.encode()) == (None if value is None else value.encode())


def test_a_longer_name_and_a_value_do_not_match() -> None:
    assert get_property(b"MYTAGS\x01x\x02k\x01TAGS\x01y", b"TAGS") is None
    assert get_property(b"TAGS\x01z\x02MYTAGS\x01x", b"TAGS") == b"z"
    assert get_property(GOLDEN_TEXT.encode(), b"TAGS") == b"TagA"
    assert get_property(GOLDEN_TEXT.encode(), b"a") == b"0"


printable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20)


@given(st.dictionaries(printable, printable))
def test_properties_come_back(properties: dict[str, str]) -> None:
    raw = encode_properties(properties)
    assert parse_properties(raw) == properties
    assert not raw.endswith(b"\x02")


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "b\x02c"}, {"a": "b\x01"}, {"\x02": "x", "b": "c"}])
def test_separators_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(WireError, match="separator"):
        encode_properties(properties)


def test_keys_are_split_at_single_spaces() -> None:
    assert split_keys("k0 k2") == ["k0", "k2"]
    assert split_keys(" a  b\tc ") == ["a", "b\tc"]
    assert split_keys("") == []


def test_reserved_names() -> None:
    assert {"KEYS", "TAGS", "UNIQ_KEY", "INNER_MULTI_QUEUE_OFFSET", "MQ2_FLAG"} <= RESERVED
    assert {"TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "ERUCA_ONCE"} <= RESERVED

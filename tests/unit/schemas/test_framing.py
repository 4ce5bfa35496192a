"""The frame of bodies whose schema is in a registry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._schemas.bodies import BadBody
from eruca._schemas.framing import read_indexes, split_frame


def zigzag(number: int) -> bytes:
    """A number as a zigzag varint."""
    value = number * 2 if number >= 0 else -number * 2 - 1
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def test_the_id_is_big_endian() -> None:
    assert split_frame(b"\x00\x00\x00\x01\x02rest") == (258, 5)
    assert split_frame(b"\x00\x7f\xff\xff\xff") == (2**31 - 1, 5)


@pytest.mark.parametrize(
    "body", [b"", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01", b'{"a": 1}', b"\x00\x80\x00\x00\x00"]
)
def test_other_bodies_have_no_frame(body: bytes) -> None:
    with pytest.raises(BadBody, match="it has no frame of a schema registry"):
        split_frame(body)


def test_a_single_zero_is_the_first_message() -> None:
    assert read_indexes(b"\x00rest", 0) == ((0,), 1)
    # The long form of the same.
    assert read_indexes(b"\x02\x00rest", 0) == ((0,), 2)
    # As the documentation has it: the fourth message nested in the second.
    assert read_indexes(b"xx\x04\x02\x06", 2) == ((1, 3), 5)


@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=100), st.binary(max_size=3))
def test_indexes_of_any_length(indexes: list[int], before: bytes) -> None:
    written = zigzag(len(indexes)) + b"".join(zigzag(each) for each in indexes)
    assert read_indexes(before + written + b"rest", len(before)) == (tuple(indexes), len(before) + len(written))
    with pytest.raises(BadBody, match="ends too early"):
        read_indexes(before + written[:-1], len(before))


@pytest.mark.parametrize("body", [b"", b"\x80\x80\x80\x80\x80\x00", b"\x01", b"\xff\xff\xff\xff\x0f", zigzag(101)])
def test_what_is_no_list_of_indexes(body: bytes) -> None:
    with pytest.raises(BadBody, match="it has no message indexes"):
        read_indexes(body, 0)


@given(st.binary(max_size=20))
def test_any_bytes_have_a_frame_or_a_reason(body: bytes) -> None:
    try:
        _, at = split_frame(body)
        indexes, at = read_indexes(body, at)
    except BadBody:
        return
    assert indexes and 5 < at <= len(body)

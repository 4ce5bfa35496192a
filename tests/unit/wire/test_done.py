"""The text beside an offset that lists which messages behind it are done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._ground.limits import DONE_CHARS_MAX, POSITION_MAX
from eruca._wire.done import Ranges, cut_done, decode_done, encode_done
from eruca.errors import WireError

OFFSETS = st.integers(0, 2**40)


@st.composite
def make_ranges(draw: st.DrawFn) -> tuple[int, Ranges]:
    """An offset, and ascending ranges that begin there or later."""
    offset = at = draw(OFFSETS)
    ranges = []
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 1000)), max_size=20)):
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    return offset, tuple(ranges)


def test_as_text() -> None:
    assert encode_done(100, [(101, 102), (104, 110)]) == "1,4-9"
    assert decode_done(100, "1,4-9") == ((101, 102), (104, 110))
    assert (encode_done(5, []), decode_done(5, "")) == ("", ())


@given(make_ranges())
def test_what_is_written_is_read(given_ranges: tuple[int, Ranges]) -> None:
    offset, ranges = given_ranges
    assert decode_done(offset, encode_done(offset, ranges)) == ranges


@given(make_ranges(), st.integers(0, 30_000))
def test_nothing_is_done_at_or_beyond_the_end_of_a_queue(given_ranges: tuple[int, Ranges], length: int) -> None:
    offset, ranges = given_ranges
    end = offset + length
    left = decode_done(offset, cut_done(offset, encode_done(offset, ranges), end))
    assert {each for first, last in left for each in range(first, last)} == {
        each for first, last in ranges for each in range(first, last) if each < end
    }


def test_what_does_not_fit_is_left_out() -> None:
    ranges = [(2 * number, 2 * number + 1) for number in range(5000)]
    text = encode_done(0, ranges)
    assert DONE_CHARS_MAX - 10 < len(text) <= DONE_CHARS_MAX
    found = decode_done(0, text)
    assert list(found) == ranges[: len(found)]


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "-1",
        "1-",
        "1,",
        ",1",
        "3-2",
        "5,4",
        "1-4,4",
        "1;2",
        "¹",
        "1" * 20,
        "1," * DONE_CHARS_MAX,
        str(POSITION_MAX),
    ],
)
def test_what_is_not_ascending_ranges_is_refused(text: str) -> None:
    with pytest.raises(WireError):
        decode_done(3, text)

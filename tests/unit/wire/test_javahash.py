"""Java's string hash against known values and against the plain loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.javahash import (
    hash_continue,
    hash_index_prefix,
    index_key_hash,
    java_hash,
    java_hash_bytes,
    tags_code,
)


def hash_by_definition(text: str) -> int:
    """Hash as the Java language defines it, one code unit at a time."""
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(1 << 31)),
        ("中文", 646394),
        ("😀", 1772899),
    ],
)
def test_known_hashes(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert java_hash_bytes(text.encode()) == value
    assert tags_code(text) == value


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_hashes_by_definition(text: str) -> None:
    assert java_hash(text) == hash_by_definition(text)


@given(st.text(st.characters(max_codepoint=127), max_size=700))
def test_ascii_of_any_length_hashes_by_definition(text: str) -> None:
    assert java_hash(text) == hash_by_definition(text)
    assert java_hash_bytes(text.encode()) == hash_by_definition(text)


@pytest.mark.parametrize("size", [1, 127, 128, 129, 256, 257, 32767])
def test_piece_borders(size: int) -> None:
    text = "".join(chr(33 + i % 94) for i in range(size))
    assert java_hash(text) == hash_by_definition(text)


@given(st.text(), st.text())
def test_a_hash_continues(first: str, second: str) -> None:
    assert hash_continue(java_hash(first), second) == hash_by_definition(first + second)


@given(st.text(max_size=40), st.text(max_size=80))
def test_index_key_hash_is_the_absolute_value(topic: str, key: str) -> None:
    h = abs(hash_by_definition(f"{topic}#{key}"))
    assert index_key_hash(topic, key) == (0 if h == 1 << 31 else h)


def test_index_key_hash_of_min_value_is_zero() -> None:
    # Solve for a key that makes the whole hash MIN_VALUE: seven free characters reach every remainder.
    prefix = hash_index_prefix("T")
    wanted = (1 << 31) - prefix * 31**7
    digits = []
    wanted %= 1 << 32
    for power in range(6, -1, -1):
        digit = min(wanted // 31**power, 0xFFFF)
        wanted -= digit * 31**power
        digits.append(chr(digit))
    key = "".join(digits)
    assert wanted == 0
    assert java_hash(f"T#{key}") == -(1 << 31)
    assert index_key_hash("T", key) == 0

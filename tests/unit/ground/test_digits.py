"""Numbers in text that others wrote."""

from __future__ import annotations

import pytest

from eruca._ground.digits import read_digits


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), (b"42", 42), ("9" * 19, 10**19 - 1)])
def test_plain_digits_are_a_number(text: str | bytes, number: int) -> None:
    assert read_digits(text) == number


@pytest.mark.parametrize("text", [None, "", b"", "-1", "+1", " 1", "1 ", "1_0", "²", "٣", "1.0", "9" * 20, "9" * 5000])
def test_anything_else_is_not(text: str | bytes | None) -> None:
    assert read_digits(text) is None


def test_the_bound_can_be_narrower() -> None:
    assert (read_digits("23", 2), read_digits("023", 2)) == (23, None)

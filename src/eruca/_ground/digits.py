"""Numbers in text that others wrote."""

from __future__ import annotations

# Digits of the largest number of 64 bits. `int` refuses a text of more than 4,300 with an error of its own, and
# `str.isdigit` takes characters that `int` does not, such as superscripts.
DIGITS_MAX = 19


def read_digits(text: str | bytes | None, digits_max: int = DIGITS_MAX) -> int | None:
    """The number that plain digits (0 to 9, no sign) stand for, or None when the text is anything else."""
    if text is None or not 0 < len(text) <= digits_max or not text.isascii() or not text.isdigit():
        return None
    return int(text)

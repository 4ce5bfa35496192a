"""Numbers in text from others."""

from __future__ import annotations

# Digits of the largest 64-bit number. `int` raises its own error for a text of more than 4,300 digits, and
# `str.isdigit` accepts characters that `int` does not, such as superscripts.
DIGITS_MAX = 19


def read_digits(text: str | bytes | None, digits_max: int = DIGITS_MAX) -> int | None:
    """The number written in plain digits (0 to 9, no sign), or None when the text is anything else."""
    if text is None or not 0 < len(text) <= digits_max or not text.isascii() or not text.isdigit():
        return None
    return int(text)

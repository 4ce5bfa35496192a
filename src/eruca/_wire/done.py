"""Messages behind the committed offset of a group that are done already.

A group commits one offset for each queue. An Eruca broker keeps beside it which messages behind that offset are done,
so that the next member of the group does not get them again. As text, they are distances from the offset:

    1,4-9      with the offset 100: 101, and 104 to 109
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from eruca._ground.digits import read_digits
from eruca._ground.limits import DONE_CHARS_MAX, POSITION_MAX
from eruca.errors import WireError

# Ranges of offsets in ascending order: the first one, and the one after the last.
Ranges: TypeAlias = tuple[tuple[int, int], ...]


def encode_done(offset: int, ranges: Iterable[tuple[int, int]]) -> str:
    """Return ranges as text; those that do not fit into the limit are left out, and are then delivered again."""
    parts: list[str] = []
    size = 0
    for first, end in ranges:
        part = str(first - offset) if end - first == 1 else f"{first - offset}-{end - 1 - offset}"
        size += len(part) + 1
        if size > DONE_CHARS_MAX:
            break
        parts.append(part)
    return ",".join(parts)


def decode_done(offset: int, text: str) -> Ranges:
    """Return the ranges that a text describes. Raises WireError unless they are ascending and positive."""
    if not text:
        return ()
    if len(text) > DONE_CHARS_MAX:
        raise WireError(f"the messages that are done are listed in {len(text)} characters")
    found: list[tuple[int, int]] = []
    at = offset
    for part in text.split(","):
        head, dash, tail = part.partition("-")
        first, last = read_digits(head), read_digits(tail if dash else head)
        if first is None or last is None or last < first or offset + first < at or offset + last >= POSITION_MAX:
            raise WireError(f"{part[:50]!r} is not a range of messages that are done")
        at = offset + last + 1
        found.append((offset + first, at))
    return tuple(found)


def cut_done(offset: int, text: str, end: int) -> str:
    """Return the part of a text that is below the end of a queue. What is stored there later is another message."""
    ranges = decode_done(offset, text)
    if not ranges or ranges[-1][1] <= end:
        return text
    return encode_done(offset, [(first, min(last, end)) for first, last in ranges if first < end])

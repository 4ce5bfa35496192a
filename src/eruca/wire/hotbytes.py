"""Numbers and words in memory, for hot modules that run as plain Python; compiled ones have `hotbytes.pxd` instead.

Numbers are big-endian. What would not fit is cut off, as C does it.
"""

from __future__ import annotations

from typing import Any


def read_u32(p: Any, at: int) -> int:
    """Read four bytes as a number without sign."""
    return int.from_bytes(p[at : at + 4], "big")


def read_i32(p: Any, at: int) -> int:
    """Read four bytes as a number with sign."""
    return int.from_bytes(p[at : at + 4], "big", signed=True)


def read_i64(p: Any, at: int) -> int:
    """Read eight bytes as a number with sign."""
    return int.from_bytes(p[at : at + 8], "big", signed=True)


def write_u32(p: Any, at: int, value: int) -> None:
    """Write a number into four bytes."""
    p[at : at + 4] = memoryview((value & 0xFFFFFFFF).to_bytes(4, "big"))


def write_i64(p: Any, at: int, value: int) -> None:
    """Write a number into eight bytes."""
    p[at : at + 8] = memoryview((value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big"))


def copy(q: Any, to: int, p: Any, at: int, size: int) -> int:
    """Copy bytes of `p` to a place in `q`; gives where the next go."""
    q[to : to + size] = memoryview(p)[at : at + size]
    return to + size


def equals(p: Any, at: int, q: Any, to: int, size: int) -> bool:
    """Are so many bytes at two places the same?"""
    return bytes(p[at : at + size]) == bytes(q[to : to + size])


def take(p: Any, at: int, end: int) -> bytes:
    """Copy bytes out."""
    return bytes(p[at:end])

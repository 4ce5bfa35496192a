"""Numbers, bytes and words in memory, for kernels that run as plain Python; compiled ones use `memory.pxd` instead.

Memory is any buffer. Numbers are big-endian. Values that do not fit are truncated, as in C.
"""

from __future__ import annotations

import struct
from typing import Any

from eruca._wire.javahash import hash_continue

_U32 = struct.Struct(">I")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_U64 = struct.Struct(">Q")
_TWO_U32 = struct.Struct(">II")
_BYTES = [bytes((byte,)) for byte in range(256)]
_unpack_u32, _unpack_i32, _unpack_i64 = _U32.unpack_from, _I32.unpack_from, _I64.unpack_from
_pack_u32, _pack_u64 = _U32.pack_into, _U64.pack_into


def read_u32(p: Any, at: int) -> int:
    """Read four bytes as an unsigned number."""
    return _unpack_u32(p, at)[0]  # type: ignore[no-any-return]


def read_i32(p: Any, at: int) -> int:
    """Read four bytes as a signed number."""
    return _unpack_i32(p, at)[0]  # type: ignore[no-any-return]


def read_i64(p: Any, at: int) -> int:
    """Read eight bytes as a signed number."""
    return _unpack_i64(p, at)[0]  # type: ignore[no-any-return]


def write_u32(p: Any, at: int, value: int) -> None:
    """Write a number into four bytes."""
    _pack_u32(p, at, value & 0xFFFFFFFF)


def write_i64(p: Any, at: int, value: int) -> None:
    """Write a number into eight bytes."""
    _pack_u64(p, at, value & 0xFFFFFFFFFFFFFFFF)


def copy(q: Any, to: int, p: Any, at: int, size: int) -> int:
    """Copy bytes of `p` to a place in `q`; returns the place after them."""
    q[to : to + size] = p[at : at + size]
    return to + size


def equals(p: Any, at: int, q: Any, to: int, size: int) -> bool:
    """Are `size` bytes at two places equal?"""
    return bool(p[at : at + size] == q[to : to + size])


def take(p: Any, at: int, end: int) -> bytes:
    """Copy bytes out."""
    return bytes(p[at:end])


# --- looking for bytes ------------------------------------------------------------------------------------------------


def find_byte(p: Any, at: int, end: int, byte: int) -> int:
    """The place of a byte, or `end`."""
    try:
        index: int = p.find(_BYTES[byte], at, end)
    except AttributeError:  # a view of memory has no such method
        index = bytes(p[at:end]).find(byte)
        index += at if index >= 0 else 0
    return end if index < 0 else index


# The same for a byte that is expected to be near; only the C version distinguishes them.
find_near = find_byte


def count_byte(p: Any, at: int, end: int, byte: int) -> int:
    """Count the occurrences of a byte."""
    return bytes(p[at:end]).count(byte)


def has_word(p: Any, at: int, end: int, word: bytes, size: int) -> bool:
    """Does a word occur between two places?"""
    return word[:size] in bytes(p[at:end])


# --- text -------------------------------------------------------------------------------------------------------------


def hash_text(p: Any, at: int, end: int, begun: int) -> int:
    """Continue Java's string hash over UTF-8 text; returns it unsigned."""
    return hash_continue(begun, bytes(p[at:end]).decode("utf-8", "replace")) & 0xFFFFFFFF


def write_hex(q: Any, to: int, p: Any, at: int, size: int) -> int:
    """Write bytes in hexadecimal; returns where the next character goes."""
    return copy(q, to, bytes(p[at : at + size]).hex().upper().encode(), 0, 2 * size)


def write_number(q: Any, to: int, number: int) -> int:
    """Write a number in decimal; returns where the next character goes."""
    digits = b"%d" % number
    return copy(q, to, digits, 0, len(digits))


def format_number(number: int) -> bytes:
    """A number in decimal."""
    return b"%d" % number


def format_hex(raw: bytes, number: int) -> str:
    """At most 32 bytes, then a number of eight bytes, in hexadecimal."""
    return f"{raw.hex().upper()}{number & 0xFFFFFFFFFFFFFFFF:016X}"


def format_two(before: bytes, first: int, between: bytes, second: int, after: bytes) -> bytes:
    """Two numbers in decimal, with text around them: at most 216 bytes of it."""
    return b"%b%d%b%d%b" % (before, first, between, second, after)


def format_two_u32(first: int, second: int) -> bytes:
    """Two numbers as four bytes each."""
    return _TWO_U32.pack(first, second)

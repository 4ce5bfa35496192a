"""Java's `String.hashCode`, which consume queues (tags) and index files (keys) store on disk.

`h = 31 * h + unit` over UTF-16 code units, wrapped to a signed 32-bit integer. A loop in Python costs 60 ns a
character, so ASCII text is handled differently: the hash is the value of a number in base 31 whose digits are the
characters, and `int(text, 31)` computes such a value in C. Characters go up to 127 and digits only to 30, hence each
is split into `31 * high + low` by `bytes.translate`, and two numbers are read instead of one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_WRAP: Final = 0x100000000

_DIGITS: Final = b"0123456789abcdefghijklmnopqrstu"
_LOW: Final = bytes([_DIGITS[code % 31] for code in range(256)])
_HIGH: Final = bytes([_DIGITS[code // 31] for code in range(256)])
# int() is quadratic in the number of digits and refuses more than a few thousand, so long text is split into pieces.
_PIECE: Final = 128
_POWERS: Final = tuple([pow(31, count, _WRAP) for count in range(_PIECE + 1)])


def _continue_long(h: int, data: bytes) -> int:
    """Continue an unsigned hash over ASCII bytes of any length."""
    for at in range(0, len(data), _PIECE):
        piece = data[at : at + _PIECE]
        h = (h * _POWERS[len(piece)] + int(piece.translate(_LOW), 31) + 31 * int(piece.translate(_HIGH), 31)) & _MASK
    return h


def _continue_units(h: int, text: str) -> int:
    """Continue an unsigned hash over the UTF-16 code units of any text."""
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        h = (h * 31 + (data[at] << 8 | data[at + 1])) & _MASK
    return h


def hash_continue(h: int, text: str) -> int:
    """Continue the hash `h` of a prefix over `text`: `hash_continue(java_hash(a), b) == java_hash(a + b)`."""
    size = len(text)
    if not text.isascii():
        h = _continue_units(h, text)
    elif size > _PIECE:
        h = _continue_long(h, text.encode())
    elif size:
        data = text.encode()
        h = h * _POWERS[size] + int(data.translate(_LOW), 31) + 31 * int(data.translate(_HIGH), 31)
    h &= _MASK
    return h - _WRAP if h & _SIGN else h


def java_hash(text: str) -> int:
    """Compute Java's `String.hashCode` of `text` as a signed 32-bit integer."""
    return hash_continue(0, text)


def java_hash_bytes(data: bytes) -> int:
    """Compute Java's `String.hashCode` of UTF-8 encoded text (invalid bytes count as U+FFFD, as in Java)."""
    return hash_continue(0, data.decode("utf-8", "replace"))


# A broker has thousands of topics at most, and each of its messages needs this.
@lru_cache(maxsize=4096)
def hash_index_prefix(topic: str) -> int:
    """Hash `topic + "#"`, the part of the index key that all messages of a topic share."""
    return hash_continue(0, topic + "#")


def index_key_hash(topic: str, key: str) -> int:
    """Compute what an index entry holds: abs of the hash of `topic + "#" + key`, 0 for MIN_VALUE."""
    h = hash_continue(hash_index_prefix(topic), key)
    if h < 0:
        h = -h
    # abs(MIN_VALUE) does not fit a Java int; the index file uses 0 then.
    return 0 if h == _SIGN else h


# Applications use few tags; for a peer that invents new ones the codes are simply computed.
@lru_cache(maxsize=4096)
def tags_code(tag: str) -> int:
    """Compute the consume-queue code of a tag: its hash, 0 for no tag."""
    return hash_continue(0, tag)

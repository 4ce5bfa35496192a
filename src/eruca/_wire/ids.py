"""The two ids of a message, both upper-case hexadecimal.

The offset id locates the record (32 characters, 56 with an IPv6 host):
    0           4 | 16       +4         +8
    | store ip    | port 4   | position 8 |

The unique id (property UNIQ_KEY) is made by the producer before sending (32 or 56 characters):
    0           4 | 16       +2      +4      +4                            +2
    | own ip      | pid 2    | salt 4| ms since the month began 4          | counter 2 |

Java fills the salt with the hash of a class loader. The month begins at local midnight of the producer.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from typing import Final

import msgspec

from eruca._ground.clock import Clock
from eruca._wire.host import pack_ip, unpack_host, unpack_ip
from eruca._wire.kernel.answers import encode_offset_id
from eruca.errors import WireError

_POSITION: Final = struct.Struct(">q")
_UNIQUE_TAIL: Final = struct.Struct(">HIIH")
_V4_ID_BYTES: Final = 16
_V6_ID_BYTES: Final = 28
_DECEMBER: Final = 12
# The two digits of each byte.
_HEX: Final = tuple([f"{byte:02X}" for byte in range(256)])


class OffsetId(msgspec.Struct, gc=False, frozen=True):
    """A decoded offset id: which broker has the record, and where."""

    ip: str
    port: int
    position: int


class UniqueId(msgspec.Struct, gc=False, frozen=True):
    """A decoded unique id: who made it, and when."""

    ip: str
    pid: int
    salt: int
    timestamp: int
    counter: int


def decode_offset_id(text: str) -> OffsetId:
    """Decode an offset id; raise WireError when it is not one."""
    raw = _decode_hex(text)
    ip, port = unpack_host(raw[:-8])
    return OffsetId(ip, port, _POSITION.unpack(raw[-8:])[0])


def decode_unique_id(text: str, now_ms: int) -> UniqueId:
    """Decode a unique id; `now_ms` determines its month: this one, or the previous one if it would be in the future."""
    raw = _decode_hex(text)
    pid, salt, since_month, counter = _UNIQUE_TAIL.unpack(raw[-12:])
    month_start, _ = _find_month(now_ms)
    timestamp = month_start + since_month
    if timestamp > now_ms:
        timestamp = _find_month(month_start - 1)[0] + since_month
    return UniqueId(unpack_ip(raw[:-12]), pid, salt, timestamp, counter)


def _decode_hex(text: str) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    # fromhex skips blanks, so the length is compared too.
    if len(raw) not in (_V4_ID_BYTES, _V6_ID_BYTES) or len(text) != 2 * len(raw):
        raise WireError(f"{text[:64]!r} is not a message id: 32 or 56 hexadecimal characters")
    return raw


def _find_month(now_ms: int) -> tuple[int, int]:
    """Find the starts of this month and the next at local midnight, in milliseconds."""
    local = time.localtime(now_ms / 1000)
    year, month = local.tm_year, local.tm_mon
    start = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    year, month = (year + 1, 1) if month == _DECEMBER else (year, month + 1)
    return int(start) * 1000, int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000


class UniqueIds:
    """Makes unique ids for one process.

    In containers every process is pid 1, and machines behind the same bridge have the same address: the random salt
    keeps their ids apart. When the clock steps back a new salt is drawn, so that a millisecond seen twice cannot
    produce the same id twice.
    """

    def __init__(self, ip: str, pid: int, clock: Clock, *, salt: int | None = None) -> None:
        self._owner = pack_ip(ip) + struct.pack(">H", pid & 0xFFFF)
        self._clock = clock
        self._counter = itertools.count()
        self._month_start = 0
        self._next_month = 0
        self._last = 0
        self._owner_and_salt = ""
        # Everything before the counter, for the ids of the last millisecond.
        self._stamp = ""
        self._set_salt(int.from_bytes(os.urandom(4), "big") if salt is None else salt)

    def _set_salt(self, salt: int) -> None:
        self._owner_and_salt = (self._owner + struct.pack(">I", salt & 0xFFFFFFFF)).hex().upper()

    def create(self) -> str:
        """Make the next id."""
        now = self._clock.now_ms()
        if now != self._last:
            self._begin(now)
        # next() on a counter is atomic even with several threads.
        number = next(self._counter)
        return f"{self._stamp}{_HEX[number >> 8 & 0xFF]}{_HEX[number & 0xFF]}"

    def _begin(self, now: int) -> None:
        """Begin another millisecond."""
        if now < self._last:
            self._set_salt(int.from_bytes(os.urandom(4), "big"))
            self._month_start, self._next_month = _find_month(now)
        elif now >= self._next_month:
            self._month_start, self._next_month = _find_month(now)
        # In this order: another thread that finds its millisecond begun uses its stamp.
        self._stamp = f"{self._owner_and_salt}{now - self._month_start:08X}"
        self._last = now

"""One stored message: the same bytes in the commit log, in pull answers and on the replication link.

The ruler, for two IPv4 hosts (an IPv6 host has 20 bytes instead of 8 and moves what follows by 12):

    0        4        8        12        16      20             28            36         40
    | size 4 | magic 4| crc 4  | queue 4 | flag 4| queue off. 8 | position 8  | sysFlag 4| ->
    40               48            56                 64             72            76          84
    | born time 8    | born host 8 | store time 8     | store host 8 | reconsume 4 | prepared 8| ->
    84         88     88+b        89+b     89+b+t          91+b+t        91+b+t+p
    | body b 4 | body | topic t 1 | topic  | properties p 2| properties  |

`size` is the whole record and must equal the sum. `crc` is the CRC-32 of the body as stored (compressed or not)
without its top bit. The two host bits of sysFlag determine the length of each host. All integers are big-endian.

A segment whose rest is too small for the next record ends with a blank:

    0          4               8
    | rest 4   | blank magic 4 | whatever
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from zlib import crc32

import msgspec

from eruca._ground.limits import RECORD_PROPERTIES_BYTES_MAX, RECORD_TOPIC_BYTES_MAX
from eruca._wire.compression import decompress
from eruca._wire.host import NO_HOST
from eruca._wire.kernel import reading, writing
from eruca._wire.kernel.record import (
    BODY_BYTES_BEFORE,
    BODY_TOO_LARGE,
    CRC_AT,
    CRC_MASK,
    FIXED_BYTES,
    HEAD_BYTES,
    HEAD_TOO_LARGE,
    MAGIC,
    NOT_A_RECORD,
    POSITION_AT,
    SYS_FLAG_AT,
    TOPIC_TOO_LARGE,
    WRONG_POSITION,
    WRONG_SUM,
    WRONG_TOPIC,
    find_shift,
)
from eruca._wire.properties import get_property, parse_properties
from eruca._wire.sysflag import COMPRESSED
from eruca.errors import WireError

RECORD_MAGIC: Final = MAGIC
BLANK_MAGIC: Final = 0xCBD43194
# 5.x writes this for records with a two-byte topic length; neither 4.9 nor we can read it, but errors name it.
RECORD_MAGIC_V2: Final = 0xDAA320AB
BLANK_BYTES: Final = 8
# Size of a record without body, topic and properties.
FIXED_BYTES_V4: Final = FIXED_BYTES

BytesLike: TypeAlias = "bytes | bytearray | memoryview | mmap.mmap"

BLANK_HEAD: Final = struct.Struct(">iI")
_INT: Final = struct.Struct(">i")

_MAGIC_BYTES: Final = RECORD_MAGIC.to_bytes(4, "big")
_SEARCH_BYTES: Final = 1024 * 1024
# More than fits in a pull answer, or in memory.
_ALL: Final = 1 << 62


class Record(msgspec.Struct, gc=False):
    """A message with everything its record holds; body and properties are as stored."""

    topic: str
    queue_id: int = 0
    flag: int = 0
    body: bytes = b""
    properties: bytes = b""
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = NO_HOST
    store_timestamp: int = 0
    store_host: bytes = NO_HOST
    reconsume_times: int = 0
    prepared_position: int = 0
    queue_offset: int = 0
    position: int = 0
    body_crc: int = 0
    size: int = 0

    def read_properties(self) -> dict[str, str]:
        """Parse the properties into a dict."""
        return parse_properties(self.properties)

    def get_property(self, name: str) -> str | None:
        """Read one property without parsing the others."""
        value = get_property(self.properties, name.encode())
        return None if value is None else value.decode("utf-8", "replace")


class RecordView(msgspec.Struct, gc=False):
    """A valid record as a scan sees it; bounds count from the start of its buffer."""

    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    position: int
    sys_flag: int
    store_timestamp: int
    prepared_position: int
    body_at: int
    body_end: int
    properties_at: int
    properties_end: int


class BlankView(msgspec.Struct, gc=False):
    """The end of a segment: the rest of it, `size` bytes, holds no record."""

    size: int


class InvalidView(msgspec.Struct, gc=False):
    """Bytes that are not a record; `reason` is for people, `empty` means that nothing was ever written here."""

    reason: str
    empty: bool = False


Inspection: TypeAlias = RecordView | BlankView | InvalidView


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """Compute the CRC a record holds for its body as stored."""
    return crc32(body) & CRC_MASK


def record_size(body_size: int, topic_size: int, properties_size: int, sys_flag: int) -> int:
    """Compute the size of a record from the byte lengths of its parts."""
    return FIXED_BYTES + find_shift(sys_flag) + body_size + topic_size + properties_size


def encode_blank(rest: int) -> bytes:
    """Encode the 8 bytes that end a segment with `rest` bytes left, including these 8."""
    return BLANK_HEAD.pack(rest, BLANK_MAGIC)


def encode_record(message: Record) -> bytes:
    """Encode a message as its record; size and CRC are computed, those of the message are ignored."""
    topic = message.topic.encode()
    body = message.body
    properties = message.properties
    sys_flag = message.sys_flag
    if len(topic) > RECORD_TOPIC_BYTES_MAX or len(properties) > RECORD_PROPERTIES_BYTES_MAX:
        raise WireError(
            f"topic of {len(topic)} bytes, properties of {len(properties)}: "
            f"a record holds at most {RECORD_TOPIC_BYTES_MAX} and {RECORD_PROPERTIES_BYTES_MAX}"
        )
    return pack_record(message, topic, record_size(len(body), len(topic), len(properties), sys_flag))


def pack_record(message: Record, topic: bytes, size: int) -> bytes:
    """Encode a message whose topic is already encoded and whose lengths are checked; `size` is its record's size."""
    record = bytearray(size)
    write_record(record, 0, message, topic, size)
    return bytes(record)


def write_record(buffer: bytearray | memoryview | mmap.mmap, at: int, message: Record, topic: bytes, size: int) -> None:
    """Write what `pack_record` returns directly into a buffer."""
    writing.write_record(
        buffer,
        at,
        size,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.position,
        message.sys_flag,
        message.born_timestamp,
        message.born_host,
        message.store_timestamp,
        message.store_host,
        message.reconsume_times,
        message.prepared_position,
        message.body,
        topic,
        message.properties,
    )


def inspect_record(
    buffer: BytesLike, at: int, end: int, check_crc: bool = True, position: int | None = None
) -> Inspection:
    """Return what is at `at`: a record, a blank, or why it is neither. Nothing from `end` on is read.

    With `position` the record must also claim to be there, so that stale bytes from another place are not taken for
    a record. The buffer must hold at least `end` bytes; this does not raise, whatever they are.
    """
    found: Any = reading.inspect_record(
        buffer, at, end, check_crc, 0 if position is None else position, position is None, RecordView
    )
    return found if type(found) is RecordView else _explain(buffer, at, end, found, position)


def _explain(buffer: BytesLike, at: int, end: int, problem: int, position: int | None) -> BlankView | InvalidView:
    """Return what is at `at` when it is not a valid record that fits before `end`."""
    if problem == NOT_A_RECORD:
        return _explain_head(buffer, at, end)
    (size,) = _INT.unpack_from(buffer, at)
    if problem == HEAD_TOO_LARGE:
        return InvalidView(f"record size {size} is smaller than its fixed fields")
    (sys_flag,) = _INT.unpack_from(buffer, at + SYS_FLAG_AT)
    body_at = at + HEAD_BYTES + find_shift(sys_flag)
    (body_size,) = _INT.unpack_from(buffer, body_at - BODY_BYTES_BEFORE)
    if problem == BODY_TOO_LARGE:
        return InvalidView(f"body of {body_size} bytes does not fit in a record of {size}")
    if problem == TOPIC_TOO_LARGE:
        return InvalidView(f"topic of {buffer[body_at + body_size]} bytes does not fit in a record of {size}")
    if problem == WRONG_SUM:
        return InvalidView(f"lengths of body, topic and properties do not add up to the record size {size}")
    if problem == WRONG_POSITION:
        claimed = int.from_bytes(buffer[at + POSITION_AT : at + POSITION_AT + 8], "big", signed=True)
        return InvalidView(f"record claims position {claimed} but is at {position}")
    crc = int.from_bytes(buffer[at + CRC_AT : at + CRC_AT + 4], "big")
    return InvalidView(f"CRC mismatch: the record has {crc:#010x} for its body of {body_size} bytes")


def _explain_head(buffer: BytesLike, at: int, end: int) -> BlankView | InvalidView:
    """Return what is at `at` when it does not start like a record that fits before `end`."""
    rest = end - at
    if rest < BLANK_BYTES:
        return InvalidView(f"{max(rest, 0)} bytes left, a blank needs {BLANK_BYTES}")
    size, magic = BLANK_HEAD.unpack_from(buffer, at)
    if magic == BLANK_MAGIC:
        if BLANK_BYTES <= size <= rest:
            return BlankView(size)
        return InvalidView(f"blank claims {size} bytes, {rest} are left")
    if magic == RECORD_MAGIC:
        if size < FIXED_BYTES:
            return InvalidView(f"record size {size} is smaller than its fixed fields")
        return InvalidView(f"record of {size} bytes runs past the end, {rest} are left")
    if magic == RECORD_MAGIC_V2:
        return InvalidView("a record of RocketMQ 5.x (magic 0xdaa320ab), which 4.9 cannot read")
    if size == 0 and magic == 0:
        return InvalidView("nothing was written here", True)
    return InvalidView(f"magic {magic:#010x} is illegal")


def find_record(buffer: BytesLike, at: int, end: int, base: int, stop: int | None = None) -> int:
    """Find the first valid record at or after `at` whose claimed position is right; return its place or -1.

    `base` is the position of the buffer's first byte. Records from `stop` on are not considered. Readers use this to
    skip damage.
    """
    window_at = at + 4
    # The magic of a record that starts just before `stop` may end 7 bytes after it.
    window_end = end if stop is None else min(end, stop + 7)
    while window_at + 4 <= window_end:
        # The window reaches 3 bytes into the next one, so a magic across the border is found once.
        window = bytes(buffer[window_at : min(window_at + _SEARCH_BYTES + 3, window_end)])
        # Mostly zeros are searched; searching for a single byte is ten times as fast.
        hit = window.find(_MAGIC_BYTES) if _MAGIC_BYTES[0] in window else -1
        while hit >= 0:
            start = window_at + hit - 4
            if type(inspect_record(buffer, start, end, True, base + start)) is RecordView:
                return start
            hit = window.find(_MAGIC_BYTES, hit + 1)
        window_at += _SEARCH_BYTES
    return -1


def decode_record(buffer: BytesLike, at: int = 0, *, check_crc: bool = True) -> Record:
    """Decode the record at `at`; raise WireError with the reason when there is none."""
    messages, _, problem = reading.decode_records(buffer, at, Record, check_crc, 1)
    if not messages:
        raise _refuse(buffer, at, problem)
    message: Record = messages[0]
    return message


def _refuse(data: BytesLike, at: int, problem: int) -> WireError:
    """The error for bytes that cannot be decoded."""
    if problem == WRONG_TOPIC:
        view = inspect_record(data, at, len(data), False)
        assert type(view) is RecordView
        return WireError(f"record at byte {at}: topic {view.topic!r} is not UTF-8")
    found = _explain(data, at, len(data), problem or NOT_A_RECORD, None)
    return WireError(
        f"no record at byte {at}: {found.reason if type(found) is InvalidView else 'a blank, not a record'}"
    )


def decode_records(data: BytesLike, *, check_crc: bool = True) -> list[Record]:
    """Decode consecutive records, as in a pull answer; raise WireError when bytes are left over."""
    messages: list[Record]
    messages, at, problem = reading.decode_records(data, 0, Record, check_crc, _ALL)
    if problem:
        raise _refuse(data, at, problem)
    return messages


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that cannot be decoded; its offset in the queue is -1 when even that is unreadable."""

    queue_offset: int
    reason: str


def decode_readable(data: BytesLike) -> tuple[list[Record], list[DamagedRecord]]:
    """Decode consecutive records, skipping damaged ones; returns both."""
    messages: list[Record] = []
    damaged: list[DamagedRecord] = []
    at, end = 0, len(data)
    while at < end:
        run, at, problem = reading.decode_records(data, at, Record, True, _ALL)
        messages += run
        if problem:
            reason = str(_refuse(data, at, problem))
            head = inspect_record(data, at, end, False)
            if type(head) is RecordView:
                damaged.append(DamagedRecord(head.queue_offset, reason))
                at += head.size
            else:
                damaged.append(DamagedRecord(-1, reason))
                at = _find_head(data, at + 1)
    return messages, damaged


def _find_head(data: BytesLike, at: int) -> int:
    """The place of the next record; the end of the data if there is none."""
    whole = bytes(data)
    while (found := whole.find(_MAGIC_BYTES, at + 4)) >= 0:
        at = found - 4
        if type(inspect_record(whole, at, len(whole))) is RecordView:
            return at
        at += 1
    return len(whole)


def user_body(message: Record) -> bytes:
    """Return the body as its sender wrote it: decompressed if sysFlag marks it as compressed."""
    if message.sys_flag & COMPRESSED:
        return decompress(message.body, message.sys_flag)
    return message.body

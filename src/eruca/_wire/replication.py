"""The replication link between a master and its slaves, as bytes and objects; plain TCP without headers.

Master to slave, a chunk of raw commit log (chunks ignore record boundaries; size 0 is a heartbeat):
    0            8         12        12+n
    | position 8 | size 4  | data n  |

Slave to master, a report: the end of its log (the first one tells the master where to start):
    0            8
    | position 8 |

Between two Erucas the link is fenced. The slave opens with 8 bytes that are not a position of any log, and from then on
both sides send frames (crc is the CRC-32 of everything after it, size counts the same bytes):
    0        4       8        9
    | size 4 | crc 4 | kind 1 | fields                                                        | rest            |
    hello      slave    1     | epoch 8 | broker id 8 | position 8 | check begin 8 | check crc 4 | address         |
    chunk      master   2     | epoch 8 | position 8 | confirmed 8 | tail 8 | sent ms 8         | bytes of log    |
    report     slave    3     | epoch 8 | position 8                                          |                 |
    refusal    master   4     | epoch 8                                                       | why             |
The epoch is the master's, on both sides, in every frame: a frame with another epoch is from a mastership that is over.
Kinds 5 to 7 are those of the handshake that comes first where brokers authenticate each other (`handshake`).
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, TypeAlias

import msgspec

from eruca._ground.limits import HA_CHECK_BYTES_MAX, HA_FENCED_DATA_BYTES_MAX, HA_FRAME_BYTES_MAX, HA_TEXT_BYTES_MAX
from eruca._wire.handshake import (
    HANDSHAKE_KINDS,
    HANDSHAKE_MAGIC,
    Challenge,
    HandshakeFrame,
    Introduction,
    Proof,
    decode_handshake,
    encode_handshake,
)
from eruca.errors import WireError

_CHUNK_HEAD: Final = struct.Struct(">qi")
_REPORT: Final = struct.Struct(">q")
CHUNK_HEAD_BYTES: Final = _CHUNK_HEAD.size
REPORT_BYTES: Final = _REPORT.size


class LogChunk(msgspec.Struct, gc=False, frozen=True):
    """Bytes of the commit log from `position` on; without data it is the master's heartbeat."""

    position: int
    data: bytes


class LogReport(msgspec.Struct, gc=False, frozen=True):
    """A slave's report of the end of its commit log."""

    position: int


def encode_chunk_head(position: int, size: int) -> bytes:
    """Encode the 12 bytes before `size` bytes of log, so that the log itself need not be copied."""
    if not 0 <= size <= HA_FRAME_BYTES_MAX:
        raise WireError(f"a replication chunk of {size} bytes: at most {HA_FRAME_BYTES_MAX}")
    return _CHUNK_HEAD.pack(position, size)


def encode_report(report: LogReport) -> bytes:
    """Encode a slave's report."""
    return _REPORT.pack(report.position)


class ChunkDecoder:
    """Takes what a slave reads from its master and returns complete chunks."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of an incomplete chunk."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[LogChunk]:
        """Add bytes; return the chunks they complete. After a WireError the link must be closed."""
        buffer = self._buffer
        buffer += data
        chunks: list[LogChunk] = []
        at = 0
        available = len(buffer)
        while available - at >= CHUNK_HEAD_BYTES:
            position, size = _CHUNK_HEAD.unpack_from(buffer, at)
            # Checked as soon as the head has arrived, before waiting for the rest.
            if position < 0 or not 0 <= size <= HA_FRAME_BYTES_MAX:
                raise WireError(f"replication chunk at position {position} announces {size} bytes")
            data_at = at + CHUNK_HEAD_BYTES
            if available - data_at < size:
                break
            at = data_at + size
            chunks.append(LogChunk(position, bytes(buffer[data_at:at])))
        del buffer[:at]
        return chunks


class ReportDecoder:
    """Takes what a master reads from a slave and returns complete reports."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of an incomplete report."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[LogReport]:
        """Add bytes; return the reports they complete. After a WireError the link must be closed."""
        buffer = self._buffer
        buffer += data
        whole = len(buffer) - len(buffer) % REPORT_BYTES
        reports = [LogReport(position) for (position,) in _REPORT.iter_unpack(bytes(buffer[:whole]))]
        del buffer[:whole]
        for report in reports:
            if report.position < 0:
                raise WireError(f"a slave reports position {report.position}")
        return reports


# --- fenced links ---------------------------------------------------------------------------------------------------

#: The first bytes of a slave on a fenced link; read as a position they are beyond the end of any log.
HELLO_MAGIC: Final = b"\x7fERUCA\x00\x01"

_FENCED_HEAD: Final = struct.Struct(">iI")
FENCED_HEAD_BYTES: Final = _FENCED_HEAD.size
_HELLO: Final = struct.Struct(">BqqqqI")
_CHUNK: Final = struct.Struct(">Bqqqqq")
_FENCED_REPORT: Final = struct.Struct(">Bqq")
_REFUSAL: Final = struct.Struct(">Bq")
_KIND_HELLO: Final = 1
_KIND_CHUNK: Final = 2
_KIND_REPORT: Final = 3
_KIND_REFUSAL: Final = 4
# The fixed fields of each kind, and how many bytes may follow.
_LAYOUTS: Final = {
    _KIND_HELLO: (_HELLO, HA_TEXT_BYTES_MAX),
    _KIND_CHUNK: (_CHUNK, HA_FENCED_DATA_BYTES_MAX),
    _KIND_REPORT: (_FENCED_REPORT, 0),
    _KIND_REFUSAL: (_REFUSAL, HA_TEXT_BYTES_MAX),
}
_SIZE_MIN: Final = _REFUSAL.size
_SIZE_MAX: Final = _CHUNK.size + HA_FENCED_DATA_BYTES_MAX
# A slave sends no chunks: its largest frame is a hello.
_SLAVE_SIZE_MAX: Final = _HELLO.size + HA_TEXT_BYTES_MAX


class Hello(msgspec.Struct, gc=False, frozen=True):
    """A slave requests the log from `position` on, with the CRC of its own log from `check_begin` to there."""

    epoch: int
    broker_id: int
    position: int
    check_begin: int
    check_crc: int
    address: str


class Chunk(msgspec.Struct, gc=False, frozen=True):
    """Bytes of the log from `position` on (none: a heartbeat), and the end of the master's log."""

    epoch: int
    position: int
    confirmed: int
    tail: int
    sent_ms: int
    data: bytes = b""


class Report(msgspec.Struct, gc=False, frozen=True):
    """A slave has everything before `position`."""

    epoch: int
    position: int


class Refusal(msgspec.Struct, gc=False, frozen=True):
    """A master's reason for closing the link."""

    epoch: int
    reason: str


FencedFrame: TypeAlias = Hello | Chunk | Report | Refusal | HandshakeFrame
# What a slave sends, on links of all kinds.
SlaveFrame: TypeAlias = LogReport | Hello | Report | Introduction | Proof


def encode_fenced_head(
    epoch: int, position: int, confirmed: int, tail: int, sent_ms: int, data: bytes | memoryview = b""
) -> bytes:
    """Encode a chunk's frame without its data, which is sent after it and not copied."""
    size = len(data)
    if size > HA_FENCED_DATA_BYTES_MAX:
        raise WireError(f"a replication chunk of {size} bytes: at most {HA_FENCED_DATA_BYTES_MAX}")
    fields = _CHUNK.pack(_KIND_CHUNK, epoch, position, confirmed, tail, sent_ms)
    return _FENCED_HEAD.pack(len(fields) + size, zlib.crc32(data, zlib.crc32(fields))) + fields


def encode_fenced_report(epoch: int, position: int) -> bytes:
    """Encode a slave's report on a fenced link."""
    fields = _FENCED_REPORT.pack(_KIND_REPORT, epoch, position)
    return _FENCED_HEAD.pack(len(fields), zlib.crc32(fields)) + fields


def encode_fenced(frame: FencedFrame) -> bytes:
    """Encode one frame of a fenced link."""
    match frame:
        case Chunk(epoch, position, confirmed, tail, sent_ms, data):
            return encode_fenced_head(epoch, position, confirmed, tail, sent_ms, data) + data
        case Hello(epoch, broker_id, position, check_begin, check_crc, address):
            fields = _HELLO.pack(_KIND_HELLO, epoch, broker_id, position, check_begin, check_crc)
            fields += _encode_text(address)
        case Report(epoch, position):
            return encode_fenced_report(epoch, position)
        case Refusal(epoch, reason):
            fields = _REFUSAL.pack(_KIND_REFUSAL, epoch) + _encode_text(reason)
        case Introduction() | Challenge() | Proof():
            fields = encode_handshake(frame)
    return _FENCED_HEAD.pack(len(fields), zlib.crc32(fields)) + fields


def _encode_text(text: str) -> bytes:
    # Truncated if needed, but never inside a character.
    return text.encode()[:HA_TEXT_BYTES_MAX].decode(errors="ignore").encode()


class FencedDecoder:
    """Takes what one side of a fenced link reads, after the magic, and returns complete frames."""

    def __init__(self, size_max: int = _SIZE_MAX) -> None:
        self._buffer = bytearray()
        self._size_max = size_max

    @property
    def pending(self) -> int:
        """Bytes of an incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[FencedFrame]:
        """Add bytes; return the frames they complete. After a WireError the link must be closed."""
        buffer = self._buffer
        frames: list[FencedFrame] = []
        if buffer:
            buffer += data
            data = buffer
        at = 0
        available = len(data)
        with memoryview(data) as view:
            while available - at >= FENCED_HEAD_BYTES:
                size, crc = _FENCED_HEAD.unpack_from(view, at)
                # Checked as soon as the head has arrived, before waiting for the rest.
                if not _SIZE_MIN <= size <= self._size_max:
                    raise WireError(f"a replication frame announces {size} bytes")
                begin = at + FENCED_HEAD_BYTES
                if available - begin < size:
                    break
                at = begin + size
                with view[begin:at] as content:
                    if zlib.crc32(content) != crc:
                        raise WireError("a replication frame is damaged: its CRC does not match")
                    frames.append(_decode_frame(content))
            if data is not buffer:
                buffer += view[at:]
        if data is buffer:
            del buffer[:at]
        return frames


def _decode_frame(content: memoryview) -> FencedFrame:
    kind = content[0]
    if kind not in _LAYOUTS:
        if kind in HANDSHAKE_KINDS:
            return decode_handshake(content)
        raise WireError(f"a replication frame of unknown kind {kind}")
    layout, rest_max = _LAYOUTS[kind]
    if not 0 <= len(content) - layout.size <= rest_max:
        raise WireError(f"a replication frame of kind {kind} has {len(content)} bytes")
    numbers: tuple[int, ...] = layout.unpack_from(content)
    rest = bytes(content[layout.size :])
    if min(numbers) < 0:
        raise WireError(f"a replication frame of kind {kind} has a negative number")
    if kind == _KIND_CHUNK:
        _, epoch, position, confirmed, tail, sent_ms = numbers
        return Chunk(epoch, position, confirmed, tail, sent_ms, rest)
    if kind == _KIND_REPORT:
        _, epoch, position = numbers
        return Report(epoch, position)
    try:
        text = rest.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a replication frame of kind {kind} has text that is not UTF-8") from error
    if kind == _KIND_REFUSAL:
        return Refusal(numbers[1], text)
    _, epoch, broker_id, position, check_begin, check_crc = numbers
    if not 0 <= position - check_begin <= HA_CHECK_BYTES_MAX:
        raise WireError(f"a slave at position {position} requests a check from {check_begin} on")
    return Hello(epoch, broker_id, position, check_begin, check_crc, text)


class SlaveDecoder:
    """Takes what a master reads from a slave of any kind; the first 8 bytes tell which kind it is."""

    def __init__(self) -> None:
        self._opening = bytearray()
        self._reports = ReportDecoder()
        self._frames = FencedDecoder(_SLAVE_SIZE_MAX)
        #: Is the link fenced? None until that is known.
        self.is_fenced: bool | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> list[SlaveFrame]:
        """Add bytes; return the frames they complete. After a WireError the link must be closed."""
        if self.is_fenced is None:
            self._opening += data
            if len(self._opening) < len(HELLO_MAGIC):
                return []
            self.is_fenced = self._opening.startswith((HELLO_MAGIC, HANDSHAKE_MAGIC))
            data = self._opening[len(HELLO_MAGIC) :] if self.is_fenced else self._opening
        if not self.is_fenced:
            return [*self._reports.feed(data)]
        frames: list[SlaveFrame] = []
        for frame in self._frames.feed(data):
            if isinstance(frame, Chunk | Refusal | Challenge):
                raise WireError("a slave sent a message that only a master sends")
            frames.append(frame)
        return frames

"""The replication link between a master and its slaves, as bytes and objects; plain TCP without headers.

Master to slave, a chunk of raw commit log (chunks ignore record boundaries; size 0 is a heartbeat):
    0            8         12        12+n
    | position 8 | size 4  | data n  |

Slave to master, a report: how far its log reaches (the first one says where the master shall start):
    0            8
    | position 8 |
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from eruca.errors import WireError
from eruca.limits import HA_FRAME_BYTES_MAX

_CHUNK_HEAD: Final = struct.Struct(">qi")
_REPORT: Final = struct.Struct(">q")
CHUNK_HEAD_BYTES: Final = _CHUNK_HEAD.size
REPORT_BYTES: Final = _REPORT.size


class LogChunk(msgspec.Struct, gc=False, frozen=True):
    """Bytes of the commit log from `position` on; without data it is the master's heartbeat."""

    position: int
    data: bytes

    @property
    def is_heartbeat(self) -> bool:
        """Say whether this chunk only keeps the link alive."""
        return not self.data


class LogReport(msgspec.Struct, gc=False, frozen=True):
    """A slave's word on how far its commit log reaches."""

    position: int


def encode_chunk_head(position: int, size: int) -> bytes:
    """Encode the 12 bytes before `size` bytes of log, so that the log itself need not be copied."""
    if not 0 <= size <= HA_FRAME_BYTES_MAX:
        raise WireError(f"a replication chunk of {size} bytes: at most {HA_FRAME_BYTES_MAX}")
    return _CHUNK_HEAD.pack(position, size)


def encode_chunk(chunk: LogChunk) -> bytes:
    """Encode one chunk of log, or a heartbeat."""
    return encode_chunk_head(chunk.position, len(chunk.data)) + chunk.data


def encode_report(report: LogReport) -> bytes:
    """Encode a slave's report."""
    return _REPORT.pack(report.position)


class ChunkDecoder:
    """Eats what a slave reads from its master and gives whole chunks."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of a chunk that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[LogChunk]:
        """Take bytes in; give the chunks they complete. After a WireError the link must be closed."""
        buffer = self._buffer
        buffer += data
        chunks: list[LogChunk] = []
        at = 0
        available = len(buffer)
        while available - at >= CHUNK_HEAD_BYTES:
            position, size = _CHUNK_HEAD.unpack_from(buffer, at)
            # Checked on the head alone, before the rest is waited for.
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
    """Eats what a master reads from a slave and gives whole reports."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of a report that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[LogReport]:
        """Take bytes in; give the reports they complete. After a WireError the link must be closed."""
        buffer = self._buffer
        buffer += data
        whole = len(buffer) - len(buffer) % REPORT_BYTES
        reports = [LogReport(position) for (position,) in _REPORT.iter_unpack(bytes(buffer[:whole]))]
        del buffer[:whole]
        for report in reports:
            if report.position < 0:
                raise WireError(f"a slave reports position {report.position}")
        return reports

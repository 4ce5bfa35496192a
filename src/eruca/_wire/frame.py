"""Bytes in, commands out: the framing of the remoting protocol, without a socket.

    0            4      5             8                8+h              4+total
    +------------+------+-------------+----------------+----------------+
    | total  i32 | type | h, 24 bits  | header h bytes | body           |
    +------------+------+-------------+----------------+----------------+

`total` counts everything after itself: 4 + h + body. The type byte tells how this frame's header is encoded, whatever
the frames before it used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import BytesIO
from typing import Final

from eruca._ground.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from eruca._wire.command import (
    FRAME_PREFIX,
    Command,
    FrameError,
    HeaderError,
    decode_binary_header,
    decode_json_header,
    encode_command,
    make_request,
)

__all__ = ["Command", "FrameBuffer", "FrameError", "HeaderError", "encode_command", "make_request"]

_PREFIX_BYTES: Final = FRAME_PREFIX.size
_LENGTH: Final = struct.Struct(">i")
# The largest value of `total`: the limit includes the length field, as in Java's decoder.
_TOTAL_MAX: Final = FRAME_BYTES_MAX - 4
_JSON_TYPE: Final = 0
_BINARY_TYPE: Final = 1
_HEADER_MASK: Final = 0xFFFFFF
_BINARY_WORD: Final = _BINARY_TYPE << 24


class FrameBuffer:
    """Collects the bytes of one connection and returns the commands in them.

    A frame that is complete in one read is sliced out of it. Otherwise it is collected: its head (length words and
    header) in one buffer, its body in another, so that a body of many reads is copied once.
    """

    __slots__ = ("_body", "_body_missing", "_command", "_error", "_head", "_rest", "_rest_at", "cut_short", "has_more")

    def __init__(self) -> None:
        self._head = bytearray()
        self._command: Command | None = None  # its header is read, its body is incomplete
        self._body = BytesIO()
        self._body_missing = 0
        self._error: FrameError | None = None
        # Bytes that were read but not examined yet, because enough commands were found before them.
        self._rest = b""
        self._rest_at = 0
        #: Are there such bytes? `feed(b"")` continues with them.
        self.has_more = False
        #: How many frames were not complete in the read in which they began.
        self.cut_short = 0

    @property
    def is_unfinished(self) -> bool:
        """Has a frame begun that is not complete?"""
        return self._command is not None or bool(self._head)

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of an unfinished frame, or of unexamined frames, are held."""
        return len(self._head) + self._body.tell() + len(self._rest) - self._rest_at

    def feed(self, data: bytes, most: int = FRAME_BYTES_MAX) -> list[Command]:
        """Add bytes and return the commands they complete, in order; about `most` of them, the rest later.

        Raises FrameError for bytes that are not a frame; `error.commands` has the good ones before them. After that the
        buffer refuses everything, since the start of the next frame is unknown.
        """
        if self._error is not None:
            raise FrameError(f"the connection had a bad frame before: {self._error}")
        commands: list[Command] = []
        try:
            position = 0
            if self.has_more:
                if data:
                    data = self._rest[self._rest_at :] + data
                else:
                    data, position = self._rest, self._rest_at
                self._rest, self._rest_at, self.has_more = b"", 0, False
            elif self._command is not None or self._head:
                position = self._finish_frame(data, commands)
            elif len(data) >= _PREFIX_BYTES:
                # Most reads are one whole frame with a JSON header; for those this takes half as long as the loop.
                total, word = FRAME_PREFIX.unpack_from(data)
                header_end = _PREFIX_BYTES + word
                if len(data) == total + 4 <= FRAME_BYTES_MAX and word <= HEADER_BYTES_MAX and header_end <= len(data):
                    command = decode_json_header(data[_PREFIX_BYTES:header_end])
                    command.body = data[header_end:]
                    return [command]
            self._cut_frames(data, position, commands, most)
        except FrameError as error:
            self._error = error
            self._head.clear()
            self._body = BytesIO()
            self._rest, self._rest_at, self.has_more = b"", 0, False
            error.commands = commands
            raise
        return commands

    def _cut_frames(self, data: bytes, position: int, commands: list[Command], most: int) -> None:
        """Slice the complete frames out of `data`, then keep the beginning of the next one."""
        size = len(data)
        unpack = FRAME_PREFIX.unpack_from
        for _ in range(most):
            if size - position < _PREFIX_BYTES:
                break
            total, word = unpack(data, position)
            # A word without a type byte is the length of a JSON header. `_refuse_prefix` finds out what is wrong.
            decode, header_bytes = decode_json_header, word
            if word > HEADER_BYTES_MAX:
                decode, header_bytes = decode_binary_header, word - _BINARY_WORD
            if not 0 <= header_bytes <= HEADER_BYTES_MAX or not header_bytes + 4 <= total <= _TOTAL_MAX:
                raise _refuse_prefix(total, word)
            header_start = position + _PREFIX_BYTES
            header_end = header_start + header_bytes
            if header_end > size:
                break
            command = decode(data[header_start:header_end])
            position += 4 + total
            if position > size:
                self.cut_short += 1
                self._expect_body(command, total - 4 - header_bytes)
                self._take_body(data, header_end, commands)
                return
            command.body = data[header_end:position]
            commands.append(command)
        else:
            if position < size:
                self._rest, self._rest_at, self.has_more = data, position, True
            return
        if position < size:
            self.cut_short += 1
            self._head += memoryview(data)[position:]
            self._check_head()

    def _finish_frame(self, data: bytes, commands: list[Command]) -> int:
        """Continue the unfinished frame; returns how many bytes of `data` belonged to it."""
        position = 0
        if self._command is None:
            head = self._head
            view = memoryview(data)
            while True:
                wanted = self._check_head()
                missing = wanted - len(head)
                if missing <= 0:
                    break
                if position == len(data):
                    return position
                taken = view[position : position + missing]
                head += taken
                position += len(taken)
            total, word = FRAME_PREFIX.unpack_from(head)
            self._expect_body(_DECODERS[word >> 24](bytes(head[_PREFIX_BYTES:])), total + 4 - len(head))
            head.clear()
        return self._take_body(data, position, commands)

    def _check_head(self) -> int:
        """Refuse a bad length as soon as its bytes have arrived; returns the size of the whole head.

        The lengths are checked before anything is buffered for them. A peer that announces gigabytes, or a header of
        16 MiB for the JSON parser, is refused at its fourth or eighth byte.
        """
        head = self._head
        if len(head) >= _PREFIX_BYTES:
            total, word = FRAME_PREFIX.unpack_from(head)
            header_bytes = int(word & _HEADER_MASK)
            if not header_bytes + 4 <= total <= _TOTAL_MAX or header_bytes > HEADER_BYTES_MAX or word >> 24 > 1:
                raise _refuse_prefix(total, word)
            return _PREFIX_BYTES + header_bytes
        if len(head) >= _LENGTH.size:
            (total,) = _LENGTH.unpack_from(head)
            if not 4 <= total <= _TOTAL_MAX:
                raise _refuse_prefix(total, 0)
        return _PREFIX_BYTES

    def _expect_body(self, command: Command, body_bytes: int) -> None:
        self._command = command
        self._body_missing = body_bytes

    def _take_body(self, data: bytes, position: int, commands: list[Command]) -> int:
        """Add to the unfinished body, and finish its command when it is complete; returns the new position."""
        command = self._command
        assert command is not None
        missing = self._body_missing
        available = len(data) - position
        if available < missing:
            # getvalue() below returns the collected block without copying it again.
            self._body.write(memoryview(data)[position:])
            self._body_missing = missing - available
            return len(data)
        end = position + missing
        self._body.write(memoryview(data)[position:end])
        command.body = self._body.getvalue()
        self._body = BytesIO()
        self._body_missing = 0
        self._command = None
        commands.append(command)
        return end


# How a TLS handshake starts: record type 22, and the major version 3. No frame is that large.
_TLS_RECORD: Final = 0x1603
_DECODERS: Final[tuple[Callable[[bytes], Command], ...]] = (decode_json_header, decode_binary_header)


def _refuse_prefix(total: int, word: int) -> FrameError:
    """The error for bad length words of a frame."""
    header_bytes = word & _HEADER_MASK
    if total < 4:
        return FrameError(f"a frame of {total} bytes has no room for its header length")
    if total >> 16 == _TLS_RECORD:
        return FrameError("it uses TLS, which is not accepted here")
    if total > _TOTAL_MAX:
        return FrameError(f"a frame of {total + 4} bytes was announced, at most {FRAME_BYTES_MAX} are allowed")
    if word >> 24 not in (_JSON_TYPE, _BINARY_TYPE):
        return FrameError(f"header type {word >> 24} is neither JSON (0) nor binary (1)")
    if header_bytes > HEADER_BYTES_MAX:
        return FrameError(f"a header of {header_bytes} bytes was announced, at most {HEADER_BYTES_MAX} are allowed")
    return FrameError(f"a header of {header_bytes} bytes does not fit in a frame of {total} bytes")

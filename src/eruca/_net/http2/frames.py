"""Frames of HTTP/2 (RFC 9113): their layout, and those that a server sends.

     0        3    4     5         9
    | length | ty | fl | stream   | payload, `length` bytes

The highest bit of the stream is reserved. Headers and data may be padded:

     0     1         1 + 5 (with PRIORITY)             - pad
    | pad | priority | fragment of a header block ... | padding |
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from typing import Final

#: What a client sends first.
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
# The largest payload that a peer may send before it was told another one; we never say another one.
PAYLOAD_BYTES_MAX: Final = 16_384
#: The highest stream, and the largest window.
NUMBER_MAX: Final = 2**31 - 1
WINDOW_DEFAULT: Final = 65_535

HEAD: Final = struct.Struct(">IBI")
WORD: Final = struct.Struct(">I")
_SETTING: Final = struct.Struct(">HI")
_TWO_WORDS: Final = struct.Struct(">II")


class FrameType(enum.IntEnum):
    """The kinds of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


# Plain numbers: an enum takes longer to combine.
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY_FIELDS: Final = 0x20


class ErrorCode(enum.IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Setting(enum.IntEnum):
    """What a peer can be told in SETTINGS."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


_SETTINGS: Final = frozenset(map(int, Setting))


class Http2Error(Exception):
    """The peer broke the protocol: the connection ends with this code."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class StreamError(Exception):
    """The peer broke the protocol on one stream, which ends with this code."""

    def __init__(self, stream: int, code: ErrorCode) -> None:
        super().__init__(stream, code)
        self.stream = stream
        self.code = code


# -- what is received --------------------------------------------------------------------------------------------------


def strip_padding(flags: int, payload: bytes, stream: int, *, has_priority: bool = False) -> bytes:
    """Return the payload of DATA or HEADERS without padding and priority."""
    begin, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a padded frame is empty")
        begin, end = 1, end - payload[0]
    if has_priority and flags & PRIORITY_FIELDS:
        if len(payload) < begin + 5:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a frame is too short for its priority")
        check_priority(payload[begin : begin + 5], stream)
        begin += 5
    if begin > end:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a frame has more padding than bytes")
    return payload[begin:end]


def check_priority(payload: bytes, stream: int) -> None:
    """Check a priority, which has no other effect."""
    if len(payload) != 5:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY does not have 5 bytes")
    if WORD.unpack_from(payload)[0] & NUMBER_MAX == stream:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream} depends on itself")


def read_settings(payload: bytes) -> dict[int, int]:
    """Decode SETTINGS; later values of a setting replace earlier ones, unknown settings are left out."""
    if len(payload) % _SETTING.size:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS have a part of a setting")
    found: dict[int, int] = {}
    for key, value in _SETTING.iter_unpack(payload):
        if key == Setting.INITIAL_WINDOW_SIZE and value > NUMBER_MAX:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "the initial window is too large")
        if key == Setting.ENABLE_PUSH and value > 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if key == Setting.MAX_FRAME_SIZE and not PAYLOAD_BYTES_MAX <= value < 1 << 24:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")
        if key in _SETTINGS:
            found[key] = value
    return found


def read_word(payload: bytes, what: str) -> int:
    """Decode a frame that is one number."""
    if len(payload) != WORD.size:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"{what} does not have 4 bytes")
    return int(WORD.unpack(payload)[0])


# -- what is sent ------------------------------------------------------------------------------------------------------


def encode_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Encode any frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def encode_settings(settings: Mapping[Setting, int]) -> bytes:
    """Encode SETTINGS."""
    payload = b"".join(_SETTING.pack(key, value) for key, value in settings.items())
    return encode_frame(FrameType.SETTINGS, 0, 0, payload)


def encode_window_update(stream: int, size: int) -> bytes:
    """Encode a WINDOW_UPDATE: the peer may send this much more."""
    return encode_frame(FrameType.WINDOW_UPDATE, 0, stream, WORD.pack(size))


def encode_reset(stream: int, code: ErrorCode) -> bytes:
    """Encode a RST_STREAM."""
    return encode_frame(FrameType.RST_STREAM, 0, stream, WORD.pack(code))


def encode_goaway(last_stream: int, code: ErrorCode, reason: str) -> bytes:
    """Encode a GOAWAY: streams after `last_stream` are not handled."""
    return encode_frame(FrameType.GOAWAY, 0, 0, _TWO_WORDS.pack(last_stream, code) + reason.encode()[:512])


SETTINGS_ACK: Final = encode_frame(FrameType.SETTINGS, ACK, 0)

"""Frames of HTTP/2: cutting, padding, settings, and which streams are closed."""

from __future__ import annotations

from types import ModuleType

import pytest

from eruca._net.http2.frames import (
    PADDED,
    PRIORITY_FIELDS,
    ErrorCode,
    Http2Error,
    Setting,
    encode_frame,
    encode_goaway,
    encode_reset,
    encode_settings,
    encode_window_update,
    read_settings,
    strip_padding,
)
from eruca._net.http2.numbers import StreamNumbers
from tests.kernels import load_twins

TWINS = load_twins("eruca._net.http2.kernel.cutting")


@pytest.fixture(params=sorted(TWINS))
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return TWINS[request.param]


def test_frames_that_a_server_sends() -> None:
    assert encode_settings({Setting.MAX_CONCURRENT_STREAMS: 5}) == bytes.fromhex("000006040000000000000300000005")
    assert encode_window_update(3, 256) == bytes.fromhex("00000408000000000300000100")
    assert encode_reset(5, ErrorCode.CANCEL) == bytes.fromhex("00000403000000000500000008")
    assert encode_goaway(7, ErrorCode.NO_ERROR, "bye") == bytes.fromhex("00000b0700000000000000000700000000627965")
    assert encode_frame(6, 1, 0, b"12345678") == bytes.fromhex("0000080601000000003132333435363738")


def test_frames_are_cut(kernel: ModuleType) -> None:
    first, second = encode_frame(0, 1, 3, b"abc"), encode_frame(9, 4, 0x7FFFFFFF)
    both = first + second
    assert kernel.cut_frames(both, 0, 10, 100) == ([(0, 1, 3, b"abc"), (9, 4, 0x7FFFFFFF, b"")], len(both))
    assert kernel.cut_frames(both, 0, 1, 100) == ([(0, 1, 3, b"abc")], len(first))
    assert kernel.cut_frames(both, len(first), 10, 100) == ([(9, 4, 0x7FFFFFFF, b"")], len(both))
    assert kernel.cut_frames(both, 0, 10, 2) == ([], 0)
    for end in range(len(first)):
        assert kernel.cut_frames(both[:end], 0, 10, 100) == ([], 0)
    # The highest bit of a stream is reserved.
    assert kernel.cut_frames(encode_frame(0, 0, 0x80000003), 0, 1, 100)[0] == [(0, 0, 3, b"")]


def test_padding_and_priority_are_removed() -> None:
    assert strip_padding(PADDED, b"\x02abc\0\0", 1) == b"abc"
    assert strip_padding(PADDED, b"\x00abc", 1) == b"abc"
    assert strip_padding(PADDED, b"\x03abc", 1) == b""
    priority = b"\x80\0\0\x03\x10"
    assert strip_padding(PRIORITY_FIELDS, priority + b"abc", 1, has_priority=True) == b"abc"
    both = PADDED | PRIORITY_FIELDS
    assert strip_padding(both, b"\x01" + priority + b"abc\0", 1, has_priority=True) == b"abc"


@pytest.mark.parametrize(
    ("flags", "payload", "code"),
    [
        (PADDED, b"", ErrorCode.FRAME_SIZE_ERROR),
        (PADDED, b"\x01", ErrorCode.PROTOCOL_ERROR),
        (PADDED, b"\x04abc", ErrorCode.PROTOCOL_ERROR),
        (PRIORITY_FIELDS, b"\0\0\0\x03", ErrorCode.FRAME_SIZE_ERROR),
        (PRIORITY_FIELDS, b"\0\0\0\x01\x10", ErrorCode.PROTOCOL_ERROR),
        (PADDED | PRIORITY_FIELDS, b"\x01\0\0\0\x03\x10", ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_padding_and_priority_that_are_wrong(flags: int, payload: bytes, code: ErrorCode) -> None:
    with pytest.raises(Http2Error) as caught:
        strip_padding(flags, payload, 1, has_priority=True)
    assert caught.value.code is code


def test_settings_are_read() -> None:
    payload = bytes.fromhex("0004000000ff00040000010000ff00000001000200000001")
    assert read_settings(payload) == {Setting.INITIAL_WINDOW_SIZE: 256, Setting.ENABLE_PUSH: 1}


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ("0004000000", ErrorCode.FRAME_SIZE_ERROR),
        ("000480000000", ErrorCode.FLOW_CONTROL_ERROR),
        ("000200000002", ErrorCode.PROTOCOL_ERROR),
        ("000500003fff", ErrorCode.PROTOCOL_ERROR),
        ("000501000000", ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_settings_that_are_wrong(payload: str, code: ErrorCode) -> None:
    with pytest.raises(Http2Error) as caught:
        read_settings(bytes.fromhex(payload))
    assert caught.value.code is code


def test_streams_are_idle_open_or_closed_by_their_numbers() -> None:
    numbers = StreamNumbers()
    assert numbers.is_idle(1)
    numbers.open(1)
    numbers.open(7)
    assert not numbers.is_idle(3)
    assert numbers.is_idle(9)
    assert numbers.is_idle(2)
    for number, code in (
        (4, ErrorCode.PROTOCOL_ERROR),
        (0, ErrorCode.PROTOCOL_ERROR),
        (5, ErrorCode.PROTOCOL_ERROR),  # left out before
        (7, ErrorCode.STREAM_CLOSED),
        (1, ErrorCode.STREAM_CLOSED),
    ):
        with pytest.raises(Http2Error) as caught:
            numbers.open(number)
        assert caught.value.code is code


def test_only_the_last_streams_that_were_reset_are_remembered() -> None:
    numbers = StreamNumbers()
    for number in range(1, 10_001, 2):
        numbers.reset(number)
    assert [number for number in range(1, 10_001, 2) if numbers.was_reset(number)] == list(range(7953, 10_001, 2))

"""Everything that a peer must not do, as bytes: what ends a stream, what ends the connection, and what is ignored."""

from __future__ import annotations

import struct

import pytest

from eruca._net.http2.answers import encode_field
from eruca._net.http2.calls import GrpcStatus
from eruca._net.http2.frames import PREFACE, ErrorCode, FrameType, encode_frame
from eruca._net.http2.kernel.hpack import TOO_LARGE
from tests.unit.net.http2.rawclient import (
    HEAD,
    HELLO,
    Owner,
    Wire,
    call,
    data,
    encode_fields,
    headers,
    message,
    reset,
    settings,
    widen,
)

FIELDS = encode_fields(HEAD)
PROTOCOL, SIZE, CALM = ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR, ErrorCode.ENHANCE_YOUR_CALM
FLOW, CLOSED, COMPRESSION = ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.STREAM_CLOSED, ErrorCode.COMPRESSION_ERROR
PING = encode_frame(FrameType.PING, 0, 0, bytes(8))


def frame(kind: int, flags: int, stream: int, payload: str | bytes = b"") -> bytes:
    return encode_frame(kind, flags, stream, bytes.fromhex(payload) if isinstance(payload, str) else payload)


BROKEN = {
    "DATA of stream 0": (data(0, b"x"), PROTOCOL),
    "DATA of an idle stream": (data(1, b"x"), PROTOCOL),
    "DATA with too much padding": (headers(1) + frame(0, 8, 1, "0561"), PROTOCOL),
    "HEADERS of stream 0": (headers(0), PROTOCOL),
    "HEADERS of a server's stream": (headers(2), PROTOCOL),
    "HEADERS of a closed stream": (call(1) + headers(1), CLOSED),
    "HEADERS of a stream that was left out": (call(5) + headers(3), PROTOCOL),
    "HEADERS that cannot be decoded": (frame(1, 4, 1, "ff80"), COMPRESSION),
    "HEADERS that depend on themselves": (frame(1, 0x24, 1, b"\0\0\0\1\x10" + FIELDS), PROTOCOL),
    "a frame between HEADERS and CONTINUATION": (frame(1, 0, 1, FIELDS) + PING, PROTOCOL),
    "an unknown frame there": (frame(1, 0, 1, FIELDS) + frame(99, 0, 1), PROTOCOL),
    "CONTINUATION of another stream": (frame(1, 0, 1, FIELDS) + frame(9, 4, 3), PROTOCOL),
    "CONTINUATION alone": (frame(9, 4, 1, FIELDS), PROTOCOL),
    "CONTINUATION after the end": (headers(1) + frame(9, 4, 1, FIELDS), PROTOCOL),
    "PRIORITY of stream 0": (frame(2, 0, 0, "0000000010"), PROTOCOL),
    "PRIORITY that is too short": (frame(2, 0, 1, "00000000"), SIZE),
    "PRIORITY of itself": (frame(2, 0, 1, "0000000110"), PROTOCOL),
    "RST_STREAM of an idle stream": (reset(1), PROTOCOL),
    "RST_STREAM of stream 0": (reset(0), PROTOCOL),
    "RST_STREAM that is too short": (headers(1) + frame(3, 0, 1, "000000"), SIZE),
    "SETTINGS of a stream": (frame(4, 0, 1), PROTOCOL),
    "SETTINGS cut in half": (frame(4, 0, 0, "0000"), SIZE),
    "SETTINGS with ACK and values": (frame(4, 1, 0, "000400000001"), SIZE),
    "SETTINGS with a window that is too large": (frame(4, 0, 0, "000480000000"), FLOW),
    "SETTINGS with a frame size that is too small": (frame(4, 0, 0, "000500000001"), PROTOCOL),
    "SETTINGS that make a window too large": (
        headers(1) + widen(1, 2**31 - 1 - 65_535) + settings(initial_window_size=65_536),
        FLOW,
    ),
    "PUSH_PROMISE": (headers(1) + frame(5, 4, 1, "00000002"), PROTOCOL),
    "PING of a stream": (frame(6, 0, 1, bytes(8)), PROTOCOL),
    "PING that is too short": (frame(6, 0, 0, bytes(7)), SIZE),
    "GOAWAY of a stream": (frame(7, 0, 1, bytes(8)), PROTOCOL),
    "GOAWAY that is too short": (frame(7, 0, 0, bytes(7)), SIZE),
    "WINDOW_UPDATE of 0": (widen(0, 0), PROTOCOL),
    "WINDOW_UPDATE that is too short": (frame(8, 0, 0, bytes(3)), SIZE),
    "WINDOW_UPDATE of an idle stream": (widen(1, 1), PROTOCOL),
    "WINDOW_UPDATE beyond the limit": (widen(0, 2**31 - 1), FLOW),
    "a frame that is too long": (struct.pack(">IBI", 16_385 << 8, 0, 1), SIZE),
    "a huge frame": (b"\xff" * 9, SIZE),
    # What does nothing, many times.
    "a flood of PING": (PING * 20_000, CALM),
    "a flood of PING with ACK": (frame(6, 1, 0, bytes(8)) * 40_000, CALM),
    "a flood of SETTINGS": (settings() * 20_000, CALM),
    "a flood of SETTINGS with ACK": (frame(4, 1, 0) * 40_000, CALM),
    "a flood of PRIORITY": (frame(2, 0, 1, "0000000310") * 40_000, CALM),
    "a flood of unknown frames": (frame(77, 0, 0) * 40_000, CALM),
    "a flood of empty DATA": (headers(1) + data(1) * 40_000, CALM),
    "a flood of WINDOW_UPDATE": (widen(0, 1) * 40_000, CALM),
    "a flood of GOAWAY": (frame(7, 0, 0, bytes(8)) * 40_000, CALM),
    "calls that are reset at once": (b"".join(headers(n) + reset(n) for n in range(1, 20_001, 2)), CALM),
    "requests that are reset at once": (
        b"".join(call(n, path="/demo/hang") + reset(n) for n in range(1, 40_001, 2)),
        CALM,
    ),
    "calls that are malformed": (b"".join(headers(n, {}) for n in range(1, 20_001, 2)), CALM),
    "a flood of CONTINUATION": (frame(1, 0, 1, FIELDS) + frame(9, 0, 1, b"") * 100, CALM),
    "headers that are too long": (
        frame(1, 0, 1, FIELDS) + b"".join(frame(9, 0, 1, encode_field("x", "y" * 10_000)) for _ in range(4)),
        CALM,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_what_ends_the_connection(name: str) -> None:
    """The peer is told why, and nothing is left behind."""
    sent, code = BROKEN[name]
    wire = Wire()
    wire.feed(sent)
    goaway = wire.read_goaway()
    assert goaway is not None
    assert goaway[1] == code
    assert goaway[2]
    assert wire.transport.closed
    assert not wire.link.is_open
    assert len(wire.owner.said) == 1
    await wire.settle()
    assert not wire.link.session.streams
    assert wire.link.held_bytes - wire.link.unsent_bytes <= len(sent)


ENDED = {
    "DATA after the end": (call(1, path="/demo/hang") + data(1, b"x"), CLOSED),
    "HEADERS after the end": (call(1, path="/demo/hang") + headers(1, end=True), CLOSED),
    "WINDOW_UPDATE of 0": (headers(1) + widen(1, 0), PROTOCOL),
    "WINDOW_UPDATE beyond the limit": (headers(1) + widen(1, 2**31 - 1), FLOW),
    "more DATA than the stream allows": (
        headers(1, path="/demo/converse") + data(1, message(bytes(500_000)) * 3),
        FLOW,
    ),
    "no path": (headers(1, {":method": "POST", ":scheme": "http"}), PROTOCOL),
    "no headers": (headers(1, {}), PROTOCOL),
    "upper case": (headers(1, {**HEAD, "Upper": "x"}), PROTOCOL),
    "a header of HTTP/1": (headers(1, {**HEAD, "connection": "close"}), PROTOCOL),
    "a header of a response": (headers(1, {":status": "200", **HEAD}), PROTOCOL),
}


@pytest.mark.parametrize("name", ENDED)
async def test_what_ends_a_stream(name: str) -> None:
    """Other calls of the connection continue."""
    sent, code = ENDED[name]
    wire = Wire()
    wire.feed(call(99, path="/demo/hang") if name == "never" else b"", sent)
    assert wire.read_resets() == {1: code}
    assert wire.read(1).status is None
    await wire.ask(call(3))
    assert wire.read(3).status == 0
    assert wire.link.is_idle
    assert wire.link.held_bytes == 0
    assert not wire.owner.said


IGNORED = {
    "an unknown frame": frame(77, 255, 5, b"anything"),
    "PRIORITY": frame(2, 0, 5, "0000000310"),
    "an unknown setting": frame(4, 0, 0, "00ff00000001"),
    "GOAWAY": frame(7, 0, 0, bytes(8)),
    "WINDOW_UPDATE of a closed stream": call(1) + widen(1, 10),
    "RST_STREAM of a closed stream": call(1) + reset(1),
    "unknown flags": frame(6, 0xFE, 0, bytes(8)),
    "a client that pushes": settings(enable_push=1),
    "padding": headers(1) + frame(0, 9, 1, b"\x03" + message(b"x") + bytes(3)),
    "priority and padding of headers": frame(1, 0x2C, 1, b"\x02\0\0\0\0\x10" + FIELDS + bytes(2)),
    "headers in parts": frame(1, 1, 1, FIELDS[:9]) + frame(9, 0, 1, FIELDS[9:20]) + frame(9, 4, 1, FIELDS[20:]),
}


@pytest.mark.parametrize("name", IGNORED)
async def test_what_does_no_harm(name: str) -> None:
    wire = Wire()
    await wire.ask(IGNORED[name], call(7, b"after"))
    assert wire.read(7).messages == [b"after"]
    assert wire.read_goaway() is None
    assert wire.read_resets() == {}


async def test_pings_are_answered() -> None:
    wire = Wire()
    wire.feed(frame(6, 0, 0, b"12345678"))
    assert wire.find(FrameType.PING)[0][1:] == (1, 0, b"12345678")


async def test_settings_are_sent_and_acknowledged() -> None:
    wire = Wire()
    wire.read_written()
    assert wire.list_kinds() == [FrameType.SETTINGS, FrameType.WINDOW_UPDATE, FrameType.SETTINGS]
    assert wire.frames[-1].flags == 1


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1"),
        (b"PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n", "no preface"),
        (b"\x00\x00\x01\x2a\x00\x00\x00\xf0{", "RocketMQ 4"),
        (b"\x16\x03\x01", "no preface"),
        (PREFACE + PING, "not SETTINGS"),
        (PREFACE + frame(4, 1, 0), "not SETTINGS"),
    ],
)
async def test_what_a_connection_must_start_with(sent: bytes, why: str) -> None:
    wire = Wire(says_hello=False)
    wire.link.data_received(sent)
    assert wire.transport.closed
    assert why in wire.owner.said[0]
    assert (b"HTTP/1.1 505" in b"".join(wire.transport.writes)) == (why == "HTTP/1")


async def test_calls_above_the_limit_are_refused_without_harm() -> None:
    """The client may repeat them elsewhere. Their headers are decoded, because later ones depend on them."""
    owner = Owner()
    owner.streams_max = 2
    wire = Wire(owner)
    kept = frame(1, 5, 5, FIELDS + b"\x40" + encode_field("kept", "yes")[1:])
    wire.feed(call(1, path="/demo/hang"), call(3, path="/demo/hang"), kept)
    assert wire.read_resets() == {5: ErrorCode.REFUSED_STREAM}
    wire.feed(data(5, b"x"), reset(1), frame(1, 4, 7, FIELDS + b"\xbe"), data(7, message(b"x"), end=True))
    assert wire.read(7).status == 0
    assert wire.read_resets() == {5: ErrorCode.REFUSED_STREAM}
    await wire.settle()


async def test_a_message_above_the_limit_is_refused_by_its_size() -> None:
    owner = Owner()
    owner.message_bytes_max = 1000
    wire = Wire(owner)
    wire.feed(call(1, bytes(1000)), headers(3), data(3, struct.pack(">BI", 0, 1001)))
    assert wire.read(1).status == 0
    assert wire.read(3)[:2] == (GrpcStatus.RESOURCE_EXHAUSTED, "a message of 1001 bytes exceeds the limit of 1000")
    assert wire.link.held_bytes == 0


async def test_headers_above_the_limit_are_refused() -> None:
    wire = Wire()
    bomb = b"\x40" + encode_field("bomb", "x" * 4000)[1:]
    wire.feed(frame(1, 4, 1, FIELDS + bomb + b"\xbe" * 100), data(1, message(b"x"), end=True))
    assert wire.read(1)[:2] == (GrpcStatus.RESOURCE_EXHAUSTED, TOO_LARGE)
    wire.feed(call(3))
    assert wire.read(3).status == 0


async def test_a_client_that_works_may_send_many_small_frames() -> None:
    """Clients measure their round trips with pings, and acknowledge what they read with updates of windows."""
    wire = Wire()
    for stream in range(1, 20_001, 2):
        wire.feed(call(stream), PING, widen(0, 6))
    assert wire.read_goaway() is None
    for stream in range(20_001, 22_001, 2):
        wire.feed(call(stream, path="/demo/hang"))
    wire.feed(*(reset(stream) for stream in range(20_001, 22_001, 2)))
    await wire.ask(call(22_001))
    assert wire.read(22_001).status == 0


async def test_nothing_is_handled_after_the_connection_was_closed() -> None:
    wire = Wire()
    wire.feed(frame(6, 0, 1, bytes(8)), call(1))
    assert wire.read(1).status is None
    wire.link.data_received(call(3))
    wire.read_written()
    assert wire.read(3).status is None


async def test_bytes_one_by_one() -> None:
    wire = Wire(says_hello=False)
    for byte in HELLO + call(1, b"slow") + call(3, b"and steady", path="/demo/later"):
        wire.link.data_received(bytes((byte,)))
    await wire.settle()
    assert wire.read(1).messages == [b"slow"]
    assert wire.read(3).messages == [b"and steady"]

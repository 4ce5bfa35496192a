"""Flow control in both directions, for streams and for connections."""

from __future__ import annotations

import asyncio

import pytest

from eruca._ground.limits import HTTP2_STREAM_WINDOW, HTTP2_UNSENT_BYTES_PAUSE, HTTP2_WINDOW
from eruca._net.http2 import session as session_module
from eruca._net.http2.calls import Call, Kind, Method
from eruca._net.http2.frames import ErrorCode, FrameType
from tests.unit.net.http2.rawclient import (
    METHODS,
    Owner,
    Wire,
    call,
    data,
    headers,
    message,
    reset,
    settings,
    widen,
)

DEFAULT = 65_535


def list_updates(wire: Wire, stream: int) -> list[int]:
    """What the server lets the client send more, without the first one."""
    found = [frame for frame in wire.find(FrameType.WINDOW_UPDATE) if frame.stream == stream]
    return [int.from_bytes(frame.payload, "big") for frame in found]


# -- what the server sends --------------------------------------------------------------------------------------------


async def test_a_response_stays_within_the_window_of_its_stream() -> None:
    wire = Wire()
    wire.feed(settings(initial_window_size=10), call(1, b"x" * 20))
    assert len(wire.read_data(1)) == 10
    assert wire.list_kinds(1) == [FrameType.HEADERS, FrameType.DATA]
    wire.feed(widen(1, 14))
    assert len(wire.read_data(1)) == 24
    wire.feed(widen(1, 1))
    await wire.settle()
    assert wire.read(1)[:3] == (0, "", [b"x" * 20])
    assert wire.link.is_idle


async def test_a_response_stays_within_the_window_of_the_connection() -> None:
    wire = Wire()
    wire.feed(settings(initial_window_size=1 << 20), call(1, b"x" * 100_000), call(3, b"y" * 10))
    await wire.settle()
    assert len(wire.read_data(1)) == DEFAULT
    assert wire.read(3).messages == []
    wire.feed(widen(0, 100_000))
    await wire.settle()
    assert wire.read(1).messages == [b"x" * 100_000]
    assert wire.read(3).messages == [b"y" * 10]
    assert all(len(frame.payload) <= 16_384 for frame in wire.frames)


async def test_streams_take_turns() -> None:
    wire = Wire()
    wire.feed(settings(initial_window_size=1 << 30), *(call(stream, bytes(200_000)) for stream in (1, 3)))
    wire.frames.clear()
    wire.feed(widen(0, 1 << 30))
    await wire.settle()
    order = [frame.stream for frame in wire.find(FrameType.DATA)]
    assert order.index(3) < len(order) - 1 - order[::-1].index(1), "the second began before the first ended"
    assert wire.link.is_idle


async def test_windows_change_while_streams_wait() -> None:
    """A smaller initial window makes that of a stream negative."""
    wire = Wire()
    wire.feed(settings(initial_window_size=100), call(1, b"x" * 500))
    assert len(wire.read_data(1)) == 100
    wire.feed(settings(initial_window_size=20))
    wire.feed(widen(1, 70))
    assert len(wire.read_data(1)) == 100
    wire.feed(settings(initial_window_size=60))
    await wire.settle()
    assert len(wire.read_data(1)) == 130
    wire.feed(settings(initial_window_size=1000))
    await wire.settle()
    assert wire.read(1).messages == [b"x" * 500]


async def test_a_sender_waits_for_the_client() -> None:
    sent = 0

    async def pour(call: Call, request: bytes) -> None:
        nonlocal sent
        for _ in range(100):
            await call.send(bytes(HTTP2_UNSENT_BYTES_PAUSE // 4))
            sent += 1

    wire = Wire(Owner({"/demo/echo": Method("", Kind.SERVER_STREAM, pour)}))
    await wire.ask(settings(initial_window_size=0), call(1))
    assert sent == 4
    assert wire.link.held_bytes < 2 * HTTP2_UNSENT_BYTES_PAUSE
    await wire.ask(widen(1, HTTP2_UNSENT_BYTES_PAUSE), widen(0, 1 << 30))
    assert 4 < sent < 12
    await wire.ask(reset(1))
    assert wire.link.held_bytes == 0


async def test_what_is_pushed_waits_in_order() -> None:
    calls: list[Call] = []

    async def keep(call: Call) -> None:
        calls.append(call)
        await call.receive()

    wire = Wire(Owner({"/demo/echo": Method("", Kind.BIDI, keep)}))
    await wire.ask(settings(initial_window_size=8), headers(1))
    for number in range(5):
        calls[0].push(b"%d" % number * 20_000)
    await wire.settle()
    assert len(wire.read_data(1)) == 8
    await wire.ask(widen(1, 1 << 20), widen(0, 1 << 20))
    await wire.ask(data(1, end=True))
    assert wire.read(1)[:3] == (0, "", [b"%d" % number * 20_000 for number in range(5)])


async def test_what_waits_for_windows_is_bounded_for_each_connection() -> None:
    owner = Owner()
    owner.unsent_bytes_max = 1_000_000
    wire = Wire(owner)
    wire.feed(settings(initial_window_size=0))
    for stream in range(1, 41, 2):
        wire.feed(call(stream, bytes(100_000)))
        await wire.settle()
        if wire.transport.aborted:
            break
    assert 16 < stream < 22
    assert "serverMaxUnreadBytes" in owner.said[0]
    assert owner.held >= 1_000_000
    wire.link.connection_lost(None)
    assert wire.link.held_bytes == 0


async def test_nothing_is_sent_while_the_transport_is_full() -> None:
    wire = Wire()
    wire.feed(settings(initial_window_size=1 << 30), widen(0, 1 << 30))
    wire.link.pause_writing()
    assert [wire.transport.reads] == [False]
    wire.link.resume_writing()
    assert [wire.transport.reads] == [True]
    await wire.settle()
    wire.frames.clear()
    wire.feed(call(1, path="/demo/later"))
    wire.link.pause_writing()
    await wire.settle()
    assert wire.read_data(1) == b""
    wire.link.resume_writing()
    await wire.settle()
    assert wire.read(1).status == 0


async def test_a_long_response_gives_way_to_others() -> None:
    wire = Wire()
    wire.feed(settings(initial_window_size=1 << 30), widen(0, 1 << 30), call(1, bytes(4 << 20)))
    first = len(wire.read_data(1))
    assert first < 1 << 20
    turns = 0
    while len(wire.read_data(1)) < 4 << 20:
        await asyncio.sleep(0)
        wire.read_written()
        turns += 1
    assert turns >= 10


# -- what the client sends --------------------------------------------------------------------------------------------


async def test_a_long_request_gets_more_window() -> None:
    wire = Wire()
    body = bytes(range(256)) * 4096 * 12  # three times the window of a connection
    request = data(1, message(body), end=True)
    wire.feed(settings(initial_window_size=1 << 30), widen(0, 1 << 30), headers(1))
    for at in range(0, len(request), 100_000):
        wire.feed(request[at : at + 100_000])
    await wire.settle()
    assert sum(list_updates(wire, 0)[1:]) >= len(body) - HTTP2_WINDOW
    assert sum(list_updates(wire, 1)) >= len(body) - HTTP2_STREAM_WINDOW
    async with asyncio.timeout(60):
        while not wire.link.is_idle:
            await wire.settle()
    assert wire.read(1).messages == [body]
    assert wire.link.held_bytes == 0


async def test_messages_that_are_not_received_hold_back_their_stream() -> None:
    async def ignore(call: Call) -> None:
        await call.receive()
        await asyncio.get_running_loop().create_future()

    wire = Wire(Owner(METHODS | {"/demo/ignore": Method("", Kind.BIDI, ignore)}))
    await wire.ask(headers(1, path="/demo/ignore"), call(3))
    large = message(bytes(100_000))
    for _ in range(10):
        await wire.ask(data(1, large))
    assert list_updates(wire, 1) == []
    await wire.ask(data(1, large))
    assert wire.read_resets() == {1: ErrorCode.FLOW_CONTROL_ERROR}
    await wire.ask(call(5))
    assert wire.read(5).status == 0


async def test_a_handler_that_receives_lets_the_client_send_more() -> None:
    wire = Wire()
    await wire.ask(settings(initial_window_size=1 << 30), widen(0, 1 << 30), headers(1, path="/demo/converse"))
    for _ in range(50):
        await wire.ask(data(1, message(bytes(100_000))))
    assert len(wire.read(1).messages) == 50
    assert sum(list_updates(wire, 1)) > 4_000_000


async def test_requests_at_work_hold_back_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their memory is bounded, whatever the windows of their streams allow."""
    monkeypatch.setattr(session_module, "UNANSWERED_BYTES_MAX", 1_000_000)
    wire = Wire()
    wire.read_written()
    before = sum(list_updates(wire, 0))
    stream = 1
    for stream in range(1, 13, 2):
        wire.feed(call(stream, bytes(500_000), path="/demo/hang"))
    assert sum(list_updates(wire, 0)) == before
    for number in range(1, stream, 2):
        wire.feed(reset(number))
    assert sum(list_updates(wire, 0)) > before
    await wire.ask(reset(stream))
    assert wire.link.session.pending_bytes == 0


async def test_a_client_that_ignores_the_window_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "UNANSWERED_BYTES_MAX", 0)
    wire = Wire()
    for stream in range(1, 11, 2):
        await wire.ask(call(stream, bytes(900_000), path="/demo/hang"))
    goaway = wire.read_goaway()
    assert goaway is not None
    assert goaway[1] == ErrorCode.FLOW_CONTROL_ERROR


async def test_data_for_calls_that_are_over_counts_for_the_connection() -> None:
    wire = Wire()
    wire.read_written()
    before = sum(list_updates(wire, 0))
    wire.feed(headers(1, path="/demo/nothing"))
    for _ in range(3):
        wire.feed(data(1, bytes(1_000_000)))
    assert wire.read(1).status == 12
    assert sum(list_updates(wire, 0)) > before
    assert wire.link.held_bytes == 0

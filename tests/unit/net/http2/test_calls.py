"""Calls: what handlers get and what clients get, frame by frame."""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import weakref

import pytest

from eruca._net.http2 import stream as stream_module
from eruca._net.http2.answers import escape_message
from eruca._net.http2.calls import Call, GrpcError, GrpcStatus, Kind, Method
from eruca._net.http2.frames import ErrorCode, FrameType, encode_frame
from eruca._net.http2.requests import Refused, read_timeout
from eruca.errors import StoreError
from tests.unit.net.http2.rawclient import (
    HEAD,
    METHODS,
    Owner,
    Wire,
    call,
    data,
    encode_fields,
    headers,
    message,
    reset,
)
from tests.unit.net.rawpeer import turn_until

HEADERS, DATA = FrameType.HEADERS, FrameType.DATA


async def test_a_unary_call_is_answered_in_one_write() -> None:
    wire = Wire()
    wire.read_written()
    wire.link.data_received(call(1, b"hello") + call(3, b"world"))
    assert len(wire.transport.writes) == 1
    wire.read_written()
    assert wire.list_kinds(1) == [HEADERS, DATA, HEADERS]
    assert wire.read(1)[:3] == (0, "", [b"hello"])
    assert wire.read(1).fields == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
    assert wire.read(3).messages == [b"world"]
    assert wire.link.is_idle


async def test_each_kind_of_method() -> None:
    wire = Wire()
    await wire.ask(call(1, b"a", path="/demo/later"), call(3, b"b", path="/demo/repeat"))
    assert wire.read(1)[:3] == (0, "", [b"a"])
    assert wire.read(3)[:3] == (0, "", [b"b"] * 3)
    await wire.ask(headers(5, path="/demo/converse"), data(5, message(b"c") + message(b"d")[:3]))
    assert wire.read(5)[:3] == (None, "", [b"c"])
    await wire.ask(data(5, message(b"d")[3:], end=True))
    assert wire.read(5)[:3] == (0, "", [b"c", b"d"])
    assert wire.link.is_idle


async def test_what_a_handler_knows_about_its_call() -> None:
    seen: list[Call] = []

    def note(call: Call, request: bytes) -> bytes:
        seen.append(call)
        return b""

    wire = Wire(Owner({"/demo/echo": Method("note", Kind.UNARY, note)}))
    before = asyncio.get_running_loop().time()
    wire.feed(call(1, grpc_timeout="2500m", x_mq_client_id="me", trace_bin="AAE"))
    (found,) = seen
    assert found.path == "/demo/echo"
    assert found.metadata["x-mq-client-id"] == "me"
    assert found.metadata["trace-bin"] == "AAE"
    assert not any(name.startswith(":") for name in found.metadata)
    assert found.authority == "host:1"
    assert found.peer == "127.0.0.1:4444"
    assert found.connection.local == "127.0.0.1:5555"
    assert not found.over_tls
    assert found.deadline is not None
    assert before + 2.5 <= found.deadline <= asyncio.get_running_loop().time() + 2.5
    assert not found.is_open
    wire.feed(call(3))
    assert seen[1].deadline is None


async def test_a_method_may_return_a_future() -> None:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    wire = Wire(Owner({"/demo/echo": Method("wait", Kind.UNARY, lambda call, request: future)}))
    wire.feed(call(1))
    future.set_result(b"late")
    await wire.settle()
    assert wire.read(1).messages == [b"late"]


async def test_errors_of_handlers(caplog: pytest.LogCaptureFixture) -> None:
    def break_down(call: Call, request: bytes) -> bytes:
        raise ZeroDivisionError("oops")

    async def fail(call: Call, request: bytes) -> bytes:
        raise StoreError("the disk is full")

    wire = Wire(
        Owner(METHODS | {"/demo/break": Method("", Kind.UNARY, break_down), "/demo/fail": Method("", Kind.UNARY, fail)})
    )
    await wire.ask(call(1, path="/demo/refuse"), call(3, path="/demo/break"), call(5, path="/demo/fail"))
    assert wire.read(1)[:3] == (GrpcStatus.NOT_FOUND, "50 %25 of gr%C3%BCn%0A", [])
    assert wire.list_kinds(1) == [HEADERS], "an error without messages is one frame"
    assert wire.read(3)[:2] == (GrpcStatus.INTERNAL, "ZeroDivisionError: oops")
    assert wire.read(5)[:2] == (GrpcStatus.INTERNAL, "the disk is full")
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_an_error_after_some_messages() -> None:
    async def fail_late(call: Call, request: bytes) -> None:
        await call.send(b"one")
        raise GrpcError(GrpcStatus.ABORTED, "enough")

    wire = Wire(Owner({"/demo/echo": Method("", Kind.SERVER_STREAM, fail_late)}))
    await wire.ask(call(1))
    assert wire.read(1)[:3] == (GrpcStatus.ABORTED, "enough", [b"one"])
    assert wire.list_kinds(1) == [HEADERS, DATA, HEADERS]


def test_texts_are_escaped_and_bounded() -> None:
    assert escape_message("a b~%\x7f\r\n€") == "a b~%25%7F%0D%0A%E2%82%AC"
    assert len(escape_message("x" * 5000)) == 1024


# -- requests that are refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "http_status", "status"),
    [
        ({"path": "/demo/nothing"}, "200", GrpcStatus.UNIMPLEMENTED),
        ({"grpc_encoding": "br"}, "200", GrpcStatus.UNIMPLEMENTED),
        ({"grpc_timeout": "soon"}, "200", GrpcStatus.INTERNAL),
        ({"grpc_timeout": "0S"}, "200", GrpcStatus.DEADLINE_EXCEEDED),
        ({"content_type": "application/grpcweb"}, "415", GrpcStatus.INTERNAL),
        ({"content_type": "text/plain"}, "415", GrpcStatus.INTERNAL),
        ({"method": "GET"}, "405", GrpcStatus.INTERNAL),
        ({"large": "x" * 20_000}, "200", GrpcStatus.RESOURCE_EXHAUSTED),
    ],
)
async def test_requests_that_are_answered_with_an_error(
    changes: dict[str, str], http_status: str, status: GrpcStatus
) -> None:
    """The client is told to stop sending, and what it sent already does no harm."""
    wire = Wire()
    block = {
        **HEAD,
        **{f":{name}" if f":{name}" in HEAD else name.replace("_", "-"): value for name, value in changes.items()},
    }
    encoded = encode_fields(block)
    if len(encoded) > 16_384:
        first = encode_frame(HEADERS, 0, 1, encoded[:10_000]) + encode_frame(
            FrameType.CONTINUATION, 4, 1, encoded[10_000:]
        )
    else:
        first = headers(1, block)
    await wire.ask(first)
    await wire.ask(data(1, message(b"x"), end=True), call(3))
    answer = wire.read(1)
    assert (answer.status, answer.fields[":status"], answer.messages) == (status, http_status, [])
    assert answer.fields.get("grpc-accept-encoding") == ("identity,gzip" if "grpc_encoding" in changes else None)
    assert wire.read_resets() == {1: ErrorCode.NO_ERROR}
    assert wire.read(3).messages == [b"x"]


@pytest.mark.parametrize(
    "kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8", "Application/GRPC"]
)
async def test_content_types_of_grpc(kind: str) -> None:
    wire = Wire()
    wire.feed(call(1, content_type=kind))
    assert wire.read(1).status == 0


@pytest.mark.parametrize(
    ("text", "seconds"), [("1H", 3600), ("2M", 120), ("3S", 3), ("4m", 0.004), ("5u", 5e-6), ("99999999n", 0.099999999)]
)
def test_timeouts(text: str, seconds: float) -> None:
    assert read_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "S", "1", "1s", "123456789S", "-1S", "1.5S", "\u0661S"])
def test_timeouts_that_are_wrong(text: str) -> None:
    with pytest.raises(Refused):
        read_timeout(text)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "there is no request message"),
        (message(b"a") + message(b"b"), "more than one"),
        (message(b"abc")[:-1], "cut off"),
        (b"\0\0", "cut off"),
        (message(b"a", 1), "grpc-encoding names no compression"),
        (message(b"a", 2), "unknown flag"),
    ],
)
async def test_messages_that_are_wrong(payload: bytes, text: str) -> None:
    wire = Wire()
    wire.feed(headers(1), data(1, payload, end=True), call(3))
    assert wire.read(1).status == GrpcStatus.INTERNAL
    assert text in wire.read(1).text
    assert wire.read(3).status == 0


async def test_a_request_without_data() -> None:
    wire = Wire()
    wire.feed(headers(1, end=True))
    assert wire.read(1)[:2] == (GrpcStatus.INTERNAL, "there is no request message")


async def test_a_length_that_does_not_match_resets_the_stream() -> None:
    wire = Wire()
    wire.feed(
        call(1, content_length="6"),
        call(3, content_length="7"),
        call(5, content_length="5"),
        call(7, content_length="x"),
    )
    assert wire.read(1).status == 0
    assert wire.read_resets() == dict.fromkeys((3, 5, 7), ErrorCode.PROTOCOL_ERROR)


async def test_trailers_of_a_client_end_its_request() -> None:
    wire = Wire()
    wire.feed(headers(1), data(1, message(b"x")), headers(1, {"checksum": "1"}, end=True))
    assert wire.read(1).messages == [b"x"]
    wire.feed(headers(3), data(3, message(b"x")), headers(3, {"checksum": "1"}))
    wire.feed(headers(5), data(5, message(b"x")), headers(5, {":path": "1"}, end=True))
    assert wire.read_resets() == dict.fromkeys((3, 5), ErrorCode.PROTOCOL_ERROR)


# -- compression ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/demo/echo", "/demo/later", "/demo/converse"])
@pytest.mark.parametrize("at_once", [16, 1 << 20])
async def test_compressed_messages(path: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "GRPC_INFLATED_AT_ONCE_BYTES", at_once)
    wire, body = Wire(), bytes(300) + b"end"
    wire.feed(headers(1, path=path, grpc_encoding="gzip"), data(1, message(gzip.compress(body), 1), end=True))
    wire.feed(headers(3, path=path, grpc_encoding="gzip"), data(3, message(body), end=True))
    await turn_until(lambda: wire.link.is_idle)
    await wire.settle()
    assert wire.read(1)[:3] == (0, "", [body])
    assert wire.read(3).messages == [body], "a message of its own may be without compression"


@pytest.mark.parametrize("path", ["/demo/echo", "/demo/converse"])
async def test_a_compressed_message_is_limited_by_what_it_becomes(path: str) -> None:
    owner = Owner()
    owner.message_bytes_max = 100_000
    wire = Wire(owner)
    bomb = gzip.compress(bytes(10_000_000))
    assert len(bomb) < 10_000
    wire.feed(headers(1, path=path, grpc_encoding="gzip"), data(1, message(bomb, 1), end=True))
    wire.feed(headers(3, path=path, grpc_encoding="gzip"), data(3, message(b"not gzip", 1), end=True))
    wire.feed(
        headers(5, path=path, grpc_encoding="gzip"), data(5, message(gzip.compress(bytes(1000))[:-9], 1), end=True)
    )
    await turn_until(lambda: wire.link.is_idle)
    await wire.settle()
    assert wire.read(1).status == GrpcStatus.RESOURCE_EXHAUSTED
    assert wire.read(3).status == GrpcStatus.INTERNAL
    assert wire.read(5)[:2] == (GrpcStatus.INTERNAL, "a compressed message is cut off")


# -- the end of calls -------------------------------------------------------------------------------------------------


class Watched:
    """A method that hangs, and remembers how that ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.call: Call | None = None

    async def hang(self, call: Call, request: bytes = b"") -> bytes:
        self.call = call
        call.when_closed(lambda: self.ended.append("closed"))
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return b""


def watch(kind: Kind = Kind.UNARY) -> tuple[Wire, Watched]:
    watched = Watched()
    return Wire(Owner(METHODS | {"/demo/hang": Method("hang", kind, watched.hang)})), watched


@pytest.mark.parametrize("kind", list(Kind))
async def test_a_client_cancels_a_call(kind: Kind) -> None:
    wire, watched = watch(kind)
    await wire.ask(call(1, path="/demo/hang"))
    assert watched.call is not None
    assert [watched.call.is_open] == [True]
    await wire.ask(reset(1), call(3))
    assert watched.ended == ["closed", "cancelled"]
    assert [watched.call.is_open] == [False]
    assert wire.list_kinds(1) == []
    assert wire.read(3).status == 0


async def test_a_deadline_passes() -> None:
    wire, watched = watch()
    await wire.ask(call(1, path="/demo/hang", grpc_timeout="1m"))
    await turn_until(lambda: wire.link.is_idle)
    await wire.settle()
    assert watched.ended == ["closed", "cancelled"]
    assert wire.read(1).status == GrpcStatus.DEADLINE_EXCEEDED


async def test_a_lost_connection_ends_its_calls() -> None:
    wire, watched = watch()
    await wire.ask(call(1, path="/demo/hang"))
    wire.link.connection_lost(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert watched.ended == ["closed", "cancelled"]
    assert wire.owner.closed == 1
    assert wire.link.held_bytes == 0


async def test_a_lost_connection_is_freed_at_once() -> None:
    """It may have been one of thousands, with buffers of TLS, which must not wait for the garbage collector."""
    wire = Wire()
    await wire.ask(call(1, path="/demo/hang"), headers(3, path="/demo/converse"), call(5))
    link, transport = wire.link, wire.transport
    watched = weakref.ref(transport), weakref.ref(link)
    gc.disable()
    try:
        link.connection_lost(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        link.abort()
        del wire, transport
        assert watched[0]() is None
        del link
        assert watched[1]() is None
    finally:
        gc.enable()


async def test_a_call_is_ended_from_outside_its_handler() -> None:
    wire, watched = watch(Kind.BIDI)
    await wire.ask(headers(1, path="/demo/hang"))
    assert watched.call is not None
    watched.call.push(b"news")
    watched.call.finish(GrpcStatus.UNAVAILABLE, "elsewhere")
    watched.call.push(b"too late")
    watched.call.finish()
    await wire.settle()
    assert watched.ended == ["closed", "cancelled"]
    assert wire.read(1)[:3] == (GrpcStatus.UNAVAILABLE, "elsewhere", [b"news"])
    assert wire.read_resets() == {1: ErrorCode.NO_ERROR}, "the client was still sending"
    told: list[bool] = []
    watched.call.when_closed(lambda: told.append(True))
    assert told == [True]
    with pytest.raises(GrpcError, match="over"):
        await watched.call.send(b"")


async def test_a_handler_that_is_cancelled_by_someone_else() -> None:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    wire = Wire(Owner({"/demo/echo": Method("", Kind.UNARY, lambda call, request: future)}))
    wire.feed(call(1))
    future.cancel()
    await wire.settle()
    assert wire.read(1).status == GrpcStatus.CANCELLED

"""A port against peers that hang, crowd or do not read: it stays up, and its memory and its log stay bounded."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from typing import Any

import pytest

from eruca._net.admission import Admission
from eruca._net.budget import Budget
from eruca._net.handlers import refuse_unknown
from eruca._net.http2 import link as link_module
from eruca._net.http2.calls import Call, GrpcError, GrpcStatus, Kind, Method
from eruca._net.http2.frames import NUMBER_MAX, ErrorCode, FrameType, encode_frame
from eruca._net.http2.options import GrpcOptions
from eruca._net.http2.port import PROTOCOLS, GrpcPort, GrpcSettings
from eruca._net.limitoptions import LimitOptions
from eruca._net.tls import ServerTls
from eruca._net.tlsoptions import TlsMode, TlsOptions
from eruca.errors import ConnectFailed
from tests.patience import PATIENCE_S
from tests.unit.net.http2.rawclient import (
    HELLO,
    METHODS,
    Client,
    SocketClient,
    Wire,
    call,
    data,
    headers,
    message,
    open_client,
    run_port,
    settings,
    widen,
)
from tests.unit.net.rawpeer import open_peer, run_server, turn_until

MIB = 1024 * 1024


def limit(**options: Any) -> dict[str, Any]:
    """Settings with other limits."""
    limits = LimitOptions(**options)
    return {"limits": lambda: limits}


async def test_a_port_opens_answers_and_closes() -> None:
    gone: list[Any] = []
    port = GrpcPort(METHODS, GrpcSettings(), on_close=gone.append)
    number = await port.open()
    assert number == port.port > 0
    with pytest.raises(ConnectFailed):
        await GrpcPort(METHODS, GrpcSettings(port=number)).open()
    async with open_client(number) as client:
        client.write(call(1, b"hello"))
        assert (await client.wait_for_answer(1)).messages == [b"hello"]
        await port.close()
        await client.wait_for_end()
    assert len(gone) == 1
    await port.close()


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_calls_under_way_end_before_the_port_does() -> None:
    """The client is told twice: first that the end comes, and when it has seen that, which calls are too late."""
    gate = asyncio.Event()

    async def wait(call: Call, request: bytes) -> bytes:
        await gate.wait()
        return request

    methods = {**METHODS, "/demo/wait": Method("", Kind.UNARY, wait)}
    async with run_port(methods, drain_seconds=PATIENCE_S) as port, open_client(port.port) as client:
        client.write(call(1, b"patience", path="/demo/wait"), headers(3, path="/demo/converse"))
        await turn_until(lambda: any(len(link.session.streams) == 2 for link in port.links))
        closing = asyncio.create_task(port.close())
        while not client.find(FrameType.PING):
            await client.read_some()
        assert client.read_goaway() == (NUMBER_MAX, ErrorCode.NO_ERROR, "the server stops")
        client.write(call(5, b"just in time"))
        assert (await client.wait_for_answer(5)).messages == [b"just in time"]
        client.write(encode_frame(FrameType.PING, 1, 0, client.find(FrameType.PING)[0].payload))
        while len(client.find(FrameType.GOAWAY)) < 2:
            await client.read_some()
        assert client.read_goaway() == (5, ErrorCode.NO_ERROR, "")
        client.write(call(7, b"too late"))
        while 7 not in client.read_resets():
            await client.read_some()
        assert client.read_resets() == {7: ErrorCode.REFUSED_STREAM}
        gate.set()
        assert (await client.wait_for_answer(1)).messages == [b"patience"]
        assert (await client.wait_for_answer(3))[:2] == (GrpcStatus.UNAVAILABLE, "the server stops")
        await client.wait_for_end()
        await closing


async def test_calls_that_take_too_long_are_ended() -> None:
    async with run_port(drain_seconds=0.01) as port, open_client(port.port) as client:
        client.write(call(1, path="/demo/hang"))
        await turn_until(lambda: any(link.session.streams for link in port.links))
        await port.close()
        assert (await client.wait_for_answer(1)).status == GrpcStatus.UNAVAILABLE
        await client.wait_for_end()


async def test_a_peer_that_does_not_read_does_not_keep_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._net.http2.port.GOODBYE_SECONDS", 0.01)
    async with run_port() as port, open_client(port.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.write(settings(initial_window_size=1 << 30), widen(0, 1 << 30), call(1, bytes(20 * MIB)))
        await turn_until(lambda: any(link.session.streams for link in port.links))
        await port.close()
        await turn_until(lambda: not port.links)
        assert client.read(1).status is None


# -- peers that are idle, dead or too slow ----------------------------------------------------------------------------


async def test_a_connection_without_calls_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "GOODBYE_SECONDS", 0.01)
    async with run_port(grpc=GrpcOptions(grpc_idle_ms=10)) as port, open_client(port.port) as client:
        client.write(call(1))
        await client.wait_for_end()
        assert client.read(1).status == 0
        assert client.find(FrameType.GOAWAY)[0].payload[:4] == NUMBER_MAX.to_bytes(4, "big")
        assert client.read_goaway() == (1, ErrorCode.NO_ERROR, "")


async def test_a_connection_with_an_open_call_is_pinged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_port(grpc=GrpcOptions(grpc_idle_ms=10)) as port, open_client(port.port) as client:
        client.write(headers(1, path="/demo/converse"))
        for count in range(1, 4):
            while len(client.find(FrameType.PING)) < count:
                await client.read_some()
            client.write(encode_frame(FrameType.PING, 1, 0, client.find(FrameType.PING)[-1].payload))
        client.write(data(1, message(b"still here"), end=True))
        assert (await client.wait_for_answer(1)).messages == [b"still here"]
        client.write(headers(3, path="/demo/converse"))
        monkeypatch.setattr(link_module, "HTTP2_PING_SECONDS_MAX", 0.01)
        await client.wait_for_end()
    assert "does not answer a ping" in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        headers(1)[:-1],
        headers(1)[:5],
        encode_frame(FrameType.HEADERS, 0, 1, b""),
        headers(1),
        headers(1) + data(1, message(bytes(100))[:50]),
        headers(1, path="/demo/converse") + data(1, message(bytes(100))[:50]),
        settings(initial_window_size=0) + call(1),
        settings(initial_window_size=0) + headers(1, path="/demo/converse") + data(1, message(b"x")),
    ],
)
async def test_what_is_left_unfinished_or_unread_for_too_long(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with run_port(**limit(frame_seconds_max=0)) as port, open_client(port.port) as client:
        client.write(sent)
        await client.wait_for_end()
    assert "serverMaxFrameSeconds" in caplog.text


async def test_what_takes_time_by_its_nature_is_not_cut_off() -> None:
    """A stream without messages, a handler that works, and a connection without a call."""
    async with (
        run_port(**limit(frame_seconds_max=0)) as port,
        open_client(port.port) as busy,
        open_client(port.port) as idle,
    ):
        busy.write(headers(1, path="/demo/converse"), call(3, path="/demo/hang"))
        await turn_until(lambda: any(len(link.session.streams) == 2 for link in port.links))
        for _ in range(5):
            await port._scan()
        busy.write(data(1, message(b"x"), end=True))
        assert (await busy.wait_for_answer(1)).messages == [b"x"]
        idle.write(call(1))
        assert (await idle.wait_for_answer(1)).status == 0


async def test_a_long_message_may_take_longer_than_a_short_one() -> None:
    wire = Wire()
    wire.feed(headers(1), data(1, message(bytes(64 * MIB))[:100]), headers(3), data(3, message(bytes(100))[:50]))
    streams = wire.link.session.streams
    assert [streams[number].measure_stalled(0.0) for number in (1, 3)] == [0.0, 0.0]
    assert streams[1].measure_stalled(100.0) == pytest.approx(25.0, rel=0.01)
    assert streams[3].measure_stalled(100.0) == 100.0
    wire.feed(headers(5, path="/demo/converse"))
    for now in range(0, 1000, 100):
        await wire.ask(data(5, message(bytes(100))[50 if now else 0 :] + message(bytes(100))[:50]))
        assert streams[5].measure_stalled(now) == 0.0, "each time it is another message"
    await wire.settle()
    assert streams[5].measure_stalled(1000.0) == 100.0
    assert streams[5].measure_stalled(2000.0, may_send=False) == 0.0, "it waits for us"
    wire.feed(data(3, b"x"))
    wire.feed(data(1, b"x"))
    await wire.settle()


# -- memory -----------------------------------------------------------------------------------------------------------


async def test_responses_that_wait_for_windows_are_bounded_over_all_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    budget = Budget(12 * MIB)
    async with run_port(budget=budget, scan_seconds=3600) as port, open_client(port.port) as good:
        greedy: list[SocketClient] = []
        for _ in range(16):
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            greedy.append(SocketClient(reader, writer))
            greedy[-1].write(HELLO, settings(initial_window_size=0), call(1, bytes(MIB)))
        await turn_until(lambda: budget.closed > 0)
        good.write(call(1))
        assert (await good.wait_for_answer(1)).status == 0
        assert budget.count() <= 16 * MIB
        for client in greedy:
            client.writer.transport.abort()
        await turn_until(lambda: len(port.links) == 1)
        assert budget.count() == 0
    said = [record for record in caplog.records if "limit for all connections" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING]


async def test_requests_that_are_never_finished_are_bounded_over_all_connections() -> None:
    budget = Budget(4 * MIB)
    async with run_port(budget=budget, scan_seconds=3600) as port, open_client(port.port) as good:
        writers = [(await asyncio.open_connection("127.0.0.1", port.port))[1] for _ in range(8)]
        for writer in writers:
            writer.write(HELLO + headers(1) + data(1, message(bytes(2 * MIB))[: 900 * 1024]))
        await turn_until(lambda: budget.closed > 0)
        good.write(call(1))
        assert (await good.wait_for_answer(1)).status == 0
        assert budget.count() <= 5 * MIB
        for writer in writers:
            writer.transport.abort()


async def test_what_a_connection_holds_is_counted() -> None:
    wire = Wire()
    wire.read_written()
    assert wire.link.held_bytes == 0
    wire.feed(headers(1), data(1, message(bytes(10_000))[:5000]), headers(3)[:7])
    assert 9000 < wire.link.held_bytes < 10_000
    assert wire.link.unfinished_bytes == 5000 + 7
    wire.feed(headers(3)[7:], call(5, bytes(7000), path="/demo/hang"))
    assert 3 * 4096 + 12_000 <= wire.link.held_bytes < 3 * 4096 + 12_100
    wire.link.connection_lost(None)
    assert wire.link.held_bytes == 0
    await wire.settle()


async def test_a_peer_that_does_not_read_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with run_port(**limit(unread_bytes_max=MIB)) as port, open_client(port.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.write(settings(initial_window_size=1 << 30), widen(0, 1 << 30))
        for stream in range(1, 41, 2):
            client.write(call(stream, bytes(MIB)))
        await turn_until(lambda: not port.links or "held" in caplog.text or _is_stuck(port))
        client.writer.transport.abort()
    assert not port.links


def _is_stuck(port: GrpcPort) -> bool:
    """Whether nothing more is read from the only connection, and its memory is bounded."""
    (link,) = port.links
    return not link._transport.is_reading() and link.held_bytes < 64 * MIB  # type: ignore[union-attr]


# -- who may connect --------------------------------------------------------------------------------------------------


async def test_connections_above_the_limit_are_told_so(caplog: pytest.LogCaptureFixture) -> None:
    async with run_port(**limit(connections_max=1)) as port, open_client(port.port) as first:
        first.write(call(1))
        await first.wait_for_answer(1)
        async with open_client(port.port) as second:
            await second.wait_for_end()
            goaway = second.read_goaway()
            assert goaway is not None
            assert goaway[1] == ErrorCode.ENHANCE_YOUR_CALM
            assert "serverMaxConnections" in goaway[2]
        first.write(call(3))
        assert (await first.wait_for_answer(3)).status == 0


async def test_ports_of_both_protocols_share_their_limits() -> None:
    """A stranger on one port makes room for a newcomer on the other."""
    options = LimitOptions(connections_max=1)
    admission = Admission(lambda: options, time.monotonic)
    shared: dict[str, Any] = {"limits": lambda: options, "admission": admission, "has_accounts": True}
    async with (
        run_port(**shared) as port,
        run_server({}, refuse_unknown, **shared) as server,
        open_client(port.port) as stranger,
    ):
        await turn_until(lambda: len(port.links) == 1)
        async with open_peer(server.port):
            await stranger.wait_for_end()
            await turn_until(lambda: len(server.links) == 1)
            async with open_client(port.port) as newcomer:
                newcomer.write(call(1))
                assert (await newcomer.wait_for_answer(1)).status == 0
                await turn_until(lambda: not server.links)


async def test_refused_calls_of_strangers_are_limited() -> None:
    def refuse(call: Call, request: bytes) -> bytes:
        port.refuse_stranger(call.connection)
        raise GrpcError(GrpcStatus.UNAUTHENTICATED, "who are you?")

    options = limit(refusals_per_second_max=3)
    methods = {"/demo/echo": Method("", Kind.UNARY, refuse)}
    async with run_port(methods, has_accounts=True, **options) as port, open_client(port.port) as client:
        client.write(*(call(stream) for stream in range(1, 9, 2)))
        statuses = [(await client.wait_for_answer(stream)).status for stream in range(1, 9, 2)]
        assert statuses == [GrpcStatus.UNAUTHENTICATED] * 3 + [GrpcStatus.RESOURCE_EXHAUSTED]
        (link,) = port.links
        client.write(call(9))
        await port._scan()
        assert not link._transport.is_reading()  # type: ignore[union-attr]
        link.account = "known"
        port.refuse_stranger(link)


# -- TLS --------------------------------------------------------------------------------------------------------------


async def test_a_port_takes_plain_connections_and_tls_with_and_without_alpn() -> None:
    tls = ServerTls(TlsOptions(mode=TlsMode.PERMISSIVE), protocols=PROTOCOLS)
    seen: list[bool] = []

    def note(call: Call, request: bytes) -> bytes:
        seen.append(call.over_tls)
        return request

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with run_port({"/demo/echo": Method("", Kind.UNARY, note)}, tls=tls) as port:
        async with open_client(port.port) as client:
            client.write(call(1))
            assert (await client.wait_for_answer(1)).status == 0
        for offered, chosen in (([], None), (["h2"], "h2"), (["http/1.1", "h2"], "h2"), (["http/1.1"], None)):
            if offered:
                context.set_alpn_protocols(offered)
            async with open_client(port.port, ssl=context) as client:
                assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == chosen
                client.write(call(1, bytes(100_000)), widen(0, 100_000), widen(1, 100_000))
                assert (await client.wait_for_answer(1)).messages == [bytes(100_000)]
    assert seen == [False, True, True, True, True]


def test_clients_of_tests_read_what_was_split() -> None:
    client = Client()
    for byte in encode_frame(FrameType.PING, 0, 0, bytes(8)) + encode_frame(FrameType.DATA, 1, 1, b"x"):
        client.take(bytes((byte,)))
    assert client.list_kinds() == [FrameType.PING, FrameType.DATA]

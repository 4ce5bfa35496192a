"""The official client library of Python on our port: everything that clients of RocketMQ do with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from eruca._net.http2.calls import Call, GrpcError, GrpcStatus, Kind, Method
from eruca._net.http2.options import GrpcOptions
from eruca._net.http2.port import PROTOCOLS, GrpcPort, GrpcSettings
from eruca._net.tls import ServerTls
from eruca._net.tlsoptions import TlsMode, TlsOptions
from tests.authority import Authority, Pair
from tests.patience import PATIENCE_S
from tests.unit.net.rawpeer import turn_until

MIB = 1024 * 1024
LARGE = bytes(range(256)) * 4096 * 16  # 16 MiB
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Service:
    """Methods of each kind, and what happened to their calls."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.calls: list[Call] = []

    def echo(self, call: Call, request: bytes) -> bytes:
        self.calls.append(call)
        return request

    async def later(self, call: Call, request: bytes) -> bytes:
        await asyncio.sleep(0.001)
        return request

    async def hang(self, call: Call, request: bytes) -> bytes:
        self.started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b""

    def refuse(self, call: Call, request: bytes) -> bytes:
        raise GrpcError(GrpcStatus.FAILED_PRECONDITION, "50 % of grün\n")

    async def repeat(self, call: Call, request: bytes) -> None:
        for number in range(int(request)):
            await call.send(b"%d " % number * 10_000)

    async def converse(self, call: Call) -> None:
        call.push(b"welcome")
        while (message := await call.receive()) is not None:
            await call.send(message)

    @property
    def methods(self) -> dict[str, Method]:
        unary = {"echo": self.echo, "later": self.later, "hang": self.hang, "refuse": self.refuse}
        found = {f"/demo/{name}": Method(name, Kind.UNARY, handler) for name, handler in unary.items()}
        found["/demo/repeat"] = Method("repeat", Kind.SERVER_STREAM, self.repeat)
        return found | {"/demo/converse": Method("converse", Kind.BIDI, self.converse)}


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    """The library ends its thread with its last channel, and waits for that: not in a loop."""

    async def start() -> None:
        grpc.aio.init_grpc_aio()

    asyncio.run(start())
    yield
    grpc.aio.shutdown_grpc_aio()


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Authority(tmp_path).issue("server")


@pytest.fixture
async def port(service: Service, pair: Pair) -> AsyncIterator[GrpcPort]:
    """A port that takes plain connections and TLS."""
    options = TlsOptions(mode=TlsMode.PERMISSIVE, certificate=str(pair.certificate), key=str(pair.key))
    tls = ServerTls(options, protocols=PROTOCOLS)
    await tls.start()
    found = GrpcPort(service.methods, GrpcSettings(tls=tls, scan_seconds=0.05, drain_seconds=PATIENCE_S))
    await found.open()
    try:
        yield found
    finally:
        found.settings.drain_seconds = 0.01
        await found.close()
        await tls.stop()


@pytest.fixture(params=["plain", "tls"])
async def channel(request: pytest.FixtureRequest, port: GrpcPort, tmp_path: Path) -> AsyncIterator[Any]:
    """A channel of the library, with and without TLS."""
    if request.param == "plain":
        found = grpc.aio.insecure_channel(f"127.0.0.1:{port.port}", options=UNLIMITED)
    else:
        trust = await asyncio.to_thread((tmp_path / "ca.pem").read_bytes)
        credentials = grpc.ssl_channel_credentials(trust)
        found = grpc.aio.secure_channel(f"localhost:{port.port}", credentials, options=UNLIMITED)
    async with found:
        yield found


async def test_unary_calls(channel: Any, service: Service) -> None:
    echo = channel.unary_unary("/demo/echo")
    answers = await asyncio.gather(*(echo(b"%d" % number, timeout=PATIENCE_S) for number in range(500)))
    assert answers == [b"%d" % number for number in range(500)]
    later = channel.unary_unary("/demo/later")
    answers = await asyncio.gather(*(later(b"%d" % number, timeout=PATIENCE_S) for number in range(500)))
    assert answers == [b"%d" % number for number in range(500)]
    assert await echo(b"", timeout=PATIENCE_S) == b""
    assert all(call.deadline is not None for call in service.calls)


async def test_metadata(channel: Any, service: Service, port: GrpcPort) -> None:
    metadata = (("x-mq-client-id", "me"), ("trace-bin", b"\x00\xff"), ("twice", "1"), ("twice", "2"))
    await channel.unary_unary("/demo/echo")(b"", metadata=metadata)
    (call,) = service.calls
    assert call.metadata["x-mq-client-id"] == "me"
    assert call.metadata["trace-bin"].rstrip("=") == "AP8"
    assert call.metadata["twice"] == "1,2"
    assert call.authority.endswith(f":{port.port}")
    assert call.deadline is None


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_large_messages(channel: Any, compression: Any) -> None:
    """Larger than all windows, in both directions."""
    echo = channel.unary_unary("/demo/echo")
    assert await echo(LARGE, compression=compression, timeout=PATIENCE_S) == LARGE
    answers = await asyncio.gather(*(echo(LARGE[: 2 * MIB], compression=compression) for _ in range(5)))
    assert answers == [LARGE[: 2 * MIB]] * 5


async def test_a_message_above_the_limit(service: Service) -> None:
    port = GrpcPort(service.methods, GrpcSettings(grpc=GrpcOptions(message_bytes_max=MIB)))
    await port.open()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port.port}", options=UNLIMITED) as channel:
        echo = channel.unary_unary("/demo/echo")
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            with pytest.raises(grpc.RpcError) as caught:
                await echo(LARGE, compression=compression)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await echo(bytes(MIB)) == bytes(MIB)
    await port.close()


async def test_errors(channel: Any) -> None:
    for path, code, text in (
        ("/demo/refuse", grpc.StatusCode.FAILED_PRECONDITION, "50 % of grün\n"),
        ("/demo/nothing", grpc.StatusCode.UNIMPLEMENTED, "there is no method /demo/nothing"),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            await channel.unary_unary(path)(b"")
        assert (caught.value.code(), caught.value.details()) == (code, text)


async def test_a_server_stream(channel: Any) -> None:
    found = [message async for message in channel.unary_stream("/demo/repeat")(b"200")]
    assert found == [b"%d " % number * 10_000 for number in range(200)]
    assert [message async for message in channel.unary_stream("/demo/repeat")(b"0")] == []


async def test_a_stream_that_its_client_leaves(channel: Any) -> None:
    stream = channel.unary_stream("/demo/repeat")(b"100000")
    assert await stream.read()
    stream.cancel()
    assert await channel.unary_unary("/demo/echo")(b"after") == b"after"


async def test_a_conversation(channel: Any) -> None:
    stream = channel.stream_stream("/demo/converse")(timeout=30_000_000)
    assert await stream.read() == b"welcome"
    for number in range(100):
        await stream.write(b"%d" % number)
        assert await stream.read() == b"%d" % number
    await stream.write(LARGE)
    assert await stream.read() == LARGE
    await stream.done_writing()
    assert await stream.read() == grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_deadline(channel: Any, service: Service) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        await channel.unary_unary("/demo/hang")(b"", timeout=0.05)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with asyncio.timeout(PATIENCE_S):
        await service.cancelled.wait()


async def test_a_call_that_is_cancelled(channel: Any, service: Service) -> None:
    call = channel.unary_unary("/demo/hang")(b"")
    async with asyncio.timeout(PATIENCE_S):
        await service.started.wait()
        call.cancel()
        await service.cancelled.wait()
    assert call.cancelled()


async def test_a_port_that_closes(channel: Any, port: GrpcPort) -> None:
    """A call under way gets its answer; a stream is ended; the client learns that the server is gone."""
    stream = channel.stream_stream("/demo/converse")()
    assert await stream.read() == b"welcome"
    later = channel.unary_unary("/demo/later")(b"under way")
    await asyncio.sleep(0)
    assert await channel.unary_unary("/demo/echo")(b"x") == b"x"
    await port.close()
    assert await later == b"under way"
    with pytest.raises(grpc.RpcError, match="the server stops"):
        await stream.read()
    with pytest.raises(grpc.RpcError) as caught:
        await channel.unary_unary("/demo/echo")(b"", timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_silent_client_answers_pings(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    port = GrpcPort(service.methods, GrpcSettings(grpc=GrpcOptions(grpc_idle_ms=20), scan_seconds=0.01))
    await port.open()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port.port}") as channel:
        stream = channel.stream_stream("/demo/converse")()
        assert await stream.read() == b"welcome"
        (link,) = port.links
        for _ in range(3):
            before = link.last_heard
            await turn_until(lambda: link.last_heard > before)  # noqa: B023
        await stream.write(b"still here")
        assert await stream.read() == b"still here"
        await stream.done_writing()
        assert await stream.read() == grpc.aio.EOF
        # Without a call it is closed, and the client connects again.
        await turn_until(lambda: not port.links)
        assert await channel.unary_unary("/demo/echo")(b"again", wait_for_ready=True) == b"again"
    await port.close()
    assert not caplog.records

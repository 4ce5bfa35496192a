"""One port for plain connections and TLS: the first byte decides, and who hangs in between blocks nobody."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import AsyncExitStack
from typing import Any

import pytest

from eruca._ground.limits import FRAME_BYTES_MAX
from eruca._net import listening
from eruca._net.guards import Reporter
from eruca._net.limitoptions import LimitOptions
from eruca._net.listening import Listener
from eruca._net.server import Server
from eruca._net.tls import Tls, make_client_context
from eruca._net.tlsoptions import ClientAuth, TlsMode
from eruca._wire.codes import ResponseCode
from eruca._wire.frame import FrameBuffer, FrameError, encode_command, make_request
from eruca._wire.replication import HELLO_MAGIC, LogReport, encode_report
from tests.authority import Authority
from tests.unit.net.rawpeer import SECONDS_MAX, RawPeer, open_peer, turn_until, wait_for_links
from tests.unit.net.tlsserver import ECHO, Run, run_tls

# What a client hello starts with.
HALF_A_HELLO = bytes.fromhex("160301")


async def check(peer: RawPeer, opaque: int = 1) -> None:
    """A request on this connection is answered."""
    assert (await peer.ask(make_request(ECHO, body=b"whole", opaque=opaque))).body == b"whole"


def waiting(server: Server) -> int:
    """How many connections of a server have no protocol yet."""
    assert server._listener is not None
    return server._listener.waiting


async def wait_for_handshakes(server: Server, count: int) -> None:
    """Wait until that many handshakes are in progress."""
    listener = server._listener
    assert listener is not None
    await turn_until(lambda: len(listener._shaking) == count)


# --- the first byte -------------------------------------------------------------------------------------------------


def test_no_plain_connection_can_start_like_tls() -> None:
    tls = listening._TLS_HANDSHAKE
    assert FRAME_BYTES_MAX <= 1 << 24, "the first byte of the size is always 0"
    with pytest.raises(FrameError):
        FrameBuffer().feed(bytes([tls, 0, 0, 0]) + bytes(4))
    assert encode_command(make_request(ECHO))[0] == 0
    assert encode_report(LogReport(2**56 - 1))[0] == 0 and HELLO_MAGIC[0] not in (0, tls)


def test_a_permissive_port_serves_both(run: Run, options: dict[str, str], trusting: ssl.SSLContext) -> None:
    async def scene() -> None:
        async with (
            run_tls(options) as server,
            open_peer(server.port) as plain,
            open_peer(server.port, trusting) as encrypted,
        ):
            for number in range(3):
                await check(plain, number)
                await check(encrypted, number)
            links = await wait_for_links(server, 2)
            assert [link.certificate for link in links] == [None, None]
            assert waiting(server) == 0
            raw = plain.writer.get_extra_info("sockname")
            assert f"{raw[0]}:{raw[1]}" in {link.peer for link in links}

    run(scene())


def test_large_frames_in_both_directions(run: Run, options: dict[str, str], trusting: ssl.SSLContext) -> None:
    async def scene() -> None:
        async with run_tls(options) as server, open_peer(server.port, trusting) as peer:
            body = bytes(range(256)) * 40_000
            assert (await peer.ask(make_request(ECHO, body=body))).body == body

    run(scene())


def test_an_enforcing_port_refuses_plain_connections(
    run: Run, options: dict[str, str], trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with run_tls({"mode": TlsMode.ENFORCING, **options}) as server:
            for _ in range(3):
                async with open_peer(server.port) as plain:
                    plain.write(make_request(ECHO))
                    assert await plain.wait_for_end() == b""
            async with open_peer(server.port, trusting) as encrypted:
                await check(encrypted)

    run(scene())
    refused = [line for line in caplog.messages if "tls.server.mode=enforcing" in line]
    assert len(refused) == 1 and "127.0.0.1" in refused[0] and "does not use TLS" in refused[0]


def test_a_disabled_port_refuses_tls(run: Run, trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with run_tls({"mode": TlsMode.DISABLED}) as server:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                async with open_peer(server.port, trusting):
                    pass
            async with open_peer(server.port) as plain:
                await wait_for_links(server, 1)  # without a byte: nothing has to be found out
                await check(plain)

    run(scene())
    assert "it uses TLS, which is not accepted here" in caplog.text


def test_bytes_may_come_one_by_one(run: Run, options: dict[str, str]) -> None:
    async def scene() -> None:
        async with run_tls(options) as server, open_peer(server.port) as peer:
            frame = encode_command(make_request(ECHO, body=b"slowly"))
            for number in range(len(frame)):
                peer.write_bytes(frame[number : number + 1])
                await asyncio.sleep(0)
            assert (await peer.read()).body == b"slowly"

    run(scene())


def test_a_peer_that_leaves_without_a_byte_is_forgotten(run: Run, options: dict[str, str]) -> None:
    async def scene() -> None:
        async with run_tls(options) as server:
            async with open_peer(server.port):
                await turn_until(lambda: waiting(server) == 1)
            await turn_until(lambda: waiting(server) == 0)
            sock = socket.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.close()  # with a reset
            await turn_until(lambda: waiting(server) == 0)
            assert not server.links

    run(scene())


# --- certificates of clients ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("auth", list(ClientAuth))
def test_client_certificates(run: Run, authority: Authority, options: dict[str, str], auth: ClientAuth) -> None:
    mine, strange = authority.issue("client"), Authority(authority.ca.parent, "other").issue("stranger")
    contexts = {
        "none": make_client_context(Tls(ca=authority.ca)),
        "mine": make_client_context(Tls(ca=authority.ca, certificate=mine.certificate, key=mine.key)),
        "strange": make_client_context(Tls(ca=authority.ca, certificate=strange.certificate, key=strange.key)),
    }
    trust = {} if auth is ClientAuth.NONE else {"trust": str(authority.ca)}
    found: dict[str, str | None] = {}

    async def scene() -> None:
        async with run_tls({**options, "client_auth": auth, **trust}) as server:
            for name, context in contexts.items():
                try:
                    async with open_peer(server.port, context) as peer:
                        peer.write(make_request(ECHO))
                        if answer := await peer.wait_for_answer():
                            assert answer.code == ResponseCode.SUCCESS
                            (link,) = await wait_for_links(server, 1)
                            found[name] = link.certificate
                except (ssl.SSLError, ConnectionError):
                    pass
                await wait_for_links(server, 0)

    run(scene())
    assert (
        found
        == {
            ClientAuth.NONE: {"none": None, "mine": None, "strange": None},
            ClientAuth.OPTIONAL: {"none": None, "mine": mine.fingerprint},
            ClientAuth.REQUIRE: {"mine": mine.fingerprint},
        }[auth]
    )


# --- who hangs in between -------------------------------------------------------------------------------------------


def test_a_silent_connection_is_closed(run: Run, options: dict[str, str]) -> None:
    async def scene() -> None:
        async with run_tls(options, first_byte_seconds=0.05) as server, open_peer(server.port) as peer:
            assert await peer.wait_for_end() == b""
            assert waiting(server) == 0

    run(scene())


def test_a_slow_handshake_ends_and_blocks_nobody(
    run: Run, options: dict[str, str], trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with run_tls(options, handshake_seconds=2.0) as server, AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(open_peer(server.port)) for _ in range(20)]
            for peer in slow:
                peer.write_bytes(HALF_A_HELLO)
            await turn_until(lambda: waiting(server) == len(slow))
            async with open_peer(server.port) as plain, open_peer(server.port, trusting) as encrypted:
                await check(plain)
                await check(encrypted)
                assert waiting(server) == len(slow)
                for peer in slow:
                    assert await peer.wait_for_end() == b""
                await turn_until(lambda: waiting(server) == 0)
                await check(plain, 2)

    run(scene())
    assert sum("the TLS handshake failed" in line for line in caplog.messages) == 1


def test_of_too_many_handshakes_the_oldest_is_dropped(
    run: Run, options: dict[str, str], trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKES_MAX", 3)

    async def scene() -> None:
        async with run_tls(options) as server, AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(open_peer(server.port)) for _ in range(8)]
            for count, peer in enumerate(slow, 1):
                peer.write_bytes(HALF_A_HELLO)
                await wait_for_handshakes(server, min(count, 3))
            for peer in slow[:4]:
                assert await peer.wait_for_end() == b""
            async with open_peer(server.port, trusting) as encrypted:
                await check(encrypted)

    run(scene())


def test_a_crowd_from_one_address_pushes_out_no_handshake_of_another(
    run: Run, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKES_MAX", 3)

    async def scene() -> None:
        async with run_tls(options) as server, AsyncExitStack() as stack:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
            writer.write(HALF_A_HELLO)
            await wait_for_handshakes(server, 1)
            slow = [await stack.enter_async_context(open_peer(server.port)) for _ in range(8)]
            for count, peer in enumerate(slow, 2):
                peer.write_bytes(HALF_A_HELLO)
                await wait_for_handshakes(server, min(count, 3))
            for peer in slow[:6]:
                assert await peer.wait_for_end() == b""
            assert not reader.at_eof()
            assert server._listener is not None
            assert next(iter(server._listener._shaking)).host == "127.0.0.2"
            writer.close()

    run(scene())


def test_silent_connections_make_room_for_others(run: Run, options: dict[str, str]) -> None:
    async def scene() -> None:
        async with (
            run_tls(options, limits=lambda: LimitOptions(connections_max=20)) as server,
            AsyncExitStack() as stack,
        ):
            silent = [await stack.enter_async_context(open_peer(server.port)) for _ in range(60)]
            await turn_until(lambda: waiting(server) == 20)
            for peer in silent[:40]:
                assert await peer.wait_for_end() == b""
            async with open_peer(server.port) as good:
                await check(good)
                assert len(server.links) + waiting(server) <= 20

    run(scene())


def test_a_stop_closes_those_who_hang(run: Run, options: dict[str, str]) -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack:
            async with run_tls(options) as server:
                silent = await stack.enter_async_context(open_peer(server.port))
                slow = await stack.enter_async_context(open_peer(server.port))
                slow.write_bytes(HALF_A_HELLO)
                await turn_until(lambda: waiting(server) == 2)
            assert await silent.wait_for_end() == b"" and await slow.wait_for_end() == b""

    run(scene())


def test_without_files_it_goes_on_after_a_pause(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "_EXHAUSTED_SECONDS", 0.01)
    opened: list[asyncio.Protocol] = []

    class Exhausted:
        """A listening socket of a process that has no files left, at first."""

        def __init__(self, inner: socket.socket) -> None:
            self._inner = inner
            self._failures = 2

        def fileno(self) -> int:
            return self._inner.fileno()

        def accept(self) -> Any:
            if self._failures:
                self._failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return self._inner.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    class Taken(asyncio.Protocol):
        def __init__(self) -> None:
            opened.append(self)

    real = listening._listen
    monkeypatch.setattr(listening, "_listen", lambda *given: Exhausted(real(*given)))

    async def scene() -> None:
        listener = Listener(Taken, None, Reporter(listening.log), room=lambda: 10)
        await listener.start("127.0.0.1", 0)
        async with open_peer(listener.port):
            await turn_until(lambda: bool(opened))
        await listener.stop()

    run(scene())
    assert "no connection can be accepted: Too many open files" in caplog.text


def test_connections_are_closed_with_their_server_and_count_once(run: Run, options: dict[str, str]) -> None:
    async def scene() -> None:
        async with run_tls(options) as server:
            async with AsyncExitStack() as stack:
                peers = [await stack.enter_async_context(open_peer(server.port)) for _ in range(40)]
                async with asyncio.timeout(SECONDS_MAX):
                    await asyncio.gather(*[check(peer) for peer in peers])
                assert (len(server.links), waiting(server)) == (40, 0)
            await wait_for_links(server, 0)

    run(scene())

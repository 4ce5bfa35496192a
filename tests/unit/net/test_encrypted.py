"""What a TLS connection keeps in memory is bounded and counted, although it has buffers of its own."""

from __future__ import annotations

import asyncio
import gc
import ssl
import weakref
from contextlib import suppress

from eruca._ground.limits import TLS_PIECE_BYTES
from eruca._net.budget import Budget
from eruca._net.encrypted import EncryptedTransport, TlsLayer
from eruca._net.link import Answer, Link
from eruca._wire.codes import ResponseCode
from eruca._wire.frame import Command, encode_command, make_request
from tests.unit.net.rawpeer import RecordingTransport, open_peer, turn_until, wait_for_links
from tests.unit.net.tlsserver import HANDLERS, Run, run_tls

LARGE = 35
MIB = 1024 * 1024
# More than the system takes for a connection on loopback.
ANSWER_BYTES = 15 * MIB


def answer_much(link: Link, command: Command) -> Answer:
    return encode_command(command.answer(ResponseCode.SUCCESS, body=bytes(ANSWER_BYTES)))


def test_responses_that_a_tls_client_does_not_read_are_counted(
    run: Run, options: dict[str, str], trusting: ssl.SSLContext
) -> None:
    """They are encrypted at once, and wait in a buffer below the one that asyncio shows."""

    async def scene() -> None:
        budget = Budget(1000 * MIB)
        handlers = {**HANDLERS, LARGE: answer_much}
        async with (
            run_tls(options, handlers, budget=budget) as server,
            open_peer(server.port, trusting) as greedy,
        ):
            (link,) = await wait_for_links(server, 1)
            greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]
            greedy.write(make_request(LARGE))
            await turn_until(lambda: link.unsent_bytes > MIB)
            assert budget.count() > MIB
            assert link.unsent_bytes < 2 * ANSWER_BYTES
            budget.bytes_max = MIB
            await turn_until(lambda: not link.is_open)
            assert budget.closed == 1
            greedy.writer.transport.abort()

    run(scene())


class Above(asyncio.Protocol):
    """A protocol that stops reading after each piece, and notes what happens."""

    def __init__(self) -> None:
        self.transport: EncryptedTransport | None = None
        self.heard: list[bytes] = []
        self.paused: list[bool] = []
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, EncryptedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.heard.append(data)
        self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Wired:
    """A layer and a client of OpenSSL without sockets: bytes are passed on by hand."""

    def __init__(self, options: dict[str, str], trusting: ssl.SSLContext) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options["certificate"], options["key"])
        self.above, self.below = Above(), RecordingTransport()
        self.layer = TlsLayer(asyncio.get_running_loop(), self.above, context)
        self.layer.connection_made(self.below)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trusting.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        while not self.layer.is_open.done():
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.layer.data_received(self.take())
            self.give()
        assert self.above.transport is not None
        self.transport = self.above.transport

    def take(self) -> bytes:
        """What the client has encrypted."""
        return self._outgoing.read()

    def give(self) -> None:
        """Pass on to the client what the layer has written."""
        self._incoming.write(b"".join(self.below.writes))
        self.below.writes.clear()

    def read(self) -> bytes:
        """What the client can decrypt."""
        found = b""
        with suppress(ssl.SSLWantReadError):
            while chunk := self.client.read(MIB):
                found += chunk
        return found


async def test_what_waits_to_be_read_is_counted_and_comes_later(
    options: dict[str, str], trusting: ssl.SSLContext
) -> None:
    wired = Wired(options, trusting)
    body = bytes(range(256)) * 400
    wired.client.write(body)
    wired.layer.data_received(wired.take())
    assert not wired.below.reads and len(wired.above.heard) == 1
    while (size := wired.transport.get_read_buffer_size()) > 0:
        left = len(body) - sum(map(len, wired.above.heard))
        # OpenSSL itself has a part of one record.
        assert left - 2 * TLS_PIECE_BYTES <= size <= left + 1000
        wired.transport.resume_reading()
        await asyncio.sleep(0)
    assert b"".join(wired.above.heard) == body
    assert max(map(len, wired.above.heard)) <= 2 * TLS_PIECE_BYTES


async def test_what_waits_to_be_written_is_counted_and_not_encrypted(
    options: dict[str, str], trusting: ssl.SSLContext
) -> None:
    wired = Wired(options, trusting)
    body = bytes(range(256)) * 4096
    wired.transport.set_write_buffer_limits(high=512 * 1024)
    wired.layer.pause_writing()
    wired.transport.write(body)
    assert (wired.below.writes, wired.above.paused) == ([], [True])
    assert wired.transport.get_write_buffer_size() == MIB
    wired.layer.resume_writing()
    assert max(map(len, wired.below.writes)) < 100_000  # pieces, which the socket may refuse to take
    wired.give()
    assert (wired.read(), wired.above.paused) == (body, [True, False])
    wired.below.unsent = 12_345
    assert wired.transport.get_write_buffer_size() == 12_345
    # What is left when the connection closes is written all the same, and then the goodbye.
    wired.layer.pause_writing()
    wired.transport.writelines([b"the ", memoryview(b"end")])
    wired.transport.close()
    assert wired.transport.is_closing() and wired.below.closed
    wired.give()
    assert wired.read() == b"the end"
    assert wired.client.read() == b""
    wired.transport.write(b"too late")
    assert wired.below.writes == []
    wired.layer.connection_lost(None)
    assert wired.above.lost == [None]


async def test_openssl_keeps_no_buffer_of_the_size_of_a_response(
    options: dict[str, str], trusting: ssl.SSLContext
) -> None:
    """It never gives back what a buffer has needed once."""
    wired = Wired(options, trusting)
    outgoing = wired.layer._outgoing
    reads: list[int] = []

    class Watched:
        """The same buffer, watched."""

        @property
        def pending(self) -> int:
            return outgoing.pending

        def read(self) -> bytes:
            reads.append(outgoing.pending)
            return outgoing.read()

    wired.layer._outgoing = Watched()  # type: ignore[assignment]
    wired.transport.write(bytes(8 * MIB))
    assert 0 < max(reads) < 2 * TLS_PIECE_BYTES


async def test_what_openssl_has_is_freed_at_once(options: dict[str, str], trusting: ssl.SSLContext) -> None:
    """A crowd that leaves must not wait for the garbage collector."""
    wired = Wired(options, trusting)
    watched = weakref.ref(wired.layer)
    wired.layer.connection_lost(None)
    gc.disable()
    try:
        del wired
        assert watched() is None
    finally:
        gc.enable()


async def test_bytes_that_are_not_tls_end_the_connection(options: dict[str, str], trusting: ssl.SSLContext) -> None:
    wired = Wired(options, trusting)
    wired.layer.data_received(b"\x16\x03\x03 this is not a record" * 10)
    assert wired.below.aborted and wired.transport.is_closing()
    wired.layer.connection_lost(None)
    (why,) = wired.above.lost
    assert isinstance(why, ssl.SSLError)

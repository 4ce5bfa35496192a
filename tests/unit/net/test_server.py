"""A server against peers that hang, crowd or babble: it stays up, its memory stays bounded, and the log stays short."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eruca._net import server as server_module
from eruca._net.admission import Admission
from eruca._net.answers import InOrder
from eruca._net.budget import Budget
from eruca._net.caller import Caller
from eruca._net.handlers import ignore_unknown, refuse_unknown
from eruca._net.limitoptions import LimitOptions
from eruca._net.link import Answer, Handler, Link
from eruca._net.listening import ForeignAddress
from eruca._net.server import Server, ServerSettings
from eruca._observe.metrics import SERVER
from eruca._wire.codes import ResponseCode
from eruca._wire.frame import Command, encode_command, make_request
from eruca.errors import ConnectFailed, ConnectionLost, RequestRefused
from tests.unit.net.rawpeer import SECONDS_MAX, RawPeer, open_peer, run_server, split_frames, turn_until, wait_for_links

ECHO, REFUSED, UNKNOWN = 34, 35, 999


def count(option: str) -> float:
    """How often something was refused because of the limit that this option sets."""
    return float(SERVER.snapshot().get(f'eruca_server_refused_total{{option="{option}"}}', 0))


def echo(link: Link, command: Command) -> Answer:
    return encode_command(command.answer(ResponseCode.SUCCESS, body=command.body))


HANDLERS: dict[int, Handler] = {ECHO: echo}


@asynccontextmanager
async def run_two(**settings: Any) -> AsyncIterator[tuple[Server, RawPeer, RawPeer]]:
    """A server with two connections."""
    async with (
        run_server(HANDLERS, refuse_unknown, **settings) as server,
        open_peer(server.port) as first,
        open_peer(server.port) as second,
    ):
        await wait_for_links(server, 2)
        yield server, first, second


def announce(size: int) -> bytes:
    """The start of a frame whose body has this many bytes, none of which were sent yet."""
    frame = encode_command(make_request(ECHO, body=bytes(16)))
    return (len(frame) - 4 - 16 + size).to_bytes(4, "big") + frame[4:-16]


async def wait_for_unfinished(server: Server, size: int) -> None:
    await turn_until(lambda: sum(link.unfinished_bytes for link in server.links) >= size)


# --- starting and stopping ------------------------------------------------------------------------------------------


async def test_port_that_is_taken_is_named() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server:
        other = Server(HANDLERS, refuse_unknown, ServerSettings(port=server.port))
        with pytest.raises(ConnectFailed, match=f"cannot listen on 127.0.0.1:{server.port}.*another process"):
            await other.start()
        await other.stop()


async def test_an_address_of_another_machine_is_not_a_port_that_is_taken() -> None:
    server = Server(HANDLERS, refuse_unknown, ServerSettings(host="192.0.2.1", port=0))
    with pytest.raises(ForeignAddress, match=r"cannot listen on 192\.0\.2\.1:0.*set bindAddress"):
        await server.start()
    await server.stop()


async def test_stop_closes_the_port_and_every_connection() -> None:
    closed: list[Link] = []
    server = Server(HANDLERS, refuse_unknown, ServerSettings(), on_close=closed.append)
    assert server.port == 0
    await server.start()
    port = server.port
    async with open_peer(port) as first, open_peer(port) as second:
        assert (await first.ask(make_request(ECHO, body=b"a"))).body == b"a"
        links = await wait_for_links(server, 2)
        await server.stop()
        assert await first.wait_for_end() == await second.wait_for_end() == b""
    assert not server.links and set(closed) == set(links)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    await server.stop()


async def test_stop_does_not_wait_for_a_peer_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "GOODBYE_SECONDS", 0.01)
    server = Server(HANDLERS, refuse_unknown, ServerSettings())
    await server.start()
    async with open_peer(server.port) as peer:
        (link,) = await wait_for_links(server, 1)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        link.send(bytes(32 * 1024 * 1024))
        await asyncio.sleep(0)
        async with asyncio.timeout(SECONDS_MAX):
            await server.stop()
        await wait_for_links(server, 0)
        assert not link.is_open


async def test_answers_on_their_way_arrive_before_a_stop() -> None:
    server = Server(HANDLERS, refuse_unknown, ServerSettings())
    await server.start()
    async with open_peer(server.port) as peer:
        (link,) = await wait_for_links(server, 1)
        link.notify(make_request(40))
        await server.stop()
        assert (await peer.read()).code == 40


async def test_unknown_code_is_refused_or_ignored() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, open_peer(server.port) as peer:
        assert (await peer.ask(make_request(9999))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    async with run_server(HANDLERS, ignore_unknown) as server, open_peer(server.port) as peer:
        peer.write(make_request(9999, opaque=1))
        assert (await peer.ask(make_request(ECHO, opaque=2))).opaque == 2


# --- peers that hang ------------------------------------------------------------------------------------------------


async def test_idle_connection_is_closed() -> None:
    async with run_server(HANDLERS, refuse_unknown, idle_seconds=0.3) as server, open_peer(server.port) as peer:
        assert (await peer.ask(make_request(ECHO))).code == 0
        assert await peer.wait_for_end() == b""
        await wait_for_links(server, 0)


async def test_a_mistake_does_not_end_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = asyncio.Event()

    def fail(link: Link, now: float) -> bool:
        failed.set()
        raise ValueError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(Link, "expire_calls", fail)
        async with run_server(HANDLERS, refuse_unknown, idle_seconds=0) as server, open_peer(server.port) as peer:
            async with asyncio.timeout(SECONDS_MAX):
                await failed.wait()
            assert server.links
            patch.undo()
            assert await peer.wait_for_end() == b""


async def test_connection_in_use_is_kept_and_the_idle_one_beside_it_is_not() -> None:
    async with run_two(idle_seconds=1) as (server, busy, idle):
        ended = asyncio.create_task(idle.wait_for_end())
        asked = 0
        while not ended.done():
            assert (await busy.ask(make_request(ECHO))).code == 0
            asked += 1
        assert asked > 10 and len(server.links) == 1


async def test_idle_peer_that_left_its_answers_unread_is_closed_too() -> None:
    async with run_server(HANDLERS, refuse_unknown, idle_seconds=0.3) as server, open_peer(server.port) as peer:
        (link,) = await wait_for_links(server, 1)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        link.send(bytes(32 * 1024 * 1024))
        await wait_for_links(server, 0)
        assert not link.is_open


async def test_late_call_to_a_client_ends() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, open_peer(server.port):
        (link,) = await wait_for_links(server, 1)
        call = link.call(make_request(39), 0.01)
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.wait((call,))
        assert "did not answer in time" in str(call.exception())


# --- peers that crowd -----------------------------------------------------------------------------------------------


async def test_connections_above_the_bound_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    limits = LimitOptions(connections_max=2)
    before = count("serverMaxConnections")
    async with run_server(HANDLERS, refuse_unknown, limits=lambda: limits) as server:
        async with open_peer(server.port) as first, open_peer(server.port):
            await wait_for_links(server, 2)
            for _ in range(5):
                async with open_peer(server.port) as refused:
                    (answer,) = split_frames(await refused.wait_for_end())
                    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_BUSY, -1)
                    assert answer.remark == "2 connections are open, as many as serverMaxConnections allows"
            assert (await first.ask(make_request(ECHO))).code == 0
        await wait_for_links(server, 0)
        async with open_peer(server.port) as again:
            assert (await again.ask(make_request(ECHO))).code == 0
    said = [record.getMessage() for record in caplog.records if "connections are open" in record.getMessage()]
    assert len(said) == 1
    assert count("serverMaxConnections") - before == 5


async def test_connections_of_one_address_above_the_bound_are_refused() -> None:
    limits = LimitOptions(connections_per_address_max=2)
    before = count("serverMaxConnectionsPerAddress")
    async with run_server(HANDLERS, refuse_unknown, limits=lambda: limits, host="") as server:
        async with open_peer(server.port), open_peer(server.port):
            await wait_for_links(server, 2)
            async with open_peer(server.port) as refused:
                (answer,) = split_frames(await refused.wait_for_end())
                assert "2 connections from 127.0.0.1 are open" in (answer.remark or "")
                assert "serverMaxConnectionsPerAddress" in (answer.remark or "")
            async with open_peer(f"127.0.0.2:{server.port}") as other:
                # The address of the peer counts, not the one it connects to.
                assert await other.wait_for_end() != b""
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.9", 0))
            other = RawPeer(reader, writer)
            assert (await other.ask(make_request(ECHO))).code == 0
            await other.close()
        await wait_for_links(server, 0)
        async with open_peer(server.port) as again:
            assert (await again.ask(make_request(ECHO))).code == 0
    assert count("serverMaxConnectionsPerAddress") - before == 2


def log_in(link: Link, command: Command) -> Answer:
    """What the check of accounts does with a request that is signed."""
    link.account = "somebody"
    return echo(link, command)


async def connect_from(host: str, server: Server) -> RawPeer:
    """Connect from an address of this machine."""
    return RawPeer(*await asyncio.open_connection("127.0.0.1", server.port, local_addr=(host, 0)))


@pytest.mark.parametrize("option", ["serverMaxConnections", "serverMaxConnectionsPerAddress"])
async def test_strangers_do_not_keep_clients_out(option: str, caplog: pytest.LogCaptureFixture) -> None:
    """Who never authenticated makes room, the oldest of its own address first. Who did authenticate stays."""
    limits = LimitOptions(
        connections_max=3 if option == "serverMaxConnections" else 100,
        connections_per_address_max=100 if option == "serverMaxConnections" else 3,
    )
    before = count(option)
    handlers = {ECHO: echo, 36: log_in}
    async with run_server(handlers, refuse_unknown, limits=lambda: limits, has_accounts=True) as server:
        known = await connect_from("127.0.0.5", server)
        assert (await known.ask(make_request(36))).code == 0
        strangers = []
        for number in range(20):
            strangers.append(await connect_from("127.0.0.5", server))
            assert (await strangers[-1].ask(make_request(ECHO))).code == 0
            if number < 2:
                continue
            (answer,) = split_frames(await strangers[number - 2].wait_for_end())
            assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_BUSY, -1)
            assert option in (answer.remark or "")
        # Neither those that authenticated nor a newcomer from elsewhere notice.
        assert (await known.ask(make_request(ECHO))).code == 0
        newcomer = await connect_from("127.0.0.6", server)
        assert (await newcomer.ask(make_request(36))).code == 0
        assert (await known.ask(make_request(ECHO))).code == 0
        for link in list(server.links):
            link.account = "somebody"
        if option == "serverMaxConnections":
            refused = await connect_from("127.0.0.7", server)
            (answer,) = split_frames(await refused.wait_for_end())
            assert "3 connections are open" in (answer.remark or "")
            await refused.close()
        for peer in (known, newcomer, *strangers):
            await peer.close()
        await wait_for_links(server, 0)
    assert count(option) - before >= 18
    assert len([text for text in caplog.messages if "because it never authenticated" in text]) == 1


async def test_without_accounts_a_newcomer_is_refused() -> None:
    limits = LimitOptions(connections_max=1)
    async with run_server(HANDLERS, refuse_unknown, limits=lambda: limits) as server, open_peer(server.port) as first:
        assert (await first.ask(make_request(ECHO))).code == 0
        async with open_peer(server.port) as second:
            (answer,) = split_frames(await second.wait_for_end())
            assert answer.code == ResponseCode.SYSTEM_BUSY
        assert (await first.ask(make_request(ECHO))).code == 0


async def test_servers_that_share_an_admission_share_its_limits() -> None:
    limits = LimitOptions(connections_max=1)
    shared: dict[str, Any] = {"limits": lambda: limits, "admission": Admission(lambda: limits, lambda: 0.0)}
    async with (
        run_server(HANDLERS, refuse_unknown, **shared) as main,
        run_server(HANDLERS, refuse_unknown, **shared) as fast,
        open_peer(main.port) as first,
    ):
        assert (await first.ask(make_request(ECHO))).code == 0
        async with open_peer(fast.port) as second:
            (answer,) = split_frames(await second.wait_for_end())
            assert answer.code == ResponseCode.SYSTEM_BUSY


async def test_a_request_that_takes_too_long_to_arrive_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    limits = LimitOptions(frame_seconds_max=1)
    before = count("serverMaxFrameSeconds")
    frame = encode_command(make_request(ECHO, body=bytes(1000)))
    async with (
        run_server(HANDLERS, refuse_unknown, limits=lambda: limits) as server,
        open_peer(server.port) as slow,
        open_peer(server.port) as idle,
        open_peer(server.port) as quick,
    ):
        links = await wait_for_links(server, 3)
        began = asyncio.get_running_loop().time()
        ending, position = asyncio.create_task(slow.wait_for_end()), 0
        while not ending.done():
            slow.write_bytes(frame[position : position + 1])  # one byte now and then
            # Others whose frames arrive in pieces but completely are not concerned.
            quick.write_bytes(frame[:20])
            await asyncio.wait([ending], timeout=0.05)
            quick.write_bytes(frame[20:])
            assert (await quick.read()).code == 0
            position += 1
        assert position < len(frame) and asyncio.get_running_loop().time() - began >= 1
        assert sum(link.is_open for link in links) == 2
        assert (await idle.ask(make_request(ECHO))).code == 0
    assert count("serverMaxFrameSeconds") - before == 1
    assert "a request took longer than 1 s (serverMaxFrameSeconds)" in caplog.text


async def test_strangers_may_be_refused_only_so_often() -> None:
    """With accounts, connections that never authenticated are slowed down; the others are not."""
    limits = LimitOptions(refusals_per_second_max=3)
    before = count("serverMaxAnonymousRequests")

    def refuse(link: Link, command: Command) -> Answer:
        raise RequestRefused(ResponseCode.NO_PERMISSION, "no account")

    handlers: dict[int, Handler] = {ECHO: echo, REFUSED: refuse}
    async with (
        run_server(handlers, refuse_unknown, limits=lambda: limits, has_accounts=True) as server,
        open_peer(server.port) as stranger,
        open_peer(server.port) as member,
    ):
        links = await wait_for_links(server, 2)
        for number in range(100):  # what is answered does not count
            assert (await stranger.ask(make_request(ECHO, opaque=number))).code == 0
        stranger.write(*[make_request((REFUSED, UNKNOWN)[number % 2], opaque=number) for number in range(8)])
        answers = [await stranger.read() for _ in range(5)]
        assert [answer.code for answer in answers[:4]] == [ResponseCode.NO_PERMISSION, 3, ResponseCode.NO_PERMISSION, 2]
        remark = answers[3].remark or ""
        assert "more than 3 refused requests in a second (serverMaxAnonymousRequests); sign requests" in remark
        # It is another connection of the same address, and has authenticated.
        for link in links:
            if link.peer.endswith(f":{member.writer.get_extra_info('sockname')[1]}"):
                link.account = "someone"
        for number in range(20):
            assert (await member.ask(make_request(REFUSED, opaque=number))).code == ResponseCode.NO_PERMISSION
        assert [(await stranger.read()).opaque for _ in range(3)] == [5, 6, 7]  # later, and in order
    assert count("serverMaxAnonymousRequests") - before >= 1


async def test_responses_of_strangers_to_no_call_count_as_refused_requests() -> None:
    """They are neither answered nor unknown, and each takes as long to read as a request."""
    limits = LimitOptions(refusals_per_second_max=3)
    before = count("serverMaxAnonymousRequests")
    strays = [make_request(ECHO, opaque=number).answer(ResponseCode.SUCCESS) for number in range(200)]
    async with (
        run_server(HANDLERS, refuse_unknown, limits=lambda: limits, has_accounts=True) as server,
        open_peer(server.port) as member,
    ):
        (link,) = await wait_for_links(server, 1)
        link.account = "someone"  # its call may have timed out before the response
        member.write(*strays)
        assert (await member.ask(make_request(ECHO, opaque=1))).code == ResponseCode.SUCCESS
        assert count("serverMaxAnonymousRequests") == before
        async with open_peer(server.port) as stranger:
            stranger.write(*strays)
            await turn_until(lambda: count("serverMaxAnonymousRequests") > before)
            for _ in range(100):  # the rest of them waits
                await asyncio.sleep(0)
        assert count("serverMaxAnonymousRequests") - before <= 64


async def test_without_accounts_nobody_is_a_stranger() -> None:
    limits = LimitOptions(refusals_per_second_max=1)
    async with run_server(HANDLERS, refuse_unknown, limits=lambda: limits) as server, open_peer(server.port) as peer:
        for number in range(50):
            answer = await peer.ask(make_request(UNKNOWN, opaque=number))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_requests_of_strangers_that_are_refused_later_count_too() -> None:
    """Large ones are checked in a thread."""
    limits = LimitOptions(refusals_per_second_max=3)

    async def refuse(link: Link, command: Command) -> bytes | None:
        raise RequestRefused(ResponseCode.NO_PERMISSION, "no account")

    handlers: dict[int, Handler] = {REFUSED: lambda link, command: InOrder(refuse(link, command))}
    async with (
        run_server(handlers, refuse_unknown, limits=lambda: limits, has_accounts=True) as server,
        open_peer(server.port) as stranger,
    ):
        stranger.write(*[make_request(REFUSED, opaque=number) for number in range(4)])
        answers = [await stranger.read() for _ in range(4)]
    assert [answer.code for answer in answers] == [ResponseCode.NO_PERMISSION] * 3 + [ResponseCode.SYSTEM_BUSY]
    assert "serverMaxAnonymousRequests" in (answers[3].remark or "")


async def test_a_caller_is_told_why_it_was_refused() -> None:
    limits = LimitOptions(connections_max=1)
    async with run_server(HANDLERS, refuse_unknown, limits=lambda: limits) as server, open_peer(server.port):
        await wait_for_links(server, 1)
        caller = Caller()
        try:
            with pytest.raises((ConnectFailed, ConnectionLost), match="as many as serverMaxConnections allows"):
                await caller.call(f"127.0.0.1:{server.port}", make_request(ECHO), 60_000)
        finally:
            await caller.close()


async def test_the_memory_for_all_connections_can_be_set() -> None:
    budget, limits = Budget(1), LimitOptions(held_bytes_max=12_345)
    async with run_server(HANDLERS, refuse_unknown, limits=lambda: limits, budget=budget):
        assert budget.bytes_max == 12_345


async def test_unfinished_frames_are_bounded_and_the_largest_holder_goes_first() -> None:
    async with run_two(budget=Budget(1_000_000), scan_seconds=3600) as (server, large, small):
        large.write_bytes(announce(4_000_000) + bytes(900_000))
        await wait_for_unfinished(server, 900_000)
        # No scan runs in this test: the limit also applies between scans.
        small.write_bytes(announce(4_000_000) + bytes(200_000))
        assert await large.wait_for_end() == b""
        (link,) = await wait_for_links(server, 1)
        await wait_for_unfinished(server, 200_000)
        assert link.peer_host[1] == small.writer.get_extra_info("sockname")[1]


async def test_finished_frames_are_not_counted_as_unfinished() -> None:
    settings: dict[str, Any] = {"budget": Budget(1_000_000), "scan_seconds": 3600}
    async with run_server(HANDLERS, refuse_unknown, **settings) as server, open_peer(server.port) as peer:
        for _ in range(5):
            answer = await peer.ask(make_request(ECHO, body=bytes(800_000)))
            assert len(answer.body) == 800_000


async def test_thousand_half_open_connections_disturb_nobody() -> None:
    beginning = announce(1_000_000)
    sockets: list[socket.socket] = []
    async with run_server(HANDLERS, refuse_unknown, idle_seconds=60) as server:
        try:
            for number in range(1000):
                half_open = socket.socket()
                sockets.append(half_open)
                half_open.setblocking(False)
                await asyncio.get_running_loop().sock_connect(half_open, ("127.0.0.1", server.port))
                # A frame that begins and never ends, cut anywhere.
                await asyncio.get_running_loop().sock_sendall(half_open, beginning[: number % len(beginning)])
            await wait_for_links(server, 1000)
            async with open_peer(server.port) as peer:
                for number in range(20):
                    assert (await peer.ask(make_request(ECHO, opaque=number))).opaque == number
            assert sum(link.unfinished_bytes for link in server.links) <= 1000 * len(beginning)
            server.settings.idle_seconds = 0
            await wait_for_links(server, 0)
        finally:
            for half_open in sockets:
                half_open.close()


# --- peers that babble ----------------------------------------------------------------------------------------------

HOSTILE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    bytes.fromhex("7fffffff00000010"),
    bytes.fromhex("ffffffff00000010"),
    bytes.fromhex("0000000000000000"),
    bytes.fromhex("0000001000ffffff"),
    bytes.fromhex("0000000c05000008") + b"{}{}{}{}",
    bytes.fromhex("0000000c00000008") + b"not json",
    bytes.fromhex("0000000c01000008") + b"too tiny",
    bytes.fromhex("0000000600000002") + b"{}",
]


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data[:12].hex())
async def test_hostile_bytes_end_their_connection_only(data: bytes) -> None:
    async with run_two() as (_, good, bad):
        bad.write_bytes(data)
        assert await bad.wait_for_end() == b""
        assert (await good.ask(make_request(ECHO))).code == 0


async def test_hostile_peer_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with run_server(HANDLERS, refuse_unknown) as server:
        for data in HOSTILE * 10:
            async with open_peer(server.port) as bad:
                bad.write_bytes(data)
                await bad.wait_for_end()
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("127.0.0.1:")


async def test_noise_of_any_kind_leaves_the_server_up() -> None:
    noise = random.Random(20_240_917)
    frame = encode_command(make_request(ECHO, body=bytes(40)))
    async with run_server(HANDLERS, refuse_unknown) as server:
        for _ in range(200):
            data = bytearray(frame)
            for _ in range(noise.randint(1, 6)):
                data[noise.randrange(len(data))] = noise.randrange(256)
            async with open_peer(server.port) as bad:
                bad.write_bytes(bytes(data))
        async with open_peer(server.port) as good:
            assert (await good.ask(make_request(ECHO))).code == 0
        await wait_for_links(server, 0)

"""A caller: one connection per peer, calls that end, and connections that are reopened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eruca._ground.backoff import Backoff
from eruca._net import caller as caller_module
from eruca._net.caller import Caller
from eruca._net.handlers import ignore_unknown, refuse_unknown
from eruca._net.limitoptions import LimitOptions
from eruca._net.link import Answer, Handler, Link
from eruca._net.server import Server, ServerSettings
from eruca._wire.codes import ResponseCode
from eruca._wire.frame import Command, encode_command, make_request
from eruca._wire.headers import TopicHeader
from eruca._wire.signature import Credentials, verify
from eruca.errors import CallTimeout, ConnectFailed, ConnectionLost, TooManyCalls
from tests.unit.net.rawpeer import SECONDS_MAX, open_peer, run_server, turn_until, wait_for_links

ECHO, SILENT, CALL_BACK = 34, 11, 35


def echo(link: Link, command: Command) -> Answer:
    return encode_command(command.answer(ResponseCode.SUCCESS, body=command.body))


def keep_silent(link: Link, command: Command) -> Answer:
    return None


async def call_back(link: Link, command: Command) -> bytes | None:
    """Ask the client before answering it."""
    answer = await link.call(make_request(int(command.body)), 5)
    return encode_command(command.answer(0, body=f"{answer.code} {answer.body.decode()}".encode()))


HANDLERS: dict[int, Handler] = {ECHO: echo, SILENT: keep_silent, CALL_BACK: call_back}
AT_ONCE = Backoff(0.0, 0.0)


@asynccontextmanager
async def make_caller(**arguments: Any) -> AsyncIterator[Caller]:
    caller = Caller(**{"scan_seconds": 0.01, **arguments})
    try:
        yield caller
    finally:
        await caller.close()


def find_address(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


async def test_every_request_is_signed() -> None:
    taken: list[Command] = []

    def take(link: Link, command: Command) -> Answer:
        taken.append(command)
        return encode_command(command.answer(ResponseCode.SUCCESS)) if not command.is_oneway else None

    credentials = Credentials("me", "secret")
    async with run_server({ECHO: take}, refuse_unknown) as server, make_caller(credentials=credentials) as caller:
        address = find_address(server)
        await caller.call(address, make_request(ECHO, body=b"x"), 5000)
        again = make_request(ECHO, TopicHeader("T"), b"y")
        await caller.call(address, again, 5000)
        await caller.call(address, again, 5000)
        await caller.notify(address, make_request(ECHO, body=b"z"))
        await turn_until(lambda: len(taken) == 4)
    for command in taken:
        ext = command.ext_dict()
        assert ext["AccessKey"] == "me" and verify({**ext}, command.body, "secret")
        assert not verify({**ext}, command.body + b"!", "secret")
    assert [command.ext_dict().get("topic") for command in taken] == [None, "T", "T", None]


async def wait_for_loss(caller: Caller, address: str) -> None:
    await turn_until(lambda: not caller.is_connected(address))


# --- calls ----------------------------------------------------------------------------------------------------------


async def test_calls_do_not_overtake_those_that_wait_for_the_connection() -> None:
    seen: list[int] = []

    def note(link: Link, command: Command) -> Answer:
        seen.append(int(command.body))
        return echo(link, command)

    async with run_server({ECHO: note}, refuse_unknown) as server, make_caller() as caller:
        address, calls = find_address(server), []
        for number in range(500):
            request = make_request(ECHO, body=b"%d" % number)
            calls.append(asyncio.create_task(caller.call(address, request, SECONDS_MAX * 1000)))
            if number % 5 == 0:
                await asyncio.sleep(0)  # some arrive while it is being opened, some just after
        await asyncio.gather(*calls)
    assert seen == list(range(500))


async def test_calls_share_one_connection_and_get_their_own_answers() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller() as caller:
        address = find_address(server)
        bodies = [b"%d" % number for number in range(200)]
        answers = await asyncio.gather(*(caller.call(address, make_request(ECHO, body=b), 5000) for b in bodies))
        assert [answer.body for answer in answers] == bodies
        assert len(server.links) == 1 and caller.is_connected(address)


async def test_address_may_be_in_brackets() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller() as caller:
        assert (await caller.call(f"[127.0.0.1]:{server.port}", make_request(ECHO), 5000)).code == 0


async def test_requests_of_the_peer_go_to_the_callers_handlers() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller(handlers={ECHO: greet}) as caller:
        address = find_address(server)
        assert (await caller.call(address, make_request(CALL_BACK, body=b"%d" % ECHO), 5000)).body == b"0 hello"
        refused = await caller.call(address, make_request(CALL_BACK, body=b"39"), 5000)
        assert refused.body == b"3 "


def greet(link: Link, command: Command) -> Answer:
    return encode_command(command.answer(0, body=b"hello"))


async def test_oneway_is_sent_and_not_waited_for() -> None:
    heard: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

    def hear(link: Link, command: Command) -> Answer:
        heard.set_result(command)
        return None

    async with run_server({ECHO: hear}, refuse_unknown) as server, make_caller() as caller:
        await caller.notify(find_address(server), make_request(ECHO, body=b"news"))
        async with asyncio.timeout(SECONDS_MAX):
            command = await heard
        assert command.is_oneway and command.body == b"news"


async def test_silence_ends_with_a_timeout_and_the_connection_stays() -> None:
    async with run_server(HANDLERS, ignore_unknown) as server, make_caller() as caller:
        address = find_address(server)
        # A connection attempt that takes longer than the call's timeout is another error.
        assert (await caller.call(address, make_request(ECHO), 5000)).code == 0
        silent = [caller.call(address, make_request(code), 20) for code in (SILENT, 9999)]
        for error in await asyncio.gather(*silent, return_exceptions=True):
            assert isinstance(error, CallTimeout)
        assert (await caller.call(address, make_request(ECHO, body=b"x"), 5000)).body == b"x"
        assert len(server.links) == 1


async def test_a_connection_that_says_nothing_any_more_is_given_up() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller(silence_seconds=0.5) as caller:
        address = find_address(server)
        # Not because of one late response, if others arrive.
        waiting = asyncio.create_task(caller.call(address, make_request(SILENT), 600))
        while not waiting.done():
            assert (await caller.call(address, make_request(ECHO, body=b"a"), 5000)).body == b"a"
        assert isinstance(waiting.exception(), CallTimeout) and caller.is_connected(address)
        # The peer waits for the rest of a frame that is none, and answers nothing after it.
        link = caller.find_link(address)
        assert link is not None
        link.send((1 << 20).to_bytes(4, "big") + (1 << 19).to_bytes(4, "big"))
        with pytest.raises(CallTimeout):
            await caller.call(address, make_request(ECHO, body=b"b"), 600)
        await wait_for_loss(caller, address)
        assert (await caller.call(address, make_request(ECHO, body=b"c"), 5000)).body == b"c"


async def test_calls_in_flight_are_bounded() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller(calls_max=3) as caller:
        address = find_address(server)
        assert (await caller.call(address, make_request(ECHO), 5000)).code == 0
        waiting = [asyncio.create_task(caller.call(address, make_request(SILENT), 60_000)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyCalls, match="3 calls"):
            await caller.call(address, make_request(ECHO), 5000)
        await caller.close()
        for task in waiting:
            with pytest.raises(ConnectionLost):
                await task


async def test_a_frame_is_written_by_hand_only_where_nothing_else_is_due() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller(calls_max=4) as caller:
        address = find_address(server)
        assert caller.find_link(address) is None and caller.find_free_link(address) is None
        assert (await caller.call(address, make_request(ECHO), 5000)).code == 0
        link = caller.find_link(address)
        assert link is not None and caller.find_free_link(address) is link
        waiting = [asyncio.create_task(caller.call(address, make_request(SILENT), 60_000)) for _ in range(2)]
        await asyncio.sleep(0)
        # Half of the calls: the rest is for those that are counted over all connections.
        assert caller.find_free_link(address) is None and caller.find_link(address) is link
        link.abort()
        assert caller.find_free_link(address) is None and caller.find_link(address) is None
        for task in waiting:
            with pytest.raises(ConnectionLost):
                await task


async def test_a_frame_is_not_written_by_hand_before_calls_that_wait_for_the_connection() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller() as caller:
        address = find_address(server)
        assert (await caller.call(address, make_request(ECHO), 5000)).code == 0
        arrivals = caller._peers[address].arrivals.waiting
        arrivals["a call"] = None
        assert caller.find_free_link(address) is None
        arrivals.clear()
        assert caller.find_free_link(address) is caller.find_link(address) is not None


async def test_a_frame_is_not_written_by_hand_when_requests_are_signed() -> None:
    credentials = Credentials("me", "secret")
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller(credentials=credentials) as caller:
        address = find_address(server)
        await caller.call(address, make_request(ECHO), 5000)
        assert caller.find_link(address) is not None and caller.find_free_link(address) is None


# --- connections that end -------------------------------------------------------------------------------------------


async def test_lost_connection_fails_its_calls_and_the_next_call_opens_another() -> None:
    lost: list[str] = []
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller(on_close=lost.append) as caller:
        address = find_address(server)
        waiting = asyncio.create_task(caller.call(address, make_request(SILENT), 60_000))
        (link,) = await wait_for_links(server, 1)
        link.abort()
        with pytest.raises(ConnectionLost):
            await waiting
        assert lost == [address] and not caller.is_connected(address)
        assert (await caller.call(address, make_request(ECHO, body=b"again"), 5000)).body == b"again"


async def test_caller_comes_back_after_a_restart_of_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._net.caller._RETRIES", AT_ONCE)
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller() as caller:
        address = find_address(server)
        assert (await caller.call(address, make_request(ECHO), 5000)).code == 0
        await server.stop()
        await wait_for_loss(caller, address)
        with pytest.raises(ConnectFailed, match="cannot connect to"):
            await caller.call(address, make_request(ECHO), 5000)
        again = Server(HANDLERS, refuse_unknown, ServerSettings(port=int(address.rpartition(":")[2])))
        await again.start()
        assert (await caller.call(address, make_request(ECHO), 5000)).code == 0
        await again.stop()


async def test_attempts_are_spaced_with_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[float, float]] = []

    def draw(seconds: float, share: float) -> float:
        drawn.append((seconds, share))
        return 0.0

    monkeypatch.setattr("eruca._ground.backoff.spread", draw)
    async with run_server(HANDLERS, refuse_unknown) as server:
        address = find_address(server)
    async with make_caller() as caller:
        for _ in range(8):
            with pytest.raises(ConnectFailed):
                await caller.call(address, make_request(ECHO), 5000)
    assert [seconds for seconds, _ in drawn] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
    assert {share for _, share in drawn} == {0.9}


async def test_calls_before_the_next_attempt_fail_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._net.caller._RETRIES", Backoff(30.0, 30.0, jitter=0.0))
    async with run_server(HANDLERS, refuse_unknown) as server:
        address = find_address(server)
    async with make_caller() as caller:
        with pytest.raises(ConnectFailed, match="cannot connect") as first:
            await caller.call(address, make_request(ECHO), 5000)
        with pytest.raises(ConnectFailed, match=r"next attempt in (30\.0|2\d\.\d) s") as again:
            await caller.call(address, make_request(ECHO), 5000)
    # The same text, so that repeated errors can be recognised in logs.
    assert again.value.args == first.value.args


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.1:port", "127.0.0.1:99999", "127.0.0.1:-1", ":"])
async def test_address_that_is_none_is_refused_like_a_peer_that_is_down(address: str) -> None:
    async with make_caller() as caller:
        with pytest.raises(ConnectFailed, match="cannot connect"):
            await caller.call(address, make_request(ECHO), 5000)


async def test_impatient_caller_does_not_spoil_it_for_the_patient_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    gate = asyncio.Event()
    connect = loop.create_connection

    async def connect_later(*arguments: Any, **named: Any) -> Any:
        await gate.wait()
        return await connect(*arguments, **named)

    monkeypatch.setattr(loop, "create_connection", connect_later)
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller() as caller:
        address = find_address(server)
        patient = asyncio.create_task(caller.call(address, make_request(ECHO, body=b"p"), 60_000))
        with pytest.raises(ConnectFailed, match="no answer"):
            await caller.call(address, make_request(ECHO), 1)
        gate.set()
        assert (await patient).body == b"p"


async def test_peer_that_takes_no_more_connections_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._net.caller._RETRIES", AT_ONCE)
    limits = [LimitOptions(connections_max=1)]
    async with (
        run_server(HANDLERS, refuse_unknown, limits=lambda: limits[0]) as server,
        open_peer(server.port),
        make_caller() as caller,
    ):
        await wait_for_links(server, 1)
        address = find_address(server)
        for _ in range(5):
            with pytest.raises((ConnectFailed, ConnectionLost)):
                await caller.call(address, make_request(ECHO), 5000)
            await wait_for_loss(caller, address)
        assert not caller._addresses
        limits[0] = LimitOptions(connections_max=2)
        assert (await caller.call(address, make_request(ECHO), 5000)).code == 0


async def test_connection_attempt_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*arguments: Any, **named: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(caller_module, "_CONNECT_SECONDS", 0.01)
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", hang)
    async with make_caller() as caller:
        with pytest.raises(ConnectFailed, match="no answer"):
            await caller.call("127.0.0.1:1", make_request(ECHO), 60_000)


async def test_idle_connection_is_closed_and_opened_again() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, make_caller(idle_seconds=0.3) as caller:
        address = find_address(server)
        assert (await caller.call(address, make_request(ECHO), 5000)).code == 0
        await wait_for_loss(caller, address)
        assert (await caller.call(address, make_request(ECHO), 5000)).code == 0


async def test_a_mistake_does_not_end_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = asyncio.Event()

    def fail(link: Link, now: float) -> bool:
        failed.set()
        raise ValueError("ours")

    async with run_server(HANDLERS, refuse_unknown) as server, make_caller(idle_seconds=0) as caller:
        address = find_address(server)
        with monkeypatch.context() as patch:
            patch.setattr(Link, "expire_calls", fail)
            assert (await caller.call(address, make_request(ECHO), 5000)).code == 0
            async with asyncio.timeout(SECONDS_MAX):
                await failed.wait()
            assert caller.is_connected(address)
        await wait_for_loss(caller, address)


async def test_closed_caller_opens_nothing() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server:
        address = find_address(server)
        caller = Caller()
        opening = asyncio.create_task(caller.call(address, make_request(ECHO), 5000))
        await asyncio.sleep(0)
        await caller.close()
        with pytest.raises(ConnectionLost):
            await opening
        with pytest.raises(ConnectionLost):
            await caller.call(address, make_request(ECHO), 5000)
        with pytest.raises(ConnectionLost):
            await caller.notify(address, make_request(ECHO))
        await wait_for_links(server, 0)


async def test_peer_that_answers_with_noise_is_dropped_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def babble(link: Link, command: Command) -> Answer:
        return b"HTTP/1.1 400 Bad Request\r\n\r\n"

    async with run_server({ECHO: babble}, refuse_unknown) as server, make_caller() as caller:
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await caller.call(find_address(server), make_request(ECHO), 5000)
    assert [record.name for record in caplog.records] == ["eruca._net.caller"]

"""One connection: what is answered when, in how many writes, and what happens to calls."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping

import pytest

from eruca._ground.limits import UNSENT_BYTES_MAX
from eruca._net import link as link_module
from eruca._net import turns
from eruca._net.handlers import refuse_unknown
from eruca._net.limitoptions import LimitOptions
from eruca._net.link import Answer, Handler, Link
from eruca._wire.codes import ResponseCode, SerializeType
from eruca._wire.frame import Command, encode_command, make_request
from eruca.errors import CallTimeout, ConfigError, ConnectionLost, RequestRefused
from tests.unit.net.rawpeer import (
    RecordingTransport,
    open_peer,
    run_server,
    split_frames,
    wait_for_links,
)

ECHO, LATER, REFUSE, BREAK, REFUSE_LATER, CONFIG = 34, 11, 15, 17, 14, 26


@pytest.fixture(autouse=True)
def take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a slice of 5 ms may end after any request: `test_fairness` tests that."""
    for module in (link_module, turns):
        monkeypatch.setattr(module, "SLICE_SECONDS", 3600.0)


class Owner:
    """An owner that records the calls of its links."""

    def __init__(self, handlers: Mapping[int, Handler] | None = None) -> None:
        self.handlers: Mapping[int, Handler] = handlers or {}
        self.handle_unknown: Handler = refuse_unknown
        self.unsent_bytes_max = UNSENT_BYTES_MAX
        self.said: list[str] = []
        self.opened = 0
        self.closed = 0
        self.held = 0

    def on_open(self, link: Link) -> None:
        self.opened += 1

    def on_close(self, link: Link) -> None:
        self.closed += 1

    def on_held(self, link: Link, size: int) -> None:
        self.held += size

    def on_refused(self, link: Link, error: Exception) -> Exception:
        return error

    def on_stray(self, link: Link) -> None:
        self.said.append("stray")

    def report(self, link: Link, reason: str) -> None:
        self.said.append(reason)


def make_link(handlers: Mapping[int, Handler] | None = None) -> tuple[Link, RecordingTransport, Owner]:
    """A link on a transport that remembers."""
    owner = Owner(handlers)
    link = Link(owner, serves=True)
    transport = RecordingTransport()
    link.connection_made(transport)
    return link, transport, owner


def echo(link: Link, command: Command) -> Answer:
    return encode_command(command.answer(ResponseCode.SUCCESS, body=command.body))


def refuse(link: Link, command: Command) -> Answer:
    raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, "no such topic", hint="make one")


def misconfigured(link: Link, command: Command) -> Answer:
    raise ConfigError("a=b: expected a number")


def break_down(link: Link, command: Command) -> Answer:
    raise ZeroDivisionError("oops")


async def refuse_later(link: Link, command: Command) -> bytes | None:
    raise RequestRefused(ResponseCode.SYSTEM_BUSY, "busy")


HANDLERS: dict[int, Handler] = {
    ECHO: echo,
    REFUSE: refuse,
    BREAK: break_down,
    REFUSE_LATER: refuse_later,
    CONFIG: misconfigured,
}


def requests(count: int, code: int = ECHO) -> list[Command]:
    return [make_request(code, body=b"%d" % number, opaque=number) for number in range(count)]


def join(commands: list[Command]) -> bytes:
    return b"".join(map(encode_command, commands))


# --- answers --------------------------------------------------------------------------------------------------------


async def test_the_frames_of_one_read_are_answered_in_few_writes() -> None:
    """Thirty-two a write, so that the peer can begin with the first while we work on the next."""
    link, transport, owner = make_link(HANDLERS)
    link.data_received(join(requests(50)))
    assert [len(split_frames(written)) for written in transport.writes] == [32, 18]
    answers = split_frames(b"".join(transport.writes))
    assert [(answer.opaque, answer.body) for answer in answers] == [(n, b"%d" % n) for n in range(50)]
    assert owner.held == 0


async def test_answers_are_in_the_header_type_of_their_requests() -> None:
    link, transport, _ = make_link(HANDLERS)
    binary = make_request(ECHO, opaque=1, serialization=SerializeType.ROCKETMQ)
    link.data_received(join([binary, make_request(ECHO, opaque=2)]))
    first, second = split_frames(transport.writes[0])
    assert (first.serialization, second.serialization) == (SerializeType.ROCKETMQ, SerializeType.JSON)


async def test_what_a_handler_sends_goes_out_with_its_answer() -> None:
    def notify_first(link: Link, command: Command) -> Answer:
        link.notify(make_request(40))
        return echo(link, command)

    link, transport, _ = make_link({ECHO: notify_first})
    link.data_received(join(requests(2)))
    await asyncio.sleep(0)
    (write,) = transport.writes
    assert [command.is_response for command in split_frames(write)] == [False, True, False, True]


async def test_late_answers_are_gathered_in_one_write() -> None:
    holds: list[asyncio.Future[bytes]] = []

    def hold(link: Link, command: Command) -> Awaitable[bytes | None]:
        holds.append(asyncio.get_running_loop().create_future())
        return holds[-1]

    link, transport, _ = make_link({LATER: hold, ECHO: echo})
    commands = requests(20, LATER)
    link.data_received(join([*commands, make_request(ECHO, opaque=99)]))
    assert [answer.opaque for answer in split_frames(transport.writes.pop())] == [99]
    await asyncio.sleep(0)
    for command, future in zip(commands, holds, strict=True):
        future.set_result(encode_command(command.answer(0)))
    for _ in range(3):
        await asyncio.sleep(0)
    (write,) = transport.writes
    assert [answer.opaque for answer in split_frames(write)] == list(range(20))


async def test_frame_in_single_bytes_is_answered_when_it_is_whole() -> None:
    link, transport, owner = make_link(HANDLERS)
    data = join(requests(2))
    for at in range(len(data)):
        link.data_received(data[at : at + 1])
    assert [answer.opaque for answer in split_frames(b"".join(transport.writes))] == [0, 1]
    assert owner.held == len(data) - 2


@pytest.mark.parametrize(
    ("code", "expected", "remark"),
    [
        (REFUSE, ResponseCode.TOPIC_NOT_EXIST, "no such topic"),
        (REFUSE_LATER, ResponseCode.SYSTEM_BUSY, "busy"),
        (CONFIG, ResponseCode.SYSTEM_ERROR, "a=b: expected a number"),
        (BREAK, ResponseCode.SYSTEM_ERROR, "ZeroDivisionError: oops"),
        (9999, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 9999 not supported"),
    ],
)
async def test_refusal_has_code_and_remark(
    code: int, expected: int, remark: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, open_peer(server.port) as peer:
        answer = await peer.ask(make_request(code, opaque=3))
    assert (answer.code, answer.remark) == (expected, remark)
    # Only a mistake of our own is worth a trace in the log.
    assert [record.levelno for record in caplog.records] == ([logging.ERROR] if code == BREAK else [])


async def test_oneway_is_never_answered() -> None:
    async with run_server(HANDLERS, refuse_unknown) as server, open_peer(server.port) as peer:
        codes = [*HANDLERS, 9999]
        peer.write(*(make_request(code, opaque=code, oneway=True) for code in codes))
        answer = await peer.ask(make_request(ECHO, opaque=1))
        assert answer.opaque == 1


async def test_remark_that_quotes_a_megabyte_is_cut() -> None:
    def quote(link: Link, command: Command) -> Answer:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, "no topic " + "\x01" * 1_000_000)

    async with run_server({ECHO: quote}, refuse_unknown) as server, open_peer(server.port) as peer:
        answer = await peer.ask(make_request(ECHO))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None and 9 < len(answer.remark) < 10_000


# --- bad peers ------------------------------------------------------------------------------------------------------


async def test_frames_before_bad_bytes_are_answered_and_the_connection_ends() -> None:
    link, transport, owner = make_link(HANDLERS)
    link.data_received(join(requests(2)) + b"GET / HTTP/1.1\r\n\r\n")
    assert len(split_frames(b"".join(transport.writes))) == 2
    assert transport.closed
    assert len(owner.said) == 1 and "bad frame" in owner.said[0]


async def test_reading_stops_while_the_peer_does_not_read() -> None:
    link, transport, _ = make_link(HANDLERS)
    link.pause_writing()
    assert not transport.reads
    link.resume_writing()
    assert transport.reads


async def test_peer_that_does_not_read_is_cut_off_at_the_bound() -> None:
    link, transport, owner = make_link(HANDLERS)
    link.pause_writing()
    transport.unsent = UNSENT_BYTES_MAX
    link.send(b"a little")
    await asyncio.sleep(0)
    assert not transport.is_closing()
    transport.unsent += 1
    link.send(b"more")
    await asyncio.sleep(0)
    assert transport.is_closing()
    limit = f"(serverMaxUnreadBytes={UNSENT_BYTES_MAX})"
    assert owner.said == [f"reads too slowly: {transport.unsent} bytes are pending {limit}"]


async def test_slow_reader_is_cut_off_on_a_real_socket() -> None:
    limits = LimitOptions(unread_bytes_max=256 * 1024)
    block = bytes(64 * 1024)
    async with run_server(HANDLERS, refuse_unknown, limits=lambda: limits) as server, open_peer(server.port) as peer:
        (link,) = await wait_for_links(server, 1)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        # The kernel's buffers accept some megabytes, then ours fill up.
        for _ in range(1000):
            if not link.is_open:
                break
            link.send(block)
            await asyncio.sleep(0)
        assert not link.is_open
        await wait_for_links(server, 0)


# --- calls ----------------------------------------------------------------------------------------------------------


async def test_both_sides_call_with_the_same_numbers() -> None:
    heard: list[int] = []

    async def ask_back(link: Link, command: Command) -> bytes | None:
        """Respond with what the caller responds to our own request."""
        answer = await link.call(make_request(ECHO, body=b"?"), 5)
        return encode_command(command.answer(0, body=answer.body + b"!"))

    async with run_server({LATER: ask_back}, refuse_unknown) as server, open_peer(server.port) as peer:
        for number in (1, 2, 3):
            peer.write(make_request(LATER, opaque=number))
            question = await peer.read()
            heard.append(question.opaque)
            assert not question.is_response
            peer.write(question.answer(0, body=b"yes"))
            answer = await peer.read()
            assert (answer.opaque, answer.is_response, answer.body) == (number, True, b"yes!")
    assert heard == [1, 2, 3]


async def test_answer_nobody_waits_for_is_ignored() -> None:
    link, transport, _ = make_link(HANDLERS)
    stray = make_request(ECHO, opaque=77).answer(0)
    link.data_received(join([stray, make_request(ECHO, opaque=1)]))
    assert [answer.opaque for answer in split_frames(transport.writes[0])] == [1]


async def test_late_calls_are_found_by_one_scan() -> None:
    link, _, _ = make_link()
    now = asyncio.get_running_loop().time()
    soon, later = link.call(make_request(ECHO), 1), link.call(make_request(ECHO), 60)
    link.expire_calls(now + 0.5)
    assert not soon.done()
    link.expire_calls(now + 2)
    with pytest.raises(CallTimeout, match=r"127\.0\.0\.1:4444"):
        await soon
    assert not later.done() and len(link.calls.waiting) == 1
    # A response after the timeout has no effect.
    link.data_received(encode_command(Command(0, opaque=1, flag=1)))
    assert len(link.calls.waiting) == 1


async def test_lost_connection_fails_every_call() -> None:
    link, _, owner = make_link()
    calls = [link.call(make_request(ECHO), 60) for _ in range(3)]
    link.connection_lost(None)
    for call in calls:
        with pytest.raises(ConnectionLost):
            await call
    with pytest.raises(ConnectionLost):
        await link.call(make_request(ECHO), 60)
    assert (owner.opened, owner.closed, len(link.calls.waiting)) == (1, 1, 0)


async def test_given_up_call_leaves_no_trace_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    link, _, _ = make_link()
    late, lost = link.call(make_request(ECHO), 0), link.call(make_request(ECHO), 60)
    link.expire_calls(asyncio.get_running_loop().time() + 1)
    link.connection_lost(None)
    del late, lost
    assert not caplog.records


async def test_call_numbers_start_again_after_the_largest() -> None:
    link, transport, _ = make_link()
    link.calls._opaque = 2**31 - 2
    calls = [link.call(make_request(ECHO), 60) for _ in range(2)]
    await asyncio.sleep(0)
    numbers = [command.opaque for command in split_frames(b"".join(transport.writes))]
    assert numbers == [2**31 - 1, 0]
    for number in numbers:
        link.data_received(encode_command(Command(0, opaque=number, flag=1)))
    assert [(await call).opaque for call in calls] == numbers


async def test_sending_on_a_closed_link_does_nothing() -> None:
    link, transport, _ = make_link()
    actions: list[Callable[[], None]] = [link.abort, lambda: link.send(b"x"), lambda: link.notify(make_request(40))]
    for action in actions:
        action()
    await asyncio.sleep(0)
    assert transport.aborted and transport.writes == []


async def test_answers_are_held_until_they_are_done() -> None:
    """The loop holds tasks weakly: without a reference of ours, one could be collected while it waits."""
    import gc

    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(link: Link, command: Command) -> bytes | None:
        await asyncio.shield(gate)
        return encode_command(command.answer(0))

    link, transport, _ = make_link({LATER: wait})
    link.data_received(join(requests(5, LATER)))
    await asyncio.sleep(0)
    gc.collect()
    gate.set_result(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(split_frames(b"".join(transport.writes))) == 5
    assert not link._tasks


async def test_a_closed_connection_is_freed_at_once() -> None:
    """It may have been one of thousands, with buffers of TLS, which must not wait for the garbage collector."""
    link, transport, _ = make_link(HANDLERS)
    link.data_received(join(requests(3)))
    watched = weakref.ref(transport), weakref.ref(link)
    gc.disable()
    try:
        link.connection_lost(None)
        del transport
        assert watched[0]() is None
        link.outbox.send(b"too late")
        link.outbox.flush()
        del link
        assert watched[1]() is None
    finally:
        gc.enable()

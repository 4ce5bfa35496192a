"""One connection does not block the loop: reads in slices, in order, and no connection waits forever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from time import perf_counter

import pytest

from eruca._ground.limits import SLICE_SECONDS
from eruca._net import link as link_module
from eruca._net import turns as turns_module
from eruca._net.answers import InOrder, LongAnswer
from eruca._net.handlers import refuse_unknown
from eruca._net.link import Answer, Link
from eruca._net.turns import Slices, Turns
from eruca._wire.codes import ResponseCode
from eruca._wire.frame import Command, encode_command, make_request
from eruca.errors import StoreError
from tests.unit.net.rawpeer import SECONDS_MAX, RecordingTransport, open_peer, run_server, split_frames, turn_until
from tests.unit.net.test_link import Owner, join, make_link, requests

SLOW, QUICK, LATER, LONG = 34, 35, 11, 36
WORK_SECONDS = SLICE_SECONDS / 4


def work(link: Link, command: Command) -> Answer:
    """A request that takes long."""
    link.looks_at_clock = True
    end = perf_counter() + WORK_SECONDS
    while perf_counter() < end:
        pass
    return encode_command(command.answer(ResponseCode.SUCCESS, body=command.body))


def answer_at_once(link: Link, command: Command) -> Answer:
    return encode_command(command.answer(ResponseCode.SUCCESS))


HANDLERS = {SLOW: work, QUICK: answer_at_once}


def list_answers(transport: RecordingTransport) -> list[int]:
    return [answer.opaque for answer in split_frames(b"".join(transport.writes))]


def is_reading(transport: RecordingTransport) -> bool:
    return transport.reads


async def test_one_read_is_handled_in_slices_and_in_order() -> None:
    link, transport, _ = make_link(HANDLERS)
    link.data_received(join(requests(60, SLOW)))
    assert 1 <= len(list_answers(transport)) < 30
    assert not is_reading(transport)
    turns = 0
    while len(list_answers(transport)) < 60:
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 4
    assert list_answers(transport) == list(range(60))
    assert is_reading(transport)


async def test_what_comes_behind_a_backlog_waits_for_it() -> None:
    link, transport, _ = make_link(HANDLERS)
    link.data_received(join(requests(30, SLOW)))
    link.data_received(encode_command(make_request(QUICK, opaque=99)))
    await turn_until(lambda: len(list_answers(transport)) == 31)
    assert list_answers(transport) == [*range(30), 99]


async def test_bad_bytes_behind_a_backlog_end_the_connection_when_it_is_done() -> None:
    link, transport, owner = make_link(HANDLERS)
    link.data_received(join(requests(30, SLOW)) + b"GET / HTTP/1.1\r\n\r\n")
    assert not transport.closed
    await turn_until(lambda: transport.closed)
    assert list_answers(transport) == list(range(30))
    assert len(owner.said) == 1


async def test_a_closed_connection_forgets_its_backlog() -> None:
    link, transport, _ = make_link(HANDLERS)
    link.data_received(join(requests(30, SLOW)))
    link.connection_lost(None)
    before = len(transport.writes)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(transport.writes) == before
    assert link.held_bytes == 0


async def test_another_connection_is_answered_between_two_slices() -> None:
    async with (
        run_server(HANDLERS, refuse_unknown) as server,
        open_peer(server.port) as greedy,
        open_peer(server.port) as other,
    ):
        greedy.write(*requests(400, SLOW))  # half a second of work
        assert (await greedy.read()).opaque == 0
        answer = await other.ask(make_request(QUICK, opaque=1))
        assert answer.opaque == 1
        link = next(link for link in server.links if link.peer_host[1] == greedy.writer.get_extra_info("sockname")[1])
        assert link.held_bytes > 0, "the first connection was served to the end before the second"
        assert [(await greedy.read()).opaque for _ in range(399)] == list(range(1, 400))


async def test_many_who_wait_for_a_turn_get_one_slice_in_each_turn_of_the_loop() -> None:
    turns = Turns(asyncio.get_running_loop())
    seen: list[int] = []
    now = 0
    for number in range(20):
        turns.call(lambda number=number: seen.append(now))  # type: ignore[misc]
    while len(seen) < 20:
        now += 1
        await asyncio.sleep(0)
    assert len(set(seen)) == 20


async def test_connections_that_are_read_in_one_turn_share_its_time() -> None:
    links = [make_link(HANDLERS) for _ in range(10)]
    for link, _, _ in links:
        link.data_received(join(requests(20, SLOW)))
    assert sum(len(list_answers(transport)) for _, transport, _ in links) < 50
    await turn_until(lambda: all(len(list_answers(transport)) == 20 for _, transport, _ in links))
    assert all(list_answers(transport) == list(range(20)) for _, transport, _ in links)


async def test_large_requests_that_come_alone_share_the_time_of_a_turn() -> None:
    links = [make_link(HANDLERS) for _ in range(30)]
    large = encode_command(make_request(SLOW, body=bytes(100_000), opaque=1))
    for link, _, _ in links:
        link.data_received(large)
    assert sum(len(list_answers(transport)) for _, transport, _ in links) < 20
    await turn_until(lambda: all(list_answers(transport) == [1] for _, transport, _ in links))
    assert all(is_reading(transport) for _, transport, _ in links)


async def test_a_handler_that_needs_time_is_called_again_in_a_turn_of_its_connection() -> None:
    calls: list[int] = []

    def answer_much(link: Link, command: Command) -> Answer:
        calls.append(command.opaque)
        link.need_time()
        return work(link, command)

    links = [make_link({SLOW: answer_much, QUICK: answer_at_once}) for _ in range(30)]
    for link, _, _ in links:
        link.data_received(encode_command(make_request(SLOW, opaque=1)))
        link.data_received(encode_command(make_request(QUICK, opaque=2)))
    done = sum(bool(list_answers(transport)) for _, transport, _ in links)
    assert 1 <= done < 20
    await turn_until(lambda: all(list_answers(transport) == [1, 2] for _, transport, _ in links))
    assert len(calls) == 30 + 30 - done, "each of the others was called twice"
    assert all(is_reading(transport) for _, transport, _ in links)


async def test_a_large_body_that_is_still_coming_takes_of_the_time_of_a_turn() -> None:
    greedy, transport, _ = make_link(HANDLERS)
    other, _, _ = make_link(HANDLERS)
    other.data_received(join(requests(20, SLOW)))  # the turn is used up
    data = encode_command(make_request(QUICK, body=bytes(300_000), opaque=1))
    greedy.data_received(data[:100_000])
    assert not is_reading(transport)
    await turn_until(lambda: is_reading(transport))
    greedy.data_received(data[100_000:])
    await turn_until(lambda: list_answers(transport) == [1])


def test_a_turn_of_uvloop_ends_with_the_turn() -> None:
    """Its clock advances within an iteration, so it does not show iterations."""
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not made for this system")

    async def look() -> None:
        turns = Turns(asyncio.get_running_loop())
        assert turns.begin() > 0
        end = perf_counter() + 3 * SLICE_SECONDS
        while perf_counter() < end:
            pass
        assert turns.begin() == 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert turns.begin() > 0

    uvloop.run(look())


async def test_short_work_does_not_wait_behind_long_work() -> None:
    turns = Turns(asyncio.get_running_loop())
    seen: list[str] = []
    for _ in range(10):
        turns.call(lambda: seen.append("long"))
    for _ in range(3):
        turns.call(lambda: seen.append("short"), is_short=True)
    await turn_until(lambda: len(seen) == 13)
    assert seen.index("short") == 0
    assert seen.count("short") == 3


async def test_work_that_raises_takes_no_turn_from_others() -> None:
    loop = asyncio.get_running_loop()
    turns = Turns(loop)
    caught: list[object] = []
    loop.set_exception_handler(lambda _, context: caught.append(context["exception"]))
    done: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError

    turns.call(fail)
    turns.call(lambda: done.append(1))
    await turn_until(lambda: bool(done))
    assert len(caught) == 1


async def test_long_work_lets_others_work() -> None:
    slices = Slices()
    others = 0

    def count() -> None:
        nonlocal others
        others += 1
        loop.call_soon(count)

    loop = asyncio.get_running_loop()
    loop.call_soon(count)
    async with asyncio.timeout(SECONDS_MAX):
        while others < 5:
            await slices.rest()
    assert others >= 5


async def test_long_work_gives_way_to_reads_that_took_the_turn_but_not_twice() -> None:
    turns = Turns(asyncio.get_running_loop())
    seen: list[int] = []
    for number in range(3):
        turns.call(lambda number=number: seen.append(number))  # type: ignore[misc]
    given_way = 0
    while len(seen) < 3:
        end, before = turns.begin(), len(seen)
        while perf_counter() < end:
            pass  # reads use up the iteration
        await asyncio.sleep(0)
        given_way += len(seen) == before
    assert seen == [0, 1, 2]
    assert 2 <= given_way <= 4


async def test_many_that_wake_at_once_share_the_time_of_turns() -> None:
    turns = Turns(asyncio.get_running_loop())
    now = 0
    seen: list[int] = []

    async def work_when_woken() -> None:
        await gate.wait()
        await turns.take_part()
        end = perf_counter() + WORK_SECONDS
        while perf_counter() < end:
            pass
        seen.append(now)

    gate = asyncio.Event()
    tasks = [asyncio.create_task(work_when_woken()) for _ in range(40)]
    await asyncio.sleep(0)
    gate.set()
    while len(seen) < 40:
        now += 1
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert max(map(seen.count, seen)) <= 8, "one turn of the loop did too much"


# -- long answers -----------------------------------------------------------------------------------------------------


def answer_long(link: Link, command: Command) -> Answer:
    """An answer in a hundred pieces."""
    frame = encode_command(command.answer(ResponseCode.SUCCESS, body=bytes(100_000)))
    step = len(frame) // 100 + 1
    return LongAnswer(frame[begin : begin + step] for begin in range(0, len(frame), step))


LONG_HANDLERS = {**HANDLERS, LONG: answer_long}


async def test_a_long_answer_is_written_one_piece_in_a_turn_and_in_order() -> None:
    link, transport, _ = make_link(LONG_HANDLERS)
    link.data_received(
        join([make_request(QUICK, opaque=1), make_request(LONG, opaque=2), make_request(QUICK, opaque=3)])
    )
    link.data_received(encode_command(make_request(LONG, opaque=4)))
    assert list_answers(transport) == [1]
    assert not is_reading(transport)
    assert not link.is_writable
    link.send(encode_command(make_request(QUICK, opaque=9)))  # after what is being written
    await turn_until(lambda: is_reading(transport))
    assert list_answers(transport) == [1, 2, 9, 3, 4]
    assert max(map(len, transport.writes)) < 3000
    assert link.is_writable


async def test_a_long_answer_waits_while_the_peer_does_not_read() -> None:
    link, transport, _ = make_link(LONG_HANDLERS)
    link.data_received(encode_command(make_request(LONG, opaque=1)))
    told: list[bool] = []
    link.when_writable(lambda: told.append(True))
    await turn_until(lambda: len(transport.writes) > 3)
    link.pause_writing()
    await asyncio.sleep(0)
    before = len(transport.writes)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(transport.writes) == before
    link.resume_writing()
    assert not told, "it may send more only behind the answer"
    await turn_until(lambda: bool(told))
    assert list_answers(transport) == [1]
    assert is_reading(transport)


async def test_two_long_answers_at_once_come_one_after_the_other() -> None:
    link, transport, _ = make_link(LONG_HANDLERS)
    for number in range(3):
        answer = answer_long(link, make_request(LONG, opaque=number))
        assert isinstance(answer, LongAnswer)
        link.send(answer)
        link.send(encode_command(make_request(QUICK, opaque=10 + number)))
    await turn_until(lambda: link.is_writable)
    assert list_answers(transport) == [0, 10, 1, 11, 2, 12]


async def test_a_long_answer_to_a_request_that_wants_none_is_not_sent() -> None:
    link, transport, _ = make_link(LONG_HANDLERS)
    link.data_received(join([make_request(LONG, opaque=1, oneway=True), make_request(QUICK, opaque=2)]))
    await turn_until(lambda: bool(transport.writes))
    assert list_answers(transport) == [2]


async def test_a_long_answer_that_fails_ends_the_connection() -> None:
    def fail() -> Iterator[bytes]:
        yield b"half of a frame"
        raise StoreError("the log was cut")

    link, transport, owner = make_link({LONG: lambda link, command: LongAnswer(fail())})
    link.data_received(encode_command(make_request(LONG)))
    await turn_until(lambda: transport.aborted)
    assert not link.is_open
    assert "the log was cut" in owner.said[0]


async def test_a_connection_that_is_closed_writes_the_rest_of_a_long_answer() -> None:
    link, transport, _ = make_link(LONG_HANDLERS)
    link.data_received(encode_command(make_request(LONG, opaque=1)))
    link.close()
    assert list_answers(transport) == [1]
    assert transport.closed


# -- peers that ask and do not read, or ask more than can be answered -------------------------------------------------


async def test_requests_whose_answers_come_later_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "UNANSWERED_BYTES_MAX", 10 * 4096)
    for module in (link_module, turns_module):  # it is not about time
        monkeypatch.setattr(module, "SLICE_SECONDS", 3600.0)
    holds: list[asyncio.Future[bytes | None]] = []

    def hold(link: Link, command: Command) -> Awaitable[bytes | None]:
        holds.append(asyncio.get_running_loop().create_future())
        return holds[-1]

    link, transport, owner = make_link({LATER: hold})
    link.data_received(join(requests(50, LATER)))
    assert len(holds) == 10
    assert not is_reading(transport)
    assert owner.held > 10 * 4096
    done = 0
    while done < 50:
        for future in holds[done:]:
            future.set_result(None)
        done = len(holds)
        for _ in range(5):
            await asyncio.sleep(0)
    assert is_reading(transport)
    assert link.held_bytes == 0


async def test_a_client_reads_also_while_its_own_requests_are_not_read() -> None:
    """If both sides stopped reading, neither would ever continue."""
    link = Link(Owner(HANDLERS))
    transport = RecordingTransport()
    link.connection_made(transport)
    call = link.call(make_request(QUICK), 60)
    link.pause_writing()
    assert is_reading(transport)
    link.data_received(encode_command(Command(0, opaque=1, flag=1)))
    assert (await call).opaque == 1


async def test_who_waits_for_a_peer_to_read_is_told_once() -> None:
    link, _, _ = make_link()
    told: list[bool] = []
    link.pause_writing()
    link.when_writable(lambda: told.append(link.is_writable))
    assert not link.is_writable
    link.resume_writing()
    link.pause_writing()
    link.resume_writing()
    assert told == [True]


async def test_a_request_that_must_stay_in_order_holds_back_those_behind_it() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(command: Command) -> bytes | None:
        await gate
        return encode_command(command.answer(ResponseCode.SUCCESS))

    def in_order(link: Link, command: Command) -> Answer:
        return InOrder(wait(command))

    link, transport, _ = make_link({LATER: in_order, QUICK: answer_at_once})
    link.data_received(join([make_request(LATER, opaque=1), make_request(QUICK, opaque=2)]))
    link.data_received(encode_command(make_request(QUICK, opaque=3)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert list_answers(transport) == []
    assert not is_reading(transport)
    gate.set_result(None)
    await turn_until(lambda: len(list_answers(transport)) == 3)
    assert list_answers(transport) == [1, 2, 3]
    assert is_reading(transport)


async def test_a_client_takes_what_it_reads_at_once_also_after_a_request_that_had_to_wait() -> None:
    async def answer(command: Command) -> bytes | None:
        return encode_command(command.answer(ResponseCode.SUCCESS))

    link = Link(Owner({**HANDLERS, LATER: lambda link, command: InOrder(answer(command))}))
    transport = RecordingTransport()
    link.connection_made(transport)
    link.data_received(join([make_request(LATER, opaque=100), make_request(QUICK, opaque=101)]))
    await turn_until(lambda: list_answers(transport) == [100, 101])
    link.data_received(join(requests(30, SLOW)))
    assert list_answers(transport) == [100, 101, *range(30)]

"""The trace dispatcher: many records in one message, nothing that blocks or raises, an end in bounded time."""

from __future__ import annotations

import asyncio
import logging

import pytest

from eruca._client.trace import TraceDispatcher
from eruca._ground.limits import PROPERTIES_BYTES_MAX
from eruca._testing.clock import VirtualClock
from eruca._wire.trace import PubTrace, SubAfterTrace, TraceRecord, decode_traces, encode_trace
from tests.patience import PATIENCE_S

WAIT_SECONDS_MAX = PATIENCE_S


class Broker:
    """Takes trace messages, or refuses them, or lets them wait until the gate opens."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes, list[str]]] = []
        # How many messages it refuses before it takes one.
        self.refusals = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._changed = asyncio.Condition()
        self.asked = 0

    async def send(self, topic: str, body: bytes, keys: list[str]) -> None:
        self.asked += 1
        async with self._changed:
            self._changed.notify_all()
        await self.gate.wait()
        if self.refusals:
            self.refusals -= 1
            raise OSError("no broker")
        self.messages.append((topic, body, keys))

    async def wait_until_asked(self, times: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX), self._changed:
            await self._changed.wait_for(lambda: self.asked >= times)

    @property
    def ids(self) -> list[str]:
        return [record.message_id for _, body, _ in self.messages for record in decode_traces(body)]


def make_dispatcher(
    broker: Broker,
    *,
    flush_ms: int = 5,
    queue_max: int = 1024,
    body_max: int = 118_000,
    clock: VirtualClock | None = None,
) -> TraceDispatcher:
    clock = clock or VirtualClock()
    return TraceDispatcher(broker.send, clock=clock, flush_ms=flush_ms, queue_max=queue_max, body_max=body_max)


def make_record(number: int, keys: str | None = None) -> PubTrace:
    return PubTrace(
        time_ms=1_700_000_000_000 + number,
        region="DefaultRegion",
        group="shop",
        topic="orders",
        message_id=f"id-{number}",
        keys=keys,
        store_host="127.0.0.1:10911",
        body_bytes=10,
        cost_ms=3,
        offset_message_id="7F00000100002A9F0000000000000000",
    )


def make_after(number: int) -> SubAfterTrace:
    return SubAfterTrace(
        request_id="request",
        message_id=f"id-{number}",
        cost_ms=1,
        success=True,
        time_ms=1_700_000_000_000,
        group="bill",
    )


async def test_records_go_together_after_a_while() -> None:
    broker = Broker()
    dispatcher = make_dispatcher(broker)
    records: list[TraceRecord] = [make_record(0, "k-0 k-1"), make_record(1, "k-1"), make_after(0)]
    for record in records:
        dispatcher.add(record)
    assert broker.asked == 0
    await broker.wait_until_asked(1)
    await dispatcher.close()
    assert broker.messages == [
        ("RMQ_SYS_TRACE_TOPIC", b"".join(map(encode_trace, records)), ["id-0", "k-0", "k-1", "id-1"])
    ]
    assert (dispatcher.sent, dispatcher.dropped, dispatcher.failed) == (3, 0, 0)


async def test_it_goes_on_after_a_pause() -> None:
    broker = Broker()
    dispatcher = make_dispatcher(broker)
    for number in range(3):
        dispatcher.add(make_record(number))
        await broker.wait_until_asked(number + 1)
    await dispatcher.close()
    assert broker.ids == ["id-0", "id-1", "id-2"]
    assert len(broker.messages) == 3


async def test_a_half_full_queue_does_not_wait_for_the_time() -> None:
    broker = Broker()
    dispatcher = make_dispatcher(broker, flush_ms=3_600_000, queue_max=20)
    for number in range(10):
        dispatcher.add(make_record(number))
    await broker.wait_until_asked(1)
    for number in range(10, 20):
        dispatcher.add(make_record(number))
    await broker.wait_until_asked(2)
    await dispatcher.close()
    assert broker.ids == [f"id-{number}" for number in range(20)]
    assert dispatcher.dropped == 0


async def test_bodies_have_a_bound() -> None:
    broker = Broker()
    size = len(encode_trace(make_record(10)))
    dispatcher = make_dispatcher(broker, body_max=3 * size)
    for number in range(10, 20):
        dispatcher.add(make_record(number))
    await dispatcher.close()
    assert [len(body) for _, body, _ in broker.messages] == [3 * size, 3 * size, 3 * size, size]
    assert broker.ids == [f"id-{number}" for number in range(10, 20)]


async def test_a_record_above_the_bound_goes_alone() -> None:
    broker = Broker()
    dispatcher = make_dispatcher(broker, body_max=10)
    for number in range(2):
        dispatcher.add(make_record(number))
    await dispatcher.close()
    assert [len(decode_traces(body)) for _, body, _ in broker.messages] == [1, 1]


async def test_keys_fit_the_properties_of_a_message() -> None:
    broker = Broker()
    dispatcher = make_dispatcher(broker)
    for number in range(100):
        dispatcher.add(make_record(number, " ".join(f"{number}-{'k' * 200}-{key}" for key in range(4))))
    dispatcher.add(make_record(100, "é" * 20_000))
    await dispatcher.close()
    assert [len(" ".join(keys).encode()) < PROPERTIES_BYTES_MAX for _, _, keys in broker.messages] == [True] * 4
    assert broker.messages[-1][2] == ["id-100"]
    assert broker.ids == [f"id-{number}" for number in range(101)]
    for _, body, keys in broker.messages:
        assert {record.message_id for record in decode_traces(body)} <= set(keys)


async def test_a_message_of_two_bodies_is_found_in_both() -> None:
    broker = Broker()
    dispatcher = make_dispatcher(broker, body_max=len(encode_trace(make_record(0))))
    dispatcher.add(make_record(0))
    dispatcher.add(make_after(0))
    await dispatcher.close()
    assert [keys for _, _, keys in broker.messages] == [["id-0"], ["id-0"]]


async def test_a_full_queue_drops_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    broker.gate.clear()
    clock = VirtualClock()
    dispatcher = make_dispatcher(broker, queue_max=4, clock=clock)
    with caplog.at_level(logging.WARNING, "eruca._client.trace"):
        for number in range(4):
            dispatcher.add(make_record(number))
        await broker.wait_until_asked(1)
        for number in range(4, 14):
            dispatcher.add(make_record(number))
        assert dispatcher.dropped == 6
        clock.advance(60_000)
        dispatcher.add(make_record(14))
    # Once a minute, with what was kept back in between.
    assert len(caplog.messages) == 2
    assert "(5 more since the last line)" in caplog.messages[1]
    broker.gate.set()
    await dispatcher.close()
    assert broker.ids == [f"id-{number}" for number in range(8)]
    assert (dispatcher.sent, dispatcher.dropped) == (8, 7)


async def test_a_failed_send_is_counted_and_the_next_goes_through(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    broker.refusals = 1
    dispatcher = make_dispatcher(broker)
    with caplog.at_level(logging.WARNING, "eruca._client.trace"):
        for number in range(3):
            dispatcher.add(make_record(number))
        await broker.wait_until_asked(1)
        dispatcher.add(make_record(3))
        await dispatcher.close()
    assert broker.ids == ["id-3"]
    assert (dispatcher.sent, dispatcher.failed, dispatcher.dropped) == (1, 3, 0)
    assert caplog.messages == ["3 trace records for RMQ_SYS_TRACE_TOPIC not sent: OSError('no broker')"]


async def test_what_cannot_be_written_hides_nothing_else() -> None:
    broker = Broker()
    dispatcher = make_dispatcher(broker)
    dispatcher.add(make_record(0, "\ud800"))
    dispatcher.add(make_record(1))
    await dispatcher.close()
    assert broker.ids == ["id-1"]
    assert (dispatcher.sent, dispatcher.failed) == (1, 1)


async def test_close_gives_up_after_its_time() -> None:
    broker = Broker()
    broker.gate.clear()
    dispatcher = make_dispatcher(broker, body_max=1)
    for number in range(3):
        dispatcher.add(make_record(number))
    await broker.wait_until_asked(1)
    dispatcher.add(make_record(3))
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await dispatcher.close(seconds=0.01)
    assert broker.messages == []
    assert dispatcher.dropped == 4
    assert len(asyncio.all_tasks()) == 1


async def test_after_the_end_records_are_dropped() -> None:
    broker = Broker()
    dispatcher = make_dispatcher(broker)
    await dispatcher.close()
    dispatcher.add(make_record(0))
    await dispatcher.close()
    assert broker.asked == 0
    assert dispatcher.dropped == 1


def test_a_record_from_outside_of_the_loop_waits() -> None:
    broker = Broker()
    dispatcher = make_dispatcher(broker)
    dispatcher.add(make_record(0))
    asyncio.run(dispatcher.close())
    assert broker.ids == ["id-0"]

"""Plain functions as handlers: they run in threads, and nothing counts as done before they return."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable

import pytest

from eruca._client.later import LATER, Later
from eruca._client.message import Message, Outcome
from tests.unit.client.push.test_services import (
    SECONDS_MAX,
    NotedRedelivery,
    make_concurrent,
    make_inbox,
    make_ordered,
    make_records,
    put,
    wait_for,
)


async def test_nothing_is_done_before_its_function_returned() -> None:
    gates = {offset: threading.Event() for offset in range(3)}

    def handle(message: Message) -> None:
        gates[message.offset].wait(SECONDS_MAX)

    service, inbox = make_concurrent(handle, NotedRedelivery()), make_inbox()
    put(service, inbox, make_records(0, 1, 2))
    await wait_for(lambda: len(inbox.running) == 3)
    gates[1].set()
    await wait_for(lambda: not inbox.process.is_open(1))
    assert inbox.commit_offset == 0
    gates[0].set()
    await wait_for(lambda: inbox.commit_offset == 2)
    gates[2].set()
    await wait_for(lambda: inbox.commit_offset == 3 and not inbox.running)
    await service.close(1.0)


async def test_failures_of_all_kinds_are_given_back(caplog: pytest.LogCaptureFixture) -> None:
    redelivery = NotedRedelivery()

    def handle(message: Message) -> object:
        if message.offset == 0:
            raise ValueError("no")
        if message.offset == 1:
            raise SystemExit(1)
        return [Outcome.LATER, Outcome.DEAD, "what is this", Outcome.DONE, None][message.offset - 2]

    service, inbox = make_concurrent(handle, redelivery, concurrency=2), make_inbox()
    put(service, inbox, make_records(*range(7)))
    await wait_for(lambda: inbox.commit_offset == 7)
    assert sorted(redelivery.back) == [(0, 0), (1, 0), (2, 0), (3, -1), (4, 0)]
    assert "it must return nothing or an Outcome" in caplog.text
    await service.close(1.0)


async def test_a_plain_function_may_give_something_to_wait_for() -> None:
    loop = asyncio.get_running_loop()
    redelivery = NotedRedelivery()

    async def work(offset: int) -> Outcome:
        assert asyncio.get_running_loop() is loop
        return Outcome.DONE if offset else Outcome.LATER

    def handle(message: Message) -> Awaitable[Outcome]:
        return work(message.offset)

    service, inbox = make_concurrent(handle, redelivery), make_inbox()
    put(service, inbox, make_records(0, 1))
    await wait_for(lambda: inbox.commit_offset == 2)
    assert redelivery.back == [(0, 0)]
    await service.close(1.0)


async def test_batches_are_of_one_queue_and_may_grow_while_they_wait() -> None:
    gate = threading.Event()
    seen: list[list[tuple[int, int]]] = []

    def handle(messages: list[Message]) -> None:
        gate.wait(SECONDS_MAX)
        seen.append([(message.queue.queue_id, message.offset) for message in messages])

    service = make_concurrent(handle, NotedRedelivery(), concurrency=1, batch=4)
    first, second = make_inbox(0), make_inbox(1)
    put(service, first, make_records(0))
    await wait_for(lambda: len(first.running) == 1)
    put(service, first, make_records(1, 2))
    put(service, first, make_records(3, 4, 5))
    put(service, second, make_records(0))
    gate.set()
    await wait_for(lambda: first.commit_offset == 6 and second.commit_offset == 1)
    assert seen == [[(0, 0)], [(0, 1), (0, 2), (0, 3), (0, 4)], [(0, 5)], [(1, 0)]]
    await service.close(1.0)


async def test_what_takes_too_long_is_delivered_again_and_its_end_does_not_count() -> None:
    redelivery, gate = NotedRedelivery(), threading.Event()

    def handle(message: Message) -> Outcome:
        gate.wait(SECONDS_MAX)
        return Outcome.LATER

    service, inbox = make_concurrent(handle, redelivery, timeout_s=-1.0), make_inbox()
    put(service, inbox, make_records(0))
    await wait_for(lambda: len(inbox.running) == 1)
    assert await service.expire([inbox]) == 1
    assert (inbox.commit_offset, redelivery.back) == (1, [(0, 3)])
    gate.set()
    await wait_for(lambda: not inbox.running)
    assert redelivery.back == [(0, 3)]
    await service.close(1.0)


async def test_what_is_dropped_counts_for_nothing() -> None:
    redelivery, gate = NotedRedelivery(), threading.Event()
    begun: list[int] = []

    def handle(message: Message) -> Outcome:
        begun.append(message.offset)
        gate.wait(SECONDS_MAX)
        return Outcome.LATER

    service, inbox = make_concurrent(handle, redelivery, concurrency=1), make_inbox()
    put(service, inbox, make_records(0, 1, 2))
    await wait_for(lambda: len(inbox.running) == 1)
    inbox.drop()
    gate.set()
    await wait_for(lambda: not inbox.running)
    await service.close(SECONDS_MAX)
    assert (redelivery.back, inbox.commit_offset, begun) == ([], 0, [0])


async def test_closing_waits_for_what_began_and_begins_nothing() -> None:
    gate = threading.Event()
    ended: list[int] = []

    def handle(message: Message) -> None:
        gate.wait(SECONDS_MAX)
        ended.append(message.offset)

    service, inbox = make_concurrent(handle, NotedRedelivery(), concurrency=2), make_inbox()
    put(service, inbox, make_records(*range(6)))
    await wait_for(lambda: len(inbox.running) == 2)
    closing = asyncio.create_task(service.close(SECONDS_MAX))
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await closing
    assert (sorted(ended), inbox.commit_offset) == ([0, 1], 2)


async def test_closing_waits_until_what_failed_is_given_back() -> None:
    gate = asyncio.Event()

    class SlowRedelivery(NotedRedelivery):
        async def send_back(self, record: object, queue: object, later: Later = LATER) -> None:
            await gate.wait()
            self.back.append((0, later.level))

    def handle(message: Message) -> Outcome:
        return Outcome.LATER

    redelivery = SlowRedelivery()
    service, inbox = make_concurrent(handle, redelivery), make_inbox()
    put(service, inbox, make_records(0))
    await wait_for(lambda: bool(service._returning))
    closing = asyncio.create_task(service.close(SECONDS_MAX))
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert (redelivery.back, inbox.commit_offset) == ([(0, 0)], 1)


async def test_closing_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    ended = threading.Event()

    def handle(message: Message) -> None:
        gate.wait(SECONDS_MAX)
        ended.set()

    service, inbox = make_concurrent(handle, NotedRedelivery()), make_inbox()
    put(service, inbox, make_records(0))
    await wait_for(lambda: len(inbox.running) == 1)
    await service.close(0.01)
    assert "still running" in caplog.text
    gate.set()
    await wait_for(ended.is_set)
    await asyncio.sleep(0)
    assert inbox.commit_offset == 0


async def test_hooks_are_told_in_the_loop_and_their_context_reaches_the_function() -> None:
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")
    seen: list[str] = []
    loop_thread = threading.get_ident()

    class Hook:
        def before_consume(self, messages: list[Message]) -> object:
            assert threading.get_ident() == loop_thread
            place.set("hook")
            return "note"

        def after_consume(self, messages: list[Message], outcome: Outcome, seconds: float, begun: object) -> None:
            seen.append(f"{begun} {outcome.value}")

    def handle(message: Message) -> None:
        assert threading.get_ident() != loop_thread
        seen.append(place.get())

    service, inbox = make_concurrent(handle, NotedRedelivery()), make_inbox()
    service._observer.add_hook(Hook())
    put(service, inbox, make_records(0))
    await wait_for(lambda: inbox.commit_offset == 1)
    assert seen == ["hook", "note done"]
    await service.close(1.0)


async def test_ordered_handlers_run_in_threads_one_message_of_a_queue_after_the_other() -> None:
    loop_thread = threading.get_ident()
    seen: list[tuple[int, int]] = []
    again = {(0, 5), (1, 7)}

    def handle(message: Message) -> Outcome | None:
        assert threading.get_ident() != loop_thread
        place = (message.queue.queue_id, message.offset)
        if place in again:
            again.discard(place)
            return Outcome.LATER
        seen.append(place)
        return None

    service, inboxes = make_ordered(handle, NotedRedelivery(), concurrency=2), [make_inbox(0), make_inbox(1)]
    for inbox in inboxes:
        put(service, inbox, make_records(*range(50)))
    await wait_for(lambda: all(inbox.commit_offset == 50 for inbox in inboxes))
    for number in (0, 1):
        assert [offset for queue, offset in seen if queue == number] == list(range(50))
    await service.close(1.0)

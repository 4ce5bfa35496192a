"""How handlers are run: in what order messages begin and end, what becomes of failures, and how it all stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from eruca._client.group.inbox import Inbox
from eruca._client.group.observing import ConsumeObserver
from eruca._client.group.redelivery import Redelivery
from eruca._client.group.subscriptions import make_subscription
from eruca._client.later import LATER, Later
from eruca._client.message import Message, Outcome
from eruca._client.push.concurrent import ConcurrentService
from eruca._client.push.handlers import make_handler
from eruca._client.push.ordered import OrderedService
from eruca._wire.bodies import MessageQueue
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record
from eruca.errors import ConfigError, NetError, RetryLater
from tests.patience import PATIENCE_S

SECONDS_MAX = PATIENCE_S


class NotedRedelivery:
    """Takes note of what is given back; the broker's side of it is tested with real brokers elsewhere."""

    def __init__(self) -> None:
        self.back: list[tuple[int, int]] = []
        self.delays_ms: list[int] = []
        self.buried: list[int] = []
        self.failures = 0
        self.tried = 0

    async def send_back(self, record: Record, queue: MessageQueue, later: Later = LATER) -> None:
        self.back.append((record.queue_offset, later.level))
        self.delays_ms.append(later.delay_ms)

    async def send_back_stubbornly(self, record: Record, queue: MessageQueue, later: Later, pause_s: float) -> None:
        await self.send_back(record, queue, later)

    async def bury(self, record: Record, delivery: int) -> None:
        self.tried += 1
        if self.failures:
            self.failures -= 1
            raise NetError("not now")
        self.buried.append(record.queue_offset)


def make_inbox(number: int = 0, topic: str = "T") -> Inbox:
    inbox = Inbox(MessageQueue("b", number, topic), make_subscription(topic, "*", 1), 0)
    inbox.locked_until = float("inf")
    return inbox


def make_records(*offsets: int, topic: str = "T", **properties: str) -> list[Record]:
    return [
        Record(topic=topic, queue_offset=offset, size=10, body=b"x", properties=encode_properties(properties))
        for offset in offsets
    ]


def put(service: ConcurrentService | OrderedService, inbox: Inbox, records: list[Record]) -> None:
    service.deliver(inbox, inbox.process.put(records))


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def make_concurrent(function: Any, redelivery: NotedRedelivery, **how: Any) -> ConcurrentService:
    service = ConcurrentService(
        cast(Redelivery, redelivery),
        ConsumeObserver("G"),
        namespace="",
        broadcast=how.pop("broadcast", False),
        timeout_s=how.pop("timeout_s", 900.0),
    )
    settings = {"concurrency": 4, "batch": 1, "auto_commit": True, **how}
    service.add_handler(make_handler("T", function, **settings))
    return service


def make_ordered(function: Any, redelivery: NotedRedelivery, **how: Any) -> OrderedService:
    service = OrderedService(
        cast(Redelivery, redelivery),
        ConsumeObserver("G"),
        namespace="",
        suspend_s=0.01,
        max_deliveries=how.pop("max_deliveries", None),
        concurrency=how.pop("lanes", 20),
    )
    settings = {"concurrency": 1, "batch": 1, "auto_commit": True, **how}
    service.add_handler(make_handler("T", function, **settings))
    return service


# -- concurrent --------------------------------------------------------------------------------------------------------


async def test_a_return_is_the_acknowledgement() -> None:
    seen: list[int] = []

    async def handle(message: Message) -> None:
        seen.append(message.offset)

    service, inbox = make_concurrent(handle, NotedRedelivery()), make_inbox()
    put(service, inbox, make_records(*range(100)))
    await wait_for(lambda: inbox.commit_offset == 100)
    assert seen == list(range(100))
    await service.close(1.0)


async def test_no_more_handlers_than_wanted_run_at_once_and_all_of_them_do() -> None:
    gate = asyncio.Event()
    running = most = 0

    async def handle(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    service, inbox = make_concurrent(handle, NotedRedelivery(), concurrency=4), make_inbox()
    put(service, inbox, make_records(*range(10)))
    await wait_for(lambda: running == 4)
    gate.set()
    await wait_for(lambda: inbox.commit_offset == 10)
    assert most == 4
    await service.close(1.0)


async def test_an_exception_is_a_retry_and_does_not_hold_up_others(caplog: pytest.LogCaptureFixture) -> None:
    redelivery = NotedRedelivery()

    async def handle(message: Message) -> Outcome | None:
        if message.offset == 1:
            raise ValueError("no")
        return {2: Outcome.LATER, 3: Outcome.DEAD}.get(message.offset)

    service, inbox = make_concurrent(handle, redelivery), make_inbox()
    put(service, inbox, make_records(0, 1, 2, 3))
    await wait_for(lambda: inbox.commit_offset == 4)
    assert sorted(redelivery.back) == [(1, 0), (2, 0), (3, -1)]
    assert "ValueError: no" in caplog.text
    await service.close(1.0)


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_handler_may_say_how_much_later(is_plain: bool) -> None:
    redelivery = NotedRedelivery()

    def handle_plainly(message: Message) -> None:
        raise RetryLater(delay_level=message.offset - 1)

    async def handle(message: Message) -> None:
        handle_plainly(message)

    service, inbox = make_concurrent(handle_plainly if is_plain else handle, redelivery), make_inbox()
    put(service, inbox, make_records(0, 1, 2, 6))
    await wait_for(lambda: inbox.commit_offset == 7)
    assert sorted(redelivery.back) == [(0, -1), (1, 0), (2, 1), (6, 5)]
    await service.close(1.0)


@pytest.mark.parametrize(
    ("delay", "logged"),
    [
        (2.5, ""),
        (timedelta(seconds=2.5), ""),
        ("2.5", "RetryLater.delay='2.5': expected a duration"),
        (timedelta(days=41), "is delivered again with the usual delay: delay="),
    ],
)
async def test_a_handler_may_say_any_delay(delay: Any, logged: str, caplog: pytest.LogCaptureFixture) -> None:
    redelivery = NotedRedelivery()

    async def handle(message: Message) -> Outcome:
        raise RetryLater(delay=delay)

    service, inbox = make_concurrent(handle, redelivery), make_inbox()
    put(service, inbox, make_records(0))
    await wait_for(lambda: inbox.commit_offset == 1)
    assert (redelivery.back, redelivery.delays_ms) == (([(0, 0)], [0]) if logged else ([(0, 2)], [2500]))
    assert logged in caplog.text
    assert logged or not caplog.text
    await service.close(1.0)


async def test_a_result_that_is_no_outcome_is_not_taken_for_success(caplog: pytest.LogCaptureFixture) -> None:
    redelivery = NotedRedelivery()

    async def handle(message: Message) -> Any:
        return True

    service, inbox = make_concurrent(handle, redelivery), make_inbox()
    put(service, inbox, make_records(0))
    await wait_for(lambda: inbox.commit_offset == 1)
    assert redelivery.back == [(0, 0)]
    assert "must return nothing or an Outcome" in caplog.text
    await service.close(1.0)


async def test_a_failed_broadcast_message_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    redelivery = NotedRedelivery()

    async def handle(message: Message) -> Outcome:
        return Outcome.LATER

    service, inbox = make_concurrent(handle, redelivery, broadcast=True), make_inbox()
    put(service, inbox, make_records(0))
    await wait_for(lambda: inbox.commit_offset == 1)
    assert redelivery.back == []
    assert "dropped" in caplog.text
    await service.close(1.0)


async def test_batches_are_of_one_queue() -> None:
    seen: list[list[tuple[int, int]]] = []

    async def handle(messages: list[Message]) -> None:
        seen.append([(message.queue.queue_id, message.offset) for message in messages])

    service = make_concurrent(handle, NotedRedelivery(), batch=3, concurrency=1)
    one, two = make_inbox(0), make_inbox(1)
    put(service, one, make_records(0, 1, 2, 3))
    put(service, two, make_records(0, 1))
    await wait_for(lambda: one.commit_offset == 4 and two.commit_offset == 2)
    assert seen == [[(0, 0), (0, 1), (0, 2)], [(0, 3)], [(1, 0), (1, 1)]]
    await service.close(1.0)


async def test_plain_functions_run_beside_the_loop() -> None:
    loop = asyncio.get_running_loop()
    seen: list[bool] = []

    def handle(message: Message) -> None:
        try:
            asyncio.get_running_loop()
            seen.append(False)
        except RuntimeError:
            seen.append(loop.is_running())

    service, inbox = make_concurrent(handle, NotedRedelivery()), make_inbox()
    put(service, inbox, make_records(*range(20)))
    await wait_for(lambda: inbox.commit_offset == 20)
    assert seen == [True] * 20
    await service.close(1.0)


async def test_retried_messages_go_to_the_handler_of_their_topic() -> None:
    seen: list[tuple[str, str]] = []

    async def handle(message: Message) -> None:
        seen.append(("T", message.topic))

    async def handle_other(message: Message) -> None:
        seen.append(("U", message.topic))

    service = make_concurrent(handle, NotedRedelivery())
    service.add_handler(make_handler("U", handle_other, concurrency=1, batch=1, auto_commit=True))
    inbox = make_inbox(topic="%RETRY%G")
    put(service, inbox, make_records(0, topic="%RETRY%G", RETRY_TOPIC="U"))
    put(service, inbox, make_records(1, topic="%RETRY%G", RETRY_TOPIC="T"))
    put(service, inbox, make_records(2, topic="%RETRY%G", RETRY_TOPIC="Gone"))
    await wait_for(lambda: inbox.commit_offset == 3)
    assert sorted(seen) == [("T", "Gone"), ("T", "T"), ("U", "U")]
    await service.close(1.0)


async def test_what_takes_too_long_is_delivered_again_and_its_end_does_not_count() -> None:
    redelivery = NotedRedelivery()
    gate = asyncio.Event()

    async def handle(message: Message) -> Outcome:
        if message.offset == 0:
            await gate.wait()
        return Outcome.LATER if message.offset == 0 else Outcome.DONE

    service, inbox = make_concurrent(handle, redelivery, timeout_s=0.0), make_inbox()
    put(service, inbox, make_records(0, 1))
    await wait_for(lambda: len(inbox.running) == 1 and not inbox.process.is_open(1))
    assert inbox.commit_offset == 0
    assert await service.expire([inbox]) == 1
    assert (inbox.commit_offset, redelivery.back) == (2, [(0, 3)])
    gate.set()
    await wait_for(lambda: not inbox.running)
    assert redelivery.back == [(0, 3)]
    await service.close(1.0)


async def test_what_takes_too_long_is_looked_for_when_its_time_is_over() -> None:
    """Not when an interval of the same length happens to end, which may be twice as late."""
    gate = asyncio.Event()

    async def handle(message: Message) -> None:
        if message.offset == 0:
            await gate.wait()

    service, inbox = make_concurrent(handle, NotedRedelivery(), timeout_s=100.0), make_inbox()
    assert service.find_pause([inbox]) == pytest.approx(100.0)
    put(service, inbox, make_records(0, 1))
    await wait_for(lambda: list(inbox.running) == [0] and not inbox.process.is_open(1))
    began, record = inbox.running[0]
    inbox.running[0] = (began - 70.0, record)
    assert service.find_pause([inbox]) == pytest.approx(30.0, abs=5.0)
    # It was given back: its handler may take as long as it likes now.
    inbox.running[0] = (began - 100.0, record)
    assert await service.expire([inbox]) == 1
    assert service.find_pause([inbox]) == pytest.approx(100.0)
    gate.set()
    await service.close(1.0)


async def test_one_that_cannot_be_given_back_does_not_keep_the_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    redelivery = NotedRedelivery()
    gate = asyncio.Event()

    async def handle(message: Message) -> None:
        await gate.wait()

    service, inbox = make_concurrent(handle, redelivery, timeout_s=0.0), make_inbox()
    put(service, inbox, make_records(0, 1))
    await wait_for(lambda: len(inbox.running) == 2)
    send_back = redelivery.send_back

    async def fail_first(record: Record, queue: MessageQueue, later: Later = LATER) -> None:
        if record.queue_offset == 0:
            raise NetError("not now")
        await send_back(record, queue, later)

    monkeypatch.setattr(redelivery, "send_back", fail_first)
    assert await service.expire([inbox]) == 1
    assert redelivery.back == [(1, 3)]
    # The other is not tried again at once.
    assert await service.expire([inbox]) == 0
    gate.set()
    await service.close(1.0)


async def test_what_is_dropped_counts_for_nothing() -> None:
    redelivery = NotedRedelivery()
    gate = asyncio.Event()

    async def handle(message: Message) -> Outcome:
        await gate.wait()
        return Outcome.LATER

    service, inbox = make_concurrent(handle, redelivery, concurrency=1), make_inbox()
    put(service, inbox, make_records(0, 1))
    await wait_for(lambda: len(inbox.running) == 1)
    inbox.drop()
    gate.set()
    await wait_for(lambda: not inbox.running)
    assert (redelivery.back, inbox.commit_offset) == ([], 0)
    await service.close(1.0)


@pytest.mark.parametrize("is_plain", [False, True])
async def test_leaving_a_queue_waits_for_its_handlers_and_takes_nothing_for_done(is_plain: bool) -> None:
    begun, end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def handle_here(message: Message) -> None:
        seen.append(message.offset)
        loop.call_soon_threadsafe(begun.set)
        end.wait(SECONDS_MAX)

    async def handle(message: Message) -> None:
        await asyncio.to_thread(handle_here, message)

    service = make_concurrent(handle_here if is_plain else handle, NotedRedelivery(), concurrency=1)
    inbox, other = make_inbox(), make_inbox(1)
    put(service, inbox, make_records(*range(3)))
    put(service, other, make_records(10))
    await begun.wait()
    leaving = loop.create_task(service.leave(inbox))
    await wait_for(lambda: inbox.leaving)
    assert not leaving.done()
    end.set()
    await leaving
    assert (inbox.commit_offset, inbox.running, inbox.dropped) == (1, {}, False)
    await wait_for(lambda: other.commit_offset == 11)
    put(service, inbox, make_records(3))  # it was on its way
    await service.close(SECONDS_MAX)
    assert seen == [0, 10]
    assert inbox.commit_offset == 1


async def test_a_queue_is_left_although_a_handler_takes_too_long(caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    async def handle(message: Message) -> None:
        begun.set()
        await asyncio.Event().wait()

    service, inbox = make_concurrent(handle, NotedRedelivery(), timeout_s=0.05), make_inbox()
    put(service, inbox, make_records(0))
    await begun.wait()
    await service.leave(inbox)
    assert "is released while a handler works on it" in caplog.text
    await service.close(0.0)


async def test_closing_waits_for_what_began_and_begins_nothing() -> None:
    gate = asyncio.Event()
    ended: list[int] = []

    async def handle(message: Message) -> None:
        await gate.wait()
        ended.append(message.offset)

    service, inbox = make_concurrent(handle, NotedRedelivery(), concurrency=2), make_inbox()
    put(service, inbox, make_records(*range(6)))
    await wait_for(lambda: len(inbox.running) == 2)
    closing = asyncio.create_task(service.close(SECONDS_MAX))
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await closing
    assert (ended, inbox.commit_offset) == ([0, 1], 2)


async def test_closing_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(message: Message) -> None:
        await asyncio.Event().wait()

    service, inbox = make_concurrent(handle, NotedRedelivery()), make_inbox()
    put(service, inbox, make_records(0))
    await wait_for(lambda: len(inbox.running) == 1)
    await service.close(0.01)
    assert inbox.commit_offset == 0
    assert "still running" in caplog.text


async def test_a_handler_that_never_waits_leaves_the_loop_to_others() -> None:
    turns = 0

    async def handle(message: Message) -> None:
        until = asyncio.get_running_loop().time() + 0.002
        while asyncio.get_running_loop().time() < until:
            pass

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    service, inbox = make_concurrent(handle, NotedRedelivery()), make_inbox()
    task = asyncio.create_task(count())
    put(service, inbox, make_records(*range(50)))
    await wait_for(lambda: inbox.commit_offset == 50)
    task.cancel()
    assert turns > 5
    await service.close(1.0)


@pytest.mark.parametrize("is_plain", [False, True])
async def test_as_many_handlers_run_as_make_the_work_go_faster(monkeypatch: pytest.MonkeyPatch, is_plain: bool) -> None:
    """Handlers that only wait: more at once do more, so the number climbs."""
    monkeypatch.setattr("eruca._client.push.concurrent._LOOK_S", 0.02)
    running = most = 0
    guard = threading.Lock()

    def enter(step: int) -> None:
        nonlocal running, most
        with guard:
            running += step
            most = max(most, running)

    async def handle(message: Message) -> None:
        enter(1)
        await asyncio.sleep(0.002)
        enter(-1)

    def handle_plainly(message: Message) -> None:
        enter(1)
        threading.Event().wait(0.002)
        enter(-1)

    service = make_concurrent(handle_plainly if is_plain else handle, NotedRedelivery(), concurrency="auto")
    inbox = make_inbox()
    put(service, inbox, make_records(*range(20_000)))
    await wait_for(lambda: most > 20)
    await service.close(SECONDS_MAX)
    assert inbox.commit_offset < 20_000


def test_concurrency_is_a_number_or_auto() -> None:
    with pytest.raises(ConfigError, match="a number or 'auto'"):
        make_handler("T", lambda _: None, concurrency=cast(Any, "many"), batch=1, auto_commit=True)


# -- single messages of a batch ----------------------------------------------------------------------------------------


async def test_what_was_acknowledged_before_a_failure_does_not_come_again() -> None:
    async def handle(messages: list[Message]) -> None:
        await messages[1].ack()
        await messages[3].ack()
        raise ValueError("the others failed")

    redelivery = NotedRedelivery()
    service, inbox = make_concurrent(handle, redelivery, batch=5, concurrency=1), make_inbox()
    put(service, inbox, make_records(0, 1, 2, 3, 4))
    await wait_for(lambda: inbox.commit_offset == 5)
    assert redelivery.back == [(0, 0), (2, 0), (4, 0)]
    await service.close(1.0)


async def test_an_acknowledged_message_does_not_move_the_offset_past_an_open_one() -> None:
    acked, gate = asyncio.Event(), asyncio.Event()

    async def handle(messages: list[Message]) -> None:
        await messages[1].ack()
        acked.set()
        await gate.wait()

    service, inbox = make_concurrent(handle, NotedRedelivery(), batch=3, concurrency=1), make_inbox()
    put(service, inbox, make_records(0, 1, 2))
    await wait_for(acked.is_set)
    assert inbox.commit_offset == 0
    assert not inbox.process.is_open(1)
    gate.set()
    await wait_for(lambda: inbox.commit_offset == 3)
    await service.close(1.0)


async def test_single_messages_are_retried_and_buried_and_the_rest_is_done() -> None:
    async def handle(messages: list[Message]) -> None:
        await messages[0].retry(delay_level=5)
        await messages[0].ack()  # what was said first counts
        await messages[2].bury()

    redelivery = NotedRedelivery()
    service, inbox = make_concurrent(handle, redelivery, batch=3, concurrency=1), make_inbox()
    put(service, inbox, make_records(0, 1, 2))
    await wait_for(lambda: inbox.commit_offset == 3)
    assert redelivery.back == [(0, 5), (2, -1)]
    await service.close(1.0)


async def test_a_message_that_could_not_be_retried_goes_with_the_rest() -> None:
    class Refusing(NotedRedelivery):
        async def send_back(self, record: Record, queue: MessageQueue, later: Later = LATER) -> None:
            self.tried += 1
            if self.tried == 1:
                raise NetError("not now")
            await super().send_back(record, queue, later)

    async def handle(messages: list[Message]) -> None:
        await messages[0].retry(delay_level=1)

    redelivery = Refusing()
    service, inbox = make_concurrent(handle, redelivery, batch=2, concurrency=1), make_inbox()
    put(service, inbox, make_records(0, 1))
    await wait_for(lambda: inbox.commit_offset == 2)
    assert redelivery.back == [(0, 0), (1, 0)]
    await service.close(1.0)


async def test_an_ordered_batch_goes_on_with_what_was_not_acknowledged() -> None:
    seen: list[list[int]] = []

    async def handle(messages: list[Message]) -> None:
        seen.append([message.offset for message in messages])
        if len(seen) == 1:
            await messages[0].ack()
            await messages[1].bury()
            raise ValueError("the others failed")

    redelivery = NotedRedelivery()
    service, inbox = make_ordered(handle, redelivery, batch=4), make_inbox()
    put(service, inbox, make_records(0, 1, 2, 3))
    await wait_for(lambda: inbox.commit_offset == 4)
    assert seen == [[0, 1, 2, 3], [2, 3]]
    assert redelivery.buried == [1]
    await service.close(1.0)


async def test_a_single_message_of_an_ordered_queue_is_not_retried() -> None:
    refused: list[Exception] = []

    async def handle(message: Message) -> None:
        try:
            await message.retry()
        except ConfigError as error:
            refused.append(error)

    service, inbox = make_ordered(handle, NotedRedelivery()), make_inbox()
    put(service, inbox, make_records(0))
    await wait_for(lambda: inbox.commit_offset == 1)
    assert len(refused) == 1
    await service.close(1.0)


# -- ordered -----------------------------------------------------------------------------------------------------------


async def test_a_queue_is_consumed_one_by_one_and_queues_side_by_side() -> None:
    gate = asyncio.Event()
    running: list[int] = []
    seen: dict[int, list[int]] = {0: [], 1: []}

    async def handle(message: Message) -> None:
        assert message.queue.queue_id not in running
        running.append(message.queue.queue_id)
        await gate.wait()
        running.remove(message.queue.queue_id)
        seen[message.queue.queue_id].append(message.offset)

    service = make_ordered(handle, NotedRedelivery())
    one, two = make_inbox(0), make_inbox(1)
    put(service, one, make_records(*range(5)))
    put(service, two, make_records(*range(5)))
    await wait_for(lambda: sorted(running) == [0, 1])
    gate.set()
    await wait_for(lambda: one.commit_offset == 5 and two.commit_offset == 5)
    assert seen == {0: list(range(5)), 1: list(range(5))}
    await service.close(1.0)


async def test_a_failure_is_tried_again_before_anything_behind_it() -> None:
    seen: list[tuple[int, int]] = []

    async def handle(message: Message) -> None:
        seen.append((message.offset, message.delivery))
        if message.offset == 1 and message.delivery < 3:
            raise ValueError("again")

    service, inbox = make_ordered(handle, NotedRedelivery()), make_inbox()
    put(service, inbox, make_records(0, 1, 2))
    await wait_for(lambda: inbox.commit_offset == 3)
    assert seen == [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1)]
    await service.close(1.0)


async def test_what_failed_too_often_is_buried_and_the_queue_goes_on() -> None:
    redelivery = NotedRedelivery()
    redelivery.failures = 1

    async def handle(message: Message) -> Outcome:
        return Outcome.LATER if message.offset == 0 else Outcome.DONE

    service, inbox = make_ordered(handle, redelivery, max_deliveries=2), make_inbox()
    put(service, inbox, make_records(0, 1))
    await wait_for(lambda: inbox.commit_offset == 2)
    assert redelivery.buried == [0]
    await service.close(1.0)


async def test_what_cannot_be_buried_now_is_tried_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler says DEAD and the broker is away: it is not called again as fast as it can."""
    redelivery = NotedRedelivery()
    redelivery.failures = 3
    pauses = 0

    async def handle(message: Message) -> Outcome:
        return Outcome.DEAD

    service, inbox = make_ordered(handle, redelivery), make_inbox()
    suspend = service._suspend

    async def count(lane: Any) -> None:
        nonlocal pauses
        pauses += 1
        await suspend(lane)

    monkeypatch.setattr(service, "_suspend", count)
    put(service, inbox, make_records(0))
    await wait_for(lambda: inbox.commit_offset == 1)
    assert (redelivery.buried, pauses) == ([0], 3)
    await service.close(1.0)


async def test_dead_is_buried_at_once() -> None:
    redelivery = NotedRedelivery()

    async def handle(message: Message) -> Outcome:
        return Outcome.DEAD if message.offset == 1 else Outcome.DONE

    service, inbox = make_ordered(handle, redelivery), make_inbox()
    put(service, inbox, make_records(0, 1, 2))
    await wait_for(lambda: inbox.commit_offset == 3)
    assert redelivery.buried == [1]
    await service.close(1.0)


async def test_a_handler_may_commit_and_roll_back_itself() -> None:
    seen: list[int] = []
    rolled_back = False

    async def handle(message: Message) -> Outcome | None:
        nonlocal rolled_back
        seen.append(message.offset)
        if message.offset == 2 and not rolled_back:
            rolled_back = True
            return Outcome.ROLLBACK
        return Outcome.COMMIT if message.offset == 3 else None

    service, inbox = make_ordered(handle, NotedRedelivery(), auto_commit=False), make_inbox()
    put(service, inbox, make_records(0, 1, 2, 3, 4))
    await wait_for(lambda: len(seen) == 8)
    assert seen == [0, 1, 2, 0, 1, 2, 3, 4]
    assert inbox.commit_offset == 4
    await service.close(1.0)


async def test_without_the_lock_nothing_is_consumed() -> None:
    seen: list[int] = []

    async def handle(message: Message) -> None:
        seen.append(message.offset)

    service, inbox = make_ordered(handle, NotedRedelivery()), make_inbox()
    inbox.locked_until = 0.0
    put(service, inbox, make_records(0))
    for _ in range(20):
        await asyncio.sleep(0)
    assert seen == []
    inbox.locked_until = float("inf")
    await wait_for(lambda: inbox.commit_offset == 1)
    await service.close(1.0)


async def test_leaving_waits_for_the_handler_at_work_and_begins_nothing_more() -> None:
    gate = asyncio.Event()
    seen: list[int] = []

    async def handle(message: Message) -> None:
        await gate.wait()
        seen.append(message.offset)

    service, inbox = make_ordered(handle, NotedRedelivery()), make_inbox()
    put(service, inbox, make_records(0, 1))
    await wait_for(lambda: len(inbox.running) == 1)
    leaving = asyncio.create_task(service.leave(inbox))
    await asyncio.sleep(0)
    assert not leaving.done()
    gate.set()
    await leaving
    assert (seen, inbox.commit_offset) == ([0], 1)
    await service.close(1.0)


# -- what is not a handler ----------------------------------------------------------------------------------------


def test_a_handler_can_be_called() -> None:
    with pytest.raises(ConfigError, match="is not a function"):
        make_handler("T", cast(Any, "no"), concurrency=1, batch=1, auto_commit=True)

"""The parts of delivery with our clients: each executes its plan and returns the facts that `plans.py` checks.

They correspond to `DeliveryCases.java` and `DeliveryRequests.java` with Java's clients.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from eruca import Consumer, Message, Outcome, Producer, PullConsumer, Receipt, Retry, RetryLater, Sql
from eruca._client.produce.checks import Decision
from eruca._client.produce.transactions import TransactionalProducer
from eruca._wire.codes import RequestCode
from eruca._wire.headers import ResetOffsetHeader
from eruca._wire.names import DLQ_PREFIX
from tests.clients.stage import (
    Collector,
    ask_broker,
    create_topic,
    fetch_topic,
    list_queues,
    make_consumer,
    poll,
    read_queue,
    wait_for_queues,
    wait_until,
)
from tests.interop.behaviour import Facts
from tests.patience import PATIENCE_S

Plan = dict[str, Any]
# Name server, a name that no other part has, and the plan.
PythonPart = Callable[[str, str, Plan], Awaitable[Facts]]

SILENCE_SECONDS = 4.0
_PATIENCE_SECONDS = PATIENCE_S
_DECISIONS = {"c": Decision.COMMIT, "r": Decision.ROLLBACK, "u": Decision.UNKNOWN}


def _number(message: Message) -> int:
    return int(message.body)


def _numbers(messages: Collection[Message]) -> list[int]:
    return sorted(map(_number, messages))


async def _send_all(producer: Producer, topic: str, numbers: range) -> None:
    """Send numbers to the queues in turn."""
    queues = await producer.list_queues(topic)
    for number in numbers:
        await producer.send(topic, b"%d" % number, queue=queues[number % len(queues)])


async def _wait_for_commits(nameserver: str, group: str, topic: str, counts: list[int]) -> None:
    """Wait until a group has committed this many messages in each queue."""
    async with PullConsumer(nameserver, group=group, auto_commit=False) as looker:
        queues = sorted(await looker.list_queues(topic), key=lambda queue: queue.queue_id)

        async def read() -> list[int]:
            return [await looker.committed(queue) or 0 for queue in queues]

        await poll(read, lambda found: found == counts)


# --- order --------------------------------------------------------------------------------------------------------


class _OrderedWork:
    """The handler of all members: puts some messages off, and notices two at a time in a queue."""

    def __init__(self, suspends: dict[str, int]) -> None:
        self.done: defaultdict[int, list[int]] = defaultdict(list)
        self.tries: Counter[int] = Counter()
        self.together = 0
        self._suspends = suspends
        self._busy: set[int] = set()

    async def work(self, message: Message) -> Outcome | None:
        """The handler."""
        number, queue = _number(message), message.queue.queue_id
        self.together += queue in self._busy
        self._busy.add(queue)
        await asyncio.sleep(0)
        self._busy.discard(queue)
        self.tries[number] += 1
        if self.tries[number] <= self._suspends.get(str(number), 0):
            return Outcome.LATER
        self.done[queue].append(number)
        return None


async def ordered(nameserver: str, name: str, plan: Plan) -> Facts:
    """Two members; some messages are put off for a moment before they are done."""
    where: list[int] = plan["queues"]
    count = max(where) + 1
    work = _OrderedWork(plan["suspends"])
    async with Producer(nameserver, group=name) as producer:
        await create_topic(producer, name, count)
        members = [make_consumer(nameserver, name, retry=Retry(suspend=0.02)) for _ in range(2)]
        async with AsyncExitStack() as stack:
            for member in members:
                member.handler(name, ordered=True)(work.work)
                await stack.enter_async_context(member)
            for member in members:
                await wait_for_queues(member, count // 2)
            queues = sorted(await producer.list_queues(name), key=lambda queue: queue.queue_id)
            for number, queue in enumerate(where):
                await producer.send(name, b"%d" % number, queue=queues[queue])
            await wait_until(lambda: sum(map(len, work.done.values())) >= len(where), "all", _PATIENCE_SECONDS)
    await _wait_for_commits(nameserver, name, name, [where.count(queue) for queue in range(count)])
    return {
        "done": {str(queue): work.done[queue] for queue in sorted(work.done)},
        "tries": work.tries.total(),
        "two at a time in a queue": work.together,
    }


# --- retry --------------------------------------------------------------------------------------------------------


async def retries(nameserver: str, name: str, plan: Plan) -> Facts:
    """Each message fails a number of times; those that fail too often are dead letters in the end."""
    failures, most, level = plan["failures"], plan["most"], plan["level"]
    seen: dict[int, list[Message]] = defaultdict(list)
    consumer = make_consumer(nameserver, name, retry=Retry(max_deliveries=most + 1))

    @consumer.handler(name)
    async def work(message: Message) -> None:
        seen[_number(message)].append(message)
        if message.delivery <= failures[_number(message)]:
            raise RetryLater(delay_level=level)

    calls = sum(min(count, most) + 1 for count in failures)
    hopeless = sum(count > most for count in failures)
    async with Producer(nameserver, group=name) as producer:
        await create_topic(producer, name)
        async with consumer:
            await _send_all(producer, name, range(len(failures)))
            await wait_until(lambda: sum(map(len, seen.values())) >= calls, "all calls", _PATIENCE_SECONDS)
            letters = await fetch_topic(producer._session, DLQ_PREFIX + name, hopeless)
    return {
        "times": {str(number): [message.delivery - 1 for message in seen[number]] for number in sorted(seen)},
        "levels": {
            str(number): [message.all_properties.get("DELAY") for message in messages]
            for number, messages in seen.items()
        },
        "dead": {str(_number(letter)): letter.delivery - 1 for letter in letters},
        "letters": len(letters),
    }


# --- delay --------------------------------------------------------------------------------------------------------


async def delays(nameserver: str, name: str, plan: Plan) -> Facts:
    """How late each message was stored in its topic, by the broker's own clock."""
    levels = plan["levels"]
    consumer = make_consumer(nameserver, name)
    collector = Collector(consumer, name)
    async with (
        Producer(nameserver, group=name) as producer,
        PullConsumer(nameserver, group=f"{name}-looker") as looker,
    ):
        await create_topic(producer, name)
        async with consumer:
            receipts = [
                await producer.send(name, b"%d" % number, delay_level=level) for number, level in enumerate(levels)
            ]
            # The record that waits, stored when it was sent.
            due = [
                (await looker.view(receipt.offset_id)).stored_at + timedelta(milliseconds=plan["millis"][str(level)])
                for receipt, level in zip(receipts, levels, strict=True)
            ]
            await collector.wait(len(levels), _PATIENCE_SECONDS)
    late = [(_number(message), message.stored_at - due[_number(message)]) for message in collector.messages]
    return {"late": [(number, round(time / timedelta(milliseconds=1))) for number, time in late]}


# --- transactions -------------------------------------------------------------------------------------------------


async def transactions(nameserver: str, name: str, plan: Plan) -> Facts:
    """Each letter of an outcome is one answer: the first at once, the others to questions of the broker."""
    outcomes: list[str] = plan["outcomes"]
    asked: Counter[int] = Counter()
    loop = asyncio.get_running_loop()
    last_asked = loop.time()

    def answer(number: int, times: int) -> Decision:
        return _DECISIONS[outcomes[number][min(times, len(outcomes[number]) - 1)]]

    async def check(message: Message) -> Decision:
        nonlocal last_asked
        last_asked = loop.time()
        asked[_number(message)] += 1
        return answer(_number(message), asked[_number(message)])

    async with TransactionalProducer(nameserver, group=name, check=check) as producer:
        await create_topic(producer, name)

        async def send(number: int) -> None:
            async def decide(_: Receipt) -> Decision:
                return answer(number, 0)

            await producer.send_transaction(name, b"%d" % number, local=decide)

        for number in range(len(outcomes)):
            await send(number)
        open_ones = {number: len(outcome) - 1 for number, outcome in enumerate(outcomes) if len(outcome) > 1}
        await wait_until(lambda: all(asked[number] >= times for number, times in open_ones.items()), "all asked")
        # A broker that sends no more checks has received every answer.
        await wait_until(lambda: loop.time() - last_asked > SILENCE_SECONDS, "silence")
        session = producer._session
        visible = [
            message for queue in await list_queues(session, name) for message in await read_queue(session, queue)
        ]
    return {
        "visible": _numbers(visible),
        "asked": {str(number): times for number, times in asked.items()},
        "asked about decided ones": sum(times for number, times in asked.items() if number not in open_ones),
    }


# --- filters ------------------------------------------------------------------------------------------------------


async def tags(nameserver: str, name: str, plan: Plan) -> Facts:
    """One group for each expression; what each one got, when its offsets are at the end."""
    return await _filter(nameserver, name, plan, lambda text: text)


async def sql(nameserver: str, name: str, plan: Plan) -> Facts:
    """The same with SQL92."""
    return await _filter(nameserver, name, plan, Sql)


async def _filter(nameserver: str, name: str, plan: Plan, want: Callable[[str], str | Sql]) -> Facts:
    messages: list[dict[str, str]] = plan["messages"]
    async with Producer(nameserver, group=name) as producer, AsyncExitStack() as stack:
        await create_topic(producer, name)
        collectors: dict[str, Collector] = {}
        for group, text in plan["groups"].items():
            consumer = make_consumer(nameserver, f"{name}-{group}")
            collectors[group] = Collector(consumer, name, tags=want(text))
            await stack.enter_async_context(consumer)
        queues = sorted(await producer.list_queues(name), key=lambda queue: queue.queue_id)
        for number, have in enumerate(messages):
            properties = {key: value for key, value in have.items() if key != "TAGS"}
            queue = queues[number % len(queues)]
            await producer.send(name, b"%d" % number, tags=have.get("TAGS"), properties=properties, queue=queue)
        counts = [len(messages[queue.queue_id :: len(queues)]) for queue in queues]
        for group in collectors:
            await _wait_for_commits(nameserver, f"{name}-{group}", name, counts)
        return {"got": {group: _numbers(collector.messages) for group, collector in collectors.items()}}


# --- replay -------------------------------------------------------------------------------------------------------


async def reset(nameserver: str, name: str, plan: Plan) -> Facts:
    """A running group is sent back to a time between two halves."""
    half = plan["half"]
    consumer: Consumer = make_consumer(nameserver, name)
    collector = Collector(consumer, name)
    async with Producer(nameserver, group=name) as producer:
        await create_topic(producer, name)
        async with consumer:
            await _send_all(producer, name, range(half))
            await collector.wait(half)
            # Brokers choose the message nearest to a time, before or after it: no send may take as long as this.
            later = datetime.now(UTC) + timedelta(seconds=2)
            await wait_until(lambda: datetime.now(UTC) > later, "later")
            await _send_all(producer, name, range(half, 2 * half))
            await collector.wait(2 * half)
            first = _numbers(collector.messages)
            await consumer.commit()
            (middle,) = [message.stored_at for message in collector.messages if _number(message) == half]
            header = ResetOffsetHeader(
                topic=name, group=name, timestamp=round(middle.timestamp() * 1000), is_force=True
            )
            table = await ask_broker(producer._session, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            await collector.wait(3 * half)
            again = _numbers(collector.messages[2 * half :])
    await _wait_for_commits(nameserver, name, name, [half // 2] * 4)
    return {"first": first, "to": sorted(table.offset_table.values()), "again": again}


# --- requests -----------------------------------------------------------------------------------------------------


async def requests(nameserver: str, name: str, plan: Plan) -> Facts:
    """Asks and answers."""
    answered = 0
    async with Producer(nameserver, group=name) as producer:
        await create_topic(producer, name)
        consumer = make_consumer(nameserver, name)

        @consumer.handler(name)
        async def answer(message: Message) -> None:
            nonlocal answered
            await producer.reply(message, b"re " + message.body)
            answered += 1

        async with consumer:
            questions = [producer.request(name, b"q%d" % number, timeout=25) for number in range(plan["count"])]
            replies = await asyncio.gather(*questions)
    return {"replies": [reply.body.decode() for reply in replies], "answered": answered}


# By the names of Java's cases.
PYTHON_PARTS: dict[str, PythonPart] = {
    part.__name__: part for part in (ordered, retries, delays, transactions, tags, sql, reset, requests)
}

"""Reading the messages of a topic: those it has, in the order in which they were stored, and those that arrive."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta

from eruca._admin.connection import Connection
from eruca._admin.targets import gather_bounded
from eruca._client.group.starting import find_offset_since
from eruca._client.message import Message
from eruca._ground.backoff import Backoff
from eruca._ground.durations import to_ms
from eruca._ground.times import to_epoch_ms
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import TOOLS_CONSUMER_GROUP
from eruca.errors import ConfigError, ErucaError, NetError, NoRoute

_TICK = timedelta(milliseconds=1)
# How long a broker holds a request for messages that are to arrive.
_HOLD_MS = 10_000
_COUNT = 32
# What is kept of messages that nobody takes.
_WAITING_MAX = 64
_PAUSES = Backoff(0.2, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which messages of a topic are wanted."""

    topic: str
    broker: str | None = None
    queue: int | None = None
    offset: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    tags: str = "*"
    key: str | None = None
    # In whose name they are read.
    group: str | None = None
    newest_first: bool = False
    # The offset of the last message that an earlier read returned, by `broker:queue`.
    resume: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if self.offset is not None and (self.broker is None or self.queue is None):
            raise ConfigError(f"offset={self.offset}: a queue is needed too", hint="name the broker and the queue")
        for name, time in (("since", self.since), ("until", self.until)):
            if time is not None:
                to_epoch_ms(name, time)  # raises now instead of later

    def fits(self, message: Message) -> bool:
        """Return whether a message meets the conditions that brokers do not check."""
        stored_ms = message.record.store_timestamp
        return (
            (self.since is None or stored_ms >= to_epoch_ms("since", self.since))
            and (self.until is None or stored_ms <= to_epoch_ms("until", self.until))
            and (self.key is None or self.key in message.keys)
        )


async def list_queues(connection: Connection, place: Place) -> list[MessageQueue]:
    """Return the queues that are read. Raises NoRoute if there is none."""
    route = await connection.require_route(place.topic)
    # Old brokers create some topics without permission to read.
    queues = [
        queue
        for queue in sorted({*route.read_queues, *route.write_queues})
        if place.broker in (None, queue.broker_name) and place.queue in (None, queue.queue_id)
    ]
    if not queues:
        where = "" if place.broker is None and place.queue is None else f" {place.broker or 'any'}:{place.queue}"
        raise NoRoute(f"topic {place.topic} has no queue{where}", hint=f"eruca topic show {place.topic} lists them")
    return queues


async def read_messages(connection: Connection, place: Place) -> AsyncGenerator[Message, None]:
    """Yield the messages of a topic, in the order in which they were stored."""
    queues = await list_queues(connection, place)
    reads = [_read_queue(connection, place, queue) for queue in queues]
    direction = -1 if place.newest_first else 1
    try:
        heads = await gather_bounded(reads, _next)
        heap: list[tuple[int, int, Message]] = []
        for number, head in enumerate(heads):
            if isinstance(head, ErucaError):
                raise head
            if head is not None:
                heap.append((direction * head.record.store_timestamp, number, head))
        heapq.heapify(heap)
        while heap:
            _, number, message = heap[0]
            yield message
            following = await _next(reads[number])
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (direction * following.record.store_timestamp, number, following))
    finally:
        for read in reads:
            await read.aclose()


async def _next(read: AsyncIterator[Message]) -> Message | None:
    return await anext(read, None)


async def _read_queue(connection: Connection, place: Place, queue: MessageQueue) -> AsyncGenerator[Message, None]:
    address = connection.routes.require_address(queue.broker_name)
    calls = connection.calls
    begin = max(0, await calls.find_min_offset(address, queue))
    end = await calls.find_max_offset(address, queue)
    if begin >= end:
        return
    if place.offset is not None:
        begin = max(begin, place.offset)
    elif place.since is not None:
        since_ms = to_epoch_ms("since", place.since)
        begin = max(begin, await find_offset_since(calls, address, TOOLS_CONSUMER_GROUP, queue, since_ms))
    if place.until is not None:
        until_ms = to_epoch_ms("until", place.until + _TICK)
        end = min(end, await find_offset_since(calls, address, TOOLS_CONSUMER_GROUP, queue, until_ms))
    last = None if place.resume is None else place.resume.get(f"{queue.broker_name}:{queue.queue_id}")
    if last is not None:
        begin, end = (begin, min(end, last)) if place.newest_first else (max(begin, last + 1), end)
    reading = _read_backwards if place.newest_first else _read_forwards
    async with aclosing(reading(connection, place, queue, begin, end)) as messages:
        async for message in messages:
            if place.fits(message):
                yield message


def _read_forwards(
    connection: Connection, place: Place, queue: MessageQueue, begin: int, end: int
) -> AsyncGenerator[Message, None]:
    return connection.read_queue(queue, begin, end, place.tags, group=place.group)


async def _read_backwards(
    connection: Connection, place: Place, queue: MessageQueue, begin: int, end: int
) -> AsyncGenerator[Message, None]:
    while end > begin:
        start = max(begin, end - _COUNT)
        part = [message async for message in _read_forwards(connection, place, queue, start, end)]
        for message in reversed(part):
            yield message
        end = start


# --- messages that arrive ---------------------------------------------------------------------------------------------


async def tail_messages(connection: Connection, place: Place, last: int) -> AsyncGenerator[Message, None]:
    """Yield the last messages of each queue, then those that arrive."""
    queues = await list_queues(connection, place)
    arrived: asyncio.Queue[Message | BaseException] = asyncio.Queue(_WAITING_MAX)
    tasks = [asyncio.create_task(_follow(connection, place, queue, last, arrived)) for queue in queues]
    try:
        while True:
            message = await arrived.get()
            if isinstance(message, BaseException):
                raise message
            yield message
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _follow(
    connection: Connection,
    place: Place,
    queue: MessageQueue,
    last: int,
    arrived: asyncio.Queue[Message | BaseException],
) -> None:
    try:
        await _follow_queue(connection, place, queue, last, arrived)
    except Exception as error:
        await arrived.put(error)


async def _follow_queue(
    connection: Connection,
    place: Place,
    queue: MessageQueue,
    last: int,
    arrived: asyncio.Queue[Message | BaseException],
) -> None:
    reader = connection.reader
    at = place.offset
    if at is None:
        at = max(await reader.find_begin(queue), await reader.find_end(queue) - last)
    at = max(0, at)
    failures = 0
    while True:
        try:
            pulled = await reader.pull(
                queue,
                at,
                wanted=place.tags,
                count=_COUNT,
                hold_ms=_HOLD_MS,
                timeout_ms=to_ms("call_timeout", connection.options.call_timeout),
            )
        except NetError:
            # A broker that restarts; its messages are still there.
            failures += 1
            await asyncio.sleep(_PAUSES.after(failures))
            continue
        failures = 0
        for message in pulled.messages:
            if place.fits(message):
                await arrived.put(message)
        at = pulled.next_offset

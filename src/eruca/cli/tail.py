"""`eruca tail`: show the messages of a topic on the command line."""

from __future__ import annotations

import asyncio
import base64
import heapq
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import click

from eruca.cli.output import add_output_option, format_time, parse_time, print_rows, show_safely
from eruca.cli.quickclient import READER_GROUP, NoTopic, Queue, QuickClient
from eruca.cli.running import run_loop
from eruca.cli.send import add_nameserver_option
from eruca.errors import NetError, WireError
from eruca.filter.tags import TagExpression, parse_tags
from eruca.wire.names import check_group, check_topic
from eruca.wire.properties import KEYS, TAGS, UNIQ_KEY
from eruca.wire.record import Message, user_body

_LAST = "last"
_LAST_COUNT = 10
_RETRY_S = 1.0
# Messages that wait to be shown while following; pulling stops when a slow terminal has so many before it.
_WAITING_MAX = 256


@dataclass(slots=True)
class Wish:
    """What to show."""

    topic: str
    start: str
    tags: TagExpression
    group: str | None
    count: int | None
    follow: bool
    output: str


@dataclass(slots=True)
class Reading:
    """One queue on its way."""

    queue: Queue
    offset: int
    # Where it ended when the command began; the end of the way without --follow.
    end: int
    ahead: list[Message] = field(default_factory=list)


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    metavar="last|earliest|latest|TIME",
    help="Where to begin: the last messages, the first one there is, only new ones, or a time (2026-11-15T07:21:06).",
)
@click.option("--count", type=click.IntRange(min=1), help=f"Show so many and stop [default: the last {_LAST_COUNT}].")
@click.option("-f", "--follow", is_flag=True, help="Wait for more; Ctrl-C ends.")
@click.option("-t", "--tags", default="*", help="Only messages with these tags: created || paid.")
@click.option("-g", "--group", help="Go on where this group stopped, and remember how far it came.")
@add_nameserver_option
@add_output_option
def tail(
    topic: str,
    start: str | None,
    count: int | None,
    follow: bool,
    tags: str,
    group: str | None,
    nameservers: list[str],
    output: str,
) -> None:
    """Show the messages of TOPIC, oldest first: the last ones, or from --from on, and with --follow those to come.

    It reads all queues by itself and leaves no trace; only with --group it commits offsets, as a consumer of that
    group would. It works with every broker that speaks the protocol of RocketMQ 4.x.

    \b
    Examples:
      eruca tail hello                              the last 10 messages
      eruca tail hello --follow                     and all that come
      eruca tail orders --from earliest --tags "created || paid"
      eruca tail orders --from 2026-11-15T07:00:00 --count 5
      eruca tail orders -f -o json | jq -r .body
    """
    check_topic(topic)
    if group is not None:
        check_group(group)
    if start not in (None, _LAST, "earliest", "latest"):
        parse_time(start or "")
    wish = Wish(topic, start or _LAST, parse_tags(tags), group, count, follow, output)
    if group is not None and start is None:
        wish.start = "group"
    if wish.start == _LAST and count is None and not follow:
        wish.count = _LAST_COUNT
    run_loop(_run(_Tail(wish, nameservers)))


async def _run(tail_: _Tail) -> None:
    """Show until the end or the first Ctrl-C, which is how one ends it."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(tail_.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return


class _Tail:
    """Reads the queues of a topic and shows what they hold."""

    def __init__(self, wish: Wish, nameservers: list[str]) -> None:
        self._wish = wish
        self._nameservers = nameservers
        self._shown = 0
        self._read_up_to: dict[Queue, int] = {}

    async def run(self) -> None:
        """Show what there is and, following, what comes."""
        wish = self._wish
        async with QuickClient(self._nameservers) as client:
            readings = await self._find_readings(client)
            try:
                if wish.start == _LAST:
                    await self._show_last(client, readings)
                else:
                    async for queue, message in self._merge(client, readings):
                        if self._show(queue, message):
                            return
                if wish.follow and not self._is_enough():
                    await self._follow(client, readings)
            finally:
                await self._commit(client)

    def _is_enough(self) -> bool:
        count = self._wish.count
        return count is not None and self._shown >= count

    def _show(self, queue: Queue, message: Message) -> bool:
        """Show one message; true when that was the last one wanted."""
        self._read_up_to[queue] = message.queue_offset + 1
        if self._wish.tags.matches_tag(message.get_property(TAGS)):
            show_message(queue, message, self._wish.output)
            self._shown += 1
        return self._is_enough()

    async def _commit(self, client: QuickClient) -> None:
        group = self._wish.group
        if group is None:
            return
        for queue, offset in self._read_up_to.items():
            await client.commit(queue, self._wish.topic, group, offset)
        self._read_up_to.clear()

    # -- where to begin ----------------------------------------------------------------------------------------------

    async def _find_readings(self, client: QuickClient) -> list[Reading]:
        wish = self._wish
        told = False
        while True:
            try:
                queues = await client.find_read_queues(wish.topic)
                break
            except NoTopic:
                if not wish.follow:
                    raise
                if not told:
                    click.echo(f"eruca: topic {wish.topic} does not exist yet; waiting for it", err=True)
                told = True
                await asyncio.sleep(_RETRY_S)
        if told:
            wish.start = "earliest"  # all of a topic that was waited for is new
        return list(await asyncio.gather(*[self._place(client, queue) for queue in queues]))

    async def _place(self, client: QuickClient, queue: Queue) -> Reading:
        wish = self._wish
        low, high = await client.find_ends(queue, wish.topic)
        if wish.start == "earliest":
            offset = low
        elif wish.start == "latest":
            offset = high
        elif wish.start == "group":
            committed = await client.find_committed(queue, wish.topic, wish.group or "")
            offset = low if committed is None else committed
        elif wish.start == _LAST:
            offset = max(low, high - (wish.count or _LAST_COUNT))
        else:
            offset = await client.find_offset_at(queue, wish.topic, parse_time(wish.start))
        return Reading(queue, max(low, min(offset, high)), high)

    # -- what there is -----------------------------------------------------------------------------------------------

    async def _show_last(self, client: QuickClient, readings: list[Reading]) -> None:
        """The last messages over all queues; with tags, the wanted ones among the last of each queue."""
        count = self._wish.count or _LAST_COUNT
        found = [(queue, message) async for queue, message in self._merge(client, readings)]
        wanted = [pair for pair in found if self._wish.tags.matches_tag(pair[1].get_property(TAGS))]
        for queue, message in wanted[-count:]:
            self._show(queue, message)

    async def _merge(self, client: QuickClient, readings: list[Reading]) -> AsyncIterator[tuple[Queue, Message]]:
        """The messages of all queues up to their ends, by the time they were stored; one pull of each is in memory."""
        await asyncio.gather(*[self._pull_ahead(client, reading) for reading in readings])
        heap = [(_when(reading), number) for number, reading in enumerate(readings) if reading.ahead]
        heapq.heapify(heap)
        while heap:
            number = heap[0][1]
            reading = readings[number]
            yield reading.queue, reading.ahead.pop(0)
            if not reading.ahead:
                await self._pull_ahead(client, reading)
            if reading.ahead:
                heapq.heapreplace(heap, (_when(reading), number))
            else:
                heapq.heappop(heap)

    async def _pull_ahead(self, client: QuickClient, reading: Reading) -> None:
        wish = self._wish
        while not reading.ahead and reading.offset < reading.end:
            pulled = await client.pull(
                reading.queue, wish.topic, reading.offset, group=wish.group or READER_GROUP, tags=wish.tags.text
            )
            reading.ahead = [message for message in pulled.messages if message.queue_offset < reading.end]
            # An answer that does not move on would be asked for ever.
            reading.offset = max(pulled.next_offset, reading.offset + 1)

    # -- what comes --------------------------------------------------------------------------------------------------

    async def _follow(self, client: QuickClient, readings: list[Reading]) -> None:
        arrived: asyncio.Queue[tuple[Queue, Message]] = asyncio.Queue(_WAITING_MAX)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._wait_for_more(client, reading, arrived)) for reading in readings]
                await self._show_arrivals(client, arrived)
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as errors:
            # One is enough to say, and callers know what to do with it, not with a group.
            raise errors.exceptions[0] from None

    async def _show_arrivals(self, client: QuickClient, arrived: asyncio.Queue[tuple[Queue, Message]]) -> None:
        while True:
            queue, message = await arrived.get()
            if self._show(queue, message):
                return
            if arrived.empty():
                await self._commit(client)

    async def _wait_for_more(
        self, client: QuickClient, reading: Reading, arrived: asyncio.Queue[tuple[Queue, Message]]
    ) -> None:
        """Hold a pull at one queue again and again; a broker that is away is asked until it is back."""
        wish = self._wish
        reading.offset = max(reading.offset, reading.end) if wish.start == _LAST else reading.offset
        group = wish.group or READER_GROUP
        away = False
        while True:
            try:
                pulled = await client.pull(
                    reading.queue, wish.topic, reading.offset, group=group, tags=wish.tags.text, hold=True
                )
            except NetError as error:
                if not away:
                    click.echo(f"eruca: {error.args[0]}; trying again", err=True)
                away = True
                await asyncio.sleep(_RETRY_S)
                continue
            away = False
            reading.offset = pulled.next_offset
            for message in pulled.messages:
                await arrived.put((reading.queue, message))


def _when(reading: Reading) -> tuple[int, int]:
    message = reading.ahead[0]
    return message.store_timestamp, message.position


# --- showing --------------------------------------------------------------------------------------------------------


def show_message(queue: Queue, message: Message, output: str) -> None:
    """One message: a line for people, an object for programs."""
    row = describe_message(queue, message)
    if output != "table":
        print_rows([row], output, [], lambda _: [])
        return
    _show_line(row)


def _show_line(row: dict[str, Any]) -> None:
    head = f"{format_time(row['store_time'])}  {row['broker']}/{row['queue']}@{row['offset']}"
    notes = [f"{name}={row[name]}" for name in ("tags", "keys") if row[name]]
    body = row["body"] if row["body"] is not None else f"<{len(base64.b64decode(row['body_base64']))} bytes, not text>"
    text = "  ".join([head, *notes, body])
    click.echo(show_safely(text))


def describe_message(queue: Queue, message: Message) -> dict[str, Any]:
    """A message as plain values; a body that is no text is given in base64."""
    properties = message.read_properties()
    try:
        body = user_body(message)
    except WireError:
        body = message.body
    try:
        text: str | None = body.decode()
    except UnicodeDecodeError:
        text = None
    row: dict[str, Any] = {
        "topic": message.topic,
        "broker": queue.broker,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": properties.get(UNIQ_KEY),
        "born_time": message.born_timestamp,
        "store_time": message.store_timestamp,
        "reconsume_times": message.reconsume_times,
        "tags": properties.get(TAGS),
        "keys": properties.get(KEYS),
        "properties": properties,
        "body": text,
    }
    if text is None:
        row["body_base64"] = base64.b64encode(body).decode()
    return row

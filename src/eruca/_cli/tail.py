"""`eruca tail`: show the messages of a topic on the command line."""

from __future__ import annotations

import asyncio
import heapq
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

import click

from eruca._admin.storedmessages import describe_message as describe_stored
from eruca._cli.choosing import parse_place
from eruca._cli.completing import suggest_groups, suggest_topics
from eruca._cli.connecting import TIMEOUT_S, add_nameserver_option, make_options
from eruca._cli.grouping import SectionedCommand
from eruca._cli.messagerows import describe_message, write_line
from eruca._cli.output import add_output_option, parse_time, print_rows
from eruca._cli.running import handle_signals, run_loop
from eruca._cli.saying import say
from eruca._client.message import Message
from eruca._client.pull.consumer import PullConsumer
from eruca._filter.tags import parse_tags
from eruca._ground.commandlines import write_command
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import TOOLS_CONSUMER_GROUP, check_group, check_topic
from eruca.errors import ConfigError, NetError, NoRoute

# A group that every broker has, to read without leaving a trace.
_LAST = "last"
_LAST_COUNT = 10
_RETRY_S = 1.0
_HOLD_S = 15.0
# At most this many messages wait to be shown while following; then pulling stops for a slow terminal.
_WAITING_MAX = 256


@dataclass(slots=True)
class Wish:
    """What to show."""

    topic: str
    # A word of --from, "group" for the offsets of the group, a time, or an offset.
    start: str | datetime | int
    tags: str
    group: str | None
    count: int | None
    follow: bool
    output: str
    # Only these queues, by the name of the broker (None: any) and number; empty: all.
    places: tuple[tuple[str | None, int], ...] = ()
    key: str | None = None

    @property
    def searched(self) -> int:
        """How many of the last messages of each queue are looked at; with tags or a key most may not match."""
        count = self.count or _LAST_COUNT
        return count if self.key is None and self.tags == "*" else max(count, _LAST_COUNT)

    def has_queue(self, queue: MessageQueue) -> bool:
        """Return whether to show a queue."""
        return not self.places or any(
            broker in (None, queue.broker_name) and number == queue.queue_id for broker, number in self.places
        )


@dataclass(slots=True)
class Reading:
    """The progress in one queue."""

    queue: MessageQueue
    offset: int
    # The end of the queue when the command started; reading stops there without --follow.
    end: int
    ahead: list[Message] = field(default_factory=list)


@click.command(cls=SectionedCommand)
@click.argument("topic", shell_complete=suggest_topics)
@click.option(
    "--from",
    "start",
    metavar="last|earliest|latest|TIME",
    help="Where to start: the last messages, the first one, only new ones, or a time (2026-11-15T07:21:06).",
)
@click.option("--count", type=click.IntRange(min=1), help=f"Show this many and stop [default: the last {_LAST_COUNT}].")
@click.option("-f", "--follow", is_flag=True, help="Wait for more messages; Ctrl-C stops.")
@click.option("-t", "--tags", default="*", help="Only messages with one of these tags: created || paid.")
@click.option("-k", "--key", help="Only messages with this key; `eruca message find` finds old ones faster.")
@click.option(
    "-q", "--queue", "places", metavar="[BROKER:]N", multiple=True, help="Only this queue, for example broker-a:0."
)
@click.option("--offset", type=click.IntRange(min=0), help="Start at this offset of each queue shown.")
@click.option(
    "-g", "--group", shell_complete=suggest_groups, help="Start at the offsets of this group, and commit them."
)
@add_nameserver_option
@add_output_option
def tail(
    topic: str,
    start: str | None,
    count: int | None,
    follow: bool,
    tags: str,
    key: str | None,
    places: tuple[str, ...],
    offset: int | None,
    group: str | None,
    nameservers: str,
    output: str,
) -> None:
    """Show the messages of TOPIC, oldest first.

    Shows the last messages, or those from --from on, and with --follow also those that arrive. It reads all queues and
    leaves no trace on the broker; only with --group does it commit offsets, as a consumer of that group would. It works
    with every broker that speaks the protocol of RocketMQ 4.x; ERUCA_ACCESS_KEY and ERUCA_SECRET_KEY set the account if
    one is needed.

    \b
    Examples:
      eruca tail hello                              the last 10 messages
      eruca tail hello --follow                     and all that arrive
      eruca tail orders --from earliest --tags "created || paid"
      eruca tail orders --from 2026-11-15T07:00:00 --count 5
      eruca tail orders --queue broker-a:0 --offset 4711 --count 1
      eruca tail orders --follow --key order-7      only what has this key
      eruca tail orders -f -o json | jq -r .body
    """
    check_topic(topic)
    if group is not None:
        check_group(group)
    parse_tags(tags)
    if start is not None and offset is not None:
        raise click.UsageError("--from and --offset are mutually exclusive")
    begin = _parse_start(start) if start is not None else _LAST if offset is None else offset
    wish = Wish(topic, begin, tags, group, count, follow, output, tuple(map(parse_place, places)), key)
    if group is not None and start is None and offset is None:
        wish.start = "group"
    if wish.start == _LAST and count is None and not follow:
        wish.count = _LAST_COUNT
    run_loop(_run(_Tail(wish, nameservers)))


def _parse_start(text: str) -> str | datetime:
    if text in (_LAST, "earliest", "latest"):
        return text
    return parse_time(text)


async def _run(tail_: _Tail) -> None:
    """Show messages until the end, Ctrl-C or SIGTERM."""
    task = asyncio.get_running_loop().create_task(tail_.run())
    with handle_signals({signal.SIGINT: task.cancel, signal.SIGTERM: task.cancel}), suppress(asyncio.CancelledError):
        await task


class _Tail:
    """Reads the queues of a topic and shows their messages."""

    def __init__(self, wish: Wish, nameservers: str) -> None:
        self._wish = wish
        self._consumer = PullConsumer(
            group=wish.group or TOOLS_CONSUMER_GROUP, auto_commit=False, options=make_options(nameservers)
        )
        self._shown = 0
        self._read_up_to: dict[MessageQueue, int] = {}

    async def run(self) -> None:
        """Show the messages in the queues and, when following, those that arrive."""
        wish = self._wish
        async with self._consumer:
            readings = await self._find_readings()
            try:
                if wish.start == _LAST:
                    await self._show_last(readings)
                else:
                    async for message in self._merge(readings):
                        if self._show(message):
                            return
                if not self._shown and not wish.follow:
                    say(explain_nothing(wish, len(readings)))
                if wish.follow and not self._is_enough():
                    await self._follow(readings)
            finally:
                await self._commit()

    def _is_enough(self) -> bool:
        count = self._wish.count
        return count is not None and self._shown >= count

    def _show(self, message: Message) -> bool:
        """Show one message if it has the key. Returns True if it was the last one wanted."""
        self._read_up_to[message.queue] = message.offset + 1
        if not self._has_key(message):
            return False
        show_message(message, self._wish.output)
        self._shown += 1
        return self._is_enough()

    def _has_key(self, message: Message) -> bool:
        return self._wish.key is None or self._wish.key in message.keys

    async def _commit(self) -> None:
        offsets, self._read_up_to = self._read_up_to, {}
        if self._wish.group is not None and offsets:
            await self._consumer.commit(offsets)

    # -- where to start ----------------------------------------------------------------------------------------------

    async def _find_readings(self) -> list[Reading]:
        wish = self._wish
        told = False
        while True:
            try:
                queues = await self._consumer.list_queues(wish.topic)
                break
            except NoRoute:
                if not wish.follow:
                    raise
                if not told:
                    say(f"topic {wish.topic} does not exist yet; waiting for it")
                told = True
                await asyncio.sleep(_RETRY_S)
        if not queues:
            raise NoRoute(
                f"topic {wish.topic} has no queue that can be read",
                hint="its brokers are down (eruca cluster list), or its permission forbids reading (eruca topic show)",
            )
        chosen = [queue for queue in queues if wish.has_queue(queue)]
        if not chosen:
            known = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in sorted(queues))
            raise ConfigError(f"topic {wish.topic} has no such queue", hint=f"it has {known}")
        if told:
            wish.start = "earliest"  # every message of a topic that did not exist is new
        return list(await asyncio.gather(*[self._place(queue) for queue in chosen]))

    async def _place(self, queue: MessageQueue) -> Reading:
        wish, consumer = self._wish, self._consumer
        low, high = await asyncio.gather(consumer.begin_offset(queue), consumer.end_offset(queue))
        if isinstance(wish.start, datetime):
            offset = await consumer.offset_at(queue, wish.start)
        elif isinstance(wish.start, int):
            offset = wish.start
        elif wish.start == "earliest":
            offset = low
        elif wish.start == "latest":
            offset = high
        elif wish.start == "group":
            committed = await consumer.committed(queue)
            offset = low if committed is None else committed
        else:
            offset = max(low, high - wish.searched)
        return Reading(queue, max(low, min(offset, high)), high)

    # -- stored messages ---------------------------------------------------------------------------------------------

    async def _show_last(self, readings: list[Reading]) -> None:
        """Show the last messages of all queues; with tags or a key, those that match among the last of each queue."""
        count = self._wish.count or _LAST_COUNT
        found = [message async for message in self._merge(readings) if self._has_key(message)]
        for message in found[-count:]:
            self._show(message)

    async def _merge(self, readings: list[Reading]) -> AsyncIterator[Message]:
        """Yield the messages of all queues up to their ends, by store time; at most one pull per queue is in memory."""
        await asyncio.gather(*[self._pull_ahead(reading) for reading in readings])
        heap = [(_when(reading), number) for number, reading in enumerate(readings) if reading.ahead]
        heapq.heapify(heap)
        while heap:
            number = heap[0][1]
            reading = readings[number]
            yield reading.ahead.pop(0)
            if not reading.ahead:
                await self._pull_ahead(reading)
            if reading.ahead:
                heapq.heapreplace(heap, (_when(reading), number))
            else:
                heapq.heappop(heap)

    async def _pull_ahead(self, reading: Reading) -> None:
        while not reading.ahead and reading.offset < reading.end:
            pulled = await self._consumer.pull(reading.queue, reading.offset, tags=self._wish.tags, timeout=TIMEOUT_S)
            reading.ahead = [message for message in pulled.messages if message.offset < reading.end]
            # Without this, an answer that does not advance would repeat forever.
            reading.offset = max(pulled.next_offset, reading.offset + 1)

    # -- new messages ------------------------------------------------------------------------------------------------

    async def _follow(self, readings: list[Reading]) -> None:
        arrived: asyncio.Queue[Message] = asyncio.Queue(_WAITING_MAX)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._wait_for_more(reading, arrived)) for reading in readings]
                await self._show_arrivals(arrived)
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as errors:
            # One error is enough; callers do not handle exception groups.
            raise errors.exceptions[0] from None

    async def _show_arrivals(self, arrived: asyncio.Queue[Message]) -> None:
        while True:
            if self._show(await arrived.get()):
                return
            if arrived.empty():
                await self._commit()

    async def _wait_for_more(self, reading: Reading, arrived: asyncio.Queue[Message]) -> None:
        """Pull from one queue repeatedly; while its broker is unreachable, try again."""
        if self._wish.start == _LAST:
            reading.offset = max(reading.offset, reading.end)
        away = False
        while True:
            try:
                pulled = await self._consumer.pull(
                    reading.queue, reading.offset, tags=self._wish.tags, hold=_HOLD_S, timeout=TIMEOUT_S
                )
            except NetError as error:
                if not away:
                    say(f"{error.args[0]}; trying again")
                away = True
                await asyncio.sleep(_RETRY_S)
                continue
            away = False
            reading.offset = pulled.next_offset
            for message in pulled.messages:
                await arrived.put(message)


def _when(reading: Reading) -> tuple[int, int]:
    record = reading.ahead[0].record
    return record.store_timestamp, record.position


def explain_nothing(wish: Wish, queues: int) -> str:
    """Return what was searched when no message is shown, and the next step."""
    conditions = [] if wish.key is None else [f"with key {wish.key}"]
    conditions += [] if wish.tags == "*" else [f"with tags {wish.tags}"]
    what = " ".join(["no message", *conditions])
    if wish.start == _LAST:
        last = "the last message" if wish.searched == 1 else f"the last {wish.searched} messages"
        where = f"among {last} of {'its queue' if queues == 1 else f'each of {queues} queues'}"
    else:
        where = "from there to the end of its queues"
    if not conditions:
        return f"topic {wish.topic} has no message {'to show' if wish.start == _LAST else where}"
    words = ["message", "find", wish.topic]
    words += ["--tags", wish.tags] if wish.key is None else ["--key", wish.key]
    return f"topic {wish.topic} has {what} {where}; `{write_command(*words)}` searches all of it"


# --- showing --------------------------------------------------------------------------------------------------------


def show_message(message: Message, output: str) -> None:
    """Print one message: a line for people, an object for programs."""
    stored = describe_stored(message)
    if output == "table":
        click.echo(write_line(stored))
    else:
        print_rows([describe_message(stored)], output, [], lambda _: [])

"""`eruca send`: send messages from the command line."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from eruca._cli.choosing import add_topic_argument, parse_full_place
from eruca._cli.connecting import TIMEOUT_S, add_nameserver_option, make_options
from eruca._cli.grouping import SectionedCommand
from eruca._cli.messagerows import describe_sent
from eruca._cli.output import add_output_option, make_console, print_rows
from eruca._cli.running import run_loop
from eruca._cli.saying import say
from eruca._cli.tables import make_table
from eruca._client.produce.outgoing import Receipt, find_delay_level
from eruca._client.produce.producer import Producer
from eruca._client.session.routes import Routes
from eruca._ground.durations import read_span
from eruca._ground.limits import FRAME_BYTES_MAX
from eruca._ground.printable import say_count
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import TOOLS_PRODUCER_GROUP
from eruca._wire.properties import DELAY, KEYS, RESERVED, TAGS
from eruca.errors import ConfigError, ErucaError, NoRoute

if TYPE_CHECKING:
    from rich.progress import Progress


# The number of sends in progress at the same time.
_WINDOW = 64
# With more messages than this, a summary is printed instead of a line for each.
_ROWS_MAX = 20
_EXIT_INTERRUPTED = 130
_BAR_FROM = 1000
_READ_BYTES = 65536
_TOPIC_TRIES = 50
_TOPIC_TRY_S = 0.02


@dataclass(slots=True)
class Plan:
    """What to send, and how."""

    topic: str
    # Empty: the lines of standard input.
    bodies: tuple[str, ...]
    count: int | None
    tags: str | None
    keys: str
    properties: dict[str, str]
    shard: str | None
    queue: MessageQueue | None
    delay_level: int | None
    timer: timedelta | None

    @property
    def total(self) -> int:
        """The number of messages; 0 if they come from standard input."""
        return len(self.bodies) * (self.count or 1)


@click.command(cls=SectionedCommand)
@add_topic_argument
@click.argument("bodies", metavar="[BODY]...", nargs=-1)
@click.option("-t", "--tags", help="The tag, by which consumers can filter.")
@click.option("-k", "--keys", help="Keys by which the message can be found, separated by spaces.")
@click.option(
    "--property",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    callback=lambda _context, _parameter, texts: _gather_properties(texts),
    help="A property; may be repeated.",
)
@click.option(
    "--delay",
    metavar="TIME",
    callback=lambda _context, _parameter, text: None if text is None else _parse_delay(text),
    help="Deliver later: 1s 5s 10s 30s, 1m to 10m, 20m, 30m, 1h or 2h.",
)
@click.option(
    "--delay-level", type=click.IntRange(1, 18), help="A delay level by number, for brokers with other delays."
)
@click.option(
    "--timer",
    metavar="TIME",
    callback=lambda _context, _parameter, text: None if text is None else _parse_span(text),
    help="Deliver after any time, such as 45m (Eruca, RocketMQ 5); can be cancelled.",
)
@click.option("-q", "--queue", "place", metavar="BROKER:N", help="Send to this queue, for example broker-a:0.")
@click.option("--shard", metavar="KEY", help="Send messages with the same KEY to the same queue, in order.")
@click.option("--count", type=click.IntRange(min=1), help="Send each BODY N times; {n} is replaced by the number.")
@add_nameserver_option
@add_output_option
def send(
    topic: str,
    bodies: tuple[str, ...],
    tags: str | None,
    keys: str | None,
    properties: dict[str, str],
    delay: int | None,
    delay_level: int | None,
    timer: timedelta | None,
    place: str | None,
    shard: str | None,
    count: int | None,
    nameservers: str,
    output: str,
) -> None:
    """Send messages to TOPIC: each BODY, or each line of standard input.

    A topic that does not exist is created if the brokers allow it. This works with every broker that speaks the
    protocol of RocketMQ 4.x; ERUCA_ACCESS_KEY and ERUCA_SECRET_KEY set the account if one is needed. The exit status is
    0 when all messages are stored. Empty lines are skipped, because messages may not be empty.

    \b
    Examples:
      eruca send hello "my first message"
      eruca send orders '{"id": 7}' --tags created --keys "order-7 customer-3"
      eruca send orders paid shipped --shard order-7      one queue, in this order
      eruca send reminders "call back" --delay 30m
      eruca send reminders "call back" --timer 45m
      eruca send load "message {n}" --count 10000
      journalctl -n 100 | eruca send logs
      eruca send -n 10.0.0.1:9876 hello "to another cluster" -o json
    """
    if delay is not None:
        if delay_level is not None:
            raise click.UsageError("--delay and --delay-level are mutually exclusive")
        delay_level = delay
    if timer is not None and delay_level is not None:
        raise click.UsageError("--timer and --delay are mutually exclusive")
    if place is not None and shard is not None:
        raise click.UsageError("--queue and --shard are mutually exclusive")
    queue = None if place is None else MessageQueue(*parse_full_place(place), topic)
    sender = _Sender(Plan(topic, bodies, count, tags, keys or "", properties, shard, queue, delay_level, timer), output)
    try:
        run_loop(sender.run(nameservers))
    except KeyboardInterrupt:
        say(f"interrupted; stored {say_count(sender.count, 'message')}")
        sys.exit(_EXIT_INTERRUPTED)
    finally:
        sender.finish()


def _parse_span(text: str) -> timedelta:
    try:
        return read_span(text)
    except ConfigError as error:
        raise click.BadParameter(str(error.args[0])) from None


def _parse_delay(text: str) -> int:
    return find_delay_level(_parse_span(text), instead="--timer takes any time")


def _gather_properties(properties: tuple[str, ...]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in properties:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise ConfigError(f"--property {text}: expected NAME=VALUE")
        if name in RESERVED:
            own = {TAGS: "--tags", KEYS: "--keys", DELAY: "--delay"}.get(name)
            raise ConfigError(
                f"--property {name}: the name is reserved", hint=f"use {own}" if own else "choose another one"
            )
        named[name] = value
    return named


def _repeat(plan: Plan) -> Iterator[bytes]:
    for body in plan.bodies:
        if plan.count is None:
            yield body.encode()
            continue
        for number in range(1, plan.count + 1):
            yield body.replace("{n}", str(number)).encode()


class _Lines:
    """Lines of standard input for an event loop. A thread reads them, because a terminal or a pipe may never end."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | ErucaError | None] = asyncio.Queue(_WINDOW)
        self._loop = asyncio.get_running_loop()
        if sys.stdin.isatty():
            say("one message per line; Ctrl-D ends")
        # A daemon thread, so that Ctrl-C does not wait for another line.
        threading.Thread(target=self._read, daemon=True).start()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        line = await self._queue.get()
        if line is None:
            raise StopAsyncIteration
        if isinstance(line, ErucaError):
            raise line
        return line

    def _read(self) -> None:
        # Below Python's buffer, whose lock a daemon thread would hold when the process ends.
        descriptor = sys.stdin.fileno()
        rest = b""
        while data := os.read(descriptor, _READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._put(line.removesuffix(b"\r"))
            if len(rest) > FRAME_BYTES_MAX:
                self._put(ConfigError(f"a line of standard input has more than {FRAME_BYTES_MAX} bytes"))
                return
        if rest:
            self._put(rest)
        self._put(None)

    def _put(self, line: bytes | ErucaError | None) -> None:
        with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):  # the loop is closed
            asyncio.run_coroutine_threadsafe(self._queue.put(line), self._loop).result()


async def _iterate(bodies: Iterator[bytes]) -> AsyncIterator[bytes]:
    for body in bodies:
        yield body


class _Sender:
    """Sends a plan, a window at a time, and prints the result."""

    def __init__(self, plan: Plan, output: str) -> None:
        self._plan = plan
        self._output = output
        self._rows: list[Receipt] = []
        self._bar = _Bar(plan.total)
        # The wanted queue, or that of the shard. It is chosen once, so that messages stay in order if routes change.
        self._queue = plan.queue
        self._blank_lines = 0
        self.count = 0
        # Whether the end of standard input was reached without a message.
        self.is_empty = False

    async def run(self, nameservers: str) -> None:
        """Send everything."""
        plan = self._plan
        window = 1 if plan.shard is not None else _WINDOW
        waiting: set[asyncio.Task[None]] = set()
        async with Producer(
            group=TOOLS_PRODUCER_GROUP, options=make_options(nameservers), timeout=TIMEOUT_S
        ) as producer:
            try:
                async for body in _iterate(_repeat(plan)) if plan.bodies else _Lines():
                    if not body and not plan.bodies:
                        self._blank_lines += 1
                        continue
                    waiting.add(asyncio.create_task(self._send(producer, body)))
                    if not self.count:
                        # Sends that wait for the same route and connection may continue in any order.
                        waiting = await _take_done(waiting, asyncio.ALL_COMPLETED)
                    elif len(waiting) >= window:
                        waiting = await _take_done(waiting, asyncio.FIRST_COMPLETED)
                await _take_done(waiting, asyncio.ALL_COMPLETED)
                self.is_empty = not self.count
                if self.count:
                    await _wait_for_topic(producer._session.routes, plan.topic)
            finally:
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)

    async def _send(self, producer: Producer, body: bytes) -> None:
        plan = self._plan
        receipt = await producer.send(
            plan.topic,
            body,
            tags=plan.tags,
            keys=plan.keys,
            properties=plan.properties,
            delay_level=plan.delay_level,
            timer=plan.timer,
            shard=plan.shard if self._queue is None else None,
            queue=self._queue,
        )
        if plan.shard is not None:
            self._queue = receipt.queue
        self.count += 1
        self._bar.advance()
        if self._output == "table":
            if len(self._rows) <= _ROWS_MAX:
                self._rows.append(receipt)
        else:
            row = describe_sent(plan.topic, body, plan.tags or "", plan.keys, plan.properties, receipt)
            print_rows([row], self._output, [], lambda _: [])

    def finish(self) -> None:
        """Print a table, or a summary of many messages."""
        self._bar.close()
        if self._blank_lines:
            say(f"blank lines skipped: {self._blank_lines}")
        if self.is_empty:
            say("standard input has no message: nothing was sent")
        if self._output != "table" or not self.count:
            return
        if self.count > _ROWS_MAX:
            click.echo(f"{self.count} messages are stored in topic {self._plan.topic}")
            return
        rows = [
            (row.queue.broker_name, str(row.queue.queue_id), str(row.offset), row.status.name, row.message_id)
            for row in self._rows
        ]
        make_console().print(make_table(["broker", ">queue", ">offset", "status", "message id"], rows))


class _Bar:
    """A progress bar on a terminal, if there are many messages."""

    def __init__(self, total: int) -> None:
        self._bar: Progress | None = None
        if total > _BAR_FROM and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("sending", total=total)
            self._bar.start()

    def advance(self) -> None:
        """Count one stored message."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


async def _take_done(waiting: set[asyncio.Task[None]], until: str) -> set[asyncio.Task[None]]:
    """Wait for sends. Raises the error of the first that failed."""
    if not waiting:
        return waiting
    done, left = await asyncio.wait(waiting, return_when=until)
    for task in done:
        task.result()
    return left


async def _wait_for_topic(routes: Routes, topic: str) -> None:
    """Wait a moment until the name server knows a topic that was just created: the next command may need it."""
    for _ in range(_TOPIC_TRIES):
        try:
            await routes.get(topic)
        except NoRoute:
            await asyncio.sleep(_TOPIC_TRY_S)
        except ErucaError:
            return  # all messages are stored, so the command succeeded
        else:
            return

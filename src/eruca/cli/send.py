"""`eruca send`: send messages from the command line."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import click
from rich.console import Console
from rich.progress import Progress

from eruca.cli.output import add_output_option, make_console, make_table, print_rows
from eruca.cli.quickclient import Queue, QuickClient, Sent, choose_queue
from eruca.cli.running import run_loop
from eruca.cli.settings import check_addresses
from eruca.errors import ConfigError, ErucaError
from eruca.limits import FRAME_BYTES_MAX
from eruca.net.addresses import split_addresses
from eruca.wire.names import check_topic
from eruca.wire.properties import DELAY, KEYS, RESERVED, TAGS

DEFAULT_NAMESERVER = "127.0.0.1:9876"
# Sends on their way at the same time, when there are many.
_WINDOW = 64
# With more messages than this, people get a sum instead of a line for each.
_ROWS_MAX = 20
_EXIT_INTERRUPTED = 130
_BAR_FROM = 1000
_READ_BYTES = 65536


def add_nameserver_option(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command `-n`, with the variables that set it."""
    return click.option(
        "-n",
        "--namesrv-addr",
        "nameservers",
        metavar="HOST:PORT",
        envvar=["ERUCA_NAMESRV_ADDR", "NAMESRV_ADDR"],
        default=DEFAULT_NAMESERVER,
        callback=lambda _context, _parameter, text: parse_nameservers(text),
        help=f"Name servers, separated by `;` [default: NAMESRV_ADDR or {DEFAULT_NAMESERVER}].",
    )(function)


def parse_nameservers(text: str) -> list[str]:
    """The addresses of a list, or an error that says what an address looks like."""
    check_addresses("namesrvAddr", text)
    return split_addresses(text)


@dataclass(slots=True)
class Plan:
    """What to send, and how."""

    topic: str
    # None of them: the lines of standard input.
    bodies: tuple[str, ...]
    count: int | None
    properties: dict[str, str]
    shard: str | None

    @property
    def total(self) -> int:
        """How many messages there are; 0 when only standard input knows."""
        return len(self.bodies) * (self.count or 1)


@click.command()
@click.argument("topic")
@click.argument("bodies", metavar="[BODY]...", nargs=-1)
@click.option("-t", "--tags", help="The tag consumers may filter by.")
@click.option("-k", "--keys", help="Keys to find the message by, separated by blanks.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, help="A property of your own.")
@click.option("--delay-level", type=click.IntRange(1, 18), help="Deliver later: 1 is 1 s, 3 is 10 s, 5 is 1 min, ...")
@click.option("--shard", metavar="KEY", help="Messages of one KEY go to one queue, in order.")
@click.option("--count", type=click.IntRange(min=1), help="Send each BODY so often; {n} in it becomes the number.")
@add_nameserver_option
@add_output_option
def send(
    topic: str,
    bodies: tuple[str, ...],
    tags: str | None,
    keys: str | None,
    properties: tuple[str, ...],
    delay_level: int | None,
    shard: str | None,
    count: int | None,
    nameservers: list[str],
    output: str,
) -> None:
    """Send messages to TOPIC: each BODY is one, or each line of standard input when there is no BODY.

    A topic that does not exist is made, where brokers allow it. It works with every broker that speaks the protocol
    of RocketMQ 4.x. The exit status is 0 when all messages are stored.

    \b
    Examples:
      eruca send hello "my first message"
      eruca send orders '{"id": 7}' --tags created --keys "order-7 customer-3"
      eruca send orders paid shipped --shard order-7          one queue, so in this order
      eruca send load "message {n}" --count 10000
      journalctl -n 100 | eruca send logs
      eruca send -n 10.0.0.1:9876 hello "to another cluster" -o json
    """
    check_topic(topic)
    named = _gather_properties(tags, keys, properties, delay_level)
    sender = _Sender(Plan(topic, bodies, count, named, shard), output)
    try:
        run_loop(sender.run(nameservers))
    except KeyboardInterrupt:
        click.echo(f"eruca: interrupted; {sender.count} messages are stored", err=True)
        sys.exit(_EXIT_INTERRUPTED)
    finally:
        sender.finish()


def _gather_properties(
    tags: str | None, keys: str | None, properties: tuple[str, ...], delay_level: int | None
) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in properties:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise ConfigError(f"--property {text}: expected NAME=VALUE")
        if name in RESERVED:
            own = {TAGS: "--tags", KEYS: "--keys", DELAY: "--delay-level"}.get(name)
            raise ConfigError(
                f"--property {name}: the name belongs to the system", hint=f"use {own}" if own else "choose another one"
            )
        named[name] = value
    for name, given in ((TAGS, tags), (KEYS, keys), (DELAY, delay_level)):
        if given:
            named[name] = str(given)
    return named


def _repeat(plan: Plan) -> Iterator[bytes]:
    for body in plan.bodies:
        if plan.count is None:
            yield body.encode()
            continue
        for number in range(1, plan.count + 1):
            yield body.replace("{n}", str(number)).encode()


class _Lines:
    """Lines of standard input for an event loop: a thread reads them, because a terminal or a pipe may never end."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | ErucaError | None] = asyncio.Queue(_WINDOW)
        self._loop = asyncio.get_running_loop()
        if sys.stdin.isatty():
            click.echo("eruca: one message a line; Ctrl-D ends", err=True)
        # A daemon, so that Ctrl-C does not have to wait for another line.
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
        with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):  # the loop has gone
            asyncio.run_coroutine_threadsafe(self._queue.put(line), self._loop).result()


async def _iterate(bodies: Iterator[bytes]) -> AsyncIterator[bytes]:
    for body in bodies:
        yield body


class _Sender:
    """Sends a plan, a window at a time, and says what became of it."""

    def __init__(self, plan: Plan, output: str) -> None:
        self._plan = plan
        self._output = output
        self._rows: list[Sent] = []
        self._bar = _Bar(plan.total)
        self.count = 0

    async def run(self, nameservers: list[str]) -> None:
        """Send everything."""
        plan = self._plan
        window = 1 if plan.shard is not None else _WINDOW
        waiting: set[asyncio.Task[Sent]] = set()
        connected: set[str] = set()
        async with QuickClient(nameservers) as client:
            queues = await client.find_write_queues(plan.topic)
            try:
                async for body in _iterate(_repeat(plan)) if plan.bodies else _Lines():
                    queue = choose_queue(queues, plan.shard)
                    waiting.add(asyncio.create_task(self._send(client, queue, body)))
                    if queue.address not in connected:
                        # Those that wait for a connection together come out in any order.
                        waiting = await _take_done(waiting, asyncio.ALL_COMPLETED)
                        connected.add(queue.address)
                    elif len(waiting) >= window:
                        waiting = await _take_done(waiting, asyncio.FIRST_COMPLETED)
                await _take_done(waiting, asyncio.ALL_COMPLETED)
                if self.count:
                    await client.wait_for_topic(plan.topic)
            finally:
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)

    async def _send(self, client: QuickClient, queue: Queue, body: bytes) -> Sent:
        sent = await client.send(queue, self._plan.topic, body, self._plan.properties)
        self.count += 1
        self._bar.advance()
        if self._output == "table":
            if len(self._rows) <= _ROWS_MAX:
                self._rows.append(sent)
        else:
            print_rows([_describe(sent)], self._output, [], lambda _: [])
        return sent

    def finish(self) -> None:
        """The table or the sum, for people."""
        self._bar.close()
        if self._output != "table" or not self.count:
            return
        if self.count > _ROWS_MAX:
            click.echo(f"{self.count} messages are stored in topic {self._plan.topic}")
            return
        rows = [
            (row.queue.broker, str(row.queue.number), str(row.offset), row.status, row.unique_id) for row in self._rows
        ]
        make_console().print(make_table(["broker", ">queue", ">offset", "status", "message id"], rows))


class _Bar:
    """A bar on a terminal, when there are so many messages that one would wait."""

    def __init__(self, total: int) -> None:
        self._bar = Progress(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("sending", total=total)
        self._shown = total > _BAR_FROM and sys.stderr.isatty()
        if self._shown:
            self._bar.start()

    def advance(self) -> None:
        """One more is stored."""
        if self._shown:
            self._bar.advance(self._task)

    def close(self) -> None:
        """Take the bar away."""
        if self._shown:
            self._bar.stop()


async def _take_done(waiting: set[asyncio.Task[Sent]], until: str) -> set[asyncio.Task[Sent]]:
    """Wait for sends; the first that failed is raised."""
    if not waiting:
        return waiting
    done, left = await asyncio.wait(waiting, return_when=until)
    for task in done:
        task.result()
    return left


def _describe(sent: Sent) -> dict[str, object]:
    return {
        "topic": sent.topic,
        "broker": sent.queue.broker,
        "queue": sent.queue.number,
        "offset": sent.offset,
        "status": sent.status,
        "message_id": sent.unique_id,
        "offset_id": sent.message_id,
    }

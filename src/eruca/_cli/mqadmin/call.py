"""One run of a command: its flags, the cluster, and what it prints."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import click

from eruca._admin.admin import Admin
from eruca._admin.results import Changed, Listed
from eruca._admin.targets import BrokerRow, gather_bounded
from eruca._cli.mqadmin.commandline import Line
from eruca._cli.saying import say
from eruca._ground.printable import show_safely
from eruca._wire.names import MASTER_ID
from eruca.errors import ErucaError, NoRoute

Item = TypeVar("Item")
Found = TypeVar("Found")
Facts = TypeVar("Facts")

# mqadmin prints everything, however much there is.
ALL = 1_000_000
_FOREVER = sys.maxsize - 1
# How many addresses an error names.
_SHOWN = 5


class Output:
    """What a command prints: results to stdout, what failed to stderr. The formats are those of Java's printf."""

    def __init__(self) -> None:
        self.failed = False
        self._is_terminal = sys.stdout.isatty()

    def say(self, template: str, *values: object) -> None:
        """Print a line."""
        text = template % values if values else template
        click.echo(show_safely(text) if self._is_terminal else text)

    def table(self, template: str, *columns: str) -> Callable[..., None]:
        """Print the heading of a table; returns a function that prints one row."""
        self.say(template, *[f"#{column}" for column in columns])
        return lambda *cells: self.say(template, *cells)

    def fail(self, text: str) -> None:
        """Report something that failed; the command continues, and its exit status will be 1."""
        self.failed = True
        say(text)


class Call:
    """One run of a command."""

    def __init__(self, admin: Admin, line: Line, out: Output) -> None:
        self.admin = admin
        self.line = line
        self.out = out

    # -- answers -----------------------------------------------------------------------------------------------------

    def take(self, listed: Listed[Item]) -> list[Item]:
        """Return the rows of an answer, and report the servers that did not answer."""
        for problem in listed.problems:
            self.out.fail(f"{problem.where}: {problem.error}")
        if listed.cut:
            self.out.fail(f"there are more than {len(listed.items)}; the rest is left out")
        return listed.items

    def check(self, changed: Changed[Facts]) -> Changed[Facts]:
        """Report where a change failed."""
        for change in changed.changes:
            if change.outcome == "failed":
                self.out.fail(f"{changed.name} on {change.where}: {change.reason}")
        return changed

    # -- brokers -----------------------------------------------------------------------------------------------------

    async def list_brokers(self) -> list[BrokerRow]:
        """Return the broker of `-b`, those of the cluster of `-c`, or all; masters first. Raises NoRoute."""
        rows = self.take(await self.admin.brokers.list(cluster=self.line.find("c"), limit=ALL))
        rows.sort(key=lambda row: (row.cluster, row.broker, row.broker_id))
        wanted = self.line.find("b")
        if wanted is None:
            return rows
        found = [row for row in rows if wanted in (row.address, row.broker)][:1]
        if not found:
            known = ", ".join(row.address for row in rows[:_SHOWN]) or "none"
            raise NoRoute(f"no broker {wanted} is registered", hint=f"the name servers know: {known}")
        return found

    async def list_masters(self) -> list[BrokerRow]:
        """Return the masters of the cluster of `-c`, or the broker of `-b`. Raises ConfigError."""
        rows = await self.list_brokers()
        return rows if self.line.has("b") else [row for row in rows if row.broker_id == MASTER_ID]

    async def change_each(
        self, rows: Iterable[BrokerRow], change: Callable[[BrokerRow], Awaitable[Changed[Facts]]]
    ) -> AsyncIterator[tuple[BrokerRow, Changed[Facts]]]:
        """Change something on one broker after the other, and yield those where it is done.

        A broker that fails is reported, and does not stop the others.
        """
        for row in rows:
            try:
                changed = self.check(await change(row))
            except ErucaError as error:
                self.out.fail(f"{row.address}: {error}")
                continue
            if not changed.failed:
                yield row, changed

    # -- repeatedly --------------------------------------------------------------------------------------------------

    async def rounds(self, interval_s: float) -> AsyncIterator[int]:
        """Yield the number of each round: up to `--rounds`, otherwise until the command is interrupted."""
        last = self.line.number("rounds", _FOREVER)
        for number in range(1, last + 1):
            yield number
            if number < last:
                await asyncio.sleep(interval_s)


async def ask_each(items: Sequence[Item], ask: Callable[[Item], Awaitable[Found]]) -> list[tuple[Item, Found | None]]:
    """Ask about each item, several at a time. An item about which no answer comes has None."""
    answers = await gather_bounded(items, ask)
    return [
        (item, None if isinstance(found, ErucaError) else found) for item, found in zip(items, answers, strict=True)
    ]

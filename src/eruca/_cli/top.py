"""`eruca top`: what a cluster is doing now, on a screen that refreshes itself."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from typing import Any

import click
import msgspec

from eruca._admin.admin import Admin
from eruca._admin.targets import explain_no_broker
from eruca._cli.connecting import add_nameserver_option, make_options
from eruca._cli.grouping import SectionedCommand
from eruca._cli.output import add_output_option, print_document
from eruca._cli.running import handle_signals, run_loop
from eruca._cli.saying import say
from eruca._cli.tables import make_table
from eruca._cli.topview.details import Detail, look_at
from eruca._cli.topview.drawing import COLUMNS, count_room, draw
from eruca._cli.topview.sampling import Sample, Sampler
from eruca._cli.topview.state import SORTS, Tab, ViewState
from eruca._cli.viewing import EXIT_WRONG
from eruca.errors import ConfigError, ErucaError

_INTERVAL_S = 2.0
# Samples are pauses apart that are this many times as long as it takes to take one: looking must not load a cluster.
_REST_FACTOR = 4
# The two samples of `--once`, between which rates are computed.
_ONCE_S = 2.0
# A busy loop of keys is drawn this often at most.
_FRAME_S = 0.02


@click.command(cls=SectionedCommand)
@click.option("--once", is_flag=True, help="Print one sample, with the rates of two seconds, and end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=_INTERVAL_S,
    show_default=True,
    help="Seconds between samples; more where a sample takes long.",
)
@click.option("--tab", type=click.Choice([tab.value for tab in Tab]), default="groups", help="The list to start with.")
@add_nameserver_option
@add_output_option
def top(once: bool, interval: float, tab: str, nameservers: str, output: str) -> None:
    """Watch groups, topics and brokers: rates, lag in messages and in time, replication, disk.

    Keys: g, t, b choose groups, topics or brokers; s sorts by the next column; Enter opens a line, Esc goes back;
    / filters by name; p pauses; ? lists all keys; q quits.

    \b
    Examples:
      eruca top
      eruca top --tab brokers --interval 5
      eruca top --once -o json | jq '.groups | max_by(.lag)'
    """
    if once or output != "table":
        run_loop(_print_once(nameservers, output))
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("standard input and output are not a terminal", hint="pass --once to print one sample")
    run_loop(_watch(nameservers, interval, Tab(tab)))


# --- once -------------------------------------------------------------------------------------------------------------


async def _print_once(nameservers: str, output: str) -> None:
    async with Admin(options=make_options(nameservers)) as admin:
        if not (await admin.brokers.list(limit=1)).items:
            raise explain_no_broker()
        sampler = Sampler(admin)
        first = await sampler.take()
        await asyncio.sleep(_ONCE_S)
        sample = await sampler.take([line.group for line in first.groups if line.lag])
    print_document(describe_sample(sample), output, lambda: [_draw_table(sample, tab) for tab in Tab])
    for problem in sample.problems:
        say(f"warning: {problem}")
    if not sample.brokers:
        sys.exit(EXIT_WRONG)


def describe_sample(sample: Sample) -> dict[str, Any]:
    """Return a sample as plain values."""
    whole: dict[str, Any] = msgspec.to_builtins(sample)
    return whole | {"stored_rate": sample.stored_rate, "fetched_rate": sample.fetched_rate, "lag": sample.lag}


def _draw_table(sample: Sample, tab: Tab) -> Any:
    columns = COLUMNS[tab]
    titles = [column.title if number == 0 else f">{column.title}" for number, column in enumerate(columns)]
    lines = ViewState(tab=tab).list_lines(sample)
    return make_table(titles, [[column.show(line) for column in columns] for line in lines], tab.value)


# --- live -------------------------------------------------------------------------------------------------------------


class Live:
    """The live view: takes samples, applies keys and draws, until it is over."""

    def __init__(self, admin: Admin, interval_s: float, tab: Tab) -> None:
        self._admin = admin
        self._interval_s = interval_s
        self._sampler = Sampler(admin)
        self._state = ViewState(tab=tab)
        self._sample: Sample | None = None
        self._detail: Detail | None = None
        # Why there is no sample, or no new one.
        self._note = ""
        # Set when something has changed that is on the screen; and when it is time for a sample.
        self._is_stale = asyncio.Event()
        self._is_due = asyncio.Event()

    async def run(self) -> None:
        """Run until a key or a signal ends it."""
        from eruca._cli.topview.terminal import take_terminal

        loop = asyncio.get_running_loop()
        sampling, drawing = loop.create_task(self._keep_sampling()), loop.create_task(self._keep_drawing())
        ends: dict[signal.Signals, Any] = {number: self._end for number in (signal.SIGINT, signal.SIGTERM)}
        ends |= {signal.SIGHUP: self._end, signal.SIGWINCH: self._is_stale.set}
        with handle_signals(ends), take_terminal(self._press, self._end):
            try:
                await asyncio.wait([sampling, drawing], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sampling, drawing):
                    task.cancel()
                results = await asyncio.gather(sampling, drawing, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _end(self) -> None:
        self._state.is_over = True
        self._is_stale.set()

    def _press(self, key: str) -> None:
        from eruca._cli.topview.terminal import find_size

        before = (self._state.opened, self._state.tab)
        self._state.press(key, self._sample, count_room(find_size()[1]))
        if (self._state.opened, self._state.tab) != before:
            self._detail = None
            self._is_due.set()
        self._is_stale.set()

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def _keep_sampling(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._is_due.clear()
            begun = loop.time()
            if not self._state.paused or self._sample is None or self._needs_detail():
                await self._take()
                self._is_stale.set()
            took = loop.time() - begun
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_due.wait(), max(self._interval_s - took, _REST_FACTOR * took))

    def _needs_detail(self) -> bool:
        return self._state.opened is not None and self._detail is None

    async def _take(self) -> None:
        opened = self._state.opened
        try:
            if opened is not None:
                detail = await look_at(self._admin, *opened)
                # Another line may have been opened while the brokers were asked.
                self._detail = detail if self._state.opened == opened else None
            # The head shows the whole cluster, whatever is opened below it.
            sample = await self._sampler.take(self._list_visible() if opened is None else [])
            # A cluster that does not answer for a moment: what was known before remains on the screen.
            if sample.brokers or self._sample is None:
                self._sample = sample
            self._note = "" if sample.brokers else (sample.problems or ["no broker answers"])[0]
        except ErucaError as error:
            self._note = str(error)

    def _list_visible(self) -> list[str]:
        from eruca._cli.topview.terminal import find_size

        if self._sample is None or self._state.tab is not Tab.GROUPS:
            return []
        top = self._state.top
        return [line.group for line in self._state.list_lines(self._sample)[top : top + count_room(find_size()[1])]]

    # -- drawing -----------------------------------------------------------------------------------------------------

    async def _keep_drawing(self) -> None:
        from eruca._cli.topview.terminal import find_size, show_lines

        while not self._state.is_over:
            self._is_stale.clear()
            width, height = find_size()
            show_lines(draw(self._sample, self._state, self._detail, self._note, width, height), width)
            await asyncio.sleep(_FRAME_S)
            await self._is_stale.wait()


async def _watch(nameservers: str, interval_s: float, tab: Tab) -> None:
    async with Admin(options=make_options(nameservers)) as admin:
        await Live(admin, interval_s, tab).run()


assert set(SORTS) == set(COLUMNS) == set(Tab)

"""Commands that show something: one result for people and programs, once or repeatedly (`--watch`)."""

from __future__ import annotations

import asyncio
import functools
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eruca._admin.results import LIMIT
from eruca._cli.connecting import add_nameserver_option, make_options
from eruca._cli.output import add_output_option, make_console, print_document, print_parts, print_rows
from eruca._cli.running import handle_signals, run_loop
from eruca._cli.saying import say
from eruca._cli.tables import make_table
from eruca._ground.printable import show_safely
from eruca.admin import Admin, Listed, Problem
from eruca.errors import ErucaError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Function = TypeVar("Function", bound=Callable[..., Any])
Row = TypeVar("Row")

#: The exit status of a command whose answer shows that something is wrong, or that is incomplete.
EXIT_WRONG = 3
_WATCH_S = 2.0
_WATCH_S_MIN = 0.1
# `--limit 0`: everything. The admin API takes any number.
_ALL = sys.maxsize


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a command shows."""

    # Plain values or structs for programs: a document, or with `is_list` rows, one JSON object per line.
    value: Any
    # The tables for people.
    draw: Callable[[], Iterable[RenderableType]]
    is_list: bool = False
    # Servers that did not answer: the result is incomplete.
    problems: Sequence[Problem] = ()
    # Whether there are more rows than the limit.
    cut: bool = False
    # What to say instead of an empty table: what is missing, and the next step.
    empty: str = ""
    # What is wrong with the cluster according to the result, one line each.
    warnings: Sequence[str] = ()
    # Whether the exit status reports that something is wrong, although nothing failed.
    is_wrong: bool = False

    @property
    def exit_code(self) -> int:
        """The exit status of the command that shows it."""
        return EXIT_WRONG if self.problems or self.warnings or self.is_wrong else 0


def view_list(
    listed: Listed[Row] | Sequence[Row],
    columns: Sequence[str],
    draw: Callable[[Row], Sequence[str | Text]],
    *,
    empty: str,
    title: str = "",
    describe: Callable[[Row], Any] | None = None,
    is_wrong: bool = False,
) -> View:
    """Return the view of a list: one table, or one object per row, as `describe` returns it."""
    whole = listed if isinstance(listed, Listed) else Listed(items=list(listed))
    return View(
        value=whole.items if describe is None else [describe(row) for row in whole.items],
        draw=lambda: [make_table(columns, [draw(row) for row in whole.items], title)],
        is_list=True,
        problems=whole.problems,
        cut=whole.cut,
        empty=empty,
        is_wrong=is_wrong,
    )


async def view_stream(
    rows: AsyncIterator[Row],
    output: str,
    limit: int,
    columns: Sequence[str],
    draw: Callable[[Row], Sequence[str | Text]],
    *,
    describe: Callable[[Row], Any],
    empty: str,
    empty_is_wrong: bool = False,
) -> View:
    """Return the view of rows that arrive one by one. For programs they are printed at once and not kept."""
    kept: list[Row] = []
    count, cut = 0, False
    async for row in rows:
        if count >= limit:
            cut = True
            break
        count += 1
        if output == "table":
            kept.append(row)
        else:
            print_rows([describe(row)], output, [], lambda _: [])
    return View(
        value=kept,
        draw=lambda: [make_table(columns, [draw(row) for row in kept])],
        is_list=True,
        cut=cut,
        empty="" if count else empty,
        is_wrong=empty_is_wrong and not count,
    )


class Viewing:
    """How a command shows its result: which cluster it asks, in which format, and how often."""

    def __init__(self, nameservers: str, output: str, watch_s: float | None) -> None:
        self._nameservers = nameservers
        self.output = output
        self._watch_s = watch_s

    @property
    def is_table(self) -> bool:
        """Whether a person reads the result."""
        return self.output == "table"

    def choose_limit(self, limit: int | None, most: int = LIMIT) -> int:
        """Return how many rows to ask for: `--limit`, where 0 is all; by default tables are limited, JSON is not."""
        if limit is None:
            return most if self.is_table else _ALL
        return limit or _ALL

    def show(self, ask: Callable[[Admin], Awaitable[View]]) -> None:
        """Ask the cluster and show the result; the exit status is 3 if something is wrong."""
        code = run_loop(self._run(ask))
        if code:
            sys.exit(code)

    async def _run(self, ask: Callable[[Admin], Awaitable[View]]) -> int:
        async with Admin(options=make_options(self._nameservers)) as admin:
            if self._watch_s is None:
                view = await ask(admin)
                print_view(view, self.output)
                return view.exit_code
            task = asyncio.get_running_loop().create_task(self._watch(admin, ask, self._watch_s))
            with (
                handle_signals({signal.SIGINT: task.cancel, signal.SIGTERM: task.cancel}),
                suppress(asyncio.CancelledError),
            ):
                await task
            return 0

    async def _watch(self, admin: Admin, ask: Callable[[Admin], Awaitable[View]], pause_s: float) -> None:
        on_screen = self.is_table and sys.stdout.isatty()
        while True:
            try:
                view = await ask(admin)
            except ErucaError as error:
                # A server that restarts must not end the command.
                say(f"{error}; trying again")
            else:
                if on_screen:
                    _draw_screen(view, pause_s)
                else:
                    print_view(view, self.output)
            await asyncio.sleep(pause_s)


def add_view_options(function: Function) -> Function:
    """Add `-n`, `--account`, TLS, `--output` and `--watch`; the function gets a `Viewing` as `view`."""

    @functools.wraps(function)
    def with_view(*, nameservers: str, output: str, watch_s: float | None, **others: Any) -> Any:
        return function(view=Viewing(nameservers, output, watch_s), **others)

    command: Any = click.option(
        "-w",
        "--watch",
        "watch_s",
        type=_Seconds(),
        is_flag=False,
        flag_value=_WATCH_S,
        metavar="[SECONDS]",
        help=f"Show it again every few seconds (alone: {_WATCH_S:g}); Ctrl-C ends.",
    )(add_output_option(with_view))
    decorated: Function = add_nameserver_option(command)
    return decorated


class _Seconds(click.FloatRange):
    """The pause of `--watch`, whose value may be missing and then swallows the next word."""

    def __init__(self) -> None:
        super().__init__(min=_WATCH_S_MIN)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the seconds."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"{value!r} is not a number of seconds from {_WATCH_S_MIN:g} on; without a number, put it last, or"
                f" write --watch={_WATCH_S:g}",
                param,
                ctx,
            )


def add_limit_option(function: Function) -> Function:
    """Add `--limit` to a command."""
    return click.option(
        "--limit",
        type=click.IntRange(min=0),
        help=f"At most this many rows; 0: all [default: tables {LIMIT}, JSON and YAML all].",
    )(function)


# --- printing ---------------------------------------------------------------------------------------------------------


def print_view(view: View, output: str) -> None:
    """Print a result to stdout, and to stderr what to know about it."""
    if view.is_list and output != "table":
        print_rows(view.value, output, [], lambda _: [])
    elif view.value or not (view.is_list and view.empty):
        print_document(view.value, output, view.draw)
    for note in _list_notes(view):
        say(note)


def _list_notes(view: View) -> Iterator[str]:
    if view.empty and not view.value:
        yield view.empty
    if view.cut:
        yield "there are more; --limit N shows more of them, --limit 0 all"
    for warning in view.warnings:
        yield f"warning: {warning}"
    for problem in view.problems:
        yield f"warning: {describe_problem(problem)}"


def describe_problem(problem: Problem) -> str:
    """Return a line about a server that did not answer or refused."""
    hint = f" ({problem.hint})" if problem.hint and problem.hint not in problem.error else ""
    return f"{problem.where}: {problem.error}{hint}"


def _draw_screen(view: View, pause_s: float) -> None:
    """Replace what the terminal shows; what does not fit is left out."""
    console = make_console()
    with console.capture() as capture:
        if view.value or not view.empty:
            print_parts(console, view.draw())
        for note in _list_notes(view):
            console.print(show_safely(note), markup=False)
    command = " ".join(["eruca", *sys.argv[1:]])
    head = f"{datetime.now():%H:%M:%S}  every {pause_s:g} s: {command}"
    room = shutil.get_terminal_size()
    lines = [head[: room.columns], "", *capture.get().splitlines()]
    if len(lines) >= room.lines:
        lines = [*lines[: room.lines - 2], f"... {len(lines) - room.lines + 2} more lines"]
    # Home, then each line with the rest of it cleared, then everything below: no flicker.
    click.echo("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", nl=False)

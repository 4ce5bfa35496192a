"""What the commands of operators share: connecting, confirmation, progress, outcomes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from eruca._cli.connecting import make_options
from eruca._cli.running import run_loop
from eruca._cli.saying import say
from eruca.admin import Admin
from eruca.errors import ConfigError

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])


def operate(nameservers: str, work: Callable[[Admin], Awaitable[Result]]) -> Result:
    """Run a coroutine with an `Admin` of the cluster."""

    async def run() -> Result:
        async with Admin(options=make_options(nameservers)) as admin:
            return await work(admin)

    return run_loop(run())


def add_yes_option(function: Function) -> Function:
    """Add `--yes` to a command."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def confirm(question: str, yes: bool) -> None:
    """Ask before a change that cannot be undone. Raises ConfigError without a terminal and without `--yes`."""
    if yes:
        return
    require_answerable(question)
    click.confirm(question, abort=True, err=True)


def require_answerable(question: str) -> None:
    """Raise ConfigError if there is no terminal on which a question could be answered."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Standard input is not a terminal", hint="pass --yes if you are sure")


def end_with(outcomes: Iterable[str]) -> None:
    """Print the number of each outcome to stderr; the exit status is 1 if anything failed."""
    counts = Counter(outcomes)
    text = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "nothing to do"
    say(text)
    if counts["failed"]:
        sys.exit(1)


@contextmanager
def show_count(description: str) -> Iterator[Callable[[int], None]]:
    """Show a counter on the terminal for work of unknown length; yields a function that advances it."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}: {task.completed:.0f}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(description, total=None)
        yield lambda count: bar.advance(task, count)

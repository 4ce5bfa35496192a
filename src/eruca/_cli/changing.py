"""Commands that change something: what would change, confirmation, the outcome, and the command that undoes it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from eruca._cli.administer import add_yes_option, confirm, end_with, operate, require_answerable
from eruca._cli.connecting import add_nameserver_option
from eruca._cli.losing import ask_if_losing
from eruca._cli.output import add_output_option, make_console, print_document, print_parts, to_plain
from eruca._cli.saying import say
from eruca._cli.tables import make_table
from eruca._cli.undoing import write_undo
from eruca.admin import Admin, Change, Changed, Moved

if TYPE_CHECKING:
    from rich.console import RenderableType

Function = TypeVar("Function", bound=Callable[..., Any])
#: What a change returns: `work(admin, dry_run)`.
Work = Callable[[Admin, bool], Awaitable[Changed[Any] | Moved]]


class Changing:
    """How a command changes something: on which cluster, whether it asks first, and whether it does it at all."""

    def __init__(self, nameservers: str, output: str, dry_run: bool, yes: bool) -> None:
        self._nameservers = nameservers
        self._output = output
        self.dry_run = dry_run
        self._yes = yes

    def apply(self, work: Work, question: str = "", *, losing: str = "", label: str = "") -> None:
        """Do it and show the outcome. With a question, show what would change and ask first.

        `losing` is a question that is asked only if the change takes something away. `label` says what changes;
        otherwise the table has the name of the topic, group or option.
        """
        if (question or losing) and not self.dry_run and not self._yes:
            if question:
                require_answerable(question)
            planned = self._call(work, True)
            if not question and isinstance(planned, Changed):
                question = ask_if_losing(planned, losing)
            if question:
                require_answerable(question)
                print_parts(make_console(to_stderr=True), draw_changes(planned, label))
                confirm(question, yes=False)
        self._show(self._call(work, self.dry_run), label)

    def _call(self, work: Work, dry_run: bool) -> Changed[Any] | Moved:
        return operate(self._nameservers, lambda admin: work(admin, dry_run))

    def _show(self, result: Changed[Any] | Moved, label: str) -> None:
        undo = [] if self.dry_run else write_undo(result.undo)
        print_document(to_plain(result) | {"undo": undo}, self._output, lambda: draw_changes(result, label))
        if self._output == "table":
            for heading, commands in self._list_undo(result):
                for command in commands:
                    click.echo(f"{heading}: {command}")
        for warning in result.warnings if isinstance(result, Changed) else ():
            say(f"warning: {warning}")
        end_with(list_outcomes(result))

    def _list_undo(self, result: Changed[Any] | Moved) -> Iterable[tuple[str, list[str]]]:
        for call in [] if self.dry_run else result.undo:
            yield f"undo, {call.lacks}" if call.lacks else "undo", write_undo([call])


def add_change_options(*, asks: bool = False) -> Callable[[Function], Function]:
    """Add `-n`, `--account`, TLS, `--output` and `--dry-run`, and `--yes` if the command asks before it does anything.

    The function gets a `Changing` as `change`.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def with_change(*, nameservers: str, output: str, dry_run: bool, yes: bool = False, **others: Any) -> Any:
            return function(change=Changing(nameservers, output, dry_run, yes), **others)

        command: Any = add_output_option(with_change)
        if asks:
            command = add_yes_option(command)
        command = add_dry_run_option(command)
        decorated: Function = add_nameserver_option(command)
        return decorated

    return decorate


def add_dry_run_option(function: Function) -> Function:
    """Add `--dry-run` to a command."""
    return click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")(function)


# --- drawing ----------------------------------------------------------------------------------------------------------


def list_outcomes(result: Changed[Any] | Moved) -> list[str]:
    """Return the outcome of each change."""
    return [row.outcome for row in (result.moves if isinstance(result, Moved) else result.changes)]


def draw_changes(result: Changed[Any] | Moved, label: str = "") -> Iterable[RenderableType]:
    """Return the table of changes: one row per server, or per queue."""
    if isinstance(result, Moved):
        return [draw_moves(result)]
    rows = [(change.where, change.outcome, describe_change(change), change.reason) for change in result.changes]
    return [make_table(["on", "outcome", label or result.name, "reason"], rows)]


def draw_moves(moved: Moved) -> RenderableType:
    """Return the table of moved offsets."""
    rows = []
    for move in moved.moves:
        places = ["-" if place is None else str(place) for place in (move.before, move.after)]
        rows.append((move.topic, move.broker, str(move.queue), *places, move.outcome, move.reason))
    return make_table(["topic", "broker", ">queue", ">before", ">after", "outcome", "reason"], rows)


def describe_change(change: Change[Any]) -> str:
    """Return what changes in words: `read_queues 8 -> 16`, all facts of something new, or that it is deleted."""
    before, after = change.before, change.after
    if before is None and after is None:
        return ""
    if after is None:
        return f"deleted: {_list_facts(before)}"
    if before is None:
        return f"new: {_list_facts(after)}"
    if not isinstance(before, msgspec.Struct | Mapping):
        return _say(before) if before == after else f"{_say(before)} -> {_say(after)}"
    old, new = to_plain(before), to_plain(after)
    names = [name for name in (old | new) if old.get(name) != new.get(name)]
    return "\n".join(f"{name} {_say(old.get(name))} -> {_say(new.get(name))}" for name in names)


def _list_facts(value: Any) -> str:
    if not isinstance(value, msgspec.Struct | Mapping):
        return _say(value)
    return ", ".join(f"{name}={_say(item)}" for name, item in to_plain(value).items())


def _say(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        value = [f"{name}={item}" for name, item in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return str(value)

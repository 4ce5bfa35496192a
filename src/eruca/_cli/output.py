"""How commands show results: a table for people, JSON or YAML for programs, and progress bars."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from eruca._cli.tables import make_table
from eruca._ground.times import from_epoch_ms, read_time, to_epoch_ms
from eruca.errors import ConfigError

# rich is imported where it is used: commands that print plain lines or JSON start faster without it.
if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

Function = TypeVar("Function", bound=Callable[..., Any])
Row = TypeVar("Row")

# The width of a table that goes to a file or a pipe.
_PIPED_WIDTH = 200
# Rows of one table: column widths need all of them in memory.
_TABLE_ROWS = 500


def add_output_option(function: Function) -> Function:
    """Add `--output` to a command."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml"]),
        default="table",
        show_default=True,
        help="Format of the result.",
    )(function)


# --- whole documents and rows ---------------------------------------------------------------------------------------


def print_document(value: Any, output: str, draw: Callable[[], Iterable[RenderableType]]) -> None:
    """Show one result; `draw` returns the tables for people."""
    if output == "table":
        print_parts(make_console(), draw())
    elif output == "json":
        click.echo(json.dumps(to_plain(value), indent=2, ensure_ascii=False))
    else:
        click.echo(format_yaml(to_plain(value)))


def print_parts(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print tables with an empty line between them."""
    for number, part in enumerate(parts):
        if number:
            console.print()
        console.print(part)


def print_rows(
    rows: Iterable[Row], output: str, columns: Sequence[str], draw: Callable[[Row], Sequence[str | Text]]
) -> None:
    """Show rows as they arrive: JSON has one object per line, YAML one document per row."""
    if output != "table":
        for row in rows:
            plain = to_plain(row)
            click.echo(json.dumps(plain, ensure_ascii=False) if output == "json" else "---\n" + format_yaml(plain))
        return
    console = make_console()
    waiting: list[Sequence[str | Text]] = []
    for row in rows:
        waiting.append(draw(row))
        if len(waiting) >= _TABLE_ROWS:
            console.print(make_table(columns, waiting))
            waiting = []
    if waiting:
        console.print(make_table(columns, waiting))


def to_plain(value: Any) -> Any:
    """Return a result as JSON has it: maps, lists and scalars; times in ISO 8601, durations in seconds."""
    return _write_durations(msgspec.to_builtins(value, builtin_types=(timedelta,)))


def _write_durations(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _write_durations(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_write_durations(item) for item in value]
    return value.total_seconds() if isinstance(value, timedelta) else value


def make_console(*, to_stderr: bool = False) -> Console:
    """Return a console for the current stdout or stderr."""
    from rich.console import Console

    stream = sys.stderr if to_stderr else sys.stdout
    return Console(width=None if stream.isatty() else _PIPED_WIDTH, stderr=to_stderr, highlight=False)


def format_time(time: datetime | int | None) -> str:
    """Return a time of the store as local time; a number is milliseconds since 1970."""
    if isinstance(time, int):
        found = from_epoch_ms(time) if time > 0 else None
        if found is None and time > 0:
            return str(time)
        time = found
    if time is None:
        return "-"
    try:
        return time.astimezone().replace(tzinfo=None).isoformat(" ", "milliseconds")
    except (OverflowError, OSError, ValueError):
        return str(time)


def format_bytes(count: int) -> str:
    """Return a size with a unit and two or three digits."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def parse_time_ms(text: str) -> int:
    """Read a time as `parse_time` does, as milliseconds since 1970."""
    return to_epoch_ms("time", parse_time(text))


def parse_time(text: str) -> datetime:
    """Read a time: milliseconds since 1970, 2026-11-15, or 2026-11-15T07:21:06; without a zone it is local time."""
    try:
        return read_time(text)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


# --- YAML -----------------------------------------------------------------------------------------------------------
# Written here because results need only maps, lists and scalars, which is not worth a dependency of the core.

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
# Words that some version of YAML does not read as text.
_NOT_PLAIN = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def format_yaml(value: Any) -> str:
    """Write plain Python objects as YAML."""
    return "\n".join(_write_block(value, ""))


def _write_block(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _write_item(f"{indent}{_write_scalar(key)}:", item, indent + "  ")
    elif isinstance(value, list) and value:
        for item in value:
            lines = list(_write_block(item, indent + "  "))
            yield f"{indent}- {lines[0].lstrip(' ')}"
            yield from lines[1:]
    else:
        yield indent + _write_scalar(value)


def _write_item(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield head
        yield from _write_block(value, indent)
    else:
        yield f"{head} {_write_scalar(value)}"


def _write_scalar(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _NOT_PLAIN:
            return value
        # A JSON string is a YAML string, once what YAML counts as unprintable is escaped; beyond 16 bits as \U.
        text = json.dumps(value, ensure_ascii=False)
        return "".join([c if c.isprintable() else f"\\U{ord(c):08x}" for c in text])
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    text = json.dumps(value)
    # YAML 1.1 reads a number with an exponent as text unless it has a point.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text


# --- progress -------------------------------------------------------------------------------------------------------


@contextmanager
def show_progress(description: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar on stderr if it is a terminal; yields a function that advances it by bytes."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(description, total=max(total, 1))
        yield lambda count: bar.advance(task, count)

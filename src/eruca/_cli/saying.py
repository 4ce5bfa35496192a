"""What commands say on stderr beside their result: notes, warnings and errors, wrapped for a terminal."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import IO, Any

import click

from eruca._ground.printable import show_safely

_PREFIX = "eruca: "
_INDENT = "  "
# Stands for a blank within a command that must stay in one line, so that it can be copied.
_HELD = "\x00"
_QUOTED = re.compile(r"`[^`]*`")


def say(text: str, file: IO[Any] | None = None) -> None:
    """Print a note to stderr, or to a file."""
    click.echo(format_note(text, _find_width(file)), file=file, err=file is None)


def format_note(text: str, width: int | None) -> str:
    """Return a note with its prefix, wrapped between words; commands in backquotes stay whole where there is room."""
    whole = _PREFIX + show_safely(text)
    if width is None or len(whole) <= width:
        return whole

    def hold(found: re.Match[str]) -> str:
        return found[0].replace(" ", _HELD) if len(found[0]) + len(_INDENT) <= width else found[0]

    lines = textwrap.wrap(
        _QUOTED.sub(hold, whole), width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(_HELD, " ")


def _find_width(file: IO[Any] | None) -> int | None:
    """Return the columns of the terminal; None: what is written is read by a program."""
    stream = file or sys.stderr
    return shutil.get_terminal_size().columns if stream.isatty() else None

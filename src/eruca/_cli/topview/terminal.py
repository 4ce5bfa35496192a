"""The terminal: keys without Enter, a screen of its own that is left as it was found, and its size."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eruca._cli.topview.state import Key

if TYPE_CHECKING:
    from rich.text import Text

_SMALLEST = (20, 8)
_KEY_BYTES_MAX = 1024
# What terminals send for keys that are not a character; the longest first.
_SEQUENCES = {
    "\x1b[A": Key.UP,
    "\x1b[B": Key.DOWN,
    "\x1b[C": Key.RIGHT,
    "\x1b[D": Key.LEFT,
    "\x1bOA": Key.UP,
    "\x1bOB": Key.DOWN,
    "\x1bOC": Key.RIGHT,
    "\x1bOD": Key.LEFT,
    "\x1b[5~": Key.PAGE_UP,
    "\x1b[6~": Key.PAGE_DOWN,
    "\x1b[H": Key.HOME,
    "\x1b[F": Key.END,
    "\x1b[1~": Key.HOME,
    "\x1b[4~": Key.END,
    "\x1bOH": Key.HOME,
    "\x1bOF": Key.END,
    "\r": Key.ENTER,
    "\n": Key.ENTER,
    "\t": Key.TAB,
    "\x7f": Key.BACK,
    "\x08": Key.BACK,
    "\x1b": Key.ESCAPE,
}
_ENTER_SCREEN = "\x1b[?1049h\x1b[?25l"
_LEAVE_SCREEN = "\x1b[?25h\x1b[?1049l"


def split_keys(text: str) -> list[str]:
    """Return the keys of what a terminal sent; sequences that mean nothing here are left out."""
    keys: list[str] = []
    while text:
        found = next((seq for seq in sorted(_SEQUENCES, key=len, reverse=True) if text.startswith(seq)), "")
        if len(found) > 1 or (found and found != "\x1b") or text == "\x1b":
            keys.append(_SEQUENCES[found])
            text = text[len(found) :]
        elif found:
            text = _skip_sequence(text)
        else:
            keys.append(text[0])
            text = text[1:]
    return keys


def _skip_sequence(text: str) -> str:
    """Return the text after an unknown sequence: up to its first letter or tilde."""
    if text[1] not in "[O":
        return text[2:]
    for place, letter in enumerate(text[2:], 2):
        if letter.isalpha() or letter == "~":
            return text[place + 1 :]
    return ""


def find_size() -> tuple[int, int]:
    """Return the columns and lines of the terminal."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 80, 24
    # A terminal that does not know its size reports zeros.
    return max(_SMALLEST[0], size.columns or 80), max(_SMALLEST[1], size.lines or 24)


@contextmanager
def take_terminal(on_key: Callable[[str], None], on_end: Callable[[], None]) -> Iterator[None]:
    """Take the whole screen and call `on_key` for each key, `on_end` when the input ends; then restore both."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        data = os.read(descriptor, _KEY_BYTES_MAX)
        if not data:
            loop.remove_reader(descriptor)
            on_end()
        for key in split_keys(data.decode("utf-8", "ignore")):
            on_key(key)

    tty.setcbreak(descriptor)
    # Ctrl-Z would leave the shell with this screen.
    changed = termios.tcgetattr(descriptor)
    changed[6][termios.VSUSP] = b"\x00"
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    sys.stdout.write(_ENTER_SCREEN)
    sys.stdout.flush()
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        sys.stdout.write(_LEAVE_SCREEN)
        sys.stdout.flush()
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def show_lines(lines: Sequence[Text], width: int) -> None:
    """Replace what is on the screen."""
    from rich.console import Console

    console = Console(width=width, highlight=False, color_system="standard", force_terminal=True, legacy_windows=False)
    with console.capture() as capture:
        for line in lines:
            console.print(line, soft_wrap=True, end="\n")
    drawn = capture.get().splitlines()
    # Home, then each line with the rest of it cleared; no newline after the last, which would scroll.
    sys.stdout.write("\x1b[H" + "\x1b[K\r\n".join(drawn) + "\x1b[K\x1b[J")
    sys.stdout.flush()

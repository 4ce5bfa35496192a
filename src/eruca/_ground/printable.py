"""Text for people: what others chose, and how many there are of something."""

from __future__ import annotations


def show_safely(text: str, keep: str = "") -> str:
    """Return text with visible control characters, except those to keep.

    What others sent must neither control a terminal nor look like another line of a log.
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text])


def say_count(number: int, noun: str, verb: str = "") -> str:
    """Return how many there are: `1 message`, `1,200 messages`, and with a verb `1 message waits`."""
    is_one = number == 1
    words = f"{number:,} {noun}" + ("" if is_one else "s")
    return f"{words} {verb}{'s' if is_one else ''}" if verb else words

"""Showing text that others chose."""

from __future__ import annotations


def show_safely(text: str, keep: str = "") -> str:
    """Return text with visible control characters, except those to keep.

    What others sent must neither control a terminal nor look like another line of a log.
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text])

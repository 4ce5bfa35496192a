"""A mastership, as the store writes it down, links say it, and `core.replication.epochs` compares it."""

from __future__ import annotations

from typing import NamedTuple


class Epoch(NamedTuple):
    """A mastership: its number, and the position in the log it began at."""

    epoch: int
    start: int
    #: The master had come back from a crash, and from here on its log may not be what others had copied; -1: it is.
    unsure: int = -1

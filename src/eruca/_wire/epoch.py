"""A mastership, as the store writes it down, links say it, and `core.replication.epochs` compares it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eruca._ground.limits import EPOCH_MAX


class Epoch(NamedTuple):
    """A mastership: its number, and the position in the log it began at."""

    epoch: int
    start: int
    #: The master had come back from a crash, and from here on its log may not be what others had copied; -1: it is.
    unsure: int = -1


def is_epoch(number: int) -> bool:
    """Whether a number can be that of a mastership; what is beyond the bound was made up by somebody."""
    return 0 <= number <= EPOCH_MAX


def join_oldest(epochs: Sequence[Epoch], joined: int, count_max: int) -> tuple[list[Epoch], int]:
    """Keep a list short; returns the list, and the last mastership that was joined with those before it.

    Masterships that wrote nothing go first: no position is theirs. Then the oldest ones become one, which has the
    number of the last of them. Where logs part inside of that is not seen in the lists any more, but only by comparing
    bytes, which comes before every cut.
    """
    kept = list(epochs)
    if len(kept) <= count_max:
        return kept, joined
    kept = _drop_empty(kept)
    if len(kept) > count_max:
        first, last = kept[0], kept[len(kept) - count_max]
        doubts = [item.unsure for item in kept if item.epoch <= last.epoch and item.unsure >= 0]
        joined = last.epoch
        kept = [Epoch(joined, first.start, min(doubts, default=-1)), *kept[len(kept) - count_max + 1 :]]
    return kept, joined


def _drop_empty(epochs: list[Epoch]) -> list[Epoch]:
    """The list without masterships that wrote nothing, but for the last; their doubts are those of the next one."""
    kept: list[Epoch] = []
    doubt = -1
    for item, following in zip(epochs, [*epochs[1:], None], strict=True):
        doubts = [each for each in (doubt, item.unsure) if each >= 0]
        if following is not None and following.start == item.start:
            doubt = min(doubts, default=-1)
            continue
        kept.append(Epoch(item.epoch, item.start, min(doubts, default=-1)))
        doubt = -1
    return kept

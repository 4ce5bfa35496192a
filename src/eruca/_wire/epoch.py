"""A mastership, as stored, sent over links, and compared by `core.replication.epochs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eruca._ground.limits import EPOCH_MAX


class Epoch(NamedTuple):
    """A mastership: its number, and the position in the log it began at."""

    epoch: int
    start: int
    #: The master had restarted after a crash, and from here on its log may differ from earlier copies; -1: it does not.
    unsure: int = -1


def is_epoch(number: int) -> bool:
    """Can a number be that of a mastership? A number beyond the bound was made up."""
    return 0 <= number <= EPOCH_MAX


def join_oldest(epochs: Sequence[Epoch], joined: int, count_max: int) -> tuple[list[Epoch], int]:
    """Keep a list short; returns the list, and the last mastership that was joined with earlier ones.

    Masterships that wrote nothing are dropped first: no position is theirs. Then the oldest ones are joined into one,
    with the number of the last of them. A divergence inside that part is no longer visible in the lists, but only by
    comparing bytes, which is done before every cut.
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
    """The list without masterships that wrote nothing, except the last; the next one inherits their doubts."""
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

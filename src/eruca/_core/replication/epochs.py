"""Which master wrote which part of a log: a list of masterships, so that two logs are compared without reading them.

Every mastership has its own number, higher than all before, and begins where the log ended. A position in two logs
holds the same byte if the same mastership wrote it and everything before it is the same: a master writes each position
once. Where the lists first name different writers, the logs diverge.

    mine    | 0 ......... | 1 ......... | 1000 ..... | 1001 .. |          1001 is a mastership they do not know
    theirs  | 0 ......... | 1 ......... | 1000 ..... | 2000 .............. |
                                                     ^ the common end
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eruca._wire.epoch import Epoch, is_epoch

__all__ = ["Epoch", "drop_unwritten", "find_common_end", "is_epoch", "last_epoch"]

# Written before epochs existed, by a Java master for example.
_BEFORE_ALL: Final = Epoch(0, 0)


def last_epoch(epochs: Sequence[Epoch]) -> int:
    """The number of the last mastership; 0 when there was none."""
    return epochs[-1].epoch if epochs else 0


def drop_unwritten(epochs: Sequence[Epoch], tail: int) -> tuple[Epoch, ...]:
    """The masterships that a log ending at `tail` can contain: later ones have written nothing yet."""
    return tuple(known for known in epochs if known.start <= tail)


def find_common_end(
    mine: Sequence[Epoch], my_tail: int, theirs: Sequence[Epoch], their_tail: int, *, joined: int = 0
) -> int:
    """The position up to which two logs are the same; masterships up to `joined` count as one."""
    my_parts, their_parts = _list_parts(mine, my_tail, joined), _list_parts(theirs, their_tail, joined)
    for my_part, their_part in zip(my_parts, their_parts, strict=False):
        if my_part != their_part:
            (my_epoch, my_start, my_end), (their_epoch, their_start, their_end) = my_part, their_part
            # All earlier parts were equal, so both begin at the same place.
            assert my_start == their_start
            return min(my_end, their_end) if my_epoch == their_epoch else my_start
    return min(my_tail, their_tail)


def _list_parts(epochs: Sequence[Epoch], tail: int, joined: int) -> list[tuple[int, int, int]]:
    """Return (mastership, start, end) of every part of a log that has bytes, in order."""
    known = drop_unwritten(epochs, tail)
    if not known or known[0].start > 0:
        known = (_BEFORE_ALL, *known)
    if joined:
        known = (Epoch(joined, 0), *(item for item in known if item.epoch > joined))
    ends = [*(following.start for following in known[1:]), tail]
    return [(part.epoch, part.start, end) for part, end in zip(known, ends, strict=True) if part.start < end]

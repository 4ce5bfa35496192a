"""Whether two logs belong to one store: checked before a broker follows another one, or cuts anything.

Every store counts its epochs from one, so two lists of epochs may look alike although no byte is the same: for example
two brokers of different installations with the same (default) name. Every store therefore has an identity, which its
first master assigns and every slave takes over with the log. And before another log has any effect, bytes of the part
that both should have are compared.

A store from before there were identities gets one when it is next the master. Two members can do so without knowing of
each other, so an identity assigned to a log that already had bytes proves less: then the bytes decide.

    identities           | bytes of the common part   | the other one is
    ---------------------+----------------------------+----------------------------------------------
    any                  | differ                     | a stranger
    any, and no log here | -                          | EMPTY: there is nothing to lose
    the same             | alike, or none to compare  | SAME
    one or both came     | alike                      | SAME: they were one store before
      later than the log |                            |
    none on either side  | cannot be requested        | UNPROVEN: an older version; it may be copied from,
                         |                            |   but nothing is cut for it
    anything else        |                            | a stranger
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from eruca._core.replication.epochs import Epoch, find_common_end, last_epoch
from eruca._ground.limits import HA_CHECK_BYTES_MAX


class Kinship(Enum):
    """How another broker's log is related to our own."""

    SAME = "it belongs to the same store"
    EMPTY = "this broker has no log"
    UNPROVEN = "it is an older version, which does not report its store"
    STRANGER = "it belongs to another store"


@dataclass(frozen=True, slots=True)
class History:
    """A log and its writers, as reported by its broker."""

    #: The identity of the store; empty when it has none yet.
    store_id: str
    #: Where the log ended when the identity was assigned: 0 for a store that was new then.
    given_at: int
    epochs: Sequence[Epoch]
    #: Masterships up to this one are joined into one entry of the list.
    joined: int
    start: int
    tail: int
    #: From here on a crash may have changed the log; -1 when there was none.
    unsure: int = -1

    @property
    def may_be_older(self) -> bool:
        """May the log be older than its identity?"""
        return not self.store_id or self.given_at > 0


def find_common(mine: History, theirs: History) -> int:
    """The position up to which two logs are the same according to their lists of epochs."""
    joined = max(mine.joined, theirs.joined)
    return find_common_end(mine.epochs, mine.tail, theirs.epochs, theirs.tail, joined=joined)


def choose_check(mine: History, theirs: History) -> tuple[int, int]:
    """The part whose bytes are compared: the last one that must be equal; (0, 0) when there is none."""
    followed = last_epoch(mine.epochs)
    doubts = [item.unsure for item in theirs.epochs if item.epoch > followed and item.unsure >= 0]
    if mine.unsure >= 0:
        doubts.append(mine.unsure)
    end = min([find_common(mine, theirs), *doubts])
    begin = max(end - HA_CHECK_BYTES_MAX, mine.start, theirs.start)
    return (begin, end) if begin < end else (0, 0)


def judge_kinship(mine: History, theirs: History, is_alike: bool | None) -> Kinship:
    """How another log is related to our own, given whether the chosen bytes are equal (None: there were none)."""
    if is_alike is False:
        return Kinship.STRANGER
    if mine.store_id and mine.store_id == theirs.store_id:
        return Kinship.SAME
    if mine.tail == 0:
        return Kinship.EMPTY
    if is_alike and mine.may_be_older and theirs.may_be_older:
        return Kinship.SAME
    return Kinship.STRANGER if mine.store_id or theirs.store_id else Kinship.UNPROVEN

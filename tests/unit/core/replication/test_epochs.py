"""Epochs: where two logs part is found without reading them, whatever their masters went through."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import takewhile

import pytest

from eruca._core.replication.epochs import Epoch, drop_unwritten, find_common_end, last_epoch
from eruca._core.replication.numbering import count_promotion, count_restart, count_start
from eruca._store.lineage.replicationstate import begin_epoch
from eruca.errors import StoreError

A = (Epoch(1, 0), Epoch(1000, 50), Epoch(2000, 80))


@pytest.mark.parametrize(
    ("mine", "my_tail", "theirs", "their_tail", "end"),
    [
        # The same log, one longer than the other.
        (A, 100, A, 100, 100),
        (A, 90, A, 100, 90),
        (A, 60, A, 100, 60),
        (A, 100, A, 60, 60),
        (A, 0, A, 100, 0),
        # No epochs yet: nothing distinguishes the logs.
        ((), 30, (), 50, 30),
        ((), 30, A, 100, 0),
        ((Epoch(5, 20),), 30, (), 50, 20),
        ((Epoch(0, 0), Epoch(5, 20)), 30, (Epoch(5, 20),), 50, 30),
        # A mastership that only one of them knows, with bytes and without.
        (A, 100, A[:2], 90, 80),
        (A, 80, A[:2], 90, 80),
        (A, 80, A[:2], 70, 70),
        (A, 100, (*A[:2], Epoch(3000, 80)), 100, 80),
        (A, 100, (*A[:2], Epoch(3000, 60)), 100, 60),
        (A, 100, (*A[:2], Epoch(3000, 95)), 100, 80),
        # Masterships that wrote nothing make no difference.
        ((Epoch(1, 0), Epoch(2, 50), Epoch(1000, 50)), 70, (Epoch(1, 0), Epoch(1000, 50)), 90, 70),
        # What began behind the end of a log is not there yet.
        ((*A, Epoch(3000, 200)), 100, (*A, Epoch(4000, 150)), 120, 100),
        # The same number for two masterships: it cannot be, and what is before both is still the same.
        ((Epoch(1, 0), Epoch(2, 50)), 90, (Epoch(1, 0), Epoch(2, 70)), 90, 50),
    ],
)
def test_common_end(
    mine: tuple[Epoch, ...], my_tail: int, theirs: tuple[Epoch, ...], their_tail: int, end: int
) -> None:
    assert find_common_end(mine, my_tail, theirs, their_tail) == end
    assert find_common_end(theirs, their_tail, mine, my_tail) == end


def test_a_mastership_begins_at_the_end() -> None:
    assert begin_epoch((), 0, 1) == [Epoch(1, 0)]
    assert begin_epoch(A, 100, 3000) == [*A, Epoch(3000, 100)]
    # The one before wrote nothing: it stays, as it was announced.
    assert begin_epoch(A, 80, 3000) == [*A, Epoch(3000, 80)]
    # What this log never got of it is not its history.
    assert begin_epoch(A, 60, 3000) == [*A[:2], Epoch(3000, 60)]
    for epoch in (0, 1, 2000):
        with pytest.raises(StoreError, match=f"epoch {epoch} cannot begin"):
            begin_epoch(A, 100, epoch)
        # Also one of which it got nothing was announced, and its number is taken.
        with pytest.raises(StoreError, match=f"epoch {epoch} cannot begin"):
            begin_epoch(A, 60, epoch)


def test_last_and_unwritten() -> None:
    assert (last_epoch(()), last_epoch(A)) == (0, 2000)
    assert drop_unwritten(A, 79) == A[:2]
    assert drop_unwritten(A, 80) == A


def test_members_that_hear_nothing_of_each_other_take_different_numbers() -> None:
    seen = 2003
    numbers = [count_promotion(seen, member) for member in range(10)]
    restarts = [number for first in numbers for number in (first, first + 1, first + 50)]
    assert len({*restarts}) == len(restarts)
    assert min(numbers) > seen
    assert count_restart(seen) not in numbers
    assert [count_promotion(0), count_promotion(999), count_promotion(1000)] == [1000, 1000, 2000]


def test_a_slave_that_starts_as_a_master_is_promoted() -> None:
    assert count_start(0, 0) == 1
    assert count_start(5, 5) == 6
    assert count_start(5, 0, member=2) == 1200
    assert count_start(2000, 1003) == 3000


# --- histories ------------------------------------------------------------------------------------------------------


@dataclass
class Member:
    """A broker as far as epochs go; every byte of its log is one of a kind, so that logs can really be compared."""

    number: int
    log: list[int] = field(default_factory=list)
    epochs: tuple[Epoch, ...] = ()
    seen: int = 0
    led: int = 0
    leads: bool = False

    @property
    def tail(self) -> int:
        return len(self.log)

    def restart(self, lost: int) -> None:
        """Start as the master, perhaps by a changed configuration, after a crash that cost the end of the log."""
        del self.log[max(0, self.tail - lost) :]
        self.lead(count_start(self.seen, self.led, self.number))

    def lead(self, epoch: int) -> None:
        self.epochs = tuple(begin_epoch(self.epochs, self.tail, epoch))
        self.seen = self.led = epoch
        self.leads = True

    def follow(self, master: Member, count: int) -> bool:
        """Copy some bytes from a master; returns whether it is followed."""
        if last_epoch(master.epochs) < self.seen:
            return False
        self.leads = False
        del self.log[find_common_end(self.epochs, self.tail, master.epochs, master.tail) :]
        self.epochs = master.epochs
        self.seen = last_epoch(master.epochs)
        self.log += master.log[self.tail : self.tail + count]
        return True


def count_common(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@pytest.mark.parametrize("seed", range(60))
def test_the_common_end_is_where_the_bytes_part(seed: int) -> None:
    source = random.Random(seed)
    members = [Member(number) for number in range(3)]
    members[0].lead(1)
    for slave in members[1:]:
        slave.follow(members[0], 0)
    next_byte = 0
    followed = parted = 0
    for _ in range(300):
        member = source.choice(members)
        match source.randrange(10):
            case 0:
                member.restart(source.choice((0, 0, 1, 5)))
            case 1:
                member.lead(count_promotion(member.seen, member.number))
            case 2 | 3 | 4 if member.leads:
                size = source.randint(1, 6)
                member.log += range(next_byte, next_byte + size)
                next_byte += size
            case 5 | 6 | 7 | 8:
                master = source.choice(members)
                if master.leads and master is not member:
                    followed += member.follow(master, source.choice((0, 2, 5, 1000)))
            case _:
                pass
        for one in members:
            for other in members:
                end = find_common_end(one.epochs, one.tail, other.epochs, other.tail)
                assert end == count_common(one.log, other.log), (one, other)
                parted += end < min(one.tail, other.tail)
    assert followed
    assert parted

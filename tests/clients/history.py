"""What a group was given while its members came, went and crashed, and what must hold for it.

A test enters every change of membership here, with the owners of the queues when the group was at rest again, and in
the end asks three things: is anything lost, does every repetition have its reason in a change, and did any key go
backwards. Messages are known by their bodies, which a test makes different; for the order of keys they are `KEY:NUMBER`
with the numbers 0, 1, 2 ... of each key in the order in which they were stored.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from eruca._wire.bodies import MessageQueue
from tests.clients.members import Delivery, Member, Owners, poll

# How much of a list a failure shows.
SHOWN_MAX = 20

# When each member began with something new of each queue.
Progress = dict[tuple[str, MessageQueue], list[int]]


@dataclass
class Change:
    """A change of membership, from before anything was done until the group was at rest again."""

    what: str
    began_ns: int
    before: Owners
    after: Owners = field(default_factory=dict)
    settled_ns: int = 0

    def settle(self, owners: Owners) -> None:
        """Enter who owns what now that the group is at rest."""
        self.after = owners
        self.settled_ns = time.monotonic_ns()

    def moves(self, queue: MessageQueue) -> bool:
        """Whether a queue has another owner after the change than before."""
        return self.before.get(queue) != self.after.get(queue)


@dataclass(frozen=True)
class Duplicate:
    """A message that came again, with the delivery before it and the change that explains it, if one does."""

    earlier: Delivery
    again: Delivery
    change: Change | None


class History:
    """The members and changes of one group, and what follows from their deliveries.

    `commit_seconds` is the longest time from the end of a handler until the broker has the offset: the interval of
    commits, plus the longest a handler works (a slow message holds back the offset of those behind it), plus what a
    busy machine adds. `catch_up_seconds` is the longest a new owner takes to get past what it was given again, once the
    group is at rest and the owner has begun with something that nobody was given before.
    """

    def __init__(self, *, commit_seconds: float, catch_up_seconds: float) -> None:
        self.changes: list[Change] = []
        self._members: dict[str, Member] = {}
        self._owners: Owners = {}
        self._commit_ns = round(commit_seconds * 1e9)
        self._catch_up_ns = round(catch_up_seconds * 1e9)

    def add(self, member: Member) -> None:
        """Take a member in; what it was given counts also when it has ended."""
        assert member.name not in self._members, f"there was a member {member.name} already"
        self._members[member.name] = member

    @contextmanager
    def change(self, what: str) -> Iterator[Change]:
        """Enter a change: in the block it is made, and settled when the group is at rest."""
        change = Change(what, time.monotonic_ns(), self._owners)
        yield change
        assert change.settled_ns, f"{what}: the block has not said who owns what"
        self._owners = change.after
        self.changes.append(change)

    def gather(self) -> list[Delivery]:
        """All deliveries so far, in the order in which handlers began."""
        deliveries = [delivery for member in self._members.values() for delivery in member.consumed()]
        return sorted(deliveries, key=lambda delivery: delivery.began_ns)

    def wait_until_consumed(self, sent: Iterable[str], seconds: float) -> None:
        """Wait until handlers are done with everything that was sent."""
        wanted = set(sent)
        for _ in poll(seconds):
            lost = find_lost(self.gather(), wanted)
            if not lost:
                return
        raise AssertionError(f"after {seconds} s {_show('still not consumed', lost)}")

    def wait_for_more(self, count: int, seconds: float, most: int = 0) -> None:
        """Wait until handlers started this many more times, so that a change comes while the group is at work.

        If no more than `most` messages are sent, waiting ends when all of them have been delivered.
        """
        before = len(self.gather())
        for _ in poll(seconds):
            deliveries = self.gather()
            more = len(deliveries) - before
            if more >= count or 0 < most <= len({delivery.body for delivery in deliveries}):
                return
        raise AssertionError(f"only {more} more deliveries in {seconds} s, not {count}")

    def check(self, sent: Iterable[str]) -> Counter[str]:
        """Assert that nothing is lost, nothing made up, and every repetition explained; returns them by change."""
        deliveries = self.gather()
        wanted = set(sent)
        lost = find_lost(deliveries, wanted)
        assert not lost, _show("lost", lost)
        strays = sorted({delivery.body for delivery in deliveries} - wanted)
        assert not strays, _show("never sent", strays)
        duplicates = self.find_duplicates()
        unexplained = [self._describe(duplicate) for duplicate in duplicates if duplicate.change is None]
        assert not unexplained, _show("came again without a reason", unexplained)
        return Counter(duplicate.change.what for duplicate in duplicates if duplicate.change)

    def check_order(self) -> None:
        """Assert that no key went backwards (`find_disorder`)."""
        faults = find_disorder(self.gather())
        assert not faults, _show("out of order", faults)

    def check_exclusive(self) -> None:
        """Assert that no two members worked on a queue at once, and that only what a killed member had comes again."""
        deliveries = self.gather()
        faults = find_overlaps(deliveries)
        assert not faults, _show("two members at work on one queue", faults)
        killed = {change.what.split()[-2] for change in self.changes if change.what.endswith(" crashes")}
        again = [self._describe(found) for found in self.find_duplicates() if found.earlier.member not in killed]
        assert not again, _show("came again although its member was not killed", again)

    def find_duplicates(self) -> list[Duplicate]:
        """Every delivery of a message but its first, each with the one before it and the change that explains it.

        A message comes again when its queue goes to another owner before the broker has the offset behind it. So a
        change explains a repetition if all of this holds, and nothing else does:

        - the queue has another owner after the change than before it;
        - the earlier handler was at work when the change began, or later, or was done so shortly before that the offset
          may not have been committed (`commit_seconds`);
        - the later handler began after the change began, and before the new owner must have caught up
          (`catch_up_seconds` after the group was at rest and the owner has begun with something new).
        """
        deliveries = self.gather()
        progress = find_progress(deliveries)
        earlier: dict[str, Delivery] = {}
        duplicates = []
        for delivery in deliveries:
            before = earlier.get(delivery.body)
            if before is not None:
                duplicates.append(Duplicate(before, delivery, self._explain(before, delivery, progress)))
            earlier[delivery.body] = delivery
        return duplicates

    def wait_for_quiet(self, share: float, seconds: float) -> None:
        """Wait until this share of all deliveries is far from any change (`count_quiet`)."""
        quiet = count = 0
        for _ in poll(seconds):
            quiet, count = self.count_quiet(), len(self.gather())
            if quiet > share * count:
                return
        raise AssertionError(f"only {quiet} of {count} deliveries are far from any change after {seconds} s")

    def count_quiet(self) -> int:
        """How many deliveries were so far from any change that none would explain it if they came again.

        The more there are, the more it means that nothing was repeated without a reason.
        """
        deliveries = self.gather()
        progress = find_progress(deliveries)
        queues = {delivery.queue for delivery in deliveries}
        excused = {
            queue: [(change.began_ns, self._find_end(change, queue, progress)) for change in self.changes]
            for queue in queues
        }
        return sum(
            not any(began <= delivery.began_ns <= end for began, end in excused[delivery.queue])
            for delivery in deliveries
        )

    def _find_end(self, change: Change, queue: MessageQueue, progress: Progress) -> float:
        """Until when a change explains repetitions of a queue."""
        begun = progress.get((change.after.get(queue, ""), queue), [])
        at = bisect_left(begun, change.settled_ns)
        return begun[at] + self._catch_up_ns if at < len(begun) else math.inf

    def _explain(self, earlier: Delivery, again: Delivery, progress: Progress) -> Change | None:
        # The last that does: where two follow each other closely, it is the one that caused the repetition.
        for change in reversed(self.changes):
            unsafe = earlier.done_ns is None or earlier.done_ns >= change.began_ns - self._commit_ns
            near = change.began_ns <= again.began_ns <= self._find_end(change, earlier.queue, progress)
            if change.moves(earlier.queue) and unsafe and near:
                return change
        return None

    def _describe(self, duplicate: Duplicate) -> str:
        """A repetition and the changes beside it, in seconds after the first change."""
        start = self.changes[0].began_ns if self.changes else duplicate.earlier.began_ns
        first, again = duplicate.earlier, duplicate.again

        def tell(at_ns: int | None) -> str:
            return "never" if at_ns is None else f"{(at_ns - start) / 1e9:.3f}"

        beside = [
            f"{change.what} {tell(change.began_ns)}-{tell(change.settled_ns)}"
            + ("" if change.moves(first.queue) else " (queue stayed)")
            for number, change in enumerate(self.changes)
            if change.began_ns <= again.began_ns
            and (number + 1 == len(self.changes) or self.changes[number + 1].settled_ns >= first.began_ns)
        ]
        return (
            f"{first.body} of queue {first.queue.queue_id} at offset {first.offset}: "
            f"{first.member} {tell(first.began_ns)}-{tell(first.done_ns)}, "
            f"again {again.member} {tell(again.began_ns)}-{tell(again.done_ns)} at offset {again.offset} "
            f"for the {again.reconsume_times + 1}. time; changes: {', '.join(beside) or 'none'}"
        )


def find_progress(deliveries: Iterable[Delivery]) -> Progress:
    """When each member began with messages of each queue that nobody was given before. Deliveries are in order."""
    progress: Progress = defaultdict(list)
    seen: set[str] = set()
    for delivery in deliveries:
        if delivery.body not in seen:
            seen.add(delivery.body)
            progress[delivery.member, delivery.queue].append(delivery.began_ns)
    return progress


def find_lost(deliveries: Iterable[Delivery], sent: Iterable[str]) -> list[str]:
    """What was sent and no handler finished; a handler that was killed at it does not count."""
    return sorted(set(sent) - {delivery.body for delivery in deliveries if delivery.done_ns is not None})


def find_disorder(deliveries: Sequence[Delivery]) -> list[str]:
    """Where the order of a key was broken. Deliveries are in the order in which handlers began, bodies `KEY:NUMBER`.

    For each key these hold, and make "never inverted" exact:

    1. A delivery has at most the number behind the one delivered just before (the first is number 0). So numbers come
       for the first time in increasing order and none is passed over; and whoever goes back to a number goes on from
       there one by one, so that what is repeated is always the end of what was delivered so far.
    2. The last delivery has the highest number: a repetition goes through to the end.
    3. A handler begins when the one before it is done. One that was killed at its work is done by that.
    """
    by_key: dict[str, list[tuple[int, Delivery]]] = defaultdict(list)
    for delivery in deliveries:
        key, _, text = delivery.body.rpartition(":")
        by_key[key].append((int(text), delivery))
    faults = []
    for key, rows in by_key.items():
        highest = max(number for number, _ in rows)
        before = -1
        done_ns = 0
        by = "nobody"
        for number, delivery in rows:
            if number > before + 1:
                faults.append(f"{key}: {delivery.member} was given {number} after {before} went to {by}")
            if delivery.began_ns < done_ns:
                faults.append(f"{key}: {delivery.member} began with {number} while {by} was at {before}")
            before, by, done_ns = number, delivery.member, delivery.done_ns or 0
        if before != highest:
            faults.append(f"{key}: ends with {before}, but {highest} was delivered before")
    return faults


def find_overlaps(deliveries: Iterable[Delivery]) -> list[str]:
    """Where a handler began while one of another member was at work on the same queue. One that was killed is done."""
    faults = []
    last: dict[MessageQueue, dict[str, Delivery]] = defaultdict(dict)
    for delivery in deliveries:
        for name, other in last[delivery.queue].items():
            if name != delivery.member and delivery.began_ns < (other.done_ns or 0):
                faults.append(
                    f"queue {delivery.queue.queue_id}: {delivery.body} at {delivery.member}, {other.body} at {name}"
                )
        longest = last[delivery.queue].get(delivery.member)
        if longest is None or (longest.done_ns or 0) < (delivery.done_ns or 0):
            last[delivery.queue][delivery.member] = delivery
    return faults


def _show(what: str, items: Sequence[str]) -> str:
    more = f"\n... and {len(items) - SHOWN_MAX} more" if len(items) > SHOWN_MAX else ""
    return f"{what}: {len(items)}\n" + "\n".join(items[:SHOWN_MAX]) + more

"""A group whose members come, leave and crash while messages flow, and what must hold after each change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from eruca._wire.bodies import MessageQueue
from tests.clients.history import History
from tests.clients.members import Member, wait_for_owners
from tests.patience import PATIENCE_S

# Starts a member with this name and its settings.
Start = Callable[[str], Member]

REST_SECONDS_MAX = PATIENCE_S
MEMBERS_MIN = 2


class Churn:
    """A group with a place for each member; a change fills an empty place or empties one, by a clean end or a crash.

    `places` says for each place what it is called (`java`, `python`) and how a member for it is started. All are filled
    in the first change. Whatever happens, the group comes to rest with exactly one owner for each queue, or the change
    fails. The history is asked before this is left: members that end then are changes that nobody enters.
    """

    def __init__(
        self, places: Sequence[tuple[str, Start]], queues: Iterable[MessageQueue], history: History, seed: int
    ) -> None:
        self.history = history
        self.kinds: Counter[str] = Counter()
        self._places = places
        self._queues = frozenset(queues)
        self._random = random.Random(seed)
        self._members: dict[int, Member] = {}
        self._started = 0

    def fill(self) -> None:
        """Start a member in every place."""
        with self.history.change("all join") as change:
            for place in range(len(self._places)):
                self._join(place)
            change.settle(wait_for_owners(list(self._members.values()), self._queues, REST_SECONDS_MAX))

    def change(self) -> str:
        """Make one change, drawn by the seed, and wait for the group to be at rest; returns what it was."""
        place, kind = self._draw()
        name = self._members[place].name if place in self._members else f"a {self._places[place][0]} member"
        what = f"{len(self.history.changes)}. {name} {kind}"
        with self.history.change(what) as change:
            if kind == "joins":
                self._join(place)
            elif kind == "leaves":
                self._members.pop(place).stop()
            else:
                self._members.pop(place).kill()
            change.settle(wait_for_owners(list(self._members.values()), self._queues, REST_SECONDS_MAX))
        self.kinds[f"{self._places[place][0]} {kind}"] += 1
        return what

    def _draw(self) -> tuple[int, str]:
        empty = [place for place in range(len(self._places)) if place not in self._members]
        joins = bool(empty) and (len(self._members) <= MEMBERS_MIN or self._random.random() < 0.5)
        if joins:
            return self._random.choice(empty), "joins"
        return self._random.choice(sorted(self._members)), self._random.choice(["leaves", "crashes"])

    def _join(self, place: int) -> None:
        kind, start = self._places[place]
        self._started += 1
        member = start(f"{kind}{self._started}")
        self._members[place] = member
        self.history.add(member)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for member in self._members.values():
                stack.callback(member.kill)

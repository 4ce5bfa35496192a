"""A breadth-first walk through all states of one side of a link, with a check at every step."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar


class Machine(Protocol):
    """One side of a link."""

    @property
    def state(self) -> Enum: ...

    def handle(self, event: Any, now: float) -> list[Any]: ...


MachineT = TypeVar("MachineT", bound=Machine)
EventT = TypeVar("EventT")


@dataclass
class Reached(ABC, Generic[MachineT, EventT]):
    """A state that was reached, and how that happened."""

    link: MachineT
    now: float = 0.0
    path: tuple[tuple[float, EventT], ...] = ()

    @abstractmethod
    def note(self, event: EventT) -> None:
        """Remember what an event implies about the world outside the machine."""

    @abstractmethod
    def fingerprint(self) -> tuple[object, ...]:
        """What distinguishes two states; times count by their age."""


SeenT = TypeVar("SeenT", bound=Reached[Any, Any])


def explore(
    first: SeenT, steps: Sequence[tuple[float, EventT]], depth: int
) -> Iterator[tuple[SeenT, EventT, list[Any], SeenT, bool]]:
    """Walk through all states that a number of events leads to; returns for each step whether it reached a new one."""
    known = {first.fingerprint()}
    waiting = deque([first])
    while waiting:
        before = waiting.popleft()
        for pause, event in steps:
            link = copy.copy(before.link)
            now = before.now + pause
            actions = link.handle(event, now)
            after = replace(before, link=link, now=now, path=(*before.path, (now, event)))
            after.note(event)
            mark = after.fingerprint()
            is_new = mark not in known
            yield before, event, actions, after, is_new
            if is_new:
                known.add(mark)
                if len(after.path) < depth:
                    waiting.append(after)


@dataclass
class Walk:
    """What a walk came through."""

    states: int
    transitions: int
    # Which kinds of event were handled in which states.
    met: set[tuple[Enum, type]]


def check_all(
    first: SeenT,
    steps: Sequence[tuple[float, EventT]],
    depth: int,
    *,
    check_step: Callable[[SeenT, EventT, list[Any], SeenT], None],
    check_time: Callable[[SeenT], None],
) -> Walk:
    """Check every step, and once in every state what time does to it."""
    walk = Walk(0, 0, set())
    for before, event, actions, after, is_new in explore(first, steps, depth):
        walk.states += is_new
        walk.transitions += 1
        try:
            check_step(before, event, actions, after)
            if is_new:
                check_time(after)
        except AssertionError as error:
            raise AssertionError(f"{after.path} gave {actions}") from error
        walk.met.add((before.link.state, type(event)))
    return walk

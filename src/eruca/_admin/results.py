"""What the answers of all parts of the admin API have in common: lists that may be cut, problems, changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from eruca._ground.times import from_epoch_ms

Item = TypeVar("Item")
Facts = TypeVar("Facts")

#: How many rows a list has unless the caller asks for more.
LIMIT = 1000


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A server that did not answer, or refused. The other servers are in the result all the same."""

    # The name of a broker, or the address of a name server.
    where: str
    error: str
    address: str = ""
    hint: str = ""


class Listed(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """Rows, and whether there are more than the limit."""

    items: list[Item]
    cut: bool = False
    problems: list[Problem] = []


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """A call that restores what a change has replaced: `Undo("topics.delete", {"topic": "orders"})`."""

    # The part and the method of `Admin`.
    method: str
    arguments: dict[str, Any]
    # What it does not bring back: `without its messages`. Empty if it restores everything.
    lacks: str = ""


class Change(msgspec.Struct, Generic[Facts], frozen=True, kw_only=True):
    """A change on one server: the facts before and after it; None where there is nothing."""

    # The name of a broker, or the address of a server.
    where: str
    before: Facts | None
    after: Facts | None
    # `done`, `unchanged` (it was like that before), `planned` (with dry_run) or `failed`. `reason` says why it failed,
    # or what it would do if there are no facts to compare.
    outcome: str
    reason: str = ""


class Changed(msgspec.Struct, Generic[Facts], frozen=True, kw_only=True):
    """The outcome of a change on each server, and the calls that undo it, in their order; none if there is no way."""

    # What was changed: the name of the topic, group, option or key.
    name: str
    changes: list[Change[Facts]]
    undo: list[Undo] = []
    # What becomes of messages because of it: `broker-a: 7 messages in queues 1 to 3 are out of reach of consumers`.
    warnings: list[str] = []

    @property
    def failed(self) -> bool:
        """Whether it failed on any server."""
        return any(change.outcome == "failed" for change in self.changes)


def cut_list(rows: Sequence[Item], limit: int, problems: Iterable[Problem] = (), *, more: bool = False) -> Listed[Item]:
    """Return the first rows; `more`: the caller knows that there are others."""
    return Listed(items=list(rows[:limit]), cut=more or len(rows) > limit, problems=list(problems))


def fail_silent(problems: Iterable[Problem]) -> list[Change[Any]]:
    """Return a failed change for each server that did not answer when it was asked how it is now."""
    return [Change(where=each.where, before=None, after=None, outcome="failed", reason=each.error) for each in problems]


def name_outcome(before: object, after: object, *, dry_run: bool) -> str:
    """Return the outcome of a change that works."""
    if before == after:
        return "unchanged"
    return "planned" if dry_run else "done"


def read_time(time_ms: int) -> datetime | None:
    """Return a time that a server reports in milliseconds; None for 0 or less, which mean that there is none."""
    return from_epoch_ms(time_ms) if time_ms > 0 else None

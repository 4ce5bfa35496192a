"""Alarm rules, and the facts of a look that they are about."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from eruca._console.watching.samples import Sample


class RuleKind(StrEnum):
    """What a rule watches."""

    # Messages that wait for a group.
    LAG = "lag"
    # Seconds that the oldest of them has been waiting.
    AGE = "age"
    # Seconds that a queue has not moved although messages wait.
    STUCK = "stuck"
    # Percent of a broker's disk.
    DISK = "disk"
    # Seconds that a slave is behind its master.
    REPLICATION = "replication"
    # Seconds since a broker answered.
    BROKER = "broker"


#: The kinds whose targets are groups, with rights by prefix.
OF_GROUPS: Final = frozenset({RuleKind.LAG, RuleKind.AGE, RuleKind.STUCK})
#: What a threshold counts.
UNITS: Final = {
    RuleKind.LAG: "messages",
    RuleKind.AGE: "seconds",
    RuleKind.STUCK: "seconds",
    RuleKind.DISK: "percent",
    RuleKind.REPLICATION: "seconds",
    RuleKind.BROKER: "seconds",
}
# A slave that is not connected is behind by an unknown time, which is more than any threshold.
_DISCONNECTED_S: Final = 1e9


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm rule."""

    id: int
    name: str
    kind: RuleKind
    # Only this cluster; empty: all.
    cluster: str = ""
    # Only groups, brokers or slaves whose names begin like this.
    prefix: str = ""
    # It fires from this value on,
    threshold: float
    # when it has been reached for this long, in seconds.
    duration: float = 0.0
    # The channels that are told.
    channels: tuple[int, ...] = ()
    enabled: bool = True

    def covers(self, cluster: str, target: str) -> bool:
        """Whether a target is one of this rule."""
        return self.enabled and self.cluster in ("", cluster) and target.startswith(self.prefix)


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A value of one target at one look."""

    kind: RuleKind
    # The name of a group, broker or slave.
    target: str
    value: float
    # It is at least this value: the watch began later, or nothing is known.
    is_minimum: bool = False
    # What else is known, in words.
    detail: str = ""


def list_facts(sample: Sample) -> Iterator[Fact]:
    """Yield the facts of a look."""
    for group in sample.groups.values():
        yield Fact(kind=RuleKind.LAG, target=group.group, value=group.lag, detail=", ".join(group.topics))
        is_unknown = bool(group.lag) and group.age is None
        yield Fact(kind=RuleKind.AGE, target=group.group, value=round(group.age or 0.0, 1), is_minimum=is_unknown)
        still = group.still
        if still is None:
            yield Fact(kind=RuleKind.STUCK, target=group.group, value=0.0)
        else:
            yield Fact(
                kind=RuleKind.STUCK,
                target=group.group,
                value=still.seconds,
                is_minimum=still.is_minimum,
                detail=still.name,
            )
    for broker in sample.brokers:
        if broker.disk is not None:
            yield Fact(kind=RuleKind.DISK, target=broker.broker, value=round(100 * broker.disk, 1))
        gone = 0.0 if broker.gone_since is None else (sample.at - broker.gone_since).total_seconds()
        yield Fact(kind=RuleKind.BROKER, target=broker.broker, value=round(gone, 1))
    for slave in sample.slaves:
        if not slave.connected:
            yield Fact(
                kind=RuleKind.REPLICATION, target=slave.slave, value=_DISCONNECTED_S, detail="it is not connected"
            )
        else:
            is_unknown, seconds = slave.lag_seconds is None, round(slave.lag_seconds or 0.0, 1)
            yield Fact(kind=RuleKind.REPLICATION, target=slave.slave, value=seconds, is_minimum=is_unknown)


def list_complete(sample: Sample) -> frozenset[RuleKind]:
    """Return the kinds of which a missing target is gone, and not only unseen."""
    complete: set[RuleKind] = set()
    if sample.groups_complete:
        complete |= OF_GROUPS
    if sample.brokers_complete:
        complete |= {RuleKind.BROKER}
    if sample.slaves_complete:
        complete |= {RuleKind.REPLICATION}
    return frozenset(complete)

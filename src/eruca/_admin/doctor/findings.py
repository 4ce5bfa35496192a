"""Findings: what the checks return, how bad they are, and from which values on something is one."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

import msgspec

# A number or a name that supports a finding.
#: One value that a finding is based on.
Fact: TypeAlias = int | float | str | bool | None


class Severity(StrEnum):
    """How bad a finding is."""

    # Worth knowing; nothing is lost or late because of it.
    INFO = "info"
    # Messages are late, or will be late or lost if nobody does anything.
    WARNING = "warning"
    # Messages are lost, refused or stuck now.
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for the mildest; for comparing."""
        return list(Severity).index(self)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    # The name of the check; the guide describes each: `group-stuck`.
    id: str
    severity: Severity
    # One sentence.
    what: str
    # `group billing`, `broker broker-a (10.0.0.1:10911)`, `topic orders`, `cluster`.
    where: str
    evidence: dict[str, Fact] = {}
    # What to do, and the command that does it or shows more; empty if there is none.
    advice: str
    command: str = ""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """From which values on something is a finding. Times are in seconds."""

    # How long the next message of a queue has to wait before a group that does not move is stuck.
    stuck_after: float = 60.0
    # A group without members is a finding from this many waiting messages on.
    absent_lag: int = 1
    # The share of a topic's backlog in one of its queues, and the smallest backlog that is looked at.
    uneven_share: float = 0.8
    uneven_lag: int = 1000
    # A broker that stores this many times the mean of the others, and the total rate that is looked at.
    uneven_brokers: float = 3.0
    uneven_rate: float = 10.0
    # How much of the retention time a message may wait.
    expiring_share: float = 0.8
    # Dead letters younger than this are growing in number.
    growing_within: float = 3600.0
    # Producers decide within seconds; brokers ask them after a minute at most.
    half_after: float = 600.0
    slave_lag_bytes: int = 64 << 20
    slave_lag: float = 60.0
    # Clocks of one network differ by milliseconds. Delays and retention use them.
    clock: float = 2.0
    clock_critical: float = 60.0
    # Older Java clients cannot sign requests or trace messages. Other clients count their versions differently.
    client_version: str = "4.4.0"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is looked at, so that an examination of a large cluster ends soon. Findings name what was left out."""

    # Time between the two looks at the offsets of groups, in seconds.
    sample: float = 1.0
    # How long any part of the collection may take, in seconds.
    patience: float = 10.0
    topics: int = 100_000
    groups: int = 20_000
    # Rows of queues with a backlog, over all groups.
    queues: int = 200_000
    # Groups that are looked at closely: each member is asked what it is doing.
    groups_closely: int = 50
    # Groups whose members are asked for their subscriptions, on Java brokers, which do not report differences.
    groups_compared: int = 200
    halves: int = 1000
    # Findings with the same name.
    findings: int = 20


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """The result of looking at a cluster."""

    at: datetime
    # How long it took.
    seconds: float
    # How much was looked at: `brokers`, `topics`, `groups`, `members` and others.
    looked_at: dict[str, int]
    # The worst first.
    findings: list[Finding]
    # What was not looked at, and why.
    left_out: list[str]

    def at_least(self, severity: Severity) -> list[Finding]:
        """Return the findings that are as bad as this, or worse."""
        return [finding for finding in self.findings if finding.severity.rank >= severity.rank]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is late, lost or refused: there may be findings that are only worth knowing."""
        return not self.at_least(Severity.WARNING)

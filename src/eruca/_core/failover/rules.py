"""What a member knows from the start: its identity, and its time limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """Times in seconds."""

    # The part of the lease that a master does not use, as a margin for clock drift.
    margin: float = 0.15
    # How often a lease is renewed.
    keeps: int = 6
    retry_s: float = 0.2
    # How long an election waits for living members that have not published, and when the next candidate may claim.
    election_s: float = 0.3
    takeover_s: float = 0.5
    # The same for a member that has seen no master since its start.
    cold_s: float = 3.0
    # The lag after which a member leaves the in-sync set, and after which the last ones do.
    slave_timeout_s: float = 3.0
    alone_s: float = 6.0
    # How long a member that failed to become the master leaves it to others.
    hold_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a member."""

    member: int
    address: str
    # Was it configured as the master? Then it creates `state` when there is none.
    is_founder: bool

"""What a member knows from the start: who it is, and the times it goes by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """Times in seconds."""

    # Part of the lease that a master does not use: clocks may run differently by so much.
    margin: float = 0.15
    # How often a lease is kept alive while it lives.
    keeps: int = 6
    retry_s: float = 0.2
    # How long an election waits for members that live but have not published, and who is next if nobody claims.
    election_s: float = 0.3
    takeover_s: float = 0.5
    # The same for a member that has seen no master since its start.
    cold_s: float = 3.0
    # After how much lag a member leaves the in-sync set, and when the last ones do.
    slave_timeout_s: float = 3.0
    alone_s: float = 6.0
    # How long a member that could not become the master leaves it to others.
    hold_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a member is."""

    member: int
    address: str
    # Was it configured as the master? It makes `state` when there is none.
    is_founder: bool

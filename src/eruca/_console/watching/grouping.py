"""From the queues of a look to its groups: sums, rates, and what each group is doing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from eruca._console.watching.aging import Aged, measure_rate
from eruca._console.watching.samples import GroupSample, Still, Trend
from eruca._wire.names import RETRY_PREFIX

#: A group whose oldest message has been there for less than this, in seconds, is current.
CURRENT_S: Final = 5.0
#: A queue that does not move for this long, in seconds, is stuck.
STUCK_S: Final = 60.0
_TOPICS_NAMED: Final = 5


def join_groups(aged: Iterable[Aged], elapsed: timedelta | None) -> dict[str, GroupSample]:
    """Return the groups of a look, by name; `elapsed` is the time since the look before."""
    rows: dict[str, list[Aged]] = {}
    for each in aged:
        rows.setdefault(each.row.group, []).append(each)
    return {group: _join(group, own, elapsed) for group, own in rows.items()}


def _join(group: str, rows: Sequence[Aged], elapsed: timedelta | None) -> GroupSample:
    lag = sum(each.row.lag for each in rows)
    still = find_still(rows)
    incoming = outgoing = None
    if elapsed is not None and any(each.incoming is not None for each in rows):
        incoming = measure_rate(sum(each.incoming or 0 for each in rows), elapsed)
        outgoing = measure_rate(sum(each.outgoing or 0 for each in rows), elapsed)
    sample = GroupSample(
        group=group,
        lag=lag,
        age=max((each.age for each in rows if each.age is not None), default=None),
        incoming=incoming,
        outgoing=outgoing,
        queues=len(rows),
        behind=sum(1 for each in rows if each.row.lag),
        topics=tuple(sorted({each.row.topic for each in rows if not each.row.topic.startswith(RETRY_PREFIX)}))[
            :_TOPICS_NAMED
        ],
        still=still,
    )
    return msgspec.structs.replace(sample, trend=find_trend(sample))


def find_still(rows: Iterable[Aged]) -> Still | None:
    """Return the queue that has not moved for longest although messages wait."""
    behind = [each for each in rows if each.row.lag and each.still > 0]
    if not behind:
        return None
    worst = max(behind, key=lambda each: (each.still, each.row.lag))
    return Still(
        topic=worst.row.topic,
        broker=worst.row.broker,
        queue=worst.row.queue,
        seconds=round(worst.still, 1),
        is_minimum=worst.is_minimum,
    )


def find_trend(sample: GroupSample) -> Trend:
    """Return what a group is doing."""
    incoming, outgoing = sample.incoming or 0.0, sample.outgoing or 0.0
    if not sample.lag:
        return Trend.CURRENT if incoming or outgoing else Trend.QUIET
    if sample.members == 0:
        return Trend.ABSENT
    if sample.still is not None and sample.still.seconds >= STUCK_S:
        return Trend.STUCK
    if sample.age is not None and sample.age < CURRENT_S:
        return Trend.CURRENT
    return Trend.CATCHING_UP if outgoing > incoming else Trend.FALLING_BEHIND


def add_members(groups: dict[str, GroupSample], members: Mapping[str, int]) -> None:
    """Add how many members are connected, of groups that were asked about."""
    for name, count in members.items():
        known = msgspec.structs.replace(groups[name], members=count)
        groups[name] = msgspec.structs.replace(known, trend=find_trend(known))

"""Delays: the levels that every broker has, and the timer for any delay, which brokers of 4.x do not have."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

from eruca.client.durations import Duration, to_seconds
from eruca.config import StoreOptions, parse_delay_levels
from eruca.errors import MessageIllegal
from eruca.wire.properties import TIMER_DELAY_MS, TIMER_DELIVER_MS

# The delays every broker of 4.x has unless its messageDelayLevel says otherwise, in milliseconds; level 1 is the first.
DELAY_LEVELS_MS = tuple(parse_delay_levels(StoreOptions().delay_levels))

_INT32_MAX = 2**31 - 1


def choose_level(delay: Duration | None, delay_level: int) -> int:
    """Return the level of a delay; 0 is none. Raises TypeError and MessageIllegal, which name the argument."""
    if isinstance(delay_level, bool) or not isinstance(delay_level, int):
        raise TypeError(f"delay_level must be an int, not {type(delay_level).__name__}: {delay_level!r:.80}")
    if not 0 <= delay_level <= _INT32_MAX:
        raise MessageIllegal(f"delay_level={delay_level}: levels start at 1")
    if delay is None:
        return delay_level
    if delay_level:
        raise MessageIllegal("delay and delay_level are mutually exclusive")
    return find_level(delay)


def find_level(delay: Duration) -> int:
    """Return the level that has this delay. Raises MessageIllegal when no level has."""
    wanted = round(to_seconds("delay", delay) * 1000)
    if wanted == 0:
        return 0
    if wanted in DELAY_LEVELS_MS:
        return DELAY_LEVELS_MS.index(wanted) + 1
    near = [
        str(timedelta(milliseconds=level))
        for level, after in itertools.zip_longest(DELAY_LEVELS_MS, DELAY_LEVELS_MS[1:])
        if level <= wanted and (after is None or wanted < after)
    ] + [str(timedelta(milliseconds=level)) for level in DELAY_LEVELS_MS if level > wanted][:1]
    raise MessageIllegal(
        f"delay={delay}: the broker has no such delay level",
        hint=f"the nearest are {' and '.join(near)}; timer= takes any delay (Eruca and RocketMQ 5)",
    )


def describe_timer(timer: Duration | datetime | None) -> dict[str, str]:
    """Return the property that asks a broker for a delay, or for a time of delivery. Raises MessageIllegal."""
    if timer is None:
        return {}
    if not isinstance(timer, datetime):
        return {TIMER_DELAY_MS: str(round(to_seconds("timer", timer) * 1000))}
    if timer.tzinfo is None:
        raise MessageIllegal(f"timer={timer}: the time has no time zone", hint="datetime.now(UTC) + ... has one")
    return {TIMER_DELIVER_MS: str(max(0, round(timer.timestamp() * 1000)))}

"""When a message that is not done is delivered again: after a delay level of the broker, or after an exact delay."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from eruca._client.produce.outgoing import DELAY_LEVELS_MS
from eruca._ground.durations import Duration, to_ms, to_seconds
from eruca._ground.limits import TIMER_DELAY_SECONDS_MAX
from eruca._wire.properties import RETRY_LEVEL_FIRST
from eruca.errors import ConfigError, WrongType


class Later(NamedTuple):
    """When a message is delivered again."""

    # 0: later each time, as configured or as the broker chooses; below 0: it becomes a dead letter.
    level: int = 0
    # The exact delay, which Eruca brokers keep; others use the level. 0: the level is exact.
    delay_ms: int = 0


LATER = Later()
DEAD = Later(-1)


def make_later(delay: Duration | None, delay_level: int = 0) -> Later:
    """Return when to deliver a message again, as users say it. Raises ConfigError."""
    if isinstance(delay_level, bool) or not isinstance(delay_level, int):
        raise WrongType(f"delay_level={delay_level!r:.80}: expected an int; seconds are delay=")
    if delay_level > len(DELAY_LEVELS_MS):
        raise ConfigError(f"delay_level={delay_level}: must be at most {len(DELAY_LEVELS_MS)}")
    if delay is None:
        return Later(delay_level)
    if delay_level:
        raise ConfigError("delay and delay_level are mutually exclusive", hint="pass one of them")
    check_delay("delay", delay)
    wanted = to_ms("delay", delay)
    level = next((number for number, level_ms in enumerate(DELAY_LEVELS_MS, 1) if level_ms >= wanted), None)
    if level is None:
        return Later(len(DELAY_LEVELS_MS), wanted)
    return Later(level, 0 if DELAY_LEVELS_MS[level - 1] == wanted else wanted)


def check_delay(name: str, delay: Duration) -> None:
    """Raise ConfigError unless a message can be delivered again after this time."""
    if to_seconds(name, delay) > TIMER_DELAY_SECONDS_MAX:
        raise ConfigError(f"{name}={delay!r}: must be at most {TIMER_DELAY_SECONDS_MAX:g} seconds (40 days)")


def choose_later(later: Later, delivery: int, backoff: Sequence[Duration]) -> Later:
    """Return when to deliver a message again after this delivery, the first of which is 1.

    If `later` says nothing, it is the entry of `backoff` for this delivery, or its last one.
    """
    if later != LATER or not backoff:
        return later
    # A damaged or hostile record may contain any number of deliveries.
    return make_later(backoff[max(0, min(delivery, len(backoff)) - 1)])


def find_delay(later: Later, delivery: int) -> tuple[int, timedelta]:
    """Return the delay level of the next delivery and the delay; level 0 leaves the level to the broker."""
    level = max(1, min(later.level or RETRY_LEVEL_FIRST + delivery - 1, len(DELAY_LEVELS_MS)))
    return level, timedelta(milliseconds=later.delay_ms or DELAY_LEVELS_MS[level - 1])

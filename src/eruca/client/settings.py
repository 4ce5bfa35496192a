"""The settings of consumers, in groups: how much is fetched, what happens on failure, how queues are shared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeAlias

from eruca.client.durations import Duration, to_seconds
from eruca.core.allocation import Strategy, find_strategy
from eruca.errors import ConfigError
from eruca.wire.bodies import MessageQueue

#: Called with a topic, all its queues, and those that are ours, whenever ours change. It may be async.
QueueListener: TypeAlias = Callable[[str, list[MessageQueue], list[MessageQueue]], Awaitable[None] | None]

OFFSETS_DIRECTORY = Path("~/.rocketmq_offsets")


def _check_counts(settings: object, *names: str) -> None:
    for name in names:
        count = getattr(settings, name)
        if count is not None and count < 1:
            raise ConfigError(f"{name}={count}: must be at least 1")


def _check_durations(settings: object) -> None:
    for field in fields(settings):  # type: ignore[arg-type]
        if str(field.type) == "Duration":
            to_seconds(field.name, getattr(settings, field.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """How much a consumer fetches at once, and how much may wait to be consumed.

    >>> Consumer(group="billing", subscribe="orders", flow=Flow(batch=100, count_max=5000))
    """

    #: The most messages one pull asks for.
    batch: int = 32
    #: Of one queue: above any of these, nothing more is pulled until some messages are done.
    count_max: int = 1000
    bytes_max: int = 100 * 1024 * 1024
    #: The most offsets between the first and the last message that is not done. None: no limit.
    span_max: int | None = 2000
    #: How long the broker holds a pull when there is no message, and how long the client waits for an answer.
    hold: Duration = 15.0
    timeout: Duration = 30.0
    #: The pause after an error.
    error_pause: Duration = 1.0
    #: A pause between pulls, to slow a consumer down.
    interval: Duration = 0.0

    def __post_init__(self) -> None:
        _check_counts(self, "batch", "count_max", "bytes_max", "span_max")
        _check_durations(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What happens when a handler fails.

    >>> Consumer(group="billing", subscribe="orders", retry=Retry(max_deliveries=5))
    """

    #: How many times a message is delivered before it becomes a dead letter. None: 17 times, as in Java (16 retries);
    #: ordered handlers try until they succeed, and later messages of the queue wait.
    max_deliveries: int | None = None
    #: A handler that takes longer is taken to have failed: its message is delivered again.
    timeout: Duration = 900.0
    #: How long an ordered queue waits before it tries a failed message again.
    pause: Duration = 1.0

    def __post_init__(self) -> None:
        _check_counts(self, "max_deliveries")
        _check_durations(self)
        to_seconds("timeout", self.timeout, least=0.001)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """How the members of a group share the queues.

    >>> Consumer(group="billing", subscribe="orders", rebalance=Rebalance(strategy="sticky"))
    """

    #: The name of a strategy, or one of `eruca.strategies`.
    strategy: str | Strategy = "average"
    #: How often a member checks which queues are its own when nobody tells it of a change.
    interval: Duration = 20.0
    #: How often ordered consumers renew the locks of their queues.
    lock_interval: Duration = 20.0
    #: Told (topic, all its queues, those that are ours) when ours change. It may be async.
    on_change: QueueListener | None = None

    def __post_init__(self) -> None:
        _check_durations(self)
        self.find_strategy()

    def find_strategy(self) -> Strategy:
        """Return the strategy itself. Raises ConfigError for a name that is unknown."""
        return find_strategy(self.strategy) if isinstance(self.strategy, str) else self.strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """How the progress of a consumer is saved.

    >>> Consumer(group="billing", subscribe="orders", offsets=Offsets(commit_interval=0.2))
    """

    #: How often offsets are committed. After a crash, what was done since the last commit is delivered again.
    commit_interval: Duration = 1.0
    #: Where a broadcast consumer keeps its offsets: every member has its own, and the broker has none.
    directory: Path = OFFSETS_DIRECTORY

    def __post_init__(self) -> None:
        to_seconds("commit_interval", self.commit_interval, least=0.001)

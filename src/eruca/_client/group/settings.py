"""Settings of a consumer, in groups: flow, retries, rebalancing, offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

from eruca._client.arguments import check_callable, check_count, check_type
from eruca._client.later import check_delay
from eruca._core.allocation import Strategy, find_strategy
from eruca._ground.durations import Duration, to_seconds
from eruca._ground.limits import START_SECONDS_MAX
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError, WrongType

#: Where a group begins in a queue that it has never consumed.
Start: TypeAlias = Literal["latest", "earliest"] | datetime
#: Called with the queues that were assigned to this consumer and with those that are revoked from it.
OnChange: TypeAlias = Callable[[list[MessageQueue], list[MessageQueue]], Awaitable[None] | None]

# The limits in seconds for the suspension of an ordered queue, as in Java.
_SUSPEND_S = (0.01, 30.0)
# The most messages of one pull, and of one call of a handler.
BATCH_MAX = 1024
# Shorter intervals would keep the event loop busy.
_INTERVAL_S_MIN = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """How much is pulled at once, and how much may wait to be consumed."""

    # Messages requested per pull.
    batch: int = 32
    # Per queue: above any of these three limits it is not pulled until some messages are done.
    count_max: int = 1000
    bytes_max: int = 100 * 1024 * 1024
    # The most offsets between the first and the last message not done; None is unlimited, as for ordered handlers.
    span_max: int | None = 2000
    # Pull consumers: the most messages fetched ahead, for all queues together.
    cached_max: int = 10_000
    # Ordered handlers: the most queues processed at the same time.
    ordered_concurrency: int = 20
    # How long the broker holds a pull of an empty queue, and how long its answer may take. PullConsumer: 20 s.
    hold: Duration = 15.0
    timeout: Duration = 30.0
    # The pause after a failed pull, and the pause between two pulls.
    error_pause: Duration = 1.0
    interval: Duration = 0.0

    def __post_init__(self) -> None:
        check_count("Flow.batch", self.batch, at_most=BATCH_MAX)
        check_count("Flow.count_max", self.count_max)
        check_count("Flow.bytes_max", self.bytes_max)
        if self.span_max is not None:
            check_count("Flow.span_max", self.span_max)
        check_count("Flow.cached_max", self.cached_max)
        check_count("Flow.ordered_concurrency", self.ordered_concurrency)
        hold_s = to_seconds("Flow.hold", self.hold)
        if to_seconds("Flow.timeout", self.timeout, at_least=_INTERVAL_S_MIN) <= hold_s:
            raise ConfigError(
                f"Flow.timeout={self.timeout!r}: must be longer than Flow.hold={self.hold!r}",
                hint="the broker holds a pull of an empty queue that long before it answers",
            )
        to_seconds("Flow.error_pause", self.error_pause)
        to_seconds("Flow.interval", self.interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What happens to messages whose handler fails or takes too long."""

    # Deliveries before a message becomes a dead letter, including the first. None: 17, as in Java; ordered: unlimited.
    max_deliveries: int | None = None
    # Concurrent handlers: after this time the message is delivered again, as after a failure.
    handler_timeout: Duration = 900.0
    # Concurrent handlers: the delays before the second delivery, the third and so on; the last one is repeated. Empty:
    # 10 s, 30 s, 1 min, ... 2 h. Eruca brokers keep any delay, others use the next longer delay level.
    backoff: Sequence[Duration] = ()
    # Ordered handlers: the pause before the same message is tried again.
    suspend: Duration = 1.0

    def __post_init__(self) -> None:
        if self.max_deliveries is not None:
            check_count("Retry.max_deliveries", self.max_deliveries)
        if not isinstance(self.backoff, list | tuple):
            raise WrongType(f"Retry.backoff={self.backoff!r}: expected a list of durations")
        for delay in self.backoff:
            check_delay("Retry.backoff", delay)
        to_seconds("Retry.handler_timeout", self.handler_timeout, at_least=_INTERVAL_S_MIN)
        least, most = _SUSPEND_S
        if to_seconds("Retry.suspend", self.suspend, at_least=least) > most:
            raise ConfigError(f"Retry.suspend={self.suspend!r}: must be between {least:g} and {most:g} seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """How the queues of a group are divided among its members."""

    # A name, or an object from `eruca.strategies`.
    strategy: str | Strategy = "average"
    # How often a member checks its assignment. Brokers also notify members of changes at once.
    interval: Duration = 20.0
    # Ordered handlers and exclusive queues: how often the locks of queues are renewed. The queues of a member that
    # crashed are free after three times as long, at least 10 s; with Java brokers after a minute.
    lock_interval: Duration = 3.0
    # An async or plain function, called with (assigned, revoked). Revoked queues are committed after it returns.
    on_change: OnChange | None = None
    # A queue goes to another member only after its handlers have ended, `on_change` has returned, and it is committed.
    # All members of the group must set it. The queues of ordered handlers always are exclusive.
    exclusive: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, str) and not hasattr(self.strategy, "allocate"):
            raise WrongType(f"Rebalance.strategy={self.strategy!r:.80}: expected a name, or one of eruca.strategies")
        try:
            find_strategy(self.strategy)
        except ConfigError as error:
            raise ConfigError(f"Rebalance.strategy={self.strategy!r:.80}: no such strategy", hint=error.hint) from None
        to_seconds("Rebalance.interval", self.interval, at_least=_INTERVAL_S_MIN)
        to_seconds("Rebalance.lock_interval", self.lock_interval, at_least=_INTERVAL_S_MIN)
        if self.on_change is not None:
            check_callable("Rebalance.on_change", self.on_change, "assigned", "revoked")
        check_type("Rebalance.exclusive", self.exclusive, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """How often a consumer commits, and where the offsets of broadcast consumers are kept."""

    # After a crash, messages done since the last commit are delivered again. PullConsumer: 5 s.
    interval: Duration = 1.0
    # Broadcast consumers keep their offsets in files here.
    directory: Path = Path("~/.rocketmq_offsets")

    def __post_init__(self) -> None:
        to_seconds("Offsets.interval", self.interval, at_least=_INTERVAL_S_MIN)
        check_type("Offsets.directory", self.directory, Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How a consumer takes part in its group."""

    start: Start = "latest"
    # Every member gets every message.
    broadcast: bool = False
    flow: Flow = field(default_factory=Flow)
    retry: Retry = field(default_factory=Retry)
    rebalance: Rebalance = field(default_factory=Rebalance)
    offsets: Offsets = field(default_factory=Offsets)
    # How long handlers may continue when the consumer closes.
    drain_s: float = 30.0
    # How long a start waits for queues and for their start offsets.
    start_seconds_max: float = START_SECONDS_MAX

    def __post_init__(self) -> None:
        check_type("broadcast", self.broadcast, bool)
        for name, kind in (("flow", Flow), ("retry", Retry), ("rebalance", Rebalance), ("offsets", Offsets)):
            check_type(name, getattr(self, name), kind)
        if self.broadcast and self.rebalance.exclusive:
            raise ConfigError(
                "Rebalance.exclusive=True with broadcast=True: every member has all queues",
                hint="leave out one of them",
            )

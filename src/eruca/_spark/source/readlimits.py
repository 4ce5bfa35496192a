"""How much one micro-batch reads, and of which queue: decisions without I/O.

A limit is divided among queues in proportion to their backlog, so that they catch up at the same time. Each queue gets
at least one message if the limit allows; otherwise the queues take turns. No queue starves. With minOffsetsPerTopic, a
part of each batch is divided by topics first: the backlog of one topic does not slow down the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from eruca._ground.clock import Clock, SystemClock
from eruca._wire.bodies import MessageQueue

Counts = dict[MessageQueue, int]
_Item = TypeVar("_Item")

# Assumed size of a message before one of its queue was seen: rather too large than too small.
RECORD_BYTES_GUESS = 16 * 1024
# The weight of a new measurement in an estimate.
_NEW_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits of a micro-batch; None is unlimited."""

    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    delay_ms_max: int = 0
    topic_rows_min: int | None = None

    def describe(self) -> ReadLimit:
        """Return the limit to report to Spark. It has no compound limits, but passes back what it was given."""
        if self.rows_max is not None:
            return ReadMaxRows(self.rows_max)
        if self.bytes_max is not None:
            return ReadMaxBytes(self.bytes_max)
        if self.rows_min is not None:
            return ReadMinRows(self.rows_min)
        return ReadAllAvailable()

    def narrow(self, asked: ReadLimit) -> ReadLimits:
        """Return the limits of one batch: none if Spark wants everything, otherwise ours and the one it asks for."""
        if isinstance(asked, ReadAllAvailable):
            return ReadLimits()
        if isinstance(asked, ReadMaxRows):
            return replace(self, rows_max=_find_least(self.rows_max, asked.max_rows))
        if isinstance(asked, ReadMaxBytes):
            return replace(self, bytes_max=_find_least(self.bytes_max, asked.max_bytes))
        return self


def _find_least(own: int | None, asked: int) -> int:
    return asked if own is None else min(own, asked)


def share_out(
    total: int,
    waiting: Mapping[MessageQueue, int],
    *,
    turn: int = 0,
    costs: Mapping[MessageQueue, int] | None = None,
    topic_min: int = 0,
) -> Counts:
    """Return how many of the waiting messages of each queue to read if `total` may be spent.

    A message costs 1, or what `costs` says. First each topic gets `topic_min` messages, or all that it has; if `total`
    is too small for that, topics get equal parts of it. The rest is divided in proportion to what waits. At least one
    message is always read, whatever it costs: otherwise a message larger than the limit would stop the stream. `turn`
    selects the queue and the topic that come first. The result depends on nothing else.
    """
    queues = sorted(queue for queue, count in waiting.items() if count > 0)
    if not queues:
        return {}
    price = {queue: max(1, costs[queue]) if costs else 1 for queue in queues}
    if sum(waiting[queue] * price[queue] for queue in queues) <= total:
        return {queue: waiting[queue] for queue in queues}
    shares = _reserve(total, _rotate(queues, turn), waiting, price, turn, topic_min) if topic_min else {}
    rest = {queue: waiting[queue] - shares.get(queue, 0) for queue in queues}
    left = total - _sum_up(shares, price)
    more = _divide(left, _rotate([queue for queue in queues if rest[queue]], turn), rest, price, shares)
    return {queue: count for queue in queues if (count := shares.get(queue, 0) + more.get(queue, 0))}


def _rotate(queues: list[_Item], turn: int) -> list[_Item]:
    first = turn % max(1, len(queues))
    return [*queues[first:], *queues[:first]]


def _sum_up(shares: Mapping[MessageQueue, int], price: Mapping[MessageQueue, int]) -> int:
    return sum(count * price[queue] for queue, count in shares.items())


def _reserve(
    total: int,
    queues: list[MessageQueue],
    waiting: Mapping[MessageQueue, int],
    price: Mapping[MessageQueue, int],
    turn: int,
    topic_min: int,
) -> Counts:
    """Return the part of each topic that does not depend on how much waits in other topics."""
    topics = sorted({queue.topic for queue in queues})
    wanted: dict[str, Counts] = {}
    for topic in topics:
        # A topic that comes first only at every n-th turn must not always begin with the same queue.
        own = _rotate(sorted(queue for queue in queues if queue.topic == topic), turn // len(topics))
        wanted[topic] = _divide(topic_min, own, waiting, dict.fromkeys(own, 1), {})
    topics = _rotate(topics, turn)
    parts = _fill_evenly(total, {topic: _sum_up(wanted[topic], price) for topic in topics})
    shares: Counts = {}
    left = total
    for topic in topics:
        part = min(parts[topic], left)
        given = _divide(part, list(wanted[topic]), wanted[topic], price, shares)
        left -= _sum_up(given, price)
        shares |= given
    return shares


def _fill_evenly(total: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Divide `total` into parts that are equal, except that nobody gets more than it wants."""
    parts: dict[str, int] = {}
    hungry = dict(wanted)
    while content := {each: want for each, want in hungry.items() if want <= total // len(hungry)}:
        parts |= content
        total -= sum(content.values())
        hungry = {each: want for each, want in hungry.items() if each not in content}
        if not hungry:
            return parts
    part, left = divmod(total, len(hungry))
    # What cannot be divided goes to those that come first.
    return parts | {each: part + (1 if number < left else 0) for number, each in enumerate(hungry)}


def _divide(
    total: int,
    queues: list[MessageQueue],
    waiting: Mapping[MessageQueue, int],
    price: Mapping[MessageQueue, int],
    before: Mapping[MessageQueue, int],
) -> Counts:
    """Divide `total` over queues in proportion to what waits; each gets one message first, if there is room.

    `before` is what others have got already. If it is nothing, the first queue gets a message even if that costs more
    than `total`.
    """
    if sum(waiting[queue] * price[queue] for queue in queues) <= total:
        return {queue: waiting[queue] for queue in queues}
    shares: Counts = {}
    left = total
    for queue in queues:
        if queue not in before and (price[queue] <= left or not (before or shares)):
            shares[queue] = 1
            left -= price[queue]
    rest = {queue: (waiting[queue] - shares.get(queue, 0)) * price[queue] for queue in queues}
    whole = sum(rest.values())
    if left <= 0 or not whole:
        return shares
    remainders = {}
    for queue in queues:
        part, remainders[queue] = divmod(left * rest[queue], whole)
        shares[queue] = shares.get(queue, 0) + part // price[queue]
    left = total - _sum_up(shares, price)
    for queue in sorted(queues, key=lambda each: -remainders[each]):
        if price[queue] <= left and shares[queue] < waiting[queue]:
            shares[queue] += 1
            left -= price[queue]
    return {queue: count for queue, count in shares.items() if count}


class RecordSizes:
    """Estimates of the message size of each queue."""

    def __init__(self) -> None:
        self._bytes: dict[MessageQueue, float] = {}

    def learn(self, queue: MessageQueue, sizes: list[int]) -> None:
        """Learn from the sizes of messages at the start of the next batch."""
        if not sizes:
            return
        seen = sum(sizes) / len(sizes)
        before = self._bytes.get(queue)
        # A larger size counts at once: the limit exists because something cannot handle more.
        mixed = seen if before is None else before + _NEW_WEIGHT * (seen - before)
        self._bytes[queue] = max(seen, mixed)

    def estimate(self, queue: MessageQueue) -> int:
        """Return the estimated bytes of one message of a queue."""
        return round(self._bytes.get(queue, RECORD_BYTES_GUESS))


class Patience:
    """Delays a batch until it is large enough, or until a message has waited long enough."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        # When a waiting message was first seen.
        self._since: float | None = None

    def has_to_wait(self, waiting: int, limits: ReadLimits) -> bool:
        """Whether a batch of `waiting` messages should wait for more; called for each look at the queues."""
        if not waiting:
            self._since = None
            return False
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        is_late = (now - self._since) * 1000 >= limits.delay_ms_max
        if limits.rows_min is not None and waiting < limits.rows_min and not is_late:
            return True
        self._since = None
        return False

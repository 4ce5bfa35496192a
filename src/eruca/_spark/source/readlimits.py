"""How much one micro-batch reads, and of which queue: decisions without I/O.

A limit is divided among queues in proportion to their backlog, so that they catch up at the same time. Each queue gets
at least one message if the limit allows; otherwise the queues take turns. No queue starves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from eruca._ground.clock import Clock, SystemClock
from eruca._wire.bodies import MessageQueue

Counts = dict[MessageQueue, int]

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
    total: int, waiting: Mapping[MessageQueue, int], *, turn: int = 0, costs: Mapping[MessageQueue, int] | None = None
) -> Counts:
    """Return how many of the waiting messages of each queue to read if `total` may be spent.

    A message costs 1, or what `costs` says. At least one message is always read, whatever it costs: otherwise a message
    larger than the limit would stop the stream. `turn` selects the queue that comes first.
    """
    queues = sorted(queue for queue, count in waiting.items() if count > 0)
    if not queues:
        return {}
    price = {queue: max(1, costs[queue]) if costs else 1 for queue in queues}
    if sum(waiting[queue] * price[queue] for queue in queues) <= total:
        return {queue: waiting[queue] for queue in queues}
    first = turn % len(queues)
    queues = [*queues[first:], *queues[:first]]
    shares = _give_one_each(queues, price, total)
    left = total - sum(price[queue] for queue in shares)
    rest = {queue: (waiting[queue] - shares.get(queue, 0)) * price[queue] for queue in queues}
    whole = sum(rest.values())
    if left <= 0 or not whole:
        return shares
    remainders = {}
    for queue in queues:
        part, remainders[queue] = divmod(left * rest[queue], whole)
        shares[queue] = shares.get(queue, 0) + part // price[queue]
    left = total - sum(count * price[queue] for queue, count in shares.items())
    for queue in sorted(queues, key=lambda each: -remainders[each]):
        if price[queue] <= left and shares[queue] < waiting[queue]:
            shares[queue] += 1
            left -= price[queue]
    return {queue: count for queue, count in shares.items() if count}


def _give_one_each(queues: list[MessageQueue], price: Mapping[MessageQueue, int], total: int) -> Counts:
    shares: Counts = {}
    left = total
    for queue in queues:
        if not shares or price[queue] <= left:
            shares[queue] = 1
            left -= price[queue]
    return shares


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

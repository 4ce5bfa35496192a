"""How much one micro-batch reads, and of which queue: decisions without I/O.

Limits go to queues in proportion to what waits in each, so that all are through at the same time. Each queue gets at
least one message where there is room for it; where there is not, the queues take turns. Nothing starves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from eruca._ground.clock import Clock, SystemClock
from eruca._wire.bodies import MessageQueue

Counts = dict[MessageQueue, int]

# What a message is taken for as long as nobody has seen one of its queue: rather too large than too small.
RECORD_BYTES_GUESS = 16 * 1024
# How much of an estimate a new measurement is.
_NEW_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What the options say about the size of a micro-batch; None is no limit."""

    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    delay_ms_max: int = 0

    def describe(self) -> ReadLimit:
        """The limit Spark is told of. It knows no compound ones, but hands back whatever it was told."""
        if self.rows_max is not None:
            return ReadMaxRows(self.rows_max)
        if self.bytes_max is not None:
            return ReadMaxBytes(self.bytes_max)
        if self.rows_min is not None:
            return ReadMinRows(self.rows_min)
        return ReadAllAvailable()

    def narrow(self, asked: ReadLimit) -> ReadLimits:
        """The limits of one batch: none when Spark wants all there is, else ours and the one it asks for."""
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
    """How many of the messages that wait in each queue are read, if `total` may be spent and each costs something.

    A message costs 1 unless `costs` says otherwise. There is always at least one in all, whatever it costs: else a
    message that is larger than the limit would stop everything. `turn` says whose turn it is to be first.
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
    """How large the messages of each queue are, as far as somebody looked."""

    def __init__(self) -> None:
        self._bytes: dict[MessageQueue, float] = {}

    def learn(self, queue: MessageQueue, sizes: list[int]) -> None:
        """Take note of messages that lie where the next batch begins."""
        if not sizes:
            return
        seen = sum(sizes) / len(sizes)
        before = self._bytes.get(queue)
        # When they become larger, that counts at once: the limit is there because something cannot take more.
        mixed = seen if before is None else before + _NEW_WEIGHT * (seen - before)
        self._bytes[queue] = max(seen, mixed)

    def estimate(self, queue: MessageQueue) -> int:
        """The bytes of one message of a queue."""
        return round(self._bytes.get(queue, RECORD_BYTES_GUESS))


class Patience:
    """Waits until a batch is worth its while, or until a message has waited for long enough."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        # When something was first seen to wait.
        self._since: float | None = None

    def has_to_wait(self, waiting: int, limits: ReadLimits) -> bool:
        """Is a batch of so many messages to wait for more? Told of each look at the queues."""
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

"""Decisions about half messages: their op records, and the recent decisions."""

from __future__ import annotations

import logging
from collections import OrderedDict

from eruca._broker.administering.stats import Stats
from eruca._broker.standing import Standing
from eruca._broker.transactions.halves import make_op
from eruca._core.transactions import Half
from eruca._ground.clock import Clock
from eruca._observe.metrics import Histogram
from eruca._store.messagestore import MessageStore
from eruca._wire.properties import REAL_TOPIC
from eruca._wire.record import Record
from eruca.errors import StoreError

log = logging.getLogger(__name__)

# Recent decisions are remembered to recognise a second decision for the same transaction (a slow response and the
# response to a check). The op queue has them too, but would have to be searched.
_REMEMBERED_MAX = 10_000
# The names under which decisions are counted by topic.
COMMITTED = "TRANSACTION_COMMIT_NUMS"
ROLLED_BACK = "TRANSACTION_ROLLBACK_NUMS"
# In seconds, as in RocketMQ 5.
LATENCY_BOUNDS = (5.0, 60.0, 600.0, 3600.0, 43_200.0, 86_400.0)


class Decisions:
    """Stores decisions, and remembers recent ones."""

    def __init__(self, standing: Standing, clock: Clock, store: MessageStore, stats: Stats) -> None:
        self._standing = standing
        self._clock = clock
        self._store = store
        self._stats = stats
        # Roots of recently decided transactions: the offset of the first half.
        self._decided: OrderedDict[int, None] = OrderedDict()
        # Committed halves whose op record could not be written yet, by root.
        self._unkept: dict[int, Half] = {}
        #: How long decisions took, in seconds since the half was sent.
        self.latency = Histogram(LATENCY_BOUNDS)

    def forget(self) -> None:
        """Forget all decisions; the log may have been replaced."""
        self._decided.clear()
        self._unkept.clear()

    def has(self, half: Half) -> bool:
        """Whether the transaction of a half was decided recently."""
        return half.root in self._decided

    def note_committed(self, half: Half) -> None:
        """A half is committed, even if its op record can only be written later."""
        self._remember(half)
        self._unkept[half.root] = half
        self.keep()

    def roll_back(self, half: Half) -> None:
        """Write the op record, which alone marks a half as rolled back; if it raises StoreError, nothing is decided."""
        self._write_ops(half)
        self._remember(half)

    def count(self, half: Record, name: str) -> None:
        """Count a decision about a half, under the name of a counter."""
        self._stats.add(name, half.get_property(REAL_TOPIC) or half.topic, 1)
        self.latency.observe(max(0, self._clock.now_ms() - half.born_timestamp) / 1000)

    def keep(self) -> None:
        """Write the missing op records of committed halves. Without one, the producer is asked again."""
        for root, half in list(self._unkept.items()):
            try:
                self._write_ops(half)
            except StoreError as error:
                log.error("the decision about the half message at offset %d is not stored yet: %s", half.offset, error)
                return
            self._unkept.pop(root, None)

    def _write_ops(self, half: Half) -> None:
        # The root as well: there may be a newer copy than the one this decision is about.
        for offset in dict.fromkeys((half.offset, half.root)):
            op = self._store.append(make_op(offset, self._standing.store_host, self._clock.now_ms()))
            self._stats.on_own(op.size)

    def _remember(self, half: Half) -> None:
        self._decided[half.root] = None
        if len(self._decided) > _REMEMBERED_MAX:
            oldest, _ = self._decided.popitem(last=False)
            self._unkept.pop(oldest, None)

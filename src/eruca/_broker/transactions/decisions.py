"""What was decided about half messages: the op records that say so, and what was decided lately."""

from __future__ import annotations

import logging
from collections import OrderedDict

from eruca._broker.administering.stats import Stats
from eruca._broker.standing import Standing
from eruca._broker.transactions.halves import make_op
from eruca._core.transactions import Half
from eruca._ground.clock import Clock
from eruca._store.messagestore import MessageStore
from eruca.errors import StoreError

log = logging.getLogger(__name__)

# Decisions that are remembered to tell a second one for the same transaction (a slow answer and the answer to a check)
# from the first. The op queue would tell as well, but only after a search.
_REMEMBERED_MAX = 10_000


class Decisions:
    """Writes down decisions, and knows those of late."""

    def __init__(self, standing: Standing, clock: Clock, store: MessageStore, stats: Stats) -> None:
        self._standing = standing
        self._clock = clock
        self._store = store
        self._stats = stats
        # Roots of transactions that were decided lately: the offset of the first half.
        self._decided: OrderedDict[int, None] = OrderedDict()
        # Those of them that were committed but whose op record could not be written yet, by root.
        self._unkept: dict[int, Half] = {}

    def forget(self) -> None:
        """Know of no decision; the log may be another one."""
        self._decided.clear()
        self._unkept.clear()

    def has(self, half: Half) -> bool:
        """Was the transaction of a half decided lately?"""
        return half.root in self._decided

    def note_committed(self, half: Half) -> None:
        """A half is committed, whatever becomes of its op record, which is written now or later."""
        self._remember(half)
        self._unkept[half.root] = half
        self.keep()

    def roll_back(self, half: Half) -> None:
        """Write the op record; raises StoreError. Nothing else says that a half is rolled back, so without it nothing
        is decided.
        """
        self._write_ops(half)
        self._remember(half)

    def keep(self) -> None:
        """Write the op records of committed halves that have none yet. Without one, the producer is asked again."""
        for root, half in list(self._unkept.items()):
            try:
                self._write_ops(half)
            except StoreError as error:
                log.error("the decision about the half message at offset %d is not kept yet: %s", half.offset, error)
                return
            self._unkept.pop(root, None)

    def _write_ops(self, half: Half) -> None:
        # The root as well: there may be a younger copy than the one this decision is about.
        for offset in dict.fromkeys((half.offset, half.root)):
            op = self._store.append(make_op(offset, self._standing.store_host, self._clock.now_ms()))
            self._stats.on_own(op.size)

    def _remember(self, half: Half) -> None:
        self._decided[half.root] = None
        if len(self._decided) > _REMEMBERED_MAX:
            oldest, _ = self._decided.popitem(last=False)
            self._unkept.pop(oldest, None)

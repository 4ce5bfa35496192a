"""Which messages of the timer are cancelled, and until when that has to be remembered.

Any account that may publish to a topic may cancel, and names what it likes. So each entry has the same size, a
cancellation beyond the limit is refused when it is sent, and one topic leaves room for others: it may have as many as
are still free. What was accepted always counts: the few that are on their way come on top of the limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from eruca._broker.options import LiveOptions
from eruca._broker.refusals import refuse
from eruca._ground.clock import Clock
from eruca._net.guards import Reporter
from eruca._net.meters import count_refused, show
from eruca._store.tables.cancelled import Cancelled, digest_key, digest_topic
from eruca._wire.codes import ResponseCode

log = logging.getLogger(__name__)

# A cancellation is remembered for this long after it met its message: a sender may have sent that twice.
MET_MS: Final = 600_000
# Entries that are over are removed this often, and this many at a time.
_SWEEP_SECONDS: Final = 60.0
_TURN_ENTRIES: Final = 5000


class Cancellations:
    """The table, by topic and unique id."""

    def __init__(self, options: LiveOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._topics: dict[bytes, dict[bytes, int]] = {}
        self._count = 0
        # What the next save writes; all, after one that failed.
        self._changes: list[Cancelled] = []
        self._writes_all = False
        self._swept_at = clock.monotonic()
        self._reporter = Reporter(log)
        show("timer_cancellations", "Number of cancelled delayed messages.", self, len)

    def __len__(self) -> int:
        return self._count

    @property
    def has_changed(self) -> bool:
        """Whether there is something to save."""
        return bool(self._changes) or self._writes_all

    def refuse_if_full(self, topic: str) -> None:
        """Refuse a cancellation for which there is no room."""
        most = self._options.now.cancellations_max
        count = len(self._topics.get(digest_topic(topic), ()))
        if self._count < most and count < most - self._count:
            return
        count_refused("maxTimerCancellations")
        text = f"no more messages of {topic} can be cancelled: it has {count} cancellations, all topics {self._count}"
        text += f" (maxTimerCancellations={most})"
        self._reporter.report(topic, text)
        refuse(ResponseCode.SYSTEM_ERROR, text)

    def add(self, topic: str, unique_id: str, until_ms: int) -> None:
        """Remember a cancellation a little longer than its message waits."""
        self._put(Cancelled(digest_topic(topic), digest_key(unique_id), until_ms + MET_MS))

    def meet(self, topic: str, unique_id: str) -> bool:
        """Return whether a message that is due is cancelled."""
        if not self._count:
            return False
        its_topic = digest_topic(topic)
        entries = self._topics.get(its_topic)
        if entries is None or (until_ms := entries.get(key := digest_key(unique_id))) is None:
            return False
        soon_ms = self._clock.now_ms() + MET_MS
        if soon_ms < until_ms:
            self._put(Cancelled(its_topic, key, soon_ms))
        return True

    def _put(self, entry: Cancelled) -> None:
        self._set(entry)
        self._changes.append(entry)

    def _set(self, entry: Cancelled) -> None:
        entries = self._topics.setdefault(entry.topic, {})
        self._count += entry.key not in entries
        entries[entry.key] = entry.until_ms

    def restore(self, found: Iterable[Cancelled]) -> None:
        """Replace everything by what was saved."""
        self._topics, self._count, self._changes, self._writes_all = {}, 0, [], False
        for entry in found:
            self._set(entry)

    def take_changes(self, *, everything: bool) -> tuple[list[Cancelled], bool]:
        """Return what has to be saved, and whether that is everything; if it cannot be saved, call `keep_changes`."""
        changes, self._changes = self._changes, []
        everything = everything or self._writes_all
        self._writes_all = False
        if everything:
            changes = [
                Cancelled(topic, key, until_ms)
                for topic, entries in self._topics.items()
                for key, until_ms in entries.items()
            ]
        return changes, everything

    def keep_changes(self) -> None:
        """The changes could not be saved: everything is saved next time."""
        self._writes_all = True

    async def sweep(self) -> None:
        """Remove entries that are over, in slices; call this regularly."""
        if self._clock.monotonic() - self._swept_at < _SWEEP_SECONDS:
            return
        self._swept_at = self._clock.monotonic()
        now_ms = self._clock.now_ms()
        for topic, entries in list(self._topics.items()):
            keys = list(entries)
            for start in range(0, len(keys), _TURN_ENTRIES):
                for key in keys[start : start + _TURN_ENTRIES]:
                    if entries[key] < now_ms:
                        del entries[key]
                        self._count -= 1
                await asyncio.sleep(0)
            if not entries:
                self._topics.pop(topic, None)

"""Retention: which segments are deleted, when, and when the disk is too full for appends.

`plan_retention` decides from facts; `Retention` gathers them and acts. There are three levels of a filling disk: above
75 percent, expired segments are deleted at any hour; above 85, others too; above 90, appends are refused until there
is space again. Deletion starts with the oldest segment, stops at the first one that is kept, and never includes the
last. With `deleteOnlyArchived`, segments that are not archived are kept at every level: appends are then refused, and
nothing is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from eruca._ground.clock import Clock, ClockJumps, read_clocks
from eruca._ground.config import StoreOptions
from eruca._store.log.segment import Segment
from eruca._store.messagestore import MessageStore

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
# A wall clock that gained this much between two passes was set; it did not merely run fast.
_JUMP_MS = 60_000


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What one pass will do."""

    delete_count: int
    reason: str
    refuse: bool


def plan_retention(
    segment_times_ms: Sequence[int],
    now_ms: int,
    used_ratio: float,
    options: StoreOptions,
    *,
    local_hour: int,
    asked: bool = False,
    archived: int | None = None,
) -> RetentionPlan:
    """Decide how many of the oldest segments are deleted; `segment_times_ms` is when each segment before the last was
    last written, oldest first.

    `asked`: an operator requested it, so expired segments are deleted at any hour. `archived` is how many of them are
    in an archive, None when that does not matter.
    """
    percent = used_ratio * 100
    refuse = percent > options.disk_ratio_percent_refuse
    force = options.clean_forcibly and percent > options.disk_ratio_percent_force
    at_hour = f"{local_hour:02d}" in [hour.strip().zfill(2) for hour in options.delete_hours.split(";")]
    crowded = percent > options.disk_ratio_percent_max
    if not (asked or at_hour or crowded or force):
        return RetentionPlan(0, "", refuse)
    reason = "disk is full" if force else "disk is filling" if crowded else "asked" if asked else "hour of day"
    expired_before = now_ms - options.retention_hours * _HOUR_MS
    candidates = segment_times_ms[: options.delete_segments_per_pass]
    if archived is not None:
        candidates = candidates[:archived]
    count = 0
    for time_ms in candidates:
        if time_ms > expired_before and not force:
            break
        count += 1
    return RetentionPlan(count, reason, refuse)


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The facts about the disk that a pass needs."""

    # The segments that may be deleted, oldest first, and when each was last written.
    segments: list[Segment]
    segment_times_ms: list[int]
    used_ratio: float
    # How many of them are archived; None when that does not matter.
    archived: int | None = None


class AgeClock:
    """The time of day, corrected for jumps forward since the start.

    A clock that is set forward by a month makes everything look a month older. Files written before the jump keep
    their age; files written after it have timestamps of the new count.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jumps = ClockJumps(*read_clocks(clock), _JUMP_MS)
        # How far the clock is ahead of the monotonic clock, and the first time of the new count.
        self._ahead_ms = 0
        self._since_ms = 0

    def look(self) -> int:
        """The time as it would be if the clock had not been set."""
        wall_ms, monotonic_s = read_clocks(self._clock)
        jump_ms = self._jumps.look(wall_ms, monotonic_s)
        if jump_ms > 0 or (jump_ms < 0 and self._ahead_ms):
            if not self._ahead_ms:
                self._since_ms = wall_ms - _JUMP_MS
            self._ahead_ms = max(0, self._ahead_ms + jump_ms)
            log.warning(
                "the clock was set by %d s: until the next start, ages of segments are computed without %d s of it",
                jump_ms // 1000,
                self._ahead_ms // 1000,
            )
        return wall_ms - self._ahead_ms

    def correct(self, time_ms: int) -> int:
        """A file's timestamp, in the same count as `look`."""
        return time_ms - self._ahead_ms if self._ahead_ms and time_ms >= self._since_ms else time_ms


class Retention:
    """Deletes what a store no longer needs to keep, and watches its disk."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._time = AgeClock(store.clock)
        self.deleted_segments = 0
        # Queue and index files that were removed from the store and wait to be deleted.
        self._derived: list[Callable[[], None]] = []

    def observe(self) -> DiskFacts:
        """Look at the disk; may run in a thread."""
        store = self._store
        # A segment that is not yet synced is kept: the flush thread may be using it. So is one whose entries are not on
        # the disk: with both gone, after a crash, new messages would get the offsets of its messages. The last segment
        # is always kept, even when it is synced to its end because the log was copied or recovered up to there.
        flushed = [s for s in list(store.log.chain.segments)[:-1] if s.end <= store.flusher.flushed]
        if flushed and flushed[-1].end > (store.checkpoint.position or 0):
            store.flusher.sync_derived()
        times = [store.disk.modified_ms(segment.path) for segment in flushed]
        used_ratio = store.disk.used_ratio(store.paths.commitlog)
        return DiskFacts(flushed, times, used_ratio, self._count_archived(flushed))

    def _count_archived(self, segments: list[Segment]) -> int | None:
        """How many of the oldest segments are archived; None when that does not matter."""
        options = self._store.options
        if not options.delete_only_archived and not options.archived_position:
            return None
        mark = self._find_mark()
        return sum([segment.end <= mark for segment in segments]) if options.delete_only_archived else None

    def _find_mark(self) -> int:
        """How far the log is archived, as set in the broker or written by a job in the directory."""
        store = self._store
        mark = store.archived.raise_to(store.options.archived_position)
        if mark > store.log.tail:
            # It belongs to another log that was here before.
            log.error("archivedPosition %d is beyond the end of the log, %d: ignored", mark, store.log.tail)
            return 0
        return mark

    def apply(self, facts: DiskFacts, *, asked: bool = False) -> tuple[RetentionPlan, list[Segment]]:
        """Decide, remove segments from the log, and refuse or accept appends; returns the segments to dispose of."""
        store = self._store
        now_ms = self._time.look()
        hour = datetime.fromtimestamp(now_ms / 1000).hour
        plan = plan_retention(
            [self._time.correct(time_ms) for time_ms in facts.segment_times_ms],
            now_ms,
            facts.used_ratio,
            store.options,
            local_hour=hour,
            asked=asked,
            archived=facts.archived,
        )
        detached = self._detach(facts.segments[: plan.delete_count])
        plan = replace(plan, delete_count=len(detached))
        for segment in detached:
            log.info("deleting %s (%s)", segment.path.name, plan.reason)
        if detached:
            self.detach_derived()
            store.ends.expire()
        kept = 0 if facts.archived is None else len(facts.segment_times_ms) - facts.archived
        self._refuse_or_admit(plan.refuse, kept)
        return plan, detached

    def _detach(self, wanted: list[Segment]) -> list[Segment]:
        """Remove segments from the log if they are still its first ones: it may have been cut in the meantime."""
        chain = self._store.log.chain
        detached: list[Segment] = []
        for segment in wanted:
            if len(chain.segments) < 2 or chain.segments[0] is not segment:
                log.warning("the log changed while its disk was checked: %s is kept for now", segment.path.name)
                break
            detached.append(chain.detach_first())
        return detached

    def dispose(self, detached: list[Segment]) -> None:
        """Delete the files; may run in a thread."""
        while self._derived:
            self._derived.pop(0)()
        for segment in detached:
            self._store.log.chain.dispose(segment)
            self.deleted_segments += 1

    def detach_derived(self) -> int:
        """Remove queue and index files whose records are all gone, `dispose` deletes them; returns how many.

        The last file of a queue is kept, because only its name records the offset.
        """
        store = self._store
        start = store.log.start
        before = len(self._derived)
        for queue in store.queues:
            queue.raise_min(start)
            self._derived += [partial(queue.chain.dispose, segment) for segment in queue.detach_expired()]
        if store.index is not None:
            self._derived += [partial(store.index.dispose, file) for file in store.index.detach_before(start)]
        return len(self._derived) - before

    def _refuse_or_admit(self, refuse: bool, kept: int) -> None:
        store = self._store
        if refuse and not store.full_reason:
            percent = store.options.disk_ratio_percent_refuse
            reason = f"the disk is more than {percent} percent full, appends are refused until space returns"
            if kept:
                reason += f"; deleteOnlyArchived keeps {kept} segments that are not archived"
            store.refuse(reason)
            log.error("%s", store.full_reason)
        elif not refuse and store.full_reason:
            store.refuse("")
            log.info("the disk has space again, appends are accepted")

"""The in-sync set: members that have everything that was acknowledged, so that any of them may be the next master.

etcd holds the set, only the master changes it, and acknowledgements need all of it. These rules keep it correct:

- A change with an unknown outcome counts both as made and as not made: until etcd's answer is known,
  acknowledgements need the old and the new set together.
- A member that joins is required first. From that moment nothing is acknowledged without it, so what it lacks does not
  grow: when it has reported everything that may have been acknowledged before (`bar`), it is written into the set.
  Waiting for it to reach a moving mark would never end under load.
- What earlier masters acknowledged is unknown, but it is in the log that this mastership began with. A member
  needs at least that to join.

How far a member is behind is measured as time: how long ago it last had what was then the end of the log. Above
`timeout_s` it leaves, below half of that it may join. A member whose link is gone leaves at once, so that producers do
not wait for it. But if that would leave fewer than `required`, nothing could be acknowledged without it either, so
it stays for `alone_s`: a master that loses all its slaves is often the one that is cut off, and a member of the set
may replace it. After that it leaves, so that a slave that is days behind is not elected over messages that are stored
but could not be acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from eruca._core.failover.view import Progress


@dataclass(slots=True)
class _Track:
    """One slave: when it last had the end of the log, and what it must report to have it again."""

    caught_at: float | None
    target: int = -1
    since: float = 0.0
    is_linked: bool = False
    lost_at: float | None = None

    def connect(self, tail: int, now: float, *, is_member: bool) -> None:
        self.is_linked, self.lost_at = True, None
        self.target, self.since = tail, now
        # A member gets its full time again to catch up; others must first show that they can.
        self.caught_at = now if is_member else None

    def report(self, position: int, tail: int, now: float) -> None:
        if position >= self.target:
            self.caught_at = now if position >= tail else self.since
            self.target, self.since = tail, now

    def lose(self, now: float) -> None:
        if self.is_linked:
            self.is_linked, self.lost_at = False, now

    def find_gone_since(self, timeout_s: float, now: float) -> float | None:
        """Since when it should not be in the set; None if it should be."""
        if self.lost_at is not None:
            return self.lost_at
        late_from = (self.caught_at if self.caught_at is not None else self.since) + timeout_s
        return late_from if now > late_from else None


class InSync:
    """The set as maintained by the master of one epoch."""

    def __init__(
        self,
        me: int,
        members: frozenset[int],
        revision: int,
        start: int,
        now: float,
        *,
        timeout_s: float,
        alone_s: float,
    ) -> None:
        self._me = me
        self._start = start
        self._timeout_s = timeout_s
        self._alone_s = alone_s
        self.members = members
        # The revision of `state` that holds it.
        self.revision = revision
        # The set that etcd was asked to store.
        self.pending: frozenset[int] | None = None
        # Members that are already required but not written yet: what each must report, and its deadline.
        self._joining: dict[int, tuple[int, float]] = {}
        # Members of the set have time to connect and catch up after an election.
        self._tracks = {member: _Track(now, since=now) for member in members - {me}}

    @property
    def needed(self) -> frozenset[int]:
        """The members that must have a message before it is acknowledged, without this broker."""
        pending = self.pending or frozenset()
        return (self.members | pending | self._joining.keys()) - {self._me}

    def adopt(self, members: frozenset[int], revision: int) -> None:
        """Note that etcd holds this set."""
        self.members, self.revision, self.pending = members, revision, None

    def rewrite(self, revision: int) -> None:
        """Note that etcd's value at this revision is unreadable: it is written again."""
        self.revision = revision
        if self.pending is None:
            self.pending = self.members

    def observe(self, progress: Progress, now: float, known: Collection[int] | None = None) -> None:
        """Update from the progress of the slaves; `pending` and `needed` hold the result.

        Slaves outside the set that have no key in etcd (`known`) cannot be elected and do not enter the set.
        """
        if known is not None:
            reports = {m: at for m, at in progress.reports.items() if m in self.members or m in known}
            progress = replace(progress, reports=reports)
        for member, track in self._tracks.items():
            if member not in progress.reports:
                track.lose(now)
        for member, position in progress.reports.items():
            if member == self._me:
                continue
            track = self._tracks.setdefault(member, _Track(None, since=now))
            if not track.is_linked:
                track.connect(progress.tail, now, is_member=member in self.members)
            track.report(position, progress.tail, now)
        self._court(progress, now)
        if self.pending is not None:
            return
        joined = {m for m, (bar, _) in self._joining.items() if progress.reports.get(m, -1) >= bar}
        target = (self.members - self._find_leaving(progress.required, now)) | joined
        for member in joined:
            del self._joining[member]
        if target != self.members:
            self.pending = target

    def _court(self, progress: Progress, now: float) -> None:
        """Start requiring members that have caught up; stop requiring those that miss their deadline."""
        half = self._timeout_s / 2
        for member, (_, until) in list(self._joining.items()):
            if now > until or member not in progress.reports:
                del self._joining[member]
        if self.pending is not None:
            return
        for member, position in progress.reports.items():
            if member == self._me or member in self.members or member in self._joining:
                continue
            caught_at = self._tracks[member].caught_at
            if caught_at is not None and now - caught_at < half and position >= self._start:
                bar = max(self._start, min(progress.confirmed, progress.tail))
                self._joining[member] = (bar, now + half)

    def _find_leaving(self, required: int, now: float) -> frozenset[int]:
        gone: dict[int, float] = {}
        for member in self.members - {self._me}:
            since = self._tracks.setdefault(member, _Track(now, since=now)).find_gone_since(self._timeout_s, now)
            if since is not None:
                gone[member] = since
        if len(self.members) - len(gone) >= required:
            return frozenset(gone)
        return frozenset(member for member, since in gone.items() if now - since >= self._alone_s)

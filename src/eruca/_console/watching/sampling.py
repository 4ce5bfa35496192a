"""Looking at a cluster at intervals: few requests, a bounded share of the time, whatever its size."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from eruca._admin.admin import Admin
from eruca._admin.lag import QueueLag
from eruca._admin.results import Listed
from eruca._console.watching.aging import Aging
from eruca._console.watching.grouping import add_members, join_groups
from eruca._console.watching.samples import BrokerSample, GroupSample, Sample, SlaveSample
from eruca._ground.repeating import Repeating
from eruca.errors import ErucaError

#: Looks take at most this share of the time: one that takes 0.5 s is followed by a pause of 25 s.
BUSY_SHARE: Final = 0.02
INTERVAL_S_MAX: Final = 300.0
#: With more groups that have a backlog or traffic, the looks are rarer: this many may be stored each second.
STORED_GROUPS_RATE: Final = 50.0
# Rows of one look: 2,000 groups with 50 queues each.
_QUEUES_MAX: Final = 100_000
# Groups in one look of which messages are read to find their age, and queues of each.
_READ_GROUPS: Final = 8
_READ_QUEUES: Final = 64
# Groups in one look whose members are counted.
_ASKED_GROUPS: Final = 20
# A broker that has been gone for longer is forgotten: it was taken away.
_FORGET_AFTER: Final = timedelta(days=1)

Item = TypeVar("Item")


class Sampler:
    """Looks at one cluster and passes on what it found."""

    def __init__(
        self,
        cluster: str,
        admin: Admin,
        take: Callable[[Sample], Awaitable[None]],
        *,
        interval_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`take` is called with each sample; `interval_s` is the shortest time between two looks."""
        self.cluster = cluster
        self._admin = admin
        self._take = take
        self._interval_s = interval_s
        self._now = now
        self._aging = Aging()
        self._looked_at: datetime | None = None
        self._brokers: dict[str, datetime] = {}
        #: The last look; None before the first.
        self.last: Sample | None = None
        self._repeating = Repeating(f"watching cluster {cluster}", self.look, lambda: interval_s, at_once=True)

    def start(self) -> None:
        """Start looking."""
        self._repeating.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._repeating.stop()

    def look_again(self) -> None:
        """Look now, because something was changed."""
        self._repeating.wake()

    async def look(self) -> float:
        """Take one look; return the seconds until the next."""
        begun = time.monotonic()
        now = self._now()
        problems: list[str] = []
        groups, groups_known, groups_cut = await self._look_at_groups(now, problems)
        brokers, brokers_complete = await self._look_at_brokers(now, problems)
        slaves, slaves_complete = await self._look_at_slaves(problems)
        took = time.monotonic() - begun
        next_in = choose_interval(took, count_lively(groups.values()), self._interval_s)
        self.last = sample = Sample(
            cluster=self.cluster,
            at=now,
            took=round(took, 3),
            next_in=next_in,
            groups=groups,
            brokers=brokers,
            slaves=slaves,
            groups_known=groups_known,
            groups_complete=groups_known and not groups_cut,
            brokers_complete=brokers_complete,
            slaves_complete=slaves_complete,
            problems=list(dict.fromkeys(problems)),
        )
        await self._take(sample)
        return next_in

    # -- groups ------------------------------------------------------------------------------------------------------

    async def _look_at_groups(self, now: datetime, problems: list[str]) -> tuple[dict[str, GroupSample], bool, bool]:
        rows = await self._ask(self._admin.offsets.lag(times=False, limit=_QUEUES_MAX), problems)
        if rows is None:
            return ({} if self.last is None else self.last.groups), False, False
        elapsed = None if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        aged = self._aging.learn(rows.items, now)
        await self._read_waits(self._aging.list_unknown(aged), problems)
        groups = join_groups(self._aging.correct(aged, now), elapsed)
        await self._count_members(groups, problems)
        return groups, not rows.problems, rows.cut

    async def _read_waits(self, unknown: Sequence[QueueLag], problems: list[str]) -> None:
        """Read the messages of some queues that do not move; the others follow at the next looks."""
        for group in list(dict.fromkeys(row.group for row in unknown))[:_READ_GROUPS]:
            topics = sorted({row.topic for row in unknown if row.group == group})
            found = await self._ask(self._admin.offsets.lag([group], topics, limit=_READ_QUEUES), problems)
            if found is not None:
                self._aging.learn_waits(found.items, self._now())

    async def _count_members(self, groups: dict[str, GroupSample], problems: list[str]) -> None:
        """Ask for the members of groups that do not move: without any they are absent, not stuck."""
        silent = [each for each in groups.values() if each.lag and not each.outgoing]
        silent.sort(key=lambda each: -(each.age or 0.0))
        names = [each.group for each in silent[:_ASKED_GROUPS]]
        if not names:
            return
        found = await self._ask(self._admin.groups.connections(names, limit=_ASKED_GROUPS), problems)
        if found is not None and not found.problems:
            counts = {row.group: len({each.client_id for each in row.connections}) for row in found.items}
            add_members(groups, {name: counts.get(name, 0) for name in names})

    # -- brokers -----------------------------------------------------------------------------------------------------

    async def _look_at_brokers(self, now: datetime, problems: list[str]) -> tuple[list[BrokerSample], bool]:
        found = await self._ask(self._admin.brokers.runtime(), problems)
        rows = [] if found is None else found.items
        samples = [
            BrokerSample(
                broker=row.broker,
                incoming=row.put_rates[0] if row.put_rates else None,
                # Messages that were delivered; `get_rates` are pulls, also those that found nothing.
                outgoing=row.transferred_rates[0] if row.transferred_rates else None,
                disk=max((x for x in (row.log_disk_ratio, row.queue_disk_ratio) if x is not None), default=None),
            )
            for row in rows
        ]
        answered = {row.broker for row in rows}
        for broker in answered | ({each.where for each in found.problems} if found is not None else set()):
            self._brokers.setdefault(broker, now)
        for broker in answered:
            self._brokers[broker] = now
        self._brokers = {name: at for name, at in self._brokers.items() if now - at < _FORGET_AFTER}
        gone = [BrokerSample(broker=name, gone_since=at) for name, at in self._brokers.items() if name not in answered]
        # When no name server answers, no broker is known to be gone.
        return sorted(samples + gone, key=lambda each: each.broker), found is not None

    async def _look_at_slaves(self, problems: list[str]) -> tuple[list[SlaveSample], bool]:
        found = await self._ask(self._admin.cluster.lag(), problems)
        rows = [] if found is None else found.items
        samples = [
            SlaveSample(
                slave=f"{row.broker}:{row.broker_id}",
                connected=row.connected,
                lag_bytes=row.lag_bytes,
                lag_seconds=row.lag_seconds,
            )
            for row in rows
        ]
        return samples, found is not None

    async def _ask(self, work: Awaitable[Listed[Item]], problems: list[str]) -> Listed[Item] | None:
        try:
            listed = await work
        except ErucaError as error:
            problems.append(str(error))
            return None
        problems += [f"{each.where}: {each.error}" for each in listed.problems]
        return listed


def choose_interval(took: float, lively: int, shortest_s: float) -> float:
    """Return the pause after a look that took some seconds and found groups to store."""
    wanted = max(shortest_s, took / BUSY_SHARE, lively / STORED_GROUPS_RATE)
    return round(min(wanted, INTERVAL_S_MAX), 3)


def count_lively(groups: Iterable[GroupSample]) -> int:
    """Return how many groups have something to store: a backlog or traffic."""
    return sum(1 for each in groups if is_lively(each))


def is_lively(group: GroupSample) -> bool:
    """Whether there is something to store of a group."""
    return bool(group.lag or group.incoming or group.outgoing)

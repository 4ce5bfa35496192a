"""Collecting the picture of a cluster: few requests for many topics and groups, each part with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from eruca._admin.brokers import GroupProgress
from eruca._admin.deadletters import GroupLetters
from eruca._admin.doctor.findings import Limits
from eruca._admin.doctor.picture import Picture
from eruca._admin.groupmembers import Difference
from eruca._admin.groups import Group
from eruca._admin.queueends import QueueEnds
from eruca._admin.results import Listed, Problem
from eruca._admin.transactiontable import UNDECIDED
from eruca._wire.names import CONFLICTS_PREFIX
from eruca.errors import ErucaError, NoRoute

if TYPE_CHECKING:
    from eruca._admin.admin import Admin

Item = TypeVar("Item")
Result = TypeVar("Result")

_ERUCA = "eruca"
# Groups that are looked at in detail at the same time.
_AT_ONCE = 8
# Topics of one group whose settings are read.
_TOPICS_OF_GROUP = 100


class Collecting:
    """Collects the parts of one picture; a part that fails or takes too long is noted, and the others remain."""

    def __init__(self, admin: Admin, limits: Limits) -> None:
        self._admin = admin
        self._limits = limits
        self._problems: list[Problem] = []
        self._left_out: list[str] = []

    async def collect(self) -> Picture:
        """Return a picture: two looks at the offsets, and everything else in between."""
        limits, admin = self._limits, self._admin
        async with asyncio.TaskGroup() as tasks:
            start = tasks.create_task
            looking = start(self._look_closely())
            health = start(self._list("health", admin.brokers.health()))
            runtime = start(self._list("runtime", admin.brokers.runtime()))
            configs = start(self._list("configuration", admin.brokers.config()))
            members = start(self._list("members", admin.cluster.members()))
            slaves = start(self._list("replication", admin.cluster.lag()))
            servers = start(self._list("name servers", admin.nameservers.list()))
            disagreements = start(self._list("comparison of name servers", admin.nameservers.compare()))
            topics = start(self._list("topics", admin.topics.settings(limit=limits.topics)))
            connections = start(self._list("members of groups", admin.groups.connections(limit=limits.groups)))
            producers = start(self._list("producers", admin.clients.producers(limit=limits.groups)))
            letters = start(self._list("dead letters", admin.dead_letters.list(limit=limits.groups)))
            unreachable = start(self._list("queues out of reach", admin.topics.unreachable(limit=limits.queues)))
            halves = start(self._list("transactions", admin.transactions.list(UNDECIDED, limit=limits.halves)))
        backlog, groups, between = looking.result()
        picture = Picture(
            at=datetime.now(UTC),
            health=health.result(),
            runtime=runtime.result(),
            configs=configs.result(),
            members=members.result(),
            slaves=slaves.result(),
            nameservers=servers.result(),
            disagreements=disagreements.result(),
            topics=topics.result(),
            connections=connections.result(),
            producers=producers.result(),
            backlog=backlog,
            groups=groups,
            between=between,
            ends=await self._find_ends(groups),
            unreachable=unreachable.result(),
            letters=letters.result(),
            halves=halves.result(),
            problems=self._problems,
            left_out=self._left_out,
        )
        picture.differences.update(await self._compare_subscriptions(picture))
        return picture

    async def collect_group(self, name: str) -> tuple[Picture, Group]:
        """Return a picture of one group, and the group at the second look. Raises NoRoute if no broker knows it."""
        loop, admin = asyncio.get_running_loop(), self._admin
        first_at = loop.time()
        first = await admin.groups.show(name)
        backlog = [
            GroupProgress(
                group=name,
                topic=row.topic,
                broker=row.broker,
                queue=row.queue,
                offset=row.offset or 0,
                end=row.end,
                lag=row.lag,
                consumed_at=row.consumed_at,
            )
            for row in first.queues
            if row.lag
        ]
        connections, configs = await asyncio.gather(
            self._list("members", admin.groups.connections([name])),
            self._list("configuration", admin.brokers.config()),
        )
        names = sorted({row.topic for row in first.queues})[:_TOPICS_OF_GROUP]
        settings = [await self._list("topics", admin.topics.settings(topic)) for topic in names]
        await asyncio.sleep(max(0.0, self._limits.sample - (loop.time() - first_at)))
        between = loop.time() - first_at
        second = await admin.groups.show(name)
        picture = Picture(
            at=datetime.now(UTC),
            configs=configs,
            topics=[row for rows, topic in zip(settings, names, strict=True) for row in rows if row.topic == topic],
            connections=connections,
            backlog=backlog,
            groups=[second],
            between=between,
            ends=await self._find_ends([second]),
            differences={name: second.differences},
            letters=[GroupLetters(group=name, count=second.dead_letters)],
            problems=[*self._problems, *second.problems],
            left_out=self._left_out,
        )
        return picture, second

    # -- groups ------------------------------------------------------------------------------------------------------

    async def _look_closely(self) -> tuple[list[GroupProgress], list[Group], float]:
        """Return all queues with a backlog, and the groups with the largest or oldest, a moment later."""
        limits, loop = self._limits, asyncio.get_running_loop()
        backlog = await self._list(
            "progress of groups", self._admin.brokers.consume_stats(lag_min=1, limit=limits.queues)
        )
        first_at = loop.time()
        chosen, others = choose_groups(backlog, limits.groups_closely)
        if others:
            self._left_out.append(
                f"looked closely at {len(chosen)} of {len(chosen) + others} groups with a backlog:"
                " those with the largest, and those with the oldest"
            )
        if not chosen:
            return backlog, [], 0.0
        await asyncio.sleep(max(0.0, limits.sample - (loop.time() - first_at)))
        between = loop.time() - first_at
        groups = await self._map("groups with a backlog", chosen, self._admin.groups.show)
        return backlog, [group for group in groups if group is not None], between

    async def _find_ends(self, groups: list[Group]) -> list[QueueEnds]:
        topics = sorted({row.topic for group in groups for row in group.queues if row.lag})
        if not topics:
            return []
        return await self._list("ends of queues", self._admin.topics.ends(topics, limit=self._limits.queues))

    async def _compare_subscriptions(self, picture: Picture) -> dict[str, list[Difference]]:
        """Ask members for their subscriptions: of groups that Eruca reports, and of all groups on Java brokers."""
        java = {row.broker for row in picture.health if row.kind != _ERUCA}
        reported = {
            key.removeprefix(CONFLICTS_PREFIX)
            for row in picture.runtime
            for key in row.raw
            if key.startswith(CONFLICTS_PREFIX)
        }
        several = [
            row.group
            for row in picture.connections
            if len({c.client_id for c in row.connections}) > 1 and any(c.broker in java for c in row.connections)
        ]
        wanted = sorted(reported & picture.connected.keys()) + sorted(set(several) - reported)
        chosen = wanted[: self._limits.groups_compared]
        if len(wanted) > len(chosen):
            self._left_out.append(
                f"compared the subscriptions of {len(chosen)} of {len(wanted)} groups on Java brokers"
            )
        found = await self._map("subscriptions", chosen, self._admin.groups.differences)
        return {name: rows.items for name, rows in zip(chosen, found, strict=True) if rows is not None}

    # -- parts -------------------------------------------------------------------------------------------------------

    async def _list(self, part: str, work: Coroutine[Any, Any, Listed[Item]]) -> list[Item]:
        """Return the rows of a part, or none if it fails; both are noted."""
        listed = await self._attempt(part, work)
        if listed is None:
            return []
        self._problems += listed.problems
        if listed.cut:
            self._left_out.append(f"{part}: only the first {len(listed.items)}")
        return listed.items

    async def _map(
        self, part: str, names: list[str], look: Callable[[str], Coroutine[Any, Any, Result]]
    ) -> list[Result | None]:
        """Return the result for each name, a few at a time; None where it failed, which is noted."""
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> Result | None:
            async with room:
                try:
                    return await look(name)
                except NoRoute:
                    return None  # deleted in the meantime
                except ErucaError as error:
                    self._problems.append(Problem(where=f"group {name}", error=str(error)))
                    return None

        found = await self._attempt(part, _gather([one(name) for name in names]))
        return [None] * len(names) if found is None else found

    async def _attempt(self, part: str, work: Coroutine[Any, Any, Result]) -> Result | None:
        try:
            async with asyncio.timeout(self._limits.patience):
                return await work
        except TimeoutError:
            self._left_out.append(f"{part}: took more than {self._limits.patience:g} s")
        except ErucaError as error:
            self._problems.append(Problem(where=part, error=str(error)))
        return None


async def _gather(work: list[Awaitable[Result]]) -> list[Result]:
    return list(await asyncio.gather(*work))


def choose_groups(backlog: list[GroupProgress], count: int) -> tuple[list[str], int]:
    """Return the groups to look at closely, and how many others have a backlog.

    Half of them have the largest backlog; the others have consumed nothing for longest.
    """
    lag: dict[str, int] = {}
    consumed: dict[str, datetime] = {}
    never = datetime.max.replace(tzinfo=UTC)
    for row in backlog:
        lag[row.group] = lag.get(row.group, 0) + row.lag
        consumed[row.group] = min(row.consumed_at or never, consumed.get(row.group, never))
    largest = sorted(lag, key=lambda name: (-lag[name], name))
    oldest = sorted(lag, key=lambda name: (consumed[name], name))
    chosen = largest[: (count + 1) // 2]
    chosen += [name for name in oldest if name not in set(chosen)][: count - len(chosen)]
    return sorted(chosen), len(lag) - len(chosen)

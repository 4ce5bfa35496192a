"""What the list of topics shows: settings of all of them, and places and rates of those on the page."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from eruca._admin.results import Listed, Problem
from eruca._admin.targets import gather_bounded
from eruca._admin.topics import NamedSettings, TopicName
from eruca._console.clusters import Cluster
from eruca.errors import ErucaError

#: Topics that the list shows at most; the filter looks at all of these.
TOPICS_MAX = 50_000
# Rates are asked for one topic at a time.
_RATES_MAX = 100
#: Folders that the list shows; the others are counted.
FOLDERS_MAX = 24
_SEPARATORS = "-_%|."


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of the list."""

    name: str
    kind: str
    # Queues of all brokers, to write and to read.
    write_queues: int = 0
    read_queues: int = 0
    permission: str = ""
    ordered: bool = False
    brokers: list[str] = []
    favourite: bool = False
    # Of those on the page: messages that are stored, when the last one was, and how many came per second.
    messages: int | None = None
    last_at: datetime | None = None
    rate: float | None = None


class TopicList(msgspec.Struct, frozen=True, kw_only=True):
    """All topics of a cluster."""

    rows: list[TopicRow]
    cut: bool
    problems: list[Problem]


@dataclass(frozen=True, slots=True)
class Folder:
    """Topics whose names begin in the same way, up to a separator."""

    prefix: str
    count: int


async def read_topics(cluster: Cluster, kind: str) -> TopicList:
    """Return all topics of a kind, with their settings."""
    return await cluster.recent.ask(f"topics {kind}", lambda: _read_topics(cluster, kind))


async def _read_topics(cluster: Cluster, kind: str) -> TopicList:
    names, settings = await asyncio.gather(
        cluster.admin.topics.list(kind=kind, limit=TOPICS_MAX), read_settings(cluster)
    )
    by_topic: dict[str, list[NamedSettings]] = defaultdict(list)
    for each in settings.items:
        by_topic[each.topic].append(each)
    rows = [_join(name, by_topic.get(name.name, [])) for name in names.items]
    return TopicList(rows=rows, cut=names.cut or settings.cut, problems=[*names.problems, *settings.problems])


async def read_settings(cluster: Cluster) -> Listed[NamedSettings]:
    """Return the settings of all topics on each broker."""
    return await cluster.recent.ask(
        "topics.settings", lambda: cluster.admin.topics.settings(limit=TOPICS_MAX), fresh_s=10.0
    )


def _join(name: TopicName, found: Sequence[NamedSettings]) -> TopicRow:
    permissions = sorted({each.settings.permission for each in found})
    return TopicRow(
        name=name.name,
        kind=str(name.kind),
        write_queues=sum(each.settings.write_queues for each in found),
        read_queues=sum(each.settings.read_queues for each in found),
        permission=" ".join(permissions),
        ordered=any(each.settings.ordered for each in found),
        brokers=[each.broker for each in found],
    )


def list_folders(names: Iterable[str], prefix: str) -> list[Folder]:
    """Return what follows a prefix in names, up to the next separator: those with several names, largest first."""
    counts: Counter[str] = Counter()
    for name in names:
        if name.startswith(prefix):
            end = next((at for at in range(len(prefix), len(name)) if name[at] in _SEPARATORS), None)
            if end is not None:
                counts[name[: end + 1]] += 1
    return [Folder(found, count) for found, count in counts.most_common() if count > 1]


def list_parents(prefix: str) -> list[str]:
    """Return the prefix and those above it, the shortest first: `shop-`, `shop-orders-`."""
    return [prefix[: at + 1] for at, letter in enumerate(prefix) if letter in _SEPARATORS]


async def add_places(cluster: Cluster, rows: Sequence[TopicRow]) -> list[TopicRow]:
    """Return the same rows with the number of their messages, the time of the last one, and the rate."""
    names = [row.name for row in rows]
    ends, rates = await asyncio.gather(
        cluster.admin.topics.ends(names, limit=TOPICS_MAX), _read_rates(cluster, names[:_RATES_MAX])
    )
    counts: dict[str, int] = defaultdict(int)
    last: dict[str, datetime] = {}
    for end in ends.items:
        counts[end.topic] += end.count
        if end.last_at is not None:
            last[end.topic] = max(end.last_at, last.get(end.topic, end.last_at))
    return [
        msgspec.structs.replace(
            row, messages=counts.get(row.name, 0), last_at=last.get(row.name), rate=rates.get(row.name)
        )
        for row in rows
    ]


async def _read_rates(cluster: Cluster, names: Sequence[str]) -> dict[str, float]:
    """Return how many messages came to each topic per second in the last minute."""

    async def ask(name: str) -> float:
        found = await cluster.admin.brokers.statistics("TOPIC_PUT_NUMS", name)
        return sum(each.minute_rate for each in found.items)

    answers = await gather_bounded(names, ask)
    return {name: answer for name, answer in zip(names, answers, strict=True) if not isinstance(answer, ErucaError)}

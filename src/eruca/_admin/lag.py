"""How far consumer groups are behind, in messages and in time, as the brokers report it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.progress import QueueProgress, describe_progress, list_progress, read_offset_names
from eruca._admin.results import Problem
from eruca._admin.settings import read_group_configs
from eruca._admin.targets import BrokerRow, ask_each, find_targets, gather_bounded, make_problem
from eruca._admin.waiting import find_next, measure_wait
from eruca._ground.times import from_epoch_ms
from eruca._wire.bodies import ConsumeStatsList, MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.headers import BrokerConsumeStatsHeader
from eruca.errors import ErucaError

# Groups that brokers and their tools use themselves.
_OWN_GROUPS = frozenset({"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"})
_OWN_PREFIXES = ("CID_ONSAPI_", "CID_RMQ_SYS_")
# A broker goes through all groups and queues for its answer.
_ALL_GROUPS_MS = 15_000


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is behind in one queue."""

    group: str
    topic: str
    broker: str
    queue: int
    offset: int
    end: int
    # How many messages it has not consumed yet.
    lag: int
    # How long the next of them has been waiting; None if there is none, or if it is unknown.
    lag_time: timedelta | None = None
    # When the last message it consumed was stored; None if unknown.
    consumed_at: datetime | None = None


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is behind in one topic."""

    group: str
    topic: str
    queues: int
    lag: int
    lag_time: timedelta | None = None


def is_own_group(group: str) -> bool:
    """Whether brokers and their tools use a group themselves."""
    return group in _OWN_GROUPS or group.startswith(_OWN_PREFIXES)


async def read_lag(
    connection: Connection,
    groups: Sequence[str] = (),
    topics: Collection[str] = (),
    *,
    limit: int,
    times: bool = True,
    now: datetime | None = None,
) -> tuple[list[QueueLag], bool, list[Problem]]:
    """Return how far each group is behind in each queue, whether rows were cut, and what could not be asked.

    If there are more than `limit`, those that are furthest behind are kept.
    """
    rows = await find_targets(connection)
    if groups:
        found, problems = await _read_named(connection, rows, groups)
    else:
        found, problems = await read_all_progress(connection, rows)
    lags = [_describe(group, each) for group, each in found if not topics or each.topic in topics]
    cut = len(lags) > limit
    if cut:
        lags = sorted(lags, key=lambda row: -row.lag)[:limit]
    if times:
        lags = await _add_times(connection, lags, now)
    return sorted(lags, key=lambda row: (row.group, row.topic, row.broker, row.queue)), cut, problems


async def _read_named(
    connection: Connection, rows: Sequence[BrokerRow], groups: Sequence[str]
) -> tuple[list[tuple[str, QueueProgress]], list[Problem]]:
    problems: dict[str, Problem] = {}
    found = []
    answers = await gather_bounded(groups, lambda group: list_progress(connection, group, rows=rows))
    for group, answer in zip(groups, answers, strict=True):
        if isinstance(answer, ErucaError):
            raise answer
        found += [(group, each) for each in answer[0]]
        problems |= {each.where: each for each in answer[1]}
    return found, list(problems.values())


async def read_all_progress(
    connection: Connection, rows: Sequence[BrokerRow], *, ordered: bool = False
) -> tuple[list[tuple[str, QueueProgress]], list[Problem]]:
    """Return the progress of all groups on some brokers, with one or two requests to each, without the brokers' own."""

    async def ask(row: BrokerRow) -> list[tuple[str, QueueProgress]]:
        header = BrokerConsumeStatsHeader(is_order=ordered)
        _, body = await connection.ask(
            row.address, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_ms=_ALL_GROUPS_MS
        )
        tables = body.consume_stats_list if isinstance(body, ConsumeStatsList) else []
        return [
            (group, describe_progress(queue, each))
            for table in tables
            for group, all_stats in table.items()
            if not is_own_group(group)
            for stats in all_stats
            for queue, each in stats.offset_table.items()
        ]

    found, problems = await ask_each(rows, ask)
    progress = [each for _, part in found for each in part]
    if ordered:
        return progress, problems
    # Groups that only have offsets, and no settings, are not in that answer.
    known = {row.where: {group for group, _ in part} for row, part in found}
    tables, _ = await ask_each([row for row, _ in found], lambda row: read_offset_names(connection, row.address))
    for row, names in tables:
        others = sorted({group for _, group in names if not is_own_group(group)} - known[row.where])
        answers = await gather_bounded(others, partial(list_progress, connection, topic=None, rows=[row]))
        for group, answer in zip(others, answers, strict=True):
            if isinstance(answer, ErucaError):
                problems.append(make_problem(row, answer))
            else:
                progress += [(group, each) for each in answer[0]]
    return progress, problems


def _describe(group: str, progress: QueueProgress) -> QueueLag:
    return QueueLag(
        group=group,
        topic=progress.topic,
        broker=progress.broker,
        queue=progress.queue,
        offset=progress.offset,
        end=progress.end,
        lag=progress.lag,
        consumed_at=progress.consumed_at,
    )


async def _add_times(connection: Connection, lags: Sequence[QueueLag], now: datetime | None) -> list[QueueLag]:
    async def ask(row: QueueLag) -> timedelta | None:
        if not row.lag:
            return None
        stored_at = row.consumed_at
        try:
            message = await find_next(connection, MessageQueue(row.broker, row.queue, row.topic), row.offset)
        except ErucaError:
            # When the last message before was stored is close to it.
            message = None
        if message is not None:
            stored_at = from_epoch_ms(message.record.store_timestamp)
        return measure_wait(stored_at, now or datetime.now(UTC))

    times = await gather_bounded(lags, ask)
    return [
        msgspec.structs.replace(row, lag_time=time) if isinstance(time, timedelta) else row
        for row, time in zip(lags, times, strict=True)
    ]


async def list_groups(connection: Connection, rows: Sequence[BrokerRow]) -> tuple[dict[str, set[str]], list[Problem]]:
    """Return the groups that brokers know, by name: from `settings`, from `offsets` or from both."""

    async def ask(row: BrokerRow) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name in await read_group_configs(connection, row.address):
            found.setdefault(name, set()).add("settings")
        for _, name in await read_offset_names(connection, row.address):
            found.setdefault(name, set()).add("offsets")
        return found

    tables, problems = await ask_each(rows, ask)
    groups: dict[str, set[str]] = {}
    for _, table in tables:
        for name, sources in table.items():
            groups.setdefault(name, set()).update(sources)
    return groups, problems


def sum_lag(rows: Iterable[QueueLag]) -> list[GroupLag]:
    """Return how far each group is behind in each topic: the sum of its messages, and the longest wait."""
    found: dict[tuple[str, str], list[QueueLag]] = {}
    for row in rows:
        found.setdefault((row.group, row.topic), []).append(row)
    return [
        GroupLag(
            group=group,
            topic=topic,
            queues=len(each),
            lag=sum(row.lag for row in each),
            lag_time=max((row.lag_time for row in each if row.lag_time is not None), default=None),
        )
        for (group, topic), each in sorted(found.items())
    ]

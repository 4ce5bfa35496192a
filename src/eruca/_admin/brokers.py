"""Brokers: configuration, runtime information, statistics, write permission, cleaning up, health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.lag import read_all_progress
from eruca._admin.progress import QueueProgress
from eruca._admin.rates import Rate, read_rates
from eruca._admin.results import LIMIT, Change, Changed, Listed, Undo, cut_list, fail_silent, name_outcome
from eruca._admin.runtime import Runtime, describe_runtime, read_clock, read_table
from eruca._admin.serveroptions import choose_options, list_different
from eruca._admin.settings import read_topic_configs
from eruca._admin.targets import (
    BrokerRow,
    ask_each,
    change_each,
    find_target,
    find_targets,
    gather_bounded,
    list_registered,
    one_or_all,
)
from eruca._wire.bodies import DataVersion, TopicRouteData, decode_json
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import BrokerConfigAnswerHeader, BrokerNameHeader, RouteHeader
from eruca._wire.names import WRITE
from eruca.errors import ConfigError, ErucaError, RequestRefused

# A broker deletes files before it answers.
_CLEAN_MS = 30_000


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a broker answers, and how its disk and clock are."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    answers: bool
    # How long it took to answer.
    round_trip: timedelta | None = None
    version: str | None = None
    # `eruca` or `java`; empty if unknown.
    kind: str = ""
    log_disk_ratio: float | None = None
    disk_free_bytes: int | None = None
    dispatch_behind_bytes: int | None = None
    # How much its clock is ahead of ours, within the round trip; None if it does not report a time.
    clock_ahead: timedelta | None = None
    problem: str = ""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one server."""

    # The name of a broker, or the address of a name server.
    where: str
    address: str
    options: dict[str, str]
    # Counts changes since it started.
    version: int | None = None


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in one queue, as its broker reports it."""

    group: str
    topic: str
    broker: str
    queue: int
    offset: int
    end: int
    lag: int
    consumed_at: datetime | None = None


class Brokers:
    """Shows and changes what brokers report, are configured with and count: `admin.brokers`.

    Where a method takes a `broker`, this is its name, or its address to reach a slave.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- looking -----------------------------------------------------------------------------------------------------

    async def list(self, *, cluster: str | None = None, limit: int = LIMIT) -> Listed[BrokerRow]:
        """Return the registered brokers, masters and slaves."""
        return cut_list(await list_registered(self._connection, cluster), limit)

    async def runtime(
        self, broker: str | None = None, *, cluster: str | None = None, limit: int = LIMIT
    ) -> Listed[Runtime]:
        """Return what brokers report about themselves: one, those of a cluster, or all, with slaves."""
        connection = self._connection
        rows = await find_targets(connection, one_or_all(broker), cluster, slaves=True)
        found, problems = await ask_each(rows[:limit], lambda row: read_table(connection, row.address))
        items = [describe_runtime(row, table) for row, table in found]
        return cut_list(items, limit, problems, more=len(rows) > limit)

    async def config(
        self, broker: str | None = None, *, cluster: str | None = None, limit: int = LIMIT
    ) -> Listed[ServerConfig]:
        """Return the configuration of brokers: one, those of a cluster, or all, with slaves."""
        connection = self._connection
        rows = await find_targets(connection, one_or_all(broker), cluster, slaves=True)
        found, problems = await ask_each(rows[:limit], lambda row: _read_config(connection, row))
        return cut_list([config for _, config in found], limit, problems, more=len(rows) > limit)

    async def statistics(self, name: str, key: str, *, broker: str | None = None) -> Listed[Rate]:
        """Return a counter: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of `topic@group`, and others of Java's.

        Brokers that do not have it are left out.
        """
        rows = await find_targets(self._connection, one_or_all(broker))
        rates, problems = await read_rates(self._connection, rows, [(name, key)])
        return Listed(items=rates, problems=problems)

    async def consume_stats(
        self, broker: str | None = None, *, ordered: bool = False, lag_min: int = 0, limit: int = LIMIT
    ) -> Listed[GroupProgress]:
        """Return how far all groups are in the queues of a broker, or of all: those that are at least `lag_min` behind.

        `ordered`: only topics that are configured as ordered. If there are more than `limit`, those that are furthest
        behind are returned.
        """
        rows = await find_targets(self._connection, one_or_all(broker))
        found, problems = await read_all_progress(self._connection, rows, ordered=ordered)
        items = [_describe_progress(group, each) for group, each in found if each.lag >= lag_min]
        items.sort(key=lambda each: -each.lag)
        kept = sorted(items[:limit], key=lambda each: (each.group, each.topic, each.broker, each.queue))
        return cut_list(kept, limit, problems, more=len(items) > limit)

    async def health(self, *, cluster: str | None = None, limit: int = LIMIT) -> Listed[Health]:
        """Ask every registered broker whether it answers, and about its disk and its clock."""
        rows = await list_registered(self._connection, cluster)
        healths = await asyncio.gather(*[_look_at(self._connection, row) for row in rows[:limit]])
        return cut_list(healths, limit, more=len(rows) > limit)

    # -- changing ----------------------------------------------------------------------------------------------------

    async def set_config(
        self,
        options: Mapping[str, str],
        *,
        broker: str | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[dict[str, str]]:
        """Change options of one broker, of those of a cluster, or of all masters with neither.

        Before and after have these options only. Raises ConfigError if none is named.
        """
        connection = self._connection
        wanted = {name: str(value) for name, value in options.items()}
        if not wanted:
            raise ConfigError("no option is named", hint='pass options={"fileReservedTime": "72"}, for example')
        rows = await find_targets(connection, one_or_all(broker), cluster)
        before, problems = await ask_each(rows, lambda row: _read_config(connection, row))
        known = {row.where: choose_options(config.options, wanted) for row, config in before}

        async def change(row: BrokerRow) -> Change[dict[str, str]]:
            was = known[row.where]
            planned = wanted if list_different(wanted, was) else was
            if dry_run or planned == was:
                outcome = name_outcome(was, planned, dry_run=dry_run)
                return Change(where=row.where, before=was, after=planned, outcome=outcome)
            await connection.ask(row.address, RequestCode.UPDATE_BROKER_CONFIG, body=wanted)
            after = choose_options((await _read_config(connection, row)).options, wanted)
            # Java's broker takes any name and forgets those it does not know.
            ignored = list_different(wanted, after)
            reason = f"the broker did not take {', '.join(ignored)}" if ignored else ""
            outcome = "failed" if ignored else "done"
            return Change(where=row.where, before=was, after=after, outcome=outcome, reason=reason)

        changes = await change_each([row for row, _ in before], change, known)
        undo = [
            Undo(method="brokers.set_config", arguments={"options": each.before, "broker": each.where})
            for each in changes
            if each.outcome in ("done", "planned") and each.before
        ]
        return Changed(name=", ".join(wanted), changes=changes + fail_silent(problems), undo=undo)

    async def wipe_write_permission(self, broker: str, *, dry_run: bool = False) -> Changed[int]:
        """Have the name servers report a broker as read-only, so that producers leave it. Counts are of topics.

        It lasts until the broker registers a changed topic table.
        """
        return await self._change_permission(broker, RequestCode.WIPE_WRITE_PERM_OF_BROKER, dry_run=dry_run)

    async def add_write_permission(self, broker: str, *, dry_run: bool = False) -> Changed[int]:
        """Undo `wipe_write_permission`. Every topic of the broker gets permission to read and write."""
        return await self._change_permission(broker, RequestCode.ADD_WRITE_PERM_OF_BROKER, dry_run=dry_run)

    async def _change_permission(self, broker: str, code: RequestCode, *, dry_run: bool) -> Changed[int]:
        """Change the permission on every name server; before and after are the numbers of writable topics."""
        connection = self._connection
        row = await find_target(connection, broker)
        is_wiped = code == RequestCode.WIPE_WRITE_PERM_OF_BROKER
        topics = sorted(await read_topic_configs(connection, row.address))
        changes: list[Change[int]] = []
        for server in await connection.list_nameservers():
            try:
                before, known = await _count_writable(connection, server, row.broker, topics)
                after = 0 if is_wiped else known
                outcome = name_outcome(before, after, dry_run=dry_run)
                if outcome == "done":
                    await connection.ask_nameserver(server, code, BrokerNameHeader(broker_name=row.broker))
                changes.append(Change(where=server, before=before, after=after, outcome=outcome))
            except ErucaError as error:
                changes.append(Change(where=server, before=None, after=None, outcome="failed", reason=str(error)))
        method = "brokers.add_write_permission" if is_wiped else "brokers.wipe_write_permission"
        changed = [change for change in changes if change.outcome in ("done", "planned")]
        # Permissions that were mixed cannot be restored: a name server changes all topics of a broker alike.
        is_restorable = bool(changed) and (is_wiped or not any(change.before for change in changed))
        undo = [Undo(method=method, arguments={"broker": row.broker})] if is_restorable else []
        return Changed(name=row.broker, changes=changes, undo=undo)

    async def clean_expired_queues(
        self, broker: str | None = None, *, cluster: str | None = None, dry_run: bool = False
    ) -> Changed[str]:
        """Have brokers delete files of consume queues whose messages are gone."""
        return await self._clean(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster, dry_run=dry_run)

    async def clean_unused_topics(
        self, broker: str | None = None, *, cluster: str | None = None, dry_run: bool = False
    ) -> Changed[str]:
        """Have brokers delete the queue files of topics that were deleted."""
        return await self._clean(RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster, dry_run=dry_run)

    async def delete_expired_log(
        self, broker: str | None = None, *, cluster: str | None = None, dry_run: bool = False
    ) -> Changed[str]:
        """Have brokers delete segments of the log that are older than the retention time now, whatever the hour."""
        return await self._clean(RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster, dry_run=dry_run)

    async def _clean(
        self, code: RequestCode, broker: str | None, cluster: str | None, *, dry_run: bool
    ) -> Changed[str]:
        connection = self._connection
        rows = await find_targets(connection, one_or_all(broker), cluster, slaves=broker is None)

        async def clean(row: BrokerRow) -> Change[str]:
            if dry_run:
                plan = await _plan_cleaning(connection, code, row)
                return Change(where=row.where, before=None, after=None, outcome="planned", reason=plan)
            await connection.ask(row.address, code, timeout_ms=_CLEAN_MS)
            return Change(where=row.where, before=None, after=None, outcome="done")

        return Changed(name=code.name.lower(), changes=await change_each(rows, clean, {}))


def _describe_progress(group: str, each: QueueProgress) -> GroupProgress:
    return GroupProgress(
        group=group,
        topic=each.topic,
        broker=each.broker,
        queue=each.queue,
        offset=each.offset,
        end=each.end,
        lag=each.lag,
        consumed_at=each.consumed_at,
    )


async def _read_config(connection: Connection, row: BrokerRow) -> ServerConfig:
    header, options = await connection.ask(row.address, RequestCode.GET_BROKER_CONFIG)
    version = None
    if isinstance(header, BrokerConfigAnswerHeader):
        version = decode_json(DataVersion, header.version.encode()).counter
    return ServerConfig(where=row.where, address=row.address, options=options or {}, version=version)


async def _plan_cleaning(connection: Connection, code: RequestCode, row: BrokerRow) -> str:
    """Return what a broker would delete. It does not name its files, but the rule and the facts behind it."""
    if code == RequestCode.CLEAN_UNUSED_TOPIC:
        topics = await read_topic_configs(connection, row.address)
        return f"deletes the queue files of topics that are not among its {len(topics):,} topics"
    runtime = describe_runtime(row, await read_table(connection, row.address))
    if code == RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE:
        where = "unknown" if runtime.log_begin is None else f"{runtime.log_begin:,}"
        return f"deletes files of queues that end before the log begins, at position {where}"
    hours = (await _read_config(connection, row)).options.get("fileReservedTime", "unknown")
    oldest = "unknown" if runtime.earliest_at is None else runtime.earliest_at.isoformat(timespec="seconds")
    return f"deletes segments that were last written to more than {hours} hours ago; its first message is of {oldest}"


async def _count_writable(connection: Connection, server: str, broker: str, topics: Sequence[str]) -> tuple[int, int]:
    """Return how many topics of a broker a name server reports as writable, and how many it knows."""

    async def read(topic: str) -> int | None:
        try:
            _, route = await connection.ask_nameserver(
                server, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic=topic, accept_standard_json_only=True)
            )
        except RequestRefused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        queues = route.queue_datas if isinstance(route, TopicRouteData) else []
        return next((each.perm for each in queues if each.broker_name == broker), None)

    answers = await gather_bounded(topics, read)
    for answer in answers:
        if isinstance(answer, ErucaError):
            raise answer
    known = [answer for answer in answers if isinstance(answer, int)]
    return sum(1 for permission in known if permission & WRITE), len(known)


async def _look_at(connection: Connection, row: BrokerRow) -> Health:
    health = Health(cluster=row.cluster, broker=row.broker, broker_id=row.broker_id, address=row.address, answers=False)
    started_at, started_s = datetime.now(UTC), time.monotonic()
    try:
        table = await read_table(connection, row.address)
    except ErucaError as error:
        answers = isinstance(error, RequestRefused)
        return msgspec.structs.replace(health, answers=answers, problem=str(error))
    round_trip = timedelta(seconds=time.monotonic() - started_s)
    runtime, clock = describe_runtime(row, table), read_clock(table)
    try:
        await connection.ask(row.address, RequestCode.REPLICATION_STATE)
        kind = "eruca"
    except RequestRefused as error:
        kind = "java" if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED else ""
    except ErucaError:
        kind = ""
    return msgspec.structs.replace(
        health,
        answers=True,
        round_trip=round_trip,
        version=runtime.version,
        kind=kind,
        log_disk_ratio=runtime.log_disk_ratio,
        disk_free_bytes=runtime.disk_free_bytes,
        dispatch_behind_bytes=runtime.dispatch_behind_bytes,
        clock_ahead=None if clock is None else clock - (started_at + round_trip / 2),
    )

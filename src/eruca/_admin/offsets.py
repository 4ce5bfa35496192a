"""Consumer offsets: show them, and move a group to a time, past its backlog, or to the offsets of another group."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from eruca._admin.connection import Connection
from eruca._admin.lag import QueueLag, read_lag
from eruca._admin.moving import (
    Move,
    Moved,
    conclude,
    describe_move,
    find_exactly,
    find_queues,
    find_shifted,
    read_target,
    refuse_members,
    reset_queues,
    split_by_broker,
    write_all,
)
from eruca._admin.progress import Progress, QueueProgress, list_progress, read_progress
from eruca._admin.results import LIMIT, Listed, cut_list
from eruca._admin.savedoffsets import SavedOffsets, export_offsets
from eruca._admin.targets import find_targets
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.headers import CloneGroupOffsetHeader
from eruca.errors import ErucaError, NoRoute


class Offsets:
    """Shows, moves, saves and restores the offsets of groups: `admin.offsets`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- looking -----------------------------------------------------------------------------------------------------

    async def show(self, group: str, topic: str | None = None, *, limit: int = LIMIT) -> Listed[QueueProgress]:
        """Return the progress of a group in one topic, or in all it has offsets in; empty if no broker knows it."""
        rows, problems = await list_progress(self._connection, group, topic)
        return cut_list(rows, limit, problems)

    async def progress(self, group: str, topic: str | None = None, *, limit: int = LIMIT) -> Progress:
        """Return the progress of a group as `show` does, and how many messages per second its members get."""
        rows, rate, problems = await read_progress(self._connection, group, topic)
        return Progress(queues=cut_list(rows, limit, problems), rate=rate)

    async def lag(
        self, groups: Sequence[str] = (), topics: Sequence[str] = (), *, times: bool = True, limit: int = LIMIT
    ) -> Listed[QueueLag]:
        """Return how far groups are behind in each queue: the named groups and topics, or all of them.

        If there are more than `limit`, those that are furthest behind are returned. Without `times` it is quicker: then
        no message is read to find out how long it has been waiting.
        """
        rows, cut, problems = await read_lag(self._connection, groups, topics, limit=limit, times=times)
        return Listed(items=rows, cut=cut, problems=problems)

    async def export(self, group: str, topic: str | None = None) -> SavedOffsets:
        """Return the offsets a group has committed, to restore them later. Raises NoRoute if it has none."""
        saved = await export_offsets(self._connection, group, topic, rows=await find_targets(self._connection))
        if not saved.offsets:
            raise _explain_none(group, topic)
        return saved

    # -- moving ------------------------------------------------------------------------------------------------------

    async def reset(
        self,
        group: str,
        topic: str,
        to: datetime | Literal["earliest", "latest"],
        *,
        force: bool = True,
        dry_run: bool = False,
    ) -> Moved:
        """Move a group to a time, or to "earliest" or "latest". Returns the outcome of each queue.

        If members are connected, the broker tells them, and they move and commit. If none is, the offsets are written
        to the broker; a group that never existed gets offsets too and starts there. Without `force` a group only moves
        back. A broker that fails does not stop the others.
        """
        time_ms = read_target(to)
        connection = self._connection
        moves: list[Move] = []
        for own in split_by_broker(await find_queues(connection, topic)).values():
            try:
                moves += await reset_queues(connection, group, own, time_ms, force=force, dry_run=dry_run)
            except ErucaError as error:
                moves += [describe_move(queue, None, None, "failed", str(error)) for queue in own]
        return conclude(group, moves, datetime.now(UTC))

    async def skip(self, group: str, topic: str, *, dry_run: bool = False) -> Moved:
        """Move a group past all messages it has not consumed yet."""
        return await self.reset(group, topic, "latest", dry_run=dry_run)

    async def set(
        self, group: str, topic: str, broker: str, queue: int, offset: int, *, dry_run: bool = False
    ) -> Moved:
        """Move a group to an offset of one queue. Raises ConfigError while members are connected."""
        connection = self._connection
        place = MessageQueue(broker, queue, topic)
        known = await find_queues(connection, topic)
        if place not in known:
            raise NoRoute(f"topic {topic} has no queue {broker}:{queue}", hint=f"eruca topic show {topic} lists them")
        await refuse_members(connection, group, [connection.find_master(broker)])
        find = find_exactly(connection, {place: offset})
        moves = await write_all(connection, group, [place], find, dry_run=dry_run)
        return conclude(group, moves, datetime.now(UTC))

    async def shift(self, group: str, topic: str, by: int, *, dry_run: bool = False) -> Moved:
        """Move a group by some messages in each queue of a topic, back or forward, within what the queue has.

        Raises ConfigError while members are connected.
        """
        connection = self._connection
        queues = await find_queues(connection, topic)
        await refuse_members(connection, group, (await connection.list_masters()).values())
        moves = await write_all(connection, group, queues, find_shifted(connection, by), dry_run=dry_run)
        return conclude(group, moves, datetime.now(UTC))

    async def clone(self, source: str, target: str, topic: str | None = None, *, dry_run: bool = False) -> Moved:
        """Copy the offsets of one group to another, in one topic or in all. Returns the outcome of each queue.

        Raises ConfigError while members of the target are connected: they would overwrite the offsets with their own.
        """
        connection = self._connection
        masters = await connection.list_masters()
        await refuse_members(connection, target, masters.values())
        found = await self._read(source, topic)
        if not found:
            raise _explain_none(source, topic)
        before = await self._read(target, topic)
        if dry_run:
            planned = [describe_move(queue, before.get(queue), found[queue], "planned") for queue in found]
            return conclude(target, planned, datetime.now(UTC))
        # Topic by topic: asked for all topics at once, a Java broker copies nothing and reports success.
        failures: dict[tuple[str, str], str] = {}
        for broker, name in sorted({(queue.broker_name, queue.topic) for queue in found}):
            header = CloneGroupOffsetHeader(src_group=source, dest_group=target, topic=name, offline=True)
            try:
                await connection.ask(masters[broker], RequestCode.CLONE_GROUP_OFFSET, header)
            except ErucaError as error:
                failures[broker, name] = str(error)
        after = await self._read(target, topic)
        moves = []
        for queue in found:
            reason = failures.get((queue.broker_name, queue.topic), "")
            if not reason and after.get(queue) is None:
                reason = "the broker did not copy the offset"
            outcome = "failed" if reason else "written"
            moves.append(describe_move(queue, before.get(queue), after.get(queue), outcome, reason))
        return conclude(target, moves, datetime.now(UTC))

    async def _read(self, group: str, topic: str | None) -> dict[MessageQueue, int]:
        saved = await export_offsets(self._connection, group, topic, rows=await find_targets(self._connection))
        return {MessageQueue(each.broker, each.queue, each.topic): each.offset for each in saved.offsets}

    async def restore(self, saved: SavedOffsets, *, group: str | None = None, dry_run: bool = False) -> Moved:
        """Write exported offsets back, to the same group or to another. Queues that are gone are reported as failed.

        Raises ConfigError while members are connected.
        """
        connection = self._connection
        name = group or saved.group
        await refuse_members(connection, name, (await connection.list_masters()).values())
        wanted = {MessageQueue(each.broker, each.queue, each.topic): each.offset for each in saved.offsets}
        gone: dict[MessageQueue, str] = {}
        for topic in sorted({queue.topic for queue in wanted}):
            try:
                known = set(await find_queues(connection, topic))
            except NoRoute as error:
                known = set()
                gone |= {queue: str(error) for queue in wanted if queue.topic == topic}
            for queue in wanted:
                if queue.topic == topic and queue not in known:
                    gone.setdefault(queue, "there is no such queue")
        moves = [describe_move(queue, None, None, "failed", reason) for queue, reason in gone.items()]
        left = [queue for queue in wanted if queue not in gone]
        moves += await write_all(connection, name, left, find_exactly(connection, wanted), dry_run=dry_run)
        return conclude(name, moves, datetime.now(UTC))


def _explain_none(group: str, topic: str | None) -> NoRoute:
    where = f" in topic {topic}" if topic else ""
    return NoRoute(f"group {group} has no offsets{where}", hint=f"eruca offset show {group} shows what it has")

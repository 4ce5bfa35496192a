"""Consumer offsets: show them, and move a group to a time, past its backlog, or to the offsets of another group."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.lag import QueueLag, read_lag
from eruca._admin.progress import QueueProgress, list_connected, list_progress
from eruca._admin.results import LIMIT, Listed, Undo
from eruca._client.group.starting import find_offset_since
from eruca._ground.times import to_epoch_ms
from eruca._wire.bodies import MessageQueue, ResetOffsetBody
from eruca._wire.codes import RequestCode
from eruca._wire.headers import CloneGroupOffsetHeader, ResetOffsetHeader
from eruca._wire.names import TOOLS_CONSUMER_GROUP
from eruca.errors import ConfigError, ErucaError, NoRoute, RequestRefused

# As brokers number them: the end of each queue, and its first message.
_LATEST = -1
_EARLIEST = 0


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of moving a group in one queue."""

    topic: str
    broker: str
    queue: int
    # None: the group had no offset there.
    before: int | None
    # None: it was not moved.
    after: int | None
    # `told`: members are connected, were told and move themselves; `written`: no member is connected, the broker stored
    # the offset; `planned`: nothing was changed; `failed`: see `reason`.
    outcome: str
    reason: str = ""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of moving a group in each queue, and the call that moves it back."""

    group: str
    moves: list[Move]
    undo: list[Undo] = []

    @property
    def failed(self) -> bool:
        """Whether it failed in any queue."""
        return any(move.outcome == "failed" for move in self.moves)


class SavedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The offset of a group in one queue."""

    topic: str
    broker: str
    queue: int
    offset: int


class SavedOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets of a group at one time, which `restore` writes back."""

    group: str
    taken_at: datetime
    offsets: list[SavedOffset]


class Offsets:
    """`admin.offsets`"""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- looking -----------------------------------------------------------------------------------------------------

    async def show(self, group: str, topic: str | None = None, *, limit: int = LIMIT) -> Listed[QueueProgress]:
        """Return the progress of a group in one topic, or in all it has offsets in; empty if no broker knows it."""
        rows, problems = await list_progress(self._connection, group, topic)
        return Listed(items=rows[:limit], cut=len(rows) > limit, problems=problems)

    async def lag(
        self, groups: Sequence[str] = (), topics: Sequence[str] = (), *, limit: int = 100_000
    ) -> Listed[QueueLag]:
        """Return how far groups are behind in each queue: the named groups and topics, or all of them."""
        rows = await read_lag(self._connection, groups, topics)
        return Listed(items=rows[:limit], cut=len(rows) > limit)

    async def export(self, group: str, topic: str | None = None) -> SavedOffsets:
        """Return the offsets a group has committed, to restore them later. Raises NoRoute if it has none."""
        raise NotImplementedError

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
        time_ms = _find_time_ms(to)
        connection = self._connection
        route = await connection.routes.refresh(topic)
        queues = sorted({*route.read_queues, *route.write_queues})
        moves: list[Move] = []
        for broker in sorted({queue.broker_name for queue in queues}):
            own = [queue for queue in queues if queue.broker_name == broker]
            try:
                moves += await _reset_at(connection, group, own, time_ms, force=force, dry_run=dry_run)
            except ErucaError as error:
                moves += [_describe(queue, None, None, "failed", str(error)) for queue in own]
        return Moved(group=group, moves=moves)

    async def skip(self, group: str, topic: str, *, dry_run: bool = False) -> Moved:
        """Move a group past all messages it has not consumed yet."""
        return await self.reset(group, topic, "latest", dry_run=dry_run)

    async def set(
        self, group: str, topic: str, broker: str, queue: int, offset: int, *, dry_run: bool = False
    ) -> Moved:
        """Move a group to an offset of one queue. Raises ConfigError while members are connected."""
        raise NotImplementedError

    async def shift(self, group: str, topic: str, by: int, *, dry_run: bool = False) -> Moved:
        """Move a group by some messages in each queue of a topic, back or forward, within what the queue has.

        Raises ConfigError while members are connected.
        """
        raise NotImplementedError

    async def clone(self, source: str, target: str, topic: str | None = None, *, dry_run: bool = False) -> Moved:
        """Copy the offsets of one group to another, in one topic or in all. Returns the outcome of each queue.

        Raises ConfigError while members of the target are connected: they would overwrite the offsets with their own.
        """
        connection = self._connection
        masters = await connection.list_masters()
        for address in masters.values():
            if members := await list_connected(connection, address, target):
                raise ConfigError(
                    f"group {target} has {len(members)} members connected, which would overwrite the offsets",
                    hint="stop them, then clone again",
                )
        found = await _list_committed(connection, source, topic)
        if not found:
            where = f" in topic {topic}" if topic else ""
            raise NoRoute(f"group {source} has no offsets{where}", hint=f"eruca offset show {source} shows what it has")
        before = await _list_committed(connection, target, topic)
        if dry_run:
            rows = [_describe(queue, before.get(queue), found[queue], "planned") for queue in sorted(found)]
            return Moved(group=target, moves=rows)
        header = CloneGroupOffsetHeader(src_group=source, dest_group=target, topic=topic or "", offline=True)
        failures: dict[str, str] = {}
        for broker in sorted({queue.broker_name for queue in found}):
            try:
                await connection.ask(masters[broker], RequestCode.CLONE_GROUP_OFFSET, header)
            except ErucaError as error:
                failures[broker] = str(error)
        after = await _list_committed(connection, target, topic)
        moves = []
        for queue in sorted(found):
            reason = failures.get(queue.broker_name, "")
            if not reason and after.get(queue) is None:
                reason = "the broker did not copy the offset"
            outcome = "failed" if reason else "written"
            moves.append(_describe(queue, before.get(queue), after.get(queue), outcome, reason))
        return Moved(group=target, moves=moves)

    async def restore(self, saved: SavedOffsets, *, group: str | None = None, dry_run: bool = False) -> Moved:
        """Write exported offsets back, to the same group or to another. Queues that are gone are reported as failed.

        Raises ConfigError while members are connected.
        """
        raise NotImplementedError


# --- moving -----------------------------------------------------------------------------------------------------------


def _find_time_ms(to: datetime | str) -> int:
    if isinstance(to, datetime):
        return max(_EARLIEST, to_epoch_ms("to", to))
    if to not in ("earliest", "latest"):
        raise ConfigError(f"to={to!r}: expected 'earliest', 'latest' or a datetime")
    return _EARLIEST if to == "earliest" else _LATEST


async def _reset_at(
    connection: Connection, group: str, queues: list[MessageQueue], time_ms: int, *, force: bool, dry_run: bool
) -> list[Move]:
    """Move a group in the queues of one broker."""
    address = connection.find_master(queues[0].broker_name)
    before = {queue: await _read_offset(connection, address, group, queue) for queue in queues}
    if dry_run:
        wanted = {
            queue: await _find_wanted(connection, address, queue, time_ms, before[queue], force) for queue in queues
        }
        return [_describe(queue, before[queue], wanted[queue], "planned") for queue in queues]
    header = ResetOffsetHeader(topic=queues[0].topic, group=group, timestamp=time_ms, is_force=force)
    try:
        _, body = await connection.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    except RequestRefused as error:
        # The broker refuses a group without offsets, whether members are connected or not.
        if await list_connected(connection, address, group):
            raise RequestRefused(
                error.code, error.remark, hint="its members have not committed yet; try again in a few seconds"
            ) from error
        return [await _write(connection, address, group, queue, before[queue], time_ms, force) for queue in queues]
    table = body.offset_table if isinstance(body, ResetOffsetBody) else {}
    return [_describe(queue, before.get(queue), offset, "told") for queue, offset in sorted(table.items())]


async def _write(
    connection: Connection,
    address: str,
    group: str,
    queue: MessageQueue,
    before: int | None,
    time_ms: int,
    force: bool,
) -> Move:
    try:
        wanted = await _find_wanted(connection, address, queue, time_ms, before, force)
        await connection.calls.write_offset(address, group, queue, wanted, wait=True)
    except ErucaError as error:
        return _describe(queue, before, None, "failed", str(error))
    return _describe(queue, before, wanted, "written")


async def _find_wanted(
    connection: Connection, address: str, queue: MessageQueue, time_ms: int, before: int | None, force: bool
) -> int:
    if time_ms == _LATEST:
        wanted = await connection.calls.find_max_offset(address, queue)
    elif time_ms == _EARLIEST:
        wanted = await connection.calls.find_min_offset(address, queue)
    else:
        wanted = await find_offset_since(connection.calls, address, TOOLS_CONSUMER_GROUP, queue, time_ms)
    return wanted if force or before is None else min(wanted, before)


async def _read_offset(connection: Connection, address: str, group: str, queue: MessageQueue) -> int | None:
    offset = await connection.calls.read_offset(address, group, queue)
    # For a young queue brokers answer 0 also when the group has no offset.
    if offset == 0 and not await connection.calls.has_offset(address, group, queue):
        return None
    return offset


def _describe(queue: MessageQueue, before: int | None, after: int | None, outcome: str, reason: str = "") -> Move:
    return Move(
        topic=queue.topic,
        broker=queue.broker_name,
        queue=queue.queue_id,
        before=before,
        after=after,
        outcome=outcome,
        reason=reason,
    )


async def _list_committed(connection: Connection, group: str, topic: str | None) -> dict[MessageQueue, int]:
    """Return the offsets a group has committed, without the queues for which `show` has 0 because there is none."""
    found: dict[MessageQueue, int] = {}
    masters = await connection.list_masters()
    rows, _ = await list_progress(connection, group, topic)
    for row in rows:
        queue = MessageQueue(row.broker, row.queue, row.topic)
        if row.offset or await connection.calls.has_offset(masters[row.broker], group, queue):
            found[queue] = row.offset
    return found

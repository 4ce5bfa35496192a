"""Consumer offsets: show them, and move a group to a time, past its backlog, or to the offsets of another group."""

from __future__ import annotations

from datetime import datetime

import msgspec

from eruca._admin.session import Admin
from eruca._client.group.settings import Start
from eruca._client.group.starting import find_offset_since
from eruca._ground.times import from_epoch_ms, to_epoch_ms
from eruca._wire.bodies import ConsumeStats, MessageQueue, ResetOffsetBody
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import CloneGroupOffsetHeader, ConsumeStatsHeader, ResetOffsetHeader
from eruca._wire.names import TOOLS_CONSUMER_GROUP
from eruca.errors import ConfigError, ErucaError, NoRoute, RequestRefused

__all__ = ["Move", "QueueProgress", "clone", "list_members", "reset", "show", "skip"]

# As brokers number them: the end of each queue, and its first message.
_LATEST = -1
_EARLIEST = 0


class QueueProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a group in one queue."""

    topic: str
    broker: str
    queue: int
    offset: int
    end: int
    # When the last message it consumed was stored; None if unknown.
    consumed_at: datetime | None = None

    @property
    def behind(self) -> int:
        """How many messages it has not consumed yet."""
        return max(0, self.end - self.offset)


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


# --- looking ----------------------------------------------------------------------------------------------------------


async def show(admin: Admin, group: str, topic: str | None = None) -> list[QueueProgress]:
    """Return the progress of a group in one topic, or in all it has offsets in; empty if no broker knows the group."""
    rows: list[QueueProgress] = []
    for address in (await admin.list_masters()).values():
        rows += await _show_at(admin, address, group, topic)
    return sorted(rows, key=lambda row: (row.topic, row.broker, row.queue))


async def _show_at(admin: Admin, address: str, group: str, topic: str | None) -> list[QueueProgress]:
    # Asked for one topic, a broker answers 0 for a group without offsets in it. So all topics are asked for.
    header = ConsumeStatsHeader(consumer_group=group, topic="")
    try:
        _, stats = await admin.ask(address, RequestCode.GET_CONSUME_STATS, header)
    except RequestRefused as error:
        if error.code in (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST):
            return []
        raise
    if not isinstance(stats, ConsumeStats):
        return []
    return [
        QueueProgress(
            topic=queue.topic,
            broker=queue.broker_name,
            queue=queue.queue_id,
            offset=found.consumer_offset,
            end=found.broker_offset,
            consumed_at=from_epoch_ms(found.last_timestamp) if found.last_timestamp else None,
        )
        for queue, found in stats.offset_table.items()
        if topic in (None, queue.topic)
    ]


async def list_members(admin: Admin, address: str, group: str) -> list[str]:
    """Return the client ids of the members of a group that are connected to a broker."""
    try:
        return await admin.calls.list_members(address, group)
    except RequestRefused:
        return []  # brokers refuse the request if they do not know the group


# --- moving -----------------------------------------------------------------------------------------------------------


async def reset(
    admin: Admin, group: str, topic: str, to: Start, *, force: bool = True, dry_run: bool = False
) -> list[Move]:
    """Move a group to a time, or to "earliest" or "latest". Returns the outcome of each queue.

    If members are connected, the broker tells them, and they move and commit. If none is, the offsets are written to
    the broker; a group that never existed gets offsets too and starts there. Without `force` a group only moves back.
    A broker that fails does not stop the others.
    """
    time_ms = _find_time_ms(to)
    route = await admin.routes.refresh(topic)
    queues = sorted({*route.read_queues, *route.write_queues})
    moves: list[Move] = []
    for broker in sorted({queue.broker_name for queue in queues}):
        own = [queue for queue in queues if queue.broker_name == broker]
        try:
            moves += await _reset_at(admin, group, own, time_ms, force=force, dry_run=dry_run)
        except ErucaError as error:
            moves += [_describe(queue, None, None, "failed", str(error)) for queue in own]
    return moves


def _find_time_ms(to: Start) -> int:
    if isinstance(to, datetime):
        return max(_EARLIEST, to_epoch_ms("to", to))
    if to not in ("earliest", "latest"):
        raise ConfigError(f"to={to!r}: expected 'earliest', 'latest' or a datetime")
    return _EARLIEST if to == "earliest" else _LATEST


async def _reset_at(
    admin: Admin, group: str, queues: list[MessageQueue], time_ms: int, *, force: bool, dry_run: bool
) -> list[Move]:
    """Move a group in the queues of one broker."""
    address = admin.find_master(queues[0].broker_name)
    before = {queue: await _read_offset(admin, address, group, queue) for queue in queues}
    if dry_run:
        wanted = {queue: await _find_wanted(admin, address, queue, time_ms, before[queue], force) for queue in queues}
        return [_describe(queue, before[queue], wanted[queue], "planned") for queue in queues]
    header = ResetOffsetHeader(topic=queues[0].topic, group=group, timestamp=time_ms, is_force=force)
    try:
        _, body = await admin.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    except RequestRefused as error:
        # The broker refuses a group without offsets, whether members are connected or not.
        if await list_members(admin, address, group):
            raise RequestRefused(
                error.code, error.remark, hint="its members have not committed yet; try again in a few seconds"
            ) from error
        return [await _write(admin, address, group, queue, before[queue], time_ms, force) for queue in queues]
    table = body.offset_table if isinstance(body, ResetOffsetBody) else {}
    return [_describe(queue, before.get(queue), offset, "told") for queue, offset in sorted(table.items())]


async def _write(
    admin: Admin, address: str, group: str, queue: MessageQueue, before: int | None, time_ms: int, force: bool
) -> Move:
    try:
        wanted = await _find_wanted(admin, address, queue, time_ms, before, force)
        await admin.calls.write_offset(address, group, queue, wanted, wait=True)
    except ErucaError as error:
        return _describe(queue, before, None, "failed", str(error))
    return _describe(queue, before, wanted, "written")


async def _find_wanted(
    admin: Admin, address: str, queue: MessageQueue, time_ms: int, before: int | None, force: bool
) -> int:
    if time_ms == _LATEST:
        wanted = await admin.calls.find_max_offset(address, queue)
    elif time_ms == _EARLIEST:
        wanted = await admin.calls.find_min_offset(address, queue)
    else:
        wanted = await find_offset_since(admin.calls, address, TOOLS_CONSUMER_GROUP, queue, time_ms)
    return wanted if force or before is None else min(wanted, before)


async def _read_offset(admin: Admin, address: str, group: str, queue: MessageQueue) -> int | None:
    offset = await admin.calls.read_offset(address, group, queue)
    # For a young queue brokers answer 0 also when the group has no offset.
    if offset == 0 and not await admin.calls.has_offset(address, group, queue):
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


async def skip(admin: Admin, group: str, topic: str, *, dry_run: bool = False) -> list[Move]:
    """Move a group past all messages it has not consumed yet."""
    return await reset(admin, group, topic, "latest", dry_run=dry_run)


async def clone(admin: Admin, source: str, target: str, topic: str | None = None) -> list[Move]:
    """Copy the offsets of one group to another, in one topic or in all. Returns the outcome of each queue.

    Raises ConfigError while members of the target are connected: they would overwrite the offsets with their own.
    """
    masters = await admin.list_masters()
    for address in masters.values():
        if members := await list_members(admin, address, target):
            raise ConfigError(
                f"group {target} has {len(members)} members connected, which would overwrite the offsets",
                hint="stop them, then clone again",
            )
    found = await _list_committed(admin, source, topic)
    if not found:
        where = f" in topic {topic}" if topic else ""
        raise NoRoute(f"group {source} has no offsets{where}", hint=f"eruca offset show {source} shows what it has")
    before = await _list_committed(admin, target, topic)
    header = CloneGroupOffsetHeader(src_group=source, dest_group=target, topic=topic or "", offline=True)
    failures: dict[str, str] = {}
    for broker in sorted({queue.broker_name for queue in found}):
        try:
            await admin.ask(masters[broker], RequestCode.CLONE_GROUP_OFFSET, header)
        except ErucaError as error:
            failures[broker] = str(error)
    after = await _list_committed(admin, target, topic)
    moves = []
    for queue in sorted(found):
        reason = failures.get(queue.broker_name, "")
        if not reason and after.get(queue) is None:
            reason = "the broker did not copy the offset"
        outcome = "failed" if reason else "written"
        moves.append(_describe(queue, before.get(queue), after.get(queue), outcome, reason))
    return moves


async def _list_committed(admin: Admin, group: str, topic: str | None) -> dict[MessageQueue, int]:
    """Return the offsets a group has committed, without the queues for which `show` has 0 because there is none."""
    found: dict[MessageQueue, int] = {}
    masters = await admin.list_masters()
    for row in await show(admin, group, topic):
        queue = MessageQueue(row.broker, row.queue, row.topic)
        if row.offset or await admin.calls.has_offset(masters[row.broker], group, queue):
            found[queue] = row.offset
    return found

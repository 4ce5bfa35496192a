"""Moving groups: telling connected members, or writing offsets for a group that is away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.progress import list_connected, read_committed
from eruca._admin.results import Undo
from eruca._admin.savedoffsets import SavedOffset, SavedOffsets
from eruca._client.group.starting import find_offset_since
from eruca._ground.printable import say_count
from eruca._ground.times import to_epoch_ms
from eruca._wire.bodies import MessageQueue, ResetOffsetBody
from eruca._wire.codes import RequestCode
from eruca._wire.headers import ResetOffsetHeader
from eruca._wire.names import TOOLS_CONSUMER_GROUP
from eruca.errors import ConfigError, ErucaError, RequestRefused

# As brokers number them: the end of each queue, and its first message.
_LATEST = -1
_EARLIEST = 0

# Computes the new offset of a queue at an address; the third argument is its offset before.
FindWanted = Callable[[str, MessageQueue, int | None], Awaitable[int]]


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
    # the offset; `unchanged`: it was there; `planned`: nothing was changed; `failed`: see `reason`.
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


def describe_move(queue: MessageQueue, before: int | None, after: int | None, outcome: str, reason: str = "") -> Move:
    """Return the outcome of one queue."""
    return Move(
        topic=queue.topic,
        broker=queue.broker_name,
        queue=queue.queue_id,
        before=before,
        after=after,
        outcome=outcome,
        reason=reason,
    )


def conclude(group: str, moves: Iterable[Move], now: datetime) -> Moved:
    """Return the outcome of all queues, with the call that undoes it."""
    moves = sorted(moves, key=lambda move: (move.topic, move.broker, move.queue))
    before = [
        SavedOffset(topic=move.topic, broker=move.broker, queue=move.queue, offset=move.before)
        for move in moves
        if move.before is not None and move.after not in (None, move.before) and move.outcome != "failed"
    ]
    saved = SavedOffsets(group=group, taken_at=now, offsets=before)
    undo = [Undo(method="offsets.restore", arguments={"saved": saved})] if before else []
    return Moved(group=group, moves=moves, undo=undo)


def is_same_move(before: Moved, now: Moved, *, to_end: bool = False) -> bool:
    """Return whether a move is still what was planned.

    The group may have consumed in the meantime, and if it moves to the end, this may be a later one. But it must not
    have been moved back, and its queues must be the same.
    """
    if len(before.moves) != len(now.moves):
        return False
    for old, new in zip(before.moves, now.moves, strict=True):
        places = [(move.topic, move.broker, move.queue, move.outcome == "failed", move.reason) for move in (old, new)]
        has_same_target = old.after == new.after or (to_end and (new.after or 0) >= (old.after or 0))
        if places[0] != places[1] or not has_same_target or _is_back(old.before, new.before):
            return False
    return True


def _is_back(before: int | None, now: int | None) -> bool:
    return (before is None) != (now is None) if before is None or now is None else now < before


def split_by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Return queues by the name of their broker."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        found.setdefault(queue.broker_name, []).append(queue)
    return found


async def read_before(
    connection: Connection, address: str, group: str, queues: Iterable[MessageQueue]
) -> dict[MessageQueue, int | None]:
    """Return the offsets that a group has committed in queues of one broker; None where it has none."""
    committed = await read_committed(connection, address, group)
    return {queue: committed.get(MessageQueue("", queue.queue_id, queue.topic)) for queue in queues}


async def find_queues(connection: Connection, topic: str) -> list[MessageQueue]:
    """Return all queues of a topic. Raises NoRoute."""
    route = await connection.require_route(topic)
    return sorted({*route.read_queues, *route.write_queues})


# --- by time: members may be connected --------------------------------------------------------------------------------


def read_target(to: datetime | str) -> int:
    """Return a target as brokers number it. Raises ConfigError."""
    if isinstance(to, datetime):
        return max(_EARLIEST, to_epoch_ms("to", to))
    if to not in ("earliest", "latest"):
        raise ConfigError(f"to={to!r}: expected 'earliest', 'latest' or a datetime")
    return _EARLIEST if to == "earliest" else _LATEST


async def reset_queues(
    connection: Connection, group: str, queues: Sequence[MessageQueue], time_ms: int, *, force: bool, dry_run: bool
) -> list[Move]:
    """Move a group to a time in the queues of one broker."""

    async def find(address: str, queue: MessageQueue, before: int | None) -> int:
        wanted = await _find_at(connection, address, queue, time_ms)
        return wanted if force or before is None else min(wanted, before)

    address = connection.find_master(queues[0].broker_name)
    before = await read_before(connection, address, group, queues)
    if dry_run:
        return await write_queues(connection, group, queues, find, dry_run=True)
    header = ResetOffsetHeader(topic=queues[0].topic, group=group, timestamp=time_ms, is_force=force)
    try:
        _, body = await connection.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    except RequestRefused as error:
        # The broker refuses a group without offsets, whether members are connected or not.
        if await list_connected(connection, address, group):
            raise RequestRefused(
                error.code, error.remark, hint="its members have not committed yet; try again in a few seconds"
            ) from error
        return await write_queues(connection, group, queues, find, dry_run=False)
    table = body.offset_table if isinstance(body, ResetOffsetBody) else {}
    return [describe_move(queue, before.get(queue), offset, "told") for queue, offset in sorted(table.items())]


async def _find_at(connection: Connection, address: str, queue: MessageQueue, time_ms: int) -> int:
    if time_ms == _LATEST:
        return await connection.calls.find_max_offset(address, queue)
    if time_ms == _EARLIEST:
        return await connection.calls.find_min_offset(address, queue)
    return await find_offset_since(connection.calls, address, TOOLS_CONSUMER_GROUP, queue, time_ms)


# --- by offset: nobody may be connected -------------------------------------------------------------------------------


async def refuse_members(connection: Connection, group: str, addresses: Iterable[str]) -> None:
    """Raise ConfigError while members are connected: they would overwrite the offsets with their own."""
    for address in addresses:
        if members := await list_connected(connection, address, group):
            raise ConfigError(
                f"group {group} has {say_count(len(members), 'connected member')}, which would overwrite the offsets",
                hint=f"stop them first; eruca group show {group} lists them",
            )


async def write_queues(
    connection: Connection, group: str, queues: Sequence[MessageQueue], find: FindWanted, *, dry_run: bool
) -> list[Move]:
    """Write the offsets of a group in queues of one broker; one that fails does not stop the others."""
    address = connection.find_master(queues[0].broker_name)
    before = await read_before(connection, address, group, queues)

    async def write(queue: MessageQueue) -> Move:
        was = before[queue]
        try:
            wanted = await find(address, queue, was)
            if was == wanted:
                return describe_move(queue, was, wanted, "unchanged")
            if dry_run:
                return describe_move(queue, was, wanted, "planned")
            await connection.calls.write_offset(address, group, queue, wanted, wait=True)
        except ErucaError as error:
            return describe_move(queue, was, None, "failed", str(error))
        return describe_move(queue, was, wanted, "written")

    return [await write(queue) for queue in queues]


async def write_all(
    connection: Connection, group: str, queues: Iterable[MessageQueue], find: FindWanted, *, dry_run: bool
) -> list[Move]:
    """Write the offsets of a group in queues of any broker; a broker that fails does not stop the others."""
    moves: list[Move] = []
    for own in split_by_broker(queues).values():
        try:
            moves += await write_queues(connection, group, own, find, dry_run=dry_run)
        except ErucaError as error:
            moves += [describe_move(queue, None, None, "failed", str(error)) for queue in own]
    return moves


def find_exactly(connection: Connection, offsets: Mapping[MessageQueue, int]) -> FindWanted:
    """Return a function for certain offsets, which raises ConfigError for one that the queue does not have."""

    async def find(address: str, queue: MessageQueue, before: int | None) -> int:
        wanted = offsets[queue]
        begin = max(0, await connection.calls.find_min_offset(address, queue))
        end = await connection.calls.find_max_offset(address, queue)
        if not begin <= wanted <= end:
            raise ConfigError(f"offset {wanted} is not in the queue, which ranges from {begin} to {end}")
        return wanted

    return find


def find_shifted(connection: Connection, by: int) -> FindWanted:
    """Return a function for offsets that are some messages before or after the present ones."""

    async def find(address: str, queue: MessageQueue, before: int | None) -> int:
        if before is None:
            raise ConfigError("the group has no offset in this queue")
        begin = max(0, await connection.calls.find_min_offset(address, queue))
        end = await connection.calls.find_max_offset(address, queue)
        return min(max(before + by, begin), end)

    return find

"""How far consumer groups are behind, in messages and in time, as the brokers report it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import msgspec

from eruca._admin import offsets
from eruca._admin.offsets import QueueProgress
from eruca._admin.session import Admin
from eruca._ground.durations import to_ms
from eruca._ground.times import to_epoch_ms
from eruca._wire.bodies import ConsumerOffsets, GroupConfigTable, MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.headers import EmptyHeader
from eruca.errors import ErucaError

# Groups that every broker has for its own use.
_TOOLS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONSAPI",
    "CID_ONS-HTTP-PROXY",
    "CID_RMQ_SYS",
)


class QueueLag(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a group is behind in one queue."""

    group: str
    topic: str
    broker: str
    queue_id: int
    offset: int
    end: int
    # How many messages it has not consumed yet.
    behind: int
    # How long the next of them has been waiting; 0 if there is none.
    behind_ms: int


class GroupLag(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a group is behind in one topic."""

    group: str
    topic: str
    queues: int
    behind: int
    behind_ms: int


async def read_lag(
    admin: Admin, groups: Sequence[str] = (), topics: Sequence[str] = (), now_ms: int | None = None
) -> list[QueueLag]:
    """Return how far each group is behind in each queue: the named groups and topics, or all of them."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    rows: list[QueueLag] = []
    for group in groups or await list_groups(admin):
        for progress in await offsets.show(admin, group):
            if topics and progress.topic not in topics:
                continue
            since = await _find_waiting_since(admin, progress)
            rows.append(
                QueueLag(
                    group=group,
                    topic=progress.topic,
                    broker=progress.broker,
                    queue_id=progress.queue,
                    offset=progress.offset,
                    end=progress.end,
                    behind=progress.behind,
                    behind_ms=0 if since is None else max(0, now - since),
                )
            )
    return rows


async def list_groups(admin: Admin) -> list[str]:
    """Return the groups that brokers know or hold offsets of, without the brokers' own groups."""
    found: set[str] = set()
    for address in (await admin.list_masters()).values():
        _, body = await admin.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, EmptyHeader())
        if isinstance(body, GroupConfigTable):
            found.update(body.subscription_group_table)
        _, body = await admin.ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET, EmptyHeader())
        if isinstance(body, ConsumerOffsets):
            found.update(name.partition("@")[2] for name in body.offset_table)
    return sorted(name for name in found if name and not name.startswith(_TOOLS))


async def _find_waiting_since(admin: Admin, progress: QueueProgress) -> int | None:
    """Return when the next message to consume was stored; None if there is none, or if it is not known."""
    if not progress.behind:
        return None
    try:
        return await find_stored_at(
            admin, MessageQueue(progress.broker, progress.queue, progress.topic), progress.offset
        )
    except ErucaError:
        return None if progress.consumed_at is None else to_epoch_ms("consumed_at", progress.consumed_at)


async def find_stored_at(admin: Admin, queue: MessageQueue, offset: int) -> int | None:
    """Return when the first message from an offset on was stored; None if there is none. Raises ErucaError."""
    await admin.routes.get(queue.topic)
    first = max(offset, await admin.reader.find_begin(queue))
    pulled = await admin.reader.pull(
        queue, first, wanted="*", count=1, hold_ms=0, timeout_ms=to_ms("call_timeout", admin.options.call_timeout)
    )
    return pulled.messages[0].record.store_timestamp if pulled.messages else None


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
            behind=sum(row.behind for row in each),
            behind_ms=max(row.behind_ms for row in each),
        )
        for (group, topic), each in sorted(found.items())
    ]

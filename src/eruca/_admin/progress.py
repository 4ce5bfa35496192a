"""How far a group is in each queue, as brokers report it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import Listed, Problem, read_time
from eruca._admin.targets import BrokerRow, ask_each, find_targets
from eruca._client.session.calls import explain_refusal
from eruca._wire.bodies import ConsumeOffset, ConsumerOffsets, ConsumeStats, MessageQueue, decode_json
from eruca._wire.catalog import build_request
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import ConsumeStatsHeader, EmptyHeader
from eruca.errors import RequestRefused

_OFFSET_ENTRIES = re.compile(rb'"([^"@{}]+)@[^"@{}]+"\s*:\s*\{([^{}]*)\}')
_QUEUE_OFFSETS = re.compile(rb'(\d{1,9})"?\s*:\s*(-?\d{1,19})')
_OFFSET_NAMES = re.compile(rb'"([^"@{}]+)@([^"@{}]+)"\s*:\s*\{')


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
    def lag(self) -> int:
        """How many messages it has not consumed yet."""
        return max(0, self.end - self.offset)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is, and how fast."""

    queues: Listed[QueueProgress]
    # Messages per second that its members got in the last minute, in all topics.
    rate: float


async def list_progress(
    connection: Connection, group: str, topic: str | None = None, rows: Sequence[BrokerRow] | None = None
) -> tuple[list[QueueProgress], list[Problem]]:
    """Return the progress of a group in one topic, or in all it has offsets in; empty if no broker knows the group."""
    queues, _, problems = await read_progress(connection, group, topic, rows)
    return queues, problems


async def read_progress(
    connection: Connection, group: str, topic: str | None = None, rows: Sequence[BrokerRow] | None = None
) -> tuple[list[QueueProgress], float, list[Problem]]:
    """Return the progress of a group as `list_progress` does, and how many messages per second its members get."""
    rows = await find_targets(connection) if rows is None else rows
    found, problems = await ask_each(rows, lambda row: read_stats(connection, row.address, group))
    rate = sum(stats.consume_tps for _, stats in found)
    progress = [
        describe_progress(queue, each)
        for _, stats in found
        for queue, each in stats.offset_table.items()
        if topic in (None, queue.topic)
    ]
    return sorted(progress, key=lambda row: (row.topic, row.broker, row.queue)), rate, problems


def describe_progress(queue: MessageQueue, each: ConsumeOffset) -> QueueProgress:
    """Return the progress of a group in one queue as plain values."""
    return QueueProgress(
        topic=queue.topic,
        broker=queue.broker_name,
        queue=queue.queue_id,
        offset=each.consumer_offset,
        end=each.broker_offset,
        consumed_at=read_time(each.last_timestamp),
    )


async def read_stats(connection: Connection, address: str, group: str) -> ConsumeStats:
    """Return the progress of a group as a broker reports it; empty if it does not know the group."""
    # Asked for one topic, a broker answers 0 for a group without offsets in it. So all topics are asked for.
    header = ConsumeStatsHeader(consumer_group=group, topic="")
    try:
        _, stats = await connection.ask(address, RequestCode.GET_CONSUME_STATS, header)
    except RequestRefused as error:
        if error.code in (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST):
            return ConsumeStats()
        raise
    return stats if isinstance(stats, ConsumeStats) else ConsumeStats()


async def read_offset_names(connection: Connection, address: str) -> set[tuple[str, str]]:
    """Return the topic and the group of every offset that a broker keeps.

    Only the names are read: parsing the whole table of a large broker takes seconds.
    """
    answer = await connection.calls.call(address, build_request(RequestCode.GET_ALL_CONSUMER_OFFSET, EmptyHeader()))
    if answer.code != ResponseCode.SUCCESS:
        raise explain_refusal(answer, f"broker {address}")
    return {(topic.decode(), group.decode()) for topic, group in _OFFSET_NAMES.findall(answer.body)}


async def read_lowest(connection: Connection, address: str) -> dict[str, dict[int, int]]:
    """Return, by topic and queue, the lowest offset of any group that has one there at a broker."""
    answer = await connection.calls.call(address, build_request(RequestCode.GET_ALL_CONSUMER_OFFSET, EmptyHeader()))
    if answer.code != ResponseCode.SUCCESS:
        raise explain_refusal(answer, f"broker {address}")
    found: dict[str, dict[int, int]] = {}
    for name, entries in _OFFSET_ENTRIES.findall(answer.body):
        queues = found.setdefault(name.decode(), {})
        for number, offset in _QUEUE_OFFSETS.findall(entries):
            queues[int(number)] = min(int(offset), queues.get(int(number), int(offset)))
    return found


async def read_committed(connection: Connection, address: str, group: str) -> dict[MessageQueue, int]:
    """Return the offsets that a group has committed at a broker; the queues have no broker name."""
    answer = await connection.calls.call(address, build_request(RequestCode.GET_ALL_CONSUMER_OFFSET, EmptyHeader()))
    if answer.code != ResponseCode.SUCCESS:
        raise explain_refusal(answer, f"broker {address}")
    pattern = rb'"([^"@{}]+)@%b"\s*:\s*(\{[^{}]*\})' % re.escape(group.encode())
    found: dict[MessageQueue, int] = {}
    for topic, entries in re.findall(pattern, answer.body):
        table = decode_json(ConsumerOffsets, b'{"offsetTable":{"x":' + entries + b"}}").offset_table["x"]
        found |= {MessageQueue("", queue, topic.decode()): offset for queue, offset in table.items()}
    return found


async def list_connected(connection: Connection, address: str, group: str) -> list[str]:
    """Return the client ids of the members of a group that are connected to a broker."""
    try:
        return await connection.calls.list_members(address, group)
    except RequestRefused:
        return []  # brokers refuse the request if they do not know the group

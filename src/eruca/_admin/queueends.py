"""The ends of queues: their offsets and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.progress import read_lowest
from eruca._admin.results import Problem, read_time
from eruca._admin.settings import read_topic_configs
from eruca._admin.targets import BrokerRow, ask_each, gather_bounded
from eruca._wire.bodies import MessageQueue, TopicStatsTable
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import QueueHeader, TimestampAnswerHeader, TopicHeader
from eruca.errors import ErucaError, RequestRefused

# How many queues beyond the read queues are looked at on one broker.
_UNREACHABLE_MAX = 2000


class QueueEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of one queue."""

    topic: str
    broker: str
    queue: int
    # The offset of the first message, and the offset that the next message gets.
    begin: int
    end: int
    # When the first message was stored (only `show` reads it), and the last; None if there is none.
    first_at: datetime | None = None
    last_at: datetime | None = None

    @property
    def count(self) -> int:
        """How many messages the queue has."""
        return max(0, self.end - self.begin)


async def list_queue_ends(
    connection: Connection, topic: str, rows: Sequence[BrokerRow]
) -> tuple[list[QueueEnds], list[Problem]]:
    """Return the ends of a topic's queues on some brokers; a broker without the topic has none."""

    async def ask(row: BrokerRow) -> TopicStatsTable:
        try:
            _, body = await connection.ask(row.address, RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic=topic))
        except RequestRefused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return TopicStatsTable()
            raise
        return body if isinstance(body, TopicStatsTable) else TopicStatsTable()

    found, problems = await ask_each(rows, ask)
    ends = [
        QueueEnds(
            topic=queue.topic,
            broker=queue.broker_name,
            queue=queue.queue_id,
            # A queue that was never written to may begin below 0.
            begin=max(0, each.min_offset),
            end=each.max_offset,
            last_at=read_time(each.last_update_timestamp),
        )
        for _, table in found
        for queue, each in table.offset_table.items()
    ]
    return sorted(ends, key=lambda row: (row.broker, row.queue)), problems


async def add_first_times(
    connection: Connection, queues: Sequence[QueueEnds], addresses: Mapping[str, str]
) -> list[QueueEnds]:
    """Return the same queues with the time of their first message; `addresses` are those of brokers by name."""

    async def ask(row: QueueEnds) -> QueueEnds:
        if not row.count:
            return row
        header = QueueHeader(topic=row.topic, queue_id=row.queue)
        answer, _ = await connection.ask(addresses[row.broker], RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        time_ms = answer.timestamp if isinstance(answer, TimestampAnswerHeader) else -1
        return msgspec.structs.replace(row, first_at=read_time(time_ms))

    answers = await gather_bounded(queues, ask)
    return [row if isinstance(answer, ErucaError) else answer for row, answer in zip(queues, answers, strict=True)]


async def list_unreachable(connection: Connection, row: BrokerRow) -> list[QueueEnds]:
    """Return the queues of a broker whose numbers are beyond the read queues and that have messages nobody has read.

    They begin at the first message that a group with an offset there has not consumed.
    """
    configs = await read_topic_configs(connection, row.address)
    lowest = await read_lowest(connection, row.address)
    queues = [
        MessageQueue(row.broker, number, topic)
        for topic, config in configs.items()
        for number in sorted({*range(config.write_queue_nums), *lowest.get(topic, ())})
        if number >= config.read_queue_nums
    ]

    async def ask(queue: MessageQueue) -> QueueEnds:
        begin = await connection.calls.find_min_offset(row.address, queue)
        end = await connection.calls.find_max_offset(row.address, queue)
        begin = max(0, begin, lowest.get(queue.topic, {}).get(queue.queue_id, 0))
        return QueueEnds(topic=queue.topic, broker=row.broker, queue=queue.queue_id, begin=begin, end=end)

    answers = await gather_bounded(queues[:_UNREACHABLE_MAX], ask)
    return [answer for answer in answers if not isinstance(answer, ErucaError) and answer.count]

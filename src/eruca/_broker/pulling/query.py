"""Finding messages outside the order of a queue: by key, by position, and raw queue entries."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._broker.groups.clients import Clients
from eruca._broker.options import LiveOptions
from eruca._broker.pulling.logpieces import LogPieces, extend_frame
from eruca._broker.pulling.subscriptions import TAG
from eruca._broker.refusals import refuse
from eruca._ground.limits import FRAME_BYTES_MAX
from eruca._net.answers import LongAnswer
from eruca._net.handlers import HandlerTable, Reply, Request, encode_reply
from eruca._net.link import Link
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._wire import fastjson
from eruca._wire.bodies import QueueEntries, QueueEntry, SubscriptionData
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command
from eruca._wire.headers import QueryConsumeQueueHeader, QueryMessageAnswerHeader, QueryMessageHeader

# Java's maxMsgsNumBatch: the maximum number of messages in one response.
_FOUND_MAX = 64
# A response must fit in a frame beside its header; the first message always fits, because it arrived in one.
_ANSWER_BYTES_MAX = FRAME_BYTES_MAX - 64 * 1024
# Maximum entries in one response; more would not fit in a frame.
_ENTRIES_MAX = 10_000
# The remark of Java responses that set a code but no remark.
LEFT_OVER_REMARK = "not set any response code"


@dataclass(frozen=True, slots=True, eq=False)
class QueryHandlers:
    """Handles requests for single messages and entries."""

    _options: LiveOptions
    _store: MessageStore
    _clients: Clients
    _pieces: LogPieces

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        # Raw, because a response is up to 16 MiB straight from the log.
        table.add_raw(RequestCode.QUERY_MESSAGE, self.find_messages)
        table.add(RequestCode.VIEW_MESSAGE_BY_ID, self.view_message)
        table.add(RequestCode.QUERY_CONSUME_QUEUE, self.list_entries)

    def find_messages(self, link: Link, command: Command) -> bytes | LongAnswer:
        """Find the messages of a topic with a key or unique id, stored in a time range."""
        header = command.decode_header(QueryMessageHeader)
        link.need_time()
        count = self._options.now.query_count_max if header.unique_key_query else header.max_num
        found: list[memoryview] = []
        size = 0
        if count > 0:
            records = self._store.reader.find_by_key(
                header.topic, header.key, header.begin_timestamp, header.end_timestamp, min(count, _FOUND_MAX)
            )
            for _, record in records:
                if found and size + len(record) > _ANSWER_BYTES_MAX:
                    break
                size += len(record)
                found.append(record)
        index = self._store.index
        if not found or index is None:
            nothing = Reply(
                QueryMessageAnswerHeader(index_last_update_timestamp=0, index_last_update_position=0),
                code=ResponseCode.QUERY_NOT_FOUND,
                remark="can not find message, maybe time range not correct",
            )
            return encode_reply(command, nothing)
        answer = QueryMessageAnswerHeader(
            index_last_update_timestamp=index.end_time, index_last_update_position=index.end_position
        )
        head = extend_frame(encode_reply(command, Reply(answer)), size)
        return self._pieces.answer(head, found, size)

    def view_message(self, request: Request) -> Reply:
        """Return the record that starts at a position of the log."""
        position: int = request.header.offset
        record = self._store.reader.view_message(position)
        if record is None:
            refuse(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {position}")
        return Reply(body=bytes(record))

    def list_entries(self, request: Request) -> Reply:
        """Return entries of a consume queue, and a group's subscription to its topic."""
        header: QueryConsumeQueueHeader = request.header
        queue = self._store.queues.get(header.topic, header.queue_id)
        if queue is None:
            refuse(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
        if not queue.min_offset <= header.index < queue.max_offset:
            return Reply(remark=f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!")
        subscription, filter_data = self._describe_group(header.consumer_group, header.topic)
        body = QueueEntries(
            filter_data=filter_data,
            max_queue_index=queue.max_offset,
            min_queue_index=queue.min_offset,
            queue_data=_read_entries(queue, header.index, min(header.count, _ENTRIES_MAX)),
            subscription_data=subscription,
        )
        return Reply(body=body, remark=LEFT_OVER_REMARK)

    def _describe_group(self, group: str | None, topic: str) -> tuple[SubscriptionData | None, str | None]:
        """Return a group's subscription to a topic, and its non-tag filter expression as JSON text."""
        if group is None:
            return None, None
        online = self._clients.consumer(group)
        subscription = None if online is None else online.subscriptions.get(topic)
        if subscription is None:
            return None, f"{group}@{topic} is not online!"
        if subscription.expression_type in ("", TAG):
            return subscription, "null"
        facts = {
            "clientVersion": subscription.sub_version,
            "consumerGroup": group,
            "expression": subscription.sub_string or "",
            "expressionType": subscription.expression_type,
            "topic": topic,
        }
        return subscription, fastjson.write(facts).decode()


def _read_entries(queue: ConsumeQueue, offset: int, count: int) -> list[QueueEntry]:
    if count <= 0:
        return []
    return [
        QueueEntry(position=position, size=size, tags_code=tags_code)
        for position, size, tags_code in queue.entries(offset, count)
    ]

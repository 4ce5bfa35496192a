"""Typed requests to name servers and brokers: each function sends one request and interprets the answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from eruca._ground.limits import GROUP_MEMBERS_MAX
from eruca._net.caller import Caller
from eruca._wire.bodies import (
    CheckClientBody,
    ConsumerConnection,
    ConsumerIds,
    GroupList,
    HeartbeatData,
    KVTable,
    LockBody,
    LockedBody,
    MessageQueue,
    SubscriptionData,
)
from eruca._wire.catalog import build_request, decode_answer
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import (
    CommittedOffsetHeader,
    ConsumerGroupHeader,
    EmptyHeader,
    OffsetAnswerHeader,
    PullMessageAnswerHeader,
    PullMessageHeader,
    QueryConsumerOffsetHeader,
    QueryMessageHeader,
    QueueHeader,
    SearchOffsetHeader,
    SendBackHeader,
    TopicHeader,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
    ViewMessageHeader,
)
from eruca._wire.once import ONCE_KEY
from eruca._wire.record import DamagedRecord, Record, decode_readable, decode_records
from eruca.errors import ErucaError, NetError, RequestRefused, WireError

_HINTS = {
    ResponseCode.SYSTEM_BUSY: "the broker is busy; try again in a moment",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker's disk may be full, or it may be a slave; see its log",
    ResponseCode.NO_PERMISSION: "the permissions of the broker, the topic or the account do not allow it: see eruca"
    " topic show, eruca acl list",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "the broker does not create groups automatically: eruca group create",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "the broker cannot parse the subscription expression",
    ResponseCode.MESSAGE_ILLEGAL: "the message exceeds a limit of the broker",
}
_MUTABLE = "eruca config list --mutable shows the options that can be changed while servers run"
# Access control and options have no code of their own, only these words.
_HINTS_BY_WORDS = {
    " is not an option": _MUTABLE,
    " has no effect here": _MUTABLE,
    " cannot be changed while the ": _MUTABLE,
    "AclException: No accessKey": "set an account: access_key and secret_key of ClientOptions, ERUCA_ACCESS_KEY and"
    " ERUCA_SECRET_KEY, or --account of a command",
    "AclException: Check signature": "the access key or the secret key is wrong",
    "AclException: No default permission": "the account needs it: eruca acl update ACCOUNT --topic NAME=PUB|SUB"
    " --group NAME=SUB, or topicPerms and groupPerms of plain_acl.yml",
    "AclException: Need admin": "use an account with admin: true in plain_acl.yml; eruca acl list shows which have it",
}

log = logging.getLogger(__name__)

# How many damaged messages are remembered as reported. A failing disk can have very many.
_DAMAGED_KEPT_MAX = 10_000

# A remark ends up in errors and logs, and a broker may send a megabyte of it.
_REMARK_CHARS_MAX = 1000


class PullStatus(IntEnum):
    """The outcome of a pull; the values are the response codes."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    ILLEGAL_OFFSET = ResponseCode.PULL_OFFSET_MOVED


_PULL_STATUS: dict[int, PullStatus] = {int(status): status for status in PullStatus}


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of one pull: records, and the offset of the next pull."""

    status: PullStatus
    records: list[Record]
    next_offset: int
    min_offset: int
    max_offset: int
    # The id of the broker that the next pull should use.
    suggested_id: int
    # The epoch of the master that wrote the log; 0 if the master never changed, and on Java brokers.
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class PulledBytes:
    """The raw result of one pull, neither decoded nor checked."""

    status: PullStatus
    body: bytes
    next_offset: int
    min_offset: int
    max_offset: int


def explain_refusal(answer: Command, who: str) -> RequestRefused:
    """Return the error for an answer that is not a success."""
    code = ResponseCode(answer.code) if answer.code in ResponseCode._value2member_map_ else None
    remark = " ".join((answer.remark or f"code {answer.code}")[:_REMARK_CHARS_MAX].split())
    hint = next((hint for words, hint in _HINTS_BY_WORDS.items() if words in remark), None)
    return RequestRefused(answer.code, f"{who} refused: {remark}", hint=hint or (_HINTS.get(code) if code else None))


class Calls:
    """Sends requests over the connections of one session."""

    def __init__(self, caller: Caller, timeout_ms: int) -> None:
        self.caller = caller
        self._timeout_ms = timeout_ms
        # Damaged messages already reported: topic, queue and offset.
        self._damaged: set[tuple[str, int, int]] = set()

    async def call(self, address: str, command: Command, timeout_ms: int | None = None) -> Command:
        """Send a request and return the answer, whatever its code."""
        return await self.caller.call(address, command, timeout_ms or self._timeout_ms)

    async def notify(self, address: str, command: Command) -> None:
        """Send a request that has no answer."""
        await self.caller.notify(address, command)

    async def ask(self, address: str, command: Command, timeout_ms: int | None = None) -> tuple[Any, Any]:
        """Send a request and return the header and the body of the answer. Raises RequestRefused."""
        code = command.code
        answer = await self.call(address, command, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {address}")
        return decode_answer(code, answer)

    async def drops_duplicates(self, address: str, timeout_ms: int | None = None) -> bool:
        """Return whether a broker drops messages that it has stored already, by their marks, as Eruca brokers do."""
        _, body = await self.ask(address, build_request(RequestCode.GET_BROKER_RUNTIME_INFO, EmptyHeader()), timeout_ms)
        return isinstance(body, KVTable) and ONCE_KEY in body.table

    # -- clients -----------------------------------------------------------------------------------------------------

    async def heartbeat(self, address: str, data: HeartbeatData) -> None:
        """Tell a broker that this client is alive and which groups it is in."""
        await self.ask(address, build_request(RequestCode.HEART_BEAT, EmptyHeader(), data))

    async def unregister(self, address: str, client_id: str, *, producer: str = "", consumer: str = "") -> None:
        """Leave a group."""
        header = UnregisterClientHeader(
            client_id=client_id, producer_group=producer or None, consumer_group=consumer or None
        )
        await self.ask(address, make_request(RequestCode.UNREGISTER_CLIENT, header))

    async def check_subscription(
        self, address: str, client_id: str, group: str, subscription: SubscriptionData
    ) -> None:
        """Have a broker parse an expression. Raises RequestRefused if it cannot."""
        body = CheckClientBody(client_id=client_id, group=group, subscription_data=subscription)
        await self.ask(address, build_request(RequestCode.CHECK_CLIENT_CONFIG, EmptyHeader(), body))

    async def list_members(self, address: str, group: str) -> list[str]:
        """Return the client ids in a consumer group."""
        header = ConsumerGroupHeader(consumer_group=group)
        _, body = await self.ask(address, make_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))
        members = body.consumer_id_list if isinstance(body, ConsumerIds) else []
        if len(members) > GROUP_MEMBERS_MAX:
            raise WireError(f"broker {address} reports {len(members)} members in group {group}")
        return members

    async def list_groups(self, address: str, topic: str) -> list[str]:
        """Return the groups that consume a topic, or once did."""
        _, body = await self.ask(
            address, make_request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic=topic))
        )
        return body.group_list if isinstance(body, GroupList) else []

    async def is_listening(self, address: str, group: str, topic: str) -> bool:
        """Return whether a consumer of a group that subscribes to a topic is connected to a broker."""
        command = make_request(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumer_group=group))
        answer = await self.call(address, command)
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {address}")
        body = decode_answer(RequestCode.GET_CONSUMER_CONNECTION_LIST, answer)[1]
        return isinstance(body, ConsumerConnection) and bool(body.connection_set) and topic in body.subscription_table

    async def lock(
        self, address: str, group: str, client_id: str, queues: Sequence[MessageQueue], live_ms: int | None = None
    ) -> LockedBody:
        """Lock queues, on an Eruca broker for this long; returns those that were locked, and for how long."""
        body = LockBody(client_id=client_id, consumer_group=group, eruca_lock_ms=live_ms, mq_set=list(queues))
        _, locked = await self.ask(address, build_request(RequestCode.LOCK_BATCH_MQ, EmptyHeader(), body))
        return locked if isinstance(locked, LockedBody) else LockedBody()

    async def unlock(self, address: str, group: str, client_id: str, queues: Collection[MessageQueue]) -> None:
        """Release queues."""
        body = LockBody(client_id=client_id, consumer_group=group, mq_set=list(queues))
        await self.ask(address, build_request(RequestCode.UNLOCK_BATCH_MQ, EmptyHeader(), body))

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def read_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """Return the committed offset of a group, or None if it has none."""
        found = await self.read_progress(address, group, queue)
        return None if found is None else found.offset

    async def read_progress(self, address: str, group: str, queue: MessageQueue) -> CommittedOffsetHeader | None:
        """Return the committed offset of a group and what is done behind it, or None if it has none."""
        header = QueryConsumerOffsetHeader(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id)
        answer = await self.call(address, make_request(RequestCode.QUERY_CONSUMER_OFFSET, header))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {address}")
        return answer.decode_header(CommittedOffsetHeader)

    async def has_offset(self, address: str, group: str, queue: MessageQueue) -> bool:
        """Return whether the group has committed an offset. For a new queue a broker answers 0 even if it has not."""
        answer = await self.call(address, make_request(RequestCode.GET_ALL_CONSUMER_OFFSET, EmptyHeader()))
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {address}")
        return has_entry(answer.body, f"{queue.topic}@{group}", queue.queue_id)

    async def write_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int, *, done: str = "", wait: bool = False
    ) -> None:
        """Commit an offset and what is done behind it; with `wait`, until the broker confirms it."""
        header = UpdateConsumerOffsetHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            eruca_done=done or None,
        )
        command = make_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        if wait:
            await self.ask(address, command)
        else:
            await self.notify(address, command)

    async def find_min_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the first offset that a queue still has."""
        return await self._ask_end(address, RequestCode.GET_MIN_OFFSET, queue)

    async def find_max_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset after the last message of a queue."""
        return await self._ask_end(address, RequestCode.GET_MAX_OFFSET, queue)

    async def _ask_end(self, address: str, code: RequestCode, queue: MessageQueue) -> int:
        header, _ = await self.ask(address, make_request(code, QueueHeader(topic=queue.topic, queue_id=queue.queue_id)))
        return _offset_of(header)

    async def find_offset_at(self, address: str, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of a message stored near a time; `find_offset_since` finds the exact first one."""
        header = SearchOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms)
        found, _ = await self.ask(address, make_request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))
        return _offset_of(found)

    # -- messages ----------------------------------------------------------------------------------------------------

    async def pull(self, address: str, header: PullMessageHeader, timeout_ms: int) -> Pulled:
        """Pull records of one queue."""
        answer = await self.call(address, make_request(RequestCode.PULL_MESSAGE, header), timeout_ms)
        status = _PULL_STATUS.get(answer.code)
        if status is None:
            raise explain_refusal(answer, f"broker {address}")
        where = answer.decode_header(PullMessageAnswerHeader)
        records, damaged = decode_readable(answer.body) if status is PullStatus.FOUND else ([], [])
        _check_pulled(records, header, where.next_begin_offset, address)
        if damaged:
            self._name_damaged(damaged, header, records, where.next_begin_offset, address)
        return Pulled(
            status,
            records,
            where.next_begin_offset,
            where.min_offset,
            where.max_offset,
            where.suggest_which_broker_id,
            where.eruca_epoch or 0,
        )

    def _name_damaged(
        self,
        damaged: list[DamagedRecord],
        asked: PullMessageHeader,
        records: list[Record],
        next_offset: int,
        address: str,
    ) -> None:
        """Log each message that is skipped because its bytes are damaged, once.

        Raises WireError if the answer makes no progress: the same pull would be repeated for ever.
        """
        if not records and next_offset <= asked.queue_offset:
            raise WireError(f"broker {address}: {damaged[0].reason}")
        for item in damaged:
            name = (asked.topic, asked.queue_id, item.queue_offset if item.queue_offset >= 0 else asked.queue_offset)
            if name in self._damaged:
                continue
            if len(self._damaged) >= _DAMAGED_KEPT_MAX:
                self._damaged.clear()
            self._damaged.add(name)
            log.error("%s, queue %d: the message at %d is damaged and skipped: %s", *name, item.reason)

    async def pull_bytes(self, address: str, header: PullMessageHeader, timeout_ms: int) -> PulledBytes:
        """Pull records of one queue for a caller that decodes and checks them itself, thousands at a time."""
        answer = await self.call(address, make_request(RequestCode.PULL_MESSAGE, header), timeout_ms)
        status = _PULL_STATUS.get(answer.code)
        if status is None:
            raise explain_refusal(answer, f"broker {address}")
        where = answer.decode_header(PullMessageAnswerHeader)
        body = answer.body if status is PullStatus.FOUND else b""
        return PulledBytes(status, body, where.next_begin_offset, where.min_offset, where.max_offset)

    async def send_back(self, address: str, header: SendBackHeader, timeout_ms: int | None = None) -> None:
        """Return a message to the broker, to be delivered again later."""
        await self.ask(address, make_request(RequestCode.CONSUMER_SEND_MSG_BACK, header), timeout_ms)

    async def view_message(self, address: str, position: int) -> Record:
        """Fetch the record at a position of a broker's log."""
        answer = await self.call(
            address, make_request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset=position))
        )
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {address}")
        records = decode_records(answer.body)
        if not records:
            raise NetError(f"broker {address} answered without a message")
        return records[0]

    async def query_messages(self, address: str, header: QueryMessageHeader) -> list[Record]:
        """Return the messages of one broker that have a key; the list may be empty."""
        answer = await self.call(address, make_request(RequestCode.QUERY_MESSAGE, header))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {address}")
        records, damaged = decode_readable(answer.body)
        for item in damaged:
            log.error(
                "a message of %s with the key %s is damaged and skipped: %s", header.topic, header.key, item.reason
            )
        return records


def has_entry(table: bytes, key: str, queue_id: int) -> bool:
    """Return whether the offset table of a broker has an entry for a queue. Raises WireError if it is not a table.

    Only the part after one key is parsed: parsing the whole table of a large broker takes seconds.
    """
    if b'"offsetTable"' not in table:
        raise WireError("the broker answered without its table of offsets")
    found = re.search(rb'"%b"\s*:\s*\{([^{}]*)\}' % re.escape(key.encode()), table)
    return found is not None and re.search(rb'(?<![\w-])"?%d"?\s*:' % queue_id, found[1]) is not None


def _check_pulled(records: list[Record], asked: PullMessageHeader, next_offset: int, address: str) -> None:
    """Reject records that were not requested: they could be delivered for the wrong queue, twice, or for ever."""
    last, topic, queue_id = asked.queue_offset - 1, asked.topic, asked.queue_id
    for record in records:
        if record.queue_offset <= last or record.queue_id != queue_id or record.topic != topic:
            raise WireError(f"broker {address} answered with records that do not belong to {topic}, queue {queue_id}")
        last = record.queue_offset
    if next_offset < 0 or (records and next_offset <= last):
        raise WireError(f"broker {address} answered with next offset {next_offset} for {topic}, queue {queue_id}")


def _offset_of(header: object) -> int:
    if not isinstance(header, OffsetAnswerHeader):
        raise ErucaError("the broker answered without an offset")
    return header.offset

"""Questions to name servers and brokers, typed: each function is one request and what its answer means."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from eruca._ground.limits import GROUP_MEMBERS_MAX
from eruca._net.caller import Caller
from eruca._wire.bodies import (
    CheckClientBody,
    ConsumerIds,
    HeartbeatData,
    LockBody,
    LockedBody,
    MessageQueue,
    SubscriptionData,
)
from eruca._wire.catalog import build_request, decode_answer
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.ext import Header, encode_ext
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import (
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
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
    ViewMessageHeader,
)
from eruca._wire.record import DamagedRecord, Record, decode_readable, decode_records
from eruca._wire.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, UNIQUE_KEY_QUERY, sign
from eruca.errors import ErucaError, NetError, RequestRefused, WireError

_HINTS = {
    ResponseCode.SYSTEM_BUSY: "the broker is busy; try again in a moment",
    ResponseCode.SERVICE_NOT_AVAILABLE: "is the broker's disk full, or is it a slave? Its log says which",
    ResponseCode.NO_PERMISSION: "the permission of the broker, the topic or the account forbids it",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "the broker does not create groups automatically; set"
    " autoCreateSubscriptionGroup=true on it",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "the broker cannot read the subscription expression",
    ResponseCode.MESSAGE_ILLEGAL: "the message breaks a limit of the broker",
}

log = logging.getLogger(__name__)

# Damaged messages that were named; a bound, because a disk that dies has many.
_DAMAGED_KEPT_MAX = 10_000

# A remark goes into errors and logs; a broker may send a megabyte.
_REMARK_CHARS_MAX = 1000


class PullStatus(IntEnum):
    """What a pull found; the numbers are those of the answer codes."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    ILLEGAL_OFFSET = ResponseCode.PULL_OFFSET_MOVED


_PULL_STATUS: dict[int, PullStatus] = {int(status): status for status in PullStatus}


@dataclass(frozen=True, slots=True)
class Pulled:
    """What one pull gave: records, and where the next one begins."""

    status: PullStatus
    records: list[Record]
    next_offset: int
    min_offset: int
    max_offset: int
    # The broker id the next pull should go to.
    suggested_id: int
    # The mastership of the log it is from; 0 where masters never changed, and on Java's brokers.
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class PulledBytes:
    """What one pull gave, as it came: nothing of it is decoded or checked yet."""

    status: PullStatus
    body: bytes
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class Credentials:
    """Signs requests."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def sign(self, command: Command) -> None:
        """Add the account and the signature to a request."""
        extra = {ACCESS_KEY: self.access_key}
        if self.security_token:
            extra[SECURITY_TOKEN] = self.security_token
        header = command.ext
        ext = encode_ext(header, extra=extra) if isinstance(header, Header) else {**command.ext_dict(), **extra}
        # Servers leave this mark out of what they sign.
        signed = {name: text for name, text in ext.items() if name != UNIQUE_KEY_QUERY}
        ext[SIGNATURE] = sign(signed, command.body, self.secret_key)
        command.ext = ext


def explain_refusal(answer: Command, who: str) -> RequestRefused:
    """The error for an answer that is not a success."""
    code = ResponseCode(answer.code) if answer.code in ResponseCode._value2member_map_ else None
    remark = " ".join((answer.remark or f"code {answer.code}")[:_REMARK_CHARS_MAX].split())
    return RequestRefused(answer.code, f"{who} refused: {remark}", hint=_HINTS.get(code) if code else None)


class Calls:
    """Asks peers on the connections of one session."""

    def __init__(self, caller: Caller, credentials: Credentials | None, timeout_ms: int) -> None:
        self.caller = caller
        self.credentials = credentials
        self._timeout_ms = timeout_ms
        # Messages that were named as damaged: topic, queue and offset.
        self._damaged: set[tuple[str, int, int]] = set()

    async def call(self, address: str, command: Command, timeout_ms: int | None = None) -> Command:
        """Ask and return the answer, whatever its code."""
        if self.credentials is not None:
            self.credentials.sign(command)
        return await self.caller.call(address, command, timeout_ms or self._timeout_ms)

    async def notify(self, address: str, command: Command) -> None:
        """Send what is not answered."""
        if self.credentials is not None:
            self.credentials.sign(command)
        await self.caller.notify(address, command)

    async def ask(self, address: str, command: Command, timeout_ms: int | None = None) -> tuple[Any, Any]:
        """Ask, and return header and body of the answer. Raises RequestRefused."""
        code = command.code
        answer = await self.call(address, command, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {address}")
        return decode_answer(code, answer)

    # -- clients -----------------------------------------------------------------------------------------------------

    async def heartbeat(self, address: str, data: HeartbeatData) -> None:
        """Say that we are alive and in which groups."""
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
        """Let a broker read an expression; raises RequestRefused when it cannot."""
        body = CheckClientBody(client_id=client_id, group=group, subscription_data=subscription)
        await self.ask(address, build_request(RequestCode.CHECK_CLIENT_CONFIG, EmptyHeader(), body))

    async def list_members(self, address: str, group: str) -> list[str]:
        """The client ids in a consumer group."""
        header = ConsumerGroupHeader(consumer_group=group)
        _, body = await self.ask(address, make_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))
        members = body.consumer_id_list if isinstance(body, ConsumerIds) else []
        if len(members) > GROUP_MEMBERS_MAX:
            raise WireError(f"broker {address} says group {group} has {len(members)} members")
        return members

    async def lock(self, address: str, group: str, client_id: str, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Lock queues for ordered consuming; returns those that are ours now."""
        body = LockBody(client_id=client_id, consumer_group=group, mq_set=list(queues))
        _, locked = await self.ask(address, build_request(RequestCode.LOCK_BATCH_MQ, EmptyHeader(), body))
        return set(locked.locked) if isinstance(locked, LockedBody) else set()

    async def unlock(self, address: str, group: str, client_id: str, queues: Collection[MessageQueue]) -> None:
        """Release queues."""
        body = LockBody(client_id=client_id, consumer_group=group, mq_set=list(queues))
        await self.ask(address, build_request(RequestCode.UNLOCK_BATCH_MQ, EmptyHeader(), body))

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def read_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """The committed offset of a group; None when it has none."""
        header = QueryConsumerOffsetHeader(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id)
        answer = await self.call(address, make_request(RequestCode.QUERY_CONSUMER_OFFSET, header))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {address}")
        return answer.decode_header(OffsetAnswerHeader).offset

    async def has_offset(self, address: str, group: str, queue: MessageQueue) -> bool:
        """Has the group really committed an offset of the queue? A broker answers 0 also for young queues."""
        answer = await self.call(address, make_request(RequestCode.GET_ALL_CONSUMER_OFFSET, EmptyHeader()))
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {address}")
        return has_entry(answer.body, f"{queue.topic}@{group}", queue.queue_id)

    async def write_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int, *, wait: bool = False
    ) -> None:
        """Commit an offset; with `wait` the broker says that it has it."""
        header = UpdateConsumerOffsetHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        command = make_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        if wait:
            await self.ask(address, command)
        else:
            await self.notify(address, command)

    async def find_min_offset(self, address: str, queue: MessageQueue) -> int:
        """The first offset a queue still has."""
        return await self._ask_end(address, RequestCode.GET_MIN_OFFSET, queue)

    async def find_max_offset(self, address: str, queue: MessageQueue) -> int:
        """The offset behind the last message of a queue."""
        return await self._ask_end(address, RequestCode.GET_MAX_OFFSET, queue)

    async def _ask_end(self, address: str, code: RequestCode, queue: MessageQueue) -> int:
        header, _ = await self.ask(address, make_request(code, QueueHeader(topic=queue.topic, queue_id=queue.queue_id)))
        return _offset_of(header)

    async def find_offset_at(self, address: str, queue: MessageQueue, time_ms: int) -> int:
        """The offset of a message stored near a time; `find_offset_since` finds the first one exactly."""
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
        """Log messages that are stepped over because their bytes are damaged, each once.

        Raises WireError when the answer does not lead on: it would be asked for again for ever.
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
            log.error("%s, queue %d: the message at %d is damaged and left out: %s", *name, item.reason)

    async def pull_bytes(self, address: str, header: PullMessageHeader, timeout_ms: int) -> PulledBytes:
        """Pull records of one queue for somebody who decodes and checks them himself, thousands at a time."""
        answer = await self.call(address, make_request(RequestCode.PULL_MESSAGE, header), timeout_ms)
        status = _PULL_STATUS.get(answer.code)
        if status is None:
            raise explain_refusal(answer, f"broker {address}")
        where = answer.decode_header(PullMessageAnswerHeader)
        body = answer.body if status is PullStatus.FOUND else b""
        return PulledBytes(status, body, where.next_begin_offset, where.min_offset, where.max_offset)

    async def send_back(self, address: str, header: SendBackHeader, timeout_ms: int | None = None) -> None:
        """Give a message back to be delivered again later."""
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
        """Find messages by key on one broker; none is an empty list."""
        answer = await self.call(address, make_request(RequestCode.QUERY_MESSAGE, header))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {address}")
        records, damaged = decode_readable(answer.body)
        for item in damaged:
            log.error(
                "a message of %s with the key %s is damaged and left out: %s", header.topic, header.key, item.reason
            )
        return records


def has_entry(table: bytes, key: str, queue_id: int) -> bool:
    """Has the offset table of a broker an entry for a queue? Raises WireError when it is not one.

    Only the place of one key is read: the whole table of a large broker, with its numbers as keys, takes seconds.
    """
    if b'"offsetTable"' not in table:
        raise WireError("the broker answered without its table of offsets")
    found = re.search(rb'"%b"\s*:\s*\{([^{}]*)\}' % re.escape(key.encode()), table)
    return found is not None and re.search(rb'(?<![\w-])"?%d"?\s*:' % queue_id, found[1]) is not None


def _check_pulled(records: list[Record], asked: PullMessageHeader, next_offset: int, address: str) -> None:
    """Refuse records that were not asked for: they would be delivered as another queue's, twice, or for ever."""
    last, topic, queue_id = asked.queue_offset - 1, asked.topic, asked.queue_id
    for record in records:
        if record.queue_offset <= last or record.queue_id != queue_id or record.topic != topic:
            raise WireError(f"broker {address} answered with records that are not those of {topic}, queue {queue_id}")
        last = record.queue_offset
    if next_offset < 0 or (records and next_offset <= last):
        raise WireError(f"broker {address} answered that {topic}, queue {queue_id}, goes on at {next_offset}")


def _offset_of(header: object) -> int:
    if not isinstance(header, OffsetAnswerHeader):
        raise ErucaError("the broker answered without an offset")
    return header.offset

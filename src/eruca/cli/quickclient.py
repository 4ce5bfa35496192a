"""A small client for `eruca send` and `eruca tail`: routes, one send, one pull, offsets. The real one is another room.

It talks to anything that speaks the protocol, a Java cluster too: the name server tells where the queues are, and
each broker is asked on one connection.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass
from typing import Self

from eruca.clock import SystemClock
from eruca.errors import ErucaError, NetError, RequestRefused
from eruca.net.caller import Caller
from eruca.net.handlers import expect_success
from eruca.wire.bodies import TopicRouteData
from eruca.wire.catalog import decode_answer
from eruca.wire.codes import RequestCode, ResponseCode
from eruca.wire.ext import Header
from eruca.wire.frame import Command, make_request
from eruca.wire.headers import (
    OffsetAnswerHeader,
    PullMessageAnswerHeader,
    PullMessageHeader,
    QueryConsumerOffsetHeader,
    QueueHeader,
    RouteHeader,
    SearchOffsetHeader,
    SendMessageAnswerHeader,
    SendMessageV2Header,
    UpdateConsumerOffsetHeader,
)
from eruca.wire.ids import UniqueIds
from eruca.wire.javahash import java_hash
from eruca.wire.properties import UNIQ_KEY, encode_properties
from eruca.wire.record import Message, decode_records

# A group every broker has, for reading without leaving a trace.
READER_GROUP = "TOOLS_CONSUMER"
_PRODUCER_GROUP = "CLI_SENDERS"
_TEMPLATE_TOPIC = "TBW102"
_TEMPLATE_QUEUES = 4
_TIMEOUT_MS = 5000
_HOLD_MS = 15_000
_TOPIC_TRIES = 50
_TOPIC_TRY_S = 0.02
_READ, _WRITE = 4, 2
_MASTER = 0
_PULL_SUSPEND, _PULL_SUBSCRIPTION = 2, 4

STORED = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
}
_HINTS = {
    ResponseCode.SYSTEM_BUSY: "the broker is busy; try again in a moment",
    ResponseCode.SERVICE_NOT_AVAILABLE: "is the broker's disk full, or is it a slave? Its log says which",
    ResponseCode.NO_PERMISSION: "the broker's or the topic's permission forbids it",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "the broker does not make groups by itself; create the group first",
}


class NoTopic(ErucaError):
    """No broker has the topic."""


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """One queue and the broker to ask for it."""

    broker: str
    number: int
    address: str


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one message."""

    queue: Queue
    topic: str
    offset: int
    status: str
    message_id: str
    unique_id: str


@dataclass(frozen=True, slots=True)
class Pulled:
    """What one pull gave: messages, and where the next one begins."""

    messages: list[Message]
    next_offset: int
    min_offset: int
    max_offset: int


class QuickClient:
    """Sends and pulls; use it as `async with`."""

    def __init__(self, nameservers: list[str]) -> None:
        self._nameservers = nameservers
        self._caller = Caller()
        self._ids = UniqueIds("127.0.0.1", os.getpid(), SystemClock())
        self._clock = SystemClock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._caller.close()

    # -- routes ------------------------------------------------------------------------------------------------------

    async def find_route(self, topic: str) -> TopicRouteData | None:
        """Where a topic is; None when no name server knows it."""
        failure: NetError | None = None
        for address in self._nameservers:
            request = make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic=topic))
            try:
                answer = await self._caller.call(address, request, _TIMEOUT_MS)
            except NetError as error:
                failure = error
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            route = decode_answer(RequestCode.GET_ROUTEINFO_BY_TOPIC, expect_success(answer))[1]
            assert isinstance(route, TopicRouteData)
            return route
        reason = failure.args[0] if failure is not None else "none is named"
        raise NetError(
            f"no name server answers: {reason}", hint="is it running? `eruca up` starts one, -n HOST:PORT names another"
        )

    async def find_write_queues(self, topic: str) -> list[Queue]:
        """The queues a message may be sent to; those of the template when the topic is still to be made."""
        route = await self.find_route(topic)
        if route is not None:
            return _list_queues(route, _WRITE)
        template = await self.find_route(_TEMPLATE_TOPIC)
        queues = [] if template is None else _list_queues(template, _WRITE)
        if not queues:
            raise NoTopic(
                f"topic {topic} does not exist, and no broker makes topics by itself",
                hint="create it first, for example with mqadmin updateTopic",
            )
        return [queue for queue in queues if queue.number < _TEMPLATE_QUEUES]

    async def wait_for_topic(self, topic: str) -> None:
        """Wait a moment until the name server has heard of a topic that was just made: the next command wants it."""
        for _ in range(_TOPIC_TRIES):
            if await self.find_route(topic) is not None:
                return
            await asyncio.sleep(_TOPIC_TRY_S)

    async def find_read_queues(self, topic: str) -> list[Queue]:
        """The queues a topic can be read from."""
        route = await self.find_route(topic)
        if route is None:
            raise NoTopic(f"topic {topic} does not exist", hint=f'send to it first: eruca send {topic} "a message"')
        return _list_queues(route, _READ)

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send(self, queue: Queue, topic: str, body: bytes, properties: dict[str, str]) -> Sent:
        """Send one message."""
        unique_id = self._ids.create()
        header = SendMessageV2Header(
            producer_group=_PRODUCER_GROUP,
            topic=topic,
            default_topic=_TEMPLATE_TOPIC,
            default_topic_queue_nums=_TEMPLATE_QUEUES,
            queue_id=queue.number,
            sys_flag=0,
            born_timestamp=self._clock.now_ms(),
            flag=0,
            properties=encode_properties({UNIQ_KEY: unique_id, "WAIT": "true", **properties}).decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
        )
        answer = await self._caller.call(
            queue.address, make_request(RequestCode.SEND_MESSAGE_V2, header, body), _TIMEOUT_MS
        )
        status = STORED.get(ResponseCode(answer.code)) if answer.code in STORED else None
        if status is None:
            raise _explain_refusal(answer)
        stored = answer.decode_header(SendMessageAnswerHeader)
        where = Queue(queue.broker, stored.queue_id, queue.address)
        return Sent(where, topic, stored.queue_offset, status, stored.message_id, unique_id)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def pull(
        self, queue: Queue, topic: str, offset: int, *, group: str = READER_GROUP, tags: str = "*", hold: bool = False
    ) -> Pulled:
        """Pull messages of one queue; with `hold` the broker waits until there are some."""
        header = PullMessageHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue.number,
            queue_offset=offset,
            max_message_nums=32,
            sys_flag=_PULL_SUBSCRIPTION | (_PULL_SUSPEND if hold else 0),
            commit_offset=0,
            suspend_timeout_ms=_HOLD_MS if hold else 0,
            subscription=tags,
            subscription_version=0,
            expression_type="TAG",
        )
        timeout_ms = _TIMEOUT_MS + (_HOLD_MS if hold else 0)
        answer = await self._caller.call(queue.address, make_request(RequestCode.PULL_MESSAGE, header), timeout_ms)
        if answer.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            raise _explain_refusal(answer)
        where = answer.decode_header(PullMessageAnswerHeader)
        messages = decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []
        return Pulled(messages, where.next_begin_offset, where.min_offset, where.max_offset)

    async def find_ends(self, queue: Queue, topic: str) -> tuple[int, int]:
        """The first offset of a queue, and the one behind its last."""
        header = QueueHeader(topic=topic, queue_id=queue.number)
        low = await self._ask_offset(queue, RequestCode.GET_MIN_OFFSET, header)
        high = await self._ask_offset(queue, RequestCode.GET_MAX_OFFSET, header)
        return low, high

    async def find_offset_at(self, queue: Queue, topic: str, time_ms: int) -> int:
        """The offset of the first message stored at a time or after it."""
        header = SearchOffsetHeader(topic=topic, queue_id=queue.number, timestamp=time_ms)
        return await self._ask_offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def find_committed(self, queue: Queue, topic: str, group: str) -> int | None:
        """How far a group has read a queue; None when it never did."""
        header = QueryConsumerOffsetHeader(consumer_group=group, topic=topic, queue_id=queue.number)
        try:
            return await self._ask_offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except RequestRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, queue: Queue, topic: str, group: str, offset: int) -> None:
        """Tell the broker how far a group has read."""
        header = UpdateConsumerOffsetHeader(
            consumer_group=group, topic=topic, queue_id=queue.number, commit_offset=offset
        )
        request = make_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        expect_success(await self._caller.call(queue.address, request, _TIMEOUT_MS))

    async def _ask_offset(self, queue: Queue, code: RequestCode, header: Header) -> int:
        answer = await self._caller.call(queue.address, make_request(code, header), _TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise _explain_refusal(answer)
        return answer.decode_header(OffsetAnswerHeader).offset


def choose_queue(queues: list[Queue], shard: str | None) -> Queue:
    """Choose a queue: messages of one shard always go to the same one, as with Java's selector by hash."""
    if shard is None:
        return random.choice(queues)
    return queues[abs(java_hash(shard)) % len(queues)]


def _list_queues(route: TopicRouteData, permission: int) -> list[Queue]:
    """The queues of a route that have a permission and a broker, in the order of Java's client."""
    addresses = {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}
    queues = []
    for data in route.queue_datas:
        known = addresses.get(data.broker_name, {})
        if not data.perm & permission or not known or (permission == _WRITE and _MASTER not in known):
            continue
        count = data.write_queue_nums if permission == _WRITE else data.read_queue_nums
        address = known[min(known)]
        queues += [Queue(data.broker_name, number, address) for number in range(count)]
    if not queues:
        doing = "written to" if permission == _WRITE else "read"
        raise NoTopic(f"no queue of the topic can be {doing} now", hint="is its broker running?")
    return sorted(queues)


def _explain_refusal(answer: Command) -> RequestRefused:
    code = ResponseCode(answer.code) if answer.code in ResponseCode._value2member_map_ else None
    remark = " ".join((answer.remark or f"code {answer.code}").split())
    return RequestRefused(answer.code, f"the broker refused: {remark}", hint=_HINTS.get(code) if code else None)

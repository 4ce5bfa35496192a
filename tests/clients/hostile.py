"""A hostile peer: it plays name server and broker, knows the right answers, and returns others.

One seed tells everything it does: which requests it answers rightly, what it does to the other answers, and which
requests of its own it sends to clients that did not ask for any.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from random import Random

from eruca._wire.bodies import (
    BrokerData,
    ConsumerIds,
    ConsumerOffsets,
    HeartbeatData,
    LockBody,
    LockedBody,
    QueueData,
    TopicList,
    TopicRouteData,
)
from eruca._wire.catalog import decode_request
from eruca._wire.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from eruca._wire.frame import Command, FrameBuffer, make_request
from eruca._wire.headers import (
    Header,
    OffsetAnswerHeader,
    PullMessageAnswerHeader,
    PullMessageHeader,
    QueryMessageAnswerHeader,
    SendMessageAnswerHeader,
)
from eruca._wire.host import pack_host
from eruca._wire.properties import CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT, encode_properties
from eruca._wire.record import Record, encode_record
from tests.clients.mutations import TEXTS, Step, bend_bytes, bend_header, encode_roughly, spoil, write_tables
from tests.encoding import build_answer

TOPIC = "hostile"
BROKER = "broker-a"
QUEUES = 4
# What each queue holds.
MESSAGES = 40
_BATCH = 8
# How long a pull of an empty queue is held.
_HOLD_S = 0.05
_SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
_OFFSETS = frozenset(
    {
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.QUERY_CONSUMER_OFFSET,
    }
)
# What brokers ask clients.
_TO_CLIENTS = (
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    RequestCode.HEART_BEAT,
    9999,
)


class HostilePeer:
    """Listens on loopback and misbehaves as its seed says."""

    def __init__(self, seed: int, queues: int = QUEUES) -> None:
        self._rng = rng = Random(seed)
        self.queues = queues
        # How often it is bad, and whether only to some requests: a client that never gets far shows little.
        self._chance = rng.choice((0.05, 0.2, 0.5, 1.0))
        self._asks_chance = rng.choice((0.0, 0.05, 0.3))
        self._spared = rng.choice((0.0, 0.5, 0.9))
        self._victims: dict[int, bool] = {}
        self._clients: list[str] = []
        self._groups: list[str] = []
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self.done: Counter[str] = Counter()
        # Requests by code, and connections there ever were.
        self.requests: Counter[int] = Counter()
        self.connections = 0

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)

    async def stop(self) -> None:
        """Cut everybody off."""
        for connection in list(self._connections):
            connection.end()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def address(self) -> str:
        """Where it listens, as name server and as broker."""
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def add(self, connection: _Connection) -> None:
        """A client came."""
        self._connections.add(connection)
        self.connections += 1

    def remove(self, connection: _Connection) -> None:
        """A client left."""
        self._connections.discard(connection)

    def broadcast(self, frame: bytes) -> None:
        """Send something to every client."""
        for connection in self._connections:
            connection.write(frame)

    # -- what it does ------------------------------------------------------------------------------------------------

    def handle(self, request: Command) -> list[Step]:
        """The steps that answer a request."""
        rng = self._rng
        steps: list[Step] = []
        if rng.random() < self._asks_chance:
            self.done["asked"] += 1
            steps += [self._ask_back()]
        if request.flag & FLAG_ONEWAY:
            return steps
        answer, hold = self._answer(request)
        code = request.code
        is_victim = self._victims.setdefault(code, rng.random() >= self._spared)
        if is_victim and rng.random() < self._chance:
            kind, spoilt = spoil(rng, request, answer)
            self.done[kind] += 1
            # Broken pulls come at once, so that a client that cannot bear them spins.
            return [*steps, *spoilt]
        self.done["right"] += 1
        return [*steps, *([hold] if hold else []), encode_roughly(answer)]

    def answer_rightly(self, request: Command) -> list[Step]:
        """What a friendly server does."""
        if request.flag & FLAG_ONEWAY:
            return []
        answer, hold = self._answer(request)
        return [hold, encode_roughly(answer)] if hold else [encode_roughly(answer)]

    def _ask_back(self) -> bytes:
        """A request of our own, mostly wrong."""
        rng = self._rng
        code = rng.choice(_TO_CLIENTS)
        group = rng.choice((*self._groups, "nobody"))
        ext = {
            "consumerGroup": group,
            "group": group,
            "topic": rng.choice((TOPIC, "other")),
            "timestamp": "0",
            "clientId": rng.choice((*self._clients, "")),
            "jstackEnable": rng.choice(("true", "false")),
            "tranStateTableOffset": "1",
            "commitLogOffset": "1",
            "producerGroup": group,
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "0",
            "flag": "0",
            "defaultTopic": "",
            "defaultTopicQueueNums": "4",
            "properties": f"{CORRELATION_ID}\x01{rng.choice(TEXTS)}\x02",
            "bornHost": rng.choice(("127.0.0.1:1", "", "x", "[::1]:99999999")),
            "storeHost": rng.choice(TEXTS),
        }
        body = b""
        if code in (RequestCode.CHECK_TRANSACTION_STATE, RequestCode.CONSUME_MESSAGE_DIRECTLY):
            body = encode_record(self.make_record(0, rng.randrange(MESSAGES), group))
        elif code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            body = write_tables(rng, TOPIC, BROKER)
        command = make_request(code, None, body, opaque=rng.choice((0, 1, -1, 2**31 - 1)), oneway=rng.random() < 0.3)
        command.ext = ext
        if rng.random() < 0.4:
            bend_header(rng, command)
        if rng.random() < 0.3:
            bend_bytes(rng, command)
        return encode_roughly(command)

    # -- the right answers -------------------------------------------------------------------------------------------

    def _answer(self, request: Command) -> tuple[Command, float]:
        """The right answer, and how long it is held."""
        code = request.code
        if code == RequestCode.PULL_MESSAGE:
            return self._pull(request)
        header: Header | None = None
        body: object = None
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            body = TopicRouteData(
                broker_datas=[BrokerData(broker_name=BROKER, broker_addrs={0: self.address}, cluster="c")],
                queue_datas=[QueueData(broker_name=BROKER, read_queue_nums=self.queues, write_queue_nums=self.queues)],
            )
        elif code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            body = TopicList(topic_list=[TOPIC, "TBW102"])
        elif code == RequestCode.HEART_BEAT:
            self._meet(decode_request(request)[1])
        elif code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            body = ConsumerIds(consumer_id_list=self._clients[-1:])
        elif code == RequestCode.LOCK_BATCH_MQ:
            wanted = decode_request(request)[1]
            body = LockedBody(locked=wanted.mq_set if isinstance(wanted, LockBody) else [])
        elif code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            body = ConsumerOffsets(offset_table={})
        elif code in _OFFSETS:
            header = OffsetAnswerHeader(offset=0)
        elif code in _SENDS:
            header = SendMessageAnswerHeader(message_id="7F00000100002A9F0000000000000000", queue_id=0, queue_offset=3)
        elif code in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_MESSAGE):
            data = encode_record(self.make_record(0, 0, "g"))
            answer = request.answer(
                ResponseCode.SUCCESS,
                QueryMessageAnswerHeader(index_last_update_timestamp=0, index_last_update_position=0),
                data,
            )
            return answer, 0.0
        return build_answer(request, ResponseCode.SUCCESS, header, body), 0.0

    def _meet(self, data: object) -> None:
        if isinstance(data, HeartbeatData):
            self._clients = [*self._clients[-3:], data.client_id]
            self._groups = [group.group_name for group in data.consumer_data_set]
            self._groups += [group.group_name for group in data.producer_data_set]

    def _pull(self, request: Command) -> tuple[Command, float]:
        asked = request.decode_header(PullMessageHeader)
        offset = asked.queue_offset
        found = asked.topic == TOPIC and 0 <= offset < MESSAGES
        end = min(offset + _BATCH, MESSAGES) if found else offset
        header = PullMessageAnswerHeader(0, end, 0, MESSAGES)
        if not found:
            return request.answer(ResponseCode.PULL_NOT_FOUND, header), _HOLD_S
        records = [self.make_record(asked.queue_id, number, "g") for number in range(offset, end)]
        body = b"".join([encode_record(record) for record in records])
        return request.answer(ResponseCode.SUCCESS, header, body), 0.0

    def make_record(self, queue_id: int, offset: int, group: str) -> Record:
        """A message as it is stored."""
        host = pack_host("127.0.0.1", 10911)
        properties = {"TAGS": "vip", "PGROUP": group, CLUSTER: "c", CORRELATION_ID: "id", REPLY_TO_CLIENT: "nobody"}
        return Record(
            TOPIC,
            queue_id,
            0,
            b"a message",
            encode_properties(properties),
            born_timestamp=1,
            born_host=host,
            store_timestamp=1,
            store_host=host,
            queue_offset=offset,
            position=offset * 200,
        )


class _Connection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, peer: HostilePeer) -> None:
        self._peer = peer
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It left."""
        for task in self._tasks:
            task.cancel()
        self._peer.remove(self)

    def data_received(self, data: bytes) -> None:
        """Answer each request separately, so that a slow answer does not hold up the others."""
        for request in self._frames.feed(data):
            if request.is_response:
                continue
            self._peer.requests[request.code] += 1
            task = asyncio.get_running_loop().create_task(self._play(self._peer.handle(request)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _play(self, steps: list[Step]) -> None:
        for step in steps:
            if self._transport is None or self._transport.is_closing():
                return
            if isinstance(step, bytes):
                self._transport.write(step)
            elif step is None:
                self._transport.close()
            elif step == math.inf:
                self._transport.pause_reading()
            else:
                await asyncio.sleep(step)

    def write(self, data: bytes) -> None:
        """Send something that is not an answer."""
        if self._transport is not None:
            self._transport.write(data)

    def end(self) -> None:
        """Cut it off."""
        for task in self._tasks:
            task.cancel()
        if self._transport is not None:
            self._transport.abort()

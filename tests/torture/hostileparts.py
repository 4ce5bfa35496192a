"""What hostile, or merely very large, clients do to a broker and a name server. Each part ends on its own.

A part is a function of a `Target` and of a size: 1 is the full attack, less is a smaller version for the tests.
`python -m tests.torture.hostileparts BROKER NAMES SIZE` runs each part named on a line of standard input, and
prints `done` after it.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from eruca._wire.batch import BatchItem, encode_batch
from eruca._wire.bodies import (
    ConsumerData,
    HeartbeatData,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigTable,
    encode_json,
    encode_registration,
)
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.compression import compress
from eruca._wire.ext import Header
from eruca._wire.frame import Command, FrameBuffer, encode_command, make_request
from eruca._wire.headers import (
    BrokerConsumeStatsHeader,
    ConsumerGroupHeader,
    ConsumeStatsHeader,
    CreateTopicHeader,
    PutKVConfigHeader,
    RegisterBrokerHeader,
    TopicHeader,
    UpdateConsumerOffsetHeader,
)
from eruca._wire.properties import encode_properties
from tests.integration.broker.requests import EXPRESSION, HOLD, pull_header, send_header
from tests.unit.net.rawpeer import RawPeer, open_peer

MIB = 1024 * 1024
LARGE = bytes(4 * 1000 * 1000)
# What is written at once and not answered: a peer that pauses us here is not what is measured.
_PART_S = 60.0
_UNREAD_S = 4.0
_MEMBERS_S = 1.5


@dataclass(frozen=True)
class Target:
    """Where the servers are."""

    broker: str
    names: str


Attack = Callable[[Target, float], Awaitable[None]]


async def ask(peer: RawPeer, code: int, header: Header | None = None, body: bytes = b"", opaque: int = 1) -> Command:
    """Ask one thing, with much patience: the server is under attack."""
    peer.write(make_request(code, header, body, opaque=opaque))
    while (answer := await peer.read()).opaque != opaque or not answer.is_response:
        pass
    return answer


async def expect(peer: RawPeer, code: int, header: Header | None = None, body: bytes = b"") -> Command:
    """Ask one thing that must succeed."""
    answer = await ask(peer, code, header, body)
    assert answer.code == ResponseCode.SUCCESS, f"{code}: {answer.code} {answer.remark}"
    return answer


@asynccontextmanager
async def open_crowd(address: str, count: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[list[RawPeer]]:
    """Many connections; they end at once, whatever is on its way."""
    async with AsyncExitStack() as stack:
        peers = []
        for _ in range(count):
            peer = await stack.enter_async_context(open_peer(address, tls))
            stack.callback(peer.writer.transport.abort)
            peers.append(peer)
        yield peers


def stop_reading(peer: RawPeer) -> None:
    """Read nothing more of a connection."""
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]


async def pour(peer: RawPeer, frames: Iterable[bytes]) -> None:
    """Write much, as quickly as it is taken; a server that closes the connection ends it."""
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(_PART_S):
            while piece := b"".join(islice(frames, 500)):
                peer.write_bytes(piece)
                await peer.writer.drain()


async def read_all(peer: RawPeer, count: int) -> None:
    """Read this many commands."""
    for _ in range(count):
        await peer.read()


def make_topic(name: str, queues: int = 4, *, oneway: bool = False, opaque: int = 0) -> bytes:
    """A request to make a topic."""
    header = CreateTopicHeader(
        topic=name, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6, order=False
    )
    return encode_command(make_request(RequestCode.UPDATE_AND_CREATE_TOPIC, header, opaque=opaque, oneway=oneway))


def scale(count: int, size: float) -> int:
    """Scale a number by the size."""
    return max(1, round(count * size))


# -- answers that are not read ----------------------------------------------------------------------------------------


async def hold_pulls(target: Target, size: float) -> None:
    """20 connections with 100 held pulls each, and one message of 4 MB for all; half of them do not read."""
    async with open_crowd(target.broker, 20) as crowd, open_peer(target.broker) as sender:
        first = await expect(sender, RequestCode.SEND_MESSAGE_V2, send_header("HeldLarge"), b"x")
        offset = int(first.ext_dict()["queueOffset"]) + 1
        header = pull_header(
            "HeldLarge", queue_offset=offset, sys_flag=HOLD | EXPRESSION, suspend_timeout_ms=60_000, max_message_nums=1
        )
        held = encode_command(make_request(RequestCode.PULL_MESSAGE, header, opaque=1))
        count = scale(100, size)
        for peer in crowd:
            peer.write_bytes(held * count)
            await ask(peer, 9, opaque=2)
        for peer in crowd[::2]:
            stop_reading(peer)
        await expect(sender, RequestCode.SEND_MESSAGE_V2, send_header("HeldLarge"), LARGE)
        with suppress(ConnectionError, AssertionError, TimeoutError):
            async with asyncio.timeout(_PART_S):
                await asyncio.gather(*[read_all(peer, min(count, 5)) for peer in crowd[1::2]])
        await asyncio.sleep(_UNREAD_S * size)


async def leave_unread(target: Target, size: float) -> None:
    """40 connections that ask for a large message repeatedly and read nothing."""
    async with open_peer(target.broker) as sender:
        await expect(sender, RequestCode.SEND_MESSAGE_V2, send_header("Unread"), LARGE)
    pull = encode_command(make_request(RequestCode.PULL_MESSAGE, pull_header("Unread", max_message_nums=1), opaque=1))
    async with open_crowd(target.broker, 40) as crowd:
        for peer in crowd:
            stop_reading(peer)
            peer.write_bytes(pull * scale(2000, size))
        await asyncio.sleep(_UNREAD_S * max(0.1, size))


# -- floods -----------------------------------------------------------------------------------------------------------


async def flood_topics(target: Target, size: float) -> None:
    """100,000 requests to make a topic, none of which is answered; then one that is."""
    count = scale(100_000, size)
    async with open_peer(target.broker) as peer:
        await pour(peer, (make_topic(f"flood-{number % 2000}", oneway=True) for number in range(count)))
        with suppress(AssertionError, ConnectionError, TimeoutError):
            await ask(peer, 9, opaque=2)


async def flood_registrations(target: Target, size: float) -> None:
    """100,000 registrations of brokers, none of which is answered, and the connection ends."""
    body = encode_registration(RegisterBrokerBody())

    def frames() -> Iterable[bytes]:
        for number in range(scale(100_000, size)):
            header = RegisterBrokerHeader(f"hostile-{number}", f"10.0.0.1:{number}", "hostile", "", 1)
            yield encode_command(make_request(RequestCode.REGISTER_BROKER, header, body, oneway=True))

    async with open_peer(target.names) as peer:
        await pour(peer, iter(frames()))
        with suppress(AssertionError, ConnectionError, TimeoutError):
            await ask(peer, RequestCode.GET_NAMESRV_CONFIG, opaque=2)


# -- members ----------------------------------------------------------------------------------------------------------


class MemberPeer(asyncio.Protocol):
    """A consumer that requests the list of members whenever it is notified that the group changed."""

    def __init__(self, number: int, told: list[int]) -> None:
        self._told = told
        self._frames = FrameBuffer()
        data = ConsumerData(
            group_name="crowd", subscription_data_set=[SubscriptionData(topic="Healthy", sub_string="*", sub_version=1)]
        )
        body = HeartbeatData(client_id=f"127.0.0.1@{number}", consumer_data_set=[data])
        self._beat = encode_command(make_request(RequestCode.HEART_BEAT, body=encode_json(body), opaque=1))
        header = ConsumerGroupHeader(consumer_group="crowd")
        self._question = encode_command(make_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, opaque=2))
        self._asks = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._beat)

    def data_received(self, data: bytes) -> None:
        """Request the list when notified, one request at a time."""
        for command in self._frames.feed(data):
            if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and not command.is_response:
                self._told[0] += 1
                if not self._asks and self.transport is not None:
                    self._asks = True
                    self.transport.write(self._question)
            elif command.opaque == 2:
                self._asks = False


async def join_and_leave(target: Target, size: float) -> None:
    """2,000 members of one group come and go together."""
    host, _, port = target.broker.rpartition(":")
    loop = asyncio.get_running_loop()
    told = [0]
    members: list[MemberPeer] = []
    for number in range(scale(2000, size)):
        _, member = await loop.create_connection(partial(MemberPeer, number, told), host, int(port))
        members.append(member)
    await asyncio.sleep(_MEMBERS_S * max(0.1, size))
    for member in members:
        if member.transport is not None:
            member.transport.abort()
    await asyncio.sleep(_MEMBERS_S * max(0.1, size))
    assert told[0] >= 1


# -- questions --------------------------------------------------------------------------------------------------------


async def ask_much(target: Target, size: float) -> None:
    """260 kB of questions of operators in one write."""
    questions: list[tuple[RequestCode, Header | None]] = [
        (RequestCode.GET_ALL_TOPIC_CONFIG, None),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None),
        (RequestCode.GET_ALL_CONSUMER_OFFSET, None),
        (RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsHeader(is_order=False)),
        (RequestCode.GET_CONSUME_STATS, ConsumeStatsHeader(consumer_group="readers")),
        (RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic="wide")),
        (RequestCode.GET_BROKER_CONFIG, None),
        (RequestCode.GET_BROKER_RUNTIME_INFO, None),
        (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic="wide")),
    ]
    async with open_peer(target.broker) as peer:
        peer.write_bytes(make_topic("wide", 4096, opaque=1))
        await peer.read()
        frames = [encode_command(make_request(code, header, opaque=7)) for code, header in questions]
        data = b"".join(frames)
        peer.write_bytes(data * max(1, round(260_000 * size / len(data))))
        with suppress(AssertionError, ConnectionError, TimeoutError):
            async with asyncio.timeout(8 * size + 1):
                while True:
                    await peer.read()
        peer.writer.transport.abort()


async def pull_by_sql(target: Target, size: float) -> None:
    """SQL pulls that match nothing over a backlog of 20,000 messages, pipelined, with long expressions."""
    async with open_peer(target.broker) as sender:
        properties = encode_properties({f"key{number}": str(number) for number in range(50)})
        messages = [BatchItem(flag=0, body=b"x", properties=properties) for _ in range(500)]
        header = send_header("Sql", batch=True)
        for _ in range(scale(40, size)):
            await expect(sender, RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(messages))
    async with open_crowd(target.broker, 4) as crowd:
        for number, peer in enumerate(crowd):
            frames = []
            for count in range(20):
                text = " OR ".join([f"key{key % 50} > {1000 + key + number + 7 * count}" for key in range(400)])
                header_ = pull_header("Sql", queue_offset=500, subscription=text, expression_type="SQL92")
                frames.append(encode_command(make_request(RequestCode.PULL_MESSAGE, header_, opaque=count)))
            peer.write_bytes(b"".join(frames) * scale(5, size))
        with suppress(AssertionError, ConnectionError, TimeoutError):
            async with asyncio.timeout(_PART_S):
                await asyncio.gather(*[read_all(peer, 20 * scale(5, size)) for peer in crowd])


# -- much of everything -----------------------------------------------------------------------------------------------


async def make_topics(target: Target, size: float) -> None:
    """10,000 topics, made by an operator who waits for the answers."""
    count = scale(10_000, size)
    async with open_peer(target.broker) as peer:
        async with asyncio.timeout(4 * _PART_S):
            for begin in range(0, count, 100):
                numbers = range(begin, min(begin + 100, count))
                peer.write_bytes(b"".join([make_topic(f"many-{number}", opaque=number) for number in numbers]))
                await read_all(peer, len(numbers))


async def use_huge_names(target: Target, size: float) -> None:
    """Offsets of groups whose names have 900 kB, and keys and values of as much."""
    count = scale(300, size)
    async with open_crowd(target.broker, 1) as (peer,):
        for number in range(count):
            group = f"{number}" + "g" * 900_000
            header = UpdateConsumerOffsetHeader(consumer_group=group, topic="Healthy", queue_id=0, commit_offset=1)
            with suppress(AssertionError, ConnectionError):
                await ask(peer, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    async with open_crowd(target.names, 1) as (peer,):
        for number in range(count):
            kv = PutKVConfigHeader("hostile", f"{number}" + "k" * 400_000, "v" * 400_000)
            with suppress(AssertionError, ConnectionError):
                await ask(peer, RequestCode.PUT_KV_CONFIG, kv)


async def send_large_batches(target: Target, size: float) -> None:
    """Batches of 40,000 small messages."""
    messages = [BatchItem(flag=0, body=b"small", properties=b"") for _ in range(scale(40_000, size))]
    body = encode_batch(messages)
    async with open_peer(target.broker) as peer:
        for _ in range(20):
            peer.write(make_request(RequestCode.SEND_BATCH_MESSAGE, send_header("Batch", batch=True), body))
        peer.writer.write_eof()
        await peer.wait_for_end()  # the header of an answer is larger than our own clients take


async def send_huge_heartbeats(target: Target, size: float) -> None:
    """Heartbeats of 15 MB, of 3,000 groups, and of as many subscriptions as fit."""
    count = scale(15 * MIB // 13, size)
    many = b",".join([b'{"topic":""}'] * count)
    huge = b'{"clientID":"c","consumerDataSet":[{"groupName":"huge","subscriptionDataSet":[' + many + b"]}]}"
    tags = b",".join([b'"%d"' % number for number in range(scale(400_000, size))])
    full = b'{"clientID":"c","consumerDataSet":[{"groupName":"full","subscriptionDataSet":[{"topic":"t","tagsSet":['
    full += tags + b"]}]}]}"
    groups = [
        ConsumerData(group_name=f"wide-{number}", subscription_data_set=[SubscriptionData(topic="Healthy")])
        for number in range(scale(3000, size))
    ]
    wide = encode_json(HeartbeatData(client_id="c", consumer_data_set=groups))
    async with open_crowd(target.broker, 4) as crowd:
        for peer in crowd:
            for body in (huge, full, wide):
                with suppress(AssertionError, ConnectionError, TimeoutError):
                    await ask(peer, RequestCode.HEART_BEAT, body=body)


async def register_much(target: Target, size: float) -> None:
    """Registrations of hundreds of thousands of topics: compressed to 4 MB, and as JSON of 15 MB."""
    rng = random.Random(7)
    count = scale(900_000, size)
    lines = [b"%d-%d 4 4 6 S" % (rng.randrange(10**6), number) for number in range(count)]
    raw = struct.pack(">i", 2) + b"{}" + struct.pack(">i", count)
    raw += b"".join([struct.pack(">i", len(line)) + line for line in lines]) + struct.pack(">i", 2) + b"[]"
    table = {name: TopicConfig(topic_name=name) for name in (f"json-{number}" for number in range(scale(60_000, size)))}
    body = RegisterBrokerBody(topic_config_serialize_wrapper=TopicConfigTable(topic_config_table=table))
    tiny = b",".join([b'"%d":{"topicName":"%d"}' % (number, number) for number in range(scale(60_000, size))])
    bodies = [
        (True, compress(raw)),
        (False, encode_registration(body)),
        (True, encode_registration(body, compressed=True)),
        (False, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{' + tiny + b"}}}"),
    ]
    async with open_crowd(target.names, 2) as crowd:
        for number, peer in enumerate(crowd):
            for compressed, data in bodies:
                header = RegisterBrokerHeader(f"large-{number}", f"10.0.0.2:{number}", "c", "", 0, compressed)
                with suppress(AssertionError, ConnectionError, TimeoutError):
                    await ask(peer, RequestCode.REGISTER_BROKER, header, data)


# In the order they are run: later ones meet what earlier ones left behind.
PARTS: dict[str, Attack] = {
    "held-pulls": hold_pulls,
    "unread": leave_unread,
    "members": join_and_leave,
    "sql-pulls": pull_by_sql,
    "heartbeats": send_huge_heartbeats,
    "registrations": register_much,
    "batches": send_large_batches,
    "names": use_huge_names,
    "broker-flood": flood_registrations,
    "topic-flood": flood_topics,
    "topics": make_topics,
    "questions": ask_much,
}


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        asyncio.run(PARTS[line.strip()](Target(sys.argv[1], sys.argv[2]), float(sys.argv[3])))  # type: ignore[arg-type]
        print("done", flush=True)

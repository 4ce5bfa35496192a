"""Servers that do one thing wrong for ever, and what a client makes of each."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from eruca import ClientOptions, Consumer, Flow, Message, Offsets, Producer, PullConsumer, Rebalance
from eruca._client.produce.checks import Decision
from eruca._client.produce.transactions import TransactionalProducer
from eruca._client.session.calls import has_entry
from eruca._client.session.route import make_route
from eruca._ground.limits import ROUTE_BROKERS_MAX, ROUTE_QUEUES_MAX, TOPIC_QUEUES_MAX
from eruca._wire.bodies import BrokerData, MessageQueue, QueueData, ResetOffsetBody, TopicRouteData
from eruca._wire.catalog import build_request
from eruca._wire.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from eruca._wire.frame import Command, encode_command
from eruca._wire.headers import (
    PullMessageAnswerHeader,
    PullMessageHeader,
    ResetOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from eruca._wire.record import Record, encode_record
from eruca.errors import CallTimeout, ErucaError, WireError
from tests.clients.hostile import BROKER, MESSAGES, TOPIC, HostilePeer
from tests.clients.mutations import Step
from tests.patience import PATIENCE_S

# What a scripted server does with a request; None is the right answer.
Script = Callable[[Command], list[Step] | None]
_WAIT_S = PATIENCE_S
# Calls that are answered are answered in time, however busy the machine is.
_CALL_MS = 2000


class ScriptedPeer(HostilePeer):
    """A server that answers rightly, except where its script says otherwise."""

    def __init__(self, script: Script, queues: int = 4) -> None:
        super().__init__(0, queues)
        self.script = script

    def handle(self, request: Command) -> list[Step]:
        """The steps that answer a request."""
        steps = self.script(request)
        return self.answer_rightly(request) if steps is None else steps


@asynccontextmanager
async def serve(script: Script, **how: Any) -> AsyncIterator[ScriptedPeer]:
    peer = ScriptedPeer(script, **how)
    await peer.start()
    try:
        yield peer
    finally:
        await peer.stop()


async def watch_for_a_second() -> float:
    """Let others work; returns how long it took, which is more on a busy machine."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(1.0)  # a rate is measured over it
    return loop.time() - began


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def make_consumer(peer: HostilePeer, **how: Any) -> Consumer:
    options = ClientOptions(nameservers=peer.address, call_timeout=_CALL_MS / 1000, ip="127.0.0.1")
    how.setdefault("rebalance", Rebalance(interval=0.05))
    return Consumer(group="g", options=options, start="earliest", drain=0.5, **how)


# --- time -----------------------------------------------------------------------------------------------------------


async def send(producer: TransactionalProducer) -> object:
    return await producer.send(TOPIC, b"x")


async def send_batch(producer: TransactionalProducer) -> object:
    return await producer.send_batch(TOPIC, [b"x"])


async def request(producer: TransactionalProducer) -> object:
    return await producer.request(TOPIC, b"x")


async def send_transaction(producer: TransactionalProducer) -> object:
    return await producer.send_transaction(TOPIC, b"x", local=lambda _: Decision.COMMIT)


SENDS: tuple[Callable[[TransactionalProducer], Awaitable[object]], ...] = (send, send_batch, request, send_transaction)


@pytest.mark.parametrize("knows_routes", [False, True], ids=["nothing", "all-but-routes"])
@pytest.mark.parametrize("work", SENDS, ids=lambda work: work.__name__)
async def test_a_silent_server_costs_a_send_no_more_than_its_timeout(
    work: Callable[[TransactionalProducer], Awaitable[object]], knows_routes: bool
) -> None:
    """The timeout of the send counts, not that of the many calls it may need."""

    def be_silent(request: Command) -> list[Step] | None:
        return None if knows_routes and request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC else []

    async with serve(be_silent) as peer:
        options = ClientOptions(nameservers=peer.address, call_timeout=60, ip="127.0.0.1")
        producer = TransactionalProducer(
            group="shop", options=options, timeout=0.3, check=lambda message: Decision.UNKNOWN
        )
        await producer.start()
        async with asyncio.timeout(_WAIT_S):
            with pytest.raises(ErucaError):
                await work(producer)
        await peer.stop()  # which ends the connection, and with it the waiting of `close`
        await producer.close()


async def test_closing_takes_one_timeout_however_many_queues_there_are() -> None:
    silent = False
    async with serve(lambda request: [] if silent else None, queues=200) as peer:
        consumer = make_consumer(peer, subscribe=TOPIC)
        await consumer.start()
        await wait_until(lambda: len(consumer.queues) == 200)
        silent = True
        async with asyncio.timeout(_WAIT_S):  # 200 timeouts one after the other are minutes
            await consumer.close()
        assert consumer.queues == []


async def test_a_server_that_reads_nothing_ends_a_oneway_send() -> None:
    def read_nothing(request: Command) -> list[Step] | None:
        return [math.inf] if request.flag & FLAG_ONEWAY else None

    async with serve(read_nothing) as peer:
        options = ClientOptions(nameservers=peer.address, call_timeout=_CALL_MS / 1000, ip="127.0.0.1")
        async with asyncio.timeout(_WAIT_S), Producer(group="shop", options=options, compress_from=None) as producer:
            with pytest.raises(CallTimeout, match="does not read"):
                for _ in range(200):
                    await producer.send_oneway(TOPIC, bytes(1024 * 1024))


# --- work ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    ],
    ids=lambda code: code.name,
)
async def test_a_broker_that_has_nothing_and_says_so_at_once_is_not_asked_in_a_circle(code: ResponseCode) -> None:
    def answer_at_once(request: Command) -> list[Step] | None:
        if request.code != RequestCode.PULL_MESSAGE:
            return None
        asked = request.decode_header(PullMessageHeader)
        # Two places that send it to each other when the offset is said to be wrong.
        place = 1 - min(asked.queue_offset, 1) if code == ResponseCode.PULL_OFFSET_MOVED else asked.queue_offset
        return [encode_command(request.answer(code, PullMessageAnswerHeader(0, place, 0, 9)))]

    async with serve(answer_at_once) as peer:
        consumer = make_consumer(peer, subscribe=TOPIC)
        async with consumer:
            await wait_until(lambda: peer.requests[RequestCode.PULL_MESSAGE] >= 8)
            before = peer.requests[RequestCode.PULL_MESSAGE]
            spent = await watch_for_a_second()
            # Eight queues, ten a second each; without a pause it is thousands.
            assert peer.requests[RequestCode.PULL_MESSAGE] - before < 400 * spent


async def test_a_broker_that_takes_clients_in_and_throws_them_out_is_not_stormed() -> None:
    def throw_out(request: Command) -> list[Step] | None:
        return [*peer.answer_rightly(request), None] if request.code == RequestCode.HEART_BEAT else None

    async with serve(throw_out) as peer:
        consumer = make_consumer(peer, subscribe=TOPIC, flow=Flow(error_pause=1))
        async with consumer:
            await wait_until(lambda: peer.connections >= 3)
            before = peer.connections
            spent = await watch_for_a_second()
            assert peer.connections - before < 100 * spent


async def test_a_broken_strategy_does_not_end_the_sharing_of_queues() -> None:
    class Moody:
        name = "MOODY"
        calls = 0

        def allocate(self, group: str, client: str, queues: Any, clients: Any) -> list[MessageQueue]:
            self.calls += 1
            if self.calls < 4:
                raise ZeroDivisionError
            return list(queues)

    async with (
        serve(lambda request: None) as peer,
        make_consumer(peer, subscribe=TOPIC, rebalance=Rebalance(interval=0.05, strategy=Moody())) as consumer,
    ):
        await wait_until(lambda: len(consumer.queues) == 4)
        assert [queue.queue_id for queue in consumer.queues] == [0, 1, 2, 3]


# --- offsets -------------------------------------------------------------------------------------------------------


async def test_messages_at_offsets_a_broker_lost_and_gave_again_are_delivered() -> None:
    """As after a failover to a slave that lacked the last messages."""
    has_lost = False

    def pull(request: Command) -> list[Step] | None:
        if request.code != RequestCode.PULL_MESSAGE:
            return None
        asked = request.decode_header(PullMessageHeader)
        if asked.topic != TOPIC or asked.queue_id:
            return peer.answer_rightly(request)
        offset, end = asked.queue_offset, 5 if has_lost else 10
        if offset > end:
            moved = PullMessageAnswerHeader(0, 3, 0, end)
            return [encode_command(request.answer(ResponseCode.PULL_OFFSET_MOVED, moved))]
        if offset == end:
            nothing = PullMessageAnswerHeader(0, end, 0, end)
            return [0.05, encode_command(request.answer(ResponseCode.PULL_NOT_FOUND, nothing))]
        records = [peer.make_record(0, number, "g") for number in range(offset, end)]
        for record in records:
            record.body = b"again" if has_lost else b"first"
        body = b"".join([encode_record(record) for record in records])
        return [encode_command(request.answer(ResponseCode.SUCCESS, PullMessageAnswerHeader(0, end, 0, end), body))]

    seen: list[tuple[int, bytes]] = []
    async with serve(pull, queues=1) as peer:
        consumer = make_consumer(peer, offsets=Offsets(interval=0.02))

        @consumer.handler(TOPIC)
        async def handle(message: Message) -> None:
            seen.append((message.offset, message.body))

        async with consumer:
            await wait_until(lambda: len(seen) == 10)
            has_lost = True
            await wait_until(lambda: len(seen) == 12)
            assert seen[10:] == [(3, b"again"), (4, b"again")]
            await wait_until(lambda: consumer._member.list_offsets(TOPIC) == {MessageQueue(BROKER, 0, TOPIC): 5})


@pytest.mark.parametrize("fault", ["topic", "queue", "twice", "backwards", "before", "next"])
async def test_records_that_were_not_asked_for_are_not_delivered(fault: str) -> None:
    """Not as those of another queue, not twice, not out of order; and when the broker is sane again, all come once."""
    spoilt = 0

    def pull(request: Command) -> list[Step] | None:
        nonlocal spoilt
        if request.code != RequestCode.PULL_MESSAGE or spoilt >= 3:
            return None
        asked = request.decode_header(PullMessageHeader)
        if asked.topic != TOPIC or asked.queue_offset < 8:
            return None
        spoilt += 1
        offset, goes_on_at = asked.queue_offset, asked.queue_offset + 4
        records = [peer.make_record(0, number, "g") for number in range(offset, goes_on_at)]
        match fault:
            case "topic":
                records[1].topic = "other"
            case "queue":
                records[1].queue_id = 1
            case "twice":
                records.insert(1, records[0])
            case "backwards":
                records.reverse()
            case "before":
                records[0].queue_offset = offset - 1
            case "next":
                goes_on_at = offset + 1
        body = b"".join([encode_record(record) for record in records])
        header = PullMessageAnswerHeader(0, goes_on_at, 0, MESSAGES)
        return [encode_command(request.answer(ResponseCode.SUCCESS, header, body))]

    seen: list[tuple[str, int]] = []
    async with serve(pull, queues=1) as peer:
        consumer = make_consumer(peer, flow=Flow(error_pause=0.02))

        @consumer.handler(TOPIC, concurrency=1)
        async def handle(message: Message) -> None:
            seen.append((message.record.topic, message.offset))

        async with consumer:
            await wait_until(lambda: len(seen) >= MESSAGES)
    assert spoilt == 3
    assert seen == [(TOPIC, offset) for offset in range(MESSAGES)]


async def test_a_queue_whose_reset_the_broker_refuses_is_consumed_on(caplog: pytest.LogCaptureFixture) -> None:
    refused = 0

    def refuse(request: Command) -> list[Step] | None:
        nonlocal refused
        if request.code != RequestCode.UPDATE_CONSUMER_OFFSET:
            return None
        if request.decode_header(UpdateConsumerOffsetHeader).commit_offset != 7:
            return None
        refused += 1
        return [encode_command(request.answer(ResponseCode.SYSTEM_ERROR, remark="no"))]

    queue = MessageQueue(BROKER, 0, TOPIC)
    async with serve(refuse, queues=1) as peer, make_consumer(peer, subscribe=TOPIC) as consumer:
        await wait_until(lambda: consumer.queues == [queue])
        before = consumer._member.inboxes[queue]
        header = ResetOffsetHeader(topic=TOPIC, group="g", timestamp=0)
        body = ResetOffsetBody(offset_table={queue: 7})
        peer.broadcast(encode_command(build_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)))
        await wait_until(lambda: refused > 0 and consumer._member.inboxes.get(queue) not in (before, None))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("table", "is_there"),
    [
        (b'{"offsetTable":{"hostile@g":{0:5,12:0}}}', True),
        (b'{"offsetTable":{"hostile@g":{"12" : 3}}}', True),
        (b'{"offsetTable":{"hostile@g":{2:12,1:1}}}', False),
        (b'{"offsetTable":{"hostile@g":{112:1}}}', False),
        (b'{"offsetTable":{"not-hostile@g":{12:1},"hostile@g2":{12:1}}}', False),
        (b'{"offsetTable":{}}', False),
    ],
)
def test_one_entry_is_found_in_the_offsets_of_a_broker(table: bytes, is_there: bool) -> None:
    assert has_entry(table, "hostile@g", 12) is is_there


def test_what_is_no_table_of_offsets_is_refused() -> None:
    with pytest.raises(WireError):
        has_entry(b"[" * 1000, "hostile@g", 0)


def test_a_time_that_no_calendar_has_is_an_error_of_ours() -> None:
    message = Message(Record(TOPIC, born_timestamp=2**62, store_timestamp=-(2**63)), MessageQueue(BROKER, 0, TOPIC))
    for name in ("born_at", "stored_at"):
        with pytest.raises(WireError):
            getattr(message, name)


async def test_the_search_for_a_time_ends_although_a_queue_never_comes_to_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eruca._client.group.starting._SEARCH_S_MAX", 0.3)

    def go_on(request: Command) -> list[Step] | None:
        if request.code != RequestCode.PULL_MESSAGE:
            return None
        offset = request.decode_header(PullMessageHeader).queue_offset
        header = PullMessageAnswerHeader(0, offset + 1, 0, 2**60)
        body = encode_record(peer.make_record(0, offset, "g"))
        return [encode_command(request.answer(ResponseCode.SUCCESS, header, body))]

    async with serve(go_on, queues=1) as peer:
        options = ClientOptions(nameservers=peer.address, call_timeout=_CALL_MS / 1000, ip="127.0.0.1")
        async with asyncio.timeout(_WAIT_S), PullConsumer(group="g", options=options) as consumer:
            queue = (await consumer.list_queues(TOPIC))[0]
            with pytest.raises(CallTimeout):
                await consumer.offset_at(queue, datetime.now(UTC))


# --- routes --------------------------------------------------------------------------------------------------------


def test_a_route_has_bounds() -> None:
    def make(brokers: int, queues: int) -> None:
        names = [f"b{number}" for number in range(brokers)]
        data = TopicRouteData(
            broker_datas=[BrokerData(broker_name=name, broker_addrs={0: "127.0.0.1:1"}) for name in names],
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues) for name in names
            ],
        )
        make_route(TOPIC, data)

    make(ROUTE_BROKERS_MAX, 1)
    make(ROUTE_QUEUES_MAX // 64, 64)
    for brokers, queues in ((ROUTE_BROKERS_MAX + 1, 1), (ROUTE_QUEUES_MAX // 64 + 1, 64), (1, TOPIC_QUEUES_MAX + 1)):
        with pytest.raises(WireError):
            make(brokers, queues)


def test_a_broker_that_a_route_names_twice_has_its_queues_once() -> None:
    queue = QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=2)
    broker = BrokerData(broker_name="a", broker_addrs={0: "127.0.0.1:1"})
    route = make_route(TOPIC, TopicRouteData(broker_datas=[broker, broker], queue_datas=[queue, queue]))
    assert len(route.read_queues) == len(route.write_queues) == 2

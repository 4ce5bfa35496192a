"""Requests and replies: each reply to who asked, by whichever broker, and a clear end when none comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._client.message import Message
from eruca._client.options import ClientOptions
from eruca._client.produce import listeners
from eruca._client.produce.producer import Producer
from eruca._client.pull.consumer import PullConsumer
from eruca._client.push.consumer import Consumer
from eruca._client.session.session import Session
from eruca._nameserver.app import NameServer
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.headers import PushReplyHeader
from eruca._wire.properties import parse_properties
from eruca.errors import ClientClosed, ConfigError, MessageIllegal, NoListener, NoRoute, RequestTimeout, SendFailed
from tests.integration.broker.delivery import stored
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.unit.client.scripted import SILENT, ScriptedCluster, wait_until

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
OTHER = ClientOptions(ip="127.0.0.1", instance="other")
# For requests that are answered without a consumer.
ALONE: dict[str, Any] = {"listener_timeout": None}


def find_requests(*brokers: Broker, topic: str = "questions") -> list[Message]:
    """The requests brokers have, as a consumer sees them."""
    return [
        Message(record, MessageQueue(broker.options.name, record.queue_id, topic))
        for broker in brokers
        for queue_id in range(4)
        for record in stored(broker, topic, queue_id)
    ]


async def serve(producer: Producer, *brokers: Broker, count: int = 1, topic: str = "questions", **how: Any) -> None:
    """Reply to requests as they come, in upper case."""
    done: set[str] = set()
    while len(done) < count:
        await wait_until(lambda: len(find_requests(*brokers, topic=topic)) > len(done))
        for request in find_requests(*brokers, topic=topic):
            if request.message_id not in done:
                done.add(request.message_id)
                await producer.reply(request, request.body.upper(), **how)


async def test_the_reply_comes_to_who_asked(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    replier = await make_producer(nameserver.address, group="repliers", options=OTHER)
    serving = asyncio.get_running_loop().create_task(serve(replier, broker, tags="t", properties={"a": "b"}))
    reply = await asker.request("questions", b"who?", tags="q", keys=["k"], timeout=10, **ALONE)
    await serving
    assert (reply.body, reply.tags, reply.properties, reply.topic) == (b"WHO?", "t", {"a": "b"}, REPLY_TOPIC)
    assert reply.store_host == broker.standing.address
    assert int(reply.all_properties["ARRIVE_TIME"]) >= int(reply.all_properties["PUSH_REPLY_TIME"])
    (request,) = find_requests(broker)
    properties = request.all_properties
    assert properties["REPLY_TO_CLIENT"] == asker._session.client_id
    assert properties["TTL"] == "10000"
    assert properties["CORRELATION_ID"] == reply.all_properties["CORRELATION_ID"]
    (kept,) = stored(broker, REPLY_TOPIC)
    assert kept.get_property("MSG_TYPE") == "reply"
    assert asker._engine.requests._waiting == {}


async def test_many_requests_at_once_get_their_own_replies(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    other = await make_producer(nameserver.address, group="others")  # of the same session
    replier = await make_producer(nameserver.address, group="repliers", options=OTHER)
    serving = asyncio.get_running_loop().create_task(serve(replier, broker, count=40))
    bodies = [b"q%d" % number for number in range(40)]
    replies = await asyncio.gather(
        *[
            (asker, other)[number % 2].request("questions", body, timeout=20, **ALONE)
            for number, body in enumerate(bodies)
        ]
    )
    await serving
    assert [reply.body for reply in replies] == [body.upper() for body in bodies]


async def test_large_bodies_are_compressed_both_ways(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    serving = asyncio.get_running_loop().create_task(serve(asker, broker))
    reply = await asker.request("questions", b"x" * 20_000, timeout=10, **ALONE)
    await serving
    assert reply.body == b"X" * 20_000
    assert len(reply.record.body) < 1000


async def test_a_reply_may_come_by_a_broker_the_request_did_not_go_to(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    first, second = await start_broker("broker-a"), await start_broker("broker-b")
    asker = await make_producer(nameserver.address, group="askers")
    replier = await make_producer(nameserver.address, group="repliers", options=OTHER)
    asking = asyncio.get_running_loop().create_task(
        asker.request("questions", b"who?", queue=MessageQueue("broker-a", 0, "questions"), timeout=10, **ALONE)
    )
    await wait_until(lambda: len(find_requests(first)) == 1)
    (request,) = find_requests(first)
    # As a client does that takes any queue of the reply topic.
    request.queue = MessageQueue("broker-b", 0, "questions")
    receipt = await replier.reply(request, b"me")
    assert receipt.queue.broker_name == "broker-b"
    assert (await asking).body == b"me"
    assert stored(second, REPLY_TOPIC)


async def test_ours_go_by_the_broker_that_has_the_request(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    brokers = [await start_broker(name) for name in ("broker-a", "broker-b")]
    asker = await make_producer(nameserver.address, group="askers")
    serving = asyncio.get_running_loop().create_task(serve(asker, *brokers, count=12))
    await asyncio.gather(*[asker.request("questions", b"q", timeout=20, **ALONE) for _ in range(12)])
    await serving
    for broker in brokers:
        assert len(stored(broker, REPLY_TOPIC)) == len(find_requests(broker)) > 0


async def test_a_namespace(nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer) -> None:
    broker = await start_broker()
    options = ClientOptions(ip="127.0.0.1", namespace="shop")
    asker = await make_producer(nameserver.address, group="askers", options=options)
    serving = asyncio.get_running_loop().create_task(serve(asker, broker, topic="shop%questions"))
    assert (await asker.request("questions", b"who?", timeout=10, **ALONE)).body == b"WHO?"
    await serving
    assert len(stored(broker, REPLY_TOPIC)) == 1


async def test_nobody_replies(nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer) -> None:
    broker = await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    # The topic is made before, so that the time is not spent on that.
    await asker.send("questions", b"no question", timeout=20)
    with pytest.raises(RequestTimeout, match=r"nobody replied .* topic questions within 1 s.*is a consumer") as caught:
        await asker.request("questions", b"who?", timeout=1, **ALONE)
    assert caught.value.retryable
    assert asker._engine.requests._waiting == {}
    with pytest.raises(MessageIllegal):
        await asker.request("questions", b"")
    assert asker._engine.requests._waiting == {}
    # A late reply is taken and dropped: the replier is not to blame.
    (request,) = [found for found in find_requests(broker) if found.body == b"who?"]
    await asker.reply(request, b"me")
    assert (await asker.send("questions", b"x")).offset >= 0


async def test_the_time_is_for_all_of_it(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("questions")
    scripted.add_topic(REPLY_TOPIC)
    broker.script.append(SILENT)
    asker = await make_producer(scripted.address, timeout=0.2)
    with pytest.raises((RequestTimeout, SendFailed)):
        await asker.request("questions", b"who?")
    assert asker._engine.requests._waiting == {}
    scripted.nameserver.is_silent = True
    with pytest.raises(RequestTimeout, match="could not send request"):
        await asker.request("unknown", b"who?")


async def test_closing_ends_requests(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    asking = asyncio.get_running_loop().create_task(asker.request("questions", b"who?", timeout=60, **ALONE))
    await wait_until(lambda: len(find_requests(broker)) == 1 and asker._engine.window.count == 0)
    await asker.close()
    with pytest.raises(ClientClosed):
        await asking


async def test_the_broker_knows_the_requester_before_the_request_comes(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("questions")
    scripted.add_topic(REPLY_TOPIC)
    known: list[bool] = []

    def look(link: Any, command: Any) -> bytes | None:
        groups = {group.group_name for beat in broker.heartbeats for group in beat.producer_data_set}
        known.append("askers" in groups)
        return broker.answer(link, command)

    broker.script.append(look)
    asker = await make_producer(scripted.address, group="askers")
    asking = asyncio.get_running_loop().create_task(asker.request("questions", b"who?", timeout=60, **ALONE))
    await wait_until(lambda: bool(known))
    assert known == [True]
    asking.cancel()


async def test_a_request_that_cannot_be_sent(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker(auto_create_topic=False)
    asker = await make_producer(nameserver.address, group="askers")
    with pytest.raises(NoRoute):
        await asker.request("questions", b"who?")
    with pytest.raises(MessageIllegal):
        await asker.request("SCHEDULE_TOPIC_XXXX", b"who?")
    assert asker._engine.requests._waiting == {}
    await asker.close()
    with pytest.raises(ClientClosed):
        await asker.request("questions", b"who?")


async def test_only_requests_can_be_replied_to(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address)
    await producer.send("questions", b"no question")
    (message,) = find_requests(broker)
    with pytest.raises(
        MessageIllegal, match=r"is not a request: it has no CORRELATION_ID and no REPLY_TO_CLIENT.*`request`"
    ):
        await producer.reply(message, b"x")


async def test_a_requester_that_left_is_told_to_the_replier(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    replier = await make_producer(nameserver.address, group="repliers", options=OTHER)
    asking = asyncio.get_running_loop().create_task(asker.request("questions", b"who?", timeout=60, **ALONE))
    await wait_until(lambda: len(find_requests(broker)) == 1)
    asking.cancel()
    await asker.close()
    clients = broker.clients
    await wait_until(lambda: not clients.producers.get("askers"))
    (request,) = find_requests(broker)
    with pytest.raises(SendFailed, match=r"after 1 try: .*channel of .* not found"):
        await replier.reply(request, b"me")
    # Not tried again: the broker keeps replies that it could not bring.
    assert len(stored(broker, REPLY_TOPIC)) == 1


async def test_a_java_reply_is_understood(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    """A Java broker tells hosts with a slash in front, and may leave out what it does not know."""
    asker = await make_producer(scripted.address, group="askers")
    correlation_id, future = asker._engine.requests._open()
    header = PushReplyHeader(
        producer_group="repliers",
        topic=REPLY_TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=123,
        flag=5,
        properties=f"MSG_TYPE\x01reply\x02CORRELATION_ID\x01{correlation_id}\x02TTL\x013000\x02",
        born_host="/10.0.0.1:4567",
        store_host="no address",
    )
    assert asker._engine.take_reply(header, b"yes")
    reply = await future
    assert (reply.body, reply.flag, reply.born_host, reply.store_host) == (b"yes", 5, "10.0.0.1:4567", "0.0.0.0:0")
    assert parse_properties(reply.record.properties)["CORRELATION_ID"] == correlation_id
    assert asker._engine.take_reply(header, b"yes again")
    asker._engine.requests._waiting.clear()
    assert not asker._engine.take_reply(header, b"too late")
    assert int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT) == 326


# -- consumers that reply ----------------------------------------------------------------------------------------------


async def make_topic(producer: Producer) -> None:
    """Make the topic of questions, and wait until its brokers are known."""
    await producer.send("questions", b"makes the topic")
    routes = producer._session.routes

    def is_known() -> bool:
        route = routes.peek("questions")
        return route is not None and not route.is_template

    await wait_until(is_known)


def make_clerk(nameserver: NameServer, **how: Any) -> Consumer:
    """A consumer of questions."""
    return Consumer(nameserver.address, group="clerks", start="earliest", options=OTHER, **how)


async def test_a_consumer_replies_without_a_producer(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    clerk = make_clerk(nameserver)
    received: list[Message] = []

    @clerk.handler("questions")
    async def answer(message: Message) -> None:
        received.append(message)
        receipt = await message.reply(message.body.upper(), tags="t", keys=["k"], properties={"a": "b"})
        assert receipt.queue.topic == REPLY_TOPIC

    await asker.send("questions", b"no question")
    async with clerk:
        reply = await asker.request("questions", b"who?" * 2000, timeout=60)
        assert (reply.body, reply.tags, reply.keys, reply.properties) == (b"WHO?" * 2000, "t", ["k"], {"a": "b"})
        assert len(reply.record.body) < 1000  # it is compressed
        await wait_until(lambda: len(received) == 2)
        (statement,) = [message for message in received if message.body == b"no question"]
        with pytest.raises(MessageIllegal, match="is not a request"):
            await statement.reply(b"x")
    with pytest.raises(ClientClosed, match="the consumer that received the request is closed"):
        await received[0].reply(b"too late")
    assert len(stored(broker, REPLY_TOPIC)) == 1


async def test_replies_when_iterating_and_when_polling(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    await make_topic(asker)
    options = ClientOptions(ip="127.0.0.1", instance="other", namespace="")
    async with make_clerk(nameserver, subscribe="questions") as clerk:
        asking = asyncio.get_running_loop().create_task(asker.request("questions", b"who?", timeout=60))
        async for message in clerk:
            await message.ack()  # a settled message can be replied to as well
            if message.body == b"who?":
                await message.reply(b"me")
                break
        assert (await asking).body == b"me"
    pulling = PullConsumer(nameserver.address, group="pullers", subscribe="questions", options=options)
    async with pulling as puller:
        asking = asyncio.get_running_loop().create_task(asker.request("questions", b"and who?", timeout=60))
        while not asking.done():
            for message in await puller.poll(timeout=1):
                await message.reply(b"me too")
        assert (await asking).body == b"me too"
    with pytest.raises(ClientClosed):
        await message.reply(b"too late")


async def test_what_no_consumer_delivered_cannot_reply(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address)
    await producer.send("questions", b"who?")
    (message,) = find_requests(broker)
    with pytest.raises(MessageIllegal, match=r"was not delivered by a consumer.*Producer\.reply"):
        await message.reply(b"me")


# -- nobody listens ----------------------------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool | None]:
    """Brokers are asked soon; this is what was found."""
    found: list[bool | None] = []
    look = listeners.has_listener

    async def keep(session: Session, topic: str) -> bool | None:
        answer = await look(session, topic)
        found.append(answer)
        return answer

    monkeypatch.setattr(listeners, "has_listener", keep)
    monkeypatch.setattr(listeners, "_LOOK_S", 0.02)
    monkeypatch.setattr(listeners, "_LOOK_AGAIN_S", 0.02)
    monkeypatch.setattr(listeners, "_SHARED_S", 0.01)
    return found


@pytest.mark.parametrize("patience", [0, 0.1])
async def test_nobody_listens(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    looks: list[bool | None],
    patience: float,
) -> None:
    brokers = [await start_broker(name) for name in ("broker-a", "broker-b")]
    asker = await make_producer(nameserver.address, group="askers")
    for broker in brokers:
        await asker.send("questions", b"x", queue=MessageQueue(broker.options.name, 0, "questions"))
    await make_topic(asker)
    # A group that left, and one that is connected and listens to something else.
    async with make_clerk(nameserver, subscribe="questions") as clerk:
        await anext(clerk)
        await clerk.commit()
    async with Consumer(nameserver.address, group="others", subscribe="others", options=OTHER):
        with pytest.raises(RequestTimeout, match=r"nobody listens to topic questions: .*start a consumer") as caught:
            await asker.request("questions", b"who?", timeout=60, listener_timeout=patience)
    assert type(caught.value) is NoListener
    assert caught.value.retryable
    assert looks and set(looks) == {False}
    assert [request.body for request in find_requests(*brokers)].count(b"who?") == 1  # for those who come later
    assert asker._engine.requests._waiting == {}
    with pytest.raises(ConfigError, match="listener_timeout=-1"):
        await asker.request("questions", b"who?", listener_timeout=-1)


async def test_a_consumer_that_is_just_starting_is_waited_for(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, looks: list[bool | None]
) -> None:
    await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    await make_topic(asker)
    asking = asyncio.get_running_loop().create_task(
        asker.request("questions", b"who?", timeout=60, listener_timeout=60)
    )
    await wait_until(lambda: len(looks) >= 2)
    assert not any(looks)
    clerk = make_clerk(nameserver)

    @clerk.handler("questions")
    async def answer(message: Message) -> None:
        if message.body == b"who?":
            await wait_until(lambda: looks[-1] is True)  # it listens, and takes its time
            await message.reply(b"me")

    async with clerk:
        assert (await asking).body == b"me"


async def test_a_consumer_that_leaves_is_noticed(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, looks: list[bool | None]
) -> None:
    await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    await make_topic(asker)
    async with make_clerk(nameserver, subscribe="questions"):
        asking = asyncio.get_running_loop().create_task(
            asker.request("questions", b"who?", timeout=60, listener_timeout=0.1)
        )
        await wait_until(lambda: True in looks)
    with pytest.raises(NoListener):
        await asking


async def test_requests_that_are_answered_soon_ask_nobody_else(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    looks: list[bool | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "_LOOK_S", 60)
    await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    await make_topic(asker)
    clerk = make_clerk(nameserver)

    @clerk.handler("questions")
    async def answer(message: Message) -> None:
        if message.body.startswith(b"q"):
            await message.reply(message.body)

    async with clerk:
        replies = await asyncio.gather(*[asker.request("questions", b"q%d" % number) for number in range(20)])
    assert [reply.body for reply in replies] == [b"q%d" % number for number in range(20)]
    assert looks == []


async def test_slow_requests_share_what_was_found(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    looks: list[bool | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "_SHARED_S", 60)
    await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    await make_topic(asker)
    asking = [asker.request("questions", b"who?", timeout=60, listener_timeout=0) for _ in range(50)]
    assert {type(error) for error in await asyncio.gather(*asking, return_exceptions=True)} == {NoListener}
    assert looks == [False]


async def test_what_cannot_be_known_is_no_error(
    scripted: ScriptedCluster, make_producer: MakeProducer, looks: list[bool | None]
) -> None:
    await scripted.add_broker()  # it refuses these questions, as one does whose account may not ask them
    scripted.add_topic("questions")
    scripted.add_topic(REPLY_TOPIC)
    asker = await make_producer(scripted.address, group="askers")
    asking = asyncio.get_running_loop().create_task(asker.request("questions", b"who?", timeout=60, listener_timeout=0))
    await wait_until(lambda: len(looks) >= 3)
    assert set(looks) == {None}
    assert not asking.done()
    asking.cancel()


async def test_a_topic_that_did_not_exist_may_have_consumers_that_wait_for_it(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, looks: list[bool | None]
) -> None:
    broker = await start_broker()
    asker = await make_producer(nameserver.address, group="askers")
    asking = asyncio.get_running_loop().create_task(asker.request("questions", b"who?", timeout=60, listener_timeout=0))
    await wait_until(lambda: len(find_requests(broker)) == 1)
    clerk = make_clerk(nameserver)

    @clerk.handler("questions")
    async def answer(message: Message) -> None:
        await message.reply(b"me")

    async with clerk:
        assert (await asking).body == b"me"
    assert looks == []

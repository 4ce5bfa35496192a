"""The producer against real brokers, and against scripted ones where a broker must misbehave."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._client.options import ClientOptions
from eruca._client.produce.choosing import choose_by_shard
from eruca._client.produce.outgoing import Outgoing, Receipt, SendStatus
from eruca._client.produce.producer import Producer
from eruca._client.produce.sending import Parcel, Sender
from eruca._nameserver.app import NameServer
from eruca._net.link import Answer, Link
from eruca._wire.bodies import MessageQueue, TopicConfig
from eruca._wire.codes import ResponseCode
from eruca._wire.frame import Command
from eruca._wire.properties import parse_properties
from eruca._wire.record import user_body
from eruca.errors import (
    ClientClosed,
    ConfigError,
    ConnectFailed,
    ErucaError,
    InvalidName,
    MessageIllegal,
    NetError,
    NoRoute,
    SendFailed,
    WireError,
    WrongType,
)
from tests.integration.broker.delivery import stored
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.unit.client.scripted import (
    DROP,
    SILENT,
    WITHOUT_HEADER,
    ScriptedBroker,
    ScriptedCluster,
    make_route_data,
    wait_until,
)


def stored_everywhere(broker: Broker, topic: str, queues: int = 4) -> list[bytes]:
    return [user_body(message) for queue_id in range(queues) for message in stored(broker, topic, queue_id)]


# --- with real brokers ----------------------------------------------------------------------------------------------


async def test_a_message_is_stored_as_it_was_sent(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address)
    receipt = await producer.send(
        "orders", b"hello", tags="vip", keys=["o-1", "o-2"], properties={"a": "b"}, flag=7, shard="customer-7"
    )
    assert receipt.status is SendStatus.STORED
    queue = choose_by_shard([MessageQueue("broker-a", number, "orders") for number in range(4)], "customer-7")
    assert (receipt.queue, receipt.offset) == (queue, 0)
    (record,) = stored(broker, "orders", queue.queue_id)
    properties = record.read_properties()
    assert (record.body, record.flag, record.sys_flag) == (b"hello", 7, 0)
    assert {name: properties[name] for name in ("TAGS", "KEYS", "a", "UNIQ_KEY")} == {
        "TAGS": "vip",
        "KEYS": "o-1 o-2",
        "a": "b",
        "UNIQ_KEY": receipt.message_id,
    }
    assert (receipt.region, receipt.trace_on) == ("DefaultRegion", True)
    assert (await producer.send("orders", b"again", queue=queue)).offset == 1


async def test_queues_take_turns(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    producer = await make_producer(nameserver.address)
    receipts = [await producer.send("orders", b"x") for _ in range(8)]
    assert Counter(receipt.queue.queue_id for receipt in receipts) == {0: 2, 1: 2, 2: 2, 3: 2}
    assert len({receipt.message_id for receipt in receipts}) == 8


async def test_many_at_once_are_all_stored_once(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address, in_flight_max=10, bytes_in_flight_max=50)
    bodies = [b"%d" % number for number in range(500)]
    await asyncio.gather(*[producer.send("orders", body) for body in bodies])
    assert sorted(stored_everywhere(broker, "orders")) == sorted(bodies)
    assert producer._engine.window.count == 0


async def test_a_shard_keeps_its_order(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address)
    await producer.send("orders", b"first", shard="s")
    tasks = [await producer.send_soon("orders", b"%d" % number, shard="s") for number in range(100)]
    receipts = [await task for task in tasks]
    assert [receipt.offset for receipt in receipts] == list(range(1, 101))
    assert stored_everywhere(broker, "orders")[1:] == [b"%d" % number for number in range(100)]


async def test_messages_do_not_overtake_those_that_wait_for_the_route(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    broker.topics.put(TopicConfig(topic_name="orders"))
    await broker.registration.register_all()
    producer = await make_producer(nameserver.address)
    tasks = []
    for number in range(500):
        tasks.append(await producer.send_soon("orders", b"%d" % number, shard="s"))
        if number % 5 == 0:
            await asyncio.sleep(0)  # some come while the route or the connection is waited for, some just after it
    receipts = await asyncio.gather(*tasks)
    assert [receipt.offset for receipt in receipts] == list(range(500))
    assert stored_everywhere(broker, "orders") == [b"%d" % number for number in range(500)]
    assert not producer._session.routes._arrivals


async def test_a_batch_is_one_request(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address)
    (receipt,) = await producer.send_batch("orders", [b"1", Outgoing(b"2", tags="t"), b"3"], shard="s")
    records = stored(broker, "orders", receipt.queue.queue_id)
    assert [record.body for record in records] == [b"1", b"2", b"3"]
    assert records[1].get_property("TAGS") == "t"
    assert [record.get_property("UNIQ_KEY") for record in records] == receipt.message_id.split(",")
    assert len(receipt.offset_id.split(",")) == 3
    assert await producer.send_batch("orders", []) == []
    small = await make_producer(nameserver.address, message_bytes_max=3000)
    parts = await small.send_batch("orders", [b"x" * 1000] * 5, shard="s")
    assert [part.offset for part in parts] == [3, 5, 7]


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
@pytest.mark.parametrize("size", [4095, 4096, 300_000])
async def test_large_bodies_are_compressed(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, compression: str, size: int
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address, compression=compression)
    receipt = await producer.send("orders", b"x" * size)
    (record,) = stored(broker, "orders", receipt.queue.queue_id)
    assert (record.sys_flag & 1, len(record.body) < size) == ((1, True) if size >= 4096 else (0, False))
    assert user_body(record) == b"x" * size


async def test_what_does_not_shrink_is_sent_as_it_is(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, compress_from=3)
    await producer.send("orders", b"abc")
    assert (broker.sends[0][0].sys_flag, broker.bodies) == (0, [b"abc"])


async def test_a_delayed_message_waits_in_the_schedule(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address)
    await producer.send("orders", b"later", delay=timedelta(hours=2))
    assert stored_everywhere(broker, "orders") == []
    (record,) = stored(broker, "SCHEDULE_TOPIC_XXXX", 17)
    assert record.get_property("REAL_TOPIC") == "orders"


async def test_one_way(nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address)
    for number in range(100):
        await producer.send_oneway("orders", b"%d" % number, shard="s", tags="t")
    await wait_until(lambda: len(stored_everywhere(broker, "orders")) == 100)
    assert stored_everywhere(broker, "orders") == [b"%d" % number for number in range(100)]


async def test_one_way_waits_for_a_broker_that_reads_slowly(
    scripted: ScriptedCluster, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A peer that has more than this to read is taken for one that does not read at all, and cut off.
    monkeypatch.setattr("eruca._net.caller.UNSENT_BYTES_MAX", 1 << 20)
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, compress_from=None)
    for number in range(100):
        await producer.send_oneway("orders", b"%d" % number + b"x" * 200_000, shard="s")
    await wait_until(lambda: len(broker.oneways) == 100)
    assert [int(body.rstrip(b"x")) for body in broker.bodies] == list(range(100))


async def test_names_in_a_namespace(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    options = ClientOptions(namespace="shop", ip="127.0.0.1")
    producer = await make_producer(nameserver.address, options=options)
    receipt = await producer.send("orders", b"x")
    assert receipt.queue.topic == "orders"
    (record,) = stored(broker, "shop%orders", receipt.queue.queue_id)
    assert record.get_property("INSTANCE_ID") == "shop"
    assert {queue.topic for queue in await producer.list_queues("orders")} == {"orders"}
    assert (producer.group, producer._engine.group) == ("senders", "shop%senders")
    (batch,) = await producer.send_batch("orders", [b"1"], queue=receipt.queue)
    assert (batch.queue, batch.offset) == (receipt.queue, 1)


@pytest.mark.usefixtures("forbid_waiting")
async def test_the_real_route_replaces_the_template_soon(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    producer = await make_producer(nameserver.address)
    await producer.send("orders", b"x")
    routes = producer._session.routes
    assert routes.peek("orders").is_template
    await wait_until(lambda: not routes.peek("orders").is_template)
    assert len(routes.peek("orders").write_queues) == 4


async def test_brokers_that_make_no_topics(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker(auto_create_topic=False)
    producer = await make_producer(nameserver.address)
    with pytest.raises(NoRoute, match=r"topic orders has no route.*do not create .*eruca topic create"):
        await producer.send("orders", b"x")
    with pytest.raises(NoRoute):
        await producer.send_oneway("orders", b"x")


# --- queues a user chooses ------------------------------------------------------------------------------------------


async def test_a_selector_chooses(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address)
    receipt = await producer.send("orders", b"x", selector=lambda queues: queues[-1])
    assert receipt.queue.queue_id == 3
    nothing: Any = lambda queues: None  # noqa: E731
    with pytest.raises(MessageIllegal, match="the selector did not return a queue"):
        await producer.send("orders", b"x", selector=nothing)
    with pytest.raises(MessageIllegal, match="pass one of them"):
        await producer.send("orders", b"x", shard="s", queue=receipt.queue)
    assert producer._engine.window.count == 0


def test_shards_go_where_java_sends_them() -> None:
    queues = [MessageQueue("a", number, "T") for number in range(7)]
    # The last one has the hash -2**31, which has no absolute value in Java; its selector takes the remainder first.
    shards = {"": 0, "a": 97, "order-1": 1207111310, "polygenelubricants": 2**31}
    assert [choose_by_shard(queues, shard).queue_id for shard in shards] == [number % 7 for number in shards.values()]


async def test_a_broker_nobody_knows(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, retries=0)
    with pytest.raises(SendFailed, match=r"no name server knows a broker nobody.*known brokers: broker-a") as caught:
        await producer.send("orders", b"x", queue=MessageQueue("nobody", 0, "orders"))
    assert isinstance(caught.value.__cause__, ConnectFailed)


async def test_a_broker_without_a_master(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    await scripted.add_broker()
    route = scripted.add_topic("orders", order="broker-a:1")
    route.broker_datas[0].broker_addrs = {1: "127.0.0.1:1"}
    producer = await make_producer(scripted.address, retries=0, timeout=1)
    with pytest.raises(SendFailed, match="broker broker-a has no master now"):
        await producer.send("orders", b"x")
    scripted.add_topic("readonly", perm=4)
    with pytest.raises(NoRoute, match="has no queue that can be written to"):
        await producer.send("readonly", b"x")
    with pytest.raises(NoRoute, match="has no queue that can be written to"):
        await producer.send("readonly", b"x", shard="s")


# --- trying again ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def two(scripted: ScriptedCluster) -> list[ScriptedBroker]:
    """Two brokers with a topic."""
    brokers = [await scripted.add_broker("broker-a"), await scripted.add_broker("broker-b")]
    scripted.add_topic("orders")
    return brokers


def fail_first(brokers: list[ScriptedBroker], step: int | str) -> list[str]:
    """Let whichever broker is asked first fail once; returns what is filled with the names of those asked."""
    asked: list[str] = []

    def make(broker: ScriptedBroker) -> Any:
        def act(link: Link, command: Command) -> Answer:
            asked.append(broker.name)
            return broker.answer(link, command, step if len(asked) == 1 else 0)

        return act

    for broker in brokers:
        broker.script.extend([make(broker)] * 3)
    return asked


async def connect(producer: Producer, brokers: list[ScriptedBroker]) -> None:
    """Let a producer find the route and the brokers, so that a short time limit is not spent on that."""
    for broker in brokers:
        await producer.send("orders", b"x", queue=MessageQueue(broker.name, 0, "orders"), timeout=20)


@pytest.mark.parametrize("step", [1, 2, 14, 16, 17, 204, 205, DROP, WITHOUT_HEADER])
async def test_the_second_try_goes_to_the_other_broker(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer, step: int | str
) -> None:
    producer = await make_producer(scripted.address)
    asked = fail_first(two, step)
    receipt = await producer.send("orders", b"x")
    assert len(asked) == 2
    assert asked[0] != asked[1]
    assert receipt.queue.broker_name == asked[1]
    first, second = two[0].sends + two[1].sends
    assert first[0].properties == second[0].properties  # the same id: a consumer can tell a duplicate


@pytest.mark.parametrize("code", [13, 15, 3])
async def test_what_no_broker_would_take_is_not_tried_again(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer, code: int
) -> None:
    producer = await make_producer(scripted.address)
    asked = fail_first(two, code)
    with pytest.raises(
        SendFailed, match=r"was not stored after 1 try: broker broker-\w refused: as the test"
    ) as caught:
        await producer.send("orders", b"x")
    assert len(asked) == 1
    assert not caught.value.retryable
    assert len(caught.value.attempts) == 1


async def test_a_busy_broker_gets_a_moment_when_there_is_no_other(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, retries=2)
    broker.script.extend([2, 2])
    assert (await producer.send("orders", b"x")).status is SendStatus.STORED
    assert len(broker.sends) == 3
    broker.script.extend([2, 2, 2, 2])
    with pytest.raises(SendFailed, match=r"after 3 tries: broker broker-a refused: as the test wants .*busy") as caught:
        await producer.send("orders", b"x")
    assert caught.value.retryable
    assert len(caught.value.attempts) == 3
    broker.script.clear()
    broker.script.extend([2])
    queue = MessageQueue("broker-a", 2, "orders")
    assert (await producer.send("orders", b"x", queue=queue)).queue == queue


async def test_a_silent_broker_uses_up_the_time(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, timeout=0.2)
    await connect(producer, two)
    asked = fail_first(two, SILENT)
    with pytest.raises(SendFailed, match=r"after 1 try: broker-.: 127.0.0.1:.* did not answer in time"):
        await producer.send("orders", b"x")
    assert len(asked) == 1


async def test_a_limit_for_each_try_leaves_time_for_another(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, timeout=timedelta(seconds=20), try_timeout=0.5)
    await connect(producer, two)
    asked = fail_first(two, SILENT)
    await producer.send("orders", b"x")
    assert len(asked) == 2
    assert asked[0] != asked[1]


async def test_a_broker_that_is_down_is_left_for_the_other(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address)
    await two[0].server.stop()
    receipts = [await producer.send("orders", b"x") for _ in range(10)]
    assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}


async def test_a_broker_that_moved_is_found_by_asking_again(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    old = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address)
    await producer.send("orders", b"x")
    await old.server.stop()
    await scripted.add_broker()  # of the same name, elsewhere
    scripted.add_topic("orders")
    receipt = await producer.send("orders", b"y")
    assert receipt.queue.broker_name == "broker-a"
    assert scripted.brokers["broker-a"].bodies == [b"y"]


async def test_a_master_that_was_replaced_leads_to_the_new_one(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    old = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address)
    await producer.send("orders", b"x")
    new = await scripted.add_broker()  # of the same name: promoted, while the old one is still there
    scripted.add_topic("orders")
    old.script.extend([int(ResponseCode.SERVICE_NOT_AVAILABLE)] * 3)
    await producer.send("orders", b"y")
    assert old.bodies == [b"x", b"y"] and new.bodies == [b"y"]
    await old.server.stop()


async def test_between_two_masters_a_send_fails_and_the_next_one_asks_again(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    old = await scripted.add_broker()
    route = scripted.add_topic("orders")
    producer = await make_producer(scripted.address)
    await producer.send("orders", b"x")
    await old.server.stop()
    route.broker_datas[0].broker_addrs = {1: "127.0.0.1:1"}
    # It was tried, so it does not end with NoRoute, which says that nothing was sent.
    with pytest.raises(SendFailed):
        await producer.send("orders", b"y", timeout=1)
    await scripted.add_broker()
    scripted.add_topic("orders")
    await producer.send("orders", b"z")
    assert scripted.brokers["broker-a"].bodies == [b"z"]


async def test_sends_go_on_when_the_name_server_is_down(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address)
    await producer.send("orders", b"x")
    await scripted.nameserver.server.stop()
    asked = fail_first(two, DROP)
    await producer.send("orders", b"x")
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_stored_but_not_synced_is_for_the_user_to_judge(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer, code: int, status: SendStatus
) -> None:
    producer = await make_producer(scripted.address)
    asked = fail_first(two, code)
    assert (await producer.send("orders", b"x")).status is status
    assert len(asked) == 1
    strict = await make_producer(scripted.address, retry_when_not_synced=True)
    asked.clear()
    assert (await strict.send("orders", b"x")).status is SendStatus.STORED
    assert len(asked) == 2


async def test_a_receipt_that_is_not_synced_is_better_than_none(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, retry_when_not_synced=True, timeout=20, retries=2)
    broker.script.extend([10, 2, 2])
    assert (await producer.send("orders", b"x")).status is SendStatus.FLUSH_DISK_TIMEOUT
    broker.script.extend([10, 10, 12])
    assert (await producer.send("orders", b"x")).status is SendStatus.FLUSH_SLAVE_TIMEOUT


async def test_a_slow_broker_is_avoided(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, avoid_slow_brokers=True, retries=2)
    asked = fail_first(two, 2)
    await producer.send("orders", b"x")
    for _ in range(8):
        assert (await producer.send("orders", b"x")).queue.broker_name == asked[1]
    # When both are, the one that fails sooner is better than nothing.
    two[0].script.clear()
    two[1].script.clear()
    for broker in two:
        broker.script.extend([2] * 10)
    with pytest.raises(SendFailed):
        await producer.send("orders", b"x")
    for broker in two:
        broker.script.clear()
    assert (await producer.send("orders", b"x")).status is SendStatus.STORED


async def test_a_message_no_broker_takes_is_no_reason_to_avoid_one(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, avoid_slow_brokers=True)
    fail_first(two, 13)
    with pytest.raises(SendFailed):
        await producer.send("orders", b"x")
    names = {(await producer.send("orders", b"x")).queue.broker_name for _ in range(8)}
    assert names == {"broker-a", "broker-b"}


async def test_a_copy_for_a_retry_topic_says_how_often_it_was_tried(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("%RETRY%group")
    producer = await make_producer(scripted.address)
    await producer.send("%RETRY%group", b"by a user")
    sender = Sender(producer._session, "inner")
    parcel = Parcel("%RETRY%group", b"copy", "a\x01b", "id", reconsume_times=3, max_reconsume_times=16)
    await sender.send(parcel, MessageQueue("broker-a", 0, "%RETRY%group"), 3000)
    assert [(header.reconsume_times, header.max_reconsume_times) for header, _ in broker.sends] == [(0, None), (3, 16)]


# --- errors ---------------------------------------------------------------------------------------------------------


async def test_no_name_server(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    producer = await make_producer("127.0.0.1:1", timeout=1)
    with pytest.raises(NetError, match=r"no name server answers: cannot connect to 127\.0\.0\.1:1"):
        await producer.send("orders", b"x")
    assert producer._engine.window.count == 0


@pytest.mark.usefixtures("no_nameservers")
async def test_no_name_server_is_named(make_producer: MakeProducer) -> None:
    producer = await make_producer("")
    with pytest.raises(NetError, match="no name server is configured"):
        await producer.send("orders", b"x")


async def test_a_silent_name_server(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    scripted.nameserver.is_silent = True
    producer = await make_producer(scripted.address, timeout=0.1)
    with pytest.raises(SendFailed, match="the route of orders was not found in time"):
        await producer.send("orders", b"x")


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("", InvalidName),
        ("a b", InvalidName),
        ('a"b', InvalidName),
        ("x" * 128, InvalidName),
        ("SCHEDULE_TOPIC_XXXX", MessageIllegal),
        ("RMQ_SYS_TRANS_HALF_TOPIC", MessageIllegal),
    ],
)
async def test_topics_nobody_may_send_to(
    scripted: ScriptedCluster, make_producer: MakeProducer, topic: str, error: type[ErucaError]
) -> None:
    producer = await make_producer(scripted.address)
    with pytest.raises(error):
        await producer.send(topic, b"x")
    with pytest.raises(error):
        await producer.send_batch(topic, [b"x"])
    assert scripted.nameserver.asked == []


async def test_messages_that_break_a_limit_do_not_leave_the_process(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, message_bytes_max=100)
    wrong: Any = "text"
    for how in (
        {"body": b""},
        {"body": b"x" * 101},
        {"body": b"x", "flag": 2**31},
        {"body": b"x", "properties": {"TAGS": "t"}},
    ):
        with pytest.raises(MessageIllegal):
            await producer.send("orders", **how)
    with pytest.raises(WrongType, match="body must be bytes, not str"):
        await producer.send("orders", wrong)
    assert scripted.nameserver.asked == []


@pytest.mark.parametrize(
    "how",
    [
        {"group": "DEFAULT_PRODUCER"},
        {"compression": "rar"},
        {"compression_level": 77},
        {"retries": -1},
        {"in_flight_max": 0},
        {"bytes_in_flight_max": 0},
        {"options": ClientOptions(access_key="a", secret_key="b"), "retries": -1},
    ],
)
def test_settings_that_cannot_work(how: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Producer("127.0.0.1:9876", **how)


@pytest.mark.parametrize("how", [{"group": ""}, {"group": "a b"}, {"options": ClientOptions(namespace="a b")}])
def test_names_that_are_none(how: dict[str, Any]) -> None:
    with pytest.raises(InvalidName):
        Producer("127.0.0.1:9876", **how)


# --- backpressure, cancelling and closing ---------------------------------------------------------------------------


async def test_waiting_for_room_counts_as_time(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    broker.script.append(SILENT)
    producer = await make_producer(scripted.address, in_flight_max=1, retries=0)
    first = await producer.send_soon("orders", b"1", timeout=10)
    await wait_until(lambda: len(broker.sends) == 1)
    with pytest.raises(SendFailed, match=r"no room in the send window for 0.05 s.*in_flight_max"):
        await producer.send("orders", b"2", timeout=0.05)
    first.cancel()
    assert (await producer.send("orders", b"3")).status is SendStatus.STORED
    assert broker.bodies == [b"1", b"3"]


async def test_cancelled_sends_leave_nothing_behind(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, in_flight_max=5)
    await producer.send("orders", b"first")
    broker.script.extend([SILENT] * 5)
    tasks = [await producer.send_soon("orders", b"%d" % number) for number in range(5)]
    tasks += [asyncio.ensure_future(producer.send("orders", b"%d" % number)) for number in range(5, 20)]
    await wait_until(lambda: len(broker.sends) == 6)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)
    assert (producer._engine.window.count, producer._engine.window.bytes) == (0, 0)
    await producer.send("orders", b"last")


async def test_close_waits_for_what_is_under_way(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    gate = asyncio.Event()

    def answer_later(link: Link, command: Command) -> Answer:
        async def later() -> bytes | None:
            await gate.wait()
            return broker.answer(link, command)

        return later()

    broker.script.extend([answer_later] * 3)
    producer = await make_producer(scripted.address, in_flight_max=2)
    awaited = asyncio.get_running_loop().create_task(producer.send("orders", b"1"))
    soon = [await producer.send_soon("orders", b"2"), await producer.send_soon("orders", b"3")]
    await wait_until(lambda: len(broker.sends) == 2)
    closing = asyncio.get_running_loop().create_task(producer.close())
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(closing, producer.close())
    assert [task.result().status for task in [awaited, *soon]] == [SendStatus.STORED] * 3
    assert broker.goodbyes == ["senders"]
    for use in (producer.send("orders", b"x"), producer.send_oneway("orders", b"x"), producer.list_queues("orders")):
        with pytest.raises(ClientClosed, match="the producer is closed"):
            await use
    with pytest.raises(ClientClosed):
        await producer.send_soon("orders", b"x")
    await producer.start()
    assert (await producer.send("orders", b"x")).status is SendStatus.STORED


async def test_close_waits_for_a_plain_send_of_another_task(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    gate = asyncio.Event()

    def answer_later(link: Link, command: Command) -> Answer:
        async def later() -> bytes | None:
            await gate.wait()
            return broker.answer(link, command)

        return later()

    broker.script.append(answer_later)
    producer = await make_producer(scripted.address)
    sending = asyncio.get_running_loop().create_task(producer.send("orders", b"1"))
    await wait_until(lambda: len(broker.sends) == 1)
    closing = asyncio.get_running_loop().create_task(producer.close())
    await wait_until(lambda: producer._engine.state == "closing")
    with pytest.raises(ClientClosed):
        await producer.send("orders", b"2")
    assert not closing.done()
    gate.set()
    await closing
    assert (await sending).status is SendStatus.STORED


async def test_close_does_not_wait_for_ever(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    broker.script.append(SILENT)
    producer = await make_producer(scripted.address, timeout=0.1, retries=0)
    task = asyncio.get_running_loop().create_task(producer.send("orders", b"1", timeout=60))
    await wait_until(lambda: len(broker.sends) == 1)
    await producer.close()
    with pytest.raises(SendFailed):
        await task


async def test_a_producer_must_be_started() -> None:
    producer = Producer("127.0.0.1:9876", group="g")
    with pytest.raises(ClientClosed, match=r"not started.*async with"):
        await producer.send("orders", b"x")
    await producer.close()


# --- hooks ----------------------------------------------------------------------------------------------------------


class Hook:
    """Writes down what it is told, and fails."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def before_send(self, parcel: Parcel, queue: MessageQueue) -> None:
        self.told.append(("before", queue.broker_name, ""))
        raise ValueError("a hook that is broken")

    def after_send(
        self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, seconds: float
    ) -> None:
        outcome = receipt.status.value if receipt is not None else type(error).__name__
        self.told.append(("after", queue.broker_name, outcome))
        raise ValueError("a hook that is broken")


async def test_hooks_are_told_of_every_try_and_cannot_hurt(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Hook()
    producer = await make_producer(scripted.address, hooks=[hook])
    asked = fail_first(two, 2)
    await producer.send("orders", b"x")
    assert hook.told == [
        ("before", asked[0], ""),
        ("after", asked[0], "RequestRefused"),
        ("before", asked[1], ""),
        ("after", asked[1], "SEND_OK"),
    ]
    await producer.send_oneway("orders", b"x")
    assert [told[::2] for told in hook.told[4:]] == [("before", ""), ("after", "NoneType")]
    assert sum("a hook failed" in record.message for record in caplog.records) == 6


async def test_the_wrong_answer_is_an_error_not_a_crash(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    broker.script.extend([WITHOUT_HEADER] * 3)
    producer = await make_producer(scripted.address, retries=2)
    with pytest.raises(SendFailed, match="after 3 tries") as caught:
        await producer.send("orders", b"x")
    assert isinstance(caught.value.__cause__, WireError)


async def test_signed_requests_are_the_same_message(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    options = ClientOptions(access_key="shop", secret_key="secret", ip="127.0.0.1")
    signing = await make_producer(scripted.address, options=options)
    plain = await make_producer(scripted.address)
    how: dict[str, Any] = {"tags": "ü", "properties": {'"': "\\"}, "flag": -1, "shard": "s"}
    for producer in (signing, plain):
        await producer.send("orders", b"x", **how)
        await producer.send("orders", b"x", **how)  # by the quick way, when there is one
        await producer.send_oneway("orders", b"x", **how)
    await wait_until(lambda: len(broker.sends) == 6)
    described = []
    for header, body in broker.sends:
        properties = parse_properties(header.properties or "")
        del properties["UNIQ_KEY"]
        header.properties, header.born_timestamp = None, 0
        described.append((header, properties, body))
    assert all(each == described[0] for each in described)
    assert described[0][1] == {"WAIT": "true", "TAGS": "ü", '"': "\\"}
    assert described[0][0].topic == "orders"


async def test_a_route_without_the_failed_broker_is_used(
    scripted: ScriptedCluster, two: list[ScriptedBroker], make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address)
    asked = fail_first(two, int(ResponseCode.TOPIC_NOT_EXIST))
    scripted.nameserver.topics["orders"] = make_route_data({broker.name: broker.address for broker in two})
    await producer.send("orders", b"x", timeout=5)
    assert scripted.nameserver.asked.count("orders") == 2
    assert len(asked) == 2

"""The pull consumer against a broker in this process: cases that any broker passes, and what only we can look at."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import pytest

from eruca import ClientOptions, Flow, Message, MessageQueue, PullConsumer, Rebalance, Sql
from eruca._client.group.offsets import Progress
from eruca._client.group.subscriptions import make_subscription
from eruca._client.pull.holdings import Holdings
from eruca._client.session.session import _SESSIONS
from eruca._nameserver.app import NameServer
from eruca._wire.bodies import ConsumeFromWhere, ConsumeResult, ConsumeType, MessageModel
from eruca._wire.codes import RequestCode
from eruca._wire.headers import ConsumerGroupHeader, ConsumerRunningInfoHeader, ConsumerStatusHeader
from eruca.errors import ClientClosed, ConfigError, NoRoute, RequestRefused
from tests.clients import cases_pull
from tests.clients.cases_pull import make_pull, poll_until
from tests.clients.stage import Case, wait_until
from tests.integration.broker.conftest import MakePeer
from tests.integration.client.conftest import MakeProducer, StartBroker

QUEUE = MessageQueue("broker-a", 0, "orders")

CASES: dict[str, Case] = {
    name.removeprefix("case_"): case
    for name, case in vars(cases_pull).items()
    if name.startswith("case_") and "scheduled" not in name
}


@pytest.mark.parametrize("case", CASES)
async def test_case(case: str, nameserver: NameServer, start_broker: StartBroker) -> None:
    broker = await start_broker()
    await CASES[case](nameserver.address, "orders", "billing")
    # Whoever came has left.
    assert broker.clients.consumers == {}
    assert _SESSIONS == {}


def pull(nameserver: NameServer, subscribe: Any = (), **how: Any) -> PullConsumer:
    return make_pull(nameserver.address, "billing", subscribe, **how)


async def send_all(make_producer: MakeProducer, nameserver: NameServer, bodies: Iterable[bytes], **how: Any) -> None:
    producer = await make_producer(nameserver.address)
    for body in bodies:
        await producer.send("orders", body, **how)


# -- what cannot be ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"group": "DEFAULT_CONSUMER"}, "reserved"),
        ({"group": "billing", "start": "yesterday"}, "start='yesterday'"),
        ({"group": "billing", "poll_batch": 0}, "poll_batch=0"),
        (
            {"group": "billing", "subscribe": "orders", "watch": {"orders": print}},
            "watch= is for consumers that assign",
        ),
    ],
)
def test_settings_that_cannot_be(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        PullConsumer("127.0.0.1:9876", **how)


async def test_it_says_that_it_is_not_started(nameserver: NameServer) -> None:
    consumer = pull(nameserver, "orders")
    with pytest.raises(ClientClosed, match="async with"):
        await consumer.poll()
    with pytest.raises(ClientClosed):
        consumer.pause()
    with pytest.raises(ClientClosed):
        await consumer.list_queues("orders")
    assert consumer.assignment == consumer.paused == []
    await consumer.close()


async def test_too_many_messages_are_not_asked_for(nameserver: NameServer, start_broker: StartBroker) -> None:
    await start_broker()
    async with pull(nameserver, "orders") as consumer:
        for wrong in (0, 10_001):
            with pytest.raises(ConfigError, match=f"max_messages={wrong}"):
                await consumer.poll(max_messages=wrong)


async def test_wrong_queues_and_offsets_are_named(nameserver: NameServer, start_broker: StartBroker) -> None:
    await start_broker()
    queue, wrong = MessageQueue("broker-a", 0, "orders"), cast(Any, "5")
    async with pull(nameserver, "orders") as consumer:
        calls: list[tuple[Callable[[], Awaitable[object]], str]] = [
            (lambda: consumer.seek(queue, wrong), "offset='5': expected int, not str"),
            (lambda: consumer.pull(queue, wrong), "offset='5': expected int, not str"),
            (lambda: consumer.pull(wrong, 5), "queue='5': expected MessageQueue, not str"),
            (lambda: consumer.commit({queue: wrong}), "offset='5': expected an int, not str"),
            (lambda: consumer.commit({queue: -1}), "offset=-1: must be at least 0"),
            (lambda: consumer.commit(cast(Any, [queue])), "expected Mapping, not list"),
            (lambda: consumer.end_offset(wrong), "queue='5': expected MessageQueue, not str"),
            (lambda: consumer.assign(cast(Any, "orders")), "subscribes to topics"),
            (lambda: consumer.list_queues(cast(Any, 5)), "topic=5: expected str, not int"),
            (lambda: consumer.query(cast(Any, 5), "k"), "topic=5: expected str, not int"),
            (lambda: consumer.query("orders", cast(Any, 5)), "key=5: expected str, not int"),
            (lambda: consumer.query("orders", "k", max_messages=wrong), "max_messages='5': expected an int, not str"),
            (lambda: consumer.query("orders", "k", unique=wrong), "unique='5': expected bool, not str"),
            (lambda: consumer.view(cast(Any, 5)), "offset_id=5: expected str, not int"),
        ]
        for call, words in calls:
            with pytest.raises(ConfigError, match=re.escape(words)):
                await call()
    async with pull(nameserver) as assigned:
        with pytest.raises(ConfigError, match=re.escape("queues=5: expected Iterable, not int")):
            await assigned.assign(cast(Any, 5))


async def test_a_topic_that_nobody_knows(nameserver: NameServer, start_broker: StartBroker) -> None:
    await start_broker()
    async with pull(nameserver) as consumer:
        with pytest.raises(NoRoute, match="orders"):
            await consumer.assign([MessageQueue("broker-a", 0, "orders")])
        with pytest.raises(NoRoute, match="orders"):
            await consumer.list_queues("orders")
        assert consumer.assignment == []


async def test_a_failed_start_leaves_nothing(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    await send_all(make_producer, nameserver, [b"1"])
    consumer = pull(nameserver, {"orders": Sql("a >")})
    for _ in range(2):
        with pytest.raises(RequestRefused):
            await consumer.start()
    assert list(broker.clients.consumers) == []


# -- in a group ----------------------------------------------------------------------------------------------------


async def test_it_waits_for_a_topic(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    async with pull(nameserver, "orders") as consumer:
        waiting = asyncio.create_task(consumer.poll(timeout=None))
        await send_all(make_producer, nameserver, [b"first"])
        assert [message.body for message in await waiting] == [b"first"]


async def test_what_the_broker_is_told(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, make_peer: MakePeer
) -> None:
    broker = await start_broker()
    await send_all(make_producer, nameserver, [b"%d" % number for number in range(8)])
    peer = make_peer(broker)
    async with pull(nameserver, {"orders": "*"}, start="earliest") as consumer:
        await poll_until(consumer, 8)
        group = ConsumerGroupHeader(consumer_group="billing")
        told = (await peer.expect(RequestCode.GET_CONSUMER_CONNECTION_LIST, group)).body
        assert (told.consume_type, told.message_model) == (ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING)
        assert told.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        assert list(told.subscription_table) == ["orders"]
        client_id = consumer._session.client_id
        running = ConsumerRunningInfoHeader(consumer_group="billing", client_id=client_id, jstack_enable=True)
        info = (await peer.expect(RequestCode.GET_CONSUMER_RUNNING_INFO, running)).body
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert {queue.queue_id: state.commit_offset for queue, state in info.mq_table.items()} == {
            queue.queue_id: consumer.position(queue) for queue in consumer.assignment
        }
        assert "task " in info.jstack
        status = (
            await peer.expect(
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusHeader(topic="orders", group="billing")
            )
        ).body
        assert status.consumer_table[client_id] == {queue: consumer.position(queue) for queue in consumer.assignment}
        refused = await consumer._member.consume_directly(
            (await consumer.pull(consumer.assignment[0], 0)).messages[0].record, ""
        )
        assert refused.consume_result is ConsumeResult.CR_THROW_EXCEPTION
    assert list(broker.clients.consumers) == []


async def test_queues_take_turns(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await send_all(make_producer, nameserver, [b"%d" % number for number in range(40)])
    async with pull(nameserver, "orders") as consumer:
        await poll_until(consumer, 1, max_messages=1)
        await wait_until(lambda: sum(_count_ready(consumer)) == 39, "everything is here")
        order = [(await consumer.poll(max_messages=1))[0].queue for _ in range(20)]
    assert all(len(set(order[at : at + 4])) == 4 for at in range(0, 20, 4))


def _count_ready(consumer: PullConsumer) -> list[int]:
    return [len(inbox.ready) for inbox in consumer._member.inboxes.values()]


async def test_no_more_is_fetched_than_there_is_room_for(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await send_all(make_producer, nameserver, [b"%d" % number for number in range(200)])
    flow = Flow(batch=4, count_max=8, hold=1)
    async with pull(nameserver, "orders", flow=flow) as consumer:
        assert await consumer.poll(timeout=0) == []
        await wait_until(lambda: _count_ready(consumer) == [12, 12, 12, 12], "twelve of each")
        assert len(await poll_until(consumer, 200)) == 200
    async with make_pull(nameserver.address, "total", "orders", flow=Flow(batch=4, cached_max=9)) as consumer:
        assert await consumer.poll(timeout=0) == []
        await wait_until(lambda: sum(_count_ready(consumer)) >= 9, "some")
        # Each of the four asks again before its first answer counts: it may have asked twice before there was no room.
        assert sum(_count_ready(consumer)) <= 2 * 4 * 4
        assert len(await poll_until(consumer, 200)) == 200


async def test_fetched_ahead_is_not_handed_out(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await send_all(make_producer, nameserver, [b"%d" % number for number in range(20)], queue=QUEUE)
    async with pull(nameserver, "orders") as consumer:
        await poll_until(consumer, 3, max_messages=3)
        await wait_until(lambda: sum(_count_ready(consumer)) == 17, "the rest is here")
    async with pull(nameserver, "orders") as consumer:
        assert [message.offset for message in await poll_until(consumer, 17)] == list(range(3, 20))


async def test_nothing_is_fetched_before_the_first_poll(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await send_all(make_producer, nameserver, [b"1"], queue=QUEUE)
    async with pull(nameserver, "orders") as consumer:
        await wait_until(lambda: len(consumer.assignment) == 4, "the queues")
        assert [inbox.task for inbox in consumer._member.inboxes.values()] == [None] * 4
        # A consumer that calls pull sets its own progress, and nothing takes it back.
        result = await consumer.pull(QUEUE, 0)
        await consumer.commit({QUEUE: result.next_offset})
    async with pull(nameserver) as looker:
        assert await looker.committed(QUEUE) == 1


async def test_what_another_member_gets_was_not_being_worked_on(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await send_all(make_producer, nameserver, [b"%d" % number for number in range(8)])
    async with pull(nameserver, "orders") as one:
        assert await one.poll(timeout=0) == []
        await wait_until(lambda: sum(_count_ready(one)) == 8, "everything is here")
        mine = await one.poll(max_messages=100)
        async with pull(nameserver, "orders") as two:
            await wait_until(lambda: len(two.assignment) == 2, "half of the queues")
            # The last poll is not known to be done, so what it gave of the lost queues comes again.
            again = await poll_until(two, 4)
            assert {message.queue for message in again} == set(two.assignment)
            assert {message.body for message in again} < {message.body for message in mine}


async def test_closing_wakes_who_waits(nameserver: NameServer, start_broker: StartBroker) -> None:
    await start_broker()
    consumer = pull(nameserver, "orders")
    await consumer.start()
    polling = asyncio.create_task(consumer.poll(timeout=None))

    async def iterate() -> list[Message]:
        return [message async for message in consumer]

    iterating = asyncio.create_task(iterate())
    await asyncio.sleep(0)
    await consumer.close()
    assert await polling == []
    assert await iterating == []
    assert await iterate() == []
    with pytest.raises(ClientClosed):
        await consumer.poll()


async def test_it_starts_again(nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer) -> None:
    await start_broker()
    await send_all(make_producer, nameserver, [b"1", b"2"], queue=QUEUE)
    consumer = pull(nameserver, "orders")
    async with consumer:
        assert [message.body for message in await poll_until(consumer, 1, max_messages=1)] == [b"1"]
    async with consumer:
        assert [message.body for message in await poll_until(consumer, 1)] == [b"2"]


async def test_a_failing_listener_harms_nobody(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await send_all(make_producer, nameserver, [b"1"])

    def fail(*_: object) -> None:
        raise ValueError("the listener fails")

    async with pull(nameserver, "orders", rebalance=Rebalance(on_change=fail)) as consumer:
        assert [message.body for message in await poll_until(consumer, 1)] == [b"1"]


async def test_a_namespace_is_not_seen(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    options = ClientOptions(namespace="shop")
    producer = await make_producer(nameserver.address, options=options)
    receipt = await producer.send("orders", b"1", keys=["k"])
    told: set[str] = set()

    def listen(assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
        told.update([queue.topic for queue in assigned])

    how: dict[str, Any] = {"options": options, "rebalance": Rebalance(on_change=listen)}
    async with pull(nameserver, "orders", **how) as consumer:
        (message,) = await poll_until(consumer, 1)
        assert (message.topic, message.queue) == ("orders", receipt.queue)
        # Both names of a queue will do.
        plain = receipt.queue
        for queue in (plain, MessageQueue(plain.broker_name, plain.queue_id, "shop%orders")):
            assert consumer.owns(queue)
            assert consumer.position(queue) == await consumer.end_offset(queue) == 1
            consumer.pause([queue])
            assert consumer.paused == [message.queue]
            consumer.resume([queue])
            await consumer.seek_to_begin(queue)
            assert len(await poll_until(consumer, 1)) == 1
        assert len((await consumer.pull(plain, 0)).messages) == 1
        assert [found.topic for found in await consumer.query("orders", "k")] == ["orders"]
        assert list(broker.clients.consumers) == ["shop%billing"]
        await wait_until(lambda: told == {"orders"}, "the listener is told")


async def test_messages_can_be_given_back(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await send_all(make_producer, nameserver, [b"again", b"dead"], queue=QUEUE)
    async with pull(nameserver, ["orders", "%RETRY%billing"]) as consumer:
        again, dead = await poll_until(consumer, 2)
        await again.retry(delay_level=1)
        await again.ack()  # what was said first counts
        await dead.bury()
        (repeated,) = await poll_until(consumer, 1)
        assert (repeated.body, repeated.topic, repeated.delivery) == (b"again", "orders", 2)
        assert await consumer.end_offset(MessageQueue("broker-a", 0, "%DLQ%billing")) == 1


class SlowOffsets:
    """Keeps offsets, but only when the gate is open."""

    group = "billing"

    def __init__(self) -> None:
        self.kept: dict[MessageQueue, Progress] = {}
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def read(self, queue: MessageQueue) -> Progress | None:
        return self.kept.get(queue)

    async def write(self, positions: Mapping[MessageQueue, Progress], *, wait: bool = False) -> None:
        self.asked.set()
        await self.gate.wait()
        self.kept.update(positions)


async def test_a_commit_that_closing_interrupts_is_made_up_for() -> None:
    offsets = SlowOffsets()
    anybody: Any = None
    holdings = Holdings(
        anybody, "billing", Flow(cached_max=10), offsets, namespace="", settle=PullConsumer(group="billing")._member
    )
    holdings.add(QUEUE, make_subscription("orders", "*", 0), 5).written = 3
    inbox = holdings.remove(QUEUE)
    assert inbox is not None
    leaving = asyncio.create_task(holdings.commit_last(inbox))
    await offsets.asked.wait()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert offsets.kept == {}
    offsets.gate.set()
    await holdings.commit_handed_out()
    assert offsets.kept == {QUEUE: Progress(5)}


# -- when brokers come and go --------------------------------------------------------------------------------------


async def test_it_goes_on_after_a_restart_of_the_broker(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    await send_all(make_producer, nameserver, [b"before"], queue=QUEUE)
    async with pull(nameserver, "orders") as consumer:
        assert [message.body for message in await poll_until(consumer, 1)] == [b"before"]
        port = broker.standing.port
        await broker.stop()
        await start_broker(port=port)
        producer = await make_producer(nameserver.address, retries=20)
        await producer.send("orders", b"after", queue=QUEUE)
        assert [message.body for message in await poll_until(consumer, 1)] == [b"after"]


async def test_two_brokers(nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer) -> None:
    await start_broker()
    await start_broker("broker-b")
    producer = await make_producer(nameserver.address)
    for number in range(16):
        await producer.send("orders", b"%d" % number, keys=["all"])
    async with pull(nameserver, "orders") as consumer:
        found = await poll_until(consumer, 16)
        assert {message.queue.broker_name for message in found} == {"broker-a", "broker-b"}
        by_key = await consumer.query("orders", "all")
        assert {message.body for message in by_key} == {message.body for message in found}
        assert by_key == sorted(by_key, key=lambda message: message.stored_at)
        seen = await consumer.view(found[0].offset_id)
        assert (seen.body, seen.queue) == (found[0].body, found[0].queue)

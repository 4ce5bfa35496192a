"""The plain clients: the same names and arguments as the async ones, from any thread, and ends that are clean."""

from __future__ import annotations

import inspect
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

import eruca
from eruca import SendStatus, sync
from eruca._client.produce.transactions import TransactionalProducer
from eruca._client.pull.queuereading import PullResult
from eruca._client.session.members import ProducerMember
from eruca._client.sync import loopthread
from eruca._client.sync.room import Room
from eruca._testing.embedded import EmbeddedBroker
from eruca._wire.bodies import MessageQueue
from eruca.errors import (
    CallTimeout,
    ClientClosed,
    ConfigError,
    MessageIllegal,
    NoListener,
    NoRoute,
    QueueNotOurs,
    SendFailed,
)
from tests.integration.broker.conftest import excuse_new_files
from tests.patience import PATIENCE_S

SECONDS_MAX = PATIENCE_S
_numbers = itertools.count(1)


@pytest.fixture
def excuse_calls() -> Callable[[BlockBuster], None]:
    """The broker runs on from test to test: it must not meet a moment in which its store may not make a file."""
    return excuse_new_files


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(hurry=True) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"plain-{next(_numbers)}"
    broker.create_topic(name)
    return name


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[sync.Producer]:
    with sync.Producer(broker.nameserver, group="shop") as running:
        yield running


def make_consumer(broker: EmbeddedBroker, topic: str, **how: Any) -> sync.Consumer:
    return sync.Consumer(
        broker.nameserver,
        **{"group": f"g-{topic}", "start": "earliest", "drain": 5.0, "retry": sync.Retry(suspend=0.01), **how},
    )


def wait_for(condition: Callable[[], bool]) -> None:
    end, pause = time.monotonic() + SECONDS_MAX, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.005)


# -- several threads ---------------------------------------------------------------------------------------------------


def test_a_thread_does_not_keep_what_others_wait_for(
    broker: EmbeddedBroker, topic: str, producer: sync.Producer
) -> None:
    """Two threads wait, two messages come at once: each gets one, also if the first never asks again."""
    with make_consumer(broker, topic, subscribe=topic) as consumer, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(next, consumer) for _ in range(2)]
        wait_for(lambda: consumer._twin._member.stream.waiting == 2)
        producer.send_batch(topic, [b"1", b"2"])
        assert sorted(future.result(SECONDS_MAX).body for future in waiting) == [b"1", b"2"]


def test_a_new_group_gets_what_is_sent_right_after_its_start(
    broker: EmbeddedBroker, topic: str, producer: sync.Producer
) -> None:
    with make_consumer(broker, topic, subscribe=topic, start="latest") as consumer:
        producer.send(topic, b"right after")
        assert next(consumer).body == b"right after"
    with sync.PullConsumer(broker.nameserver, group=f"pull-{topic}", subscribe=topic) as puller:
        producer.send(topic, b"and again")
        assert [message.body for message in puller.poll(timeout=SECONDS_MAX)] == [b"and again"]


# -- the same names ----------------------------------------------------------------------------------------------------

PAIRS: list[tuple[type, type]] = [
    (eruca.Producer, sync.Producer),
    (TransactionalProducer, sync.TransactionalProducer),
    (eruca.Consumer, sync.Consumer),
    (eruca.PullConsumer, sync.PullConsumer),
    (eruca.ScheduledPull, sync.ScheduledPull),
    (eruca.Message, sync.Message),
]
# What the session asks of producers, and what only code in the loop can use.
NOT_FOR_USERS = {name for name in vars(ProducerMember) if not name.startswith("_")} | {"session"}
SPECIAL = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}


def list_public(kind: type) -> list[str]:
    own = [name for name in dir(kind) if not name.startswith("_") or name in SPECIAL]
    hidden = NOT_FOR_USERS if issubclass(kind, eruca.Producer) else set()
    return [name for name in own if name not in hidden]


@pytest.mark.parametrize(("twin", "plain"), PAIRS, ids=lambda kind: str(kind.__name__))
def test_every_public_name_has_its_plain_counterpart(twin: type, plain: type) -> None:
    names = list_public(twin)
    assert names
    for name in names:
        expected, found = inspect.getattr_static(twin, name), inspect.getattr_static(plain, SPECIAL.get(name, name))
        assert isinstance(expected, property) == isinstance(found, property), name
        if callable(expected):
            assert not inspect.iscoroutinefunction(found), name
            assert list_parameters(found) == list_parameters(expected), name
            assert found.__doc__ or name.startswith("__"), name


@pytest.mark.parametrize(("twin", "plain"), PAIRS[:-1], ids=lambda kind: str(kind.__name__))
def test_they_are_made_with_the_same_arguments(twin: type, plain: type) -> None:
    assert list_parameters(plain.__init__) == list_parameters(twin.__init__)  # type: ignore[misc]


def list_parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in found]


def test_the_module_has_the_names_of_the_async_clients() -> None:
    assert set(sync.__all__) >= set(eruca.__all__) - {"__version__"}


def test_a_plain_pull_result_has_the_same_fields() -> None:
    assert [field.name for field in fields(sync.PullResult)] == [field.name for field in fields(PullResult)]


# -- sending -----------------------------------------------------------------------------------------------------------


def test_a_message_is_sent_and_consumed(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    receipt = producer.send(topic, b"hello", tags="vip", keys=["o-1"], shard="c-7", properties={"a": "b"})
    assert receipt.status is sync.SendStatus.STORED
    with make_consumer(broker, topic, subscribe=topic) as consumer:
        message = next(consumer)
        assert isinstance(message, sync.Message)
        assert (message.body, message.tags, message.keys, message.properties) == (b"hello", "vip", ["o-1"], {"a": "b"})
        assert (message.message_id, message.offset, message.queue) == (
            receipt.message_id,
            receipt.offset,
            receipt.queue,
        )
        message.ack()


def test_errors_are_those_of_the_async_client(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    with pytest.raises(MessageIllegal):
        producer.send(topic, b"")
    with pytest.raises(TypeError):
        producer.send(topic, "text")  # type: ignore[arg-type]
    with pytest.raises(SendFailed):
        producer.send(topic, b"x", queue=MessageQueue("nobody", 0, topic), timeout=timedelta(seconds=0.2))
    with pytest.raises(ConfigError):
        sync.Consumer(broker.nameserver, group="g").start()


def test_a_client_that_is_not_started_says_so(broker: EmbeddedBroker, topic: str) -> None:
    producer = sync.Producer(broker.nameserver, group="shop")
    with pytest.raises(ClientClosed, match=r"with Producer\(\.\.\.\)"):
        producer.send(topic, b"x")
    with pytest.raises(ClientClosed):
        producer.send_soon(topic, b"x")
    with producer:
        producer.send(topic, b"x")
    with pytest.raises(ClientClosed):
        producer.send(topic, b"x")
    producer.close()


def test_many_threads_send_at_once(producer: sync.Producer, topic: str) -> None:
    with ThreadPoolExecutor(16) as threads:
        receipts = list(threads.map(lambda number: producer.send(topic, str(number).encode()), range(400)))
    assert len({receipt.message_id for receipt in receipts}) == 400
    assert len({(receipt.queue, receipt.offset) for receipt in receipts}) == 400


def test_batches_and_oneway(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    assert len(producer.list_queues(topic)) == 4
    assert len(producer.send_batch(topic, (sync.Outgoing(bytes([number + 1])) for number in range(5)))) == 1
    producer.send_oneway(topic, b"quick")
    assert sorted(take(broker, topic, 6)) == sorted([b"\1", b"\2", b"\3", b"\4", b"\5", b"quick"])


def test_sending_in_the_background_gives_futures(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    futures = [producer.send_soon(topic, str(number).encode(), tags="t") for number in range(100)]
    assert len({future.result(SECONDS_MAX).message_id for future in futures}) == 100
    assert isinstance(producer.send_soon(topic, b"").exception(SECONDS_MAX), MessageIllegal)
    assert isinstance(producer.send_soon(topic, b"x", shard=7).exception(SECONDS_MAX), TypeError)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="what"):
        producer.send_soon(topic, b"x", what=1)  # type: ignore[call-arg]


def test_a_failure_in_the_background_that_nobody_asks_for_is_one_warning(
    producer: sync.Producer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def list_unseen() -> list[str]:
        return [text for text in caplog.messages if "nobody awaited it" in text]

    assert isinstance(producer.send_soon(topic, b"").exception(SECONDS_MAX), MessageIllegal)
    with pytest.raises(MessageIllegal):
        producer.send_soon(topic, b"").result(SECONDS_MAX)
    producer.send_soon(topic, b"x")
    assert list_unseen() == []
    producer.send_soon(topic, b"")
    wait_for(lambda: bool(list_unseen()))
    (told,) = list_unseen()
    assert told.startswith(f"a message for {topic} was not sent, and nobody awaited it: ")
    assert "the body is empty" in told


def test_closing_waits_for_what_is_sent_in_the_background(broker: EmbeddedBroker, topic: str) -> None:
    with sync.Producer(broker.nameserver, group="shop") as producer:
        futures = [producer.send_soon(topic, b"x") for _ in range(50)]
    assert all(future.done() for future in futures)
    assert [future.exception() for future in futures] == [None] * 50


def test_sending_in_the_background_waits_for_room(broker: EmbeddedBroker, topic: str) -> None:
    # Room is waited for as long as the producer says; a send may take longer.
    with sync.Producer(broker.nameserver, group="shop", in_flight_max=2, timeout=1.0) as producer:
        producer.send(topic, b"x", timeout=SECONDS_MAX)
        with block_loop():
            first = [producer.send_soon(topic, b"x", timeout=SECONDS_MAX) for _ in range(2)]
            with pytest.raises(SendFailed, match="no room in the send window"):
                producer.send_soon(topic, b"x")
        assert [future.result(SECONDS_MAX).status for future in first] == [sync.SendStatus.STORED] * 2
        producer.send_soon(topic, b"x", timeout=SECONDS_MAX).result(SECONDS_MAX)


def test_room_is_given_again_when_a_quarter_of_it_is_free() -> None:
    room = Room(8)
    assert all(room.enter(0.0) for _ in range(8))
    assert not room.enter(0.0)
    let_in = threading.Event()
    waiter = threading.Thread(target=lambda: let_in.set() if room.enter(SECONDS_MAX) else None)
    waiter.start()
    wait_for(lambda: len(room._waiting) == 1)
    room.leave()
    assert not let_in.is_set()
    room.leave()
    assert let_in.wait(SECONDS_MAX)
    waiter.join()
    assert room.enter(0.0)
    assert not room.enter(0.0)


def test_request_and_reply(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    consumer = make_consumer(broker, topic)

    @consumer.handler(topic)
    def answer(message: sync.Message) -> None:
        producer.reply(message, message.body.upper())

    with consumer:
        reply = producer.request(topic, b"hello", timeout=SECONDS_MAX)
    assert isinstance(reply, sync.Message)
    assert reply.body == b"HELLO"


def test_a_plain_consumer_replies_without_a_producer(
    producer: sync.Producer, broker: EmbeddedBroker, topic: str
) -> None:
    consumer = make_consumer(broker, topic)

    @consumer.handler(topic)
    def answer(message: sync.Message) -> None:
        message.ack()
        receipt = message.reply(message.body.upper(), keys=iter(["k"]), timeout=SECONDS_MAX)
        assert receipt.status is SendStatus.STORED

    with consumer:
        reply = producer.request(topic, b"hello", timeout=SECONDS_MAX)
    assert (reply.body, reply.keys) == (b"HELLO", ["k"])
    with pytest.raises(NoListener):
        producer.request(topic, b"hello", timeout=SECONDS_MAX, listener_timeout=0)


# -- consuming ---------------------------------------------------------------------------------------------------------


def take(broker: EmbeddedBroker, topic: str, count: int, **how: Any) -> list[bytes]:
    """Messages of a topic, acknowledged."""
    bodies = []
    with make_consumer(broker, topic, subscribe=topic, **how) as consumer:
        for message in itertools.islice(consumer, count):
            bodies.append(message.body)
            message.ack()
    return bodies


def test_what_was_acknowledged_does_not_come_again(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    first = [str(number).encode() for number in range(200)]
    producer.send_batch(topic, first)
    assert sorted(take(broker, topic, 200)) == sorted(first)
    producer.send(topic, b"new")
    assert take(broker, topic, 1) == [b"new"]


def test_what_was_not_acknowledged_comes_again(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    queue = producer.list_queues(topic)[0]
    producer.send_batch(topic, [b"1", b"2", b"3"], queue=queue)
    assert take(broker, topic, 1) == [b"1"]
    assert take(broker, topic, 2) == [b"2", b"3"]


def test_messages_are_retried_and_buried(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    producer.send(topic, b"x")
    with make_consumer(broker, topic, subscribe=topic) as consumer:
        message = next(consumer)
        assert message.delivery == 1
        message.retry()
        again = next(consumer)
        assert (again.delivery, again.topic, again.body) == (2, topic, b"x")
        again.bury()
    dead = f"%DLQ%g-{topic}"
    with sync.PullConsumer(broker.nameserver, group="morgue", start="earliest") as morgue:
        wait_for(lambda: has_route(morgue, dead))
        morgue.assign(morgue.list_queues(dead))
        assert [message.body for message in morgue.poll(SECONDS_MAX)] == [b"x"]


def has_route(consumer: sync.PullConsumer, topic: str) -> bool:
    try:
        return bool(consumer.list_queues(topic))
    except NoRoute:
        return False


def test_many_threads_iterate_and_all_end_with_the_consumer(
    producer: sync.Producer, broker: EmbeddedBroker, topic: str
) -> None:
    producer.send_batch(topic, [str(number).encode() for number in range(500)])
    seen: list[bytes] = []
    takers: set[int] = set()
    with make_consumer(broker, topic, subscribe=topic) as consumer:

        def work() -> None:
            for message in consumer:
                seen.append(message.body)
                takers.add(threading.get_ident())
                message.ack()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(seen) == 500)
        producer.send_batch(topic, [b"more"] * 4)
        wait_for(lambda: len(seen) == 504)
    for thread in threads:
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
    assert sorted(set(seen) - {b"more"}, key=int) == [str(number).encode() for number in range(500)]


def test_handlers_get_plain_messages_and_exceptions_are_retries(
    producer: sync.Producer, broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = make_consumer(broker, topic)
    seen: list[tuple[bytes, int]] = []

    @consumer.handler(topic, concurrency=4)
    def handle(message: sync.Message) -> None:
        assert type(message) is sync.Message
        assert not loopthread.find_loop_thread().is_here()
        seen.append((message.body, message.delivery))
        if message.body == b"bad" and message.delivery < 2:
            raise ValueError("again")
        message.ack()  # not needed, and no harm

    for body in (b"good", b"bad"):
        producer.send(topic, body)
    with consumer:
        wait_for(lambda: len(seen) == 3)
    assert sorted(seen) == [(b"bad", 1), (b"bad", 2), (b"good", 1)]
    assert "the handler of" in caplog.text
    # Everything is committed: only what is new comes to the next start of the same consumer.
    producer.send(topic, b"new")
    with consumer:
        wait_for(lambda: len(seen) == 4)
    assert seen[-1] == (b"new", 1)


def test_as_many_handlers_run_at_once_as_wanted(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    consumer = make_consumer(broker, topic)
    meeting = threading.Barrier(5)
    met: list[int] = []

    @consumer.handler(topic, concurrency=5)
    def meet(message: sync.Message) -> None:
        meeting.wait(SECONDS_MAX)
        met.append(message.offset)

    producer.send_batch(topic, [b"x"] * 10)
    with consumer:
        wait_for(lambda: len(met) == 10)
    assert not meeting.broken
    assert count_committed(broker, topic) == 10


def count_committed(broker: EmbeddedBroker, topic: str) -> int:
    with sync.PullConsumer(broker.nameserver, group=f"g-{topic}") as reader:
        return sum([reader.committed(queue) or 0 for queue in reader.list_queues(topic)])


def test_batches_and_async_functions_as_handlers(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    sizes: list[int] = []
    plain = make_consumer(broker, topic)

    @plain.handler(topic, batch=8)
    def handle_batch(messages: list[sync.Message]) -> None:
        assert all(type(message) is sync.Message for message in messages)
        sizes.append(len(messages))

    mixed = make_consumer(broker, topic, group=f"a-{topic}")
    seen: list[type] = []

    @mixed.handler(topic)
    async def handle(message: eruca.Message) -> None:
        await message.ack()
        seen.append(type(message))

    producer.send_batch(topic, [b"x"] * 32, queue=producer.list_queues(topic)[0])
    with plain, mixed:
        wait_for(lambda: sum(sizes) == 32 and len(seen) == 32)
    assert max(sizes) == 8
    assert set(seen) == {eruca.Message}


def test_single_messages_of_a_batch(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    consumer = make_consumer(broker, topic)
    seen: list[tuple[bytes, int]] = []

    @consumer.handler(topic, batch=6, concurrency=1)
    def handle(messages: list[sync.Message]) -> None:
        seen.extend([(message.body, message.delivery) for message in messages])
        if messages[0].delivery > 1:
            return
        messages[0].retry(delay=0.01)
        messages[1].bury()
        for message in messages[2:4]:
            message.ack()
        raise ValueError("the rest fails")

    producer.send_batch(topic, [b"%d" % number for number in range(6)], queue=producer.list_queues(topic)[0])
    with consumer, make_consumer(broker, topic, group="buried", subscribe=f"%DLQ%g-{topic}") as letters:
        wait_for(lambda: len(seen) >= 9)
        assert next(letters).body == b"1"
    again = [(body, 2) for body in (b"0", b"4", b"5")]
    assert sorted(seen) == sorted([*[(b"%d" % number, 1) for number in range(6)], *again])


def test_ordered_handlers_keep_the_order(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    consumer = make_consumer(broker, topic)
    seen: dict[int, list[int]] = {}
    failed: set[int] = set()

    @consumer.handler(topic, ordered=True, concurrency=3)
    def handle(message: sync.Message) -> sync.Outcome | None:
        if message.offset % 10 == 3 and message.offset not in failed:
            failed.add(message.offset)
            return sync.Outcome.LATER
        seen.setdefault(message.queue.queue_id, []).append(message.offset)
        return None

    for _ in range(8):
        for queue in producer.list_queues(topic):
            producer.send_batch(topic, [b"x"] * 5, queue=queue)
    with consumer:
        wait_for(lambda: sum(len(offsets) for offsets in seen.values()) == 160)
    assert seen == {number: list(range(40)) for number in range(4)}


def test_a_consumer_with_handlers_is_not_iterated(broker: EmbeddedBroker, topic: str) -> None:
    consumer = make_consumer(broker, topic)
    consumer.handler(topic)(lambda message: None)
    with pytest.raises(ConfigError, match="cannot be iterated"):
        iter(consumer)
    with pytest.raises(ConfigError, match="is not a function"):
        make_consumer(broker, topic).handler(topic)(None)  # type: ignore[call-overload]


def test_run_ends_with_close(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    consumer = make_consumer(broker, topic)
    began, gate = threading.Event(), threading.Event()
    ended: list[bool] = []

    @consumer.handler(topic)
    def handle(message: sync.Message) -> None:
        began.set()
        gate.wait(SECONDS_MAX)
        ended.append(True)

    runner = threading.Thread(target=consumer.run)
    runner.start()
    producer.send(topic, b"x")
    assert began.wait(SECONDS_MAX)
    closer = threading.Thread(target=consumer.close)
    closer.start()
    gate.set()
    for thread in (closer, runner):
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
    assert ended == [True]
    assert count_committed(broker, topic) == 1


def test_a_handler_may_close_its_consumer(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    consumer = make_consumer(broker, topic, drain=SECONDS_MAX)
    seen: list[bytes] = []

    @consumer.handler(topic, concurrency=1)
    def handle(message: sync.Message) -> None:
        seen.append(message.body)
        consumer.close()

    producer.send(topic, b"x")
    began = time.monotonic()
    consumer.run()
    assert time.monotonic() - began < SECONDS_MAX / 2
    assert seen == [b"x"]
    assert count_committed(broker, topic) == 1


def test_pausing_and_queues(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    told: list[int] = []
    consumer: sync.Consumer = make_consumer(
        broker, topic, subscribe=topic, rebalance=sync.Rebalance(on_change=lambda *_: told.append(len(consumer.queues)))
    )
    assert consumer.queues == []
    with consumer:
        wait_for(lambda: len(consumer.queues) == 4)
        consumer.pause()
        consumer.resume()
        producer.send(topic, b"x")
        next(consumer).ack()
        consumer.commit()
        assert count_committed(broker, topic) == 1
    assert told  # a listener runs in a thread and may use its consumer there
    with pytest.raises(ClientClosed):
        consumer.commit()


# -- pulling -----------------------------------------------------------------------------------------------------------


def test_the_pull_consumer(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    queue = producer.list_queues(topic)[0]
    receipts = [producer.send(topic, bytes([number]), queue=queue, keys=["k"]) for number in range(1, 6)]
    with sync.PullConsumer(broker.nameserver, group=f"p-{topic}", start="earliest", auto_commit=False) as consumer:
        assert queue in consumer.list_queues(topic)
        consumer.assign([queue])
        assert consumer.assignment == [queue]
        assert consumer.owns(queue)
        assert [message.body for message in consumer.poll(SECONDS_MAX, 2)] == [b"\1", b"\2"]
        assert consumer.position(queue) == 2
        consumer.seek(queue, 4)
        assert next(consumer).body == b"\5"
        assert (consumer.begin_offset(queue), consumer.end_offset(queue)) == (0, 5)
        assert consumer.seek_to_begin(queue) == 0
        consumer.pause([queue])
        assert consumer.paused == [queue]
        assert consumer.poll(0.01) == []
        consumer.resume()
        result = consumer.pull(queue, 3)
        assert isinstance(result, sync.PullResult)
        assert ([message.body for message in result.messages], result.next_offset) == ([b"\4", b"\5"], 5)
        assert consumer.view(receipts[0].offset_id).body == b"\1"
        assert [message.body for message in consumer.query(topic, "k")] == [b"\1", b"\2", b"\3", b"\4", b"\5"]
        assert consumer.committed(queue) is None
        consumer.commit({queue: 3})
        assert consumer.committed(queue) == 3
        with pytest.raises(QueueNotOurs):
            consumer.position(MessageQueue(queue.broker_name, 3, topic))


def test_an_exception_that_leaves_the_block_repeats_what_was_polled(
    producer: sync.Producer, broker: EmbeddedBroker, topic: str
) -> None:
    producer.send(topic, b"x")

    def make() -> sync.PullConsumer:
        return sync.PullConsumer(broker.nameserver, group=f"p-{topic}", start="earliest", subscribe=topic)

    with pytest.raises(ValueError, match="no"), make() as consumer:
        assert len(consumer.poll(SECONDS_MAX)) == 1
        raise ValueError("no")
    with make() as consumer:
        assert [message.body for message in consumer.poll(SECONDS_MAX)] == [b"x"]
    with make() as consumer:
        producer.send(topic, b"y")
        assert next(consumer).body == b"y"
    assert list(consumer) == []


def test_scheduled_pull(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    scheduled = sync.ScheduledPull(broker.nameserver, group=f"s-{topic}", start="earliest", delay=0.01, drain=5.0)
    seen: list[bytes] = []
    calls: set[MessageQueue] = set()

    @scheduled.callback(topic)
    def pull(queue: MessageQueue, context: sync.PullContext) -> None:
        assert isinstance(context.consumer, sync.PullConsumer)
        calls.add(queue)
        offset = context.consumer.committed(queue) or 0
        result = context.consumer.pull(queue, offset)
        seen.extend([message.body for message in result.messages])
        context.consumer.commit({queue: result.next_offset})
        context.next_delay = 0.0 if result.messages else 0.02

    queues = producer.list_queues(topic)
    for number, queue in enumerate(queues, 1):
        producer.send(topic, bytes([number]), queue=queue)
    runner = threading.Thread(target=scheduled.run)
    runner.start()
    wait_for(lambda: len(seen) == 4 and len(calls) == 4)
    assert scheduled.queues == sorted(queues)
    assert scheduled.consumer.assignment == sorted(queues)
    scheduled.close()
    runner.join(SECONDS_MAX)
    assert not runner.is_alive()
    assert sorted(seen) == [b"\1", b"\2", b"\3", b"\4"]
    with pytest.raises(ClientClosed):
        _ = scheduled.consumer


# -- transactions ------------------------------------------------------------------------------------------------------


def test_transactions(broker: EmbeddedBroker, topic: str) -> None:
    asked: list[sync.Message] = []

    def check(message: sync.Message) -> sync.Decision:
        asked.append(message)
        # The broker hurries, and may ask about another one that is decided at this moment.
        return sync.Decision.COMMIT if message.body in (b"3", b"5") else sync.Decision.UNKNOWN

    threads: list[int] = []

    def work(receipt: sync.Receipt) -> sync.Decision:
        threads.append(threading.get_ident())
        return sync.Decision.COMMIT

    def fail(receipt: sync.Receipt) -> sync.Decision:
        raise ValueError("no")

    with sync.TransactionalProducer(broker.nameserver, group=f"t-{topic}", check=check) as producer:
        assert producer.send_transaction(topic, b"1", local=work).decision is sync.Decision.COMMIT
        with producer.transaction(topic, b"2") as half:
            assert half.transaction_id
        with pytest.raises(KeyError), producer.transaction(topic, b"never"):
            raise KeyError("no")
        with producer.transaction(topic, b"never") as half:
            half.rollback()
        with pytest.raises(ValueError, match="no"):
            producer.send_transaction(topic, b"3", local=fail)
        producer.send(topic, b"4")
        # Whoever is interrupted does not know whether the work is done, so the broker asks.
        with pytest.raises(KeyboardInterrupt), producer.transaction(topic, b"5"):
            raise KeyboardInterrupt
        assert sorted(take(broker, topic, 5)) == [b"1", b"2", b"3", b"4", b"5"]
    # The local work is done by the thread that sends: its connection to a database is there.
    assert threads == [threading.get_ident()]
    assert b"3" in [message.body for message in asked]
    assert {type(message) for message in asked} == {sync.Message}


# -- the loop ----------------------------------------------------------------------------------------------------------


@contextmanager
def block_loop() -> Iterator[None]:
    """Keep the loop of the plain clients busy while the block runs."""
    gate, began = threading.Event(), threading.Event()

    def block_here(_: None) -> None:
        began.set()
        while not gate.is_set():
            pass

    loopthread.find_loop_thread().post(block_here, None)
    assert began.wait(SECONDS_MAX)
    try:
        yield
    finally:
        gate.set()


def test_a_stuck_loop_does_not_hold_up_its_callers_for_ever(
    producer: sync.Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.send(topic, b"x")
    for name in ("_GRACE_S", "_LOOK_AFTER_S", "_STUCK_S"):
        monkeypatch.setattr(loopthread, name, 0.1)
    with block_loop():
        began = time.monotonic()
        with pytest.raises(CallTimeout, match="block_here"):
            producer.send(topic, b"x", timeout=0.1)
        with pytest.raises(CallTimeout, match="block_here"):
            producer.list_queues(topic)
        assert time.monotonic() - began < SECONDS_MAX / 2
    monkeypatch.undo()
    assert producer.send(topic, b"x").status is sync.SendStatus.STORED


def test_a_long_call_is_not_taken_for_a_stuck_loop(
    producer: sync.Producer, broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopthread, "_LOOK_AFTER_S", 0.01)
    with make_consumer(broker, topic, subscribe=topic) as consumer:
        sender = threading.Timer(0.1, producer.send, (topic, b"late"))
        sender.start()
        assert next(consumer).body == b"late"
        sender.join()


def test_calls_from_inside_the_loop_are_refused(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    consumer = make_consumer(broker, topic)
    found: list[BaseException] = []

    @consumer.handler(topic)
    async def handle(message: eruca.Message) -> None:
        for call in (producer.send, producer.send_soon):
            with pytest.raises(ConfigError, match="would deadlock") as caught:
                call(topic, b"y")
            found.append(caught.value)
        with pytest.raises(ConfigError):
            consumer.close()

    producer.send(topic, b"x")
    with consumer:
        wait_for(lambda: len(found) == 2)
    assert "from eruca import" in str(found[0])


def test_an_interrupt_ends_the_wait(producer: sync.Producer, broker: EmbeddedBroker, topic: str) -> None:
    with make_consumer(broker, topic, subscribe=topic) as consumer:
        killer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            killer.start()
            next(consumer)
        killer.join()
        producer.send(topic, b"x")
        assert next(consumer).body == b"x"


def test_clients_of_one_process_share_the_loop_and_the_session(broker: EmbeddedBroker) -> None:
    with (
        sync.Producer(broker.nameserver, group="a") as first,
        sync.Producer(broker.nameserver, group="b") as second,
    ):
        assert first._thread is second._thread is loopthread.find_loop_thread()
        assert first._twin._session is second._twin._session


# -- processes ---------------------------------------------------------------------------------------------------------


def run_script(script: str, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=3 * SECONDS_MAX,
        check=False,
        **how,
    )


UNCLOSED = """
import sys
from pathlib import Path
from eruca.sync import Consumer, Offsets, Producer
nameserver, topic, directory = sys.argv[1:]
producer = Producer(nameserver, group="shop")
producer.start()
producer.send_batch(topic, [b"1", b"2"], shard="s")
kept = []
for broadcast in (False, True):
    consumer = Consumer(
        nameserver, group="u-" + topic, subscribe=topic, start="earliest", broadcast=broadcast,
        offsets=Offsets(directory=Path(directory)),
    )
    kept.append(consumer)
    consumer.start()
    for _ in range(2):
        message = next(consumer)
        message.ack()
futures = [producer.send_soon(topic, b"3") for _ in range(20)]
"""


def test_what_was_not_closed_is_closed_when_the_process_ends(
    broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    done = run_script(UNCLOSED, broker.nameserver, topic, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    with sync.PullConsumer(broker.nameserver, group=f"u-{topic}") as reader:
        queues = reader.list_queues(topic)
        assert sum([reader.committed(queue) or 0 for queue in queues]) == 2
        assert sum([reader.end_offset(queue) for queue in queues]) == 22
    assert [path.name for path in tmp_path.rglob("offsets.json")] == ["offsets.json"]


STUCK = """
import sys, threading, time
from eruca._client.sync import loopthread
from eruca._client.sync.room import Room
from eruca.sync import Consumer, Producer
loopthread._EXIT_S = 0.3
nameserver, topic = sys.argv[1:]
began = threading.Event()
consumer = Consumer(nameserver, group="s-" + topic, start="earliest")
@consumer.handler(topic)
def handle(message):
    began.set()
    time.sleep(3600)
consumer.start()
with Producer(nameserver, group="shop") as producer:
    producer.send(topic, b"x")
began.wait()
print("end")
"""


def test_a_handler_that_does_not_end_does_not_keep_the_process(broker: EmbeddedBroker, topic: str) -> None:
    done = run_script(STUCK, broker.nameserver, topic)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


FORKED = """
import os, sys
from eruca.errors import ClientClosed
from eruca.sync import Producer
nameserver, topic = sys.argv[1:]
with Producer(nameserver, group="shop") as producer:
    producer.send(topic, b"parent")
    child = os.fork()
    if not child:
        for _ in range(2):
            try:
                producer.send(topic, b"lost")
            except ClientClosed as error:
                assert "fork" in str(error)
            else:
                os._exit(1)
        with Producer(nameserver, group="shop") as own:
            own.send(topic, b"child")
        producer.close()
        del producer
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    producer.send(topic, b"parent")
"""


def test_after_a_fork_each_process_has_a_loop_of_its_own(broker: EmbeddedBroker, topic: str) -> None:
    done = run_script(FORKED, broker.nameserver, topic)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(take(broker, topic, 3)) == [b"child", b"parent", b"parent"]


SIGNALLED = """
import os, signal, sys, threading
from eruca.sync import Consumer, Producer
nameserver, topic, name = sys.argv[1:]
consumer = Consumer(nameserver, group="g-" + topic, start="earliest")
@consumer.handler(topic)
def handle(message):
    os.kill(os.getpid(), getattr(signal, name))
    threading.Event().wait(0.2)
    print("handled", flush=True)
with Producer(nameserver, group="shop") as producer:
    producer.send(topic, b"x")
    consumer.run()
print("closed")
"""


@pytest.mark.parametrize(
    ("name", "code", "output"), [("SIGINT", 0, "handled\nclosed\n"), ("SIGTERM", 143, "handled\n")]
)
def test_a_signal_ends_run_cleanly(broker: EmbeddedBroker, topic: str, name: str, code: int, output: str) -> None:
    done = run_script(SIGNALLED, broker.nameserver, topic, name)
    assert (done.returncode, done.stdout, done.stderr) == (code, output, "")
    assert count_committed(broker, topic) == 1


STARTING = """
import os, signal, sys
from eruca.sync import Consumer
nameserver, topic = sys.argv[1:]
consumer = Consumer(nameserver, group="g-" + topic, subscribe=topic)
start = consumer._twin.start
async def start_interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    await start()
consumer._twin.start = start_interrupted
consumer.run()
print("closed")
"""


def test_an_interrupt_while_it_starts_leaves_nothing_behind(broker: EmbeddedBroker, topic: str) -> None:
    done = run_script(STARTING, broker.nameserver, topic)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")

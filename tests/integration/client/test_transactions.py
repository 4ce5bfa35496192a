"""Transactions: seen when committed, never when rolled back, and asked about when nobody says."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._client.message import Message
from eruca._client.options import ClientOptions
from eruca._client.produce.checks import Decision
from eruca._client.produce.outgoing import Receipt, SendStatus
from eruca._client.produce.transactions import Half, TransactionalProducer
from eruca._nameserver.app import NameServer
from eruca._net.link import Answer, Link
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import TopicConfig
from eruca._wire.codes import FLAG_ONEWAY
from eruca._wire.frame import Command
from eruca._wire.headers import EndTransactionHeader
from eruca._wire.names import HALF_TOPIC, OP_HALF_TOPIC
from eruca._wire.properties import parse_properties
from eruca._wire.record import user_body
from eruca.errors import ClientClosed, MessageIllegal, SendFailed
from tests.integration.broker.delivery import stored
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.patience import PATIENCE_S
from tests.unit.client.scripted import ScriptedBroker, ScriptedCluster, wait_until

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
NEVER_MS = 3_600_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def broker(start_broker: StartBroker, clock: VirtualClock) -> Broker:
    """A broker that asks only when a test says so."""
    return await start_broker(clock=clock, transaction_check_interval_ms=NEVER_MS, transaction_check_max=9)


async def ask_back(broker: Broker, clock: VirtualClock) -> None:
    clock.advance(6001)
    await broker.checks.run_pass()


class Checker:
    """A check that answers what a test says, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Message] = []

    async def __call__(self, message: Message) -> Decision | None:
        self.asked.append(message)
        answer: Decision | Exception | None = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def read(broker: Broker, topic: str = "orders") -> list[bytes]:
    return [user_body(message) for queue_id in range(4) for message in stored(broker, topic, queue_id)]


def count_ops(broker: Broker) -> int:
    return len(stored(broker, OP_HALF_TOPIC))


# --- deciding at once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", list(Decision))
async def test_what_the_local_work_decides(
    nameserver: NameServer, broker: Broker, make_producer: MakeProducer, decision: Decision
) -> None:
    producer = await make_producer(nameserver.address, TransactionalProducer, check=Checker())
    halves: list[list[bytes]] = []

    async def work(receipt: Receipt) -> Decision:
        assert receipt.status is SendStatus.STORED
        halves.append([message.body for message in stored(broker, HALF_TOPIC)])
        assert read(broker) == []
        return decision

    result = await producer.send_transaction("orders", b"paid", local=work, tags="t", keys=["k"], shard="s")
    assert result.decision is decision
    assert halves == [[b"paid"]]
    if decision is not Decision.UNKNOWN:
        await wait_until(lambda: count_ops(broker) == 1)
    assert read(broker) == ([b"paid"] if decision is Decision.COMMIT else [])
    if decision is Decision.COMMIT:
        (message,) = stored(broker, "orders", result.receipt.queue.queue_id)
        properties = message.read_properties()
        assert (properties["TAGS"], properties["KEYS"], properties["UNIQ_KEY"]) == (
            "t",
            "k",
            result.receipt.message_id,
        )


async def test_plain_functions_work_in_a_thread(
    nameserver: NameServer, broker: Broker, make_producer: MakeProducer
) -> None:
    producer = await make_producer(nameserver.address, TransactionalProducer, check=Checker())
    threads: list[int] = []

    def work(receipt: Receipt) -> Decision:
        threads.append(threading.get_ident())
        return Decision.COMMIT

    await producer.send_transaction("orders", b"x" * 10_000, local=work)
    assert threads != [threading.get_ident()]
    await wait_until(lambda: read(broker) == [b"x" * 10_000])


async def test_local_work_that_fails_leaves_the_half_open(
    nameserver: NameServer, broker: Broker, make_producer: MakeProducer, clock: VirtualClock
) -> None:
    checker = Checker(Decision.COMMIT)
    producer = await make_producer(nameserver.address, TransactionalProducer, check=checker)

    async def fail(receipt: Receipt) -> Decision:
        raise ValueError("no money")

    with pytest.raises(ValueError, match="no money"):
        await producer.send_transaction("orders", b"x", local=fail)
    wrong: Any = lambda receipt: "commit"  # noqa: E731
    with pytest.raises(TypeError, match="must return a Decision"):
        await producer.send_transaction("orders", b"y", local=wrong)
    assert count_ops(broker) == 0
    assert len(stored(broker, HALF_TOPIC)) == 2


async def test_a_block_commits_at_its_end(nameserver: NameServer, broker: Broker, make_producer: MakeProducer) -> None:
    producer = await make_producer(nameserver.address, TransactionalProducer, check=Checker())
    async with producer.transaction("orders", b"1") as half:
        assert isinstance(half, Half)
        assert half.transaction_id == half.receipt.message_id
        assert read(broker) == []
    await wait_until(lambda: read(broker) == [b"1"])
    with pytest.raises(ValueError, match="no money"):
        async with producer.transaction("orders", b"2"):
            raise ValueError("no money")
    await wait_until(lambda: count_ops(broker) == 2)
    async with producer.transaction("orders", b"3") as half:
        half.rollback()
    await wait_until(lambda: count_ops(broker) == 3)
    async with producer.transaction("orders", b"4") as half:
        half.leave_open()
    assert len(stored(broker, HALF_TOPIC)) == 4
    assert (read(broker), count_ops(broker)) == ([b"1"], 3)


class Interrupted(BaseException):
    """What is not a failure of the work: a cancellation, Ctrl-C, the end of the process."""


async def test_a_cancelled_block_is_asked_about(
    nameserver: NameServer, broker: Broker, make_producer: MakeProducer, clock: VirtualClock
) -> None:
    """The work may be done: a task that was cancelled while waiting for a payment does not know whether it was made."""
    producer = await make_producer(nameserver.address, TransactionalProducer, check=Checker(Decision.COMMIT))
    began = asyncio.Event()

    async def work() -> None:
        async with producer.transaction("orders", b"1"):
            began.set()
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(work())
    await began.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert (read(broker), count_ops(broker)) == ([], 0)
    await ask_back(broker, clock)
    await wait_until(lambda: read(broker) == [b"1"])


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, SystemExit, Interrupted])
async def test_a_block_that_is_interrupted_decides_nothing(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer, kind: type[BaseException]
) -> None:
    producer = await make_producer(scripted.address, TransactionalProducer, check=Checker())
    for decide in (None, Half.rollback, Half.leave_open):
        block = producer.transaction("orders", b"x")
        half = await block.__aenter__()
        if decide is not None:
            decide(half)
        error = kind()
        assert not await block.__aexit__(kind, error, None)
    await wait_until(lambda: len(peer.ends) == 3)
    # What was said before it still counts.
    decisions = [end.decode_header(EndTransactionHeader).decision for end in peer.ends]
    assert decisions == [UNKNOWN, ROLLBACK, UNKNOWN]


async def test_a_half_that_was_left_open_stays_open_when_the_block_fails(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, TransactionalProducer, check=Checker())
    with pytest.raises(TimeoutError):
        async with producer.transaction("orders", b"x") as half:
            half.leave_open()
            raise TimeoutError
    await wait_until(lambda: len(peer.ends) == 1)
    assert peer.ends[0].decode_header(EndTransactionHeader).decision == UNKNOWN


async def test_delays_are_refused(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    producer = await make_producer(scripted.address, TransactionalProducer, check=Checker())
    with pytest.raises(MessageIllegal, match="a transactional message cannot be delayed"):
        await producer.send_transaction("orders", b"x", local=Checker(), delay=timedelta(seconds=1))
    with pytest.raises(MessageIllegal, match="cannot be delayed"):
        async with producer.transaction("orders", b"x", delay=3):
            pass
    assert "orders" not in scripted.nameserver.asked


# --- what goes over the wire ----------------------------------------------------------------------------------------


@pytest.fixture
async def peer(scripted: ScriptedCluster) -> ScriptedBroker:
    """A scripted broker with a topic."""
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    return broker


async def test_the_fields_are_java_s(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, TransactionalProducer, check=Checker(), group="payers")

    async def work(receipt: Receipt) -> Decision:
        return Decision.COMMIT

    result = await producer.send_transaction("orders", b"x", local=work, check_after=timedelta(seconds=90))
    ((header, body),) = peer.sends
    properties = parse_properties(header.properties or "")
    assert (header.producer_group, header.sys_flag, body) == ("payers", 4, b"x")
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "payers")
    assert properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "90"
    await wait_until(lambda: len(peer.ends) == 1)
    assert peer.ends[0].flag & FLAG_ONEWAY
    end = peer.ends[0].decode_header(EndTransactionHeader)
    assert (end.producer_group, end.half_offset, end.position, end.decision, end.message_id, end.from_check) == (
        "payers",
        result.receipt.offset,
        1000 + result.receipt.offset,
        COMMIT,
        result.receipt.message_id,
        False,
    )


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_a_half_that_is_not_synced_is_rolled_back(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer, code: int
) -> None:
    producer = await make_producer(scripted.address, TransactionalProducer, check=Checker())
    work = Checker()
    peer.script.extend([code, code])
    result = await producer.send_transaction("orders", b"x", local=work)
    assert (result.decision, work.asked) == (Decision.ROLLBACK, [])
    with pytest.raises(SendFailed, match="was rolled back: broker-a: "):
        async with producer.transaction("orders", b"x"):
            pytest.fail("the block must not run")
    await wait_until(lambda: len(peer.ends) == 2)
    assert [end.decode_header(EndTransactionHeader).decision for end in peer.ends] == [ROLLBACK, ROLLBACK]


async def test_the_broker_knows_whom_to_ask_before_the_half_comes(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    known: list[bool] = []

    def look(link: Link, command: Command) -> Answer:
        groups = {group.group_name for beat in peer.heartbeats for group in beat.producer_data_set}
        known.append("payers" in groups)
        return peer.answer(link, command)

    other = await make_producer(scripted.address)  # of the same session, so that the connection stands already
    await other.send("orders", b"y")
    peer.script.append(look)
    producer = await make_producer(scripted.address, TransactionalProducer, check=Checker(), group="payers")
    async with producer.transaction("orders", b"x"):
        pass
    assert known == [True]


async def test_why_it_failed_is_told(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, TransactionalProducer, check=Checker())
    with pytest.raises(ValueError, match="no money"):
        await producer.send_transaction("orders", b"x", local=Checker(ValueError("no money")))
    with pytest.raises(ValueError, match="no money"):
        async with producer.transaction("orders", b"x"):
            raise ValueError("no money")
    await wait_until(lambda: len(peer.ends) == 2)
    assert [(end.decode_header(EndTransactionHeader).decision, end.remark) for end in peer.ends] == [
        (UNKNOWN, "ValueError('no money')"),
        (ROLLBACK, "ValueError('no money')"),
    ]


async def test_a_half_that_is_not_stored_does_no_work(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address, TransactionalProducer, check=Checker(), retries=0)
    work = Checker()
    peer.script.append(13)
    with pytest.raises(SendFailed):
        await producer.send_transaction("orders", b"x", local=work)
    assert work.asked == []


async def test_a_decision_that_cannot_be_told_is_no_error(
    scripted: ScriptedCluster, peer: ScriptedBroker, make_producer: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    producer = await make_producer(scripted.address, TransactionalProducer, check=Checker())

    address, caller = peer.address, producer._session.caller

    async def work(receipt: Receipt) -> Decision:
        await peer.server.stop()
        await wait_until(lambda: not caller.is_connected(address))
        return Decision.COMMIT

    result = await producer.send_transaction("orders", b"x", local=work)
    assert result.decision is Decision.COMMIT
    assert any("not told to commit half message" in record.message for record in caplog.records)


# --- being asked ----------------------------------------------------------------------------------------------------


async def test_an_open_half_is_asked_about_until_it_is_decided(
    nameserver: NameServer, broker: Broker, make_producer: MakeProducer, clock: VirtualClock
) -> None:
    checker = Checker(None, ValueError("the database is down"), Decision.UNKNOWN, Decision.COMMIT)
    producer = await make_producer(nameserver.address, TransactionalProducer, check=checker)
    async with producer.transaction("orders", b"x", tags="t", keys=["k"], properties={"a": "b"}) as half:
        half.leave_open()
    for times in range(1, 4):
        await ask_back(broker, clock)
        await wait_until(lambda times=times: len(checker.asked) == times)  # type: ignore[misc]
        assert read(broker) == []
    await ask_back(broker, clock)
    await wait_until(lambda: read(broker) == [b"x"])
    for message in checker.asked:
        assert (message.topic, message.body, message.tags, message.keys) == ("orders", b"x", "t", ["k"])
        assert message.properties == {"a": "b"}
        assert message.message_id == message.transaction_id == half.transaction_id
        assert message.queue.broker_name == "broker-a"
    await ask_back(broker, clock)
    assert len(checker.asked) == 4


async def test_a_plain_check_runs_in_a_thread_and_may_roll_back(
    nameserver: NameServer, broker: Broker, make_producer: MakeProducer, clock: VirtualClock
) -> None:
    threads: list[int] = []

    def check(message: Message) -> Decision:
        threads.append(threading.get_ident())
        return Decision.ROLLBACK

    producer = await make_producer(nameserver.address, TransactionalProducer, check=check)
    async with producer.transaction("orders", b"x") as half:
        half.leave_open()
    await ask_back(broker, clock)
    await wait_until(lambda: count_ops(broker) >= 1)
    assert threads
    assert threading.get_ident() not in threads
    assert read(broker) == []


async def test_another_producer_of_the_group_is_asked_when_the_first_is_gone(
    nameserver: NameServer, broker: Broker, make_producer: MakeProducer, clock: VirtualClock
) -> None:
    first = await make_producer(nameserver.address, TransactionalProducer, check=Checker())
    async with first.transaction("orders", b"x") as half:
        half.leave_open()
    await first.close()
    checker = Checker(Decision.COMMIT)
    options = ClientOptions(ip="127.0.0.1", instance="other")
    second = await make_producer(nameserver.address, TransactionalProducer, check=checker, options=options)
    await second.send("orders", b"y")  # now it knows the broker, and the broker knows it
    clients = broker.clients
    await wait_until(lambda: bool(clients.producers.get("senders")))
    await ask_back(broker, clock)
    await wait_until(lambda: sorted(read(broker)) == [b"x", b"y"])
    assert sorted(read(broker)) == [b"x", b"y"]


@pytest.mark.parametrize("auto_create_topic", [True, False])
async def test_a_producer_that_never_sent_is_asked(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    clock: VirtualClock,
    auto_create_topic: bool,
) -> None:
    broker = await start_broker(
        clock=clock, transaction_check_interval_ms=NEVER_MS, auto_create_topic=auto_create_topic
    )
    broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    await broker.registration.register_all()
    first = await make_producer(nameserver.address, TransactionalProducer, check=Checker())
    async with first.transaction("orders", b"x") as half:
        half.leave_open()
    await first.close()
    clients = broker.clients
    await wait_until(lambda: not clients.producers.get("senders"))
    options = ClientOptions(ip="127.0.0.1", instance="other")
    checker = Checker(Decision.COMMIT)
    await make_producer(nameserver.address, TransactionalProducer, check=checker, options=options)
    await wait_until(lambda: bool(clients.producers.get("senders")))
    await ask_back(broker, clock)
    await wait_until(lambda: read(broker) == [b"x"])
    assert read(broker) == [b"x"]


async def test_a_namespace_is_not_seen_by_the_check(
    nameserver: NameServer, broker: Broker, make_producer: MakeProducer, clock: VirtualClock
) -> None:
    checker = Checker(Decision.COMMIT)
    options = ClientOptions(ip="127.0.0.1", namespace="shop")
    producer = await make_producer(nameserver.address, TransactionalProducer, check=checker, options=options)
    async with producer.transaction("orders", b"x") as half:
        half.leave_open()
    await ask_back(broker, clock)
    await wait_until(lambda: read(broker, "shop%orders") == [b"x"])
    assert checker.asked[0].topic == "orders"


async def test_checks_at_the_same_time_are_bounded(
    nameserver: NameServer, broker: Broker, make_producer: MakeProducer, clock: VirtualClock
) -> None:
    gate = asyncio.Event()
    running = most = 0

    async def check(message: Message) -> Decision:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return Decision.COMMIT

    producer = await make_producer(nameserver.address, TransactionalProducer, check=check, checks_max=3)
    for _ in range(10):
        async with producer.transaction("orders", b"x") as half:
            half.leave_open()
    await ask_back(broker, clock)
    await wait_until(lambda: len(producer._checks._tasks) == 10)
    await wait_until(lambda: running == 3)
    gate.set()
    await wait_until(lambda: len(read(broker)) == 10)
    assert most == 3


async def test_closing_does_not_wait_for_checks(
    nameserver: NameServer, broker: Broker, make_producer: MakeProducer, clock: VirtualClock
) -> None:
    asked = asyncio.Event()

    async def check(message: Message) -> Decision:
        asked.set()
        await asyncio.Event().wait()
        return Decision.COMMIT

    producer = await make_producer(nameserver.address, TransactionalProducer, check=check)
    async with producer.transaction("orders", b"x") as half:
        half.leave_open()
    await ask_back(broker, clock)
    async with asyncio.timeout(PATIENCE_S):
        await asked.wait()
        await producer.close()
    with pytest.raises(ClientClosed):
        await producer.send_transaction("orders", b"x", local=Checker())


async def test_a_plain_producer_of_the_group_cannot_say(
    nameserver: NameServer,
    broker: Broker,
    make_producer: MakeProducer,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = await make_producer(nameserver.address, TransactionalProducer, check=Checker())
    async with producer.transaction("orders", b"x") as half:
        half.leave_open()
    await producer.close()
    plain = await make_producer(nameserver.address)
    await plain.send("orders", b"y")
    clients = broker.clients
    await wait_until(lambda: bool(clients.producers.get("senders")))
    await ask_back(broker, clock)
    await wait_until(lambda: any("can tell its outcome" in record.message for record in caplog.records))
    assert read(broker) == [b"y"]

"""A send backs off and tries again until its timeout, and returns up at once where trying again cannot help."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from eruca._client.produce import delivery
from eruca._client.produce.checks import Decision
from eruca._client.produce.history import History
from eruca._client.produce.outgoing import SendStatus
from eruca._client.produce.sending import Parcel, Sender
from eruca._client.produce.transactions import TransactionalProducer
from eruca._ground.backoff import Backoff
from eruca._nameserver.app import NameServer
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import ResponseCode
from eruca._wire.frame import Command
from eruca.errors import CallTimeout, NetError, NoRoute, RequestRefused, SendFailed
from tests.integration.broker.peer import find_port
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.unit.client.scripted import (
    DROP,
    SILENT,
    ScriptedBroker,
    ScriptedCluster,
    ScriptedNameServer,
    make_route_data,
    wait_until,
)

BUSY, UNAVAILABLE = int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.SERVICE_NOT_AVAILABLE)
NO_PERMISSION, ILLEGAL = int(ResponseCode.NO_PERMISSION), int(ResponseCode.MESSAGE_ILLEGAL)
# Far more than any of these tests needs, on a busy machine too.
PATIENT = 60


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between tries are short; this is what they were."""
    rest, kept = delivery._rest, []

    async def keep(pause_s: float, deadline: float) -> bool:
        kept.append(pause_s)
        return await rest(pause_s, deadline)

    monkeypatch.setattr(delivery, "_RETRIES", Backoff(0.001, 0.005))
    monkeypatch.setattr(delivery, "_rest", keep)
    return kept


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("step", [BUSY, UNAVAILABLE, DROP], ids=["busy", "unavailable", "connection-lost"])
async def test_failures_are_tried_again_as_long_as_there_is_time(
    scripted: ScriptedCluster, make_producer: MakeProducer, step: int | str
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, timeout=PATIENT)
    broker.script.extend([step] * 12)
    assert (await producer.send("orders", b"x")).status is SendStatus.STORED
    assert len(broker.sends) == 13
    assert len({header.properties for header, _ in broker.sends}) == 1  # all with the same id


async def test_a_broker_that_is_down_for_a_while(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, pauses: list[float]
) -> None:
    port = find_port()
    broker = await start_broker(port=port)
    producer = await make_producer(nameserver.address, timeout=PATIENT)
    await producer.send("orders", b"before")
    await broker.stop()
    sends = [asyncio.ensure_future(producer.send("orders", b"%d" % number)) for number in range(5)]
    await wait_until(lambda: len(pauses) >= 20)  # the broker is really away
    assert not any(send.done() for send in sends)
    await start_broker("broker-b", port=port)
    receipts = await asyncio.gather(*sends)
    assert [receipt.status for receipt in receipts] == [SendStatus.STORED] * 5


async def test_a_name_server_that_comes_later(
    scripted: ScriptedCluster, make_producer: MakeProducer, pauses: list[float]
) -> None:
    await scripted.add_broker()
    port = find_port()
    producer = await make_producer(f"127.0.0.1:{port}", timeout=PATIENT)
    sending = asyncio.ensure_future(producer.send("orders", b"x"))
    await wait_until(lambda: len(pauses) >= 5)
    assert not sending.done()
    late = ScriptedNameServer()
    late.server.settings.port = port
    late.topics["orders"] = scripted.add_topic("orders")
    await late.server.start()
    try:
        assert (await sending).status is SendStatus.STORED
    finally:
        await late.server.stop()


@pytest.mark.usefixtures("pauses")
async def test_a_broker_that_registers_later(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    producer = await make_producer(scripted.address, timeout=PATIENT)
    sending = asyncio.ensure_future(producer.send("orders", b"x"))
    await wait_until(lambda: scripted.nameserver.asked.count("*") >= 2)
    assert not sending.done()
    await scripted.add_broker()
    scripted.add_topic("orders")
    assert (await sending).status is SendStatus.STORED


async def test_what_a_send_waits_for_is_logged_once_and_at_once(
    scripted: ScriptedCluster, make_producer: MakeProducer, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    alone = await make_producer("127.0.0.1:1", group="other", timeout=PATIENT)
    producer = await make_producer(scripted.address, timeout=PATIENT)  # of a cluster without brokers
    with caplog.at_level("WARNING", "eruca"):
        sends = [asyncio.ensure_future(each.send("orders", b"x")) for each in (alone, alone, producer, producer)]
        await wait_until(lambda: len(pauses) >= 40)
        told = sorted(record.message.partition(";")[0] for record in caplog.records)
        assert told == ["the name servers cannot be reached", "topic orders cannot be reached"]
        assert "127.0.0.1:1" in caplog.text and "no broker is registered" in caplog.text
        await scripted.add_broker()
        scripted.add_topic("orders")
        await asyncio.gather(*sends[2:])
        assert "topic orders answers again" in caplog.text
    for send in sends[:2]:
        send.cancel()
    await asyncio.gather(*sends, return_exceptions=True)


@pytest.mark.usefixtures("pauses")
async def test_a_silent_broker_gets_more_time_with_each_try(
    scripted: ScriptedCluster, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, timeout=PATIENT, try_timeout=0.05)
    await producer.send("orders", b"x")  # it connects
    begin, given = Sender.begin, []

    def keep(self: Sender, parcel: Parcel, queue: MessageQueue, timeout_ms: float) -> Awaitable[Command]:
        given.append(timeout_ms)
        return begin(self, parcel, queue, timeout_ms)

    monkeypatch.setattr(Sender, "begin", keep)
    broker.script.extend([SILENT, SILENT])
    await producer.send("orders", b"y")
    assert given[:3] == [50, 100, 200]
    assert len({header.properties for header, body in broker.sends if body == b"y"}) == 1  # all with the same id


async def test_a_topic_that_nobody_knows_is_told_at_once(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    await scripted.add_broker()
    scripted.add_topic("others")
    producer = await make_producer(scripted.address, timeout=PATIENT)
    with pytest.raises(NoRoute, match="topic orders has no route"):
        await producer.send("orders", b"x")
    assert scripted.nameserver.asked.count("orders") == 1


@pytest.mark.parametrize("choose", [None, "shard"])
async def test_what_cannot_succeed_is_not_tried_again(
    scripted: ScriptedCluster, make_producer: MakeProducer, choose: str | None
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, timeout=PATIENT)
    for number, code in enumerate((ILLEGAL, NO_PERMISSION), 1):
        broker.script.append(code)
        with pytest.raises(SendFailed, match="after 1 try: broker broker-a refused: as the test wants"):
            await producer.send("orders", b"x", shard=choose)
        assert len(broker.sends) == number


async def test_another_broker_may_have_the_permission(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    brokers = [await scripted.add_broker("broker-a"), await scripted.add_broker("broker-b")]
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, timeout=PATIENT)
    brokers[0].script.append(NO_PERMISSION)
    for _ in range(8):  # some of them go to the first broker
        assert (await producer.send("orders", b"x")).status is SendStatus.STORED
    assert not brokers[0].script
    for broker in brokers:
        broker.script.append(NO_PERMISSION)
    with pytest.raises(SendFailed, match="after 2 tries"):
        await producer.send("orders", b"x")


@pytest.mark.usefixtures("pauses")
async def test_time_ends_the_tries(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, timeout=0.3)
    broker.script.extend([BUSY] * 10_000)
    with pytest.raises(SendFailed, match=r"after \d+ tries: broker broker-a refused: .*busy") as caught:
        await producer.send("orders", b"x")
    tries = len(broker.sends)
    assert tries > 3  # what two retries would have been
    assert caught.value.retryable
    assert len(caught.value.attempts) <= 20
    with pytest.raises(NetError, match="no name server answers"):
        await (await make_producer("127.0.0.1:1", group="other", timeout=0.1)).send("orders", b"x")


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize(("retries", "tries"), [(0, 1), (1, 2), (5, 6)])
async def test_retries_bound_the_tries(
    scripted: ScriptedCluster, make_producer: MakeProducer, retries: int, tries: int
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, timeout=PATIENT, retries=retries)
    broker.script.extend([BUSY] * 100)
    with pytest.raises(SendFailed, match=f"after {tries} tr"):
        await producer.send("orders", b"x")
    assert len(broker.sends) == tries
    alone = await make_producer("127.0.0.1:1", group="other", timeout=PATIENT, retries=retries)
    with pytest.raises(NetError, match="no name server answers"):
        await alone.send("orders", b"x")


async def test_other_brokers_are_tried_before_there_is_a_pause(
    scripted: ScriptedCluster, make_producer: MakeProducer, pauses: list[float]
) -> None:
    brokers = [await scripted.add_broker(f"broker-{letter}") for letter in "ab"]
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, timeout=PATIENT)
    for broker in brokers:
        broker.script.append(BUSY)
    with pytest.raises(SendFailed):
        await (await make_producer(scripted.address, group="one", timeout=PATIENT, retries=1)).send("orders", b"x")
    assert [len(broker.sends) for broker in brokers] == [1, 1] and pauses == []
    for broker in brokers:
        broker.script.extend([BUSY, BUSY])
    assert (await producer.send("orders", b"x")).status is SendStatus.STORED
    assert len(pauses) == 3  # after the second, third and fourth try


@pytest.mark.usefixtures("pauses")
async def test_a_copy_that_is_not_synced_is_sent_again_only_a_few_times(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, timeout=PATIENT, retry_when_not_synced=True)
    broker.script.extend([int(ResponseCode.SLAVE_NOT_AVAILABLE)] * 10)
    assert (await producer.send("orders", b"x")).status is SendStatus.SLAVE_NOT_AVAILABLE
    assert len(broker.sends) == 3


@pytest.mark.usefixtures("pauses")
async def test_a_half_message_waits_for_its_route_too(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    producer = await make_producer(
        scripted.address, TransactionalProducer, check=lambda _: Decision.UNKNOWN, timeout=PATIENT
    )
    sending = asyncio.ensure_future(producer.send_transaction("orders", b"x", local=lambda _: Decision.COMMIT))
    await wait_until(lambda: scripted.nameserver.asked.count("*") >= 3)
    assert not sending.done()
    broker: ScriptedBroker = await scripted.add_broker()
    scripted.nameserver.topics["orders"] = make_route_data({broker.name: broker.address})
    assert (await sending).decision is Decision.COMMIT


def test_the_reason_is_more_than_a_final_try_that_had_no_time() -> None:
    history, queue = History(), MessageQueue("broker-a", 99, "orders")
    history.add(queue, RequestRefused(1, "there is no queue 99"))
    history.add(queue, CallTimeout("127.0.0.1:10911 did not answer in time"))
    failure = history.explain("orders", 3000)
    assert "after 2 tries" in str(failure) and "there is no queue 99" in str(failure)
    assert failure.attempts[-1].endswith("did not answer in time")


def test_a_try_without_an_answer_is_the_reason_when_there_is_no_other() -> None:
    history = History()
    history.add(MessageQueue("broker-a", 0, "orders"), CallTimeout("127.0.0.1:10911 did not answer in time"))
    assert "did not answer in time" in str(history.explain("orders", 3000))

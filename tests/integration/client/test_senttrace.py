"""What producers tell the message trace and the program's telemetry, and that neither is traced itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from eruca._broker.app import Broker
from eruca._client.options import ClientOptions
from eruca._client.produce.checks import Decision
from eruca._client.produce.outgoing import Outgoing, Receipt
from eruca._client.produce.transactions import TransactionalProducer
from eruca._nameserver.app import NameServer
from eruca._observe.telemetry import Telemetry
from eruca._testing.clock import VirtualClock
from eruca._wire.batch import decode_batch
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import TRACE_TOPIC
from eruca._wire.properties import parse_properties
from eruca._wire.record import Record, user_body
from eruca._wire.trace import EndTransactionTrace, PubTrace, TracedKind, TraceRecord, decode_traces
from eruca.errors import MessageIllegal, SendFailed
from tests.integration.broker.delivery import stored
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.unit.client.scripted import ScriptedCluster, wait_until


def read_messages(broker: Broker, topic: str = TRACE_TOPIC) -> list[Record]:
    """The messages of a topic in the order they were stored: traces go every half a second, to queues in turn."""
    found = [message for queue_id in range(4) for message in stored(broker, topic, queue_id)]
    return sorted(found, key=lambda message: message.position)


def read_traces(broker: Broker, topic: str = TRACE_TOPIC) -> list[TraceRecord]:
    messages = read_messages(broker, topic)
    return [record for message in messages for record in decode_traces(user_body(message))]


async def test_every_stored_message_is_traced_once(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address, group="shop", trace=True)
    first = await producer.send("orders", b"hello", tags="vip", keys=["k1", "k2"])
    second = await producer.send("orders", b"later", delay_level=18)
    (batch,) = await producer.send_batch("orders", [b"1", b"2"])
    await producer.send_oneway("orders", b"who knows")
    await producer.close()
    traces = {record.message_id: record for record in read_traces(broker)}
    assert len(traces) == 3
    found = traces[first.message_id]
    assert isinstance(found, PubTrace)
    assert (found.group, found.topic, found.tags, found.keys) == ("shop", "orders", "vip", "k1 k2")
    assert (found.body_bytes, found.kind, found.success) == (5, TracedKind.NORMAL, True)
    assert (found.offset_message_id, found.region) == (first.offset_id, "DefaultRegion")
    assert found.store_host == broker.standing.address
    assert traces[second.message_id].kind == TracedKind.DELAY  # type: ignore[union-attr]
    assert batch.message_id in traces
    (message, *_) = read_messages(broker)
    assert {"k1", "k2", first.message_id} <= set((message.get_property("KEYS") or "").split(" "))


async def test_a_topic_of_one_s_own_and_names_in_a_namespace(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    options = ClientOptions(ip="127.0.0.1", namespace="shop")
    producer = await make_producer(nameserver.address, group="g", trace="my-trace", options=options)
    await producer.send("orders", b"x")
    await producer.close()
    (record,) = read_traces(broker, "my-trace")
    assert isinstance(record, PubTrace)
    assert (record.topic, record.group) == ("orders", "g")


async def test_a_broker_that_wants_no_traces_gets_none(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker(trace_on=False)
    producer = await make_producer(nameserver.address, trace=True)
    receipt = await producer.send("orders", b"x")
    assert not receipt.trace_on
    await producer.close()
    assert read_traces(broker) == []


async def test_failures_and_lost_traces_are_nobody_s_problem(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, trace=True, retries=0)
    broker.script.append(13)
    with pytest.raises(SendFailed):
        await producer.send("orders", b"x")
    await producer.send("orders", b"y")
    await producer.close()  # the trace topic has no route here
    assert broker.bodies == [b"x", b"y"]


async def test_what_became_of_transactions_is_traced(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    clock = VirtualClock()
    broker = await start_broker(clock=clock, transaction_check_interval_ms=3_600_000)
    producer = await make_producer(
        nameserver.address, TransactionalProducer, check=lambda message: Decision.ROLLBACK, trace=True, group="payers"
    )

    async def work(receipt: Receipt) -> Decision:
        return Decision.COMMIT

    committed = await producer.send_transaction("orders", b"x", local=work, tags="t", keys="k")
    async with producer.transaction("orders", b"y") as half:
        half.leave_open()
    clock.advance(6001)
    await broker.checks.run_pass()
    await wait_until(lambda: not producer._checks._tasks and len(stored(broker, "RMQ_SYS_TRANS_OP_HALF_TOPIC")) >= 2)
    await producer.close()
    traces = read_traces(broker)
    kinds = [record.kind for record in traces if isinstance(record, PubTrace)]
    assert kinds == [TracedKind.HALF, TracedKind.HALF]
    ends = [record for record in traces if isinstance(record, EndTransactionTrace)]
    assert [(end.state, end.from_check) for end in ends] == [
        ("COMMIT_MESSAGE", False),
        ("UNKNOW", False),
        ("ROLLBACK_MESSAGE", True),
    ]
    assert (ends[0].message_id, ends[0].topic, ends[0].tags, ends[0].keys, ends[0].store_host, ends[0].group) == (
        committed.receipt.message_id,
        "orders",
        "t",
        "k",
        broker.standing.address,
        "payers",
    )
    assert ends[2].message_id == half.transaction_id


# --- telemetry ------------------------------------------------------------------------------------------------------


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans of a program that has set a provider."""
    exporter = InMemorySpanExporter()
    tracers, meters = TracerProvider(), MeterProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("eruca._client.produce.engine.find_telemetry", lambda: Telemetry(tracers, meters))
    yield exporter
    tracers.shutdown()
    meters.shutdown()


async def test_a_send_is_a_span_and_its_context_travels(
    scripted: ScriptedCluster, make_producer: MakeProducer, spans: InMemorySpanExporter
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, group="shop")
    broker.script.append(2)
    receipt = await producer.send("orders", b"hello", tags="vip", keys=["k1", "k2"], properties={"a": "b"})
    (span,) = spans.get_finished_spans()
    attributes = dict(span.attributes or {})
    assert span.name == "send orders"
    assert attributes["messaging.message.id"] == receipt.message_id
    assert attributes["messaging.rocketmq.message.tag"] == "vip"
    assert attributes["messaging.message.body.size"] == 5
    assert attributes["server.port"] == int(broker.address.rpartition(":")[2])
    assert attributes["messaging.destination.partition.id"] == str(receipt.queue.queue_id)
    assert span.context is not None
    for header, _ in broker.sends:
        properties = parse_properties(header.properties or "")
        assert properties["traceparent"].split("-")[1:3] == [
            f"{span.context.trace_id:032x}",
            f"{span.context.span_id:016x}",
        ]
        assert (properties["a"], properties["KEYS"]) == ("b", "k1 k2")


async def test_a_context_the_user_gave_stays(
    scripted: ScriptedCluster, make_producer: MakeProducer, spans: InMemorySpanExporter
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address)
    mine = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await producer.send("orders", b"x", properties={"traceparent": mine})
    await producer.send_batch("orders", [Outgoing(b"1", properties={"traceparent": mine}), Outgoing(b"2"), b"3"])
    assert parse_properties(broker.sends[0][0].properties or "")["traceparent"] == mine
    items = [parse_properties(item.properties) for item in decode_batch(broker.bodies[1])]
    assert items[0]["traceparent"] == mine
    assert items[1]["traceparent"] == items[2]["traceparent"] != mine
    assert [span.name for span in spans.get_finished_spans()] == ["send orders", "send orders"]
    assert dict(spans.get_finished_spans()[1].attributes or {})["messaging.batch.message_count"] == 3


async def test_every_span_ends_also_when_the_send_fails(
    scripted: ScriptedCluster, make_producer: MakeProducer, spans: InMemorySpanExporter
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, retries=0)
    with pytest.raises(MessageIllegal):
        await producer.send("orders", b"x", properties={"TAGS": "t"})
    assert spans.get_finished_spans() == ()
    broker.script.extend([13, 13])
    with pytest.raises(SendFailed):
        await producer.send("orders", b"x")
    with pytest.raises(SendFailed):
        await producer.send_batch("orders", [b"x"])
    await producer.send_oneway("orders", b"x")
    # What is refused when it is passed is not a send.
    with pytest.raises(MessageIllegal):
        await producer.send_batch("orders", [Outgoing(b"x", delay=3)])
    ended = spans.get_finished_spans()
    assert [(span.attributes or {}).get("error.type") for span in ended] == ["SendFailed", "SendFailed", None]
    assert [span.status.status_code is StatusCode.ERROR for span in ended] == [True, True, False]


async def test_a_queue_that_is_full_ends_its_span_too(
    scripted: ScriptedCluster, make_producer: MakeProducer, spans: InMemorySpanExporter
) -> None:
    await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, in_flight_max=1)
    assert producer._engine.window.try_enter(1)
    with pytest.raises(SendFailed, match="no room in the send window"):
        await producer.send("orders", b"x", timeout=0.02, queue=MessageQueue("broker-a", 0, "orders"))
    producer._engine.window.leave(1)
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR

"""Spans and metrics by the messaging conventions, and the silence without a provider."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from eruca._observe.telemetry import DURATION_BOUNDS, Telemetry

SERVER = "10.0.0.7:10911"
BROKER = {"server.address": "10.0.0.7", "server.port": 10911}
COMMON = {"messaging.system": "rocketmq", "messaging.destination.name": "orders"}
SEND = COMMON | {"messaging.operation.type": "send", "messaging.operation.name": "send"}
PROCESS = COMMON | {
    "messaging.operation.type": "process",
    "messaging.operation.name": "process",
    "messaging.consumer.group.name": "billing",
}
RECEIVE = PROCESS | {"messaging.operation.type": "receive", "messaging.operation.name": "receive"}


class Collected:
    """A telemetry, and what came of it."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])
        self.telemetry = Telemetry(self.tracers, self.meters)
        self.tracer = self.tracers.get_tracer("program")

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()

    @property
    def spans(self) -> list[ReadableSpan]:
        """Spans that are over, in that order."""
        return list(self._exporter.get_finished_spans())

    def list_points(self, name: str) -> list[Any]:
        """The data points of one metric."""
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        assert all(scope.scope.name == "eruca" for scope in scopes)
        return [
            point
            for scope in scopes
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def count(self, name: str) -> list[tuple[dict[str, Any], int]]:
        """Labels and values of a counter."""
        return [(dict(point.attributes), point.value) for point in self.list_points(name)]

    def time(self, name: str) -> list[tuple[dict[str, Any], int]]:
        """Labels and counts of a histogram, which has the bounds of the conventions."""
        points = self.list_points(name)
        assert all(point.explicit_bounds == DURATION_BOUNDS for point in points)
        return [(dict(point.attributes), point.count) for point in points]


@pytest.fixture
def collected() -> Iterator[Collected]:
    made = Collected()
    yield made
    made.close()


def describe(span: ReadableSpan) -> dict[str, Any]:
    """What a span says, without the messaging system and topic that all have."""
    return {name: value for name, value in (span.attributes or {}).items() if name not in COMMON}


def identify(span: ReadableSpan) -> str:
    """The context of a span as it travels."""
    context = span.context
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def list_links(span: ReadableSpan) -> list[str]:
    """The contexts a span links to, as they travel."""
    return [
        f"00-{link.context.trace_id:032x}-{link.context.span_id:016x}-{link.context.trace_flags:02x}"
        for link in span.links
    ]


# --- producers ----------------------------------------------------------------------------------------------------


def test_a_send(collected: Collected) -> None:
    properties = {"UNIQ_KEY": "id-0", "TAGS": "vip", "KEYS": "o-1 o-2", "mine": "kept"}
    operation = collected.telemetry.start_send("orders", "shop", properties, body_bytes=12)
    assert collected.spans == []
    collected.telemetry.end_send(operation, server=SERVER, queue_id=3)
    (span,) = collected.spans
    assert (span.name, span.kind, span.status.status_code) == ("send orders", SpanKind.PRODUCER, StatusCode.UNSET)
    assert span.attributes == SEND | BROKER | {
        "messaging.rocketmq.client_group": "shop",
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "vip",
        "messaging.rocketmq.message.keys": ("o-1", "o-2"),
        "messaging.message.id": "id-0",
        "messaging.message.body.size": 12,
        "messaging.destination.partition.id": "3",
    }
    assert properties == {
        "UNIQ_KEY": "id-0",
        "TAGS": "vip",
        "KEYS": "o-1 o-2",
        "mine": "kept",
        "traceparent": identify(span),
    }
    assert collected.count("messaging.client.sent.messages") == [(SEND | BROKER, 1)]
    assert collected.time("messaging.client.operation.duration") == [(SEND | BROKER, 1)]
    (point,) = collected.list_points("messaging.client.operation.duration")
    assert span.end_time is not None
    assert span.start_time is not None
    assert point.sum == pytest.approx((span.end_time - span.start_time) / 1e9)


def test_a_send_is_a_child_of_the_current_span(collected: Collected) -> None:
    with collected.tracer.start_as_current_span("request") as request:
        collected.telemetry.end_send(collected.telemetry.start_send("orders", "shop", {}))
    send = collected.spans[0]
    assert send.parent == request.get_span_context()


@pytest.mark.parametrize(
    ("properties", "more"),
    [
        ({"DELAY": "3"}, {"type": "delay", "delay_time_level": 3}),
        ({"DELAY": "0"}, {"type": "normal"}),
        ({"DELAY": "soon"}, {"type": "normal"}),
        ({"DELAY": "9" * 40}, {"type": "delay", "delay_time_level": 999_999_999}),
        ({"TRAN_MSG": "true"}, {"type": "transaction"}),
        ({"__SHARDINGKEY": "customer-7"}, {"type": "fifo", "group": "customer-7"}),
    ],
)
def test_kinds_of_messages(collected: Collected, properties: dict[str, str], more: dict[str, Any]) -> None:
    collected.telemetry.end_send(collected.telemetry.start_send("orders", "shop", dict(properties)))
    prefix = "messaging.rocketmq.message."
    said = {name.removeprefix(prefix): value for name, value in describe(collected.spans[0]).items() if prefix in name}
    assert said == more


def test_a_batch_shares_a_span(collected: Collected) -> None:
    batch = [{"UNIQ_KEY": f"id-{number}", "TAGS": "vip"} for number in range(3)]
    operation = collected.telemetry.start_send("orders", "shop", *batch, body_bytes=12)
    collected.telemetry.end_send(operation, message_id="id-0,id-1,id-2")
    (span,) = collected.spans
    assert span.attributes == SEND | {"messaging.rocketmq.client_group": "shop", "messaging.batch.message_count": 3}
    assert {each["traceparent"] for each in batch} == {identify(span)}
    assert collected.count("messaging.client.sent.messages") == [(SEND, 3)]


def test_a_context_that_is_there_stays(collected: Collected) -> None:
    theirs = f"00-{'a' * 32}-{'b' * 16}-01"
    properties = {"traceparent": theirs, "tracestate": "x=1"}
    collected.telemetry.end_send(collected.telemetry.start_send("orders", "shop", properties))
    (span,) = collected.spans
    assert properties == {"traceparent": theirs, "tracestate": "x=1"}
    assert list_links(span) == [theirs]
    assert span.kind == SpanKind.CLIENT


def test_a_failed_send(collected: Collected) -> None:
    operation = collected.telemetry.start_send("orders", "shop", {})
    collected.telemetry.end_send(operation, message_id="id-0", error=TimeoutError("no answer in 3 s"))
    (span,) = collected.spans
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "no answer in 3 s")
    assert describe(span)["error.type"] == "TimeoutError"
    assert describe(span)["messaging.message.id"] == "id-0"
    failed = SEND | {"error.type": "TimeoutError"}
    assert collected.count("messaging.client.sent.messages") == [(failed, 1)]
    assert collected.time("messaging.client.operation.duration") == [(failed, 1)]


@pytest.mark.parametrize(
    ("server", "attributes"),
    [
        ("", {}),
        ("broker", {"server.address": "broker"}),
        ("broker:10911", {"server.address": "broker", "server.port": 10911}),
        ("[::1]:10911", {"server.address": "::1", "server.port": 10911}),
    ],
)
def test_servers(collected: Collected, server: str, attributes: dict[str, Any]) -> None:
    collected.telemetry.end_send(collected.telemetry.start_send("orders", "shop", {}), server=server)
    assert collected.count("messaging.client.sent.messages") == [(SEND | attributes, 1)]


# --- consumers ----------------------------------------------------------------------------------------------------


def send(collected: Collected, **properties: str) -> tuple[dict[str, str], ReadableSpan]:
    """The properties of a message that was sent, and the span of that."""
    operation = collected.telemetry.start_send("orders", "shop", properties)
    collected.telemetry.end_send(operation)
    return properties, collected.spans[-1]


async def test_a_handler_is_a_child_of_the_send(collected: Collected) -> None:
    properties, sent = send(collected, UNIQ_KEY="id-0", TAGS="vip")

    async def handle() -> None:
        await asyncio.sleep(0)
        with collected.tracer.start_as_current_span("work"):
            pass

    with collected.telemetry.process("orders", "billing", properties, server=SERVER, queue_id=2):
        await handle()
    _, work, span = collected.spans
    assert (span.name, span.kind, span.status.status_code) == ("process orders", SpanKind.CONSUMER, StatusCode.UNSET)
    assert span.attributes == PROCESS | BROKER | {
        "messaging.rocketmq.client_group": "billing",
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "vip",
        "messaging.message.id": "id-0",
        "messaging.destination.partition.id": "2",
    }
    assert span.parent is not None
    assert sent.context is not None
    assert (span.parent.trace_id, span.parent.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert list_links(span) == [identify(sent)]
    assert work.parent == span.context
    assert not trace.get_current_span().get_span_context().is_valid
    assert collected.count("messaging.client.consumed.messages") == [(PROCESS | BROKER, 1)]
    assert collected.time("messaging.process.duration") == [(PROCESS | BROKER, 1)]


def test_the_state_of_a_trace_goes_along(collected: Collected) -> None:
    properties = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "vendor=7"}
    forwarded: dict[str, str] = {}
    with collected.telemetry.process("orders", "billing", properties):
        collected.telemetry.end_send(collected.telemetry.start_send("bills", "billing", forwarded))
    assert forwarded["traceparent"].startswith(f"00-{'a' * 32}-")
    assert forwarded["tracestate"] == "vendor=7"


def test_a_batch_of_messages_links_to_every_send(collected: Collected) -> None:
    first, sent_first = send(collected, UNIQ_KEY="id-0")
    second, sent_second = send(collected, UNIQ_KEY="id-1")
    with collected.telemetry.process("orders", "billing", first, {"UNIQ_KEY": "id-2"}, second):
        pass
    span = collected.spans[-1]
    assert span.parent is None
    assert list_links(span) == [identify(sent_first), identify(sent_second)]
    assert [dict(link.attributes or {}) for link in span.links] == [
        {"messaging.message.id": "id-0"},
        {"messaging.message.id": "id-1"},
    ]
    assert describe(span)["messaging.batch.message_count"] == 3
    assert collected.count("messaging.client.consumed.messages") == [(PROCESS, 3)]


def test_a_span_at_work_is_the_parent(collected: Collected) -> None:
    properties, sent = send(collected)
    with (
        collected.tracer.start_as_current_span("request") as request,
        collected.telemetry.process("orders", "billing", properties),
    ):
        pass
    span = collected.spans[1]
    assert span.parent == request.get_span_context()
    assert list_links(span) == [identify(sent)]


async def test_a_span_that_is_over_is_no_parent(collected: Collected) -> None:
    properties, sent = send(collected)
    go = asyncio.Event()

    async def consume() -> None:
        await go.wait()
        for given in (properties, {}):
            with collected.telemetry.process("orders", "billing", given):
                pass

    with collected.tracer.start_as_current_span("start of the program"):
        task = asyncio.create_task(consume())
    go.set()
    await task
    child, root = collected.spans[2:]
    assert child.parent is not None
    assert sent.context is not None
    assert child.parent.span_id == sent.context.span_id
    assert root.parent is None


def test_what_is_not_sampled_stays_so(collected: Collected) -> None:
    silent = TracerProvider(ParentBased(ALWAYS_OFF))
    telemetry = Telemetry(silent, NoOpMeterProvider())
    properties: dict[str, str] = {}
    telemetry.end_send(telemetry.start_send("orders", "shop", properties))
    assert not int(properties["traceparent"][-2:], 16) & trace.TraceFlags.SAMPLED
    with collected.telemetry.process("orders", "billing", properties):
        pass
    assert collected.spans == []
    silent.shutdown()


def test_a_handler_that_raises(collected: Collected) -> None:
    with pytest.raises(ZeroDivisionError), collected.telemetry.process("orders", "billing", {}):
        print(1 // 0)
    (span,) = collected.spans
    assert span.status.status_code == StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]
    failed = PROCESS | {"error.type": "ZeroDivisionError"}
    assert collected.time("messaging.process.duration") == [(failed, 1)]
    assert collected.count("messaging.client.consumed.messages") == [(failed, 1)]


def test_a_handler_that_says_no(collected: Collected) -> None:
    with collected.telemetry.process("orders", "billing", {}) as operation:
        operation.fail("later")
    (span,) = collected.spans
    assert span.status.status_code == StatusCode.ERROR
    assert collected.time("messaging.process.duration") == [(PROCESS | {"error.type": "later"}, 1)]


@pytest.mark.parametrize("broken", ["", "nonsense", f"00-{'0' * 32}-{'b' * 16}-01", "00-\ud800"])
def test_a_broken_context_is_none(collected: Collected, broken: str) -> None:
    with (
        collected.tracer.start_as_current_span("request") as request,
        collected.telemetry.process("orders", "billing", {"traceparent": broken}),
    ):
        pass
    assert collected.spans[0].links == ()
    assert collected.spans[0].parent == request.get_span_context()
    with collected.telemetry.process("orders", "billing", {"traceparent": broken}):
        pass
    assert collected.spans[2].parent is None


def test_messages_that_a_program_fetched(collected: Collected) -> None:
    first, sent_first = send(collected, UNIQ_KEY="id-0")
    second, sent_second = send(collected, UNIQ_KEY="id-1")
    collected.telemetry.receive("orders", "billing", first, second, seconds=0.5, server=SERVER, queue_id=1)
    span = collected.spans[-1]
    assert (span.name, span.kind) == ("receive orders", SpanKind.CLIENT)
    assert list_links(span) == [identify(sent_first), identify(sent_second)]
    assert span.attributes == RECEIVE | BROKER | {
        "messaging.rocketmq.client_group": "billing",
        "messaging.batch.message_count": 2,
        "messaging.destination.partition.id": "1",
    }
    assert span.end_time is not None
    assert span.start_time is not None
    assert 0.5e9 <= span.end_time - span.start_time < 5e9
    assert collected.count("messaging.client.consumed.messages") == [(RECEIVE | BROKER, 2)]
    assert (RECEIVE | BROKER, 1) in collected.time("messaging.client.operation.duration")


def test_fetching_nothing_is_not_told_and_failing_is(collected: Collected) -> None:
    collected.telemetry.receive("orders", "billing", seconds=15.0)
    assert collected.spans == []
    collected.telemetry.receive("orders", "billing", seconds=0.1, error=ConnectionError("gone"))
    assert describe(collected.spans[0])["error.type"] == "ConnectionError"
    assert collected.count("messaging.client.consumed.messages") == []
    failed = RECEIVE | {"error.type": "ConnectionError"}
    assert collected.time("messaging.client.operation.duration") == [(failed, 1)]


def test_settling(collected: Collected) -> None:
    properties, sent = send(collected, UNIQ_KEY="id-0")
    collected.telemetry.settle("ack", "orders", "billing", properties, seconds=0.01, server=SERVER)
    span = collected.spans[-1]
    assert (span.name, span.kind) == ("ack orders", SpanKind.CLIENT)
    assert list_links(span) == [identify(sent)]
    labels = RECEIVE | BROKER | {"messaging.operation.type": "settle", "messaging.operation.name": "ack"}
    assert labels.items() <= dict(span.attributes or {}).items()
    assert (labels, 1) in collected.time("messaging.client.operation.duration")


# --- without a provider -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("", False),
        ("sys.modules['opentelemetry'] = None", False),
        ("import opentelemetry.trace, opentelemetry.metrics", False),
        ("from opentelemetry import trace; trace.set_tracer_provider(trace.NoOpTracerProvider())", False),
        (
            "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider;"
            "trace.set_tracer_provider(TracerProvider())",
            True,
        ),
        (
            "from opentelemetry import metrics; from opentelemetry.sdk.metrics import MeterProvider;"
            "metrics.set_meter_provider(MeterProvider())",
            True,
        ),
    ],
    ids=["not loaded", "not installed", "not set", "set to nothing", "spans", "metrics"],
)
def test_telemetry_is_found_when_a_provider_is_set(before: str, found: bool) -> None:
    code = (
        f"import sys\n{before}\nloaded = 'opentelemetry.trace' in sys.modules\n"
        "from eruca._observe.telemetry import find_telemetry\ntelemetry = find_telemetry()\n"
        "assert loaded == ('opentelemetry.trace' in sys.modules)\n"
        "if telemetry:\n"
        "    properties = {}\n"
        "    telemetry.end_send(telemetry.start_send('orders', 'shop', properties))\n"
        "    with telemetry.process('orders', 'billing', properties): pass\n"
        "print(telemetry is not None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (str(found), "")

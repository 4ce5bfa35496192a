"""OpenTelemetry spans and metrics of a client by the messaging conventions, for programs that have set a provider.

`find_telemetry` returns None unless the program has loaded the API and set a provider of spans or metrics, so that all
other programs pay only for one `if`. The context of a send travels in the user properties `traceparent` and
`tracestate`. A handler's span links to the sends of its messages; with one message, and no other active span, it is
also a child of the send, so that both appear in one trace.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, SpanKind, TracerProvider
    from opentelemetry.util.types import AttributeValue

Attributes: TypeAlias = "dict[str, AttributeValue]"
Properties: TypeAlias = Mapping[str, str]
Failure: TypeAlias = BaseException | str

# The buckets that the conventions advise for both durations, in seconds.
DURATION_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

_TRACEPARENT: Final = "traceparent"


def find_telemetry() -> Telemetry | None:
    """Return a reporter for the providers that the program has set, or None if it has set none.

    Clients call this once, when they start: a provider set later is not seen.
    """
    if "opentelemetry" not in sys.modules:
        return None  # no provider can be set, and the import takes longer than the rest of a client
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        return None
    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    return Telemetry(tracers, meters) if _is_set(tracers) or _is_set(meters) else None


def _is_set(provider: object) -> bool:
    """Whether it is a real provider. The API has its own placeholders for when there is none."""
    return not type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


class Operation:
    """An active span, and the labels of its metrics."""

    __slots__ = ("count", "error_type", "labels", "span", "started_ns", "ticks_ns")

    def __init__(self, span: Span, labels: Attributes, count: int, started_ns: int) -> None:
        self.span = span
        self.labels = labels
        self.count = count
        self.error_type: str | None = None
        self.started_ns = started_ns
        self.ticks_ns = time.perf_counter_ns()

    def fail(self, error: Failure) -> None:
        """Mark it as failed: with an exception, or with one of a few words for other failures."""
        from opentelemetry.trace import StatusCode

        self.error_type = error if isinstance(error, str) else type(error).__qualname__
        self.span.set_status(StatusCode.ERROR, str(error))

    def end(self) -> float:
        """End the span; return the seconds it took."""
        elapsed_ns = time.perf_counter_ns() - self.ticks_ns
        if self.error_type is not None:
            self.labels["error.type"] = self.error_type
            self.span.set_attribute("error.type", self.error_type)
        self.span.end(self.started_ns + elapsed_ns)
        return elapsed_ns / 1e9


class Telemetry:
    """Reports the operations of one client. Messages are passed as their properties; a server is `host:port`."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        from eruca import __version__

        self._api = trace
        self._tracer = tracers.get_tracer("eruca", __version__)
        meter = meters.get_meter("eruca", __version__)
        self._propagator = TraceContextTextMapPropagator()
        # Extracting a broken context returns the base context unchanged; this one never has a span.
        self._nothing = Context()
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Number of messages producer attempted to send to the broker.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Number of messages that were delivered to the application.",
        )
        self._operation_seconds = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )
        self._process_seconds = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of processing operation.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )

    # -- producers ---------------------------------------------------------------------------------------------------

    def start_send(
        self, topic: str, group: str, *properties: dict[str, str], body_bytes: int | None = None
    ) -> Operation:
        """Start the send of a message or batch: puts the context into the properties.

        A message that already has a context keeps it; the span then links to it.
        """
        fresh = [each for each in properties if _TRACEPARENT not in each]
        kind = self._api.SpanKind.PRODUCER if fresh else self._api.SpanKind.CLIENT
        labels = _label("send", "send", topic)
        attributes = labels | _describe(properties, group, None)
        if body_bytes is not None and len(properties) == 1:
            attributes["messaging.message.body.size"] = body_bytes
        operation = self._start(kind, f"send {topic}", attributes, labels, properties)
        context = self._api.set_span_in_context(operation.span)
        for each in fresh:
            self._propagator.inject(each, context)
        return operation

    def end_send(
        self,
        operation: Operation,
        *,
        server: str = "",
        queue_id: int | None = None,
        message_id: str | None = None,
        error: Failure | None = None,
    ) -> None:
        """End a send, after any retries, with the broker that was asked last."""
        span, server_attributes = operation.span, _parse_server(server)
        span.set_attributes(server_attributes)
        if queue_id is not None:
            span.set_attribute("messaging.destination.partition.id", str(queue_id))
        if message_id is not None and operation.count == 1:
            span.set_attribute("messaging.message.id", message_id)
        operation.labels |= server_attributes
        if error is not None:
            operation.fail(error)
        self._operation_seconds.record(operation.end(), operation.labels)
        self._sent.add(operation.count, operation.labels)

    # -- consumers ---------------------------------------------------------------------------------------------------

    @contextmanager
    def process(
        self, topic: str, group: str, *properties: Properties, server: str = "", queue_id: int | None = None
    ) -> Iterator[Operation]:
        """Wrap a handler's call: its span is current inside, and an exception is reported and re-raised.

        Call `fail` on the result if the handler reports a failure without an exception.
        """
        labels = _label("process", "process", topic, group, server)
        attributes = labels | _describe(properties, group, queue_id)
        parent = self._find_parent(properties)
        operation = self._start(
            self._api.SpanKind.CONSUMER, f"process {topic}", attributes, labels, properties, parent=parent
        )
        try:
            with self._api.use_span(operation.span, record_exception=False, set_status_on_exception=False):
                yield operation
        except BaseException as error:
            operation.span.record_exception(error)
            operation.fail(error)
            raise
        finally:
            self._process_seconds.record(operation.end(), operation.labels)
            self._consumed.add(operation.count, operation.labels)

    def receive(
        self,
        topic: str,
        group: str,
        *properties: Properties,
        seconds: float,
        server: str = "",
        queue_id: int | None = None,
        error: Failure | None = None,
    ) -> None:
        """Report that a program fetched messages itself, or failed to; an empty result is not reported.

        What a consumer fetches ahead for its handlers is reported by `process` alone.
        """
        if properties or error is not None:
            labels = _label("receive", "receive", topic, group, server)
            self._report(labels, _describe(properties, group, queue_id), properties, seconds, error)
        if properties:
            self._consumed.add(len(properties), labels)

    def settle(
        self,
        name: str,
        topic: str,
        group: str,
        *properties: Properties,
        seconds: float,
        server: str = "",
        queue_id: int | None = None,
        error: Failure | None = None,
    ) -> None:
        """Report that the broker was told the outcome of messages; the name is `ack`, `retry`, `commit` or similar."""
        labels = _label("settle", name, topic, group, server)
        self._report(labels, _describe(properties, group, queue_id), properties, seconds, error)

    def _report(
        self,
        labels: Attributes,
        attributes: Attributes,
        properties: Sequence[Properties],
        seconds: float,
        error: Failure | None,
    ) -> None:
        """Report a completed operation."""
        name = f"{labels['messaging.operation.name']!s} {labels['messaging.destination.name']!s}"
        kind, elapsed_ns = self._api.SpanKind.CLIENT, int(seconds * 1e9)
        operation = self._start(kind, name, labels | attributes, labels, properties, elapsed_ns=elapsed_ns)
        if error is not None:
            operation.fail(error)
        self._operation_seconds.record(operation.end(), labels)

    # -- both --------------------------------------------------------------------------------------------------------

    def _start(
        self,
        kind: SpanKind,
        name: str,
        attributes: Attributes,
        labels: Attributes,
        properties: Sequence[Properties],
        *,
        parent: Context | None = None,
        elapsed_ns: int = 0,
    ) -> Operation:
        started_ns = time.time_ns() - elapsed_ns
        links = self._list_links(properties)
        span = self._tracer.start_span(name, parent, kind, attributes, links, started_ns)
        operation = Operation(span, labels, len(properties), started_ns)
        operation.ticks_ns -= elapsed_ns
        return operation

    def _list_links(self, properties: Sequence[Properties]) -> list[Link]:
        """Return a link to the send of every message that carries its context."""
        links = []
        for each in properties:
            if _TRACEPARENT not in each:
                continue
            context = self._api.get_current_span(self._propagator.extract(each, self._nothing)).get_span_context()
            if context.is_valid:
                message_id = each.get("UNIQ_KEY")
                tell = message_id is not None and len(properties) > 1
                links.append(self._api.Link(context, {"messaging.message.id": message_id or ""} if tell else None))
        return links

    def _find_parent(self, properties: Sequence[Properties]) -> Context | None:
        """Return the parent context of a handler's span; None is the current one."""
        current = self._api.get_current_span()
        context = current.get_span_context()
        # A task inherits the span in which its client was started, which has ended and makes no sense as a parent.
        over = context.trace_flags.sampled and not context.is_remote and not current.is_recording()
        if context.is_valid and not over:
            return None
        root = self._api.set_span_in_context(self._api.INVALID_SPAN)
        return self._propagator.extract(properties[0], root) if len(properties) == 1 else root


# --- attributes ---------------------------------------------------------------------------------------------------


def _label(kind: str, name: str, topic: str, group: str = "", server: str = "") -> Attributes:
    """Return the attributes that spans and metrics share, with few values. The group is that of a consumer."""
    labels: Attributes = {
        "messaging.system": "rocketmq",
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
        "messaging.destination.name": topic,
        **_parse_server(server),
    }
    if group:
        labels["messaging.consumer.group.name"] = group
    return labels


def _describe(properties: Sequence[Properties], group: str, queue_id: int | None) -> Attributes:
    """Return the attributes that only spans have."""
    # The conventions have a newer name for a consumer's group, and none for a producer's.
    attributes: Attributes = {"messaging.rocketmq.client_group": group}
    if queue_id is not None:
        attributes["messaging.destination.partition.id"] = str(queue_id)
    if len(properties) == 1:
        return attributes | _describe_message(properties[0])
    attributes["messaging.batch.message_count"] = len(properties)
    return attributes


def _describe_message(properties: Properties) -> Attributes:
    attributes: Attributes = {"messaging.rocketmq.message.type": "normal"}
    if message_id := properties.get("UNIQ_KEY"):
        attributes["messaging.message.id"] = message_id
    if tag := properties.get("TAGS"):
        attributes["messaging.rocketmq.message.tag"] = tag
    if keys := properties.get("KEYS"):
        attributes["messaging.rocketmq.message.keys"] = keys.split()
    if shard := properties.get("__SHARDINGKEY"):
        attributes["messaging.rocketmq.message.type"] = "fifo"
        attributes["messaging.rocketmq.message.group"] = shard
    level = properties.get("DELAY", "")
    # The sender may have written anything, and exporters reject numbers beyond 64 bits.
    if level.isdecimal() and int(level[:9]) > 0:
        attributes["messaging.rocketmq.message.type"] = "delay"
        attributes["messaging.rocketmq.message.delay_time_level"] = int(level[:9])
    if properties.get("TRAN_MSG") == "true":
        attributes["messaging.rocketmq.message.type"] = "transaction"
    if conversation := properties.get("CORRELATION_ID"):
        attributes["messaging.message.conversation_id"] = conversation
    return attributes


@lru_cache(maxsize=1024)
def _parse_server(server: str) -> Mapping[str, str | int]:
    host, _, port = server.rpartition(":")
    if not port.isdecimal():
        return {"server.address": server} if server else {}
    return {"server.address": host.strip("[]"), "server.port": int(port)}

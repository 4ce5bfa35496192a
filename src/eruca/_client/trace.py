"""Message trace: what producers and consumers did, sent to the trace topic in the background.

`SendTrace` and `ConsumeTrace` are hooks of a producer and of a consumer. They write records for a `TraceDispatcher`,
which sends many of them in one message. A trace never delays or fails what it traces.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

from eruca._client.message import Message, Outcome
from eruca._client.namespaces import unwrap
from eruca._client.produce.outgoing import Receipt, build_properties
from eruca._client.produce.sending import Parcel, Sender
from eruca._client.session.session import Session
from eruca._ground.clock import Clock
from eruca._ground.limits import GROUP_BYTES_MAX, PROPERTIES_BYTES_MAX
from eruca._net.guards import Reporter
from eruca._wire.bodies import MessageQueue
from eruca._wire.headers import EndTransactionHeader
from eruca._wire.names import TRACE_TOPIC
from eruca._wire.properties import DELAY, KEYS, MSG_REGION, TAGS, TRACE_ON, TRAN_MSG, parse_properties
from eruca._wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from eruca._wire.trace import (
    EndTransactionTrace,
    PubTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TracedKind,
    TracedOutcome,
    TraceRecord,
    encode_trace,
    list_trace_keys,
)
from eruca.errors import ErucaError, NetError, NoRoute, RequestRefused

log = logging.getLogger(__name__)

# Java stops trying to send a trace message after the same time.
_SEND_SECONDS_MAX = 5.0
# How long a cancelled task may take to end.
_GOODBYE_SECONDS = 1.0
# The keys of a trace message share its properties with its id and others. Java does not check this: the broker rejects
# a body full of short records with long keys.
_KEYS_BYTES_MAX = PROPERTIES_BYTES_MAX - 2048
# How many times a trace message is tried, and how long each try may take.
_TRIES = 3
_TIMEOUT_MS = 5000
_STATES = {TRANSACTION_COMMIT: "COMMIT_MESSAGE", TRANSACTION_ROLLBACK: "ROLLBACK_MESSAGE"}
_OUTCOMES = {Outcome.LATER: TracedOutcome.FAILED, Outcome.DEAD: TracedOutcome.FAILED}

Send = Callable[[str, bytes, list[str]], Awaitable[None]]


class _Bundle:
    """One trace message being built."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.body_bytes = 0
        # In order of arrival, without duplicates.
        self.keys: dict[str, None] = {}
        self.keys_bytes = 0

    def has_room(self, encoded: bytes, keys: dict[str, int], body_max: int) -> bool:
        """Return whether a record fits. The first one always does: no other message has more room for it."""
        keys_bytes = self.keys_bytes + sum(size for key, size in keys.items() if key not in self.keys)
        return not self.records or (self.body_bytes + len(encoded) <= body_max and keys_bytes <= _KEYS_BYTES_MAX)

    def add(self, encoded: bytes, keys: dict[str, int]) -> None:
        """Add a record and its keys; `keys` maps each key to its length in bytes."""
        self.records.append(encoded)
        self.body_bytes += len(encoded)
        for key, size in keys.items():
            if key not in self.keys and self.keys_bytes + size <= _KEYS_BYTES_MAX:
                self.keys[key] = None
                self.keys_bytes += size


class TraceDispatcher:
    """Takes trace records from the loop's tasks and sends them in the background, many in one message.

    Records that cannot be kept or sent are counted and dropped: a trace must not slow down or fail what it traces.
    `send` gets the topic, the body and the keys of each trace message; messages it sends must not be traced.
    """

    def __init__(
        self,
        send: Send,
        *,
        clock: Clock,
        topic: str = TRACE_TOPIC,
        flush_ms: int = 500,
        queue_max: int = 1024,
        body_max: int = 118_000,
    ) -> None:
        self.topic = topic
        # Records that were sent, that were dropped because of no room or a late arrival, and that failed to be sent.
        self.sent = 0
        self.dropped = 0
        self.failed = 0
        self._send = send
        self._flush_seconds = flush_ms / 1000
        self._queue_max = queue_max
        self._body_max = body_max
        self._records: deque[TraceRecord] = deque()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._reporter = Reporter(log, clock.monotonic)

    def add(self, record: TraceRecord) -> None:
        """Take a record; it is sent within `flush_ms`, or dropped if there is no room for it."""
        if self._closed or len(self._records) >= self._queue_max:
            self.dropped += 1
            self._reporter.report("full", f"trace records for {self.topic} are dropped: too many, or too late")
            return
        self._records.append(record)
        if self._task is None or self._task.done():
            # Outside the loop, the record waits for the next one, or for the close.
            with suppress(RuntimeError):
                self._start()
        # By then a message is about full; waiting longer would only fill the queue.
        elif len(self._records) * 2 >= self._queue_max:
            self._hurry.set()

    async def close(self, seconds: float = 3.0) -> None:
        """Send the remaining records, for at most `seconds`; records added later are dropped."""
        self._closed = True
        self._hurry.set()
        if self._records and (self._task is None or self._task.done()):
            self._start()
        if self._task is None:
            return
        _, late = await asyncio.wait({self._task}, timeout=seconds)
        if late:
            self._task.cancel()
            await asyncio.wait(late, timeout=_GOODBYE_SECONDS)
        self.dropped += len(self._records)
        self._records.clear()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._records:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._flush_seconds):
                    await self._hurry.wait()
            if not self._closed:
                self._hurry.clear()
            bundles = deque(self._gather())
            try:
                while bundles:
                    await self._send_bundle(bundles[0])
                    bundles.popleft()
            finally:
                self.dropped += sum(len(bundle.records) for bundle in bundles)

    def _gather(self) -> Iterator[_Bundle]:
        """Put the waiting records into as few messages as possible."""
        records, self._records = self._records, deque()
        bundle = _Bundle()
        for record in records:
            try:
                encoded = encode_trace(record)
                keys = {key: len(key.encode()) + 1 for key in list_trace_keys(record)}
            except ValueError:  # a lone surrogate, for example
                self.failed += 1
                continue
            if not bundle.has_room(encoded, keys, self._body_max):
                yield bundle
                bundle = _Bundle()
            bundle.add(encoded, keys)
        if bundle.records:
            yield bundle

    async def _send_bundle(self, bundle: _Bundle) -> None:
        try:
            async with asyncio.timeout(_SEND_SECONDS_MAX):
                await self._send(self.topic, b"".join(bundle.records), list(bundle.keys))
        except Exception as error:  # a trace must never fail what it traces
            self.failed += len(bundle.records)
            self._reporter.report("send", f"{len(bundle.records)} trace records for {self.topic} not sent: {error!r}")
        else:
            self.sent += len(bundle.records)


def open_trace(session: Session, group: str, purpose: str, topic: bool | str) -> TraceDispatcher:
    """Return a dispatcher that sends on a session; the purpose is PRODUCE or CONSUME, as Java names them."""
    sender = Sender(session, f"_INNER_TRACE_PRODUCER-{group}-{purpose}"[:GROUP_BYTES_MAX])

    async def send(topic: str, body: bytes, keys: list[str]) -> None:
        unique_id = session.unique_ids.create()
        parcel = Parcel(topic, body, build_properties(unique_id, keys=keys), unique_id)
        route = await session.routes.get_for_send(topic)
        if not route.write_queues:
            raise NoRoute(f"the trace topic {topic} has no queue that can be written to")
        queues = random.sample(route.write_queues, min(_TRIES, len(route.write_queues)))
        for number, queue in enumerate(queues, 1):
            try:
                await sender.send(parcel, queue, _TIMEOUT_MS)
                return
            except (NetError, RequestRefused) as error:
                is_final = isinstance(error, RequestRefused) and not error.retryable
                if is_final or number == len(queues):
                    raise

    return TraceDispatcher(send, clock=session.clock, topic=topic if isinstance(topic, str) else TRACE_TOPIC)


class SendTrace:
    """A producer hook that records each message that was stored."""

    def __init__(self, session: Session, group: str, topic: bool | str) -> None:
        self.dispatcher = open_trace(session, group, "PRODUCE", topic)
        self._session = session
        self._namespace = session.options.namespace
        self._group = unwrap(self._namespace, group)

    def before_send(self, parcel: Parcel, queue: MessageQueue) -> None:
        """Do nothing: the outcome is not known yet."""

    def after_send(
        self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, seconds: float
    ) -> None:
        """Record the message if it was stored and the broker wants traces; Java does not record failures either."""
        if receipt is None or not receipt.trace_on:
            return
        properties = parse_properties(parcel.properties)
        kind = TracedKind.NORMAL
        if properties.get(TRAN_MSG) == "true":
            kind = TracedKind.HALF
        elif DELAY in properties:
            kind = TracedKind.DELAY
        self.dispatcher.add(
            PubTrace(
                time_ms=self._session.clock.now_ms() - round(seconds * 1000),
                region=receipt.region,
                group=self._group,
                topic=unwrap(self._namespace, parcel.topic),
                message_id=receipt.message_id,
                tags=properties.get(TAGS, ""),
                keys=properties.get(KEYS, ""),
                store_host=self._session.routes.find_address(queue.broker_name, only_this=True),
                body_bytes=len(parcel.body),
                cost_ms=round(seconds * 1000),
                kind=kind,
                offset_message_id=receipt.offset_id,
            )
        )

    def after_decision(
        self, header: EndTransactionHeader, topic: str, properties: str | bytes, address: str, region: str
    ) -> None:
        """Record the outcome of a transaction."""
        described = parse_properties(properties)
        self.dispatcher.add(
            EndTransactionTrace(
                time_ms=self._session.clock.now_ms(),
                region=region,
                group=self._group,
                topic=unwrap(self._namespace, topic),
                message_id=header.message_id,
                tags=described.get(TAGS, ""),
                keys=described.get(KEYS, ""),
                store_host=address,
                transaction_id=header.transaction_id,
                state=_STATES.get(header.decision, "UNKNOW"),
                from_check=bool(header.from_check),
            )
        )


class ConsumeTrace:
    """A consumer hook that records each message before and after its handler."""

    def __init__(self, session: Session, group: str, topic: bool | str) -> None:
        self._dispatcher = open_trace(session, group, "CONSUME", topic)
        self._session = session
        self._group = unwrap(session.options.namespace, group)

    def before_consume(self, messages: list[Message]) -> object:
        """Record that a handler starts; returns the id shared by all records of this call."""
        request_id = self._session.unique_ids.create()
        now_ms = self._session.clock.now_ms()
        for message in self._list_traced(messages):
            self._dispatcher.add(
                SubBeforeTrace(
                    time_ms=now_ms,
                    region=message.all_properties.get(MSG_REGION),
                    group=self._group,
                    request_id=request_id,
                    message_id=message.message_id,
                    retries=message.delivery - 1,
                    keys=message.all_properties.get(KEYS, ""),
                )
            )
        return request_id

    def after_consume(self, messages: list[Message], outcome: Outcome, seconds: float, begun: object) -> None:
        """Record how the handler ended."""
        now_ms = self._session.clock.now_ms()
        for message in self._list_traced(messages):
            self._dispatcher.add(
                SubAfterTrace(
                    request_id=str(begun),
                    message_id=message.message_id,
                    cost_ms=round(seconds * 1000) // len(messages),
                    success=outcome not in _OUTCOMES,
                    keys=message.all_properties.get(KEYS, ""),
                    outcome=_OUTCOMES.get(outcome, TracedOutcome.SUCCESS),
                    time_ms=now_ms,
                    group=self._group,
                )
            )

    def _list_traced(self, messages: list[Message]) -> list[Message]:
        # A message that was sent to a broker without tracing is not traced when it is consumed either.
        return [message for message in messages if message.all_properties.get(TRACE_ON) != "false"]

    async def close(self) -> None:
        """Send the remaining records."""
        await self._dispatcher.close()

"""What a producer tells the message trace, and how trace messages are sent: by a sender that nobody traces."""

from __future__ import annotations

import random

from eruca._client.namespaces import unwrap
from eruca._client.produce.outgoing import Receipt, build_properties
from eruca._client.produce.sending import Parcel, Sender
from eruca._client.session.session import Session
from eruca._client.tracing import TraceDispatcher
from eruca._ground.limits import GROUP_BYTES_MAX
from eruca._wire.bodies import MessageQueue
from eruca._wire.headers import EndTransactionHeader
from eruca._wire.names import TRACE_TOPIC
from eruca._wire.properties import DELAY, KEYS, TAGS, TRAN_MSG, parse_properties
from eruca._wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from eruca._wire.trace import EndTransactionTrace, PubTrace, TracedKind
from eruca.errors import ErucaError, NetError, NoRoute, RequestRefused

_TRIES = 3
_TIMEOUT_MS = 5000
_STATES = {TRANSACTION_COMMIT: "COMMIT_MESSAGE", TRANSACTION_ROLLBACK: "ROLLBACK_MESSAGE"}


def open_trace(session: Session, group: str, purpose: str, topic: bool | str) -> TraceDispatcher:
    """A dispatcher whose messages go out on a session; the purpose is PRODUCE or CONSUME, as Java names them."""
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
    """A hook of a producer that writes down each message that was stored."""

    def __init__(self, session: Session, group: str, topic: bool | str) -> None:
        self.dispatcher = open_trace(session, group, "PRODUCE", topic)
        self._session = session
        self._namespace = session.options.namespace
        self._group = unwrap(self._namespace, group)

    def before_send(self, parcel: Parcel, queue: MessageQueue) -> None:
        """Nothing is known yet."""

    def after_send(
        self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, spent_ms: int
    ) -> None:
        """Write it down if it was stored and the broker wants traces; Java does not write failures either."""
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
                time_ms=self._session.clock.now_ms() - spent_ms,
                region=receipt.region,
                group=self._group,
                topic=unwrap(self._namespace, parcel.topic),
                message_id=receipt.message_id,
                tags=properties.get(TAGS, ""),
                keys=properties.get(KEYS, ""),
                store_host=self._session.routes.find_address(queue.broker_name, only_this=True),
                body_bytes=len(parcel.body),
                cost_ms=spent_ms,
                kind=kind,
                offset_message_id=receipt.offset_id,
            )
        )

    def after_decision(
        self, header: EndTransactionHeader, topic: str, properties: str | bytes, address: str, region: str
    ) -> None:
        """Write down what a transaction became."""
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

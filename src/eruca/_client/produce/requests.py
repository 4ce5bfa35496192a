"""Requests and replies: the sender of a message waits until a consumer of that message has replied.

The request is a message with three more properties: a correlation id, the client id of the requester, and how long it
waits. The reply is a message to the reply topic of the cluster. The broker pushes it to the requester on the connection
of its producer, so the broker has to know that connection before the request is sent.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eruca._client.message import Message
from eruca._client.produce.choosing import Selector
from eruca._client.produce.listeners import Listeners
from eruca._client.produce.packing import Packer
from eruca._client.produce.sending import Parcel
from eruca._client.session.route import Route
from eruca._client.session.session import Session
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.headers import PushReplyHeader
from eruca._wire.host import NO_HOST, pack_host
from eruca._wire.properties import ARRIVE_TIME, CLUSTER, CORRELATION_ID, MSG_TYPE, REPLY_TO_CLIENT, TTL
from eruca._wire.record import Record
from eruca._wire.sysflag import set_host_bits
from eruca.errors import ErucaError, MessageIllegal, RequestTimeout, WireError

if TYPE_CHECKING:
    from eruca._client.produce.engine import Engine

log = logging.getLogger(__name__)

_REPLY = "reply"


class Requests:
    """The requests of one producer that are waiting for replies."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._listeners = Listeners()

    def _open(self) -> tuple[str, asyncio.Future[Message]]:
        """Begin a request; return its correlation id and the future of the reply."""
        correlation_id = str(uuid.uuid4())
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return correlation_id, future

    def fail(self, error: ErucaError) -> None:
        """Fail all requests with this error: no reply can arrive anymore."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # perhaps nobody is waiting for it anymore

    async def ask(
        self,
        engine: Engine,
        topic: str,
        pack: Callable[[Mapping[str, str]], Parcel],
        choose: Selector | None,
        timeout_ms: int,
        patience_s: float | None,
    ) -> Message:
        """Send a request and return its reply; `pack` adds properties to the message.

        Brokers are asked for consumers that could reply unless `patience_s` is None. Raises RequestTimeout.
        """
        session = engine.session
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        correlation_id, reply = self._open()
        is_sent = False
        try:
            wrapped = engine.packer.find_topic(topic)
            async with asyncio.timeout_at(deadline):
                route = await engine.require_delivery().find_route(wrapped, deadline)
                await self._prepare(session, route)
                parcel = pack(describe_request(session, correlation_id, timeout_ms))
                if len(parcel.body) >= engine.packer.compress_from:
                    await engine.compress(parcel)
                await engine.post(parcel, choose, timeout_ms)
                is_sent = True
                if patience_s is None or route.is_template:
                    # Consumers that wait for a topic to be created are not connected to its brokers yet.
                    return await reply
                return await self._listeners.wait_for_reply(session, reply, wrapped, patience_s)
        except TimeoutError:
            what = f"request {correlation_id} of topic {topic} within {timeout_ms / 1000:g} s"
            if not is_sent:
                raise RequestTimeout(f"could not send {what}") from None
            raise RequestTimeout(
                f"nobody replied to {what}", hint="is a consumer of the topic running that replies?"
            ) from None
        finally:
            self._waiting.pop(correlation_id, None)

    async def _prepare(self, session: Session, route: Route) -> None:
        """Greet every broker that may push a reply: those of the topic, and the others of its clusters."""
        for cluster in route.clusters:
            topic = name_reply_topic(cluster)
            if session.routes.peek(topic) is None:
                try:
                    await session.routes.get(topic)
                except ErucaError as error:
                    log.info("replies can only arrive through the brokers of %s: %s", route.topic, error)
        await session.greet_all()

    def take(self, session: Session, header: PushReplyHeader, body: bytes) -> bool:
        """Hand a reply to the request that waits for it; return False if there is none."""
        text = header.properties or ""
        record = Record(header.topic, properties=f"{text}\x02{ARRIVE_TIME}\x01{session.clock.now_ms()}".encode())
        future = self._waiting.get(record.get_property(CORRELATION_ID) or "")
        if future is None:
            return False
        record.queue_id = header.queue_id
        record.flag = header.flag
        record.body = body
        record.born_timestamp = header.born_timestamp
        record.store_timestamp = header.store_timestamp or 0
        record.born_host = _parse_host(header.born_host)
        record.store_host = _parse_host(header.store_host)
        record.sys_flag = set_host_bits(header.sys_flag, record.born_host, record.store_host)
        queue = MessageQueue("", header.queue_id, header.topic)
        if not future.done():
            future.set_result(Message(record, queue, session.options.namespace))
        return True


def describe_request(session: Session, correlation_id: str, timeout_ms: int) -> dict[str, str]:
    """Return the properties that make a message a request."""
    return {CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: session.client_id, TTL: str(timeout_ms)}


def name_reply_topic(cluster: str) -> str:
    """Return the topic for replies in a cluster; each of its brokers has it."""
    return f"{cluster}_REPLY_TOPIC"


def describe_reply(request: Message) -> tuple[str, dict[str, str]]:
    """Return the topic of the reply to a message, and the properties that make it a reply. Raises MessageIllegal."""
    properties = request.all_properties
    missing = [name for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT) if not properties.get(name)]
    if missing:
        raise MessageIllegal(
            f"message {request.message_id} of {request.topic} is not a request: it has no {' and no '.join(missing)}",
            hint="only messages sent with `request` can be replied to",
        )
    copied = {name: properties[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if properties.get(name)}
    return name_reply_topic(properties[CLUSTER]), {MSG_TYPE: _REPLY, **copied}


def pack_reply(
    packer: Packer,
    session: Session,
    request: Message,
    body: Any,
    tags: str | None,
    keys: str | Iterable[str],
    properties: Mapping[str, str] | None,
) -> tuple[Parcel, Selector]:
    """Return the reply to a message, and what chooses its queue. Raises MessageIllegal."""
    topic, extra = describe_reply(request)
    parcel = packer.pack(session.unique_ids, topic, body, tags, keys, properties, 0, True, extra)
    parcel.topic = topic  # without a namespace
    parcel.code = int(RequestCode.SEND_REPLY_MESSAGE_V2)
    return parcel, lambda queues: choose_reply_queue(queues, request)


def choose_reply_queue(queues: Sequence[MessageQueue], request: Message) -> MessageQueue:
    """Return the queue for a reply: on the broker that stored the request, if possible. It knows the requester."""
    same = [queue for queue in queues if queue.broker_name == request.queue.broker_name]
    return (same or list(queues))[0]


def _parse_host(text: str | None) -> bytes:
    ip, _, port = (text or "").removeprefix("/").rpartition(":")
    try:
        return pack_host(ip.strip("[]"), int(port))
    except (WireError, ValueError):
        return NO_HOST

"""One send to one queue: encodes the request, and reads the receipt from the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec

from eruca._client.produce.outgoing import Receipt, SendStatus
from eruca._client.session.calls import explain_refusal
from eruca._client.session.routes import TEMPLATE_QUEUES
from eruca._client.session.session import Session
from eruca._observe.telemetry import Operation
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import FLAG_ONEWAY, VERSION_ANNOUNCED, RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import SendMessageAnswerHeader, SendMessageV2Header
from eruca._wire.kernel.frames import encode_send
from eruca._wire.names import TEMPLATE_TOPIC
from eruca.errors import CallTimeout, ConnectFailed

_quote = msgspec.json.Encoder().encode
_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_END = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION_ANNOUNCED}}}'.encode()
# One entry for each queue in use, and a few for messages with their own flags.
_TEXTS_MAX = 4096

_STATUS = {
    int(ResponseCode.SUCCESS): SendStatus.STORED,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


class Parcel(msgspec.Struct, gc=False):
    """The content of one request: a message, or a whole encoded batch."""

    topic: str
    body: bytes
    properties: str
    message_id: str
    sys_flag: int = 0
    flag: int = 0
    code: int = int(RequestCode.SEND_MESSAGE_V2)
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    # The span that ends when this parcel is delivered.
    operation: Operation | None = None

    @property
    def is_batch(self) -> bool:
        """Whether the body is a batch."""
        return self.code == _BATCH


class Sender:
    """Sends the parcels of one producer group."""

    def __init__(
        self, session: Session, group: str, *, template: str = TEMPLATE_TOPIC, sent_group: str | None = None
    ) -> None:
        self._session = session
        self.group = group
        # The group in requests. A special one tells the broker that messages have marks.
        self._sent_group = sent_group or group
        self._template = template
        # The constant parts of requests, by the fields that determine them: the text before the time, between the time
        # and the properties, and between the properties and the number of the call.
        self._texts: dict[tuple[str, int, int, int, int, int, int], tuple[bytes, bytes, bytes]] = {}

    async def send(self, parcel: Parcel, queue: MessageQueue, timeout_ms: int) -> Receipt:
        """Send and wait for the receipt. Raises NetError, RequestRefused and WireError."""
        return read_receipt(await self.begin(parcel, queue, timeout_ms), parcel, queue)

    def begin(self, parcel: Parcel, queue: MessageQueue, timeout_ms: float) -> Awaitable[Command]:
        """Send, and return an awaitable of the answer. Raises ConnectFailed if the broker has no address."""
        session = self._session
        address = session.routes.masters.get(queue.broker_name) or self.find_address(queue)
        link = session.caller.find_free_link(address)
        if link is None or parcel.max_reconsume_times is not None:
            return session.calls.call(address, self._build(parcel, queue), max(1, round(timeout_ms)))
        opaque, answer = link.calls.begin(timeout_ms / 1000)
        link.outbox.send(self._encode(parcel, queue, 0, opaque))
        return answer

    async def send_oneway(self, parcel: Parcel, queue: MessageQueue) -> None:
        """Send without an answer: there is no confirmation of arrival. Waits while the broker reads too slowly.

        Raises NetError, also if that wait exceeds the timeout of a call.
        """
        address = self.find_address(queue)
        session = self._session
        link = session.caller.find_free_link(address)
        if link is None:
            await session.calls.notify(address, self._build(parcel, queue))
            link = session.caller.find_link(address)
            if link is None:
                return
        else:
            link.outbox.send(self._encode(parcel, queue, FLAG_ONEWAY, 0))
        try:
            async with asyncio.timeout(session.call_timeout_s):
                await link.drain()
        except TimeoutError:
            raise CallTimeout(f"broker {queue.broker_name} does not read what is sent to it") from None

    def find_address(self, queue: MessageQueue) -> str:
        """Return the address of the master of a queue. Raises ConnectFailed."""
        try:
            return self._session.routes.masters[queue.broker_name]
        except KeyError:
            raise self._explain_unknown(queue) from None

    def _explain_unknown(self, queue: MessageQueue) -> ConnectFailed:
        known = self._session.routes.list_brokers()
        if queue.broker_name in known:
            return ConnectFailed(f"broker {queue.broker_name} has no master now", hint="it may come back on its own")
        names = ", ".join(sorted(known)) or "none"
        return ConnectFailed(f"no name server knows a broker {queue.broker_name}", hint=f"known brokers: {names}")

    def _encode(self, parcel: Parcel, queue: MessageQueue, flag: int, opaque: int) -> bytes:
        """Return the frame of the command from `_build`, encoded by hand because every send pays for it."""
        key = (
            parcel.topic,
            queue.queue_id,
            parcel.code,
            parcel.sys_flag,
            parcel.flag,
            parcel.reconsume_times,
            flag,
        )
        before, between, behind = self._texts.get(key) or self._write_texts(key)
        now_ms = self._session.clock.now_ms()
        return encode_send(before, now_ms, between, _quote(parcel.properties), behind, opaque, _END, parcel.body)

    def _write_texts(self, key: tuple[str, int, int, int, int, int, int]) -> tuple[bytes, bytes, bytes]:
        topic, queue_id, code, sys_flag, message_flag, reconsume_times, flag = key
        group, template = _quote(self._sent_group).decode(), _quote(self._template).decode()
        # In the same order as Java's map.
        before = (
            f'{{"code":{code},"extFields":{{"a":{group},"b":{_quote(topic).decode()},"c":{template},'
            f'"d":"{TEMPLATE_QUEUES}","e":"{queue_id}","f":"{sys_flag}","g":"'
        )
        between = f'","h":"{message_flag}","i":'
        behind = (
            f',"j":"{reconsume_times}","k":"false","m":"{"true" if code == _BATCH else "false"}"}},"flag":{flag},'
            '"language":"PYTHON","opaque":'
        )
        if len(self._texts) >= _TEXTS_MAX:
            self._texts.clear()
        texts = self._texts[key] = before.encode(), between.encode(), behind.encode()
        return texts

    def _build(self, parcel: Parcel, queue: MessageQueue) -> Command:
        header = SendMessageV2Header(
            producer_group=self._sent_group,
            topic=parcel.topic,
            default_topic=self._template,
            default_topic_queue_nums=TEMPLATE_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=parcel.sys_flag,
            born_timestamp=self._session.clock.now_ms(),
            flag=parcel.flag,
            properties=parcel.properties,
            reconsume_times=parcel.reconsume_times,
            unit_mode=False,
            max_reconsume_times=parcel.max_reconsume_times,
            batch=parcel.is_batch,
        )
        return make_request(parcel.code, header, parcel.body)


def read_receipt(answer: Command, parcel: Parcel, queue: MessageQueue) -> Receipt:
    """Return the receipt from the answer to a send. Raises RequestRefused."""
    status = _STATUS.get(answer.code)
    if status is None:
        raise explain_refusal(answer, f"broker {queue.broker_name}")
    stored = answer.decode_header(SendMessageAnswerHeader)
    if stored.queue_id != queue.queue_id:
        queue = MessageQueue(queue.broker_name, stored.queue_id, queue.topic)
    return Receipt(
        status,
        parcel.message_id,
        stored.message_id,
        queue,
        stored.queue_offset,
        stored.transaction_id or "",
        stored.region or "DefaultRegion",
        stored.trace_on is not False,
    )

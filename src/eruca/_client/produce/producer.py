"""The producer: which queue, how often, how much at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from eruca._client.message import Message
from eruca._client.namespaces import check_own_group, unwrap, wrap
from eruca._client.options import ClientOptions, choose_options
from eruca._client.produce.choosing import QueueChooser, Selector, choose_queue
from eruca._client.produce.delivery import Delivery, SendHook
from eruca._client.produce.outgoing import Outgoing, Receipt, describe_timer
from eruca._client.produce.packing import Body, Packer
from eruca._client.produce.requests import Requests, choose_reply_queue, describe_reply, describe_request
from eruca._client.produce.sending import Parcel, Sender
from eruca._client.produce.trace import SendTrace
from eruca._client.produce.window import Window
from eruca._client.session.session import Session
from eruca._client.stopping import Client
from eruca._ground.clock import Clock
from eruca._ground.limits import MESSAGE_BODY_BYTES_MAX
from eruca._observe.telemetry import Operation, find_telemetry
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.headers import CheckTransactionHeader, PushReplyHeader
from eruca._wire.names import DEFAULT_PRODUCER_GROUP, check_group
from eruca._wire.properties import TIMER_DEL_UNIQKEY
from eruca._wire.record import Record
from eruca.errors import ClientClosed, ConfigError, MessageIllegal, RequestTimeout, SendFailed

log = logging.getLogger(__name__)


class Producer(Client):
    """Sends messages.

    >>> async with Producer("127.0.0.1:9876", group="shop") as producer:
    ...     receipt = await producer.send("orders", b"...", tags="vip", keys=["o-1"], shard="customer-7")

    It may be used by many tasks at the same time. `in_flight_max` and `bytes_in_flight_max` bound what is under way;
    `send` waits for its turn. `timeout` is for a send with all its tries, `try_timeout` for each of them: without it a
    broker that is silent uses up the whole time, with it a slow one may store a message twice.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str = "eruca",
        options: ClientOptions | None = None,
        timeout: timedelta | float = 3.0,
        try_timeout: timedelta | float | None = None,
        retries: int = 2,
        retry_when_not_synced: bool = False,
        avoid_slow_brokers: bool = False,
        compress_from: int | None = 4096,
        compression: str = "zlib",
        compression_level: int = 5,
        message_bytes_max: int = MESSAGE_BODY_BYTES_MAX,
        in_flight_max: int = 8192,
        bytes_in_flight_max: int = 64 * 1024 * 1024,
        hooks: Iterable[SendHook] = (),
        trace: bool | str = False,
        clock: Clock | None = None,
    ) -> None:
        self.options = choose_options(nameservers, options)
        self.group = check_group(wrap(self.options.namespace, check_own_group(group, DEFAULT_PRODUCER_GROUP)))
        for name, number, least in (
            ("retries", retries, 0),
            ("in_flight_max", in_flight_max, 1),
            ("bytes_in_flight_max", bytes_in_flight_max, 1),
        ):
            if number < least:
                raise ConfigError(f"{name}={number}: must be at least {least}")
        self.hooks: list[SendHook] = list(hooks)
        self._clock = clock
        self._timeout_ms = to_ms(timeout)
        self._try_timeout_ms = None if try_timeout is None else to_ms(try_timeout)
        self._retries = retries
        self._retry_when_not_synced = retry_when_not_synced
        self._packer = Packer(
            self.options.namespace,
            self.group,
            compress_from=compress_from,
            compression=compression,
            compression_level=compression_level,
            message_bytes_max=message_bytes_max,
        )
        self._window = Window(in_flight_max, bytes_in_flight_max)
        self._chooser = QueueChooser(avoid_slow_brokers=avoid_slow_brokers)
        self._requests = Requests()
        self._trace_topic = trace
        self._trace: SendTrace | None = None
        self._session: Session | None = None
        self._delivery: Delivery | None = None
        self._is_closing = False
        self._under_way: set[asyncio.Task[Receipt]] = set()

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make ready to send; `async with` does it."""
        if self._session is not None:
            self._session.check_loop()
            return
        self._session = session = Session.acquire(self.options, clock=self._clock)
        self._is_closing = False
        self._packer.telemetry = find_telemetry()
        hooks = self.hooks
        if self._trace_topic:
            self._trace = SendTrace(session, self.group, self._trace_topic)
            hooks = [*hooks, self._trace]
        self._delivery = Delivery(
            session,
            Sender(session, self.group),
            self._chooser,
            hooks,
            retries=self._retries,
            retry_when_not_synced=self._retry_when_not_synced,
            try_timeout_ms=self._try_timeout_ms,
        )
        session.add_producer(self)

    async def close(self) -> None:
        """Wait for what is under way, and leave; no longer than a send may take."""
        if self._session is None:
            return
        if self._session.is_lost():
            self._take_session()
            return
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while self._under_way:
                    await asyncio.wait(self._under_way)
                self._is_closing = True
                await self._window.wait_empty()
        except TimeoutError:
            self._is_closing = True
            log.warning("producer %s is closed while %d sends are under way", self.group, self._window.count)
        session = self._take_session()
        if session is None:  # closed by somebody else meanwhile
            return
        self._requests.fail(self._explain_closed())
        if self._trace is not None:
            await self._trace.dispatcher.close()
            self._trace = None
        await session.remove_producer(self)
        await session.release()

    def _take_session(self) -> Session | None:
        session, self._session, self._delivery = self._session, None, None
        return session

    @property
    def session(self) -> Session:
        """The session this producer works with. Raises ClientClosed."""
        session = self._session
        if session is None or self._is_closing:
            raise self._explain_closed()
        if asyncio._get_running_loop() is not session.loop:
            session.check_loop()
        return session

    def _explain_closed(self) -> ClientClosed:
        what = "closed" if self._is_closing else "not started"
        return ClientClosed(f"the producer is {what}", hint="use `async with Producer(...)`, or await start()")

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: timedelta | int | None = None,
        timer: timedelta | datetime | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait: bool = True,
        timeout: timedelta | float | None = None,
    ) -> Receipt:
        """Send one message and return its receipt.

        Messages of one `shard` go to one queue and so stay in order; `queue` and `selector` choose it otherwise.
        `delay` is a time that is one of the broker's levels, or a level. `timer` is any delay up to 40 days, or the
        moment of delivery, for Eruca and RocketMQ 5: a 4.x broker does not know it and delivers at once. A failed try
        is repeated, on another broker when the queue is free, within `timeout`. Raises SendFailed, NoRoute,
        MessageIllegal, and NetError when no name server answers that is needed.
        """
        if timer is not None and delay is not None:
            raise MessageIllegal("a message has a delay or a timer, not both")
        choose = None
        if shard is not None or queue is not None or selector is not None:
            choose = choose_queue(shard, queue, selector)
        ids, packer = self.session.unique_ids, self._packer
        parcel = packer.pack(ids, topic, body, tags, keys, properties, flag, wait, delay, describe_timer(timer))
        if packer.is_large(parcel):
            await self._compress(parcel)
        return await self._post(parcel, choose, timeout)

    async def cancel_delayed(
        self, topic: str, receipt: Receipt, *, timeout: timedelta | float | None = None
    ) -> Receipt:
        """Cancel a message that was sent with `timer`; one that is delivered already stays delivered.

        For Eruca and RocketMQ 5, as `timer`: a 4.x broker would deliver what cancels as a message.
        """
        ids, packer = self.session.unique_ids, self._packer
        extra = {TIMER_DEL_UNIQKEY: receipt.message_id}
        parcel = packer.pack(ids, topic, b"cancel", None, (), None, 0, True, None, extra)
        return await self._post(parcel, choose_queue(None, receipt.queue, None), timeout)

    def send_soon(self, topic: str, body: Body, **how: object) -> asyncio.Task[Receipt]:
        """Send in the background; the task has the receipt. `close` waits for it. Arguments are those of `send`."""
        _ = self.session  # says at once when there is none
        task = asyncio.get_running_loop().create_task(self.send(topic, body, **how))  # type: ignore[arg-type]
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def send_oneway(
        self,
        topic: str,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: timedelta | int | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> None:
        """Send without waiting for an answer: quick, and nobody learns whether it arrived."""
        choose = choose_queue(shard, queue, selector)
        ids, packer = self.session.unique_ids, self._packer
        parcel = packer.pack(ids, topic, body, tags, keys, properties, flag, True, delay)
        if packer.is_large(parcel):
            await self._compress(parcel)
        try:
            await self._require_delivery().send_oneway(parcel, choose)
        except BaseException as error:
            self._end_span(parcel.operation, None, error)
            raise
        self._end_span(parcel.operation, None, None)

    async def send_batch(
        self,
        topic: str,
        messages: Iterable[Outgoing | bytes],
        *,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: timedelta | float | None = None,
    ) -> list[Receipt]:
        """Send many messages of one topic in as few requests as the size limit allows; a receipt for each request.

        A request is stored whole or not at all. With several requests, those before a failed one are stored.
        """
        ready = [item if isinstance(item, Outgoing) else Outgoing(item) for item in messages]
        choose = choose_queue(shard, queue, selector)
        parcels, operation = self._packer.pack_batches(self.session.unique_ids, topic, ready)
        receipts: list[Receipt] = []
        try:
            for parcel in parcels:
                receipts.append(await self._post(parcel, choose, timeout))
        except BaseException as error:
            self._end_span(operation, None, error)
            raise
        self._end_span(operation, receipts[-1] if receipts else None, None)
        return receipts

    async def list_queues(self, topic: str) -> list[MessageQueue]:
        """The queues a topic has for sending."""
        route = await self.session.routes.get_for_send(self._packer.find_topic(topic))
        return [MessageQueue(queue.broker_name, queue.queue_id, topic) for queue in route.write_queues]

    # -- asking and replying -----------------------------------------------------------------------------------------

    async def request(
        self,
        topic: str,
        body: Body,
        *,
        timeout: timedelta | float | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> Message:
        """Send a message and wait until whoever consumes it replies; returns the reply.

        `timeout` is for both ways. Raises RequestTimeout, and what `send` raises.
        """
        session = self.session
        timeout_ms = self._timeout_ms if timeout is None else to_ms(timeout)
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        correlation_id, reply = self._requests.open()
        is_sent = False
        try:
            extra = describe_request(session, correlation_id, timeout_ms)
            choose = choose_queue(shard, queue, selector)
            ids, packer = session.unique_ids, self._packer
            async with asyncio.timeout_at(deadline):
                await self._requests.prepare(session, await session.routes.get_for_send(packer.find_topic(topic)))
                parcel = packer.pack(ids, topic, body, tags, keys, properties, flag, True, None, extra)
                if packer.is_large(parcel):
                    await self._compress(parcel)
                await self._post(parcel, choose, timeout_ms / 1000)
                is_sent = True
                return await reply
        except TimeoutError:
            what = f"request {correlation_id} of topic {topic} within {timeout_ms} ms"
            if not is_sent:
                raise RequestTimeout(f"could not send {what}") from None
            raise RequestTimeout(
                f"nobody replied to {what}", hint="is a consumer of the topic running that replies?"
            ) from None
        finally:
            self._requests.close(correlation_id)

    async def reply(
        self,
        request: Message,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout: timedelta | float | None = None,
    ) -> Receipt:
        """Reply to a message that was sent with `request`, by a client of whatever language.

        Raises MessageIllegal when the message is not a request, and SendFailed when its sender is gone.
        """
        topic, extra = describe_reply(request)
        ids, packer = self.session.unique_ids, self._packer
        parcel = packer.pack(ids, topic, body, tags, keys, properties, 0, True, None, extra)
        parcel.topic = topic  # in no namespace
        parcel.code = int(RequestCode.SEND_REPLY_MESSAGE_V2)
        if packer.is_large(parcel):
            await self._compress(parcel)
        return await self._post(parcel, lambda queues: choose_reply_queue(queues, request), timeout)

    # -- one parcel --------------------------------------------------------------------------------------------------

    async def _post(self, parcel: Parcel, choose: Selector | None, timeout: timedelta | float | None) -> Receipt:
        """Send a parcel when there is room for it."""
        size = len(parcel.body)
        window = self._window
        try:
            delivery = self._delivery
            if delivery is None:
                raise self._explain_closed()
            timeout_ms = self._timeout_ms if timeout is None else to_ms(timeout)
            if not window.try_enter(size):
                timeout_ms = await self._wait_for_room(parcel, timeout_ms)
            try:
                receipt = await delivery.deliver(parcel, choose, timeout_ms)
            finally:
                window.leave(size)
        except BaseException as error:
            self._end_span(parcel.operation, None, error)
            raise
        if parcel.operation is not None:
            self._end_span(parcel.operation, receipt, None)
        if self.options.namespace:
            found = receipt.queue
            shown = MessageQueue(found.broker_name, found.queue_id, unwrap(self.options.namespace, found.topic))
            return msgspec.structs.replace(receipt, queue=shown)
        return receipt

    async def _compress(self, parcel: Parcel) -> None:
        """Compress a body; whoever is cancelled meanwhile leaves no span behind that never ends."""
        try:
            await self._packer.compress(parcel)
        except BaseException as error:
            self._end_span(parcel.operation, None, error)
            raise

    async def _wait_for_room(self, parcel: Parcel, timeout_ms: int) -> int:
        """Wait until the window has room; returns the time that is left then."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await self._window.enter(len(parcel.body))
        except TimeoutError:
            raise SendFailed(
                f"the message for {parcel.topic} was not sent: too much is under way for {timeout_ms} ms",
                [],
                hint="raise in_flight_max or bytes_in_flight_max, or send less at once",
            ) from None
        return max(1, round((deadline - loop.time()) * 1000))

    def _require_delivery(self) -> Delivery:
        if self._delivery is None or self._is_closing:
            raise self._explain_closed()
        return self._delivery

    def _end_span(self, operation: Operation | None, receipt: Receipt | None, error: BaseException | None) -> None:
        telemetry, session = self._packer.telemetry, self._session
        if operation is None or telemetry is None:
            return
        if receipt is None or session is None:
            telemetry.end_send(operation, error=error)
            return
        address = session.routes.find_address(receipt.queue.broker_name)
        queue_id, message_id = receipt.queue.queue_id, receipt.message_id
        telemetry.end_send(operation, server=address or "", queue_id=queue_id, message_id=message_id)

    # -- what brokers ask; a plain producer has no transactions ------------------------------------------------------

    def check_transaction(self, address: str, header: CheckTransactionHeader, record: Record) -> bool:
        """A plain producer cannot say what became of a half message."""
        return False

    def take_reply(self, header: PushReplyHeader, body: bytes) -> bool:
        """A reply came; False when nobody here waits for it."""
        return self._session is not None and self._requests.take(self._session, header, body)


def to_ms(time: timedelta | float) -> int:
    """A time in whole milliseconds, at least one; a plain number is seconds."""
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    return max(1, round(seconds * 1000))

"""The producer: what users call to send messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Generic

from eruca._client.arguments import check_callable, check_count, check_hooks, check_trace, check_type
from eruca._client.message import Message
from eruca._client.namespaces import check_own_group, wrap
from eruca._client.options import ClientOptions, choose_options
from eruca._client.produce.bodies import Body
from eruca._client.produce.choosing import QueueChooser, Selector, choose_queue
from eruca._client.produce.delivery import TIMEOUT_S, TRY_TIMEOUT_S, SendHook
from eruca._client.produce.engine import Engine, SendSettings
from eruca._client.produce.lingering import Lingering
from eruca._client.produce.once import MARK_SPACE
from eruca._client.produce.outgoing import Outgoing, Receipt, describe_delay
from eruca._client.produce.packing import COMPRESS_FROM, Packer
from eruca._client.produce.requests import pack_reply
from eruca._client.produce.sending import Parcel
from eruca._client.produce.window import Window
from eruca._client.session.session import Session
from eruca._client.stopping import Client, describe_client
from eruca._ground.durations import Duration, to_ms, to_seconds
from eruca._ground.limits import MESSAGE_BODY_BYTES_MAX
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import DEFAULT_PRODUCER_GROUP, check_group
from eruca._wire.properties import ERUCA_ONCE, TIMER_DEL_UNIQKEY
from eruca.serializers import Serializer


class Producer(Client, Generic[Body]):
    """Sends messages.

    >>> async with Producer("127.0.0.1:9876", group="shop") as producer:
    ...     receipt = await producer.send("orders", b"...", tags="vip", keys=["o-1"], shard="customer-7")

    It may be used by many tasks at the same time. `in_flight_max` and `bytes_in_flight_max` limit what is in flight;
    beyond that, `send` waits for its turn.

    A send that fails because of the network, a missing route or an unavailable broker is retried with back-off until
    `timeout`. `retries` is the maximum number of tries after the first; by default only `timeout` limits them. A try
    that is not answered within `try_timeout` is repeated, and each such repetition may take twice as long as the last
    one. A broker that was only slow stores the message more than once then. With `try_timeout=None` a try has all the
    time that is left.

    With `idempotent=True`, a message that is sent again because its answer was lost is stored only once. In that case
    the retry goes to the same queue. If the message was already stored, its receipt has an empty `offset_id` and the
    `offset` -1. This needs Eruca brokers: a send to any other broker raises ConfigError. It does not cover
    `send_oneway`, replies and the half messages of transactions.

    With a `linger` time, messages of `send` and `send_soon` wait that long for others of their queue, and share a
    request with them. Delayed and compressed messages, and those with a `selector`, are sent alone.

    `serializer` converts the body of each message to bytes (see `eruca.serializers`). Without it, bodies must be bytes.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str = "eruca",
        options: ClientOptions | None = None,
        timeout: Duration = TIMEOUT_S,
        try_timeout: Duration | None = TRY_TIMEOUT_S,
        retries: int | None = None,
        retry_when_not_synced: bool = False,
        idempotent: bool = False,
        avoid_slow_brokers: bool = False,
        compress_from: int | None = COMPRESS_FROM,
        compression: str = "zlib",
        compression_level: int = 5,
        message_bytes_max: int = MESSAGE_BODY_BYTES_MAX,
        linger: Duration = 0,
        in_flight_max: int = 8192,
        bytes_in_flight_max: int = 64 * 1024 * 1024,
        serializer: Serializer[Body] | None = None,
        hooks: Iterable[SendHook] = (),
        trace: bool | str = False,
    ) -> None:
        self.options = choose_options(nameservers, options)
        self.group = check_own_group(group, DEFAULT_PRODUCER_GROUP)
        check_type("retry_when_not_synced", retry_when_not_synced, bool)
        check_type("idempotent", idempotent, bool)
        check_type("avoid_slow_brokers", avoid_slow_brokers, bool)
        check_trace(trace)
        if retries is not None:
            check_count("retries", retries, at_least=0)
        if serializer is not None:
            check_callable("serializer", serializer, "body")
        wrapped = check_group(wrap(self.options.namespace, group))
        packer = Packer(
            self.options.namespace,
            wrapped,
            compress_from=compress_from,
            compression=compression,
            compression_level=compression_level,
            message_bytes_max=message_bytes_max,
            serializer=serializer,
            own={ERUCA_ONCE: MARK_SPACE} if idempotent else None,
        )
        settings = SendSettings(
            timeout_ms=to_ms("timeout", timeout),
            try_timeout_ms=None if try_timeout is None else to_ms("try_timeout", try_timeout),
            retries=retries,
            retry_when_not_synced=retry_when_not_synced,
            idempotent=idempotent,
            hooks=check_hooks(hooks, "before_send", "after_send"),
            trace=trace,
        )
        window = Window(
            check_count("in_flight_max", in_flight_max), check_count("bytes_in_flight_max", bytes_in_flight_max)
        )
        chooser = QueueChooser(avoid_slow_brokers=avoid_slow_brokers)
        self._engine = Engine(self.options, wrapped, settings, packer, window, chooser)
        linger_s = to_seconds("linger", linger)
        self._lingering = Lingering(self._engine, linger_s, message_bytes_max) if linger_s else None

    def __repr__(self) -> str:
        return describe_client(self, self.group, self.options.nameservers, self._engine.state)

    @property
    def _is_started(self) -> bool:
        return self._engine.held is not None

    # -- starting and closing ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Prepare to send; `async with` calls this."""
        self._engine.start()

    async def close(self) -> None:
        """Wait for sends in progress, at most for the send timeout, and close the producer."""
        if self._lingering is not None:
            self._lingering.flush()
        await self._engine.close()

    @property
    def _session(self) -> Session:
        return self._engine.session

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
        delay: Duration | None = None,
        delay_level: int | None = None,
        timer: Duration | datetime | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait: bool = True,
        timeout: Duration | None = None,
    ) -> Receipt:
        """Send one message and return its receipt.

        Messages with the same `shard` go to the same queue, and so stay in order; `queue` and `selector` are other ways
        to choose the queue. `delay` must be one of the broker's delay levels, as a timedelta or in seconds;
        `delay_level` is the number of a level. `timer` is any delay of at most 40 days, or the time of delivery. It
        needs Eruca or RocketMQ 5: a 4.x broker ignores it and delivers at once. A failed try is repeated until
        `timeout`, on another broker if no queue was chosen. Raises SendFailed, NoRoute, MessageIllegal, and NetError if
        no name server answers.
        """
        engine = self._engine
        choose = None
        if shard is not None or queue is not None or selector is not None:
            choose = choose_queue(shard, queue, selector)
        extra = None
        if delay is not None or delay_level is not None or timer is not None:
            extra = describe_delay(delay, delay_level, timer)
        timeout_ms = engine.timeout_ms if timeout is None else to_ms("timeout", timeout)
        parcel = engine.packer.pack(engine.session.unique_ids, topic, body, tags, keys, properties, flag, wait, extra)
        if len(parcel.body) >= engine.packer.compress_from:
            await engine.compress(parcel)
        if self._lingering is not None:
            receipt = await self._linger(parcel, choose, wait, timeout_ms, goes_alone=bool(extra or selector))
            if receipt is not None:
                return await receipt
        if not engine.window.try_enter(len(parcel.body)):
            timeout_ms = await engine.wait_for_room(parcel, timeout_ms)
        return await engine.deliver(parcel, choose, timeout_ms)

    async def send_soon(
        self,
        topic: str,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: Duration | None = None,
        delay_level: int | None = None,
        timer: Duration | datetime | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait: bool = True,
        timeout: Duration | None = None,
    ) -> asyncio.Future[Receipt]:
        """Send one message in the background; return a future of the receipt.

        While `in_flight_max` or `bytes_in_flight_max` is reached, this waits for room, so a loop over any number of
        messages uses bounded memory. `close` waits for sends in progress. A failure that nobody awaits is logged as a
        warning. The arguments are those of `send`; this method raises the error if one of them is invalid.

        >>> receipts = [await producer.send_soon("orders", body) for body in bodies]
        >>> await asyncio.gather(*receipts)
        """
        engine = self._engine
        choose = None
        if shard is not None or queue is not None or selector is not None:
            choose = choose_queue(shard, queue, selector)
        extra = None
        if delay is not None or delay_level is not None or timer is not None:
            extra = describe_delay(delay, delay_level, timer)
        timeout_ms = engine.timeout_ms if timeout is None else to_ms("timeout", timeout)
        parcel = engine.packer.pack(engine.session.unique_ids, topic, body, tags, keys, properties, flag, wait, extra)
        if len(parcel.body) >= engine.packer.compress_from:
            await engine.compress(parcel)
        if self._lingering is not None:
            receipt = await self._linger(parcel, choose, wait, timeout_ms, goes_alone=bool(extra or selector))
            if receipt is not None:
                return receipt
        if not engine.window.try_enter(len(parcel.body)):
            timeout_ms = await engine.wait_for_room(parcel, timeout_ms)
        return engine.spawn(topic, engine.deliver(parcel, choose, timeout_ms))

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
        delay: Duration | None = None,
        delay_level: int | None = None,
        timer: Duration | datetime | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> None:
        """Send without waiting for an answer: fast, but there is no confirmation that the message arrived."""
        engine = self._engine
        choose = choose_queue(shard, queue, selector)
        extra = describe_delay(delay, delay_level, timer)
        parcel = engine.packer.pack(engine.session.unique_ids, topic, body, tags, keys, properties, flag, True, extra)
        if len(parcel.body) >= engine.packer.compress_from:
            await engine.compress(parcel)
        try:
            await engine.require_delivery().send_oneway(parcel, choose)
        except BaseException as error:
            engine.end_span(parcel.operation, None, error)
            raise
        engine.end_span(parcel.operation, None, None)

    async def send_batch(
        self,
        topic: str,
        messages: Iterable[Outgoing | Body],
        *,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> list[Receipt]:
        """Send many messages of one topic in as few requests as the size limit allows; return a receipt per request.

        A message is an `Outgoing`, or just a body. A request is stored completely or not at all. If one of several
        requests fails, those before it are stored.
        """
        engine = self._engine
        check_type("messages", messages, Iterable)
        ready = [item if isinstance(item, Outgoing) else Outgoing(item) for item in messages]
        choose = choose_queue(shard, queue, selector)
        timeout_ms = engine.find_timeout_ms(timeout)
        parcels, operation = engine.packer.pack_batches(engine.session.unique_ids, topic, ready)
        receipts: list[Receipt] = []
        try:
            for parcel in parcels:
                receipts.append(await engine.post(parcel, choose, timeout_ms))
        except BaseException as error:
            engine.end_span(operation, None, error)
            raise
        engine.end_span(operation, receipts[-1] if receipts else None, None)
        return receipts

    async def cancel_delayed(self, topic: str, receipt: Receipt, *, timeout: Duration | None = None) -> Receipt:
        """Cancel a message that was sent with `timer`; this has no effect once the message is delivered.

        Like `timer`, it needs Eruca or RocketMQ 5: a 4.x broker would deliver the cancellation as a message.
        """
        engine = self._engine
        check_type("receipt", receipt, Receipt)
        timeout_ms = engine.find_timeout_ms(timeout)
        extra = {TIMER_DEL_UNIQKEY: receipt.message_id}
        ids = engine.session.unique_ids
        parcel = engine.packer.pack(ids, topic, b"cancel", None, (), None, 0, True, extra, is_raw=True)
        return await engine.post(parcel, choose_queue(None, receipt.queue, None), timeout_ms)

    async def list_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that messages can be sent to."""
        engine = self._engine
        route = await engine.session.routes.get_for_send(engine.packer.find_topic(topic))
        return [MessageQueue(queue.broker_name, queue.queue_id, topic) for queue in route.write_queues]

    # -- requests and replies ----------------------------------------------------------------------------------------

    async def request(
        self,
        topic: str,
        body: Body,
        *,
        timeout: Duration | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        listener_timeout: Duration | None = 3.0,
    ) -> Message:
        """Send a message, wait until one of its consumers replies, and return the reply.

        `timeout` covers the request and the reply. If no connected consumer subscribes to the topic for
        `listener_timeout`, this raises NoListener instead of waiting for the whole timeout. Brokers are asked about
        that when a reply takes long. With None they are not asked. The request is stored in any case, so a consumer
        that comes later receives it. Raises RequestTimeout, and the errors of `send`.
        """
        engine = self._engine
        timeout_ms = engine.find_timeout_ms(timeout)
        patience_s = None if listener_timeout is None else to_seconds("listener_timeout", listener_timeout)
        choose = choose_queue(shard, queue, selector)

        def pack(extra: Mapping[str, str]) -> Parcel:
            ids = engine.session.unique_ids
            return engine.packer.pack(ids, topic, body, tags, keys, properties, flag, True, extra)

        return await engine.requests.ask(engine, topic, pack, choose, timeout_ms, patience_s)

    async def reply(
        self,
        request: Message,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> Receipt:
        """Reply to a message that was sent with `request`, by a client in any language.

        `message.reply` does the same without a producer. Raises MessageIllegal if the message is not a request, and
        SendFailed if its sender is gone.
        """
        engine = self._engine
        check_type("request", request, Message)
        timeout_ms = engine.find_timeout_ms(timeout)
        parcel, choose = pack_reply(engine.packer, engine.session, request, body, tags, keys, properties)
        if len(parcel.body) >= engine.packer.compress_from:
            await engine.compress(parcel)
        return await engine.post(parcel, choose, timeout_ms)

    async def _linger(
        self, parcel: Parcel, choose: Selector | None, wait: bool, timeout_ms: int, *, goes_alone: bool
    ) -> asyncio.Future[Receipt] | None:
        """Add a message to a lingering batch; None if it must be sent alone, after the lingering ones."""
        assert self._lingering is not None
        if not goes_alone:
            receipt = await self._lingering.add(parcel, choose, wait, timeout_ms)
            if receipt is not None:
                return receipt
        await self._lingering.flush_topic(parcel.topic)
        return None

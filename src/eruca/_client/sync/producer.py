"""`eruca.sync.Producer`.

Written by `make generate` from `eruca._client.produce.producer` and
`eruca._client.sync.producing`; do not edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime

from eruca._client.options import ClientOptions
from eruca._client.produce.bodies import Body
from eruca._client.produce.choosing import Selector
from eruca._client.produce.delivery import TIMEOUT_S, TRY_TIMEOUT_S, SendHook
from eruca._client.produce.outgoing import Outgoing, Receipt
from eruca._client.produce.packing import COMPRESS_FROM
from eruca._client.produce.producer import Producer as AsyncProducer
from eruca._client.sync.base import Message, find_twin
from eruca._client.sync.producing import PlainProducer
from eruca._ground.durations import Duration
from eruca._ground.limits import MESSAGE_BODY_BYTES_MAX
from eruca._wire.bodies import MessageQueue
from eruca.serializers import Serializer


class Producer(PlainProducer[Body]):
    """Sends messages.

    >>> with Producer("127.0.0.1:9876", group="shop") as producer:
    ...     receipt = producer.send("orders", b"...", tags="vip", keys=["o-1"], shard="customer-7")

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

    It may be used by many threads at the same time. `selector` and `hooks` are called in the loop of the plain clients:
    they must not block.
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
        super().__init__(
            AsyncProducer(
                nameservers,
                group=group,
                options=options,
                timeout=timeout,
                try_timeout=try_timeout,
                retries=retries,
                retry_when_not_synced=retry_when_not_synced,
                idempotent=idempotent,
                avoid_slow_brokers=avoid_slow_brokers,
                compress_from=compress_from,
                compression=compression,
                compression_level=compression_level,
                message_bytes_max=message_bytes_max,
                linger=linger,
                in_flight_max=in_flight_max,
                bytes_in_flight_max=bytes_in_flight_max,
                serializer=serializer,
                hooks=hooks,
                trace=trace,
            )
        )

    def send(
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
        return self._run(
            self._twin.send(
                topic,
                body,
                tags=tags,
                keys=keys,
                shard=shard,
                queue=queue,
                selector=selector,
                delay=delay,
                delay_level=delay_level,
                timer=timer,
                properties=properties,
                flag=flag,
                wait=wait,
                timeout=timeout,
            ),
            self._find_patience(timeout),
        )

    def send_soon(
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
    ) -> Future[Receipt]:
        """Send in the background; returns a future of the receipt. `close` waits for it. Arguments as for `send`.

        If `in_flight_max` messages are in flight, it waits for room for at most the send timeout. Raises SendFailed.
        A failed send whose future is never asked for its result is logged as a warning.

        >>> futures = [producer.send_soon("orders", body) for body in bodies]
        >>> receipts = [future.result() for future in futures]
        """
        return self._plain_send_soon(
            topic,
            body,
            tags=tags,
            keys=keys,
            shard=shard,
            queue=queue,
            selector=selector,
            delay=delay,
            delay_level=delay_level,
            timer=timer,
            properties=properties,
            flag=flag,
            wait=wait,
            timeout=timeout,
        )

    def send_oneway(
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
        self._run(
            self._twin.send_oneway(
                topic,
                body,
                tags=tags,
                keys=keys,
                shard=shard,
                queue=queue,
                selector=selector,
                delay=delay,
                delay_level=delay_level,
                timer=timer,
                properties=properties,
                flag=flag,
            )
        )

    def send_batch(
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
        return self._run(
            self._twin.send_batch(topic, list(messages), shard=shard, queue=queue, selector=selector, timeout=timeout),
            self._find_patience(timeout),
        )

    def cancel_delayed(self, topic: str, receipt: Receipt, *, timeout: Duration | None = None) -> Receipt:
        """Cancel a message that was sent with `timer`; this has no effect once the message is delivered.

        Like `timer`, it needs Eruca or RocketMQ 5: a 4.x broker would deliver the cancellation as a message.
        """
        return self._run(self._twin.cancel_delayed(topic, receipt, timeout=timeout), self._find_patience(timeout))

    def list_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that messages can be sent to."""
        return self._run(self._twin.list_queues(topic))

    def request(
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
        return Message(
            self._run(
                self._twin.request(
                    topic,
                    body,
                    timeout=timeout,
                    tags=tags,
                    keys=keys,
                    shard=shard,
                    queue=queue,
                    selector=selector,
                    properties=properties,
                    flag=flag,
                    listener_timeout=listener_timeout,
                ),
                self._find_patience(timeout),
            ),
            self,
        )

    def reply(
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
        return self._run(
            self._twin.reply(
                find_twin("request", request), body, tags=tags, keys=keys, properties=properties, timeout=timeout
            ),
            self._find_patience(timeout),
        )

"""The plain producer."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any

from eruca._client.arguments import check_type
from eruca._client.options import ClientOptions
from eruca._client.produce.choosing import Selector
from eruca._client.produce.delivery import SendHook
from eruca._client.produce.outgoing import Outgoing, Receipt
from eruca._client.produce.producer import Producer as AsyncProducer
from eruca._client.sync.base import Message, PlainClient
from eruca._client.sync.room import Room
from eruca._ground.clock import Clock
from eruca._ground.durations import Duration, to_seconds
from eruca._ground.limits import MESSAGE_BODY_BYTES_MAX
from eruca._wire.bodies import MessageQueue
from eruca.errors import SendFailed
from eruca.serializers import Serializer


class Producer(PlainClient[AsyncProducer]):
    """Sends messages.

    >>> with Producer("127.0.0.1:9876", group="shop") as producer:
    ...     receipt = producer.send("orders", b"...", tags="vip", keys=["o-1"], shard="customer-7")

    It may be used by many threads at the same time; the arguments are those of the async `eruca.Producer`. `selector`
    and `hooks` are called in the loop of the plain clients: they must not block.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str = "eruca",
        options: ClientOptions | None = None,
        timeout: Duration = 3.0,
        try_timeout: Duration | None = None,
        retries: int | None = None,
        retry_when_not_synced: bool = False,
        avoid_slow_brokers: bool = False,
        compress_from: int | None = 4096,
        compression: str = "zlib",
        compression_level: int = 5,
        message_bytes_max: int = MESSAGE_BODY_BYTES_MAX,
        linger: Duration = 0,
        in_flight_max: int = 8192,
        bytes_in_flight_max: int = 64 * 1024 * 1024,
        serializer: Serializer | None = None,
        hooks: Iterable[SendHook] = (),
        trace: bool | str = False,
        clock: Clock | None = None,
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
                clock=clock,
            )
        )
        self._prepare(timeout, in_flight_max)

    def _prepare(self, timeout: Duration, in_flight_max: int) -> None:
        self._timeout_s = to_seconds("timeout", timeout)
        self._room = Room(in_flight_max)

    def _find_timeout(self, timeout: Duration | None) -> float:
        return self._timeout_s if timeout is None else to_seconds("timeout", timeout)

    def __repr__(self) -> str:
        return repr(self._twin)

    def __del__(self) -> None:
        twin = getattr(self, "_twin", None)  # None when the constructor raised
        if (
            twin is not None
            and self._thread is not None
            and not self._thread.is_forked
            and twin._engine.held is not None
        ):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    @property
    def group(self) -> str:
        """The group of the producer."""
        return self._twin.group

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: Any,
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

        Messages of one `shard` go to one queue and so stay in order; `queue` and `selector` choose it otherwise.
        `delay` must be one of the broker's delay levels, as a timedelta or in seconds; `delay_level` is the number of a
        level. `timer` is any delay up to 40 days, or the moment of delivery, for Eruca and RocketMQ 5: a 4.x broker
        does not know it and delivers at once. A failed try is repeated until `timeout`, on another broker when the
        queue is free. Raises SendFailed, NoRoute, MessageIllegal, and NetError when no name server answers.

        >>> producer.send("orders", b"...", delay=30).message_id
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
            self._find_timeout(timeout),
        )

    def cancel_delayed(self, topic: str, receipt: Receipt, *, timeout: Duration | None = None) -> Receipt:
        """Cancel a message that was sent with `timer`; one that is delivered already stays delivered.

        For Eruca and RocketMQ 5, as `timer`: a 4.x broker would deliver what cancels as a message.

        >>> producer.cancel_delayed("orders", producer.send("orders", b"...", timer=timedelta(days=3)))
        """
        return self._run(self._twin.cancel_delayed(topic, receipt, timeout=timeout), self._find_timeout(timeout))

    def send_soon(
        self,
        topic: str,
        body: Any,
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
        """Send in the background; the future has the receipt. `close` waits for it. Arguments are those of `send`.

        When `in_flight_max` messages are under way it waits for room, as long as a send may take. Raises SendFailed.

        >>> futures = [producer.send_soon("orders", body) for body in bodies]
        >>> receipts = [future.result() for future in futures]
        """
        thread = self._find_thread()
        thread.check_caller()
        if not self._room.enter(self._timeout_s):
            raise SendFailed(
                f"the message for {topic} was not sent: too much is under way for {self._timeout_s} s",
                [],
                hint="raise in_flight_max, or send less at once",
            )
        future: Future[Receipt] = Future()
        work = self._twin.send(
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
        try:
            thread.post(self._begin_soon, (future, topic, work))
        except BaseException:
            work.close()
            raise
        return future

    def _begin_soon(self, wanted: tuple[Future[Receipt], str, Coroutine[Any, Any, Receipt]]) -> None:
        """In the loop: begin with a message that is sent in the background."""
        future, topic, work = wanted
        if not future.set_running_or_notify_cancel():
            work.close()
            self._room.leave()
            return
        task = self._twin._engine.spawn(topic, work)

        def tell(task: asyncio.Task[Receipt]) -> None:
            self._room.leave()
            if task.cancelled():
                future.set_exception(SendFailed(f"the message for {topic} was not sent: the producer closed", []))
            elif (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        task.add_done_callback(tell)

    def send_oneway(
        self,
        topic: str,
        body: Any,
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
        """Send without waiting for an answer: quick, and nobody learns whether it arrived.

        >>> producer.send_oneway("clicks", b"...")
        """
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
        messages: Iterable[Outgoing | Any],
        *,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> list[Receipt]:
        """Send many messages of one topic in as few requests as the size limit allows; a receipt for each request.

        A request is stored whole or not at all. With several requests, those before a failed one are stored.

        >>> producer.send_batch("orders", [Outgoing(b"1", tags="vip"), Outgoing(b"2", keys=["o-2"])])
        """
        # The messages may come from a generator that blocks, so they are made here and not in the loop.
        ready = list(messages)
        return self._run(
            self._twin.send_batch(topic, ready, shard=shard, queue=queue, selector=selector, timeout=timeout)
        )

    def list_queues(self, topic: str) -> list[MessageQueue]:
        """The queues a topic has for sending."""
        return self._run(self._twin.list_queues(topic))

    # -- asking and replying -----------------------------------------------------------------------------------------

    def request(
        self,
        topic: str,
        body: Any,
        *,
        timeout: Duration | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> Message:
        """Send a message and wait until one of its consumers replies; returns the reply.

        `timeout` is for both ways. Raises RequestTimeout, and what `send` raises.

        >>> price = producer.request("prices", b"apple", timeout=2.0).body
        """
        work = self._twin.request(
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
        )
        return Message(self._run(work, self._find_timeout(timeout)), self)

    def reply(
        self,
        request: Message,
        body: Any,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> Receipt:
        """Reply to a message that was sent with `request`, by a client of any language.

        Raises MessageIllegal when the message is not a request, and SendFailed when its sender is gone.

        >>> @consumer.handler("prices")
        ... def answer(message):
        ...     producer.reply(message, b"1.20")
        """
        check_type("request", request, Message)
        work = self._twin.reply(request.twin, body, tags=tags, keys=keys, properties=properties, timeout=timeout)
        return self._run(work, self._find_timeout(timeout))

"""A kombu transport: Eruca, or an Apache RocketMQ 4.x cluster, as the broker of Celery.

    import eruca.integrations.kombu  # registers eruca://
    app = Celery("shop", broker="eruca://127.0.0.1:9876")

or with settings alone: `broker_transport = "eruca.integrations.kombu:Transport"` and the same URL. kombu has no entry
point for transports and does not accept a module path in a URL.

A Celery queue is a topic, and its workers are the members of one consumer group. When Celery acknowledges a task, the
message is acknowledged. Delivery is at least once: if a worker dies, its unacknowledged messages are delivered again,
together with the messages after them in the same queue of the topic. A worker that stops cleanly returns its
unacknowledged messages to the broker. A rejected message is delivered again after a second if Celery wants it requeued;
otherwise it becomes a dead letter of the group, and so does a message that kombu did not write. Times (`eta`,
`countdown`) are kept by the worker, as with other brokers. Exchanges are direct or topic. Bindings are known only to
the process that declared them, so sender and worker declare the same queues, as Celery does. There is no fanout, and so
no remote control (`celery inspect`). The pools prefork, threads and solo work; gevent and eventlet, which replace
threads by greenlets, do not.

Options in `broker_transport_options`: `nameservers` (several, instead of the one in the URL), `queue_name_prefix`,
`group_prefix` ("celery"), `client_options` (a ClientOptions), `send_timeout` (seconds).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from queue import Empty
from time import monotonic
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads

from eruca._client.group.settings import Flow, Retry
from eruca._client.message import Message
from eruca._client.options import ClientOptions
from eruca._client.produce.producer import Producer
from eruca._client.push.consumer import Consumer
from eruca._client.sync.loopthread import LoopThread, find_loop_thread
from eruca._wire.names import check_topic
from eruca.errors import ClientClosed, ErucaError, InvalidName, MessageIllegal, NetError, NoRoute, SendFailed

__all__ = ["Channel", "Transport"]

_log = logging.getLogger(__name__)

TRANSPORT_ALIASES["eruca"] = "eruca.integrations.kombu:Transport"

_NOT_IN_NAMES = re.compile(r"[^%|a-zA-Z0-9_-]")
# The first of the broker's delay levels, one second, so that a requeued message does not spin.
_REQUEUE_LEVEL = 1
# Celery counts its own retries, so the broker must not make a requeued message a dead letter.
_DELIVERIES_MAX = 1_000_000
_BURY_PAUSE_S = 5.0
# The longest wait of a worker between two checks.
_LOOK_UP_S = 1.0


class _Source:
    """The messages of one topic, for one channel: a consumer, and one message that waits to be taken.

    Only one, because messages that wait in the consumer itself are dropped when another member takes over its queue.
    """

    def __init__(self, thread: LoopThread, consumer: Consumer, arrived: threading.Event) -> None:
        self.consumer = consumer
        self._thread = thread
        self._arrived = arrived
        self._waiting: deque[Message] = deque(maxlen=1)
        self._wanted = True
        self._failure: Exception | None = None

    def start(self) -> None:
        """Join the group. Raises ErucaError."""
        self._thread.run(self.consumer.start())
        self._thread.spawn(self._take_next())

    async def _take_next(self) -> None:
        try:
            self._waiting.append(await anext(self.consumer))
        except StopAsyncIteration:
            return
        except Exception as error:  # any error: without it the queue would look empty
            self._failure = error
        self._arrived.set()

    def take(self) -> Message:
        """Return the next message. Raises Empty if there is none now."""
        if self._failure is not None:
            raise self._failure
        try:
            message = self._waiting.popleft()
        except IndexError:
            raise Empty from None
        self._thread.spawn(self._take_next())
        return message

    def pause(self) -> None:
        """Stop taking messages from the broker; those taken can still be acknowledged."""
        self._thread.call(self.consumer.pause)

    def resume(self) -> None:
        """Take messages again after `pause`."""
        self._thread.call(self.consumer.resume)

    def close(self) -> None:
        """Commit what is done and leave the group."""
        self._thread.run(self.consumer.close())


async def _bury(message: Message) -> None:
    """Make a message a dead letter; retries while the broker is unreachable, and stops if the queue was lost."""
    while True:
        try:
            await message.bury()
        except ErucaError as error:
            _log.warning("%s could not be made a dead letter, trying again: %s", message, error)
            await asyncio.sleep(_BURY_PAUSE_S)
        else:
            return


class Channel(virtual.Channel):  # type: ignore[misc]
    """A kombu channel; it acknowledges the messages it took."""

    from_transport_options = (*virtual.Channel.from_transport_options, "queue_name_prefix", "group_prefix")
    queue_name_prefix = ""
    group_prefix = "celery"

    def __init__(self, connection: Transport, **options: Any) -> None:
        super().__init__(connection, **options)
        self._sources: dict[str, _Source] = {}
        # Messages taken and not settled, by kombu's delivery tag.
        self._taken: dict[str, Message] = {}
        self._without_ack: set[str] = set()

    # -- names -------------------------------------------------------------------------------------------------------

    def find_topic(self, queue: str) -> str:
        """Return the topic of a queue: its name, with `_` for characters topics may not have. Raises InvalidName."""
        topic = check_topic(_NOT_IN_NAMES.sub("_", self.queue_name_prefix + queue))
        if self.connection.topics.setdefault(topic, queue) != queue:
            raise InvalidName(f"the queues {queue} and {self.connection.topics[topic]} would both be topic {topic}")
        return topic

    # -- called by kombu's virtual channels --------------------------------------------------------------------------

    def _put(self, queue: str, message: Mapping[str, Any], **_: Any) -> None:
        keys = [key for key in (message.get("headers", {}).get("id"),) if key]
        self.connection.send(self.find_topic(queue), dumps(message).encode(), keys)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        source = self._open(queue)
        message = source.take()
        while (payload := self._read(message)) is None:
            message = source.take()
        properties = payload["properties"]
        # A tag identifies one delivery, and this message may have had others.
        properties["delivery_tag"] = tag = self._next_delivery_tag()
        if message.delivery > 1:
            properties.setdefault("delivery_info", {})["redelivered"] = True
        if queue in self._without_ack:
            self.connection.spawn(message.ack())
        else:
            self._taken[tag] = message
        return payload

    def _read(self, message: Message) -> dict[str, Any] | None:
        """Return what kombu sent; None for a message that kombu did not write, which becomes a dead letter.

        Ignoring it is not enough: a message that is neither acknowledged nor returned would be delivered again
        whenever a worker starts, with all messages after it in its queue.
        """
        try:
            payload: dict[str, Any] = loads(message.body.decode())
            # kombu does the same later, where a failure would end the worker.
            self.decode_body(payload["body"], payload["properties"].get("body_encoding"))
        except Exception as error:
            _log.error("%s was not written by kombu and becomes a dead letter: %r", message, error)
            self.connection.spawn(_bury(message))
            return None
        return payload

    def _open(self, queue: str) -> _Source:
        source = self._sources.get(queue)
        if source is None:
            source = self.connection.make_source(self.find_topic(queue), self.group_prefix)
            source.start()
            self._sources[queue] = source
        return source

    def _purge(self, queue: str) -> int:
        raise MessageIllegal(
            f"queue {queue} cannot be purged: its messages are not Celery's alone to remove",
            hint="stop the workers, then: eruca offset skip GROUP TOPIC",
        )

    def _delete(self, queue: str, *_: Any, **__: Any) -> None:
        """Forget a queue; its topic stays, because others may use it."""

    # -- consuming ---------------------------------------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **options: Any) -> Any:
        """Start to consume a queue."""
        if no_ack:
            self._without_ack.add(queue)
        known = self._sources.get(queue)
        if known is not None:
            known.resume()
        else:
            self._open(queue)
        return super().basic_consume(queue, no_ack, *args, **options)

    def basic_cancel(self, consumer_tag: str) -> Any:
        """Stop consuming a queue; a worker that stops can still acknowledge what it is working on."""
        queue = self._tag_to_queue.get(consumer_tag)
        if queue in self._sources:
            self._sources[queue].pause()
            self._without_ack.discard(queue)
        return super().basic_cancel(consumer_tag)

    # -- settling ----------------------------------------------------------------------------------------------------

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message."""
        message = self._taken.pop(delivery_tag, None)
        if message is not None:
            self.connection.spawn(message.ack())
        super().basic_ack(delivery_tag, multiple)
        self.connection.arrived.set()  # there may be room for another one

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Have a message delivered again, or make it a dead letter."""
        message = self._taken.pop(delivery_tag, None)
        if message is not None:
            self.connection.run(message.retry(delay_level=_REQUEUE_LEVEL) if requeue else message.bury())
        self.qos.ack(delivery_tag)
        self.connection.arrived.set()

    def _restore(self, message: Any) -> None:
        """Return an unacknowledged message to the broker; kombu calls this when a channel closes."""
        taken = self._taken.pop(message.delivery_tag, None)
        if taken is None:
            return
        try:
            self.connection.run(taken.retry(delay_level=_REQUEUE_LEVEL))
        except ErucaError as error:
            # Nothing is lost: the broker delivers it to the next owner of the queue.
            _log.warning("unacknowledged messages could not be returned to the broker: %s", error)
            self._taken.clear()

    def close(self) -> None:
        """Return unacknowledged messages to the broker, commit the rest, and leave the groups."""
        sources = list(self._sources.values())
        if self.connection is not None and not self.connection.verify_connection(self.connection):
            self._taken.clear()  # a copy in a forked process; the messages belong to the parent
            sources = []
        super().close()
        self._sources.clear()
        for source in sources:
            source.close()


class Transport(virtual.Transport):  # type: ignore[misc]
    """A kombu connection to a cluster of Eruca or Java brokers."""

    Channel = Channel
    default_port = 9876
    driver_type = "eruca"
    driver_name = "eruca"
    connection_errors = (*virtual.Transport.connection_errors, NetError, NoRoute, SendFailed, ClientClosed)
    channel_errors = (*virtual.Transport.channel_errors, ErucaError)
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic"]), heartbeats=False
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        # Set when `drain_events` may have something to do.
        self.arrived = threading.Event()
        # The queue of each topic.
        self.topics: dict[str, str] = {}
        self._producer: Producer | None = None
        self._thread: LoopThread | None = None

    def driver_version(self) -> str:
        """The version of Eruca."""
        from eruca import __version__

        return __version__

    # -- start and stop ----------------------------------------------------------------------------------------------

    def establish_connection(self) -> Any:
        """Connect. Raises an error if no name server answers."""
        self._thread = find_loop_thread()
        options = self.client.transport_options
        timeout = float(options.get("send_timeout", 3.0))
        self._producer = Producer(
            group=f"{options.get('group_prefix', 'celery')}-senders", options=self._make_options(), timeout=timeout
        )
        self.run(self._connect(self._producer))
        return super().establish_connection()

    def _make_options(self) -> ClientOptions:
        client = self.client
        given = client.transport_options.get("client_options")
        options: ClientOptions = given or ClientOptions()
        url = f"{client.hostname or 'localhost'}:{client.port or self.default_port}"
        options = replace(options, nameservers=client.transport_options.get("nameservers") or url)
        if client.userid:
            options = replace(options, access_key=client.userid, secret_key=client.password or "")
        return options

    async def _connect(self, producer: Producer) -> None:
        await producer.start()
        try:
            # It does not matter whether the topic exists: a name server answered.
            with contextlib.suppress(NoRoute):
                await producer.list_queues("celery")
        except BaseException:
            await producer.close()
            raise

    def close_connection(self, connection: Any) -> None:
        """Close the channels and disconnect."""
        super().close_connection(connection)
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(ClientClosed):  # the connection of a forked process belongs to the parent
                self.run(producer.close())

    def verify_connection(self, connection: Any) -> bool:
        """Return whether the connection is established."""
        return self._thread is not None and not self._thread.is_forked

    # -- for the channels --------------------------------------------------------------------------------------------

    def run(self, work: Any) -> Any:
        """Run a coroutine in the loop of the clients and wait for it."""
        return self._find_thread(work).run(work)

    def spawn(self, work: Any) -> None:
        """Start a coroutine in the loop of the clients."""
        self._find_thread(work).spawn(work)

    def _find_thread(self, work: Any) -> LoopThread:
        if self._thread is None:
            work.close()
            raise ClientClosed("the connection is not established")
        return self._thread

    def send(self, topic: str, body: bytes, keys: list[str]) -> None:
        """Send a message and wait until it is stored. Raises SendFailed."""
        if self._producer is None:
            raise ClientClosed("the connection is closed")
        self.run(self._producer.send(topic, body, keys=keys))

    def make_source(self, topic: str, group_prefix: str) -> _Source:
        """Return a consumer of a topic. Each topic has its own group: members of a group must subscribe to the same."""
        consumer = Consumer(
            group=f"{group_prefix}-{topic}",
            subscribe=topic,
            start="earliest",
            retry=Retry(max_deliveries=_DELIVERIES_MAX),
            # A task at the head of a queue that waits for its time must not delay those after it.
            flow=Flow(span_max=None),
            options=self._make_options(),
        )
        if self._thread is None:
            raise ClientClosed("the connection is not established")
        return _Source(self._thread, consumer, self.arrived)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver the next message; waits for it without polling. Raises TimeoutError."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            self.arrived.clear()
            try:
                self.cycle.get(self._deliver, timeout=timeout)
            except Empty:
                left = _LOOK_UP_S if deadline is None else min(_LOOK_UP_S, deadline - monotonic())
                if left <= 0:
                    raise socket.timeout from None  # noqa: UP041  # the name by which kombu catches it
                self.arrived.wait(left)
            else:
                return

"""The producer: which queue, how often, how much at once."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self

from eruca.client.batching import build_batches
from eruca.client.namespaces import wrap
from eruca.client.options import ClientOptions, choose_options
from eruca.client.outgoing import Outgoing, Receipt, SendStatus, build_properties, check_body
from eruca.client.routes import Route
from eruca.client.sending import Parcel, Sender
from eruca.client.session import Session
from eruca.client.window import Window
from eruca.clock import Clock
from eruca.core.latency import LatencyFaults
from eruca.errors import (
    ClientClosed,
    ConfigError,
    ErucaError,
    MessageIllegal,
    NetError,
    NoRoute,
    RequestRefused,
    SendFailed,
    WireError,
)
from eruca.limits import MESSAGE_BODY_BYTES_MAX
from eruca.wire.bodies import MessageQueue
from eruca.wire.codes import ResponseCode
from eruca.wire.compression import compress
from eruca.wire.headers import CheckTransactionHeader, PushReplyHeader
from eruca.wire.javahash import java_hash
from eruca.wire.names import check_group, check_topic
from eruca.wire.record import Message as Record
from eruca.wire.sysflag import COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD, set_compression

log = logging.getLogger(__name__)

Selector = Callable[[Sequence[MessageQueue]], MessageQueue]

COMPRESSIONS = {"zlib": COMPRESSION_ZLIB, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}
_DEFAULT_GROUPS = frozenset({"DEFAULT_PRODUCER"})
# Above this a body is compressed in a thread: it would hold up heartbeats and everybody else.
_COMPRESS_IN_LOOP_BYTES_MAX = 128 * 1024
_BACKOFF_S = 0.05


class SendHook(Protocol):
    """Is told of every message before and after it is sent. What it raises is logged and goes no further."""

    def before_send(self, parcel: Parcel, queue: MessageQueue) -> None:
        """A message is about to be sent."""

    def after_send(
        self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, spent_ms: int
    ) -> None:
        """It was sent (`receipt`), or was not (`error`)."""


class Producer:
    """Sends messages.

    >>> async with Producer("127.0.0.1:9876", group="shop") as producer:
    ...     receipt = await producer.send("orders", b"...", tags="vip", keys=["o-1"], shard="customer-7")

    It may be used by many tasks at the same time. `in_flight_max` and `bytes_in_flight_max` bound what is under way;
    `send` waits for its turn.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str = "eruca",
        options: ClientOptions | None = None,
        timeout: timedelta | float = 3.0,
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
        clock: Clock | None = None,
    ) -> None:
        self.options = choose_options(nameservers, options)
        check_group(group)
        if group in _DEFAULT_GROUPS:
            raise ConfigError(f"the group {group} is reserved", hint="name the group after your application")
        if compression not in COMPRESSIONS:
            raise ConfigError(f"compression={compression!r}: expected one of {', '.join(COMPRESSIONS)}")
        self.group = wrap(self.options.namespace, group)
        self.hooks: list[SendHook] = list(hooks)
        self._clock = clock
        self._timeout_ms = to_ms(timeout)
        self._retries = retries
        self._retry_when_not_synced = retry_when_not_synced
        self._compress_from = compress_from
        self._compression = COMPRESSIONS[compression]
        self._compression_level = compression_level
        self._message_bytes_max = message_bytes_max
        self._window = Window(in_flight_max, bytes_in_flight_max)
        self._faults = LatencyFaults(enabled=avoid_slow_brokers)
        self._turn = random.randrange(2**31)
        self._session: Session | None = None
        self._sender: Sender | None = None
        self._under_way: set[asyncio.Task[Receipt]] = set()

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make ready to send; `async with` does it."""
        if self._session is not None:
            return
        self._session = session = Session.acquire(self.options, clock=self._clock)
        self._sender = Sender(session, self.group)
        session.add_producer(self)

    async def close(self) -> None:
        """Wait for what is under way, and leave."""
        session = self._session
        if session is None:
            return
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=self._timeout_ms / 1000)
        self._session = self._sender = None
        await session.remove_producer(self)
        await session.release()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def session(self) -> Session:
        """The session this producer works with. Raises ClientClosed."""
        if self._session is None:
            raise ClientClosed("the producer is not started", hint="use `async with Producer(...)`, or await start()")
        return self._session

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: timedelta | int | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait: bool = True,
        timeout: timedelta | float | None = None,
    ) -> Receipt:
        """Send one message and give its receipt.

        Messages of one `shard` go to one queue and so stay in order; `queue` and `selector` choose it otherwise.
        `delay` is a time that is one of the broker's levels, or a level. A failed try is repeated, on another broker
        when the queue is free, within `timeout`. Raises SendFailed, NoRoute and MessageIllegal.
        """
        message = Outgoing(b"", tags, keys, properties or {}, flag, wait, delay)
        message.body = check_body(body, self._message_bytes_max)
        parcel = await self._pack(topic, message)
        return await self._send_within_window(parcel, _choose(shard, queue, selector), timeout)

    def send_soon(self, topic: str, body: bytes | bytearray | memoryview, **how: object) -> asyncio.Task[Receipt]:
        """Send in the background; the task gives the receipt. `close` waits for it. Arguments are those of `send`."""
        task = asyncio.get_running_loop().create_task(self.send(topic, body, **how))  # type: ignore[arg-type]
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def send_oneway(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
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
        message = Outgoing(b"", tags, keys, properties or {}, flag, True, delay)
        message.body = check_body(body, self._message_bytes_max)
        parcel = await self._pack(topic, message)
        route = await self.session.routes.get_for_send(parcel.topic)
        target = self._pick(route, _choose(shard, queue, selector), None)
        self._tell_before(parcel, target)
        await self._require_sender().send_oneway(parcel, target)
        self._tell_after(parcel, target, None, None, 0)

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
        for message in ready:
            message.body = check_body(message.body, self._message_bytes_max)
        wrapped = wrap(self.options.namespace, check_topic(topic))
        choose = _choose(shard, queue, selector)
        receipts = []
        for parcel in build_batches(wrapped, ready, self.session.unique_ids, self._message_bytes_max, self._extra()):
            receipts.append(await self._send_within_window(parcel, choose, timeout))
        return receipts

    async def list_queues(self, topic: str) -> list[MessageQueue]:
        """The queues a topic has for sending."""
        route = await self.session.routes.get_for_send(wrap(self.options.namespace, check_topic(topic)))
        return list(route.write_queues)

    # -- one parcel --------------------------------------------------------------------------------------------------

    async def _pack(self, topic: str, message: Outgoing, extra: Mapping[str, str] | None = None) -> Parcel:
        namespace = self.options.namespace
        wrapped = wrap(namespace, check_topic(topic))
        unique_id = self.session.unique_ids.create()
        own = self._extra()
        properties = build_properties(message, unique_id, {**own, **extra} if own and extra else own or extra)
        body, sys_flag = message.body, 0
        if self._compress_from is not None and len(body) >= self._compress_from:
            body, sys_flag = await self._compress(body)
        return Parcel(wrapped, body, properties, unique_id, sys_flag, message.flag)

    def _extra(self) -> dict[str, str]:
        return {"INSTANCE_ID": self.options.namespace} if self.options.namespace else {}

    async def _compress(self, body: bytes) -> tuple[bytes, int]:
        kind, level = self._compression, self._compression_level
        if len(body) > _COMPRESS_IN_LOOP_BYTES_MAX:
            small = await asyncio.to_thread(compress, body, kind, level)
        else:
            small = compress(body, kind, level)
        return small, set_compression(0, kind)

    async def _send_within_window(
        self, parcel: Parcel, choose: Selector | None, timeout: timedelta | float | None
    ) -> Receipt:
        size = len(parcel.body)
        window = self._window
        timeout_ms = self._timeout_ms if timeout is None else to_ms(timeout)
        if not window.try_enter(size):
            await window.enter(size)
        try:
            return await self.deliver(parcel, choose, timeout_ms)
        finally:
            window.leave(size)

    async def deliver(
        self, parcel: Parcel, choose: Selector | None, timeout_ms: int, *, retries: int | None = None
    ) -> Receipt:
        """Send a parcel, again and elsewhere when it fails, until it is stored or time or tries are used up."""
        session, sender = self.session, self._require_sender()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        route = session.routes.peek(parcel.topic) or await self._find_route(parcel.topic, deadline)
        attempts: list[str] = []
        last: MessageQueue | None = None
        failure: ErucaError | None = None
        receipt: Receipt | None = None
        tries = 1 + (self._retries if retries is None else retries)
        for turn in range(tries):
            queue = self._pick(route, choose, last)
            left_ms = round((deadline - loop.time()) * 1000)
            if left_ms <= 0:
                break
            started = loop.time()
            if self.hooks:
                self._tell_before(parcel, queue)
            failure = None
            try:
                receipt = await sender.send(parcel, queue, left_ms)
            except (NetError, RequestRefused, WireError) as error:
                failure = error
            spent_ms = round((loop.time() - started) * 1000)
            self._faults.update(queue.broker_name, spent_ms, failure is not None, session.clock.now_ms())
            if self.hooks:
                self._tell_after(parcel, queue, receipt if failure is None else None, failure, spent_ms)
            if failure is None:
                assert receipt is not None
                if receipt.status is SendStatus.STORED or not self._retry_when_not_synced or turn == tries - 1:
                    return receipt
                attempts.append(f"{queue.broker_name}: {receipt.status.value}")
            else:
                attempts.append(f"{queue.broker_name}: {failure}")
                if not failure.retryable and not isinstance(failure, WireError):
                    break
                if turn < tries - 1:
                    route = await self._prepare_retry(parcel.topic, route, queue, failure, turn, deadline, choose)
            last = queue
        if receipt is not None and failure is None:
            return receipt
        raise _explain_failure(parcel.topic, attempts, failure, timeout_ms)

    async def _find_route(self, topic: str, deadline: float) -> Route:
        try:
            async with asyncio.timeout_at(deadline):
                return await self.session.routes.get_for_send(topic)
        except TimeoutError:
            raise SendFailed(f"the route of {topic} was not found in time", ["no name server answered"]) from None

    async def _prepare_retry(
        self,
        topic: str,
        route: Route,
        queue: MessageQueue,
        failure: ErucaError,
        turn: int,
        deadline: float,
        choose: Selector | None,
    ) -> Route:
        """Look where to try next: routes may have changed, and a broker that is busy wants a moment."""
        others = any(other.broker_name != queue.broker_name for other in route.write_queues)
        refreshes = isinstance(failure, NetError) or (
            isinstance(failure, RequestRefused) and failure.code == ResponseCode.TOPIC_NOT_EXIST
        )
        if choose is not None or not others:
            loop = asyncio.get_running_loop()
            pause = min(_BACKOFF_S * 2**turn * random.uniform(0.5, 1.5), max(0.0, deadline - loop.time()))
            await asyncio.sleep(pause)
        if refreshes:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self.session.routes.refresh(topic)
            except (ErucaError, TimeoutError):
                return route  # the old one is all we have
        return route

    def _pick(self, route: Route, choose: Selector | None, last: MessageQueue | None) -> MessageQueue:
        """The queue for the next try: chosen, or the next in turn on a broker that did not just fail."""
        queues = route.write_queues
        if not queues:
            raise NoRoute(
                f"topic {route.topic} has no queue that can be written to",
                hint="its brokers are down, or its permission forbids writing (mqadmin topicRoute shows both)",
            )
        if choose is not None:
            return choose(queues)
        self._turn += 1
        count = len(queues)
        now_ms = 0
        faults = self._faults if self._faults.enabled else None
        if faults is not None:
            now_ms = self.session.clock.now_ms()
        if last is None and faults is None:
            return queues[self._turn % count]
        for step in range(count):
            queue = queues[(self._turn + step) % count]
            if last is not None and queue.broker_name == last.broker_name:
                continue
            if faults is None or faults.is_available(queue.broker_name, now_ms):
                return queue
        if faults is not None:
            best = faults.pick_best(now_ms)
            found = [queue for queue in queues if queue.broker_name == best]
            if found:
                return found[self._turn % len(found)]
        return queues[self._turn % count]

    def _require_sender(self) -> Sender:
        if self._sender is None:
            raise ClientClosed("the producer is not started", hint="use `async with Producer(...)`, or await start()")
        return self._sender

    # -- hooks -------------------------------------------------------------------------------------------------------

    def _tell_before(self, parcel: Parcel, queue: MessageQueue) -> None:
        for hook in self.hooks:
            try:
                hook.before_send(parcel, queue)
            except Exception:
                log.exception("a hook failed before a send")

    def _tell_after(
        self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, spent_ms: int
    ) -> None:
        for hook in self.hooks:
            try:
                hook.after_send(parcel, queue, receipt, error, spent_ms)
            except Exception:
                log.exception("a hook failed after a send")

    # -- what brokers ask; a plain producer has no transactions ------------------------------------------------------

    def check_transaction(self, address: str, header: CheckTransactionHeader, record: Record) -> bool:
        """A plain producer cannot say what became of a half message."""
        return False

    def take_reply(self, header: PushReplyHeader, body: bytes) -> bool:
        """A reply came; nobody here waits for one."""
        return False


def to_ms(time: timedelta | float) -> int:
    """A time in whole milliseconds, at least one; a plain number is seconds."""
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    return max(1, round(seconds * 1000))


def choose_by_shard(queues: Sequence[MessageQueue], shard: str) -> MessageQueue:
    """The queue of a shard, the same that Java's selector by hash takes."""
    number = java_hash(shard)
    # Java's Math.abs has no positive counterpart for the smallest integer; its selector then takes queue 0.
    return queues[0 if number == -(2**31) else abs(number) % len(queues)]


def _choose(shard: str | None, queue: MessageQueue | None, selector: Selector | None) -> Selector | None:
    if shard is None and queue is None and selector is None:
        return None
    if (shard is not None) + (queue is not None) + (selector is not None) > 1:
        raise MessageIllegal("shard, queue and selector each choose the queue", hint="give one of them")
    if shard is not None:
        return lambda queues: choose_by_shard(queues, shard)
    if queue is not None:
        return lambda _: queue
    assert selector is not None
    choose = selector

    def checked(queues: Sequence[MessageQueue]) -> MessageQueue:
        chosen = choose(queues)
        if not isinstance(chosen, MessageQueue):
            raise MessageIllegal("the selector gave no queue", hint="it must return one of the queues it is given")
        return chosen

    return checked


def _explain_failure(topic: str, attempts: list[str], failure: ErucaError | None, timeout_ms: int) -> SendFailed:
    tries = f"{len(attempts)} {'try' if len(attempts) == 1 else 'tries'}"
    if not attempts:
        attempts = [f"the timeout of {timeout_ms} ms was over before the first try"]
    error = SendFailed(
        f"the message for {topic} was not stored after {tries}: {attempts[-1]}",
        attempts,
        retryable=failure is None or failure.retryable,
        hint=None if failure is None or not failure.hint else "",
    )
    error.__cause__ = failure
    return error

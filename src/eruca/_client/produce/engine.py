"""The inside of a started producer: its session, its window, and the path of each parcel."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from eruca._client.namespaces import unwrap
from eruca._client.options import ClientOptions
from eruca._client.produce.choosing import QueueChooser, Selector
from eruca._client.produce.delivery import Delivery, SendHook
from eruca._client.produce.once import OnceDelivery, OnceSender
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.packing import Packer
from eruca._client.produce.pending import PendingSend
from eruca._client.produce.requests import Requests
from eruca._client.produce.sending import Parcel, Sender
from eruca._client.produce.window import Window
from eruca._client.session.session import Session
from eruca._client.trace import SendTrace
from eruca._ground.durations import Duration, to_ms
from eruca._observe.telemetry import Operation, find_telemetry
from eruca._wire.bodies import MessageQueue
from eruca._wire.headers import CheckTransactionHeader, PushReplyHeader
from eruca._wire.record import Record
from eruca.errors import ClientClosed, SendFailed

log = logging.getLogger(__name__)

# Answers a broker that asks for the outcome of a half message.
CheckAnswerer = Callable[[Session, str, CheckTransactionHeader, Record], None]


@dataclass(frozen=True, slots=True)
class SendSettings:
    """The user's settings for how a producer sends."""

    timeout_ms: int
    try_timeout_ms: int | None
    retries: int | None
    retry_when_not_synced: bool
    idempotent: bool
    hooks: Sequence[SendHook]
    trace: bool | str


class Engine:
    """The internals of one producer. The session knows it as a member of a producer group."""

    def __init__(
        self,
        options: ClientOptions,
        group: str,
        settings: SendSettings,
        packer: Packer,
        window: Window,
        chooser: QueueChooser,
    ) -> None:
        # The group as the broker knows it.
        self.group = group
        self.packer = packer
        self.window = window
        self.requests = Requests()
        self.trace: SendTrace | None = None
        # Set by a transactional producer.
        self.answer_check: CheckAnswerer | None = None
        self.held: Session | None = None
        self.delivery: Delivery | None = None
        self.under_way: set[asyncio.Task[Receipt]] = set()
        self._options = options
        self._settings = settings
        #: The timeout of a send for which none is given.
        self.timeout_ms = settings.timeout_ms
        self._chooser = chooser
        self._is_closing = False

    # -- starting and closing ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Acquire a session and join the group."""
        if self.held is not None:
            self.held.check_loop()
            return
        settings = self._settings
        self.held = session = Session.acquire(self._options)
        self._is_closing = False
        self.packer.telemetry = find_telemetry()
        hooks = list(settings.hooks)
        if settings.trace:
            self.trace = SendTrace(session, self.group, settings.trace)
            hooks.append(self.trace)
        deliver_by, sender = Delivery, Sender(session, self.group)
        if settings.idempotent:
            deliver_by, sender = OnceDelivery, OnceSender(session, self.group)
        self.delivery = deliver_by(
            session,
            sender,
            self._chooser,
            hooks,
            retries=settings.retries,
            retry_when_not_synced=settings.retry_when_not_synced,
            try_timeout_ms=settings.try_timeout_ms,
        )
        session.add_producer(self)

    async def close(self) -> None:
        """Wait for sends in progress, at most for the send timeout, and leave the group."""
        if self.held is None:
            return
        if self.held.is_lost():
            self._take_session()
            return
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                while self.under_way:
                    await asyncio.wait(self.under_way)
                self._is_closing = True
                await self.window.wait_empty()
        except TimeoutError:
            self._is_closing = True
            log.warning("producer %s is closed while %d sends are in progress", self.group, self.window.count)
        session = self._take_session()
        if session is None:  # another task closed it meanwhile
            return
        self.requests.fail(self.explain_closed())
        if self.trace is not None:
            await self.trace.dispatcher.close()
            self.trace = None
        await session.remove_producer(self)
        await session.release()

    def _take_session(self) -> Session | None:
        session, self.held, self.delivery = self.held, None, None
        return session

    @property
    def state(self) -> str:
        """The state in words: not started, started, closing or closed."""
        if self.held is not None:
            return "closing" if self._is_closing else "started"
        return "closed" if self._is_closing else "not started"

    @property
    def session(self) -> Session:
        """The session this producer uses. Raises ClientClosed."""
        session = self.held
        if session is None or self._is_closing:
            raise self.explain_closed()
        if asyncio._get_running_loop() is not session.loop:
            session.check_loop()
        return session

    def explain_closed(self) -> ClientClosed:
        """Return the error for a producer that is not started or is closed."""
        what = "closed" if self._is_closing else "not started"
        return ClientClosed(f"the producer is {what}", hint="use `async with Producer(...)`, or await start()")

    # -- one parcel --------------------------------------------------------------------------------------------------

    def find_timeout_ms(self, timeout: Duration | None) -> int:
        """Return the timeout of a send; by default the producer's own."""
        return self.timeout_ms if timeout is None else to_ms("timeout", timeout)

    async def post(self, parcel: Parcel, choose: Selector | None, timeout_ms: int) -> Receipt:
        """Wait for room in the window, and send a parcel."""
        if not self.window.try_enter(len(parcel.body)):
            timeout_ms = await self.wait_for_room(parcel, timeout_ms)
        return await self.deliver(parcel, choose, timeout_ms)

    async def deliver(self, parcel: Parcel, choose: Selector | None, timeout_ms: float) -> Receipt:
        """Send a parcel that is already in the window, and remove it from the window afterwards."""
        size = len(parcel.body)
        try:
            try:
                if self.delivery is None:
                    raise self.explain_closed()
                receipt = await self.delivery.deliver(parcel, choose, timeout_ms)
            finally:
                self.window.leave(size)
        except BaseException as error:
            self.end_span(parcel.operation, None, error)
            raise
        if parcel.operation is not None:
            self.end_span(parcel.operation, receipt, None)
        return self.show(receipt) if self._options.namespace else receipt

    def spawn(self, topic: str, work: Coroutine[Any, Any, Receipt]) -> PendingSend:
        """Send in the background; `close` waits for it."""
        task = PendingSend(work, loop=asyncio.get_running_loop())
        task.topic = topic
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return task

    def show(self, receipt: Receipt) -> Receipt:
        """Return the receipt as the user sees it, without the namespace."""
        namespace = self._options.namespace
        if not namespace:
            return receipt
        found = receipt.queue
        shown = MessageQueue(found.broker_name, found.queue_id, unwrap(namespace, found.topic))
        return msgspec.structs.replace(receipt, queue=shown)

    async def compress(self, parcel: Parcel) -> None:
        """Compress the body of a parcel. If that fails or is cancelled, the span of the message ends."""
        try:
            await self.packer.compress(parcel)
        except BaseException as error:
            self.end_span(parcel.operation, None, error)
            raise

    async def wait_for_room(self, parcel: Parcel, timeout_ms: int) -> int:
        """Wait until the window has room, and return the time that is left, in milliseconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await self.window.enter(len(parcel.body))
        except BaseException as error:
            self.end_span(parcel.operation, None, error)
            if not isinstance(error, TimeoutError):
                raise
            raise SendFailed(
                f"the message for {parcel.topic} was not sent: no room in the send window for {timeout_ms / 1000:g} s",
                [],
                hint="raise in_flight_max or bytes_in_flight_max, or send less at once",
            ) from None
        return max(1, round((deadline - loop.time()) * 1000))

    def require_delivery(self) -> Delivery:
        """Return the delivery. Raises ClientClosed."""
        if self.delivery is None or self._is_closing:
            raise self.explain_closed()
        return self.delivery

    def end_span(self, operation: Operation | None, receipt: Receipt | None, error: BaseException | None) -> None:
        """End the span of a send, if it has one."""
        self.packer.end_span(self.held, operation, receipt, error)

    # -- requests from brokers ---------------------------------------------------------------------------------------

    def check_transaction(self, address: str, header: CheckTransactionHeader, record: Record) -> bool:
        """Check the outcome of a half message, and report it to the broker; return False if this producer cannot."""
        if self.answer_check is None or self.held is None or self._is_closing:
            return False
        self.answer_check(self.held, address, header, record)
        return True

    def take_reply(self, header: PushReplyHeader, body: bytes) -> bool:
        """Accept a reply to a request; return False if it is not for this producer."""
        return self.held is not None and self.requests.take(self.held, header, body)

"""Getting one parcel stored: tries, retries on other brokers, and what is told of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from eruca._client.meters import SendMeter
from eruca._client.produce.choosing import QueueChooser, Selector, explain_not_writable
from eruca._client.produce.outgoing import Receipt, SendStatus
from eruca._client.produce.sending import Parcel, Sender, read_receipt
from eruca._client.session.routes import Route
from eruca._client.session.session import Session
from eruca._ground.backoff import Backoff
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.names import MASTER_ID
from eruca.errors import ConnectFailed, ErucaError, NetError, RequestRefused, SendFailed, TooManyCalls, WireError

log = logging.getLogger(__name__)

# When a message is sent to the same broker again.
_RETRIES = Backoff(0.075, 5.0)
# When the route of a broker that has no master is asked for again.
_LOOKS = Backoff(0.1, 0.5)
# What a broker answers that does not have the topic, or is not the master any more: another one may be by now.
_MISLED_CODES = frozenset({int(ResponseCode.TOPIC_NOT_EXIST), int(ResponseCode.SERVICE_NOT_AVAILABLE)})
_REPLY_CODES = frozenset({int(RequestCode.SEND_REPLY_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE_V2)})


class SendHook(Protocol):
    """Is told of every message before and after each try to send it. What it raises is logged and goes no further."""

    def before_send(self, parcel: Parcel, queue: MessageQueue) -> None:
        """A message is about to be sent."""

    def after_send(
        self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, spent_ms: int
    ) -> None:
        """It was sent (`receipt`), or was not (`error`), or nobody will know (neither: it was sent one way)."""


class Delivery:
    """Delivers the parcels of one producer."""

    def __init__(
        self,
        session: Session,
        sender: Sender,
        chooser: QueueChooser,
        hooks: Sequence[SendHook] = (),
        *,
        retries: int = 2,
        retry_when_not_synced: bool = False,
        try_timeout_ms: int | None = None,
    ) -> None:
        self.sender = sender
        self._session = session
        self._chooser = chooser
        self._hooks = hooks
        # Is there anybody who wants to know how long each try takes?
        self._is_timed = bool(hooks) or chooser.faults.enabled
        self._tries = 1 + retries
        self._retry_when_not_synced = retry_when_not_synced
        self._try_timeout_ms = try_timeout_ms
        self._meter = SendMeter(sender.group)

    async def deliver(self, parcel: Parcel, choose: Selector | None, timeout_ms: float) -> Receipt:
        """Send a parcel, again and elsewhere when it fails, until it is stored or time or tries are used up."""
        routes = self._session.routes
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = started + timeout_ms / 1000
        route = routes.peek_for_send(parcel.topic)
        if route is None:
            route = await self._find_route(parcel.topic, deadline)
            timeout_ms = (deadline - loop.time()) * 1000
        attempts: list[str] = []
        last: MessageQueue | None = None
        receipt: Receipt | None = None
        failure: ErucaError | None = None
        left_ms = timeout_ms
        tries = pauses = 0
        while tries < self._tries:
            if not route.write_queues and _has_lost_master(route):
                attempts = attempts or [f"no broker of {parcel.topic} has a master now"]
                if loop.time() >= deadline:
                    break
                pauses += 1
                route = await self._look_again(parcel.topic, route, pauses, deadline)
                continue
            queue = self._pick(route, choose, last)
            if tries or pauses:
                left_ms = (deadline - loop.time()) * 1000
            if left_ms <= 0:
                break
            if self._try_timeout_ms is not None:
                left_ms = min(left_ms, self._try_timeout_ms)
            try:
                if self._is_timed:
                    receipt = await self._try_timed(parcel, queue, left_ms)
                else:
                    receipt = read_receipt(await self.sender.begin(parcel, queue, left_ms), parcel, queue)
            except (NetError, RequestRefused, WireError) as error:
                failure = error
                if not _may_retry(parcel, error):
                    attempts.append(_describe(queue, error))
                    break
                if _is_between_masters(route, queue, error, choose) and loop.time() < deadline:
                    # It was not taken, so it counts as no try.
                    pauses += 1
                    attempts[-1:] = [_describe(queue, error)]
                    route = await self._look_again(parcel.topic, route, pauses, deadline)
                    continue
                attempts.append(_describe(queue, error))
                if tries < self._tries - 1:
                    route = await self._prepare_retry(parcel.topic, route, queue, error, tries + 1, deadline, choose)
            else:
                if route.is_template:
                    self._learn(parcel.topic)
                if receipt.status is SendStatus.STORED or not self._retry_when_not_synced:
                    self._meter.add_sent(loop.time() - started, tries + 1)
                    return receipt
                failure = None
                attempts.append(f"{queue.broker_name}: {receipt.status.value}")
            last = queue
            tries += 1
        if receipt is not None:
            self._meter.add_sent(loop.time() - started, len(attempts))
            return receipt  # stored by the last try that answered, though not everywhere it should be
        self._meter.add_failed(len(attempts))
        raise _explain_failure(parcel.topic, attempts, failure, timeout_ms)

    async def send_oneway(self, parcel: Parcel, choose: Selector | None) -> None:
        """Send a parcel without an answer. Raises what kept it from being sent at all."""
        route = await self._session.routes.get_for_send(parcel.topic)
        queue = self._pick(route, choose, None)
        self._tell_before(parcel, queue)
        await self.sender.send_oneway(parcel, queue)
        self._tell_after(parcel, queue, None, None, 0)
        if route.is_template:
            self._learn(parcel.topic)

    def _learn(self, topic: str) -> None:
        """The topic is there now, so it has a route of its own soon."""
        if not self._session.routes.is_learning(topic):
            self._session.spawn(self._session.routes.learn(topic))

    def _pick(self, route: Route, choose: Selector | None, last: MessageQueue | None) -> MessageQueue:
        if choose is None:
            return self._chooser.pick(route, last, self._now_ms() if self._is_timed else 0)
        if not route.write_queues:
            raise explain_not_writable(route)
        return choose(route.write_queues)

    def _now_ms(self) -> int:
        return round(self._session.clock.monotonic() * 1000)

    async def _try_timed(self, parcel: Parcel, queue: MessageQueue, timeout_ms: float) -> Receipt:
        """One try, of which hooks and the record of slow brokers are told."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        self._tell_before(parcel, queue)
        receipt: Receipt | None = None
        failure: ErucaError | None = None
        try:
            receipt = read_receipt(await self.sender.begin(parcel, queue, timeout_ms), parcel, queue)
        except ErucaError as error:
            failure = error
            raise
        finally:
            spent_ms = round((loop.time() - started) * 1000)
            if receipt is not None or failure is not None:  # neither: it was cancelled
                # A message that no broker would take says nothing about this one.
                is_fault = failure is not None and _may_retry(parcel, failure)
                self._chooser.faults.update(queue.broker_name, spent_ms, is_fault, self._now_ms())
                self._tell_after(parcel, queue, receipt, failure, spent_ms)
        return receipt

    async def _find_route(self, topic: str, deadline: float) -> Route:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._session.routes.get_for_send(topic)
        except TimeoutError:
            raise SendFailed(
                f"the route of {topic} was not found in time", ["no name server answered"], hint="is one running?"
            ) from None

    async def _prepare_retry(
        self,
        topic: str,
        route: Route,
        queue: MessageQueue,
        failure: ErucaError,
        tries: int,
        deadline: float,
        choose: Selector | None,
    ) -> Route:
        """Look where to try next: routes may have changed, and a broker that is busy wants a moment."""
        if choose is not None or all(other.broker_name == queue.broker_name for other in route.write_queues):
            await _rest(_RETRIES.after(tries), deadline)
        is_misled = isinstance(failure, RequestRefused) and failure.code in _MISLED_CODES
        if is_misled or (isinstance(failure, NetError) and not isinstance(failure, TooManyCalls)):
            return await self._refresh(topic, route, deadline)
        return route

    async def _refresh(self, topic: str, route: Route, deadline: float) -> Route:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._session.routes.refresh_for_send(topic)
        except (ErucaError, TimeoutError):
            return route  # the old one is all we have

    async def _look_again(self, topic: str, route: Route, pauses: int, deadline: float) -> Route:
        """Wait a moment and ask for the route again: a slave that becomes the master is there soon."""
        await _rest(_LOOKS.after(pauses), deadline)
        return await self._refresh(topic, route, deadline)

    # -- hooks -------------------------------------------------------------------------------------------------------

    def _tell_before(self, parcel: Parcel, queue: MessageQueue) -> None:
        for hook in self._hooks:
            try:
                hook.before_send(parcel, queue)
            except Exception:
                log.exception("a hook failed before a send")

    def _tell_after(
        self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, spent_ms: int
    ) -> None:
        for hook in self._hooks:
            try:
                hook.after_send(parcel, queue, receipt, error, spent_ms)
            except Exception:
                log.exception("a hook failed after a send")


async def _rest(pause_s: float, deadline: float) -> None:
    """Wait, but not past the time of the message."""
    await asyncio.sleep(min(pause_s, max(0.0, deadline - asyncio.get_running_loop().time())))


def _may_retry(parcel: Parcel, error: ErucaError) -> bool:
    if isinstance(error, RequestRefused) and parcel.code in _REPLY_CODES:
        return False  # the requester is gone; the broker has kept the reply, and would keep it again
    return error.retryable or isinstance(error, WireError)


def _has_lost_master(route: Route) -> bool:
    """Is there a broker with slaves only? One of them may become the master soon."""
    return any(MASTER_ID not in by_id for by_id in route.brokers.values())


def _is_between_masters(route: Route, queue: MessageQueue, error: ErucaError, choose: Selector | None) -> bool:
    """Was a message not taken because a slave is about to take the place of its master?

    Only if there is no other broker to turn to, and only if it is sure that the message was not stored.
    """
    if choose is None and any(other.broker_name != queue.broker_name for other in route.write_queues):
        return False
    by_id = route.brokers.get(queue.broker_name, {})
    if not by_id.keys() - {MASTER_ID}:
        return False
    is_refused = isinstance(error, RequestRefused) and error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return is_refused or isinstance(error, ConnectFailed)


def _describe(queue: MessageQueue, error: ErucaError) -> str:
    # A refusal names the broker itself, a failure of the network only the address.
    return str(error) if isinstance(error, RequestRefused) else f"{queue.broker_name}: {error}"


def _explain_failure(topic: str, attempts: list[str], failure: ErucaError | None, timeout_ms: float) -> SendFailed:
    tries = f"{len(attempts)} {'try' if len(attempts) == 1 else 'tries'}"
    if not attempts:
        attempts = [f"the timeout of {round(timeout_ms)} ms was over before the first try"]
    error = SendFailed(
        f"the message for {topic} was not stored after {tries}: {attempts[-1]}",
        attempts,
        retryable=failure is None or failure.retryable,
    )
    error.__cause__ = failure
    return error

"""Delivery of one parcel: tries, retries on other brokers, and the error that reports them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Protocol

from eruca._client.meters import SendMeter
from eruca._client.produce.choosing import QueueChooser, Selector, explain_not_writable
from eruca._client.produce.history import History, describe_try
from eruca._client.produce.outgoing import Receipt, SendStatus
from eruca._client.produce.sending import Parcel, Sender, read_receipt
from eruca._client.session.route import Route
from eruca._client.session.routes import NAME_SERVERS
from eruca._client.session.session import Session
from eruca._ground.backoff import Backoff
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.names import MASTER_ID
from eruca.errors import (
    ConnectFailed,
    ErucaError,
    NetError,
    NoRoute,
    RequestRefused,
    SendFailed,
    TooManyCalls,
    WireError,
)

log = logging.getLogger(__name__)

# How long a send takes at most: longer than the restart of a broker. And how long a try waits for its answer.
TIMEOUT_S = 30.0
TRY_TIMEOUT_S = 3.0

# The pause before a message is sent again to a broker that failed, or before its route is looked up again.
_RETRIES = Backoff(0.075, 1.0)
# With less time left than this, another try is pointless.
_LEFT_S_MIN = 0.02
# The pause before the route of a broker without a master is looked up again.
_LOOKS = Backoff(0.1, 0.5)
# Answers from a broker that does not have the topic or is no longer the master. Another one may have taken over.
_MISLED_CODES = frozenset({int(ResponseCode.TOPIC_NOT_EXIST), int(ResponseCode.SERVICE_NOT_AVAILABLE)})
# At most this many retries of a message that is stored but not synced, unless `retries` is given.
_COPIES_MAX = 2
_REPLY_CODES = frozenset({int(RequestCode.SEND_REPLY_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE_V2)})


class SendHook(Protocol):
    """Called before and after each try to send a message. An exception from a hook is logged and ignored."""

    def before_send(self, parcel: Parcel, queue: MessageQueue) -> None:
        """Called when a message is about to be sent."""

    def after_send(
        self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, seconds: float
    ) -> None:
        """Called with a `receipt` on success, an `error` on failure, and neither if it was sent one way."""


class Delivery:
    """Delivers the parcels of one producer."""

    # Whether a retry must go to the queue where the message may be stored already. Only there is it recognised.
    _stays_where_it_may_be_stored = False

    def __init__(
        self,
        session: Session,
        sender: Sender,
        chooser: QueueChooser,
        hooks: Sequence[SendHook] = (),
        *,
        retries: int | None = None,
        retry_when_not_synced: bool = False,
        try_timeout_ms: int | None = None,
    ) -> None:
        self.sender = sender
        self._session = session
        self._chooser = chooser
        self._hooks = hooks
        # Whether hooks or the record of slow brokers need to know how long each try takes.
        self._is_timed = bool(hooks) or chooser.faults.enabled
        self._tries_max = math.inf if retries is None else 1 + retries
        # Each of these tries stores another copy.
        self._copies_max = (1 + _COPIES_MAX if retries is None else 1 + retries) if retry_when_not_synced else 1
        self._try_timeout_ms = math.inf if try_timeout_ms is None else try_timeout_ms
        self._meter = SendMeter(sender.group)

    async def deliver(self, parcel: Parcel, choose: Selector | None, timeout_ms: float) -> Receipt:
        """Send a parcel, with retries on other brokers, until it is stored or the time or the tries are used up."""
        session = self._session
        started = session.loop.time()
        route = session.routes.peek_for_send(parcel.topic)
        if route is None or self._is_timed:
            return await self._deliver(parcel, choose, timeout_ms, started, route, None)
        # Nearly every parcel is stored by its first try, so this one is made without what only retries need.
        queue = self._chooser.pick_next(route) if choose is None else choose(route.write_queues)
        try_timeout_ms = self._try_timeout_ms
        try:
            answer = self.sender.begin(parcel, queue, timeout_ms if timeout_ms < try_timeout_ms else try_timeout_ms)
            receipt = read_receipt(await answer, parcel, queue)
        except (NetError, RequestRefused, WireError) as error:
            return await self._deliver(parcel, choose, timeout_ms, started, route, (queue, error))
        if receipt.status is not SendStatus.STORED or route.is_template:
            return await self._deliver(parcel, choose, timeout_ms, started, route, (queue, receipt))
        self._meter.add_sent(session.loop.time() - started)
        return receipt

    async def _deliver(
        self,
        parcel: Parcel,
        choose: Selector | None,
        timeout_ms: float,
        started: float,
        route: Route | None,
        first: tuple[MessageQueue, Receipt | ErucaError] | None,
    ) -> Receipt:
        """Do the same, with all that retries need; `first` is the outcome of a first try that was made already."""
        loop = self._session.loop
        deadline = started + timeout_ms / 1000
        left_ms = timeout_ms
        if route is None:
            route = await self.find_route(parcel.topic, deadline)
            left_ms = (deadline - loop.time()) * 1000
        history = History()
        last: MessageQueue | None = None
        receipt: Receipt | None = None
        while history.tries < self._tries_max:
            if not route.write_queues and _has_lost_master(route):
                if loop.time() >= deadline:
                    break
                route = await self._look_again(parcel.topic, route, history, deadline)
                continue
            queue = self._pick(route, choose, last) if first is None else first[0]
            if history.tries or history.pauses:
                # A slow broker gets more time after each silence, so that it stores few copies.
                left_ms = min((deadline - loop.time()) * 1000, self._try_timeout_ms * 2**history.silences)
            else:
                left_ms = min(left_ms, self._try_timeout_ms)
            if left_ms <= 0:
                break
            try:
                if first is None:
                    receipt = await self._try_once(parcel, queue, left_ms)
                else:
                    receipt, first = _read_first(first), None
            except (NetError, RequestRefused, WireError) as error:
                first = None
                if _is_between_masters(route, queue, error, choose) and loop.time() < deadline:
                    history.add_pause(describe_try(queue, error), error)
                    route = await self._look_again(parcel.topic, route, history, deadline)
                    continue
                history.add(queue, error)
                if self._stays_where_it_may_be_stored and _may_be_stored(error):
                    choose = _stay_at(queue)
                if not _may_retry(parcel, error) or history.is_refused_everywhere(route, choose):
                    break
                if history.tries < self._tries_max:
                    route = await self._prepare_retry(parcel.topic, route, queue, error, history, deadline, choose)
            else:
                if route.is_template:
                    self._learn(parcel.topic)
                if receipt.status is SendStatus.STORED or history.copies + 1 >= self._copies_max:
                    self._meter.add_sent(loop.time() - started)
                    self._meter.add_tries(history.tries + 1)
                    return receipt
                history.add_copy(queue, receipt)
                if self._stays_where_it_may_be_stored:
                    choose = _stay_at(queue)
            last = queue
        self._meter.add_tries(history.tries)
        if receipt is not None:
            self._meter.add_sent(loop.time() - started)
            return receipt  # stored by the last try that was answered, but not synced as required
        self._meter.add_failed()
        raise history.explain(parcel.topic, timeout_ms)

    async def send_oneway(self, parcel: Parcel, choose: Selector | None) -> None:
        """Send a parcel without waiting for an answer. Raises an error only if it could not be sent at all."""
        route = await self._session.routes.get_for_send(parcel.topic)
        queue = self._pick(route, choose, None)
        self._tell_before(parcel, queue)
        await self.sender.send_oneway(parcel, queue)
        self._tell_after(parcel, queue, None, None, 0)
        if route.is_template:
            self._learn(parcel.topic)

    def _learn(self, topic: str) -> None:
        """Look up the topic's own route in the background: it exists now, so it will have one soon."""
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

    async def _try_once(self, parcel: Parcel, queue: MessageQueue, timeout_ms: float) -> Receipt:
        if self._is_timed:
            return await self._try_timed(parcel, queue, timeout_ms)
        return read_receipt(await self.sender.begin(parcel, queue, timeout_ms), parcel, queue)

    async def _try_timed(self, parcel: Parcel, queue: MessageQueue, timeout_ms: float) -> Receipt:
        """Make one try, and report it to the hooks and the record of slow brokers."""
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
            seconds = loop.time() - started
            if receipt is not None or failure is not None:  # neither: it was cancelled
                # A message that every broker would refuse is not a fault of this one.
                is_fault = failure is not None and _may_retry(parcel, failure)
                self._chooser.faults.update(queue.broker_name, round(seconds * 1000), is_fault, self._now_ms())
                self._tell_after(parcel, queue, receipt, failure, seconds)
        return receipt

    async def find_route(self, topic: str, deadline: float) -> Route:
        """Return the route for sending to a topic; retry until there is one, or the time or the tries are used up.

        Raises SendFailed, NoRoute, and NetError when no name server answers.
        """
        failures = 0
        last: ErucaError | None = None
        outages = self._session.outages
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    route = await self._session.routes.get_for_send(topic)
                if failures:
                    outages.end(f"topic {topic}")
                return route
            except TimeoutError:
                if last is not None:  # it explains more than a timeout would
                    raise last from None
                raise SendFailed(
                    f"the route of {topic} was not found in time", ["no name server answered"], hint="is one running?"
                ) from None
            except ErucaError as error:
                last = error
                failures += 1
                if not error.retryable or failures >= self._tries_max:
                    raise
                # The error itself comes after the whole timeout, so the log says at once what is waited for.
                server = f"topic {topic}" if isinstance(error, NoRoute) else NAME_SERVERS
                outages.report(log, server, error, "the route of %s was not found: %s", topic, error)
                if not await _rest(_RETRIES.after(failures), deadline):
                    raise

    async def _prepare_retry(
        self,
        topic: str,
        route: Route,
        queue: MessageQueue,
        failure: ErucaError,
        history: History,
        deadline: float,
        choose: Selector | None,
    ) -> Route:
        """Return the route for the next try: it may have changed. Brokers that failed get a pause first."""
        brokers = {other.broker_name for other in route.write_queues} | {queue.broker_name}
        # Another broker is tried at once, until each has had its turn.
        if choose is not None or history.tries >= len(brokers):
            await _rest(_RETRIES.after(history.tries - len(brokers) + 1), deadline)
        is_misled = isinstance(failure, RequestRefused) and failure.code in _MISLED_CODES
        if is_misled or (isinstance(failure, NetError) and not isinstance(failure, TooManyCalls)):
            return await self._refresh(topic, route, deadline)
        return route

    async def _refresh(self, topic: str, route: Route, deadline: float) -> Route:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._session.routes.refresh_for_send(topic)
        except (ErucaError, TimeoutError):
            return route  # there is nothing better than the old one

    async def _look_again(self, topic: str, route: Route, history: History, deadline: float) -> Route:
        """Wait a moment and look up the route again: a slave may become the master soon."""
        if not route.write_queues:
            history.add_pause(f"no broker of {topic} has a master now")
        history.pauses += 1
        await _rest(_LOOKS.after(history.pauses), deadline)
        return await self._refresh(topic, route, deadline)

    # -- hooks -------------------------------------------------------------------------------------------------------

    def _tell_before(self, parcel: Parcel, queue: MessageQueue) -> None:
        for hook in self._hooks:
            try:
                hook.before_send(parcel, queue)
            except Exception:
                log.exception("a hook failed before a send")

    def _tell_after(
        self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, seconds: float
    ) -> None:
        for hook in self._hooks:
            try:
                hook.after_send(parcel, queue, receipt, error, seconds)
            except Exception:
                log.exception("a hook failed after a send")


async def _rest(pause_s: float, deadline: float) -> bool:
    """Wait, for at most half of the time that is left; return False if none is left for another try."""
    left_s = deadline - asyncio.get_running_loop().time()
    if left_s <= _LEFT_S_MIN:
        await asyncio.sleep(max(0.0, left_s))
        return False
    await asyncio.sleep(min(pause_s, left_s / 2))
    return True


def _read_first(first: tuple[MessageQueue, Receipt | ErucaError]) -> Receipt:
    """Return the receipt of a first try, or raise its error."""
    _, outcome = first
    if isinstance(outcome, ErucaError):
        raise outcome
    return outcome


def _may_retry(parcel: Parcel, error: ErucaError) -> bool:
    if isinstance(error, RequestRefused) and parcel.code in _REPLY_CODES:
        return False  # the requester is gone; the broker stored the reply, and would store it again
    return error.retryable or isinstance(error, WireError)


def _may_be_stored(error: ErucaError) -> bool:
    """Return whether a failed try may have stored the message: it was sent, and the broker did not refuse it."""
    return not isinstance(error, ConnectFailed | TooManyCalls | RequestRefused)


def _stay_at(queue: MessageQueue) -> Selector:
    return lambda _: queue


def _has_lost_master(route: Route) -> bool:
    """Return whether a broker has slaves only. One of them may become the master soon."""
    return any(MASTER_ID not in by_id for by_id in route.brokers.values())


def _is_between_masters(route: Route, queue: MessageQueue, error: ErucaError, choose: Selector | None) -> bool:
    """Return whether a message was not accepted because a slave is about to replace its master.

    True only if no other broker can be used, and if it is certain that the message was not stored.
    """
    if choose is None and any(other.broker_name != queue.broker_name for other in route.write_queues):
        return False
    by_id = route.brokers.get(queue.broker_name, {})
    if not by_id.keys() - {MASTER_ID}:
        return False
    is_refused = isinstance(error, RequestRefused) and error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return is_refused or isinstance(error, ConnectFailed)

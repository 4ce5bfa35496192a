"""Ordered consuming: the messages of a queue one after another, while the broker keeps the queue locked for us."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from eruca._client.group.inbox import Inbox
from eruca._client.group.observing import ConsumeObserver
from eruca._client.group.redelivery import Redelivery
from eruca._client.group.settling import Settlement
from eruca._client.message import Decode, Message, Outcome
from eruca._client.push.handlers import HandlerEntry
from eruca._wire.names import RETRY_PREFIX
from eruca._wire.properties import RETRY_TOPIC
from eruca._wire.record import Record
from eruca.errors import ErucaError

log = logging.getLogger(__name__)


class _Lane:
    """One queue: messages that wait, messages consumed but not committed, and the task that works on them."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.waiting: deque[Message] = deque()
        # Consumed by a handler that commits explicitly, and not committed yet.
        self.uncommitted: list[Message] = []
        self.arrived = asyncio.Event()
        # Whether the handler is running now.
        self.busy = False
        self.leaving = False
        self.task: asyncio.Task[None] | None = None

    def goes_on(self) -> bool:
        """Return whether the queue is ours and is to remain ours."""
        return not self.leaving and self.inbox.is_ours()


class OrderedService:
    """Runs handlers on the messages of each queue in order."""

    def __init__(
        self,
        redelivery: Redelivery,
        observer: ConsumeObserver,
        *,
        namespace: str,
        suspend_s: float,
        max_deliveries: int | None,
        concurrency: int,
        decode: Decode | None = None,
    ) -> None:
        self._redelivery = redelivery
        self._observer = observer
        self._namespace = namespace
        self._suspend_s = suspend_s
        # None: a message is tried until it succeeds; the messages after it wait.
        self._max_deliveries = max_deliveries
        self._decode = decode
        self._slots = asyncio.Semaphore(concurrency)
        self._handlers: dict[str, HandlerEntry] = {}
        self._lanes: dict[Inbox, _Lane] = {}

    def add_handler(self, handler: HandlerEntry) -> None:
        """Register a handler."""
        self._handlers[handler.topic] = handler

    def deliver(self, inbox: Inbox, records: list[Record]) -> None:
        """Pass pulled messages to the workers."""
        lane = self._lanes.get(inbox)
        if lane is None:
            lane = self._lanes[inbox] = _Lane(inbox)
            lane.task = asyncio.get_running_loop().create_task(self._work(lane))
        if inbox.settle is None:
            inbox.settle = Settlement(inbox, self._redelivery, in_order=True)
        queue, namespace, settle, decode = inbox.queue, self._namespace, inbox.settle, self._decode
        lane.waiting.extend([Message(record, queue, namespace, settle, decode) for record in records])
        lane.arrived.set()

    def has_lock(self, inbox: Inbox) -> bool:
        """Return whether we hold the lock of the queue, so that its messages may be handled."""
        return inbox.locked_until > asyncio.get_running_loop().time()

    # -- one queue ---------------------------------------------------------------------------------------------------

    async def _work(self, lane: _Lane) -> None:
        inbox = lane.inbox
        while lane.goes_on():
            if not lane.waiting or not self.has_lock(inbox):
                lane.arrived.clear()
                await self._wait(lane)
                continue
            async with self._slots:
                if not lane.goes_on() or not self.has_lock(inbox):
                    continue
                lane.busy = True
                try:
                    outcome = await self._consume(lane)
                finally:
                    lane.busy = False
            if outcome is Outcome.LATER or outcome is Outcome.ROLLBACK:
                await self._suspend(lane)

    async def _wait(self, lane: _Lane) -> None:
        """Wait for messages; while the lock is missing, return after a short time to check it again."""
        try:
            async with asyncio.timeout(self._suspend_s if lane.waiting else None):
                await lane.arrived.wait()
        except TimeoutError:
            return

    async def _suspend(self, lane: _Lane) -> None:
        """Pause the queue for a while; leaving it ends the pause."""
        lane.arrived.clear()
        deadline = asyncio.get_running_loop().time() + self._suspend_s
        try:
            async with asyncio.timeout_at(deadline):
                while lane.goes_on():
                    await lane.arrived.wait()
                    lane.arrived.clear()
        except TimeoutError:
            return

    async def _consume(self, lane: _Lane) -> Outcome:
        inbox, waiting = lane.inbox, lane.waiting
        handler = self._find_handler(waiting[0])
        messages = [waiting.popleft()]
        while len(messages) < handler.batch and waiting and self._find_handler(waiting[0]) is handler:
            messages.append(waiting.popleft())
        loop = asyncio.get_running_loop()
        started = loop.time()
        for message in messages:
            inbox.running[message.offset] = (started, message.record)
        try:
            if self._observer.is_watched:
                outcome = await self._observer.consume(handler.call, messages)
            else:
                outcome = await handler.call(messages)
        except Exception:  # not raised by the handler (that would be an outcome); the queue must continue
            log.exception("%s could not be passed to its handler", messages[0])
            outcome = Outcome.LATER
        for message in messages:
            inbox.running.pop(message.offset, None)
        inbox.last_consumed = loop.time()
        is_done = outcome in (Outcome.DONE, Outcome.COMMIT)
        self._observer.find_tally(handler.topic).add(len(messages), is_done, inbox.last_consumed - started)
        if inbox.is_ours():
            outcome = await self._settle(lane, handler, messages, outcome)
        return outcome

    async def _settle(self, lane: _Lane, handler: HandlerEntry, messages: list[Message], outcome: Outcome) -> Outcome:
        """Act on the outcome; returns the final outcome, which may differ."""
        inbox = lane.inbox
        # The handler may already have settled single messages.
        messages = [message for message in messages if message._settle is not None]
        if outcome is Outcome.DEAD:
            buried = await self._bury(lane, messages)
            left = [message for message in messages if message not in buried]
            lane.waiting.extendleft(reversed(left))
            if left:
                return Outcome.LATER
        elif outcome is Outcome.LATER:
            await self._put_back(lane, messages)
        elif outcome is Outcome.ROLLBACK:
            lane.uncommitted += messages
            lane.waiting.extendleft(reversed(lane.uncommitted))
            lane.uncommitted = []
        elif handler.auto_commit or outcome is Outcome.COMMIT:
            for message in [*lane.uncommitted, *messages]:
                inbox.finish(message.offset)
            lane.uncommitted = []
        else:
            lane.uncommitted += messages
        return outcome

    async def _put_back(self, lane: _Lane, messages: list[Message]) -> None:
        """Put the messages back for another try; those tried too often become dead letters."""
        limit = self._max_deliveries
        dead = [message for message in messages if limit is not None and message.delivery >= limit]
        buried = await self._bury(lane, dead)
        again = [message for message in messages if message not in buried]
        for message in again:
            message.delivery += 1
        lane.waiting.extendleft(reversed(again))

    async def _bury(self, lane: _Lane, messages: list[Message]) -> list[Message]:
        """Send messages to the dead letters; returns those that were sent. The others must be tried again."""
        buried = []
        for message in messages:
            try:
                await self._redelivery.bury(message.record, message.delivery)
            except ErucaError as error:
                log.error("message %s cannot be sent to the dead letters now: %s", message.message_id, error)
            except Exception:
                log.exception("message %s cannot be sent to the dead letters now", message.message_id)
            else:
                lane.inbox.finish(message.offset)
                buried.append(message)
        return buried

    def _find_handler(self, message: Message) -> HandlerEntry:
        topic = message.record.topic
        if topic.startswith(RETRY_PREFIX):
            topic = message.record.get_property(RETRY_TOPIC) or topic
        return self._handlers.get(topic) or next(iter(self._handlers.values()))

    # -- leaving -----------------------------------------------------------------------------------------------------

    async def leave(self, inbox: Inbox) -> None:
        """Start no more messages of a queue, and wait until its running handler has ended."""
        lane = self._lanes.pop(inbox, None)
        if lane is None:
            return
        lane.leaving = True
        lane.arrived.set()
        if lane.task is not None:
            if not lane.busy:
                lane.task.cancel()
            await asyncio.gather(lane.task, return_exceptions=True)

    async def close(self, drain_s: float) -> None:
        """Leave every queue."""
        lanes = list(self._lanes)
        leaving = [asyncio.get_running_loop().create_task(self.leave(inbox)) for inbox in lanes]
        if leaving:
            _, late = await asyncio.wait(leaving, timeout=drain_s)
            if late:
                log.warning(
                    "%d handlers are still running after %.0f s; their messages will be redelivered",
                    len(late),
                    drain_s,
                )
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for handler in self._handlers.values():
            handler.close()

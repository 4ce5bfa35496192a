"""Concurrent consuming: each handler has a crew of workers. The messages of a queue start in order, end in any."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from eruca._client.group.inbox import Inbox
from eruca._client.group.observing import ConsumeObserver
from eruca._client.group.redelivery import Redelivery
from eruca._client.group.settling import Settlement
from eruca._client.later import DEAD, Later
from eruca._client.message import Decode, Message, Outcome
from eruca._client.push.crew import Crew
from eruca._client.push.handlers import HandlerEntry
from eruca._core.concurrency import AdaptiveLimit
from eruca._ground.repeating import Repeating
from eruca._wire.names import RETRY_PREFIX
from eruca._wire.properties import RETRY_TOPIC
from eruca._wire.record import Record
from eruca.errors import ErucaError

log = logging.getLogger(__name__)

# Handlers that never wait would keep the loop to themselves. After this much time, summed over all of them, everything
# else on the loop gets a turn.
_SLICE_S = 0.005
_EXPIRED = Later(3)
_BACKOFF_S = 5.0
_ADAPTIVE_START = 8
_LOOK_S = 0.5
# The minimum time between two checks for handlers that take too long.
_EXPIRE_S_MIN = 0.1


class ConcurrentService:
    """Runs handlers on messages as they arrive."""

    def __init__(
        self,
        redelivery: Redelivery,
        observer: ConsumeObserver,
        *,
        namespace: str,
        broadcast: bool,
        timeout_s: float,
        decode: Decode | None = None,
    ) -> None:
        self._redelivery = redelivery
        self._observer = observer
        self._namespace = namespace
        self._broadcast = broadcast
        self._timeout_s = timeout_s
        self._decode = decode
        self._crews: dict[str, Crew] = {}
        self._quiet = asyncio.Event()
        self._closing = False
        self._closed = False
        # Tasks that send back messages whose handler failed in a thread.
        self._returning: set[asyncio.Task[None]] = set()
        # Timers that adjust how many calls of adaptive handlers may run at once.
        self._adapting: list[Repeating] = []
        # When the current time slice of handlers that never wait ends, and the future that its waiters share.
        self._slice_end = 0.0
        self._next_slice: asyncio.Future[None] | None = None

    def add_handler(self, handler: HandlerEntry) -> None:
        """Register a handler."""
        self._crews[handler.topic] = Crew(handler, self._observer.find_tally(handler.topic))

    def deliver(self, inbox: Inbox, records: list[Record]) -> None:
        """Pass pulled messages to the workers."""
        if inbox.settle is None:
            inbox.settle = Settlement(inbox, self._redelivery, broadcast=self._broadcast)
        if not inbox.queue.topic.startswith(RETRY_PREFIX):
            self._assign(self._crews[inbox.queue.topic], [(inbox, record) for record in records])
            return
        for record in records:
            chosen = self._crews.get(record.get_property(RETRY_TOPIC) or "")
            if chosen is None:
                # A retry of a topic that is no longer subscribed: the first handler gets it, as in the Java client.
                chosen = next(iter(self._crews.values()))
            self._assign(chosen, [(inbox, record)])

    def _assign(self, crew: Crew, messages: list[tuple[Inbox, Record]]) -> None:
        if not crew.workers and crew.threads is None:
            self._hire(crew)
        crew.ready.extend(messages)
        if crew.threads is None:
            crew.wake_one()
        else:
            crew.in_threads += len(messages)
            crew.threads.put([(self._consume_here, crew)] * len(messages))

    def _hire(self, crew: Crew) -> None:
        """Start workers: threads for a plain function, unless an observer wants to see each message."""
        handler = crew.handler
        loop = asyncio.get_running_loop()
        if not handler.is_async and not self._observer.is_watched:
            crew.threads = handler.threads
        else:
            crew.workers = [loop.create_task(self._work(crew)) for _ in range(handler.concurrency)]
        if handler.is_adaptive:
            adapting = self._adapt(crew)
            self._adapting.append(adapting)
            adapting.start()

    def _adapt(self, crew: Crew) -> Repeating:
        """Adjust the number of concurrent calls for the best throughput."""
        loop = asyncio.get_running_loop()
        most = crew.handler.concurrency
        found = AdaptiveLimit(high=most, start=min(_ADAPTIVE_START, most))
        self._limit(crew, found.limit)
        looked_at, done = loop.time(), crew.done

        async def look() -> None:
            nonlocal looked_at, done
            now = loop.time()
            limit = found.look(crew.done - done, now - looked_at, len(crew.ready))
            looked_at, done = now, crew.done
            if limit != crew.limit:
                log.debug("%d calls of the handler of %s may run at once", limit, crew.handler.topic)
                self._limit(crew, limit)

        return Repeating(f"the choice of how many calls for {crew.handler.topic} run at once", look, lambda: _LOOK_S)

    def _limit(self, crew: Crew, limit: int) -> None:
        crew.limit = limit
        if crew.threads is not None:
            crew.threads.resize(limit)
        else:
            crew.wake_one()

    # -- tasks that work ---------------------------------------------------------------------------------------------

    async def _work(self, crew: Crew) -> None:
        loop = asyncio.get_running_loop()
        ready = crew.ready
        while True:
            if not ready or crew.busy >= crew.limit:
                future = loop.create_future()
                crew.idle.append(future)
                await future
                continue
            began = loop.time()
            if began > self._slice_end:
                await self._wait_for_slice()
                continue
            taken = crew.take()
            if taken is None or taken[0].leaving:
                continue
            inbox, records = taken
            if ready and crew.idle and crew.busy + 1 < crew.limit:
                # The woken worker runs only if this worker waits for something; otherwise it finds nothing and rests.
                crew.wake_one()
            crew.busy += 1
            try:
                messages = self._begin(inbox, records, began)
                outcome = await self._call(crew.handler, messages)
                inbox.last_consumed = ended = loop.time()
                is_done = outcome is Outcome.DONE or outcome is Outcome.COMMIT
                crew.done += len(records)
                crew.tally.add(len(records), is_done, ended - began)
                if is_done:
                    inbox.end(records)
                else:
                    await self._give_back_all(inbox, messages, outcome)
            finally:
                crew.busy -= 1
                if self._closing and not crew.busy:
                    self._quiet.set()

    def _begin(self, inbox: Inbox, records: list[Record], began: float) -> list[Message]:
        """Note that a handler begins with these records, and return them as messages. May be called in any thread."""
        running, queue, settle, namespace, decode = (
            inbox.running,
            inbox.queue,
            inbox.settle,
            self._namespace,
            self._decode,
        )
        messages = []
        for record in records:
            running[record.queue_offset] = (began, record)
            messages.append(Message(record, queue, namespace, settle, decode))
        return messages

    async def _call(self, handler: HandlerEntry, messages: list[Message]) -> Outcome:
        try:
            if self._observer.is_watched:
                return await self._observer.consume(handler.call, messages)
            return await handler.call(messages)
        except Exception:  # not raised by the handler (that would be an outcome); the worker must survive it
            log.exception("%s could not be passed to its handler", messages[0])
            return Outcome.LATER

    async def _wait_for_slice(self) -> None:
        """Let everything else on the loop have a turn. All workers wait for the same next slice."""
        if self._next_slice is None:
            loop = asyncio.get_running_loop()
            self._next_slice = loop.create_future()
            loop.call_soon(self._begin_slice)
        await self._next_slice

    def _begin_slice(self) -> None:
        waiting, self._next_slice = self._next_slice, None
        self._slice_end = asyncio.get_running_loop().time() + _SLICE_S
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # -- threads that work -------------------------------------------------------------------------------------------

    def _consume_here(self, crew: Crew) -> None:
        """In a thread: call the handler with the next messages, and report the outcome to the loop."""
        taken, threads = crew.take_in_thread(), crew.threads
        if taken is None or threads is None:
            return
        inbox, records = taken
        messages = self._begin(inbox, records, threads.loop.time())
        if inbox.leaving:  # after that: `leave` waits for what is running, and this may be in another thread
            threads.post(self._skip, (crew, inbox, records))
            return
        started = time.monotonic()
        outcome = crew.handler.call_here(messages, threads.loop)
        threads.post(self._settle, (crew, inbox, records, messages, outcome, time.monotonic() - started))

    def _skip(self, skipped: tuple[Crew, Inbox, list[Record]]) -> None:
        """In the loop: forget messages that were not handled because their queue is no longer ours."""
        crew, inbox, records = skipped
        for record in records:
            inbox.running.pop(record.queue_offset, None)
        inbox.changed.set()
        self._leave(crew, len(records))

    def _settle(self, ended: tuple[Crew, Inbox, list[Record], list[Message], Outcome, float]) -> None:
        """In the loop: settle messages whose handler has ended in its thread."""
        if self._closed:
            return
        crew, inbox, records, messages, outcome, spent_s = ended
        crew.done += len(records)
        is_done = outcome is Outcome.DONE or outcome is Outcome.COMMIT
        if not inbox.dropped:
            inbox.last_consumed = asyncio.get_running_loop().time()
            crew.tally.add(len(records), is_done, spent_s)
        if is_done or inbox.dropped:
            inbox.end(records)
            self._leave(crew, len(records))
            return
        task = asyncio.get_running_loop().create_task(self._give_back_all(inbox, messages, outcome))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
        task.add_done_callback(lambda _: self._leave(crew, len(messages)))

    def _leave(self, crew: Crew, count: int) -> None:
        crew.in_threads -= count
        if self._closing and not crew.in_threads:
            self._quiet.set()

    # -- what failed -------------------------------------------------------------------------------------------------

    async def _give_back_all(self, inbox: Inbox, messages: list[Message], outcome: Outcome) -> None:
        for message in messages:
            record = message.record
            # The handler may already have settled single messages.
            is_open = message._settle is not None and inbox.process.is_open(record.queue_offset)
            if is_open and not inbox.dropped:
                await self._give_back(inbox, record, DEAD if outcome is Outcome.DEAD else message._later)
            inbox.end([record])

    async def _give_back(self, inbox: Inbox, record: Record, later: Later) -> None:
        if self._broadcast:
            log.warning("broadcast message at %s, offset %d, failed and is dropped", inbox.queue, record.queue_offset)
            return
        await self._redelivery.send_back_stubbornly(record, inbox.queue, later, _BACKOFF_S)

    # -- time and end ------------------------------------------------------------------------------------------------

    def find_pause(self, inboxes: Iterable[Inbox]) -> float:
        """Return how many seconds from now the first message can time out in its handler."""
        now = asyncio.get_running_loop().time()
        first = now
        for inbox in () if self._broadcast else inboxes:
            # Threads may start messages meanwhile. A message that was sent back may still be with its handler.
            began = [at for offset, (at, _) in list(inbox.running.items()) if inbox.process.is_open(offset)]
            first = min([first, *began])
        return max(first + self._timeout_s - now, _EXPIRE_S_MIN)

    async def expire(self, inboxes: Iterable[Inbox]) -> int:
        """Send back messages that a handler has held too long, so that they do not block the queue; returns how many.

        If one message cannot be sent back now, the others still are.
        """
        oldest = asyncio.get_running_loop().time() - self._timeout_s
        count = 0
        for inbox in inboxes:
            # Threads may start messages meanwhile.
            late = [record for began, record in list(inbox.running.values()) if began <= oldest]
            if late and not self._broadcast:
                count += await self._expire_queue(inbox, late)
        return count

    async def _expire_queue(self, inbox: Inbox, late: list[Record]) -> int:
        count = 0
        for record in late:
            offset = record.queue_offset
            if inbox.dropped or not inbox.process.is_open(offset):
                continue
            log.warning("a handler holds %s, offset %d, for over %.1f s", inbox.queue, offset, self._timeout_s)
            try:
                await self._redelivery.send_back(record, inbox.queue, _EXPIRED)
            except ErucaError as error:
                log.warning("%s, offset %d, cannot be sent back now, retrying: %s", inbox.queue, offset, error)
                if offset in inbox.running:
                    again_at = asyncio.get_running_loop().time() + _BACKOFF_S
                    inbox.running[offset] = (again_at - self._timeout_s, record)
                continue
            if inbox.finish(offset):
                count += 1
        return count

    async def leave(self, inbox: Inbox) -> None:
        """Start no more messages of a queue, and wait until its running handlers have ended or took too long."""
        inbox.leaving = True
        if not await inbox.wait_until(lambda: not inbox.running, self._timeout_s):
            log.warning("%s is released while a handler works on it, after %.1f s", inbox.queue, self._timeout_s)

    async def close(self, drain_s: float) -> None:
        """Start nothing new, and wait for the handlers that are running."""
        self._closing = True
        crews = self._crews.values()
        for crew in crews:
            crew.forget()
        if not all(crew.is_quiet for crew in crews):
            try:
                async with asyncio.timeout(drain_s):
                    while not all(crew.is_quiet for crew in crews):
                        self._quiet.clear()
                        await self._quiet.wait()
            except TimeoutError:
                log.warning("handlers are still running after %.0f s; their messages will be redelivered", drain_s)
        self._closed = True
        for adapting in self._adapting:
            await adapting.stop()
        tasks = [*self._returning, *[task for crew in crews for task in crew.workers]]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for crew in crews:
            crew.handler.close()

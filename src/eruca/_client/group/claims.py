"""Claims on queues: where a consumer begins in them, and the locks and waits that keep two members out of one queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial

from eruca._client.group.balance import Taken
from eruca._client.group.inbox import Inbox
from eruca._client.group.locking import QueueLocks
from eruca._client.group.offsets import OffsetStore, Progress
from eruca._client.group.settings import GroupSettings
from eruca._client.group.starting import StartOffsets
from eruca._client.session.session import Session
from eruca._ground.durations import to_seconds
from eruca._ground.repeating import Repeating
from eruca._wire.bodies import MessageQueue
from eruca.errors import ErucaError

log = logging.getLogger(__name__)


class Claims:
    """The claims of one started consumer."""

    def __init__(
        self,
        session: Session,
        offsets: OffsetStore,
        settings: GroupSettings,
        inboxes: Mapping[MessageQueue, Inbox],
        *,
        is_locked: bool,
        is_ordered: bool = False,
        lose: Callable[[MessageQueue], Awaitable[None]],
        on_left: Callable[[], None],
    ) -> None:
        """`lose` is called with a queue whose lock another member has; `on_left` when a queue was released."""
        self.is_locked = is_locked
        self.starts = StartOffsets(session, offsets, settings.start)
        self._inboxes = inboxes
        self._on_left = on_left
        # Queues that are no longer ours, but are still worked on.
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        # Those whose release was cut short by the end of the consumer.
        self._unreleased: set[MessageQueue] = set()
        # An ordered queue pauses while its lock is not confirmed, and continues after that.
        lock_s = to_seconds("Rebalance.lock_interval", settings.rebalance.lock_interval)
        self._locks = QueueLocks(session, offsets.group, lock_s, gives_up=not is_ordered)
        self._renewing = Repeating(
            "the renewal of locks",
            lambda: self._locks.renew_all(self._inboxes, lose),
            lambda: self._locks.find_pause(self._inboxes.values()),
        )

    def start(self) -> None:
        """Renew locks from now on."""
        if self.is_locked:
            self._renewing.start()

    async def claim(self, queue: MessageQueue, first_seen: frozenset[MessageQueue]) -> Progress | Taken:
        """Lock a queue if necessary, and return where to begin, or why it cannot be taken now."""
        if queue in self._leaving:
            return Taken.HELD
        try:
            if self.is_locked and not await self._locks.lock(queue):
                return Taken.HELD
            return await self.starts.find(queue, first_seen)
        except ErucaError as error:
            self.starts.report(queue, error)
            if self.is_locked and queue in self._locks.asked:
                await self._locks.unlock([queue])  # another member may take it before we try again
            return Taken.FAILED

    def confirm(self, inbox: Inbox) -> None:
        """Record that a queue has just been claimed."""
        if self.is_locked:
            self._locks.renew(inbox)
        else:
            inbox.locked_until = float("inf")  # no member competes for it

    # -- leaving -----------------------------------------------------------------------------------------------------

    def is_leaving(self, queue: MessageQueue) -> bool:
        """Return whether a queue is about to be released."""
        return queue in self._leaving

    def leave(self, queue: MessageQueue, work: Coroutine[None, None, None]) -> None:
        """Release a queue once this work is done; meanwhile nobody else gets it."""
        task = asyncio.get_running_loop().create_task(self._leave(queue, work))
        self._leaving[queue] = task
        task.add_done_callback(partial(self._end_leaving, queue))

    async def _leave(self, queue: MessageQueue, work: Coroutine[None, None, None]) -> None:
        await work
        if self.is_locked:
            await self._locks.unlock([queue])

    def _end_leaving(self, queue: MessageQueue, task: asyncio.Task[None]) -> None:
        self._leaving.pop(queue, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("queue %s could not be released", queue, exc_info=error)
        self._on_left()

    async def stop_leaving(self, timeout_s: float) -> None:
        """Wait for queues that are about to be released, at most this long; then they are released with the others."""
        if not self._leaving:
            return
        _, late = await asyncio.wait(self._leaving.values(), timeout=timeout_s)
        self._unreleased = {queue for queue, task in self._leaving.items() if task in late}
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def stop_renewing(self) -> None:
        """Stop renewing locks; those that we have are valid for some time."""
        await self._renewing.stop()

    async def release_all(self) -> None:
        """Release the locks of all queues."""
        if self.is_locked:
            # This includes queues that were being locked when the balance was stopped.
            await self._locks.unlock(self._locks.asked | self._inboxes.keys() | self._unreleased)

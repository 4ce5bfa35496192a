"""A push consumer's part in its group: the queues it has, what it pulls from them, and its position in each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from eruca._client.group.balance import Balance, Taken
from eruca._client.group.changes import QueueChanges
from eruca._client.group.claims import Claims
from eruca._client.group.discovery import Discovery
from eruca._client.group.inbox import Inbox
from eruca._client.group.offsets import OffsetStore, Progress
from eruca._client.group.pausing import Pauses
from eruca._client.group.pulling import Puller
from eruca._client.group.settings import GroupSettings
from eruca._client.group.subscriptions import Subscription, TopicPattern
from eruca._client.push.concurrent import ConcurrentService
from eruca._client.push.ordered import OrderedService
from eruca._client.session.session import Session
from eruca._core.allocation import find_strategy
from eruca._ground.durations import to_seconds
from eruca._ground.repeating import Repeating
from eruca._wire.bodies import MessageQueue
from eruca._wire.record import Record
from eruca.errors import ErucaError

log = logging.getLogger(__name__)

Deliver = Callable[[Inbox, list[Record]], None]


class Membership:
    """The queues of one started consumer."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: dict[str, Subscription],
        settings: GroupSettings,
        offsets: OffsetStore,
        service: ConcurrentService | OrderedService,
        deliver: Deliver,
        pauses: Pauses,
    ) -> None:
        self.session = session
        self.inboxes: dict[MessageQueue, Inbox] = {}
        self.offsets = offsets
        self._subscriptions = subscriptions
        self._settings = settings
        self._service = service
        self._pauses = pauses
        rebalance, offsets_s = settings.rebalance, to_seconds("Offsets.interval", settings.offsets.interval)
        self._settle_s_max = to_seconds("Retry.handler_timeout", settings.retry.handler_timeout)
        ordered = isinstance(service, OrderedService)
        # Whether a queue is released only when its handlers have ended.
        self._is_patient = ordered or rebalance.exclusive
        self._claims = Claims(
            session,
            offsets,
            settings,
            self.inboxes,
            is_locked=self._is_patient and not settings.broadcast,
            is_ordered=ordered,
            lose=self._lose,
            on_left=self.wake,
        )
        flow = replace(settings.flow, span_max=None) if ordered else settings.flow
        self._puller = Puller(session, group, flow, deliver, find_kept=None if settings.broadcast else offsets.read)
        self._changes = QueueChanges(rebalance.on_change, session.options.namespace)
        self._balance = Balance(
            session,
            group,
            find_strategy(rebalance.strategy),
            broadcast=settings.broadcast,
            interval_s=to_seconds("Rebalance.interval", rebalance.interval),
            take=self._take,
            drop=self._let_go,
            tell=self._tell,
            begin=self._begin,
        )
        self._balance.set_topics(subscriptions)
        self._timers = [Repeating("the commit of offsets", self._commit_newest, lambda: offsets_s)]
        if isinstance(service, ConcurrentService):
            self._timers.append(self._make_expiry(service))

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start sharing queues and pulling; wait until the start positions are known, or until a timeout.

        A new group that starts with the latest messages would miss messages sent before its start positions are known.
        """
        self._balance.start()
        for timer in self._timers:
            timer.start()
        self._claims.start()
        await self._balance.wait_settled(self._settings.start_seconds_max)

    async def stop(self) -> None:
        """Stop pulling, wait for running handlers, commit, and release every queue."""
        drain_s = self._settings.drain_s
        await self._balance.stop()
        for timer in self._timers:
            await timer.stop()
        tasks = [inbox.task for inbox in self.inboxes.values() if inbox.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._service.close(drain_s)
        await self._claims.stop_leaving(drain_s)
        await self._changes.tell_last(drain_s)
        # Only now: no other member may have a queue while its handler is running.
        await self._claims.stop_renewing()
        try:
            await self.commit()
        except ErucaError as error:
            log.warning("could not commit all offsets, some messages will be delivered again: %s", error)
        for inbox in self.inboxes.values():
            inbox.drop()
        await self._claims.release_all()
        self.inboxes.clear()
        await self.offsets.close()

    def make_discovery(
        self, patterns: Sequence[TopicPattern], on_found: Callable[[str, TopicPattern], None]
    ) -> Discovery:
        """Return the discovery that keeps all topics that match the patterns subscribed."""
        interval_s = to_seconds("Rebalance.interval", self._settings.rebalance.interval)
        return Discovery(self.session, patterns, self._subscriptions, self._balance, interval_s, on_found)

    def wake(self) -> None:
        """Check again which queues are ours."""
        self._balance.wake()

    def _make_expiry(self, service: ConcurrentService) -> Repeating:
        async def expire() -> None:
            await service.expire(list(self.inboxes.values()))

        return Repeating(
            "the return of messages that take too long", expire, lambda: service.find_pause(self.inboxes.values())
        )

    # -- queues ------------------------------------------------------------------------------------------------------

    async def _take(self, queue: MessageQueue) -> Taken:
        """Take a queue that is ours now."""
        begin = await self._claims.claim(queue, self._balance.first_seen.get(queue.topic, frozenset()))
        if isinstance(begin, Taken):
            return begin
        inbox = Inbox(queue, self._subscriptions[queue.topic], begin.offset)
        inbox.expect_done(begin.done, begin.source)
        self._claims.confirm(inbox)
        inbox.paused = self._pauses.covers(queue)
        self.inboxes[queue] = inbox
        return Taken.OURS

    def _begin(self, queue: MessageQueue) -> None:
        """Pull a queue that was taken."""
        inbox = self.inboxes.get(queue)
        if inbox is not None and not inbox.leaving:  # it may have been lost again since it was taken
            inbox.task = asyncio.get_running_loop().create_task(self._puller.run(inbox))

    async def _tell(self, assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
        """Report changes. Queues that are released later are reported as revoked then."""
        await self._changes.tell(assigned, [] if self._is_patient else revoked)

    async def _let_go(self, queue: MessageQueue) -> None:
        """Release a queue: at once, or, if it is exclusive, when nothing of it is worked on anymore."""
        inbox = self.inboxes.get(queue)
        if inbox is None or self._claims.is_leaving(queue):
            return
        if inbox.task is not None:
            inbox.task.cancel()
        if self._is_patient:
            self._claims.leave(queue, self._leave(inbox))
            return
        del self.inboxes[queue]
        # Before the commit, so that no handler starts on this queue during the commit.
        inbox.drop()
        await self._commit_one(inbox)

    async def _leave(self, inbox: Inbox) -> None:
        await self._service.leave(inbox)
        await self._changes.tell([], [inbox.queue])
        if not await inbox.wait_until(lambda: inbox.is_settled, self._settle_s_max):
            log.warning(
                "%s is released with unsettled messages after %.0f s: they will be delivered again",
                inbox.queue,
                self._settle_s_max,
            )
        if not inbox.dropped:  # by a reset of the group
            await self._commit_one(inbox)
            inbox.drop()
            self.inboxes.pop(inbox.queue, None)

    async def _lose(self, queue: MessageQueue) -> None:
        """Give up a queue that the broker has assigned to another member."""
        log.warning("the lock of %s is lost", queue)
        inbox = self.inboxes.get(queue)
        if inbox is not None:
            inbox.locked_until = 0.0
            inbox.is_lost = True
        self._balance.owned.get(queue.topic, set()).discard(queue)
        await self._let_go(queue)

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit the position of every queue, and wait until it is stored. Raises ErucaError."""
        await self.offsets.write(self._list_positions(), wait=True)

    async def _commit_newest(self) -> None:
        with suppress(ErucaError):  # it was reported and is tried again
            await self.offsets.write(self._list_positions())

    def _list_positions(self) -> dict[MessageQueue, Progress]:
        return {
            queue: _describe(inbox)
            for queue, inbox in self.inboxes.items()
            if not inbox.is_lost and self._may_commit(inbox)
        }

    def _may_commit(self, inbox: Inbox) -> bool:
        """Return whether the broker that would get the commit has what we have read.

        A slave, or a master that took over, may not have it.
        """
        if self._settings.broadcast or not inbox.master:
            return True
        return self.session.routes.find_address(inbox.queue.broker_name) in (None, inbox.master, inbox.source)

    async def _commit_one(self, inbox: Inbox) -> None:
        queue, position = inbox.queue, _describe(inbox)
        if not self._may_commit(inbox):
            return
        try:
            if inbox.is_lost:
                kept = await self.offsets.read(queue)
                if kept is not None and kept.offset >= position.offset:
                    return  # the new owner is further ahead
            await self.offsets.write({queue: position}, wait=True)
        except ErucaError as error:
            log.warning("could not commit the offset of %s, messages will be delivered again: %s", queue, error)

    async def reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Drop what was pulled from a topic and continue from other offsets."""
        for queue, offset in offsets.items():
            inbox = self.inboxes.get(queue)
            if inbox is None or queue.topic != topic:
                continue
            if inbox.task is not None:
                inbox.task.cancel()
            if isinstance(self._service, OrderedService):
                await self._service.leave(inbox)
            inbox.drop()
            self.inboxes.pop(queue, None)
            try:
                await self.offsets.write({queue: Progress(max(0, offset))}, wait=True)
            except ErucaError as error:
                log.warning("queue %s continues where it was, and not at offset %d: %s", queue, offset, error)
            else:
                log.info("queue %s continues at offset %d: an operator reset the group", queue, offset)
            self._balance.owned.get(topic, set()).discard(queue)
        self._balance.wake()


def _describe(inbox: Inbox) -> Progress:
    """Return what to commit."""
    return Progress(inbox.commit_offset, tuple(inbox.process.list_done()))

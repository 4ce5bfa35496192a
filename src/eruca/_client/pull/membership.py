"""A pull consumer's queues: shared with the other members of its group, or assigned by its user."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from eruca._client.group.balance import Balance, Taken
from eruca._client.group.changes import QueueChanges
from eruca._client.group.claims import Claims
from eruca._client.group.discovery import Discovery
from eruca._client.group.offsets import OffsetStore
from eruca._client.group.settings import GroupSettings
from eruca._client.group.subscriptions import SQL92, Filter, Sql, Subscription, TopicPattern, make_subscription
from eruca._client.message import Decode, Settle
from eruca._client.namespaces import unwrap_queue
from eruca._client.pull.holdings import Holdings, PullInbox
from eruca._client.pull.queuereading import QueueReader
from eruca._client.session.session import Session
from eruca._core.allocation import find_strategy
from eruca._ground.durations import to_seconds
from eruca._ground.repeating import Repeating
from eruca._wire.bodies import MessageQueue
from eruca.errors import ErucaError, NoRoute

log = logging.getLogger(__name__)

#: Called with all queues of a topic whenever they change.
OnQueues: TypeAlias = Callable[[list[MessageQueue]], Awaitable[None] | None]


class PullMembership:
    """The queues of one started pull consumer."""

    def __init__(
        self,
        session: Session,
        subscriptions: dict[str, Subscription],
        patterns: Sequence[TopicPattern],
        watched: Mapping[str, OnQueues],
        settings: GroupSettings,
        offsets: OffsetStore,
        settle: Settle,
        *,
        auto_commit: bool,
        decode: Decode | None = None,
    ) -> None:
        self.session = session
        self.offsets = offsets
        self.is_assigned = False
        self._subscriptions = subscriptions
        # All known queues of the topics that the user watches in order to assign them.
        self._watched: dict[str, tuple[MessageQueue, ...]] = dict.fromkeys(watched, ())
        self._watchers = watched
        self._watching: list[str] = []
        self._settings = settings
        self._auto_commit = auto_commit
        self._namespace = namespace = session.options.namespace
        self.reader = QueueReader(session, offsets.group, namespace, decode)
        self.holdings = Holdings(
            session,
            offsets.group,
            settings.flow,
            offsets,
            namespace=namespace,
            settle=settle,
            decode=decode,
        )
        rebalance, commit_s = settings.rebalance, to_seconds("Offsets.interval", settings.offsets.interval)
        self._settle_s_max = to_seconds("Retry.handler_timeout", settings.retry.handler_timeout)
        self._claims = Claims(
            session,
            offsets,
            settings,
            self.holdings.inboxes,
            is_locked=rebalance.exclusive,
            lose=self._lose,
            on_left=self.wake,
        )
        self._changes = QueueChanges(rebalance.on_change, namespace)
        self._balance = Balance(
            session,
            offsets.group,
            find_strategy(rebalance.strategy),
            broadcast=settings.broadcast,
            interval_s=to_seconds("Rebalance.interval", rebalance.interval),
            take=self._take,
            drop=self._let_go,
            tell=self._tell,
            begin=self._begin,
        )
        self._balance.set_topics(subscriptions)
        self._discovery: Discovery | None = None
        if patterns:
            interval_s = to_seconds("Rebalance.interval", rebalance.interval)
            self._discovery = Discovery(
                session, patterns, subscriptions, self._balance, interval_s, lambda topic, pattern: None
            )
        self._committing = Repeating("the commit of offsets", self._commit_newest, lambda: commit_s)

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the brokers, have them check the SQL expressions, join the group, and start. Raises ErucaError.

        Returns when the start offsets are known, or after a timeout: a new group that starts at the latest message
        would miss what is sent before that.
        """
        await self.offsets.open()
        routes = self.session.routes
        if self._discovery is not None:
            await self._discovery.begin()
        for topic in [*self._subscriptions, *self._watched]:
            routes.watch(topic)
            if self._discovery is None or topic not in self._discovery.found:
                self._watching.append(topic)
            try:
                route = await routes.get(topic)
            except NoRoute as error:
                log.warning("nothing can be consumed from %s yet: %s", topic, error)
                continue
            if topic in self._watched:
                self._watched[topic] = route.read_queues
            elif self._subscriptions[topic].kind == SQL92:
                await self.reader.check_sql([self._subscriptions[topic]])
        routes.on_change.append(self._on_route_change)
        is_member = bool(self._subscriptions) or self._discovery is not None
        if is_member:
            await self.session.heartbeat()
            self._balance.start()
            self._claims.start()
        if self._auto_commit:
            self._committing.start()
        if self._discovery is not None:
            self._discovery.start()
        if is_member:
            await self._balance.wait_settled(self._settings.start_seconds_max)

    async def stop(self, *, is_clean: bool) -> None:
        """Commit what was handed out, or only what is known to be done, and release every queue."""
        await self._balance.stop()
        if self._discovery is not None:
            await self._discovery.stop()
        await self._committing.stop()
        await self.holdings.stop_fetching()
        if is_clean:
            self.holdings.finish_handed()
        await self._claims.stop_leaving(self._settings.drain_s if is_clean else 0.0)
        await self._changes.tell_last(self._settings.drain_s)
        await self._claims.stop_renewing()
        if self._auto_commit:
            try:
                await (self.holdings.commit_handed_out() if is_clean else self.holdings.commit_done())
            except ErucaError as error:
                log.warning("could not commit all offsets, some messages will be delivered again: %s", error)
        await self._claims.release_all()
        for queue in list(self.holdings.inboxes):
            self.holdings.remove(queue)
        await self.offsets.close()
        routes = self.session.routes
        if self._on_route_change in routes.on_change:
            routes.on_change.remove(self._on_route_change)
        for topic in self._watching:
            routes.unwatch(topic)

    def note_created(self, topics: list[str]) -> None:
        """Consume those of the new topics that match."""
        if self._discovery is not None:
            self._discovery.note_created(topics)

    # -- queues ------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Rebalance now."""
        self._balance.wake()

    async def _commit_newest(self) -> None:
        with suppress(ErucaError):  # already reported, and will be tried again
            await self.holdings.commit_done()

    async def assign(self, wanted: set[MessageQueue], tags: Filter) -> None:
        """Consume exactly these queues from now on. Raises ErucaError, and changes nothing then."""
        inboxes, holdings, session = self.holdings.inboxes, self.holdings, self.session
        version = session.clock.now_ms()
        topics = sorted({queue.topic for queue in wanted})
        subscriptions = {topic: make_subscription(topic, tags, version) for topic in topics}
        for topic in topics:
            await session.routes.get(topic)
        if isinstance(tags, Sql):
            await self.reader.check_sql(subscriptions.values())
        begin = {
            queue: await self._claims.starts.find(queue, frozenset(wanted), keep=self._auto_commit)
            for queue in sorted(wanted - inboxes.keys())
        }
        self.is_assigned = True
        for queue in inboxes.keys() - wanted:
            await self._let_go(queue)
        for queue in wanted:
            subscription = subscriptions[queue.topic]
            inbox = inboxes.get(queue)
            if inbox is None:
                holdings.add(queue, subscription, begin[queue].offset)
            elif inbox.subscription.wanted != subscription.wanted:
                inbox.subscription = subscription
                holdings.move(queue, inbox.position)

    async def reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Drop what was fetched from a topic and continue at other offsets. Raises ErucaError."""
        for queue, offset in offsets.items():
            inbox = self.holdings.inboxes.get(queue)
            if queue.topic == topic and inbox is not None and not inbox.leaving:
                self.holdings.move(queue, offset)
                log.info("queue %s continues at offset %d: an operator reset the group", queue, offset)
        await self.holdings.commit_done()

    async def _take(self, queue: MessageQueue) -> Taken:
        """Take a queue that is ours now."""
        begin = await self._claims.claim(queue, self._balance.first_seen.get(queue.topic, frozenset()))
        if isinstance(begin, Taken):
            return begin
        self._claims.confirm(self.holdings.add(queue, self._subscriptions[queue.topic], begin.offset, fetch=False))
        return Taken.OURS

    def _begin(self, queue: MessageQueue) -> None:
        """Fetch from a queue that was taken."""
        self.holdings.fetch(queue)

    async def _tell(self, assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
        """Report changes. Exclusive queues are reported as revoked when they are released."""
        await self._changes.tell(assigned, [] if self._claims.is_locked else revoked)

    async def _let_go(self, queue: MessageQueue) -> None:
        """Release a queue: at once, or, if it is exclusive, when the last poll is done."""
        inbox = self.holdings.inboxes.get(queue)
        if inbox is None or self._claims.is_leaving(queue):
            return
        if self._claims.is_locked:
            self.holdings.retire(inbox)
            self._claims.leave(queue, self._leave(inbox))
            return
        self.holdings.remove(queue)
        if self._auto_commit:
            await self.holdings.commit_last(inbox)

    async def _leave(self, inbox: PullInbox) -> None:
        await self._changes.tell([], [inbox.queue])
        if not await inbox.wait_until(lambda: inbox.unfinished is None, self._settle_s_max):
            log.warning(
                "%s is released although its last poll is not settled after %.0f s", inbox.queue, self._settle_s_max
            )
        if self._auto_commit:
            await self.holdings.commit_last(inbox)
        self.holdings.remove(inbox.queue)

    async def _lose(self, queue: MessageQueue) -> None:
        """Give up a queue that the broker has assigned to another member."""
        log.warning("the lock of %s is lost", queue)
        inbox = self.holdings.inboxes.get(queue)
        if inbox is not None:
            inbox.is_lost = True
        self._balance.owned.get(queue.topic, set()).discard(queue)
        await self._let_go(queue)

    # -- notifying ---------------------------------------------------------------------------------------------------

    def _on_route_change(self, topic: str) -> None:
        route = self.session.routes.peek(topic)
        if topic in self._watched and route is not None and route.read_queues != self._watched[topic]:
            self._watched[topic] = route.read_queues
            self.session.spawn(self._tell_watcher(topic, route.read_queues))

    async def _tell_watcher(self, topic: str, queues: tuple[MessageQueue, ...]) -> None:
        try:
            result = self._watchers[topic]([unwrap_queue(self._namespace, queue) for queue in queues])
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("the function that watches %s failed", topic)

"""The pull consumer: returns messages when you ask for them, from the queues and offsets you choose."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType, TracebackType
from typing import Any, Self

from eruca._client.arguments import check_callable, check_count, check_type
from eruca._client.group.lag import Lag, find_lag
from eruca._client.group.offsets import make_offsets
from eruca._client.group.settings import Flow, GroupSettings, Offsets, Rebalance, Retry, Start
from eruca._client.group.starting import describe_start
from eruca._client.group.subscriptions import Filter, Subscribe, make_subscription, make_subscriptions
from eruca._client.later import make_later
from eruca._client.message import Message, check_decode
from eruca._client.namespaces import check_own_group, name_queue, name_queues, name_topic, unwrap, unwrap_queue, wrap
from eruca._client.options import ClientOptions, choose_options
from eruca._client.pull.holdings import PullInbox
from eruca._client.pull.member import PullMember
from eruca._client.pull.membership import OnQueues, PullMembership
from eruca._client.pull.queuereading import PullResult
from eruca._client.session.session import Session
from eruca._client.stopping import Client, describe_client, find_state
from eruca._ground.durations import Duration, to_ms, to_seconds
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import DEFAULT_CONSUMER_GROUP
from eruca.errors import ConfigError, OffsetLost, QueueNotOurs
from eruca.serializers import Deserializer

_POLL_COUNT_MAX = 10_000


class PullConsumer(Client):
    """A consumer that returns messages on request.

    As a member of a group, which shares the queues of its topics among its members:

    >>> async with PullConsumer("127.0.0.1:9876", group="billing", subscribe="orders") as consumer:
    ...     for message in await consumer.poll(timeout=1.0, max_messages=100): ...

    Or for queues of your choice, without being a member:

    >>> async with PullConsumer("127.0.0.1:9876", group="audit", auto_commit=False) as consumer:
    ...     await consumer.assign(await consumer.list_queues("orders"))
    ...     await consumer.seek_to_time(consumer.assignment[0], yesterday)
    ...     async for message in consumer: ...

    With `auto_commit` the messages of a poll count as done with the next poll, or with a clean close, and are committed
    every `Offsets(interval=...)`; a crash, or an exception that leaves `async with`, repeats them. So one task polls.
    `commit` commits what was handed out so far, or the offsets it is given. Messages are fetched ahead from the first
    `poll` on; `pull` asks a broker directly and needs neither.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str,
        subscribe: Subscribe = (),
        start: Start = "latest",
        broadcast: bool = False,
        auto_commit: bool = True,
        poll_batch: int = 10,
        flow: Flow = Flow(hold=20.0),
        retry: Retry = Retry(),
        rebalance: Rebalance = Rebalance(),
        offsets: Offsets = Offsets(interval=5.0),
        deserializer: Deserializer[Any] | None = None,
        watch: Mapping[str, OnQueues] = MappingProxyType({}),
        options: ClientOptions | None = None,
    ) -> None:
        self.options = choose_options(nameservers, options)
        self.group = check_own_group(group, DEFAULT_CONSUMER_GROUP)
        describe_start(start)  # raises now instead of later
        check_type("auto_commit", auto_commit, bool)
        check_decode(deserializer)
        check_type("watch", watch, Mapping)
        for topic, tell in watch.items():
            check_callable(f"watch[{topic!r}]", tell, "queues")
        subscriptions, patterns = make_subscriptions(subscribe, self.options.namespace, 0)
        self._watched = {name_topic(self.options.namespace, topic, "watch"): tell for topic, tell in watch.items()}
        if self._watched and (subscriptions or patterns):
            raise ConfigError(
                "watch= is for consumers that assign", hint="Rebalance(on_change=...) is called for subscribed topics"
            )
        settings = GroupSettings(
            start=start,
            broadcast=broadcast,
            flow=flow,
            retry=retry,
            rebalance=rebalance,
            offsets=offsets,
        )
        # What the session and the messages see; it holds everything that users do not call.
        self._member = PullMember(wrap(self.options.namespace, group), settings, subscriptions, patterns)
        self._auto_commit = auto_commit
        self._poll_batch = check_count("poll_batch", poll_batch, at_most=_POLL_COUNT_MAX)
        self._decode = deserializer
        self._ended = asyncio.Event()
        self._is_closing = False

    def __repr__(self) -> str:
        namespace = self.options.namespace
        topics = {queue.topic: None for queue in self._member.inboxes} | self._member.subscriptions
        shown = [unwrap(namespace, topic) for topic in topics]
        shown += [known.pattern.pattern for known in self._member.patterns]
        state = find_state(is_started=self._is_started, was_closed=self._ended.is_set())
        return describe_client(self, self.group, self.options.nameservers, state, shown)

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Get ready, and join the group when topics are subscribed; `async with` does this. Raises ErucaError.

        When it returns, a member has its queues and receives what is sent from now on. If the cluster does not answer
        within five seconds, it returns anyway, and the consumer keeps trying.
        """
        member = self._member
        if member.membership is not None:
            member.membership.session.check_loop()
            return
        is_member = member.is_subscribed
        session = Session.acquire(self.options, consumer_group=member.group if is_member else "")
        self._ended.clear()
        member.started_ms = session.clock.now_ms()
        # The broker keeps the newest of several versions.
        for topic, old in member.subscriptions.items():
            member.subscriptions[topic] = make_subscription(topic, old.wanted, member.started_ms)
        settings = member.settings
        member.membership = membership = PullMembership(
            session,
            member.subscriptions,
            member.patterns,
            self._watched,
            settings,
            make_offsets(session, member.group, broadcast=settings.broadcast, directory=settings.offsets.directory),
            member,
            auto_commit=self._auto_commit,
            decode=self._decode,
        )
        if is_member:
            session.add_consumer(member)
        try:
            await membership.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Commit what was handed out (with `auto_commit`) and leave. Safe to call twice."""
        await self._close(is_clean=True)

    async def _close(self, *, is_clean: bool) -> None:
        membership = self._member.membership
        if membership is None or self._is_closing:
            return
        if membership.session.is_lost():
            self._member.membership = None
            return
        membership.session.check_loop()
        self._ended.set()
        # Until it has stopped, the listener for queues may still commit.
        self._is_closing = True
        try:
            await membership.stop(is_clean=is_clean)
        finally:
            self._member.membership, self._is_closing = None, False
        await membership.session.remove_consumer(self._member)
        await membership.session.release()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The messages being processed when the exception was raised are not done.
        await self._close(is_clean=kind is None)

    @property
    def _is_started(self) -> bool:
        return self._member.membership is not None

    def _require_started(self) -> PullMembership:
        return self._member.require_started()

    @property
    def _session(self) -> Session:
        """The session of this consumer. Raises ClientClosed."""
        return self._member.session

    # -- queues ------------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer has now: its share in the group, or those assigned with `assign`."""
        return sorted([unwrap_queue(self.options.namespace, queue) for queue in self._member.inboxes])

    def owns(self, queue: MessageQueue) -> bool:
        """Return whether this consumer has a queue now."""
        return self._name(queue) in self._member.inboxes

    async def assign(self, queues: Iterable[MessageQueue], *, tags: Filter = "*") -> None:
        """Consume exactly these queues from now on, without being a member of the group. Raises ErucaError.

        Each starts at the committed offset of the group, or at `start`; a queue assigned before keeps its position.
        """
        membership = self._require_started()
        if self._member.is_subscribed:
            raise ConfigError(
                "a consumer that subscribes to topics cannot be assigned queues",
                hint="leave out subscribe=, or use a second consumer",
            )
        if self._member.settings.rebalance.exclusive:
            raise ConfigError(
                "Rebalance.exclusive=True is for members of a group, and `assign` joins none", hint="use subscribe="
            )
        check_type("queues", queues, Iterable)
        await membership.assign({self._name(queue) for queue in queues}, tags)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Return no messages of these queues (default: all) until `resume`.

        This also holds for queues assigned later, and for a queue that is taken away and comes back.
        """
        self._require_started().holdings.pause(name_queues(self.options.namespace, queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Undo `pause`."""
        self._require_started().holdings.resume(name_queues(self.options.namespace, queues))

    @property
    def paused(self) -> list[MessageQueue]:
        """Those of our queues that are paused."""
        paused = [queue for queue, inbox in self._member.inboxes.items() if inbox.paused]
        return sorted([unwrap_queue(self.options.namespace, queue) for queue in paused])

    async def list_queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic, no matter which member has them. Raises NoRoute."""
        return await self._require_started().reader.list_queues(topic)

    def _name(self, queue: MessageQueue) -> MessageQueue:
        return name_queue(self.options.namespace, queue)

    # -- messages ----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: Duration | None = 5.0, max_messages: int | None = None) -> list[Message]:
        """Return the next messages of our queues, at most `max_messages`; an empty list when none arrive in time.

        Messages already fetched are returned at once; `timeout=None` waits without limit. The messages of earlier polls
        count as done.
        """
        membership = self._require_started()
        if not self._member.is_subscribed and not membership.is_assigned:
            raise ConfigError("nothing is subscribed or assigned", hint="subscribe= topics, or await assign(queues)")
        count = self._poll_batch if max_messages is None else max_messages
        check_count("max_messages", count, at_most=_POLL_COUNT_MAX)
        seconds = None if timeout is None else to_seconds("timeout", timeout)
        holdings = membership.holdings
        holdings.start_fetching()
        found = holdings.take(count)
        if found:
            return found
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else loop.time() + seconds
        while not found and not self._ended.is_set():
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                await asyncio.sleep(0)  # let other tasks run, even if the caller polls without waiting
                break
            await holdings.wait(left)
            found = holdings.take(count)
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._member.membership is None and self._ended.is_set():
            raise StopAsyncIteration
        # One by one, so that messages not yet processed do not count as done.
        found = await self.poll(None, 1)
        if not found:
            raise StopAsyncIteration
        return found[0]

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: Filter = "*",
        max_messages: int = 32,
        hold: Duration = 0,
        timeout: Duration = 10.0,
    ) -> PullResult:
        """Ask the broker of any queue once for messages, starting at an offset. Raises ErucaError.

        If there is none, the broker waits for one for at most `hold`. Our position does not change.
        """
        check_type("offset", offset, int)
        check_count("max_messages", max_messages, at_most=_POLL_COUNT_MAX)
        return await self._require_started().reader.pull(
            self._name(queue),
            offset,
            wanted=tags,
            count=max_messages,
            hold_ms=to_ms("hold", hold) if hold else 0,
            timeout_ms=to_ms("timeout", timeout),
        )

    async def send_back(self, message: Message, delay_level: int = 0, *, delay: Duration | None = None) -> None:
        """Have a message delivered to the group again after a delay, or a delay level; below 0: as a dead letter.

        It arrives in the retry topic of the group (`%RETRY%` followed by the name of the group), which is subscribed to
        or assigned like any other topic.
        """
        await self._member.retry(message, make_later(delay, delay_level))

    async def view(self, offset_id: str) -> Message:
        """Return the message with an offset id (`Message.offset_id`).

        Raises RequestRefused when there is none, and NoRoute when the id names no broker of this cluster.
        """
        return await self._require_started().reader.view(offset_id)

    async def query(
        self,
        topic: str,
        key: str,
        begin: datetime | None = None,
        end: datetime | None = None,
        max_messages: int = 32,
        *,
        unique: bool = False,
    ) -> list[Message]:
        """Return the messages of a topic with a key, or with `unique` the one with a message id, oldest first."""
        reader = self._require_started().reader
        return await reader.query(topic, key, begin, end, max_messages, is_unique_id=unique)

    async def lag(self) -> Lag:
        """Return how many messages were not handed out yet, in total and for each of our queues. Raises ErucaError."""
        progress = {queue: inbox.position for queue, inbox in self._member.inboxes.items()}
        return await find_lag(self._session, progress)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that `poll` returns from one of our queues. Raises QueueNotOurs."""
        return self._find_inbox(queue).position

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of one of our queues. Raises OffsetLost, QueueNotOurs."""
        check_type("offset", offset, int)
        self._find_inbox(queue)
        begin, end = await asyncio.gather(self.begin_offset(queue), self.end_offset(queue))
        if not begin <= offset <= end:
            raise OffsetLost(
                f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} has no offset {offset}:"
                f" it has {begin} to {end}",
                hint="seek_to_begin and seek_to_end go to these",
            )
        self._move(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> int:
        """Continue at the first message that one of our queues still has; returns its offset."""
        return self._move(queue, await self.begin_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> int:
        """Continue with messages that arrive in one of our queues from now on; returns the offset."""
        return self._move(queue, await self.end_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, time: datetime) -> int:
        """Continue at the first message of one of our queues stored at a time or later; returns its offset."""
        return self._move(queue, await self.offset_at(queue, time))

    def _move(self, queue: MessageQueue, offset: int) -> int:
        # The queue may have moved to another member during the request.
        inbox = self._find_inbox(queue, to_move=True)
        self._require_started().holdings.move(inbox.queue, offset)
        return offset

    def _find_inbox(self, queue: MessageQueue, *, to_move: bool = False) -> PullInbox:
        self._require_started()
        inbox = self._member.inboxes.get(self._name(queue))
        if inbox is None or (to_move and inbox.leaving):
            raise QueueNotOurs(
                f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} is not ours now",
                hint="`assignment` has those that are",
            )
        return inbox

    async def begin_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that a queue still has."""
        return await self._require_started().reader.find_begin(self._name(queue))

    async def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset after the last message of a queue."""
        return await self._require_started().reader.find_end(self._name(queue))

    async def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        """Return the offset of the first message of a queue stored at a time or later; its end if there is none."""
        return await self._require_started().reader.find_at(self._name(queue), time)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset at which the group continues after a restart; None when it has never committed."""
        membership, named = self._require_started(), self._name(queue)
        await membership.session.routes.get(named.topic)
        kept = await membership.offsets.read(named)
        return None if kept is None else kept.offset

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was handed out so far, or these offsets, and wait until the broker has it. Raises ErucaError."""
        membership = self._require_started()
        if offsets is None:
            await membership.holdings.commit_handed_out()
            return
        check_type("offsets", offsets, Mapping)
        for queue, offset in offsets.items():
            check_count("offset", offset, at_least=0)
            if self._member.is_subscribed and not self._member.settings.broadcast:
                self._find_inbox(queue)  # only its owner may commit a queue
            await membership.session.routes.get(self._name(queue).topic)
        await membership.holdings.commit_offsets({self._name(queue): offset for queue, offset in offsets.items()})

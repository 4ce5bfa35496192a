"""The consumer: a member of a group that gets its share of the messages, by handlers or by `async for`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Literal, overload

from eruca._client.group.lag import Lag, find_lag
from eruca._client.group.observing import ConsumeHook
from eruca._client.group.settings import Flow, GroupSettings, Offsets, Rebalance, Retry, Start
from eruca._client.group.starting import describe_start
from eruca._client.group.subscriptions import (
    Subscribe,
    Topic,
    Wanted,
    make_pattern,
    make_subscription,
    make_subscriptions,
)
from eruca._client.message import Decode, Message
from eruca._client.namespaces import check_own_group, unwrap, unwrap_queue, wrap
from eruca._client.options import ClientOptions, choose_options
from eruca._client.push.handlers import Batch, Concurrency, HandlerEntry, RegisterSingle, make_handler
from eruca._client.push.member import PushMember
from eruca._client.session.session import Session
from eruca._client.stopping import Client, describe_client, run_until_stopped
from eruca._ground.clock import Clock
from eruca._ground.durations import Duration, to_seconds
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import DEFAULT_CONSUMER_GROUP, RETRY_PREFIX, check_topic
from eruca.errors import ClientClosed, ConfigError


class Consumer(Client):
    """A member of a consumer group.

    With handlers (a return is the acknowledgement, an exception a later retry):

    >>> consumer = Consumer("127.0.0.1:9876", group="billing")
    >>> @consumer.handler("orders", tags="vip || gold", concurrency=20)
    ... async def bill(message): ...
    >>> await consumer.run()

    Or message by message, and you say when each is done:

    >>> async with Consumer("127.0.0.1:9876", group="billing", subscribe={"orders": "vip || gold"}) as consumer:
    ...     async for message in consumer:
    ...         await message.ack()

    `start` says where a group begins that has never consumed a queue: "latest" (what is sent from now on), "earliest",
    or a time. `subscribe` takes topics, or a mapping from topics to tags or Sql. A regular expression as a topic,
    `re.compile("orders-.*")`, stands for all topics whose whole name matches, also for those that are made later.
    `broadcast` gives every member all messages. Plain functions as handlers run in threads. `flow`, `retry`,
    `rebalance` and `offsets` have defaults that suit most consumers.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str,
        subscribe: Subscribe = (),
        start: Start = "latest",
        broadcast: bool = False,
        flow: Flow = Flow(),
        retry: Retry = Retry(),
        rebalance: Rebalance = Rebalance(),
        offsets: Offsets = Offsets(),
        deserializer: Decode | None = None,
        drain: Duration = 30.0,
        trace: bool | str = False,
        hooks: Iterable[ConsumeHook] = (),
        options: ClientOptions | None = None,
    ) -> None:
        self.options = choose_options(nameservers, options)
        check_own_group(group, DEFAULT_CONSUMER_GROUP)
        describe_start(start)  # raises now what would fail later
        self.group = wrap(self.options.namespace, group)
        settings = GroupSettings(
            start=start,
            broadcast=broadcast,
            flow=flow,
            retry=retry,
            rebalance=rebalance,
            offsets=offsets,
            drain_s=to_seconds("drain", drain),
        )
        # What the session and the queues see; everything that users do not call is there.
        self._member = PushMember(
            self.options,
            self.group,
            settings,
            *make_subscriptions(subscribe, self.options.namespace, 0),
            trace=trace,
            hooks=hooks,
            decode=deserializer,
        )
        self._clock: Clock | None = None
        self._was_closed = False

    def __repr__(self) -> str:
        namespace, member = self.options.namespace, self._member
        topics = [unwrap(namespace, topic) for topic in member.subscriptions if not topic.startswith(RETRY_PREFIX)]
        topics += [repr(known.pattern.pattern) for known in member.patterns]
        return describe_client(self, unwrap(namespace, self.group), topics, was_closed=self._was_closed)

    # -- handlers ----------------------------------------------------------------------------------------------------

    # A literal 1 is for one message, any other number for lists of them.
    @overload
    def handler(  # type: ignore[overload-overlap]
        self,
        topic: Topic,
        tags: Wanted = "*",
        *,
        concurrency: Concurrency = 20,
        batch: Literal[1] = 1,
        ordered: bool = False,
        auto_commit: bool = True,
    ) -> RegisterSingle: ...
    @overload
    def handler(
        self,
        topic: Topic,
        tags: Wanted = "*",
        *,
        concurrency: Concurrency = 20,
        batch: int,
        ordered: bool = False,
        auto_commit: bool = True,
    ) -> Callable[[Batch], Batch]: ...
    def handler(
        self,
        topic: Topic,
        tags: Wanted = "*",
        *,
        concurrency: Concurrency = 20,
        batch: int = 1,
        ordered: bool = False,
        auto_commit: bool = True,
    ) -> Callable[[Any], Any]:
        """Have a function work on the messages of a topic, or of all topics that match; use it as a decorator.

        `concurrency` calls run at once; "auto" finds how many make the work go faster. The function gets a Message,
        or with `batch` above 1 a list of at most `batch`. `ordered` keeps the order of each queue.
        Without `auto_commit` an ordered handler returns Outcome.COMMIT or ROLLBACK for all since the last.
        A parameter annotated with a dataclass, a msgspec struct or a Pydantic model gets the body, decoded from JSON; a
        second parameter gets the Message.
        A handler of a batch may `ack`, `retry` or `bury` single messages; its return or exception is for the rest.
        """

        def register(function: Any) -> Any:
            if not auto_commit and not ordered:
                raise ConfigError("auto_commit=False is for ordered handlers")

            def make(name: str) -> HandlerEntry:
                return make_handler(name, function, concurrency=concurrency, batch=batch, auto_commit=auto_commit)

            if isinstance(topic, re.Pattern):
                self._member.add_pattern(make_pattern(topic, tags), make, ordered=ordered)
            else:
                wrapped = wrap(self.options.namespace, check_topic(topic))
                self._member.add_handler(make(wrapped), make_subscription(wrapped, tags, 0), ordered=ordered)
            return function

        return register

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and begin to consume; `async with` does it. Raises when a subscription cannot be read.

        When it returns, the consumer has its queues: what is sent from now on is for it. Should the cluster not answer
        within five seconds, it returns all the same, and the consumer goes on trying.
        """
        await self._member.start(self._clock)

    async def close(self) -> None:
        """Stop pulling, let handlers end, commit, and leave the group."""
        self._was_closed = True
        await self._member.close()

    async def run(self) -> None:
        """Consume until this task is cancelled or `close` is called, and then end cleanly.

        SIGTERM, by which containers are stopped, and SIGINT (Ctrl-C) do the same and then end the program, unless it
        has handlers for them.
        """
        await run_until_stopped(self, lambda: self._member.ended)

    @property
    def _is_started(self) -> bool:
        return self._member.is_started

    @property
    def _session(self) -> Session:
        """The session this consumer works with. Raises ClientClosed."""
        return self._member.session

    # -- queues ------------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now, without those for retries."""
        mine = [queue for queue in self._member.inboxes if not queue.topic.startswith(RETRY_PREFIX)]
        return sorted([unwrap_queue(self.options.namespace, queue) for queue in mine])

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull nothing more of these queues (of all) until `resume`; what was pulled is still consumed.

        It holds for queues that come later too, and for one that goes and comes again.
        """
        self._member.pause(queues)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """The opposite of `pause`."""
        self._member.resume(queues)

    async def commit(self) -> None:
        """Commit now how far every queue is, and wait until the broker has it. Raises ErucaError."""
        self._session.check_loop()
        if self._member.membership is None:
            raise ClientClosed("the consumer is not started")
        await self._member.membership.commit()

    async def lag(self) -> Lag:
        """How many messages of our queues are not done yet, in all and of each queue. Raises ErucaError.

        Messages that a filter leaves out count too, until those before them are done. Retries do not count.
        """
        self._session.check_loop()
        progress = {queue: inbox.commit_offset for queue, inbox in self._member.inboxes.items()}
        return await find_lag(self._session, progress)

    # -- messages ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Message]:
        if self._member.has_handlers:
            raise ConfigError("a consumer with handlers cannot be iterated", hint="use a second consumer")
        return self

    async def __anext__(self) -> Message:
        member = self._member
        while True:
            message = member.stream.take()
            if message is not None:
                return message
            if member.ended.is_set():
                raise StopAsyncIteration
            member.session.check_loop()
            await member.stream.wait()

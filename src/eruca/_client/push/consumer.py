"""The consumer: a member of a group that receives its share of the messages in handlers or by `async for`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Literal, overload

from eruca._client.arguments import check_count, check_hooks, check_trace, check_type
from eruca._client.group.lag import Lag, find_lag
from eruca._client.group.observing import ConsumeHook
from eruca._client.group.settings import BATCH_MAX, Flow, GroupSettings, Offsets, Rebalance, Retry, Start
from eruca._client.group.starting import describe_start
from eruca._client.group.subscriptions import (
    Filter,
    Subscribe,
    TopicChoice,
    make_pattern,
    make_subscription,
    make_subscriptions,
)
from eruca._client.message import Message, check_decode
from eruca._client.namespaces import check_own_group, name_topic, unwrap, unwrap_queue, wrap
from eruca._client.options import ClientOptions, choose_options
from eruca._client.push.handlers import Batch, Concurrency, HandlerEntry, RegisterSingle, make_handler
from eruca._client.push.member import PushMember
from eruca._client.session.session import Session
from eruca._client.stopping import Client, describe_client, find_state, run_until_stopped
from eruca._ground.durations import Duration, to_seconds
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import DEFAULT_CONSUMER_GROUP, RETRY_PREFIX
from eruca.errors import ClientClosed, ConfigError
from eruca.serializers import Deserializer


class Consumer(Client):
    """A member of a consumer group.

    With handlers (returning acknowledges the message, an exception causes a later retry):

    >>> consumer = Consumer("127.0.0.1:9876", group="billing")
    >>> @consumer.handler("orders", tags="vip || gold", concurrency=20)
    ... async def bill(message): ...
    >>> await consumer.run()

    Or message by message, where you acknowledge each one yourself:

    >>> async with Consumer("127.0.0.1:9876", group="billing", subscribe={"orders": "vip || gold"}) as consumer:
    ...     async for message in consumer:
    ...         await message.ack()

    `start` is where the group starts in a queue that it has never consumed: "latest" (what is sent from now on),
    "earliest", or a time. `subscribe` takes topics, or a mapping from topics to tags or Sql. A regular expression as a
    topic, such as `re.compile("orders-.*")`, subscribes to all topics whose whole name matches, including those created
    later. With `broadcast` every member receives all messages. Handlers that are plain functions run in threads. The
    defaults of `flow`, `retry`, `rebalance` and `offsets` suit most consumers.
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
        deserializer: Deserializer[Any] | None = None,
        drain: Duration = 30.0,
        trace: bool | str = False,
        hooks: Iterable[ConsumeHook] = (),
        options: ClientOptions | None = None,
    ) -> None:
        self.options = choose_options(nameservers, options)
        self.group = check_own_group(group, DEFAULT_CONSUMER_GROUP)
        describe_start(start)  # raises now instead of later
        check_decode(deserializer)
        check_trace(trace)
        settings = GroupSettings(
            start=start,
            broadcast=broadcast,
            flow=flow,
            retry=retry,
            rebalance=rebalance,
            offsets=offsets,
            drain_s=to_seconds("drain", drain),
        )
        # What the session and the queues see; it holds everything that users do not call.
        self._member = PushMember(
            self.options,
            wrap(self.options.namespace, group),
            settings,
            *make_subscriptions(subscribe, self.options.namespace, 0),
            trace=trace,
            hooks=check_hooks(hooks, "before_consume", "after_consume"),
            decode=deserializer,
        )
        self._was_closed = False

    def __repr__(self) -> str:
        namespace, member = self.options.namespace, self._member
        topics = [unwrap(namespace, topic) for topic in member.subscriptions if not topic.startswith(RETRY_PREFIX)]
        topics += [known.pattern.pattern for known in member.patterns]
        state = find_state(is_started=self._is_started, was_closed=self._was_closed)
        return describe_client(self, self.group, self.options.nameservers, state, topics)

    # -- handlers ----------------------------------------------------------------------------------------------------

    # With a literal 1 the function takes one message, with any other number a list of messages.
    @overload
    def handler(  # type: ignore[overload-overlap]
        self,
        topic: TopicChoice,
        tags: Filter = "*",
        *,
        concurrency: Concurrency = 20,
        batch: Literal[1] = 1,
        ordered: bool = False,
        auto_commit: bool = True,
    ) -> RegisterSingle: ...
    @overload
    def handler(
        self,
        topic: TopicChoice,
        tags: Filter = "*",
        *,
        concurrency: Concurrency = 20,
        batch: int,
        ordered: bool = False,
        auto_commit: bool = True,
    ) -> Callable[[Batch], Batch]: ...
    def handler(
        self,
        topic: TopicChoice,
        tags: Filter = "*",
        *,
        concurrency: Concurrency = 20,
        batch: int = 1,
        ordered: bool = False,
        auto_commit: bool = True,
    ) -> Callable[[Any], Any]:
        """Return a decorator that registers the handler of a topic, or of all topics that match a pattern.

        At most `concurrency` calls run at once; with "auto" the consumer looks for the number with the best throughput.
        The function receives a Message, or with `batch` above 1 a list of at most `batch` messages. `ordered` keeps the
        order of each queue. Without `auto_commit` an ordered handler returns Outcome.COMMIT or Outcome.ROLLBACK for all
        messages since its last COMMIT or ROLLBACK.
        A parameter annotated with a dataclass, a msgspec struct or a Pydantic model receives the body, decoded from
        JSON; a second parameter receives the Message.
        A batch handler may `ack`, `retry` or `bury` single messages; its return value or exception applies to the rest.
        """

        if callable(topic):
            raise ConfigError(f"topic={topic!r:.80}: expected a topic", hint='@consumer.handler("topic")')
        check_type("topic", topic, str, re.Pattern)
        check_count("batch", batch, at_most=BATCH_MAX)
        check_type("ordered", ordered, bool)
        check_type("auto_commit", auto_commit, bool)
        if not auto_commit and not ordered:
            raise ConfigError("auto_commit=False is for ordered handlers")

        def register(function: Any) -> Any:
            def make(name: str) -> HandlerEntry:
                return make_handler(name, function, concurrency=concurrency, batch=batch, auto_commit=auto_commit)

            if isinstance(topic, re.Pattern):
                self._member.add_pattern(make_pattern(topic, tags), make, ordered=ordered)
            else:
                wrapped = name_topic(self.options.namespace, topic)
                self._member.add_handler(make(wrapped), make_subscription(wrapped, tags, 0), ordered=ordered)
            return function

        return register

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and start consuming; `async with` does this. Raises when a subscription cannot be read.

        When it returns, the consumer has its queues and receives what is sent from now on. If the cluster does not
        answer within five seconds, it returns anyway, and the consumer keeps trying.
        """
        await self._member.start()

    async def close(self) -> None:
        """Stop pulling, wait for running handlers, commit, and leave the group."""
        self._was_closed = True
        await self._member.close()

    async def run(self) -> None:
        """Consume until this task is cancelled or `close` is called, then shut down cleanly.

        SIGTERM, which stops containers, and SIGINT (Ctrl-C) do the same and then end the program, unless the program
        has its own handlers for them.
        """
        await run_until_stopped(self, lambda: self._member.ended)

    @property
    def _is_started(self) -> bool:
        return self._member.is_started

    @property
    def _session(self) -> Session:
        """The session of this consumer. Raises ClientClosed."""
        return self._member.session

    # -- queues ------------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this consumer has now, without those for retries."""
        mine = [queue for queue in self._member.inboxes if not queue.topic.startswith(RETRY_PREFIX)]
        return sorted([unwrap_queue(self.options.namespace, queue) for queue in mine])

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stop pulling from these queues (default: all) until `resume`; messages already pulled are still consumed.

        This also holds for queues assigned later, and for a queue that is taken away and comes back.
        """
        self._member.pause(queues)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Undo `pause`."""
        self._member.resume(queues)

    async def commit(self) -> None:
        """Commit the position of every queue now, and wait until the broker has it. Raises ErucaError."""
        self._session.check_loop()
        if self._member.membership is None:
            raise ClientClosed("the consumer is not started")
        await self._member.membership.commit()

    async def lag(self) -> Lag:
        """Return how many messages of our queues are not done yet, in total and for each queue. Raises ErucaError.

        Messages that the filter excludes count too, until those before them are done. Retries do not count.
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

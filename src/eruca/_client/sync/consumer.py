"""`eruca.sync.Consumer`.

Written by `make generate` from `eruca._client.push.consumer` and `eruca._client.sync.consuming`; do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

from eruca._client.group.lag import Lag
from eruca._client.group.observing import ConsumeHook
from eruca._client.group.settings import Flow, Offsets, Rebalance, Retry, Start
from eruca._client.group.subscriptions import Subscribe, Topic, Wanted
from eruca._client.message import Decode
from eruca._client.options import ClientOptions
from eruca._client.push.consumer import Consumer as AsyncConsumer
from eruca._client.push.handlers import Concurrency
from eruca._client.sync.consuming import Batch, PlainConsumer, RegisterSingle
from eruca._ground.durations import Duration
from eruca._wire.bodies import MessageQueue


class Consumer(PlainConsumer):
    """A member of a consumer group.

    With handlers (a return is the acknowledgement, an exception a later retry):

    >>> consumer = Consumer("127.0.0.1:9876", group="billing")
    >>> @consumer.handler("orders", tags="vip || gold", concurrency=20)
    ... def bill(message): ...
    >>> consumer.run()

    Or message by message, and you say when each is done:

    >>> with Consumer("127.0.0.1:9876", group="billing", subscribe={"orders": "vip || gold"}) as consumer:
    ...     for message in consumer:
    ...         message.ack()

    `start` says where a group begins that has never consumed a queue: "latest" (what is sent from now on), "earliest",
    or a time. `subscribe` takes topics, or a mapping from topics to tags or Sql. A regular expression as a topic,
    `re.compile("orders-.*")`, stands for all topics whose whole name matches, also for those that are made later.
    `broadcast` gives every member all messages. Plain functions as handlers run in threads. `flow`, `retry`,
    `rebalance` and `offsets` have defaults that suit most consumers.

    Each message is handled in one of `concurrency` threads. An async handler runs in the loop of the plain clients and
    gets async messages. `hooks` are called in that loop: they must not block. A plain `Rebalance(on_change=...)` is
    called in a thread and may block.
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
        super().__init__(
            AsyncConsumer(
                nameservers,
                group=group,
                subscribe=subscribe,
                start=start,
                broadcast=broadcast,
                flow=flow,
                retry=retry,
                rebalance=self._plain_rebalance(rebalance),
                offsets=offsets,
                deserializer=deserializer,
                drain=drain,
                trace=trace,
                hooks=hooks,
                options=options,
            )
        )

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
        return self._plain_handler(
            topic, tags, concurrency=concurrency, batch=batch, ordered=ordered, auto_commit=auto_commit
        )

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now, without those for retries."""
        return self._call(lambda: self._twin.queues)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull nothing more of these queues (of all) until `resume`; what was pulled is still consumed.

        It holds for queues that come later too, and for one that goes and comes again.
        """
        self._call(lambda: self._twin.pause(queues if queues is None else list(queues)))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """The opposite of `pause`."""
        self._call(lambda: self._twin.resume(queues if queues is None else list(queues)))

    def commit(self) -> None:
        """Commit now how far every queue is, and wait until the broker has it. Raises ErucaError."""
        self._run(self._twin.commit())

    def lag(self) -> Lag:
        """How many messages of our queues are not done yet, in all and of each queue. Raises ErucaError.

        Messages that a filter leaves out count too, until those before them are done. Retries do not count.
        """
        return self._run(self._twin.lag())

"""`eruca.sync.Consumer`.

Written by `make generate` from `eruca._client.push.consumer` and
`eruca._client.sync.consuming`; do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

from eruca._client.group.lag import Lag
from eruca._client.group.observing import ConsumeHook
from eruca._client.group.settings import Flow, Offsets, Rebalance, Retry, Start
from eruca._client.group.subscriptions import Filter, Subscribe, TopicChoice
from eruca._client.options import ClientOptions
from eruca._client.push.consumer import Consumer as AsyncConsumer
from eruca._client.push.handlers import Concurrency
from eruca._client.sync.consuming import Batch, PlainConsumer, RegisterSingle
from eruca._ground.durations import Duration
from eruca._wire.bodies import MessageQueue
from eruca.serializers import Deserializer


class Consumer(PlainConsumer):
    """A member of a consumer group.

    With handlers (returning acknowledges the message, an exception causes a later retry):

    >>> consumer = Consumer("127.0.0.1:9876", group="billing")
    >>> @consumer.handler("orders", tags="vip || gold", concurrency=20)
    ... def bill(message): ...
    >>> consumer.run()

    Or message by message, where you acknowledge each one yourself:

    >>> with Consumer("127.0.0.1:9876", group="billing", subscribe={"orders": "vip || gold"}) as consumer:
    ...     for message in consumer:
    ...         message.ack()

    `start` is where the group starts in a queue that it has never consumed: "latest" (what is sent from now on),
    "earliest", or a time. `subscribe` takes topics, or a mapping from topics to tags or Sql. A regular expression as a
    topic, such as `re.compile("orders-.*")`, subscribes to all topics whose whole name matches, including those created
    later. With `broadcast` every member receives all messages. Handlers that are plain functions run in threads. The
    defaults of `flow`, `retry`, `rebalance` and `offsets` suit most consumers.

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
        deserializer: Deserializer[Any] | None = None,
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
        return self._plain_handler(
            topic, tags, concurrency=concurrency, batch=batch, ordered=ordered, auto_commit=auto_commit
        )

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this consumer has now, without those for retries."""
        return self._call(lambda: self._twin.queues)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stop pulling from these queues (default: all) until `resume`; messages already pulled are still consumed.

        This also holds for queues assigned later, and for a queue that is taken away and comes back.
        """
        self._call(lambda: self._twin.pause(queues if queues is None else list(queues)))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Undo `pause`."""
        self._call(lambda: self._twin.resume(queues if queues is None else list(queues)))

    def commit(self) -> None:
        """Commit the position of every queue now, and wait until the broker has it. Raises ErucaError."""
        self._run(self._twin.commit())

    def lag(self) -> Lag:
        """Return how many messages of our queues are not done yet, in total and for each queue. Raises ErucaError.

        Messages that the filter excludes count too, until those before them are done. Retries do not count.
        """
        return self._run(self._twin.lag())

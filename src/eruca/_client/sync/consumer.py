"""The plain consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar, overload

from eruca._client.group.lag import Lag
from eruca._client.group.observing import ConsumeHook
from eruca._client.group.settings import Flow, Offsets, Rebalance, Retry, Start
from eruca._client.group.subscriptions import Subscribe, Topic, Wanted
from eruca._client.message import Decode, Outcome
from eruca._client.message import Message as AsyncMessage
from eruca._client.options import ClientOptions
from eruca._client.push.consumer import Consumer as AsyncConsumer
from eruca._client.push.handlers import Concurrency, is_async_function
from eruca._client.sync.base import Message, RunningClient, make_listener_plain
from eruca._ground.durations import Duration
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError

Single = TypeVar(
    "Single", bound=Callable[[Message], Outcome | None] | Callable[[AsyncMessage], Awaitable[Outcome | None]]
)
Batch = TypeVar(
    "Batch",
    bound=Callable[[list[Message]], Outcome | None] | Callable[[list[AsyncMessage]], Awaitable[Outcome | None]],
)

# So many messages are fetched from the loop at once, because each way there costs a switch of threads.
_AHEAD_MAX = 64


class Consumer(RunningClient[AsyncConsumer]):
    """A member of a consumer group.

    With handlers (a return is the acknowledgement, an exception a later retry), each message in one of `concurrency`
    threads:

    >>> consumer = Consumer("127.0.0.1:9876", group="billing")
    >>> @consumer.handler("orders", tags="vip || gold", concurrency=20)
    ... def bill(message): ...
    >>> consumer.run()

    Or message by message, and you say when each is done:

    >>> with Consumer("127.0.0.1:9876", group="billing", subscribe={"orders": "vip || gold"}) as consumer:
    ...     for message in consumer:
    ...         message.ack()

    The arguments are those of the async `eruca.Consumer`. `hooks` are called in the loop of the plain clients: they
    must not block. A plain `Rebalance(on_change=...)` is called in a thread and may.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str,
        subscribe: Subscribe = (),
        start: Start = "latest",
        broadcast: bool = False,
        flow: Flow = Flow(),  # noqa: B008
        retry: Retry = Retry(),  # noqa: B008
        rebalance: Rebalance = Rebalance(),  # noqa: B008
        offsets: Offsets = Offsets(),  # noqa: B008
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
                rebalance=make_listener_plain(rebalance),
                offsets=offsets,
                deserializer=deserializer,
                drain=drain,
                trace=trace,
                hooks=hooks,
                options=options,
            )
        )
        self._ahead: deque[AsyncMessage] = deque()
        # Threads that wait for a message in the loop.
        self._fetching = 0
        self._has_handlers = False

    @property
    def group(self) -> str:
        """The group, as the broker knows it."""
        return self._twin.group

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
    ) -> Callable[[Single], Single]: ...
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
        Without `auto_commit` an ordered handler returns Outcome.COMMIT or ROLLBACK for all since the last. An async
        function runs in the loop of the plain clients and gets async messages. A handler of a batch may `ack`, `retry`
        or `bury` single messages; its return or exception is for the rest.

        >>> @consumer.handler("orders", concurrency=20)
        ... def bill(message):
        ...     if not is_payable(message.body):
        ...         return Outcome.DEAD
        """
        register_twin: Callable[[Any], Any] = self._twin.handler(
            topic, tags, concurrency=concurrency, batch=batch, ordered=ordered, auto_commit=auto_commit
        )

        def register(function: Any) -> Any:
            if is_async_function(function) or not callable(function):  # what cannot be called is refused there
                register_twin(function)
            else:
                register_twin(self._make_plain(function, self._convert_batch if batch > 1 else self._convert))
            self._has_handlers = True
            return function

        return register

    def _convert(self, message: AsyncMessage) -> tuple[Message]:
        return (Message(message, self),)

    def _convert_batch(self, messages: list[AsyncMessage]) -> tuple[list[Message]]:
        return ([Message(message, self) for message in messages],)

    # -- queues ------------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now, without those for retries."""
        return self._call(lambda: self._twin.queues)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull nothing more of these queues (of all) until `resume`; what was pulled is still consumed."""
        self._call(lambda: self._twin.pause(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """The opposite of `pause`."""
        self._call(lambda: self._twin.resume(queues))

    def commit(self) -> None:
        """Commit now how far every queue is, and wait until the broker has it. Raises ErucaError."""
        self._run(self._twin.commit())

    def lag(self) -> Lag:
        """How many messages of our queues are not done yet, in all and of each queue. Raises ErucaError.

        Messages that a filter leaves out count too, until those before them are done. Retries do not count.
        """
        return self._run(self._twin.lag())

    # -- messages ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Message]:
        if self._has_handlers:
            raise ConfigError("a consumer with handlers cannot be iterated", hint="use a second consumer")
        return self

    def __next__(self) -> Message:
        while True:
            try:
                message = self._ahead.popleft()
            except IndexError:
                if self._ended.is_set() or not self._run(self._fetch()):
                    raise StopIteration from None
                continue
            if self._twin._member.is_open(message):
                return Message(message, self)

    async def _fetch(self) -> bool:
        """In the loop: wait for messages; False when no more will come."""
        if self._ahead:  # another thread was here first
            return True
        self._fetching += 1
        try:
            self._ahead.append(await anext(self._twin))
        except StopAsyncIteration:
            return False
        finally:
            self._fetching -= 1
        if not self._fetching:  # else the rest is for the threads that wait, and for those that were just called
            self._ahead.extend(self._twin._member.stream.take_rest(_AHEAD_MAX))
        return True

"""The plain consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from eruca._client.group.observing import ConsumeHook
from eruca._client.group.pulling import PullLimits
from eruca._client.group.starting import Start
from eruca._client.group.subscriptions import Subscribe, Wanted
from eruca._client.message import Message as AsyncMessage
from eruca._client.options import ClientOptions
from eruca._client.push.consumer import OFFSETS_DIRECTORY
from eruca._client.push.consumer import Consumer as AsyncConsumer
from eruca._client.push.handlers import AnyHandler, Concurrency, is_async_function
from eruca._client.push.membership import QueueListener
from eruca._client.sync.base import Message, RunningClient
from eruca._core.allocation import Strategy
from eruca._ground.clock import Clock
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError

Function = TypeVar("Function", bound=AnyHandler)

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

    The arguments are those of the async `eruca.Consumer`. `hooks` and `on_queues` are called in the loop of the plain
    clients: they must not block.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str,
        subscribe: Subscribe = (),
        start: Start = "latest",
        broadcast: bool = False,
        strategy: str | Strategy = "average",
        max_attempts: int | None = None,
        consume_timeout: timedelta | float = 900.0,
        suspend: timedelta | float = 1.0,
        drain: timedelta | float = 30.0,
        limits: PullLimits | None = None,
        trace: bool | str = False,
        options: ClientOptions | None = None,
        offsets_directory: Path = OFFSETS_DIRECTORY,
        offsets_interval_ms: int = 1000,
        rebalance_interval_ms: int = 20_000,
        lock_interval_ms: int = 20_000,
        ordered_concurrency: int = 20,
        hooks: Iterable[ConsumeHook] = (),
        on_queues: QueueListener | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            AsyncConsumer(
                nameservers,
                group=group,
                subscribe=subscribe,
                start=start,
                broadcast=broadcast,
                strategy=strategy,
                max_attempts=max_attempts,
                consume_timeout=consume_timeout,
                suspend=suspend,
                drain=drain,
                limits=limits,
                trace=trace,
                options=options,
                offsets_directory=offsets_directory,
                offsets_interval_ms=offsets_interval_ms,
                rebalance_interval_ms=rebalance_interval_ms,
                lock_interval_ms=lock_interval_ms,
                ordered_concurrency=ordered_concurrency,
                hooks=hooks,
                on_queues=on_queues,
                clock=clock,
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

    def handler(
        self,
        topic: str,
        tags: Wanted = "*",
        *,
        concurrency: Concurrency = 20,
        batch: int = 1,
        ordered: bool = False,
        auto_commit: bool = True,
    ) -> Callable[[Function], Function]:
        """Have a function work on the messages of a topic; use it as a decorator.

        `concurrency` calls run at once; "auto" finds how many make the work go faster. The function gets a Message,
        or with `batch` above 1 a list of at most `batch`. `ordered` keeps the order of each queue.
        Without `auto_commit` an ordered handler returns Outcome.COMMIT or ROLLBACK for all since the last. An async
        function runs in the loop of the plain clients and gets async messages.

        >>> @consumer.handler("orders", concurrency=20)
        ... def bill(message):
        ...     if not is_payable(message.body):
        ...         return Outcome.DEAD
        """
        register_twin = self._twin.handler(
            topic, tags, concurrency=concurrency, batch=batch, ordered=ordered, auto_commit=auto_commit
        )

        def register(function: Function) -> Function:
            given: object = function
            if is_async_function(function) or not callable(given):  # what cannot be called is refused there
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
            if self._twin._is_open(message):
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
            self._ahead.extend(self._twin._stream.take_rest(_AHEAD_MAX))
        return True

"""Hand-written parts of the plain consumer: plain handlers, and iteration."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol, TypeVar, overload

from eruca._client.message import Message as AsyncMessage
from eruca._client.message import Outcome
from eruca._client.push.consumer import Consumer as AsyncConsumer
from eruca._client.push.handlers import is_async_function
from eruca._client.push.typedbodies import Body, find_body_type
from eruca._client.sync.base import Message, RunningClient
from eruca.errors import ConfigError

Single = TypeVar(
    "Single", bound=Callable[[Message], Outcome | None] | Callable[[AsyncMessage], Awaitable[Outcome | None]]
)
Batch = TypeVar(
    "Batch",
    bound=Callable[[list[Message]], Outcome | None] | Callable[[list[AsyncMessage]], Awaitable[Outcome | None]],
)
Returned = TypeVar("Returned", bound=Outcome | None)
Waited = TypeVar("Waited", bound=Awaitable[Outcome | None])

# At most this many messages are fetched from the loop at once, because each fetch costs a switch of threads.
_AHEAD_MAX = 64


class RegisterSingle(Protocol):
    """Registers a handler of single messages: it takes the message, or its body decoded, or both."""

    @overload
    def __call__(self, function: Single, /) -> Single: ...
    @overload
    def __call__(self, function: Callable[[Body], Returned], /) -> Callable[[Body], Returned]: ...
    @overload
    def __call__(self, function: Callable[[Body], Waited], /) -> Callable[[Body], Waited]: ...
    @overload
    def __call__(self, function: Callable[[Body, Message], Returned], /) -> Callable[[Body, Message], Returned]: ...
    @overload
    def __call__(
        self, function: Callable[[Body, AsyncMessage], Waited], /
    ) -> Callable[[Body, AsyncMessage], Waited]: ...


class PlainConsumer(RunningClient[AsyncConsumer]):
    """Base of the generated consumer.

    Each message is handled in one of `concurrency` threads. An async handler runs in the loop of the plain clients and
    gets async messages. `hooks` are called in that loop: they must not block. A plain `Rebalance(on_change=...)` is
    called in a thread and may block.
    """

    def __init__(self, twin: AsyncConsumer) -> None:
        super().__init__(twin)
        self._ahead: deque[AsyncMessage] = deque()
        # The number of threads waiting for a message in the loop.
        self._fetching = 0
        self._has_handlers = False

    # -- handlers ----------------------------------------------------------------------------------------------------

    def _plain_handler(self, topic: Any, tags: Any, *, batch: int, **how: Any) -> Callable[[Any], Any]:
        register_twin: Callable[[Any], Any] = self._twin.handler(topic, tags, batch=batch, **how)

        def register(function: Any) -> Any:
            if is_async_function(function) or not callable(function):  # what cannot be called is refused there
                register_twin(function)
            else:
                register_twin(self._make_plain(function, self._choose_convert(str(topic), function, batch)))
            self._has_handlers = True
            return function

        return register

    def _choose_convert(self, topic: str, function: Any, batch: int) -> Callable[..., tuple[Any, ...]]:
        if find_body_type(topic, function, batch) is not None:
            return self._convert_typed
        return self._convert_batch if batch > 1 else self._convert

    def _convert_typed(self, body: object, *messages: AsyncMessage) -> tuple[Any, ...]:
        return (body, *[Message(message, self) for message in messages])

    def _convert(self, message: AsyncMessage) -> tuple[Message]:
        return (Message(message, self),)

    def _convert_batch(self, messages: list[AsyncMessage]) -> tuple[list[Message]]:
        return ([Message(message, self) for message in messages],)

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
        """In the loop: wait for messages; returns False if no more will come."""
        if self._ahead:  # another thread was here first
            return True
        self._fetching += 1
        try:
            self._ahead.append(await anext(self._twin))
        except StopAsyncIteration:
            return False
        finally:
            self._fetching -= 1
        # Otherwise the rest is for threads that wait or were just woken. An exclusive queue is released only when what
        # was handed out is settled, so nothing of it may lie here.
        if not self._fetching and not self._twin._member.settings.rebalance.exclusive:
            self._ahead.extend(self._twin._member.stream.take_rest(_AHEAD_MAX))
        return True

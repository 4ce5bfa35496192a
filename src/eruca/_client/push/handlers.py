"""Handlers: user functions that process messages, plain or async, one message or several at a time."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

from eruca._client.arguments import check_arguments, check_count
from eruca._client.handover import Handover
from eruca._client.later import LATER, make_later
from eruca._client.message import Message, Outcome
from eruca._client.push.typedbodies import Body, find_body_type, make_typed, takes_message
from eruca._client.push.workers import Job, Workers
from eruca.errors import ConfigError, RetryLater, WrongType

log = logging.getLogger(__name__)

AnyHandler: TypeAlias = Callable[..., Any]
# What handlers return: nothing or an outcome; async handlers return an awaitable of that.
Result: TypeAlias = Awaitable[Outcome | None] | Outcome | None
Single = TypeVar("Single", bound=Callable[[Message], Result])
Batch = TypeVar("Batch", bound=Callable[[list[Message]], Result])
Returned = TypeVar("Returned", bound=Result)
#: How many calls of a handler may run at once; "auto" looks for the number with the best throughput.
Concurrency: TypeAlias = int | Literal["auto"]

_TASKS_MAX = 256
_THREADS_MAX = 64


class RegisterSingle(Protocol):
    """Registers a handler of single messages, which takes the message, its decoded body, or both."""

    @overload
    def __call__(self, function: Single, /) -> Single: ...
    @overload
    def __call__(self, function: Callable[[Body], Returned], /) -> Callable[[Body], Returned]: ...
    @overload
    def __call__(self, function: Callable[[Body, Message], Returned], /) -> Callable[[Body, Message], Returned]: ...


class HandlerThreads:
    """The threads that run a plain handler, so that it blocks only itself, and its way back to the loop."""

    def __init__(self, name: str, count: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._workers = Workers(name, count)
        self._handover = Handover(self.loop)

    def put(self, jobs: list[Job]) -> None:
        """Queue jobs for the threads."""
        self._workers.put(jobs)

    def resize(self, count: int) -> None:
        """Set how many threads work from now on."""
        self._workers.resize(count)

    def post(self, function: Callable[[Any], object], argument: object) -> None:
        """From a thread: call a function in the loop. Does nothing when the loop is closed."""
        try:
            self._handover.post(function, argument)
        except RuntimeError:
            log.debug("the loop ended before a handler did")

    def close(self) -> None:
        """End the threads without waiting for them."""
        self._workers.close()


@dataclass(slots=True)
class HandlerEntry:
    """One handler and how it takes its messages."""

    # The name that the broker knows.
    topic: str
    function: AnyHandler
    concurrency: int
    batch: int
    auto_commit: bool
    is_async: bool
    # If true, `concurrency` is only the maximum; the actual number is found while running.
    is_adaptive: bool = False
    # Only for plain functions, from the first use until `close`.
    _threads: HandlerThreads | None = None

    @property
    def threads(self) -> HandlerThreads:
        """The threads of a plain function, bound to the running loop."""
        if self._threads is None:
            self._threads = HandlerThreads(self.topic, self.concurrency)
        return self._threads

    async def call(self, messages: list[Message]) -> Outcome:
        """Call the handler with messages. An exception is logged and returned as an outcome."""
        if not self.is_async:
            return await self._call_in_thread(messages)
        try:
            result = await self.function(messages if self.batch > 1 else messages[0])
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the consumer is closing
            # Something that the handler awaited was cancelled: a failure of the handler like any other.
            return self._explain_error(messages, error)
        except Exception as error:
            return self._explain_error(messages, error)
        return self._check_result(result)

    async def _call_in_thread(self, messages: list[Message]) -> Outcome:
        threads = self.threads
        future: asyncio.Future[Outcome] = threads.loop.create_future()
        # The context of this call (for example a tracing span) applies to the function too.
        context = contextvars.copy_context()

        def resolve(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        def work(_: None) -> None:
            threads.post(resolve, context.run(self.call_here, messages, threads.loop))

        threads.put([(work, None)])
        return await future

    def call_here(self, messages: list[Message], loop: asyncio.AbstractEventLoop) -> Outcome:
        """Call a plain function with messages in this thread, which is not the thread of the loop."""
        try:
            result = self.function(messages if self.batch > 1 else messages[0])
            if result is None:
                return Outcome.DONE
            if inspect.isawaitable(result):
                result = asyncio.run_coroutine_threadsafe(_wait_for(result), loop).result()
        except BaseException as error:  # sys.exit() in a handler must not end the thread
            return self._explain_error(messages, error)
        return self._check_result(result)

    def _explain_error(self, messages: list[Message], error: BaseException) -> Outcome:
        if isinstance(error, RetryLater):
            try:
                later = make_later(error.delay, error.delay_level)
            except ConfigError as wrong:
                log.error("%s is delivered again with the usual delay: %s", messages[0], wrong)
                later = LATER
            for message in messages:
                message._later = later
            return Outcome.DEAD if later.level < 0 else Outcome.LATER
        log.exception("the handler of %s failed on %s", self.topic, messages[0])
        return Outcome.LATER

    def _check_result(self, result: object) -> Outcome:
        if result is None:
            return Outcome.DONE
        if isinstance(result, Outcome):
            return result
        log.error(
            "the handler of %s returned %r: it must return nothing or an Outcome; the message will be delivered again",
            self.topic,
            result,
        )
        return Outcome.LATER

    def close(self) -> None:
        """Stop the threads of the handler without waiting for them."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None


async def _wait_for(result: Awaitable[Any]) -> Any:
    return await result


def is_async_function(function: AnyHandler) -> bool:
    """Return whether calling the function returns an awaitable."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def make_handler(
    topic: str, function: AnyHandler, *, concurrency: Concurrency, batch: int, auto_commit: bool
) -> HandlerEntry:
    """Check a handler and return the entry that calls it. Raises ConfigError."""
    if not callable(function):
        raise WrongType(f"the handler of {topic} is not a function: {function!r:.80}")
    given = ["messages" if batch > 1 else "message"]
    if find_body_type(topic, function, batch) is not None:
        given = ["body", "message"] if takes_message(function) else ["body"]
    check_arguments(f"the handler of {topic}", function, *given)
    is_async = is_async_function(function)
    is_adaptive = concurrency == "auto"
    if is_adaptive:
        count = _TASKS_MAX if is_async else _THREADS_MAX
    elif isinstance(concurrency, str):
        raise ConfigError(f"concurrency={concurrency!r:.80}: expected a number or 'auto'")
    else:
        count = check_count("concurrency", concurrency)
    function = make_typed(topic, function, batch, is_async=is_async)
    return HandlerEntry(topic, function, count, batch, auto_commit, is_async, is_adaptive)

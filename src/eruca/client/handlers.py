"""Handlers: functions of the user that work on messages, plain or async, one message or several at a time."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from eruca.client.message import Message, Outcome
from eruca.errors import ConfigError

log = logging.getLogger(__name__)

AnyHandler = Callable[..., Any]


@dataclass(slots=True)
class HandlerEntry:
    """One handler and how it wants its messages."""

    # As the broker knows it.
    topic: str
    function: AnyHandler
    concurrency: int
    batch: int
    auto_commit: bool
    is_async: bool
    # Where plain functions run, so that they hold up nothing but themselves.
    threads: ThreadPoolExecutor | None = None

    async def call(self, messages: list[Message]) -> Outcome:
        """Have it work on messages; an exception is an outcome too, and in the log."""
        argument: Any = messages if self.batch > 1 else messages[0]
        try:
            if self.is_async:
                result = await self.function(argument)
            else:
                result = await asyncio.get_running_loop().run_in_executor(self.threads, self.function, argument)
                if inspect.isawaitable(result):
                    result = await result
        except Exception:
            log.exception("the handler of %s failed on %s", self.topic, messages[0])
            return Outcome.LATER
        if result is None or isinstance(result, Outcome):
            return result or Outcome.DONE
        log.error(
            "the handler of %s returned %r: it must return nothing or an Outcome; the message comes again",
            self.topic,
            result,
        )
        return Outcome.LATER

    def close(self) -> None:
        """Stop its threads without waiting for them."""
        if self.threads is not None:
            self.threads.shutdown(wait=False, cancel_futures=True)


def make_handler(topic: str, function: AnyHandler, *, concurrency: int, batch: int, auto_commit: bool) -> HandlerEntry:
    """Check a handler and say how it is called."""
    if not callable(function):
        raise ConfigError(f"the handler of {topic} cannot be called: {function!r}")
    if concurrency < 1 or not 1 <= batch <= 1024:
        raise ConfigError(f"concurrency={concurrency}, batch={batch}: both are at least 1, a batch at most 1024")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )
    threads = None if is_async else ThreadPoolExecutor(concurrency, thread_name_prefix=f"eruca-{topic}")
    return HandlerEntry(topic, function, concurrency, batch, auto_commit, is_async, threads)

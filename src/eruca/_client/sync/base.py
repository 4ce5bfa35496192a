"""What all plain clients share: their async twin, the loop it runs in, and how they come and go."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from signal import SIG_DFL
from types import FrameType, TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from eruca._client.arguments import check_type
from eruca._client.group.settings import Rebalance
from eruca._client.message import Message as AsyncMessage
from eruca._client.message import ReceivedMessage
from eruca._client.options import ClientOptions
from eruca._client.sync.loopthread import Call, LoopThread, find_loop_thread
from eruca._ground.durations import Duration, to_seconds
from eruca._wire.bodies import MessageQueue
from eruca.errors import ClientClosed, ErucaError

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class AsyncClient(Protocol):
    """An async producer or consumer."""

    options: ClientOptions

    @property
    def group(self) -> str:
        """The group it belongs to."""

    async def start(self) -> None:
        """Begin."""

    async def close(self) -> None:
        """End."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, and know how it came to that."""


Twin = TypeVar("Twin", bound=AsyncClient)


class PlainClient(Generic[Twin]):
    """A client for plain code. It does nothing by itself: every call is one of its async twin, made in the loop."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin
        # While it is started.
        self._thread: LoopThread | None = None
        self._is_closed = False
        # Somebody else started it, and will close it.
        self._is_shown = False
        # One thread at a time starts or closes it; the next one leaves when that is done.
        self._changing = threading.Lock()

    def __repr__(self) -> str:
        return repr(self._twin)

    def __del__(self) -> None:
        with suppress(AttributeError):  # its constructor may have failed
            is_open = self._thread is not None and not self._is_shown and not self._thread.is_forked
            if is_open and not sys.is_finalizing():  # then it was closed with the process
                warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)

    @property
    def options(self) -> ClientOptions:
        """How it reaches the cluster."""
        return self._twin.options

    @property
    def group(self) -> str:
        """The group of the client."""
        return self._twin.group

    def start(self) -> None:
        """Make ready and begin; `with` does it."""
        thread = self._thread or find_loop_thread()
        thread.check_caller()
        with self._changing:
            if self._thread is not None:
                return
            self._thread = thread
            thread.add(self._twin)
            try:
                thread.run(self._twin.start())
            except BaseException as error:
                self._thread = None
                thread.remove(self._twin)
                if isinstance(error, ErucaError):
                    thread.spawn(self._twin.close())
                else:  # after an interrupt it may be started all the same
                    thread.run(self._twin.close(), goes_on=True)
                raise
            self._is_closed = False

    def close(self) -> None:
        """End cleanly, and wait until that is done. Safe to call twice, and from any thread."""
        self._close(None, None, None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(kind, error, trace)

    def _close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread = self._thread
        if thread is None or thread.is_forked:
            return
        thread.check_caller()
        with self._changing:
            if self._thread is None:
                return
            thread.run(self._twin.__aexit__(kind, error, trace), goes_on=True)
            thread.remove(self._twin)
            self._thread = None
            self._is_closed = True

    def _find_thread(self) -> LoopThread:
        if self._thread is None:
            name = type(self).__name__
            raise ClientClosed(f"the {name} is not started", hint=f"use `with {name}(...)`, or start()")
        return self._thread

    def _run(
        self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None, call: Call[Result] | None = None
    ) -> Result:
        """Have the twin do something, and wait for it."""
        try:
            thread = self._find_thread()
        except ClientClosed:
            work.close()
            raise
        return thread.run(work, timeout_s, call)

    def _find_patience(self, timeout: Duration | None) -> float | None:
        """How long a call may take, in seconds, before a loop that is stuck is looked for."""
        return None if timeout is None else to_seconds("timeout", timeout)

    @staticmethod
    def _plain_rebalance(rebalance: Rebalance) -> Rebalance:
        """The same, with a plain listener called in a thread of its own: it may block, and use plain clients."""
        check_type("rebalance", rebalance, Rebalance)
        listener = rebalance.on_change
        if listener is None or inspect.iscoroutinefunction(listener):
            return rebalance

        async def listen(assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
            result = await asyncio.to_thread(listener, assigned, revoked)
            if inspect.isawaitable(result):
                await result

        return replace(rebalance, on_change=listen)

    def _call(self, function: Callable[[], Result]) -> Result:
        """Call something of the twin that does not wait, where nothing else happens at the same time."""
        return function() if self._thread is None else self._thread.call(function)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Have the twin do something soon; after the end nothing is left to do."""
        if self._thread is None or self._thread.is_forked:
            work.close()
        else:
            self._thread.spawn(work)


class RunningClient(PlainClient[Twin]):
    """A plain client that calls functions of the user by itself, and so can just be run."""

    def __init__(self, twin: Twin) -> None:
        super().__init__(twin)
        self._ended = threading.Event()
        # Threads that are in a function of the user now.
        self._calling: set[int] = set()

    def start(self) -> None:
        """Join the group and begin; `with` does it. Raises when a subscription cannot be read."""
        if self._thread is None:
            self._ended.clear()
        super().start()

    def run(self) -> None:
        """Go on until Ctrl-C or `close`, and then end cleanly: what was begun is ended, offsets are committed.

        SIGTERM, by which containers are stopped, does the same and then exits, unless the program has a handler for it.

        >>> consumer.run()
        """
        with _exit_when_terminated():
            try:
                self.start()
                self._ended.wait()
            except KeyboardInterrupt:
                log.info("interrupted: the %s ends", type(self).__name__)
            finally:
                self.close()

    def close(self) -> None:
        """End cleanly, and wait until that is done. Safe to call twice, and from any thread.

        The functions this client calls may call it too; they get no wait, because they must return first.
        """
        if threading.get_ident() in self._calling:
            threading.Thread(target=self.close, name="eruca-close").start()
        else:
            super().close()

    def _close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        super()._close(kind, error, trace)

    def _make_plain(self, function: Callable[..., Any], convert: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
        """A function of the user for the twin: `convert` makes plain arguments of what the twin gives."""
        calling = self._calling

        @functools.wraps(function)
        def call(*given: Any) -> Any:
            me = threading.get_ident()
            calling.add(me)
            try:
                return function(*convert(*given))
            finally:
                calling.discard(me)

        return call


@contextmanager
def _exit_when_terminated() -> Iterator[None]:
    """Turn SIGTERM into SystemExit, if it would just kill the process and this thread is the one that gets signals."""
    is_ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, SIG_DFL)


def _exit(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


class Message(ReceivedMessage):
    """A received message for plain code, and a say in what becomes of it.

    When iterating, acknowledge every message. A handler need not: its return or exception decides about all messages
    that it has not acknowledged by itself.

    >>> for message in consumer:
    ...     print(message.topic, message.tags, message.body)
    ...     message.ack()
    """

    __slots__ = ("_client", "_twin")

    def __init__(self, twin: AsyncMessage, client: PlainClient[Any]) -> None:
        super().__init__(twin.record, twin.queue, twin._namespace, twin._decode)
        self.delivery = twin.delivery
        self._twin = twin
        self._client = client

    @property
    def twin(self) -> AsyncMessage:
        """The same message for async code."""
        return self._twin

    def ack(self) -> None:
        """It is done. This waits for nothing: the next commit has it."""
        # Taken here and not in the loop: a handler that fails next must not get this message again.
        settle = self._twin._take_settle()
        if settle is not None:
            self._client._spawn(settle.ack(self._twin))

    def retry(self, *, delay_level: int = 0) -> None:
        """Deliver it again later: after `delay_level`, or by default later each time. Raises ErucaError.

        A single message of an ordered queue cannot be retried.
        """
        if self._twin._settle is not None:
            self._client._run(self._twin.retry(delay_level=delay_level))

    def bury(self) -> None:
        """Send it to the dead letters of the group. Raises ErucaError."""
        if self._twin._settle is not None:
            self._client._run(self._twin.bury())


def find_twin(name: str, message: Message) -> AsyncMessage:
    """The async twin of a message that a user passes. Raises ConfigError, with the name of the argument."""
    check_type(name, message, Message)
    return message.twin

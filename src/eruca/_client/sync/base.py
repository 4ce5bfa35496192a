"""Shared by all plain clients: their async twin, the loop it runs in, and starting and closing."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from signal import SIG_DFL
from types import FrameType, TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from eruca._client.arguments import check_type
from eruca._client.group.settings import Rebalance
from eruca._client.later import make_later
from eruca._client.message import Message as AsyncMessage
from eruca._client.message import ReceivedMessage
from eruca._client.options import ClientOptions
from eruca._client.produce.delivery import TIMEOUT_S
from eruca._client.produce.outgoing import Receipt
from eruca._client.sync.loopthread import Call, LoopThread, find_loop_thread
from eruca._ground.durations import Duration, to_seconds
from eruca._wire.bodies import MessageQueue
from eruca.errors import ClientClosed, ErucaError

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class AsyncClient(Protocol):
    """An async producer, consumer or admin."""

    @property
    def options(self) -> ClientOptions:
        """The options of its session."""

    async def start(self) -> None:
        """Start."""

    async def close(self) -> None:
        """Close."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, at the end of a `with` block."""


class AsyncMember(AsyncClient, Protocol):
    """An async producer or consumer."""

    @property
    def group(self) -> str:
        """The group it belongs to."""


Twin = TypeVar("Twin", bound=AsyncClient)
Member = TypeVar("Member", bound=AsyncMember)


class PlainClient(Generic[Twin]):
    """A client for plain code. It has no logic of its own: every call is made to its async twin, in the loop."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin
        # Set while it is started.
        self._thread: LoopThread | None = None
        self._is_closed = False
        # True if it was started, and will be closed, by someone else.
        self._is_shown = False
        # One thread at a time starts or closes it; others wait and then find it done.
        self._changing = threading.Lock()

    def __repr__(self) -> str:
        return repr(self._twin)

    def __del__(self) -> None:
        with suppress(AttributeError):  # its constructor may have failed
            is_open = self._thread is not None and not self._is_shown and not self._thread.is_forked
            if is_open and not sys.is_finalizing():  # at exit it is closed with the process
                warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)

    @property
    def options(self) -> ClientOptions:
        """The options of its session."""
        return self._twin.options

    def start(self) -> None:
        """Start the client; `with` does this."""
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
                else:  # after an interrupt it may have started anyway
                    thread.run(self._twin.close(), goes_on=True)
                raise
            self._is_closed = False

    def close(self) -> None:
        """Close the client and wait until that is done. Safe to call twice, and from any thread."""
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
        """Run a coroutine of the twin and wait for it."""
        try:
            thread = self._find_thread()
        except ClientClosed:
            work.close()
            raise
        return thread.run(work, timeout_s, call)

    def _find_patience(self, timeout: Duration | None) -> float | None:
        """Return how long a call may take, in seconds, before the loop is checked for being stuck."""
        return None if timeout is None else to_seconds("timeout", timeout)

    @staticmethod
    def _plain_rebalance(rebalance: Rebalance) -> Rebalance:
        """Return the same settings with a plain listener called in a thread: it may block and use plain clients."""
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
        """Call a function of the twin that does not wait, in the loop, so that nothing else runs at the same time."""
        return function() if self._thread is None else self._thread.call(function)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Start a coroutine of the twin without waiting for it; does nothing after the client is closed."""
        if self._thread is None or self._thread.is_forked:
            work.close()
        else:
            self._thread.spawn(work)


class GroupClient(PlainClient[Member]):
    """A plain client that belongs to a group."""

    @property
    def group(self) -> str:
        """The group of the client."""
        return self._twin.group


class RunningClient(GroupClient[Member]):
    """A plain client that calls functions of the user, and so has `run`."""

    def __init__(self, twin: Member) -> None:
        super().__init__(twin)
        self._ended = threading.Event()
        # Threads currently in a function of the user.
        self._calling: set[int] = set()

    def start(self) -> None:
        """Join the group and start; `with` does this. Raises ErucaError if a subscription cannot be parsed."""
        if self._thread is None:
            self._ended.clear()
        super().start()

    def run(self) -> None:
        """Run until Ctrl-C or `close`, then stop cleanly: running handlers finish, and offsets are committed.

        SIGTERM, which stops containers, does the same and then exits, unless the program has a handler for it.

        >>> consumer.run()
        """
        with _exit_when_terminated():
            try:
                self.start()
                self._ended.wait()
            except KeyboardInterrupt:
                log.info("interrupted: the %s is stopping", type(self).__name__)
            finally:
                self.close()

    def close(self) -> None:
        """Close the client and wait until that is done. Safe to call twice, and from any thread.

        Functions that this client calls may call it too; then it does not wait, because they must return first.
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
        """Wrap a function of the user for the twin: `convert` turns the twin's arguments into plain ones."""
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
    """Turn SIGTERM into SystemExit if it has the default handler and this is the main thread."""
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
    """A received message for plain code. It is acknowledged, retried or sent to the dead letters.

    When iterating, acknowledge every message. A handler need not: its return value or exception decides about all
    messages that it has not acknowledged itself.

    >>> for message in consumer:
    ...     print(message.topic, message.tags, message.body)
    ...     message.ack()
    """

    __slots__ = ("_client", "_twin")

    def __init__(self, twin: AsyncMessage, client: PlainClient[Any]) -> None:
        # The queue of the twin is without the namespace already.
        ReceivedMessage.__init__(self, twin.record, twin.queue, decode=twin._decode)
        self._namespace = twin._namespace
        self.delivery = twin.delivery
        self._twin = twin
        self._client = client

    def ack(self) -> None:
        """Acknowledge the message. This does not wait: it is part of the next commit."""
        # Taken here and not in the loop: if the handler fails next, this message must not be delivered again.
        settle = self._twin._take_settle()
        if settle is not None:
            self._client._spawn(settle.ack(self._twin))

    def retry(self, *, delay: Duration | None = None, delay_level: int = 0) -> None:
        """Deliver it again after `delay`, or by default with a longer delay each time. Raises ErucaError.

        Eruca brokers deliver it after any delay, as a timedelta or in seconds; other brokers after the next longer
        delay level. `delay_level` is the number of a level. A single message of an ordered queue cannot be retried.
        """
        make_later(delay, delay_level)  # raises now, whether it is settled or not
        if self._twin._settle is not None:
            self._client._run(self._twin.retry(delay=delay, delay_level=delay_level))

    def bury(self) -> None:
        """Send it to the dead letters of the group. Raises ErucaError."""
        if self._twin._settle is not None:
            self._client._run(self._twin.bury())

    def reply(
        self,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> Receipt:
        """Reply to a message that was sent with `request`, by a client in any language. It does not settle the message.

        `timeout` is 30 s by default. Raises MessageIllegal if the message is not a request, and SendFailed if its
        sender is gone.
        """
        keys = keys if isinstance(keys, str) else tuple(keys)
        work = self._twin.reply(body, tags=tags, keys=keys, properties=properties, timeout=timeout)
        return self._client._run(work, to_seconds("timeout", TIMEOUT_S if timeout is None else timeout))


def find_twin(name: str, message: Message) -> AsyncMessage:
    """Return the async twin of a message that a user passed. Raises ConfigError with the name of the argument."""
    check_type(name, message, Message)
    return message._twin

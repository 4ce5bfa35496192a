"""What a plain transactional producer does beside calling its async twin: local work in the caller's own thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any

from eruca._client.message import Message as AsyncMessage
from eruca._client.produce.checks import Decided, Decision
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.transactions import Half, TransactionReceipt
from eruca._client.produce.transactions import TransactionalProducer as AsyncTransactionalProducer
from eruca._client.push.handlers import is_async_function
from eruca._client.sync.base import Message
from eruca._client.sync.loopthread import Call
from eruca._client.sync.producer import Producer
from eruca._client.sync.producing import PlainProducer


class PlainTransactionalProducer(Producer):
    """Base of the generated transactional producer."""

    def __init__(self, twin: AsyncTransactionalProducer) -> None:
        PlainProducer.__init__(self, twin)
        self._transactions = twin

    def _plain_check(self, check: Callable[[Message], Decided]) -> Callable[[AsyncMessage], Decided]:
        if is_async_function(check) or not callable(check):  # what cannot be called is refused there
            return check  # type: ignore[return-value]  # async code gets the async message

        def check_plain(message: AsyncMessage) -> Decided:
            return check(Message(message, self))

        return check_plain

    def _plain_send_transaction(
        self, topic: str, body: Any, *, local: Callable[[Receipt], Decided], timeout: Any, **how: Any
    ) -> TransactionReceipt:
        """Store a half message, do the local work, and tell the broker how that ended.

        `local` gets the receipt of the half and returns a Decision; it runs in this thread, with its database
        connection and whatever else belongs to it. What it raises is raised here, and leaves the half open: the broker
        will ask. A half that is not synced as the broker's mode wants is rolled back without the work being done.
        `check_after` is how long the broker waits before it asks.
        """
        call: Call[TransactionReceipt] = Call()

        async def work_here(receipt: Receipt) -> Decision | None:
            return await call.ask(local, receipt)  # type: ignore[arg-type]  # a plain function returns no awaitable

        work = self._transactions.send_transaction(
            topic, body, local=local if is_async_function(local) else work_here, timeout=timeout, **how
        )
        return self._run(work, self._find_patience(timeout), call)

    def _plain_transaction(self, topic: str, body: Any, *, timeout: Any, **how: Any) -> AbstractContextManager[Half]:
        """Store a half message, and commit it when the block ends; an exception rolls it back and goes on.

        Ctrl-C and the end of the process leave it open, and the broker asks: the work may be done or not. So does
        `half.leave_open()`, also before an exception. Raises SendFailed when the half is not stored, or not synced as
        the broker's mode wants.
        """
        return self._open_transaction(
            self._transactions.transaction(topic, body, timeout=timeout, **how), self._find_patience(timeout)
        )

    @contextmanager
    def _open_transaction(self, twin: AbstractAsyncContextManager[Half], timeout_s: float) -> Iterator[Half]:
        half = self._run(_enter(twin), timeout_s)
        try:
            yield half
        except BaseException as error:
            self._run(_leave(twin, error))
            raise
        self._run(_leave(twin, None))


async def _enter(block: AbstractAsyncContextManager[Half]) -> Half:
    return await block.__aenter__()


async def _leave(block: AbstractAsyncContextManager[Half], error: BaseException | None) -> None:
    kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
    await block.__aexit__(kind, error, trace)

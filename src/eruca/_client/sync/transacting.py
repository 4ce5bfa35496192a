"""Hand-written parts of the plain transactional producer: local work in the caller's own thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any

from eruca._client.message import Message as AsyncMessage
from eruca._client.produce.bodies import Body
from eruca._client.produce.checks import Decided, Decision
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.transactions import Half, TransactionReceipt
from eruca._client.produce.transactions import TransactionalProducer as AsyncTransactionalProducer
from eruca._client.push.handlers import is_async_function
from eruca._client.sync.base import Message
from eruca._client.sync.loopthread import Call
from eruca._client.sync.producer import Producer
from eruca._client.sync.producing import PlainProducer


class PlainTransactionalProducer(Producer[Body]):
    """Base of the generated transactional producer."""

    def __init__(self, twin: AsyncTransactionalProducer[Body]) -> None:
        PlainProducer.__init__(self, twin)
        self._transactions = twin

    def _plain_check(self, check: Callable[[Message], Decided]) -> Callable[[AsyncMessage], Decided]:
        if is_async_function(check) or not callable(check):  # what cannot be called is refused there
            return check  # type: ignore[return-value]  # async code gets the async message

        @functools.wraps(check)
        def check_plain(message: AsyncMessage) -> Decided:
            return check(Message(message, self))

        return check_plain

    def _plain_send_transaction(
        self, topic: str, body: Body, *, local: Callable[[Receipt], Decided], timeout: Any, **how: Any
    ) -> TransactionReceipt:
        """Store a half message, do the local work, and report its outcome to the broker.

        `local` gets the receipt of the half and returns a Decision. It runs in this thread, so it can use the thread's
        database connection. If it raises, the exception propagates and the half stays open: the broker checks it
        later. A half that is not synced as the broker's mode requires is rolled back without running `local`.
        `check_after` is how long the broker waits before it asks.
        """
        call: Call[TransactionReceipt] = Call()

        async def work_here(receipt: Receipt) -> Decision | None:
            return await call.ask(local, receipt)  # type: ignore[arg-type]  # a plain function returns no awaitable

        work = self._transactions.send_transaction(
            topic, body, local=local if is_async_function(local) else work_here, timeout=timeout, **how
        )
        return self._run(work, self._find_patience(timeout), call)

    def _plain_transaction(self, topic: str, body: Body, *, timeout: Any, **how: Any) -> AbstractContextManager[Half]:
        """Store a half message and commit it when the block ends; an exception rolls it back and propagates.

        Ctrl-C and the end of the process leave it open, because the work may be done or not; the broker checks later.
        `half.leave_open()` does the same, even if an exception follows. Raises SendFailed if the half is not stored, or
        not synced as the broker's mode requires.
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

"""The plain transactional producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from eruca._client.message import Message as AsyncMessage
from eruca._client.produce.checks import Decided, Decision
from eruca._client.produce.choosing import Selector
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.transactions import Half, TransactionReceipt
from eruca._client.produce.transactions import TransactionalProducer as AsyncTransactionalProducer
from eruca._client.push.handlers import is_async_function
from eruca._client.sync.base import Message, PlainClient
from eruca._client.sync.loopthread import Call
from eruca._client.sync.producer import Producer
from eruca._ground.durations import Duration
from eruca._wire.bodies import MessageQueue


class TransactionalProducer(Producer):
    """Sends messages that are seen only when local work succeeded.

    >>> def check(message):
    ...     return Decision.COMMIT if was_paid(message.transaction_id) else Decision.ROLLBACK
    >>> with TransactionalProducer("127.0.0.1:9876", group="payments", check=check) as producer:
    ...     with producer.transaction("payments", b"...") as half:
    ...         pay(order, half.transaction_id)

    `check` is asked about halves nobody decided, those of other producers of the group too, so it must look at what the
    local work left behind. It runs in a thread of its own. What it raises means that it does not know. Other arguments
    are those of Producer.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        check: Callable[[Message], Decision | None],
        checks_max: int = 8,
        **others: Any,
    ) -> None:
        self._transactions = AsyncTransactionalProducer(
            nameservers, check=self._make_check(check), checks_max=checks_max, **others
        )
        PlainClient.__init__(self, self._transactions)
        self._prepare(others.get("timeout", 3.0), others.get("in_flight_max", 8192))

    def _make_check(self, check: Callable[[Message], Decision | None]) -> Callable[[AsyncMessage], Decided]:
        if is_async_function(check):
            return check  # type: ignore[return-value]  # async code gets the async message

        def check_plain(message: AsyncMessage) -> Decision | None:
            return check(Message(message, self))

        return check_plain

    def send_transaction(
        self,
        topic: str,
        body: Any,
        *,
        local: Callable[[Receipt], Decision | None],
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay: Duration | None = None,
        check_after: Duration | None = None,
        timeout: Duration | None = None,
    ) -> TransactionReceipt:
        """Store a half message, do the local work, and tell the broker how that ended.

        `local` gets the receipt of the half and returns a Decision; it runs in this thread, with its database
        connection and whatever else belongs to it. What it raises is raised here, and leaves the half open: the broker
        will ask. A half that is not synced as the broker's mode wants is rolled back without the work being done.
        `check_after` is how long the broker waits before it asks.
        """
        call: Call[TransactionReceipt] = Call()

        async def work_here(receipt: Receipt) -> Decision | None:
            return await call.ask(local, receipt)

        work = self._transactions.send_transaction(
            topic,
            body,
            local=local if is_async_function(local) else work_here,
            tags=tags,
            keys=keys,
            shard=shard,
            queue=queue,
            selector=selector,
            properties=properties,
            flag=flag,
            delay=delay,
            check_after=check_after,
            timeout=timeout,
        )
        return self._run(work, self._find_timeout(timeout), call)

    @contextmanager
    def transaction(
        self,
        topic: str,
        body: Any,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay: Duration | None = None,
        check_after: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Iterator[Half]:
        """Store a half message, and commit it when the block ends; an exception rolls it back and goes on.

        Ctrl-C and the end of the process leave it open, and the broker asks: the work may be done or not. So does
        `half.leave_open()`, also before an exception. Raises SendFailed when the half is not stored, or not synced as
        the broker's mode wants.
        """
        twin = self._transactions.transaction(
            topic,
            body,
            tags=tags,
            keys=keys,
            shard=shard,
            queue=queue,
            selector=selector,
            properties=properties,
            flag=flag,
            delay=delay,
            check_after=check_after,
            timeout=timeout,
        )
        half = self._run(_enter(twin), self._find_timeout(timeout))
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

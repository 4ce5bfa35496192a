"""Transactions: a message that consumers see only when the local work it tells of is done.

The message is stored as a half, which no consumer sees; then the local work runs; then its outcome is told to the
broker. When that is lost or not known, the broker asks any producer of the group, which looks it up (`check`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar

from eruca._client.message import Message
from eruca._client.produce.choosing import Selector, choose_queue
from eruca._client.produce.outgoing import Receipt, SendStatus
from eruca._client.produce.packing import Body
from eruca._client.produce.producer import Producer, to_ms
from eruca._client.produce.sending import Parcel
from eruca._client.session.session import Session
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.headers import CheckTransactionHeader, EndTransactionHeader
from eruca._wire.ids import decode_offset_id
from eruca._wire.names import MASTER_ID, SELF_TEST_TOPIC
from eruca._wire.properties import CHECK_IMMUNITY_TIME_IN_SECONDS, MSG_REGION, PGROUP, TRAN_MSG
from eruca._wire.record import Record
from eruca._wire.sysflag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    set_transaction,
)
from eruca.errors import ErucaError, MessageIllegal, SendFailed

log = logging.getLogger(__name__)

_Argument = TypeVar("_Argument")
# Questions of brokers that may wait for their turn, as in Java; those beyond are asked again by the broker.
_CHECKS_WAITING_MAX = 2000


class Decision(Enum):
    """What becomes of a half message."""

    # Consumers get it.
    COMMIT = "commit"
    # Nobody gets it.
    ROLLBACK = "rollback"
    # Not known yet: the broker asks later.
    UNKNOWN = "unknown"


_FLAGS = {
    Decision.COMMIT: TRANSACTION_COMMIT,
    Decision.ROLLBACK: TRANSACTION_ROLLBACK,
    Decision.UNKNOWN: TRANSACTION_NONE,
}

Decided = Awaitable[Decision | None] | Decision | None


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """The half message is stored, and this was decided about it."""

    receipt: Receipt
    decision: Decision


class Half:
    """A half message inside `async with producer.transaction(...)`: committed at the end unless told otherwise."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.decision = Decision.COMMIT

    @property
    def transaction_id(self) -> str:
        """What the message given to `check` has as its transaction id; keep it with the local work."""
        return self.receipt.message_id

    def rollback(self) -> None:
        """Nobody shall get the message."""
        self.decision = Decision.ROLLBACK

    def leave_open(self) -> None:
        """Decide later: the broker will ask `check`."""
        self.decision = Decision.UNKNOWN


class TransactionalProducer(Producer):
    """Sends messages that are seen only when local work succeeded.

    >>> async def check(message):  # may also be a plain function, which then runs in a thread
    ...     return Decision.COMMIT if await was_paid(message.transaction_id) else Decision.ROLLBACK
    >>> async with TransactionalProducer("127.0.0.1:9876", group="payments", check=check) as producer:
    ...     async with producer.transaction("payments", b"...") as half:
    ...         await pay(order, half.transaction_id)

    `check` is asked about halves nobody decided, those of other producers of the group too, so it must look at what the
    local work left behind. What it raises means that it does not know. Other arguments are those of Producer.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        check: Callable[[Message], Decided],
        checks_max: int = 8,
        **others: Any,
    ) -> None:
        super().__init__(nameservers, **others)
        self._check = check
        self._turns = asyncio.Semaphore(checks_max)
        self._checks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Make ready to send, and let the brokers know whom to ask; `async with` does it."""
        if self._session is not None:
            return
        await super().start()
        session = self.session
        # Halves of the group may wait at any broker, also if this producer never sends. A route that names them all is
        # enough: brokers of a new route get a heartbeat. (Java's clients look at TBW102, which a broker has only if it
        # makes topics by itself.)
        session.routes.watch(SELF_TEST_TOPIC)
        session.spawn(self._find_brokers(session))

    async def _find_brokers(self, session: Session) -> None:
        try:
            await session.routes.get(SELF_TEST_TOPIC)
        except ErucaError as error:
            log.info("the brokers of group %s are looked for again later: %s", self.group, error)

    def _take_session(self) -> Session | None:
        session = super()._take_session()
        if session is not None:
            session.routes.unwatch(SELF_TEST_TOPIC)
        return session

    async def close(self) -> None:
        """Wait for what is under way, and leave; the broker asks somebody else what is not answered by then."""
        for task in self._checks:
            task.cancel()
        await super().close()

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send_transaction(
        self,
        topic: str,
        body: Body,
        *,
        local: Callable[[Receipt], Decided],
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay: timedelta | int | None = None,
        check_after: timedelta | None = None,
        timeout: timedelta | float | None = None,
    ) -> TransactionReceipt:
        """Store a half message, do the local work, and tell the broker how that ended.

        `local` gets the receipt of the half and returns a Decision; a plain function runs in a thread. What it raises
        is raised here, and leaves the half open: the broker will ask. A half that is not synced as the broker's mode
        wants is rolled back without the work being done. `check_after` is how long the broker waits before it asks.
        """
        how = (tags, keys, properties, flag, delay, check_after)
        parcel, left_s = await self._pack_half(topic, body, *how, timeout)
        receipt = await self._post(parcel, choose_queue(shard, queue, selector), left_s)
        if receipt.status is not SendStatus.STORED:
            log.warning("half message %s is rolled back: %s", receipt.message_id, receipt.status.value)
            await self._decide(parcel, receipt, Decision.ROLLBACK)
            return TransactionReceipt(receipt, Decision.ROLLBACK)
        try:
            decision = _check_decision(await _call(local, receipt), "the local work")
        except BaseException as error:
            await self._decide(parcel, receipt, Decision.UNKNOWN, remark=repr(error))
            raise
        await self._decide(parcel, receipt, decision)
        return TransactionReceipt(receipt, decision)

    @asynccontextmanager
    async def transaction(
        self,
        topic: str,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        shard: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay: timedelta | int | None = None,
        check_after: timedelta | None = None,
        timeout: timedelta | float | None = None,
    ) -> AsyncIterator[Half]:
        """Store a half message, and commit it when the block ends; an exception rolls it back and goes on.

        A cancellation (or Ctrl-C, or the end of the process) leaves it open, and the broker asks: the work may be done
        or not. So does `half.leave_open()`, also before an exception. Raises SendFailed when the half is not stored, or
        not synced as the broker's mode wants.
        """
        how = (tags, keys, properties, flag, delay, check_after)
        parcel, left_s = await self._pack_half(topic, body, *how, timeout)
        receipt = await self._post(parcel, choose_queue(shard, queue, selector), left_s)
        if receipt.status is not SendStatus.STORED:
            await self._decide(parcel, receipt, Decision.ROLLBACK)
            why = f"{receipt.queue.broker_name}: {receipt.status.value}"
            raise SendFailed(f"half message {receipt.message_id} was rolled back: {why}", [why])
        half = Half(receipt)
        try:
            yield half
        except BaseException as error:
            await self._decide(parcel, receipt, _find_decision(half, error), remark=repr(error))
            raise
        await self._decide(parcel, receipt, half.decision)

    async def _pack_half(
        self,
        topic: str,
        body: Body,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        flag: int,
        delay: timedelta | int | None,
        check_after: timedelta | None,
        timeout: timedelta | float | None,
    ) -> tuple[Parcel, float]:
        """A half that can be sent, and the seconds that are left for that."""
        if delay:
            raise MessageIllegal(
                "a transactional message cannot be delayed", hint="commit it later, or send a delayed one on commit"
            )
        extra = {TRAN_MSG: "true", PGROUP: self.group}
        if check_after is not None:
            extra[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(max(0, round(check_after.total_seconds())))
        ids, packer = self.session.unique_ids, self._packer
        left_s = await self._greet_brokers(topic, timeout)
        parcel = packer.pack(ids, topic, body, tags, keys, properties, flag, True, None, extra)
        if packer.is_large(parcel):
            await self._compress(parcel)
        parcel.sys_flag = set_transaction(parcel.sys_flag, TRANSACTION_PREPARED)
        return parcel, left_s

    async def _greet_brokers(self, topic: str, timeout: timedelta | float | None) -> float:
        """Let the brokers know whom to ask before they have anything to ask; returns the seconds that are left."""
        loop = asyncio.get_running_loop()
        timeout_ms = self._timeout_ms if timeout is None else to_ms(timeout)
        deadline = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await self.session.routes.get_for_send(self._packer.find_topic(topic))
                await self.session.greet_all()
        except TimeoutError:
            why = f"no server answered within {timeout_ms} ms"
            raise SendFailed(f"the half message for {topic} was not sent: {why}", [why]) from None
        return max(0.001, deadline - loop.time())

    async def _decide(self, parcel: Parcel, receipt: Receipt, decision: Decision, *, remark: str | None = None) -> None:
        """Tell the broker that has a half what becomes of it; should that be lost, the broker asks."""
        try:
            header = EndTransactionHeader(
                producer_group=self.group,
                half_offset=receipt.offset,
                position=decode_offset_id(receipt.offset_id).position,
                decision=_FLAGS[decision],
                message_id=receipt.message_id,
                from_check=False,
                transaction_id=receipt.transaction_id or receipt.message_id,
            )
            delivery = self._delivery
            if delivery is None:
                raise self._explain_closed()
            address = delivery.sender.find_address(receipt.queue)
            await self._end(address, header, remark)
        except ErucaError as error:
            log.warning(
                "the broker was not told to %s half message %s, it will ask: %s",
                decision.value,
                receipt.message_id,
                error,
            )
            return
        if self._trace is not None and receipt.trace_on:
            self._trace.after_decision(header, parcel.topic, parcel.properties, address, receipt.region)

    async def _end(self, address: str, header: EndTransactionHeader, remark: str | None) -> None:
        command = make_request(RequestCode.END_TRANSACTION, header)
        command.remark = remark
        session = self._session
        if session is None:
            raise self._explain_closed()
        await session.calls.notify(address, command)

    # -- what brokers ask --------------------------------------------------------------------------------------------

    def check_transaction(self, address: str, header: CheckTransactionHeader, record: Record) -> bool:
        """Find out what became of a half message, and tell the broker."""
        session = self._session
        if session is None or self._is_closing:
            return False
        if len(self._checks) >= _CHECKS_WAITING_MAX:
            log.warning("too many transactions are asked about at once; %s has to ask again", address)
            return True
        task = session.spawn(self._answer_check(address, header, record))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        return True

    async def _answer_check(self, address: str, header: CheckTransactionHeader, record: Record) -> None:
        queue = MessageQueue(self._find_broker(address), record.queue_id, record.topic)
        message = Message(record, queue, self.options.namespace)
        remark = None
        async with self._turns:
            try:
                decision = _check_decision(await _call(self._check, message), "the check")
            except Exception as error:
                log.exception("the check of transaction %s failed, the broker will ask again", message.transaction_id)
                decision, remark = Decision.UNKNOWN, repr(error)
        answer = EndTransactionHeader(
            producer_group=self.group,
            half_offset=header.half_offset,
            position=header.position,
            decision=_FLAGS[decision],
            message_id=message.message_id,
            from_check=True,
            transaction_id=header.transaction_id,
        )
        try:
            await self._end(address, answer, remark)
        except ErucaError as error:
            log.warning("the answer about transaction %s is lost, the broker will ask again: %s", message, error)
            return
        if self._trace is not None:
            region = message.all_properties.get(MSG_REGION, "")
            self._trace.after_decision(answer, record.topic, record.properties, address, region)

    def _find_broker(self, address: str) -> str:
        brokers = self.session.routes.list_brokers()
        return next((name for name, found in brokers.items() if found.get(MASTER_ID) == address), "")


async def _call(function: Callable[[_Argument], Decided], argument: _Argument) -> object:
    """Call what may be async or plain; plain functions run in a thread, because they may block."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        found: Any = function(argument)
    else:
        found = await asyncio.get_running_loop().run_in_executor(None, function, argument)
    return await found if inspect.isawaitable(found) else found


def _find_decision(half: Half, error: BaseException) -> Decision:
    """What becomes of a half whose block was left by an exception."""
    if half.decision is not Decision.COMMIT:
        return half.decision  # the user said so
    # Work that raises has failed. Work that is cancelled or interrupted may be done already, and nobody knows here.
    return Decision.ROLLBACK if isinstance(error, Exception) else Decision.UNKNOWN


def _check_decision(found: object, who: str) -> Decision:
    if found is None:
        return Decision.UNKNOWN
    if not isinstance(found, Decision):
        raise TypeError(f"{who} returned {found!r}: it must return a Decision")
    return found

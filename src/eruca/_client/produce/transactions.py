"""Transactions: messages that consumers see only after the local work they report is done.

The message is stored as a half message, which no consumer sees. Then the local work runs, and its outcome is reported
to the broker. If the report is lost or the outcome is not known, the broker asks any producer of the group, which looks
it up (`check`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from eruca._client.arguments import check_callable, check_count
from eruca._client.message import Message
from eruca._client.options import ClientOptions
from eruca._client.produce.bodies import Body
from eruca._client.produce.checks import (
    FLAGS,
    CheckAnswers,
    Decided,
    Decision,
    call_either,
    check_decision,
    end_transaction,
)
from eruca._client.produce.choosing import Selector, choose_queue
from eruca._client.produce.delivery import TIMEOUT_S, TRY_TIMEOUT_S, SendHook
from eruca._client.produce.outgoing import Receipt, SendStatus
from eruca._client.produce.packing import COMPRESS_FROM
from eruca._client.produce.producer import Producer
from eruca._client.produce.sending import Parcel
from eruca._ground.durations import Duration, to_seconds
from eruca._ground.limits import MESSAGE_BODY_BYTES_MAX
from eruca._wire.bodies import MessageQueue
from eruca._wire.headers import EndTransactionHeader
from eruca._wire.ids import decode_offset_id
from eruca._wire.properties import CHECK_IMMUNITY_TIME_IN_SECONDS, PGROUP, TRAN_MSG
from eruca._wire.sysflag import TRANSACTION_PREPARED, set_transaction
from eruca.errors import ErucaError, MessageIllegal, SendFailed
from eruca.serializers import Serializer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """The receipt of a half message, and the decision about it."""

    receipt: Receipt
    decision: Decision


class Half:
    """A half message inside the block of `producer.transaction(...)`; committed at its end by default."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.decision = Decision.COMMIT

    @property
    def transaction_id(self) -> str:
        """The transaction id, which the message passed to `check` has too; store it with the local work."""
        return self.receipt.message_id

    def rollback(self) -> None:
        """Roll back at the end of the block: nobody receives the message."""
        self.decision = Decision.ROLLBACK

    def leave_open(self) -> None:
        """Leave the decision to `check`, which the broker asks later."""
        self.decision = Decision.UNKNOWN


class TransactionalProducer(Producer[Body]):
    """Sends messages that consumers see only if local work succeeded.

    >>> async def check(message):
    ...     return Decision.COMMIT if await was_paid(message.transaction_id) else Decision.ROLLBACK
    >>> async with TransactionalProducer("127.0.0.1:9876", group="payments", check=check) as producer:
    ...     async with producer.transaction("payments", b"...") as half:
    ...         await pay(order, half.transaction_id)

    `check` is called for half messages without a decision, including those of other producers of the group, so it must
    look at the stored results of the local work. A plain function runs in a thread. If it raises, the outcome is not
    known, and the broker asks again. The other arguments are those of Producer.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        check: Callable[[Message], Decided],
        checks_max: int = 8,
        group: str = "eruca",
        options: ClientOptions | None = None,
        timeout: Duration = TIMEOUT_S,
        try_timeout: Duration | None = TRY_TIMEOUT_S,
        retries: int | None = None,
        retry_when_not_synced: bool = False,
        idempotent: bool = False,
        avoid_slow_brokers: bool = False,
        compress_from: int | None = COMPRESS_FROM,
        compression: str = "zlib",
        compression_level: int = 5,
        message_bytes_max: int = MESSAGE_BODY_BYTES_MAX,
        linger: Duration = 0,
        in_flight_max: int = 8192,
        bytes_in_flight_max: int = 64 * 1024 * 1024,
        serializer: Serializer[Body] | None = None,
        hooks: Iterable[SendHook] = (),
        trace: bool | str = False,
    ) -> None:
        super().__init__(
            nameservers,
            group=group,
            options=options,
            timeout=timeout,
            try_timeout=try_timeout,
            retries=retries,
            retry_when_not_synced=retry_when_not_synced,
            idempotent=idempotent,
            avoid_slow_brokers=avoid_slow_brokers,
            compress_from=compress_from,
            compression=compression,
            compression_level=compression_level,
            message_bytes_max=message_bytes_max,
            linger=linger,
            in_flight_max=in_flight_max,
            bytes_in_flight_max=bytes_in_flight_max,
            serializer=serializer,
            hooks=hooks,
            trace=trace,
        )
        check_callable("check", check, "message")
        self._checks = CheckAnswers(self._engine, check, check_count("checks_max", checks_max))
        self._engine.answer_check = self._checks.answer

    async def start(self) -> None:
        """Prepare to send, and register with the brokers for checks; `async with` calls this."""
        is_started = self._engine.held is not None
        await super().start()
        if not is_started:
            self._checks.start(self._session)

    async def close(self) -> None:
        """Wait for sends in progress, and close; the broker passes unanswered checks to another producer."""
        self._checks.stop()
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
        delay: Duration | None = None,
        check_after: Duration | None = None,
        timeout: Duration | None = None,
    ) -> TransactionReceipt:
        """Store a half message, do the local work, and report its outcome to the broker.

        `local` gets the receipt of the half and returns a Decision; a plain function runs in a thread. If it raises,
        the exception propagates and the half stays open: the broker checks it later. A half that is not synced as the
        broker's mode requires is rolled back without running `local`. `check_after` is how long the broker waits before
        it asks.
        """
        check_callable("local", local, "receipt")
        how = (tags, keys, properties, flag, delay, check_after)
        choose = choose_queue(shard, queue, selector)
        parcel, left_ms = await self._pack_half(topic, body, *how, timeout)
        receipt = await self._engine.post(parcel, choose, left_ms)
        if receipt.status is not SendStatus.STORED:
            log.warning("half message %s is rolled back: %s", receipt.message_id, receipt.status.value)
            await self._decide(parcel, receipt, Decision.ROLLBACK)
            return TransactionReceipt(receipt, Decision.ROLLBACK)
        try:
            decision = check_decision(await call_either(local, receipt), "the local work")
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
        delay: Duration | None = None,
        check_after: Duration | None = None,
        timeout: Duration | None = None,
    ) -> AsyncIterator[Half]:
        """Store a half message and commit it when the block ends; an exception rolls it back and propagates.

        A cancellation, Ctrl-C and the end of the process leave it open, because the work may be done or not; the broker
        checks later. `half.leave_open()` does the same, even if an exception follows. Raises SendFailed if the half is
        not stored, or not synced as the broker's mode requires.
        """
        how = (tags, keys, properties, flag, delay, check_after)
        choose = choose_queue(shard, queue, selector)
        parcel, left_ms = await self._pack_half(topic, body, *how, timeout)
        receipt = await self._engine.post(parcel, choose, left_ms)
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
        delay: Duration | None,
        check_after: Duration | None,
        timeout: Duration | None,
    ) -> tuple[Parcel, int]:
        """Return a half that is ready to be sent, and the milliseconds that are left to send it."""
        if delay is not None:
            raise MessageIllegal(
                "a transactional message cannot be delayed", hint="commit it later, or send a delayed one on commit"
            )
        engine = self._engine
        extra = {TRAN_MSG: "true", PGROUP: engine.group}
        if check_after is not None:
            extra[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(round(to_seconds("check_after", check_after)))
        left_ms = await self._greet_brokers(topic, engine.find_timeout_ms(timeout))
        parcel = engine.packer.pack(engine.session.unique_ids, topic, body, tags, keys, properties, flag, True, extra)
        if len(parcel.body) >= engine.packer.compress_from:
            await engine.compress(parcel)
        parcel.sys_flag = set_transaction(parcel.sys_flag, TRANSACTION_PREPARED)
        return parcel, left_ms

    async def _greet_brokers(self, topic: str, timeout_ms: int) -> int:
        """Make sure the brokers know this producer before they get a half; return the milliseconds that are left."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        session = self._session
        wrapped = self._engine.packer.find_topic(topic)
        try:
            async with asyncio.timeout_at(deadline):
                await self._engine.require_delivery().find_route(wrapped, deadline)
                await session.greet_all()
        except TimeoutError:
            why = f"no server answered within {timeout_ms / 1000:g} s"
            raise SendFailed(f"the half message for {topic} was not sent: {why}", [why]) from None
        return max(1, round((deadline - loop.time()) * 1000))

    async def _decide(self, parcel: Parcel, receipt: Receipt, decision: Decision, *, remark: str | None = None) -> None:
        """Report the decision to the broker that holds the half; if the report is lost, the broker asks."""
        engine = self._engine
        try:
            header = EndTransactionHeader(
                producer_group=engine.group,
                half_offset=receipt.offset,
                position=decode_offset_id(receipt.offset_id).position,
                decision=FLAGS[decision],
                message_id=receipt.message_id,
                from_check=False,
                transaction_id=receipt.transaction_id or receipt.message_id,
            )
            delivery, session = engine.delivery, engine.held
            if delivery is None or session is None:
                raise engine.explain_closed()
            address = delivery.sender.find_address(receipt.queue)
            await end_transaction(session, address, header, remark)
        except ErucaError as error:
            log.warning(
                "the broker was not told to %s half message %s, it will ask: %s",
                decision.value,
                receipt.message_id,
                error,
            )
            return
        if engine.trace is not None and receipt.trace_on:
            engine.trace.after_decision(header, parcel.topic, parcel.properties, address, receipt.region)


def _find_decision(half: Half, error: BaseException) -> Decision:
    """Return the decision for a half whose block ended with an exception."""
    if half.decision is not Decision.COMMIT:
        return half.decision  # the user's choice
    # Work that raises has failed. Work that is cancelled or interrupted may be done already; it is not known here.
    return Decision.ROLLBACK if isinstance(error, Exception) else Decision.UNKNOWN

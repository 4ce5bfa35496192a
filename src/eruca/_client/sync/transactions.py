"""`eruca.sync.TransactionalProducer`.

Written by `make generate` from `eruca._client.produce.transactions` and
`eruca._client.sync.transacting`; do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from eruca._client.options import ClientOptions
from eruca._client.produce.bodies import Body
from eruca._client.produce.checks import Decided
from eruca._client.produce.choosing import Selector
from eruca._client.produce.delivery import TIMEOUT_S, TRY_TIMEOUT_S, SendHook
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.packing import COMPRESS_FROM
from eruca._client.produce.transactions import Half, TransactionReceipt
from eruca._client.produce.transactions import TransactionalProducer as AsyncTransactionalProducer
from eruca._client.sync.base import Message
from eruca._client.sync.transacting import PlainTransactionalProducer
from eruca._ground.durations import Duration
from eruca._ground.limits import MESSAGE_BODY_BYTES_MAX
from eruca._wire.bodies import MessageQueue
from eruca.serializers import Serializer


class TransactionalProducer(PlainTransactionalProducer[Body]):
    """Sends messages that consumers see only if local work succeeded.

    >>> def check(message):
    ...     return Decision.COMMIT if was_paid(message.transaction_id) else Decision.ROLLBACK
    >>> with TransactionalProducer("127.0.0.1:9876", group="payments", check=check) as producer:
    ...     with producer.transaction("payments", b"...") as half:
    ...         pay(order, half.transaction_id)

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
            AsyncTransactionalProducer(
                nameservers,
                check=self._plain_check(check),
                checks_max=checks_max,
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
        )

    def send_transaction(
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

        `local` gets the receipt of the half and returns a Decision. It runs in this thread, so it can use the thread's
        database connection. If it raises, the exception propagates and the half stays open: the broker checks it
        later. A half that is not synced as the broker's mode requires is rolled back without running `local`.
        `check_after` is how long the broker waits before it asks.
        """
        return self._plain_send_transaction(
            topic,
            body,
            local=local,
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

    def transaction(
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
    ) -> AbstractContextManager[Half]:
        """Store a half message and commit it when the block ends; an exception rolls it back and propagates.

        Ctrl-C and the end of the process leave it open, because the work may be done or not; the broker checks later.
        `half.leave_open()` does the same, even if an exception follows. Raises SendFailed if the half is not stored, or
        not synced as the broker's mode requires.
        """
        return self._plain_transaction(
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

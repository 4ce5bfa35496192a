"""Our clients with one account after the other: what comes of a request, in the words of the official client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from eruca import ClientOptions, Decision, MessageQueue, Producer, PullConsumer, SendStatus, Tls, TransactionalProducer
from eruca.errors import ErucaError, RequestRefused
from tests.interop.brokers import BROKER_NAME, Cluster
from tests.interop.guarded import GROUP, TOPIC, WHO, tell
from tests.patience import PATIENCE_S

QUEUE = MessageQueue(BROKER_NAME, 0, TOPIC)


def sign_in(cluster: Cluster, who: str, *, tls: bool = False) -> ClientOptions:
    """The options of an account; each has a session of its own."""
    account = WHO[who]
    key, secret = ("", "") if account is None else (account.access_key, account.secret_key)
    # The servers have made their certificates themselves.
    over = Tls(verify=False) if tls else False
    return ClientOptions(
        nameservers=cluster.name_server, access_key=key, secret_key=secret, tls=over, call_timeout=PATIENCE_S
    )


async def ask_ours(cluster: Cluster, what: str, who: str, *, tls: bool = False) -> str:
    """Do something with an account; returns the result, or the refusal."""
    try:
        return await _DEEDS[what](sign_in(cluster, who, tls=tls), f"{what} by {who}".encode())
    except ErucaError as error:
        found: BaseException | None = error
        while found is not None and not isinstance(found, RequestRefused):
            found = found.__cause__
        if found is None:
            raise
        return f"{found.code} {tell(found.remark)}"


async def _send(options: ClientOptions, body: bytes) -> str:
    async with Producer(group="producers", options=options, timeout=PATIENCE_S) as producer:
        return _tell((await producer.send(TOPIC, body)).status)


async def _batch(options: ClientOptions, body: bytes) -> str:
    async with Producer(group="producers", options=options, timeout=PATIENCE_S) as producer:
        receipts = await producer.send_batch(TOPIC, [body + b" 1", body + b" 2"])
        return _tell(receipts[0].status)


def _tell(status: SendStatus) -> str:
    return "SEND_OK" if status is SendStatus.STORED else status.name


async def _transaction(options: ClientOptions, body: bytes) -> str:
    async with TransactionalProducer(
        group="producers", options=options, check=lambda message: Decision.ROLLBACK, timeout=PATIENCE_S
    ) as producer:
        receipt = await producer.send_transaction(TOPIC, body, local=lambda receipt: Decision.COMMIT)
        return f"{receipt.decision.name}_MESSAGE"


async def _read(options: ClientOptions, read: Callable[[PullConsumer], Awaitable[str]]) -> str:
    async with PullConsumer(group=GROUP, options=options) as consumer:
        return await read(consumer)


async def _pull(options: ClientOptions, body: bytes) -> str:
    async def read(consumer: PullConsumer) -> str:
        return "FOUND" if (await consumer.pull(QUEUE, 0)).messages else "NO_NEW_MSG"

    return await _read(options, read)


async def _commit(options: ClientOptions, body: bytes) -> str:
    async def read(consumer: PullConsumer) -> str:
        await consumer.commit({QUEUE: 1})
        return "committed"

    return await _read(options, read)


async def _end(options: ClientOptions, body: bytes) -> str:
    async def read(consumer: PullConsumer) -> str:
        return "true" if await consumer.end_offset(QUEUE) >= 0 else "false"

    return await _read(options, read)


_DEEDS: dict[str, Callable[[ClientOptions, bytes], Awaitable[str]]] = {
    "send": _send,
    "batch": _batch,
    "transaction": _transaction,
    "pull": _pull,
    "commit": _commit,
    "end": _end,
}
#: What can be done.
DEEDS = tuple(_DEEDS)

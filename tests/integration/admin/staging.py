"""Dead letters and half messages, made as clients make them: against any broker that speaks the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from eruca._admin.transactiontable import State, Transaction
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.producer import Producer
from eruca._client.produce.sending import Parcel, Sender
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.headers import EndTransactionHeader, SendBackHeader
from eruca._wire.ids import decode_offset_id
from eruca._wire.names import DLQ_PREFIX, MASTER_ID
from eruca._wire.properties import PGROUP, TRAN_MSG, UNIQ_KEY, WAIT, encode_properties
from eruca._wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from eruca.admin import Admin
from tests.patience import PATIENCE_S

Result = TypeVar("Result")

WAIT_SECONDS_MAX = PATIENCE_S
POLL_SECONDS = 0.05
TRANSACTION_GROUP = "stage-payments"


async def wait_until(is_true: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for a condition; that it never holds is an error."""
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while True:
                if await is_true():
                    return
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {WAIT_SECONDS_MAX} s") from None


def stage(nameserver: str, work: Callable[[Admin], Awaitable[Result]]) -> Result:
    """Do something with an admin in its own loop, for tests that have none."""

    async def run() -> Result:
        async with Admin(nameserver) as admin:
            return await work(admin)

    return asyncio.run(run())


async def send(admin: Admin, topic: str, count: int) -> list[Receipt]:
    """Send messages with everything that a sender can set; returns where they are."""
    async with Producer(group="stage-senders", options=admin.options) as producer:
        receipts = [
            await producer.send(
                topic,
                b"body %d" % number,
                tags=f"tag{number % 2}",
                keys=f"key{number}",
                properties={"number": f"{number}"},
            )
            for number in range(count)
        ]
    await wait_until(lambda: _has_route(admin, topic), f"a route of {topic}")
    await wait_for_queues(admin, topic, receipts)
    return receipts


async def wait_for_queues(admin: Admin, topic: str, receipts: Iterable[Receipt]) -> None:
    """Wait until messages are in their queues: Java's broker adds them after it has acknowledged them."""
    ends: dict[tuple[str, int], int] = {}
    for receipt in receipts:
        place = receipt.queue.broker_name, receipt.queue.queue_id
        ends[place] = max(ends.get(place, 0), receipt.offset + 1)

    async def are_there() -> bool:
        rows = (await admin.topics.queues(topic)).items
        return all(any((row.broker, row.queue) == place and row.end >= ends[place] for row in rows) for place in ends)

    await wait_until(are_there, f"messages in the queues of {topic}")


async def _has_stored(admin: Admin, topic: str, count: int) -> bool:
    return sum(row.count for row in (await admin.topics.queues(topic)).items) >= count


async def _has_route(admin: Admin, topic: str) -> bool:
    return await admin.connection.find_route(topic) is not None


async def bury(admin: Admin, group: str, topic: str, count: int) -> list[str]:
    """Send messages and have a group make them dead letters at once; returns their ids."""
    receipts = await send(admin, topic, count)
    masters = await admin.connection.list_masters()
    for receipt in receipts:
        await admin.connection.calls.send_back(
            masters[receipt.queue.broker_name],
            SendBackHeader(
                offset=decode_offset_id(receipt.offset_id).position,
                group=group,
                delay_level=-1,
                origin_message_id=receipt.message_id,
                origin_topic=topic,
            ),
        )
    await wait_until(lambda: _has_route(admin, DLQ_PREFIX + group), f"dead letters of {group}")
    await wait_until(lambda: _has_stored(admin, DLQ_PREFIX + group, count), f"{count} dead letters of {group}")
    return [receipt.message_id for receipt in receipts]


async def prepare(admin: Admin, topic: str, name: str) -> Receipt:
    """Send a half message whose producer then stays silent."""
    route = await admin.connection.routes.get_for_send(topic)
    properties = {UNIQ_KEY: name, WAIT: "true", TRAN_MSG: "true", PGROUP: TRANSACTION_GROUP, "number": "1"}
    parcel = Parcel(topic, b"half " + name.encode(), encode_properties(properties).decode(), name, TRANSACTION_PREPARED)
    return await Sender(admin.connection.session, TRANSACTION_GROUP).send(parcel, route.write_queues[0], 5000)


async def decide(admin: Admin, half: Receipt, *, commit: bool) -> None:
    """Decide a half message as its producer would."""
    by_id = admin.connection.routes.list_brokers()[half.queue.broker_name]
    header = EndTransactionHeader(
        producer_group=TRANSACTION_GROUP,
        half_offset=half.offset,
        position=decode_offset_id(half.offset_id).position,
        decision=TRANSACTION_COMMIT if commit else TRANSACTION_ROLLBACK,
        message_id=half.message_id,
        transaction_id=half.message_id,
    )
    await admin.connection.calls.notify(by_id[MASTER_ID], make_request(RequestCode.END_TRANSACTION, header))


async def find_state(admin: Admin, name: str) -> Transaction | None:
    """What is known of a transaction."""
    found = [row for row in (await admin.transactions.list(frozenset(State))).items if row.message_id == name]
    return found[0] if found else None


async def wait_for_state(admin: Admin, name: str, state: State) -> Transaction:
    """Wait until a transaction is in a state."""
    rows: list[Transaction] = []

    async def is_there() -> bool:
        row = await find_state(admin, name)
        rows[:] = [row] if row is not None else []
        return row is not None and row.state is state

    await wait_until(is_there, f"transaction {name} {state.value}")
    return rows[0]


async def read_bodies(admin: Admin, topic: str) -> list[bytes]:
    """The bodies of all messages of a topic, queue by queue."""
    queues: list[MessageQueue] = await admin.connection.reader.list_queues(topic)
    return [message.body for queue in queues for message in [m async for m in admin.connection.read_queue(queue)]]

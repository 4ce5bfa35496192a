"""Idempotent sends: a message that is sent again because its answer was lost is stored once.

The broker drops duplicates by their marks, as for the idempotent Spark sink (`broker.sending.once`). For each producer,
lane, topic and queue it remembers the highest sequence number, and drops messages that are not above it. So a lane
carries one request at a time: a later one would make the broker drop the retry of an earlier one. A request takes a
lane before its first try and returns it when it is stored or given up on. If a request arrives after the producer gave
up on it, it is dropped, or stored before the next one of its lane.

The mark is the property ERUCA_ONCE. Its value is set once the request has a lane. Until then a placeholder of the same
length reserves its space, so that all size limits hold.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Awaitable
from typing import Any, Final

import msgspec

from eruca._client.produce.choosing import QueueChooser, Selector
from eruca._client.produce.delivery import Delivery
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.sending import Parcel, Sender
from eruca._client.session.session import Session
from eruca._ground.limits import ONCE_LANES_MAX
from eruca._wire.batch import BatchItem, decode_batch, encode_batch
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.frame import Command
from eruca._wire.once import ONCE_GROUP, ONCE_MARK, PRODUCER_PREFIX, drop_mark
from eruca._wire.sysflag import TRANSACTION_MASK
from eruca.errors import ConfigError, ConnectFailed, NetError, SendFailed

_MARKED_CODES: Final = frozenset({int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)})
_SEQUENCE_DIGITS: Final = 16
# The placeholder: every mark has this length.
MARK_SPACE: Final = "-" * len(f"{PRODUCER_PREFIX}{'q' * 22}:0:000:{0:016}")


class OnceSender(Sender):
    """Sends marked messages, and only to brokers that honour marks."""

    def __init__(self, session: Session, group: str) -> None:
        super().__init__(session, group, sent_group=ONCE_GROUP)
        # Addresses of brokers that honour marks.
        self._able: set[str] = set()

    def begin(self, parcel: Parcel, queue: MessageQueue, timeout_ms: float) -> Awaitable[Command]:
        """Send, and return an awaitable of the answer. Raises ConfigError if the broker would store duplicates."""
        if self.find_address(queue) in self._able:
            return super().begin(parcel, queue, timeout_ms)
        return self._ask_and_send(parcel, queue, timeout_ms)

    async def _ask_and_send(self, parcel: Parcel, queue: MessageQueue, timeout_ms: float) -> Command:
        address = self.find_address(queue)
        try:
            is_able = await self._session.calls.drops_duplicates(address, max(1, round(timeout_ms)))
        except NetError as error:
            # Nothing has been sent yet, so another broker may be tried.
            raise ConnectFailed(f"{address} did not report whether it drops duplicates: {error}") from error
        if not is_able:
            raise ConfigError(
                "idempotent=True needs Eruca brokers: only an Eruca broker drops messages it has already stored, and"
                f" {queue.broker_name} at {address} is not one",
                hint="use idempotent=False",
            )
        self._able.add(address)
        return await super().begin(parcel, queue, timeout_ms)


class OnceDelivery(Delivery):
    """Delivers parcels so that each is stored only once, however often it is sent."""

    _stays_where_it_may_be_stored = True

    def __init__(self, session: Session, sender: Sender, chooser: QueueChooser, *others: Any, **settings: Any) -> None:
        super().__init__(session, sender, chooser, *others, **settings)
        # A new name each time the producer starts.
        self._name = PRODUCER_PREFIX + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Lanes are taken from the end and returned there, so that few are used and the broker has few to remember.
        self._lanes = list(range(ONCE_LANES_MAX - 1, -1, -1))
        self._turns = asyncio.Semaphore(ONCE_LANES_MAX)
        self._sequence = 0

    async def deliver(self, parcel: Parcel, choose: Selector | None, timeout_ms: float) -> Receipt:
        """Send a parcel, with retries, until it is stored or the time or the tries are used up."""
        if parcel.code not in _MARKED_CODES or parcel.sys_flag & TRANSACTION_MASK:
            parcel.properties = drop_mark(parcel.properties)
            return await super().deliver(parcel, choose, timeout_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await self._turns.acquire()
        except TimeoutError:
            raise SendFailed(
                f"the message for {parcel.topic} was not sent: {ONCE_LANES_MAX} idempotent sends were under way",
                [],
                hint="use linger, so that messages share requests",
            ) from None
        lane = self._lanes.pop()
        try:
            count = self._mark(parcel, lane)
            receipt = await super().deliver(parcel, choose, max(1.0, (deadline - loop.time()) * 1000))
        finally:
            self._lanes.append(lane)
            self._turns.release()
        if receipt.offset >= 0 and receipt.offset_id.count(",") + 1 != count:
            # Part of the batch had been stored before, so the offset belongs to another message.
            return msgspec.structs.replace(receipt, offset=-1, offset_id="")
        return receipt

    async def send_oneway(self, parcel: Parcel, choose: Selector | None) -> None:
        """Send a parcel without waiting for an answer. It is never retried, so it needs no mark."""
        parcel.properties = drop_mark(parcel.properties)
        await super().send_oneway(parcel, choose)

    def _mark(self, parcel: Parcel, lane: int) -> int:
        """Mark the messages of a parcel, and return how many there are."""
        if not parcel.is_batch:
            parcel.properties = self._replace_mark(parcel.properties, lane)
            return 1
        items = [
            BatchItem(item.flag, item.body, self._replace_mark(item.properties.decode(), lane).encode())
            for item in decode_batch(parcel.body)
        ]
        parcel.body = encode_batch(items)
        return len(items)

    def _replace_mark(self, properties: str, lane: int) -> str:
        mark = f"{ONCE_MARK}{self._name}:0:{lane:03}:{self._sequence:0{_SEQUENCE_DIGITS}}"
        self._sequence += 1
        return f"{drop_mark(properties)}\x02{mark}"

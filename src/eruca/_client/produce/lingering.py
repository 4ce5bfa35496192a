"""Batches that fill up while messages linger: ordinary messages for one queue share a request."""

from __future__ import annotations

import asyncio

import msgspec

from eruca._client.produce.batching import ITEM_BYTES, make_batch
from eruca._client.produce.choosing import Selector
from eruca._client.produce.engine import Engine
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.pending import PendingReceipt
from eruca._client.produce.sending import Parcel
from eruca._ground.limits import SENT_BATCH_MESSAGES_MAX
from eruca._wire.batch import BatchItem
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import RETRY_PREFIX

# What the messages of one batch have in common: the topic, the queue if one was chosen, `wait`, and the timeout.
_Key = tuple[str, MessageQueue | None, bool, int]


class _Entry:
    """One message that lingers."""

    __slots__ = ("future", "parcel")

    def __init__(self, parcel: Parcel, future: PendingReceipt) -> None:
        self.parcel = parcel
        self.future = future


class _Batch:
    """Messages that are sent together."""

    def __init__(self, deadline: float, timer: asyncio.TimerHandle) -> None:
        # The deadline of the first message.
        self.deadline = deadline
        self.timer = timer
        self.entries: list[_Entry] = []
        self.bytes = 0


class Lingering:
    """Holds the messages of one producer for `linger_s`, and sends those that have gathered in one request."""

    def __init__(self, engine: Engine, linger_s: float, bytes_max: int) -> None:
        self._engine = engine
        self._linger_s = linger_s
        self._bytes_max = bytes_max
        self._batches: dict[_Key, _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(
        self, parcel: Parcel, choose: Selector | None, wait: bool, timeout_ms: int
    ) -> asyncio.Future[Receipt] | None:
        """Add a message to a batch and return the future of its receipt; None if it must be sent alone.

        Waits for the route and for room in the window.
        """
        engine = self._engine
        size = _measure(parcel)
        if parcel.sys_flag or size > self._bytes_max or parcel.topic.startswith(RETRY_PREFIX):
            return None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        queue: MessageQueue | None = None
        if choose is not None:
            try:
                queue = await self._find_queue(parcel.topic, choose, deadline)
            except BaseException as error:
                engine.end_span(parcel.operation, None, error)
                raise
            if queue is None:
                return None
        if not engine.window.try_enter(len(parcel.body)):
            await engine.wait_for_room(parcel, max(1, round((deadline - loop.time()) * 1000)))
        future = PendingReceipt(parcel.topic, loop)
        self._put((parcel.topic, queue, wait, timeout_ms), _Entry(parcel, future), size, deadline)
        return future

    async def _find_queue(self, topic: str, choose: Selector, deadline: float) -> MessageQueue | None:
        """Return the queue for a message; None if no queue is writable."""
        route = self._engine.session.routes.peek_for_send(topic)
        if route is None:
            route = await self._engine.require_delivery().find_route(topic, deadline)
        return choose(route.write_queues) if route.write_queues else None

    def _put(self, key: _Key, entry: _Entry, size: int, deadline: float) -> None:
        batch = self._batches.get(key)
        if batch is not None and batch.bytes + size > self._bytes_max:
            self._send(key)
            batch = None
        if batch is None:
            timer = asyncio.get_running_loop().call_later(self._linger_s, self._send, key)
            batch = self._batches[key] = _Batch(deadline, timer)
        batch.entries.append(entry)
        batch.bytes += size
        if len(batch.entries) >= SENT_BATCH_MESSAGES_MAX:
            self._send(key)

    def flush(self) -> None:
        """Send all lingering messages now."""
        for key in list(self._batches):
            self._send(key)

    async def flush_topic(self, topic: str) -> None:
        """Send the lingering messages of a topic, so that a message that is sent alone does not overtake them."""
        keys = [key for key in self._batches if key[0] == topic]
        for key in keys:
            self._send(key)
        if keys:
            await asyncio.sleep(0)  # lets their requests be written

    def _send(self, key: _Key) -> None:
        batch = self._batches.pop(key)
        batch.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._deliver(key, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, key: _Key, batch: _Batch) -> None:
        """Send a batch and pass the result to every sender."""
        engine = self._engine
        entries = []
        for entry in batch.entries:
            if entry.future.cancelled():  # its sender cancelled it
                engine.end_span(entry.parcel.operation, None, asyncio.CancelledError())
            else:
                entries.append(entry)
        found = await self._post(_join(key, entries), key, batch.deadline) if entries else None
        if isinstance(found, Receipt):
            receipts = split_receipt(found, [entry.parcel.message_id for entry in entries])
            for entry, receipt in zip(entries, receipts, strict=True):
                engine.end_span(entry.parcel.operation, receipt, None)
                if not entry.future.done():
                    entry.future.set_result(receipt)
        elif found is not None:
            for entry in entries:
                engine.end_span(entry.parcel.operation, None, found)
                entry.future.fail(found)
        for entry in batch.entries:
            engine.window.leave(len(entry.parcel.body))

    async def _post(self, parcel: Parcel, key: _Key, deadline: float) -> Receipt | BaseException:
        """Send one request; return its receipt, or the error it raised.

        The traceback of an error keeps this frame alive. If the futures were in it, a failed one would never be freed.
        """
        engine, queue = self._engine, key[1]
        choose = None if queue is None else lambda _: queue
        try:
            if engine.delivery is None:
                raise engine.explain_closed()
            left_ms = max(1.0, (deadline - asyncio.get_running_loop().time()) * 1000)
            return engine.show(await engine.delivery.deliver(parcel, choose, left_ms))
        except BaseException as error:
            return error


def _join(key: _Key, entries: list[_Entry]) -> Parcel:
    """Return one parcel with all messages; a single message stays as it is."""
    if len(entries) == 1:
        return entries[0].parcel
    parcels = [entry.parcel for entry in entries]
    items = [(BatchItem(each.flag, each.body, each.properties.encode()), each.message_id) for each in parcels]
    return make_batch(key[0], items, wait=key[2])


def _measure(parcel: Parcel) -> int:
    """Return the size of a message in a batch in bytes; properties with non-ASCII text count at their maximum."""
    properties = parcel.properties
    return ITEM_BYTES + len(parcel.body) + (len(properties) if properties.isascii() else 4 * len(properties))


def split_receipt(receipt: Receipt, message_ids: list[str]) -> list[Receipt]:
    """Return a receipt for each message of a batch; they follow one another in the queue."""
    if len(message_ids) == 1:
        return [receipt]
    offset_ids = receipt.offset_id.split(",")
    if len(offset_ids) != len(message_ids):  # the broker returned an id of the batch, not of its messages
        offset_ids = [receipt.offset_id] * len(message_ids)
    if receipt.offset < 0:  # they had been stored before, at unknown offsets
        return [msgspec.structs.replace(receipt, message_id=message_id) for message_id in message_ids]
    return [
        msgspec.structs.replace(receipt, message_id=message_id, offset_id=offset_id, offset=receipt.offset + number)
        for number, (message_id, offset_id) in enumerate(zip(message_ids, offset_ids, strict=True))
    ]

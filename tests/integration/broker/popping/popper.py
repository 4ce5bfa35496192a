"""A consumer that pops, by remoting, and what it got."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from eruca._broker.app import Broker
from eruca._wire.bodies import BatchAck, BatchAckBody
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.handle import Handle, decode_handle
from eruca._wire.headers import AckMessageHeader, ChangeInvisibleTimeHeader, PopMessageHeader
from eruca._wire.record import Record, decode_records
from tests.integration.broker.peer import Answer, Peer
from tests.integration.broker.replication.members import wait_until

TOPIC = "Orders"
GROUP = "workers"
INVISIBLE_MS = 60_000


@dataclass
class Got:
    """One message."""

    record: Record
    handle: Handle
    # How often it was delivered before, as its record and the answer say.
    before: int = 0

    @property
    def body(self) -> str:
        return self.record.body.decode()


def pop_header(**fields: Any) -> PopMessageHeader:
    """The header of a pop that does not wait."""
    usual: dict[str, Any] = {
        "consumer_group": GROUP,
        "topic": TOPIC,
        "queue_id": -1,
        "max_message_nums": 32,
        "invisible_time": INVISIBLE_MS,
        "poll_time": 0,
        "born_time": 1,
        "init_mode": 0,
    }
    return PopMessageHeader(**usual | fields)


async def try_pop(peer: Peer, **fields: Any) -> Answer:
    """Pop; return the answer, whatever its code."""
    return await peer.ask(RequestCode.POP_MESSAGE, pop_header(**fields))


async def pop(peer: Peer, **fields: Any) -> list[Got]:
    """Pop; return the messages with the handles that a Java client makes of the answer."""
    answer = await try_pop(peer, **fields)
    if answer.code == ResponseCode.POLLING_TIMEOUT:
        return []
    assert answer.code == ResponseCode.SUCCESS, (answer.code, answer.remark)
    return read_answer(peer.broker, answer)


def read_answer(broker: Broker, answer: Answer) -> list[Got]:
    """Make the handles as a Java client does: from the lists in the header."""
    header = answer.header
    starts = {}
    for part in header.start_offset_info.split(";"):
        kind, queue_id, start = part.split(" ")
        starts[int(kind), int(queue_id)] = int(start)
    offsets = {}
    for part in header.message_offset_info.split(";"):
        kind, queue_id, numbers = part.split(" ")
        offsets[int(kind), int(queue_id)] = [int(number) for number in numbers.split(",")]
    counts = {}
    for part in (header.order_count_info or "").split(";"):
        if "%" in part:
            _, place, count = part.split(" ")
            counts[place] = int(count)
    found = []
    for record in decode_records(answer.command.body):
        kind = int(record.topic.startswith("%RETRY%"))
        key = kind, record.queue_id
        assert record.queue_offset in offsets[key]
        handle = Handle(
            starts[key],
            header.pop_time,
            header.invisible_time,
            header.revive_queue_id,
            kind,
            broker.options.name,
            record.queue_id,
            record.queue_offset,
        )
        assert decode_handle(handle.encode_short()) == handle
        before = counts.get(f"qo{record.queue_id}%{record.queue_offset}", record.reconsume_times)
        found.append(Got(record, handle, before))
    assert len(found) == sum(map(len, offsets.values()))
    return found


async def try_ack(peer: Peer, got: Got, **fields: Any) -> Answer:
    """Acknowledge, naming the topic of the record, as a Java client does."""
    usual: dict[str, Any] = {
        "consumer_group": GROUP,
        "topic": got.record.topic,
        "queue_id": got.record.queue_id,
        "extra_info": got.handle.encode_short(),
        "offset": got.record.queue_offset,
    }
    return await peer.ask(RequestCode.ACK_MESSAGE, AckMessageHeader(**usual | fields))


async def ack(peer: Peer, *messages: Got) -> None:
    """Acknowledge messages."""
    for got in messages:
        answer = await try_ack(peer, got)
        assert answer.code == ResponseCode.SUCCESS, (answer.code, answer.remark)


async def ack_batch(peer: Peer, messages: list[Got]) -> Answer:
    """Acknowledge messages of one queue in one request."""
    first = messages[0]
    bits = sum(1 << got.record.queue_offset - first.handle.start for got in messages)
    item = BatchAck(
        group=GROUP,
        topic=TOPIC,
        retry=str(first.handle.kind),
        start_offset=first.handle.start,
        queue_id=first.handle.queue_id,
        revive_queue_id=first.handle.revive_queue,
        pop_time=first.handle.pop_ms,
        invisible_time=first.handle.invisible_ms,
        bits=base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
    )
    body = BatchAckBody(broker_name=first.handle.broker, acks=[item])
    return await peer.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)


async def try_change(peer: Peer, got: Got, invisible_ms: int, **fields: Any) -> Answer:
    """Change the invisible time."""
    usual: dict[str, Any] = {
        "consumer_group": GROUP,
        "topic": got.record.topic,
        "queue_id": got.record.queue_id,
        "extra_info": got.handle.encode_short(),
        "offset": got.record.queue_offset,
        "invisible_time": invisible_ms,
    }
    return await peer.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeHeader(**usual | fields))


async def change(peer: Peer, got: Got, invisible_ms: int, **fields: Any) -> Got:
    """Change the invisible time; return the message with its new handle."""
    answer = await try_change(peer, got, invisible_ms, **fields)
    assert answer.code == ResponseCode.SUCCESS, (answer.code, answer.remark)
    old = got.handle
    start = old.start if old.is_ordered else old.offset
    handle = Handle(
        start,
        answer.header.pop_time,
        answer.header.invisible_time,
        answer.header.revive_queue_id,
        old.kind,
        old.broker,
        old.queue_id,
        old.offset,
    )
    return Got(got.record, handle, got.before)


def bodies(messages: list[Got]) -> list[str]:
    """The texts of messages, sorted."""
    return sorted(got.body for got in messages)


def revive(broker: Broker) -> None:
    """Deliver again what ran out."""
    while broker.popping.redelivery.run_turn():
        pass


async def wait_until_parked(broker: Broker, count: int = 1) -> None:
    """Wait until pops wait for messages."""
    await wait_until(lambda: len(broker.popping.service.waiting) >= count)

"""The remoting requests of popping, as Java's clients of RocketMQ 5 send them.

An answer lists what it delivers by queue, each list in its own field; `kind` is 0, or 1 for the retry topic:

    startOffsetInfo   kind queue start; ...                      the first half of the handles
    msgOffsetInfo     kind queue offset,offset,...; ...
    orderCountInfo    kind queue count; kind qo<queue>%<offset> count; ...       deliveries before, only in order
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from eruca._broker.popping.contract import Outcome, Popped, PopRequest, PopResult, PopStatus
from eruca._broker.popping.service import PopService
from eruca._broker.refusals import refuse
from eruca._ground.limits import POP_WAIT_MS_MAX
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._wire.bodies import BatchAck, BatchAckBody
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.concerns import name_popped_topic
from eruca._wire.handle import NORMAL, ORDERED_QUEUE, RETRY, Handle, decode_handle
from eruca._wire.headers import (
    AckMessageHeader,
    ChangeInvisibleTimeAnswerHeader,
    ChangeInvisibleTimeHeader,
    PopMessageAnswerHeader,
    PopMessageHeader,
)
from eruca.errors import WireError

# `initMode`: a new group begins with the oldest message.
_OLDEST: Final = 0
# Messages that one request acknowledges at most; a bit set may name very many.
ACKS_MAX: Final = 4096
_CODES: Final = {
    Outcome.DONE: ResponseCode.SUCCESS,
    Outcome.GONE: ResponseCode.NO_MESSAGE,
    Outcome.INVALID: ResponseCode.MESSAGE_ILLEGAL,
    Outcome.UNSAFE_DISK: ResponseCode.FLUSH_DISK_TIMEOUT,
    Outcome.UNSAFE_SLAVE: ResponseCode.FLUSH_SLAVE_TIMEOUT,
}


@dataclass(frozen=True, slots=True, eq=False)
class PopHandlers:
    """Handles pops, acknowledgements and changes of the invisible time."""

    _service: PopService

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add(RequestCode.POP_MESSAGE, self.pop)
        table.add(RequestCode.ACK_MESSAGE, self.ack)
        table.add(RequestCode.BATCH_ACK_MESSAGE, self.ack_many)
        table.add(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, self.change)

    async def pop(self, request: Request) -> Reply:
        """Return messages, or wait for some."""
        header: PopMessageHeader = request.header
        wait_ms = min(header.poll_time, POP_WAIT_MS_MAX)
        link = request.link
        result = await self._service.pop(
            PopRequest(
                group=header.consumer_group,
                topic=header.topic,
                queue_id=header.queue_id,
                count=header.max_message_nums,
                invisible_ms=header.invisible_time,
                deadline=asyncio.get_running_loop().time() + wait_ms / 1000 if wait_ms > 0 else None,
                filter_kind=header.exp_type or "TAG",
                filter_text=header.exp or "*",
                fifo=bool(header.order),
                attempt_id=header.attempt_id or "",
                latest=header.init_mode != _OLDEST,
                is_wanted=lambda: link.is_open,
            )
        )
        return _answer_pop(header, result)

    async def ack(self, request: Request) -> Reply:
        """Acknowledge a message."""
        header: AckMessageHeader = request.header
        handle = _read_handle(header)
        topic = name_popped_topic(header.consumer_group, header.topic)
        return _answer(await self._service.ack(header.consumer_group, topic, handle))

    async def ack_many(self, request: Request) -> Reply:
        """Acknowledge the messages of several deliveries."""
        body: BatchAckBody | None = request.body
        if body is None or not body.acks:
            refuse(ResponseCode.MESSAGE_ILLEGAL, "the request acknowledges nothing")
        handles: dict[tuple[str, str], list[Handle]] = {}
        count = 0
        for ack in body.acks:
            found = list(_list_handles(ack, body.broker_name or "", ACKS_MAX - count))
            count += len(found)
            topic = name_popped_topic(ack.group, ack.topic)
            handles.setdefault((ack.group, topic), []).extend(found)
        worst = Outcome.DONE
        for (group, topic), each in handles.items():
            for outcome in await self._service.ack_many(group, topic, each):
                # What is void is not reported: the others of the batch are acknowledged.
                if outcome not in (Outcome.DONE, Outcome.GONE):
                    worst = outcome
        return _answer(worst)

    async def change(self, request: Request) -> Reply:
        """Make a message visible at another time."""
        header: ChangeInvisibleTimeHeader = request.header
        handle = _read_handle(header)
        group = header.consumer_group
        outcome, following = await self._service.change(
            group, name_popped_topic(group, header.topic), handle, header.invisible_time, suspend=bool(header.suspend)
        )
        reply = _answer(outcome)
        if outcome is Outcome.DONE:
            reply.header = ChangeInvisibleTimeAnswerHeader(
                pop_time=following.pop_ms,
                invisible_time=following.invisible_ms,
                revive_queue_id=following.revive_queue,
            )
        return reply


def _answer(outcome: Outcome) -> Reply:
    return Reply(code=_CODES[outcome], remark=None if outcome is Outcome.DONE else outcome.value)


def _read_handle(header: AckMessageHeader | ChangeInvisibleTimeHeader) -> Handle:
    try:
        handle = decode_handle(header.extra_info)
    except WireError as error:
        refuse(ResponseCode.MESSAGE_ILLEGAL, str(error))
    if (handle.queue_id, handle.offset) != (header.queue_id, header.offset):
        refuse(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the handle is of message {handle.offset} in queue {handle.queue_id}, "
            f"not of {header.offset} in {header.queue_id}",
        )
    return handle


def _list_handles(ack: BatchAck, broker: str, count_max: int) -> Iterator[Handle]:
    try:
        bits = int.from_bytes(base64.b64decode(ack.bits, validate=True), "little")
    except (binascii.Error, ValueError) as error:
        refuse(ResponseCode.MESSAGE_ILLEGAL, f"the bit set of a batch cannot be read: {error}")
    if bits.bit_count() > count_max:
        refuse(ResponseCode.MESSAGE_ILLEGAL, f"the request acknowledges more than {ACKS_MAX} messages")
    kind = NORMAL if ack.retry == "0" else RETRY
    offset = ack.start_offset
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        yield Handle(
            ack.start_offset,
            ack.pop_time,
            ack.invisible_time,
            ack.revive_queue_id,
            kind,
            broker,
            ack.queue_id,
            offset + zeros,
        )
        bits &= bits - 1


def _answer_pop(header: PopMessageHeader, result: PopResult) -> Reply:
    queues: dict[tuple[int, int], list[Popped]] = {}
    for popped in result.messages:
        queues.setdefault((popped.handle.kind, popped.queue_id), []).append(popped)
    starts, offsets, counts = [], [], []
    for (kind, queue_id), messages in queues.items():
        starts.append(f"{kind} {queue_id} {messages[0].handle.start}")
        offsets.append(f"{kind} {queue_id} {','.join([str(each.queue_offset) for each in messages])}")
        if header.order:
            counts.append(f"{kind} {queue_id} {max([each.attempt for each in messages]) - 1}")
            counts += [f"{kind} qo{queue_id}%{each.queue_offset} {each.attempt - 1}" for each in messages]
    answer = PopMessageAnswerHeader(
        pop_time=result.pop_ms,
        invisible_time=result.invisible_ms or header.invisible_time,
        revive_queue_id=ORDERED_QUEUE if header.order else 0,
        rest_num=result.rest,
        start_offset_info=";".join(starts) or None,
        message_offset_info=";".join(offsets) or None,
        order_count_info=";".join(counts) or None,
    )
    if result.status is PopStatus.FOUND:
        body = b"".join([each.record for each in result.messages])
        return Reply(answer, body, remark="FOUND")
    full = result.status is PopStatus.POLLING_FULL
    return Reply(
        answer, code=ResponseCode.POLLING_FULL if full else ResponseCode.POLLING_TIMEOUT, remark=result.status.value
    )

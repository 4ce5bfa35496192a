"""Batches: decompressed if needed, checked, and stored as one, or in pieces if they are large."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from eruca._broker.administering.stats import Stats
from eruca._broker.refusals import refuse, refuse_unstored
from eruca._broker.sending.answering import Place, SendAnswers
from eruca._broker.sending.appending import Appending
from eruca._broker.sending.drafting import Drafting, host_of
from eruca._broker.sending.mapping import TIMER_MARK, add_property
from eruca._broker.sending.onceappending import OnceAppending
from eruca._broker.standing import Standing
from eruca._ground.limits import BATCH_WHOLE_BYTES_MAX
from eruca._net.answers import InOrder
from eruca._net.link import Link, ShortAnswer
from eruca._net.turns import find_turns
from eruca._store.encodedbatch import BatchFacts, StoredBatch
from eruca._store.messagestore import MessageStore
from eruca._wire.codes import ResponseCode
from eruca._wire.compression import decompress
from eruca._wire.frame import Command
from eruca._wire.headers import AnySendHeader
from eruca._wire.names import RETRY_PREFIX
from eruca._wire.properties import does_wait
from eruca._wire.sysflag import TRANSACTION_MASK, clear_compression, is_compressed, set_host_bits
from eruca.errors import InvalidName, MessageIllegal, RequestRefused, StoreError, WireError

_SIZE_BYTES = 4


def unpack_batch(body: bytes, sys_flag: int, bytes_max: int) -> tuple[bytes, int]:
    """Return the encoded messages of a batch, and the flags that apply to each of them.

    The C++ client (and so PyPI's `rocketmq`) compresses the body of a batch like that of a message. Java's clients
    never do, and a Java broker stores such a batch as one message that no consumer can read. If the flag is set but the
    body is a plain batch, the flag is about the bodies of the messages. The two cannot be confused: every compression
    format starts with bytes that would announce a first message larger than a frame.
    """
    if not is_compressed(sys_flag) or int.from_bytes(body[:_SIZE_BYTES]) <= len(body):
        return body, sys_flag
    try:
        return decompress(body, sys_flag, bytes_max), clear_compression(sys_flag)
    except WireError as error:
        refuse(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be decompressed: {error}")


@dataclass(frozen=True, slots=True, eq=False)
class BatchSends:
    """Handles batches."""

    _standing: Standing
    _store: MessageStore
    _stats: Stats
    _drafting: Drafting
    _appending: Appending
    _once: OnceAppending
    _answers: SendAnswers

    def take(self, link: Link, command: Command, header: AnySendHeader, *, marked: bool) -> ShortAnswer:
        """Store a batch and respond. `marked`: its messages have marks, and those already stored are dropped."""
        topic = header.topic
        queue_id = self._drafting.choose_queue(header, self._drafting.check_topic(link, header))
        raw = (header.properties or "").encode()
        body, facts = self._unpack(link, command, header, raw)
        waits = does_wait(raw)
        if marked:
            batch = self._once.append_batch(topic, queue_id, body, facts)
            if batch is None:
                return self._answers.answer_dropped(link, command, topic, queue_id, waits)
        else:
            if len(body) > BATCH_WHOLE_BYTES_MAX and TIMER_MARK not in raw:
                pieces = self._appending.cut_batch(topic, body, facts)
                if len(pieces) > 1:
                    return InOrder(self._store_pieces(link, command, header, queue_id, pieces, facts, waits))
            batch = self._appending.append_batch(topic, queue_id, body, facts)
        place = Place(queue_id, batch.offset, batch.ids, batch.end)
        return self._answers.answer(link, command, place, waits, topic)

    def _unpack(self, link: Link, command: Command, header: AnySendHeader, raw: bytes) -> tuple[bytes, BatchFacts]:
        """Return the encoded messages of a batch, and their common fields; refuses what cannot be stored."""
        drafting = self._drafting
        if (
            header.topic.startswith(RETRY_PREFIX)
            or header.sys_flag & TRANSACTION_MASK
            or drafting.find_delay_level(raw, 0)
        ):
            refuse(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry, delay or transactions")
        bytes_max = self._store.options.message_bytes_max
        body, sys_flag = unpack_batch(command.body, header.sys_flag, bytes_max)
        if len(body) > bytes_max:
            # As in Java, the whole size counts: messages without a body would have no limit at all.
            error = MessageIllegal(f"the batch has {len(body)} bytes")
            raise refuse_unstored(error, self._store, self._stats)
        born_host, store_host = host_of(link), self._standing.store_host
        facts = BatchFacts(
            set_host_bits(sys_flag, born_host, store_host),
            header.born_timestamp,
            born_host,
            store_host,
            header.reconsume_times or 0,
            add_property(raw, drafting.cluster_property, drop_wait=False),
        )
        return body, facts

    async def _store_pieces(
        self,
        link: Link,
        command: Command,
        header: AnySendHeader,
        queue_id: int,
        pieces: list[bytes],
        facts: BatchFacts,
        waits: bool,
    ) -> bytes | None:
        """Store a large batch, one piece per loop iteration, so that other clients are served meanwhile."""
        turns = find_turns(asyncio.get_running_loop())
        stored: list[StoredBatch] = []
        try:
            for piece in pieces:
                await turns.wait()
                self._drafting.check_topic(link, header)  # this broker may have lost its mastership
                stored.append(self._appending.append_batch(header.topic, queue_id, piece, facts))
        except (RequestRefused, WireError, StoreError, InvalidName) as error:
            return self._answers.refuse(link, command, error)
        place = Place(queue_id, stored[0].offset, ",".join([each.ids for each in stored]), stored[-1].end)
        return self._answers.answer(link, command, place, waits, header.topic)

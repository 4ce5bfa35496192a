"""Storing an encoded batch: its messages become records in one pass, without being decoded into objects.

The bytes written are those `MessageStore.append_batch` writes. A batch with anything unusual is left to that method.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from eruca._ground.limits import BATCH_MESSAGES_MAX, BATCH_PIECE_BYTES, BATCH_PIECE_MESSAGES, BATCH_RECORDS_BYTES_MAX
from eruca._store.log.commitlog import CommitLog
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._wire.kernel import batches
from eruca._wire.sysflag import HOSTS_V6_MASK, TRANSACTION_MASK
from eruca.errors import BatchTooLarge

_ID_CHARS = 32


class BatchFacts(NamedTuple):
    """What the messages of an encoded batch have in common."""

    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    # Properties added to every message.
    shared: bytes

    @property
    def is_usual(self) -> bool:
        """Can the messages be written in one pass? Properties that end in a zero byte need one more byte in the log."""
        return not self.sys_flag & (HOSTS_V6_MASK | TRANSACTION_MASK) and self.shared[-1:] not in (b"", b"\0")


class StoredBatch(NamedTuple):
    """Where an encoded batch was stored."""

    messages: int
    # The offset of its first message.
    offset: int
    size: int
    # The log position after it.
    end: int
    # The offset ids of its messages, separated by commas.
    ids: str


class BatchSize(NamedTuple):
    """The size of a batch, as `batches.measure_batch` returns it."""

    # -1: not a usual batch.
    messages: int
    records_bytes: int
    bodies_bytes: int
    index_entries_max: int
    # Where its last message starts.
    last_at: int


def check_batch(messages: int, records_bytes: int) -> None:
    """Raise BatchTooLarge for a batch that could not be answered, or whose records are much larger than the request."""
    if messages > BATCH_MESSAGES_MAX:
        raise BatchTooLarge(f"the batch has {messages} messages, at most {BATCH_MESSAGES_MAX} are allowed")
    if records_bytes > BATCH_RECORDS_BYTES_MAX:
        raise BatchTooLarge(
            f"the records of the batch have {records_bytes} bytes, at most {BATCH_RECORDS_BYTES_MAX} are allowed",
            hint="send shorter properties for the whole batch, or fewer messages",
        )


def write_encoded(
    data: bytes, facts: BatchFacts, size: BatchSize, topic: bytes, log: CommitLog, queue: ConsumeQueue, now_ms: int
) -> StoredBatch:
    """Write the records of a measured batch; raises when there is no room, without having written anything."""
    head = batches.make_head(
        queue.queue_id,
        facts.sys_flag,
        facts.born_timestamp,
        facts.born_host,
        now_ms,
        facts.store_host,
        facts.reconsume_times,
    )
    offset, bytes_ = queue.next_offset, size.records_bytes
    ids = bytearray((_ID_CHARS + 1) * size.messages - 1)
    buffer, at, position = log.find_run(bytes_)
    try:
        tail = bytes((len(topic),)) + topic
        batches.write_batch(buffer, at, bytes_, data, head, tail, facts.shared, offset, position, ids)
    except BaseException:
        # Otherwise the next start would find the first records of a refused batch.
        buffer[at : at + bytes_] = bytes(bytes_)
        raise
    log.add_run(bytes_)
    return StoredBatch(size.messages, offset, bytes_, position + bytes_, ids.decode())


def measure_encoded(data: bytes, shared_bytes: int, fixed_bytes: int, properties_max: int) -> BatchSize:
    """How large the records of a batch are."""
    return BatchSize(*batches.measure_batch(data, shared_bytes, fixed_bytes, properties_max))


def cut_encoded(data: bytes) -> list[bytes]:
    """Split a measured batch into its pieces."""
    ends = batches.cut_batch(data, BATCH_PIECE_MESSAGES, BATCH_PIECE_BYTES)
    return [data[start:end] for start, end in pairwise([0, *ends])]

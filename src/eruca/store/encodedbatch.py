"""Storing a batch as it came: its messages become records in one pass of compiled code, never objects.

What is written is what `MessageStore.append_batch` writes; a batch with anything unusual about it is left to that.
"""

from __future__ import annotations

from typing import NamedTuple

from eruca.errors import BatchTooLarge
from eruca.limits import BATCH_MESSAGES_MAX, BATCH_RECORDS_BYTES_MAX
from eruca.store.commitlog import CommitLog
from eruca.store.consumequeue import ENTRY_BYTES, ConsumeQueue
from eruca.store.index import Index
from eruca.wire import hot, hotbatch
from eruca.wire.sysflag import HOSTS_V6_MASK, TRANSACTION_MASK

COMPILED = hot.compiled and hotbatch.compiled
_ID_CHARS = 32


class BatchFacts(NamedTuple):
    """What the messages of an encoded batch have in common."""

    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    # Properties that all of them get.
    shared: bytes

    @property
    def is_usual(self) -> bool:
        """Can such messages be written in one pass? Properties that end in zero need a byte more in the log."""
        return not self.sys_flag & (HOSTS_V6_MASK | TRANSACTION_MASK) and self.shared[-1:] not in (b"", b"\0")


class StoredBatch(NamedTuple):
    """Where an encoded batch was stored."""

    messages: int
    # Of its first message.
    offset: int
    size: int
    # The log position behind it.
    end: int
    # The offset ids of its messages, separated by commas.
    ids: str


class BatchSize(NamedTuple):
    """How large a batch is, as `hotbatch.measure_batch` says."""

    # -1: it is not a usual one.
    messages: int
    records_bytes: int
    bodies_bytes: int
    index_entries_max: int
    # Where its last message lies.
    last_at: int


def check_batch(messages: int, records_bytes: int) -> None:
    """Raise BatchTooLarge for a batch that could not be answered, or that grew too much on its way to the log."""
    if messages > BATCH_MESSAGES_MAX:
        raise BatchTooLarge(f"the batch has {messages} messages, at most {BATCH_MESSAGES_MAX} are allowed")
    if records_bytes > BATCH_RECORDS_BYTES_MAX:
        raise BatchTooLarge(
            f"the records of the batch have {records_bytes} bytes, at most {BATCH_RECORDS_BYTES_MAX} are allowed",
            hint="send shorter properties for the whole batch, or fewer messages",
        )


def write_encoded(
    data: bytes,
    facts: BatchFacts,
    size: BatchSize,
    topic: bytes,
    prefix: int,
    log: CommitLog,
    queue: ConsumeQueue,
    index: Index | None,
    now_ms: int,
) -> StoredBatch | None:
    """Write records and entries of a batch that was measured; None when a file of the index ends in the middle of it.

    Room is made first, which may raise; then nothing has been written.
    """
    file = None
    if index is not None:
        index.reserve(size.index_entries_max)
        file = index.find_run(size.index_entries_max)
        if file is None:
            return None
    queue.reserve(size.messages)
    run = queue.find_run(size.messages)
    # Where a file of the queue ends in the middle of them, they are copied to their places when they are written.
    entries, entries_at = (bytearray(ENTRY_BYTES * size.messages), 0) if run is None else run
    head = hotbatch.make_head(
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
        hotbatch.write_batch(
            buffer, at, bytes_, data, head, tail, facts.shared, offset, position, entries, entries_at, ids
        )
        written = hot.dispatch_batch(
            buffer,
            entries,
            entries_at,
            size.messages,
            position - at,
            prefix,
            None if file is None else file.buffer,
            0 if file is None else file.slots,
            now_ms,
        )
    except BaseException:
        # Or the next start would find the first records of a refused batch.
        buffer[at : at + bytes_] = bytes(bytes_)
        raise
    log.add_run(bytes_)
    if run is None:
        queue.add_entries(entries, position + bytes_)
    else:
        queue.add_run(size.messages, position + bytes_)
    if file is not None and written:
        file.add_run(written)
    return StoredBatch(size.messages, offset, bytes_, position + bytes_, ids.decode())


def measure_encoded(data: bytes, shared_bytes: int, fixed_bytes: int, properties_max: int) -> BatchSize:
    """How large the records of a batch are."""
    return BatchSize(*hotbatch.measure_batch(data, shared_bytes, fixed_bytes, properties_max))

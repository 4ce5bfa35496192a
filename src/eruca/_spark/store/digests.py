"""What consume queues and index keep of records, as columns; computed by the store's dispatch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from eruca._spark.kernel.columns import SPAN
from eruca._spark.parsing import Records, read_int32, read_int64, read_sys_flags
from eruca._store.queues.dispatch import digest_record, wants_entry
from eruca._store.queues.queues import check_key
from eruca._store.queues.removed import RemovedTopics
from eruca._wire.digest import index_prefix
from eruca.errors import InvalidName


def digest_records(
    records: Records, delay_levels_ms: Sequence[int], removed: RemovedTopics | None, names: Collection[str]
) -> dict[str, Any]:
    """Return the digest of each record as Arrow columns: those of tagsCode, keyHashes, hasEntry that are in `names`."""
    whole = memoryview(records.buffer)
    rows = records.spans.reshape(-1, SPAN)[: records.count]
    with_keys, with_entries = "keyHashes" in names, "hasEntry" in names
    codes: list[int] = []
    hashes: list[int] = []
    ends = [0]
    belongs: list[bool] = []
    queues: dict[tuple[bytes, int], tuple[str, int, bool]] = {}
    spans = (rows[:, at].tolist() for at in (2, 3, 4))
    numbers = (read_sys_flags(records), read_int32(records, 12), read_int64(records, 28), read_int64(records, 56, 1))
    for body_end, properties_at, end, flag, queue_id, position, time in zip(
        *spans, *(column.tolist() for column in numbers), strict=True
    ):
        encoded = bytes(whole[body_end + 1 : properties_at - 2])
        known = queues.get((encoded, queue_id))
        if known is None:
            known = queues[encoded, queue_id] = _learn_queue(encoded, queue_id)
        topic, prefix, can_be = known
        properties = bytes(whole[properties_at:end])
        code, found = digest_record(topic, prefix, properties, time, flag, delay_levels_ms, with_keys=with_keys)
        codes.append(code)
        hashes += found
        ends.append(len(hashes))
        if with_entries:
            belongs.append(can_be and wants_entry(removed, topic, queue_id, flag, position))
    made = {
        "tagsCode": pa.array(codes, pa.int64()),
        "keyHashes": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(hashes, pa.int32())),
        "hasEntry": pa.array(belongs, pa.bool_()),
    }
    return {name: column for name, column in made.items() if name in names}


def _learn_queue(encoded: bytes, queue_id: int) -> tuple[str, int, bool]:
    """Return the topic of a queue, its prefix in the index, and whether such a queue is possible."""
    topic = encoded.decode("utf-8", "replace")
    try:
        check_key(topic, queue_id)
    except InvalidName:
        return topic, index_prefix(topic), False
    return topic, index_prefix(topic), True

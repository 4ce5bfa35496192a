"""What consume queues and index keep of records, as columns: tags codes and the hashes of keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from eruca.spark.kernel.columns import SPAN
from eruca.spark.parsing import Records, read_int64, read_sys_flags
from eruca.store.queues.dispatch import find_due_time
from eruca.wire.digest import digest_properties, index_prefix
from eruca.wire.names import SCHEDULE_TOPIC
from eruca.wire.sysflag import TRANSACTION_MASK, TRANSACTION_ROLLBACK


def digest_records(records: Records, delay_levels_ms: list[int], *, with_hashes: bool) -> tuple[Any, Any]:
    """The tags code and the index hashes of each record, as `store.dispatch` has them, in two Arrow columns."""
    whole = memoryview(records.buffer)
    rows = records.spans.reshape(-1, SPAN)[: records.count]
    kinds = (read_sys_flags(records) & TRANSACTION_MASK).tolist()
    codes = np.empty(records.count, np.int64)
    ends = np.empty(records.count + 1, np.int32)
    ends[0] = 0
    hashes: list[int] = []
    topics: dict[bytes, tuple[bool, int]] = {}
    times: list[int] = []
    spans = zip(rows[:, 2].tolist(), rows[:, 3].tolist(), rows[:, 4].tolist(), kinds, strict=True)
    for row, (body_end, properties_at, end, kind) in enumerate(spans):
        encoded = bytes(whole[body_end + 1 : properties_at - 2])
        known = topics.get(encoded)
        if known is None:
            topic = encoded.decode("utf-8", "replace")
            known = topics[encoded] = (topic == SCHEDULE_TOPIC, index_prefix(topic))
        properties = bytes(whole[properties_at:end])
        code, found = digest_properties(properties, known[1], with_hashes and kind != TRANSACTION_ROLLBACK)
        if known[0]:
            times = times or read_int64(records, 56, 1).tolist()
            code = find_due_time(properties, times[row], code, delay_levels_ms)
        codes[row] = code
        hashes += found
        ends[row + 1] = len(hashes)
    return pa.array(codes), pa.ListArray.from_arrays(pa.array(ends), pa.array(hashes, pa.int32()))

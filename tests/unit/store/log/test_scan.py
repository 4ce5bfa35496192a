"""Walking the log past records that look odd."""

from __future__ import annotations

import sys
from typing import Any

from eruca._store.log.chain import Chain
from eruca._store.log.scan import iter_records, scan_log
from eruca._wire.record import Record, encode_record
from tests.unit.store.samples import HOST, ROOT, make_disk

COUNT = 3000
SEGMENT_BYTES = 1 << 20


def make_log() -> tuple[Chain, int]:
    """A segment of records whose properties end in a zero byte, as another writer may leave them, and their end."""
    disk = make_disk()
    chain = Chain(disk, ROOT / "commitlog", SEGMENT_BYTES, durable=True, size_key="size")
    segment = chain.segment_for(0)
    at = 0
    for number in range(COUNT):
        message = Record(
            "orders",
            body=b"b",
            properties=b"k\x01v\0",
            store_timestamp=1,
            born_host=HOST,
            store_host=HOST,
            queue_offset=number,
            position=at,
        )
        data = encode_record(message)
        segment.buffer[at : at + len(data)] = data
        at += len(data)
    return chain, at


def test_many_records_that_end_in_a_zero_byte() -> None:
    assert sys.getrecursionlimit() < COUNT
    chain, end = make_log()
    good = encode_record(
        Record("orders", body=b"last", properties=b"k\x01v", born_host=HOST, store_host=HOST, position=end)
    )
    chain.segments[0].buffer[end : end + len(good)] = good
    scan = scan_log(chain, 0)
    assert (scan.records, scan.end, scan.damage) == (COUNT + 1, end + len(good), [])
    assert sum(1 for _ in iter_records(chain, 0, scan.end)) == COUNT + 1


def test_zeros_at_the_very_end_make_all_of_them_suspicious_and_that_is_found_out_once() -> None:
    chain, _ = make_log()
    looked = 0

    class Counting(bytearray):
        def __getitem__(self, key: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().__getitem__(key)

    chain.segments[0].buffer = Counting(chain.segments[0].buffer)
    scan = scan_log(chain, 0)
    assert scan.end == 0
    assert scan.torn
    assert looked < 100 * COUNT, "the same records were looked at repeatedly"

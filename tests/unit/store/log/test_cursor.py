"""What a cursor takes for a record, when the end of one may have been lost or is still to come."""

from __future__ import annotations

import pytest

from eruca._store.log.cursor import RecordCursor
from eruca._wire.record import BlankView, InvalidView, Record, RecordView, encode_blank, encode_record
from tests.unit.store.samples import HOST

BASE = 4096


def make(position: int, *, properties: bytes = b"k\x01v", body: bytes = b"b") -> bytes:
    message = Record(
        "orders", body=body, properties=properties, born_host=HOST, store_host=HOST, position=BASE + position
    )
    return encode_record(message)


def look(data: bytes, size: int | None = None, *, doubting: bool = True, growing: bool = False) -> type:
    cursor = RecordCursor(
        bytearray(data), len(data) if size is None else size, BASE, doubting=doubting, growing=growing
    )
    return type(cursor.look(0))


def test_a_record_is_a_record_and_the_end_of_a_segment_is_one() -> None:
    record = make(0)
    cursor = RecordCursor(bytearray(record + encode_blank(100) + bytes(92)), len(record) + 100, BASE)
    assert type(cursor.look(0)) is RecordView
    assert type(cursor.look(len(record))) is BlankView
    assert type(cursor.look(3)) is InvalidView


def test_zeros_at_the_end_are_doubted_until_something_good_follows() -> None:
    record = make(0, properties=b"k\x01v\0")
    following = make(len(record))
    assert look(record + bytes(200)) is InvalidView
    assert look(record + following) is RecordView
    assert look(record + encode_blank(100) + bytes(92)) is RecordView
    assert look(record + bytes(200), doubting=False) is RecordView


@pytest.mark.parametrize("known", [0, 7, 8, 20])
def test_where_more_is_to_come_the_first_bytes_of_the_next_record_are_enough(known: int) -> None:
    record = make(0, properties=b"k\x01v\0")
    following = make(len(record))
    assert look(record + following, len(record) + known, growing=True) is RecordView
    lost = InvalidView if known >= 8 else RecordView
    assert look(record + bytes(100), len(record) + known, growing=True) is lost


@pytest.mark.parametrize("growing", [False, True])
def test_a_sector_of_zeros_was_never_written(growing: bool) -> None:
    record = bytearray(make(0, properties=b"k\x01" + b"v" * 2000))
    record[1024:1536] = bytes(512)
    data = bytes(record) + make(len(record))
    assert look(data, growing=growing) is InvalidView
    assert look(data, doubting=False, growing=growing) is RecordView


def test_records_are_found_past_what_is_none() -> None:
    parts = [make(0)]
    parts += [encode_blank(64) + bytes(56)]
    parts += [b"\xee" * 100]
    parts += [make(sum(map(len, parts)), body=b"last")]
    data = b"".join(parts)
    last = len(data) - len(parts[3])
    cursor = RecordCursor(bytearray(data), len(data), BASE, doubting=False)
    assert [at for _, at in cursor.iter_records()] == [0, last]
    assert cursor.find(1) == cursor.find(last) == last
    assert cursor.find(1, last) == cursor.find(last + 1) == -1

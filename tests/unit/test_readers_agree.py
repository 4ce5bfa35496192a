"""Every reader of records takes the same bytes for a record: those of a Java broker, odd ones, damaged ones.

What a valid record is stands in `tests.readable`, and for the readers in `wire.kernel.record`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eruca._store.log.cursor import RecordCursor
from eruca._wire.record import Record, RecordView, decode_readable, inspect_record
from tests import readable
from tests.kernels import load_twins

BASE, QUEUE_ID, OFFSET, TOPIC = 1 << 40, 3, 77, "orders"
V6 = bytes(range(20))
Change = Callable[[bytearray], None]


def make(**fields: Any) -> bytes:
    """A record at the position BASE."""
    given = {"body": b"body", "properties": b"KEYS\x01k\x02TAGS\x01a", "topic": TOPIC, **fields}
    return readable.pack_record(Record(queue_id=QUEUE_ID, queue_offset=OFFSET, position=BASE, **given))


def put(at: int, form: str, value: int) -> Change:
    """Write a number over a record."""
    return lambda record: struct.pack_into(form, record, at, value)


def resize(difference: int) -> Change:
    """Let a record claim another size."""
    return lambda record: struct.pack_into(">i", record, 0, len(record) + difference)


def zero(begin: int, end: int) -> Change:
    """Leave bytes as if they had never been written."""

    def change(record: bytearray) -> None:
        record[begin:end] = bytes(len(record[begin:end]))

    return change


def damage(change: Change, **fields: Any) -> bytes:
    """A record with something wrong."""
    record = bytearray(make(**fields))
    change(record)
    return bytes(record)


EMPTY = {"body": b"", "topic": "", "properties": b""}
LONG = {"properties": b"p" * 1200}
# Where parts of an ordinary record begin.
BODY_SIZE, TOPIC_SIZE, PROPERTIES_SIZE = 84, 92, 99
CASES = {
    "ordinary": make(),
    "without properties": make(properties=b""),
    "without body": make(body=b""),
    "without topic": make(topic=""),
    "with nothing": make(**EMPTY),
    "longest topic": make(topic="t" * 255),
    "most properties of Java": make(properties=b"p" * 32767),
    "most properties": make(properties=b"p" * 65535),
    "sender with IPv6": make(sys_flag=0x10, born_host=V6),
    "broker with IPv6": make(sys_flag=0x20, store_host=V6),
    "both with IPv6": make(sys_flag=0x30, born_host=V6, store_host=V6),
    "both with IPv6 and nothing": make(sys_flag=0x30, born_host=V6, store_host=V6, **EMPTY),
    "IPv6 without room": damage(put(36, ">i", 0x30), **EMPTY),
    "IPv6 that was not meant": damage(put(36, ">i", 0x10)),
    "prepared": make(sys_flag=0x4),
    "rolled back": make(sys_flag=0xC),
    "all bits of sysFlag but hosts": make(sys_flag=-1 & ~0x30),
    "ends in a zero": make(properties=b"KEYS\x01k\x00"),
    "topic ends in a zero, no properties": make(topic="order\x00", properties=b""),
    "zero at the begin of a sector": damage(zero(512, 513), **LONG),
    "zero behind the begin of a sector": damage(zero(513, 514), **LONG),
    "lost sector": damage(zero(512, 1024), **LONG),
    "lost end": damage(zero(1024, 2000), **LONG),
    "zeros in the body": make(body=bytes(2000)),
    "wrong CRC": damage(put(8, ">I", 1)),
    "CRC with its top bit": damage(put(8, ">B", 0x80)),
    "wrong CRC of no body": damage(put(8, ">I", 1), body=b""),
    "other position": damage(put(28, ">q", BASE + 1)),
    "negative position": damage(put(28, ">q", -1)),
    "magic of a blank": damage(put(4, ">I", 0xCBD43194)),
    "magic of 5.x": damage(put(4, ">I", 0xDAA320AB)),
    "size 0": damage(put(0, ">i", 0)),
    "size 90": damage(put(0, ">i", 90)),
    "negative size": damage(put(0, ">i", -1)),
    "size with its top bit": damage(put(0, ">B", 0x80)),
    "size too small": damage(resize(-1)),
    "size too large": damage(resize(1)),
    "negative body": damage(put(BODY_SIZE, ">i", -1)),
    "body with its top bit": damage(put(BODY_SIZE, ">B", 0x80)),
    "body too large": damage(put(BODY_SIZE, ">i", 1000)),
    "body up to the end": damage(put(BODY_SIZE, ">i", 24)),
    "topic too large": damage(put(TOPIC_SIZE, ">B", 255)),
    "topic shorter": damage(put(TOPIC_SIZE, ">B", 3)),
    "fewer properties": damage(put(PROPERTIES_SIZE, ">H", 3)),
    "more properties": damage(put(PROPERTIES_SIZE, ">H", 300)),
    "topic that is not text": damage(put(TOPIC_SIZE + 1, ">B", 0xFF)),
    "cut": make()[:-1],
    "only a head": make()[:88],
    "zeros": bytes(200),
    "nothing": b"",
}
ROOMS = {"reading": "_wire", "entries": "_store", "columns": "_spark"}
TWINS = {
    kind: {name: load_twins(f"eruca.{room}.kernel.{name}")[kind] for name, room in ROOMS.items()}
    for kind in load_twins("eruca._wire.kernel.reading")
}
each_case = pytest.mark.parametrize("record", CASES.values(), ids=CASES.keys())
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())


@each_twin
@each_case
def test_all_readers_give_the_same_answer(twin: dict[str, Any], record: bytes) -> None:
    reading, entries, columns = twin["reading"], twin["entries"], twin["columns"]
    # Something lies behind the record, which must not be read.
    data, end = record + b"\xee" * 50, len(record)
    shaped = readable.read_record(data, 0, end, check_crc=False, position=None)
    placed = readable.read_record(data, 0, end, check_crc=False, position=BASE)
    sound = readable.read_record(data, 0, end, check_crc=True, position=BASE)
    is_sure = placed is not None and not readable.may_be_cut(data, 0, placed)
    for expected, check_crc, position in ((shaped, False, None), (placed, False, BASE), (sound, True, BASE)):
        view = inspect_record(data, 0, end, check_crc, position)
        assert (type(view) is RecordView) is (expected is not None)
        found = reading.inspect_record(data, 0, end, check_crc, position or 0, position is None, RecordView)
        assert (type(found) is RecordView) is (expected is not None)
    assert reading.skip_records(data, 0, end, BASE, False)[1] == is_sure
    assert reading.skip_records(data, 0, end, BASE, True)[1] == (is_sure and sound is not None)
    assert len(reading.read_records(data, 0, end, BASE, 2)) == is_sure
    assert reading.read_records(data, 0, end, BASE, 2, True) == readable.read_facts(data, 0, end, BASE, 2)
    message = readable.unpack_record(record, 0, check_crc=False)
    assert reading.decode_records(record, 0, Record, False, 1)[0] == ([] if message is None else [message])
    spans = np.zeros(5, np.int64)
    assert columns.find_records(data, 0, end, BASE, spans, 1)[0] == is_sure
    assert columns.find_records(data, 0, end, -1, spans, 1)[0] == (shaped is not None)
    if shaped is not None:
        assert spans.tolist() == [0, shaped.body_at, shaped.body_end, shaped.properties_at, shaped.size]
    topic = placed.topic if placed is not None else TOPIC.encode()
    is_whole = placed is not None and placed.size == len(record) and bool(topic)
    assert entries.is_message(record, BASE, QUEUE_ID, OFFSET, topic) is is_whole


@each_case
def test_a_closer_look_finds_no_lost_end_where_the_quick_one_is_sure(record: bytes) -> None:
    view = inspect_record(record, 0, len(record), False, None)
    shaped = readable.read_record(record, 0, len(record), check_crc=False, position=None)
    assert (type(view) is RecordView) is (shaped is not None)
    if type(view) is RecordView and shaped is not None and not readable.may_be_cut(record, 0, shaped):
        assert not RecordCursor(bytearray(record), len(record), BASE).is_cut_short(view)


@each_case
def test_a_consumer_steps_over_what_it_cannot_read(record: bytes) -> None:
    # A byte in between, or the next record would be the end of one that was cut.
    data = record + b"\xee" + make(body=b"good")
    messages, damaged = decode_readable(data)
    expected = readable.unpack_record(data, 0, check_crc=True)
    assert [message.body for message in messages] == ([] if expected is None else [expected.body]) + [b"good"]
    assert bool(damaged) is (expected is None or expected.size <= len(record))

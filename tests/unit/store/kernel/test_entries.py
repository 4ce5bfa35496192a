"""Entries of a consume queue and the records they point at, compiled and plain."""

from __future__ import annotations

import struct
from functools import cache
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.record import Record, RecordView, encode_record, inspect_record
from tests.kernels import load_twins

TWINS = load_twins("eruca._store.kernel.entries")
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())
QUEUE_ID, FIRST_OFFSET, TOPIC = 3, 40, b"orders"
_LOG_START = 2**40


@cache
def make_log() -> tuple[bytes, list[tuple[int, int]]]:
    """A piece of a log with records of one queue, and where they lie."""
    data, places = b"", []
    for number in range(6):
        hosts = bytes(range(20 if number % 2 else 8))
        message = Record(
            "orders",
            QUEUE_ID,
            body=b"b" * (30 * number),
            properties=b"k\x01v",
            sys_flag=0x30 if number % 2 else 0,
            born_host=hosts,
            store_host=hosts,
            queue_offset=FIRST_OFFSET + number,
            position=_LOG_START + len(data),
        )
        record = encode_record(message)
        places.append((message.position, len(record)))
        data += record
    return data, places


def count_plainly(entries: list[tuple[int, int]], log: bytes, end: int, count_max: int, bytes_max: int) -> list[bytes]:
    """The readable statement."""
    found: list[bytes] = []
    for number, (position, size) in enumerate(entries[:count_max]):
        at = position - _LOG_START
        if not (size > 0 and at >= 0 and position + size <= min(end, _LOG_START + len(log))):
            break
        if found and sum(map(len, found)) + size > bytes_max:
            break
        record = inspect_record(log, at, at + size, False, position)
        if type(record) is not RecordView or record.size != size or record.topic != TOPIC:
            break
        if (record.queue_id, record.queue_offset) != (QUEUE_ID, FIRST_OFFSET + number):
            break
        found.append(log[at : at + size])
    return found


@each_twin
@given(
    wrong=st.dictionaries(st.integers(0, 5), st.tuples(st.integers(-200, 200), st.integers(-100, 100)), max_size=2),
    flips=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([0, 3, 5, 7, 15, 20, 27, 30, 35]), st.integers(0, 7)), max_size=2
    ),
    end=st.integers(-5, 3000),
    count_max=st.integers(0, 8),
    bytes_max=st.integers(-1, 1200),
)
def test_counting_and_gathering_messages(
    twin: ModuleType,
    wrong: dict[int, tuple[int, int]],
    flips: list[tuple[int, int, int]],
    end: int,
    count_max: int,
    bytes_max: int,
) -> None:
    log, places = make_log()
    changed = bytearray(log)
    for number, byte, bit in flips:
        changed[places[number][0] - _LOG_START + byte] ^= 1 << bit
    entries = [(at + wrong.get(n, (0, 0))[0], size + wrong.get(n, (0, 0))[1]) for n, (at, size) in enumerate(places)]
    raw = b"".join(struct.pack(">qiq", position, size, 1) for position, size in entries)
    wanted = count_plainly(entries, bytes(changed), _LOG_START + end, count_max, bytes_max)
    count, size = twin.count_messages(
        raw, bytes(changed), _LOG_START, _LOG_START + end, count_max, bytes_max, QUEUE_ID, FIRST_OFFSET, TOPIC
    )
    assert (count, size) == (len(wanted), sum(map(len, wanted)))
    joined = twin.gather_records(raw, bytes(changed), _LOG_START, count, size)
    assert bytes(joined) == b"".join(wanted)
    for number, record in enumerate(wanted):
        assert twin.is_message(record, places[number][0], QUEUE_ID, FIRST_OFFSET + number, TOPIC)
        assert not twin.is_message(record, places[number][0], QUEUE_ID, FIRST_OFFSET + number, b"Orders")
        assert not twin.is_message(record, places[number][0], QUEUE_ID, FIRST_OFFSET + number + 1, TOPIC)


@each_twin
@given(
    entries=st.lists(
        st.tuples(st.integers(-1, 90), st.sampled_from([-1, 0, 1, 5, 20, 0x7FFFFFFF])), min_size=1, max_size=8
    ),
    log_end=st.integers(0, 120),
)
def test_finding_disorder_in_a_queue(twin: ModuleType, entries: list[tuple[int, int]], log_end: int) -> None:
    raw = b"".join(struct.pack(">qiq", position, size, 1) for position, size in entries)
    last, wanted = (0, 0), 0
    for position, size in entries:
        if position < 0 or size <= 0:
            break
        if size != 0x7FFFFFFF:
            if (position < sum(last) and (position, size) != last) or position + size > log_end:
                break
            last = (position, size)
        wanted += 1
    assert twin.find_disorder(raw, len(raw), 0, 0, log_end) == (wanted * 20, *last)

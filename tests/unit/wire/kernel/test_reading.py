"""Compiled and plain kernels read and write records alike, and as `record` does."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.record import (
    Record,
    RecordView,
    encode_blank,
    encode_record,
)
from eruca._wire.sysflag import BORN_HOST_V6, STORE_HOST_V6
from eruca.errors import WireError
from tests.kernels import load_twins
from tests.readable import may_be_cut, pack_record, read_facts, read_record, unpack_record

TWINS = load_twins("eruca._wire.kernel.reading")
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())
WRITING_TWINS = load_twins("eruca._wire.kernel.writing")
each_writing_twin = pytest.mark.parametrize("twin", WRITING_TWINS.values(), ids=WRITING_TWINS.keys())
V4 = st.binary(min_size=8, max_size=8)
V6 = st.binary(min_size=20, max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def draw_messages(draw: st.DrawFn) -> list[Record]:
    """Messages with every kind of host, sign and length."""
    messages = []
    for _ in range(draw(st.integers(0, 5))):
        flag = draw(INT32) & ~(BORN_HOST_V6 | STORE_HOST_V6)
        born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
        flag |= (BORN_HOST_V6 if born_v6 else 0) | (STORE_HOST_V6 if store_v6 else 0)
        messages.append(
            Record(
                draw(st.text(alphabet="abcé", max_size=20)),
                queue_id=draw(INT32),
                body=draw(st.binary(max_size=40)),
                properties=draw(st.binary(max_size=40) | st.just(b"p" * 1200)),
                sys_flag=flag,
                born_host=draw(V6 if born_v6 else V4),
                store_host=draw(V6 if store_v6 else V4),
                store_timestamp=draw(INT64),
                queue_offset=draw(INT64),
            )
        )
    return messages


@st.composite
def draw_logs(draw: st.DrawFn) -> tuple[bytes, int, int, int]:
    """A stretch of log with perhaps some damage: its bytes, where records begin, where they end, its position."""
    base = draw(st.integers(0, 2**40))
    lead = draw(st.integers(0, 10))
    data = bytearray(b"\xee" * lead)
    for message in draw(draw_messages()):
        message.position = base + len(data)
        data += encode_record(message)
    end = len(data)
    data += draw(st.sampled_from([b"", bytes(200), encode_blank(100) + bytes(92), b"\xff" * 150]))
    for _ in range(draw(st.integers(0, 2))):
        if data:
            at = draw(st.integers(0, len(data) - 1))
            data[at] ^= 1 << draw(st.integers(0, 7))
    end = draw(st.sampled_from([end, len(data), max(0, end - 1), min(lead, len(data))]))
    return bytes(data), lead, end, base


def skip(data: bytes, at: int, end: int, base: int, check_crc: bool) -> tuple[int, int, int, int]:
    """What `skip_records` does."""
    count = first = last = 0
    while True:
        record = read_record(data, at, end, check_crc=check_crc, position=base + at)
        if record is None or may_be_cut(data, at, record):
            return at, count, first, last
        last = record.store_time
        first = last if count == 0 else first
        count += 1
        at += record.size


@each_twin
@given(log=draw_logs(), check_crc=st.booleans())
def test_records_are_skipped(twin: Any, log: tuple[bytes, int, int, int], check_crc: bool) -> None:
    data, at, end, base = log
    assert twin.skip_records(data, at, end, base, check_crc) == skip(data, at, end, base, check_crc)


@each_twin
@given(log=draw_logs(), count_max=st.integers(0, 6))
def test_records_are_read(twin: Any, log: tuple[bytes, int, int, int], count_max: int) -> None:
    data, at, end, base = log
    expected = read_facts(data, at, end, base, count_max)
    assert twin.read_records(data, at, end, base, count_max, True) == expected
    sure = skip(data, at, end, base, False)[1]
    assert twin.read_records(data, at, end, base, count_max) == expected[:sure]


@each_twin
@given(log=draw_logs(), check_crc=st.booleans(), moved=st.sampled_from([None, 0, 0, 1, -(2**62)]))
def test_records_are_inspected(twin: Any, log: tuple[bytes, int, int, int], check_crc: bool, moved: int | None) -> None:
    data, at, end, base = log
    position = None if moved is None else base + at + moved
    expected = read_record(data, at, end, check_crc=check_crc, position=position)
    found = twin.inspect_record(data, at, end, check_crc, position or 0, position is None, RecordView)
    if expected is None:
        assert found in range(1, 8)
    else:
        view = expected._replace(properties=b"")
        assert (found.size, found.topic, found.queue_id, found.queue_offset, found.position, found.sys_flag) == view[:6]
        assert (found.store_timestamp, found.body_at, found.body_end, found.properties_at) == view[6:10]
        assert found.properties_end == at + found.size


@each_twin
@given(log=draw_logs(), check_crc=st.booleans())
def test_records_are_decoded_alike(twin: Any, log: tuple[bytes, int, int, int], check_crc: bool) -> None:
    data, at, end, _ = log
    answer = data[at:end]
    expected: list[Record] = []
    stop = 0
    while stop < len(answer):
        message = unpack_record(answer, stop, check_crc=check_crc)
        if message is None:
            break
        expected.append(message)
        stop += message.size
    messages, reached, problem = twin.decode_records(answer, 0, Record, check_crc, 100)
    assert (messages, reached, problem == 0) == (expected, stop, stop == len(answer))
    for count in range(len(expected)):
        assert twin.decode_records(answer, 0, Record, check_crc, count)[0] == expected[:count]


@each_twin
@given(data=st.binary(max_size=300), at=st.integers(0, 300), base=INT64.filter(lambda n: abs(n) < 2**62))
def test_noise_is_no_record(twin: Any, data: bytes, at: int, base: int) -> None:
    """Bytes beyond the buffer do not count either, whatever end the caller passes."""
    for end in (len(data), len(data) + 500):
        assert twin.skip_records(data, min(at, len(data)), end, base, True)[1] == 0
        assert twin.read_records(data, min(at, len(data)), end, base, 9) == []


@each_twin
def test_an_end_behind_the_buffer_is_not_read(twin: Any) -> None:
    record = encode_record(Record("t", body=b"b", properties=b"p"))
    torn = record[:-1]
    assert twin.skip_records(torn, 0, len(record), 0, True)[1] == 0
    assert twin.read_records(torn, 0, len(record), 0, 1) == []
    assert twin.skip_records(record, 0, len(record) + 100, 0, True)[:2] == (len(record), 1)


@each_twin
def test_a_closed_mapping_is_an_error_and_not_a_crash(twin: Any) -> None:
    mapped = mmap.mmap(-1, 4096)
    mapped.close()
    with pytest.raises(ValueError, match="closed"):
        twin.skip_records(mapped, 0, 4096, 0, True)
    with suppress(ValueError):
        assert twin.read_records(mapped, 0, 4096, 0, 1) == []


def write_with(twin: Any, buffer: bytearray | mmap.mmap, at: int, message: Record, size: int) -> None:
    """Hand a message to a twin as `record.write_record` does."""
    twin.write_record(
        buffer, at, size, message.queue_id, message.flag, message.queue_offset, message.position, message.sys_flag,
        message.born_timestamp, message.born_host, message.store_timestamp, message.store_host,
        message.reconsume_times, message.prepared_position, message.body, message.topic.encode(), message.properties,
    )  # fmt: skip


@each_writing_twin
@given(messages=draw_messages(), numbers=st.tuples(INT32, INT64, INT32, INT64, INT64), at=st.integers(0, 9))
def test_records_are_written_alike(
    twin: Any, messages: list[Record], numbers: tuple[int, int, int, int, int], at: int
) -> None:
    for message in messages:
        message.flag, message.born_timestamp, message.reconsume_times = numbers[:3]
        message.prepared_position, message.position = numbers[3:]
        expected = pack_record(message)
        assert encode_record(message) == expected
        around = bytearray(b"\xee" * (at + len(expected) + 3))
        write_with(twin, around, at, message, len(expected))
        assert around == b"\xee" * at + expected + b"\xee" * 3


@each_writing_twin
@pytest.mark.parametrize(
    ("at", "size", "message"),
    [
        (0, 95, Record("t", body=b"b", properties=b"p")),  # a byte more than it has
        (0, 93, Record("t", body=b"b", properties=b"p")),
        (-1, 94, Record("t", body=b"b", properties=b"p")),
        (7, 94, Record("t", body=b"b", properties=b"p")),  # runs out of the buffer
        (2**62, 94, Record("t", body=b"b", properties=b"p")),
        (0, 94, Record("t", body=b"b", properties=b"p", born_host=b"short")),
        (0, 94, Record("t", body=b"b", properties=b"p", store_host=b"s" * 20)),
        (0, 92 + 128, Record("t" * 128, body=b"b")),
        (0, 92 + 2**15, Record("t", properties=b"p" * 2**15)),
    ],
)
def test_a_record_that_does_not_fit_is_an_error_and_not_a_crash(twin: Any, at: int, size: int, message: Record) -> None:
    buffer = bytearray(100)
    with pytest.raises((ValueError, WireError), match=r"record|hosts"):
        write_with(twin, buffer, at, message, size)
    assert buffer == bytes(100)


@each_writing_twin
def test_a_record_cannot_be_written_to_a_closed_mapping(twin: Any) -> None:
    mapped = mmap.mmap(-1, 4096)
    mapped.close()
    with pytest.raises(ValueError, match="closed"):
        write_with(twin, mapped, 0, Record("t", body=b"b", properties=b"p"), 94)

"""The record of a message: known bytes, round trips, and what a scan makes of damage."""

from __future__ import annotations

import mmap
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire import record
from eruca._wire.compression import compress
from eruca._wire.host import pack_host
from eruca._wire.record import (
    BlankView,
    InvalidView,
    Record,
    RecordView,
    body_crc,
    decode_record,
    decode_records,
    encode_blank,
    encode_record,
    find_record,
    inspect_record,
    record_size,
    user_body,
)
from eruca._wire.sysflag import COMPRESSION_LZ4, COMPRESSION_ZLIB, set_compression, set_host_bits
from eruca.errors import WireError

# Captured from the Java broker (protocol digest, golden samples).
GOLDEN_PROPERTIES = (
    b"a\x010\x02KEYS\x01k0 k2\x02UNIQ_KEY\x017F00000115625FFD2B274996EF140000"
    b"\x02CLUSTER\x01DefaultCluster\x02TAGS\x01TagA"
)
GOLDEN_RECORD = (
    bytes.fromhex(
        "000000c0 daa320a7 7036e992 00000000 00000000 0000000000000000 0000000000000000 00000000 000001a1ddfed716"
        "7f000001 0000cf84 000001a1ddfed8a4 7f000001 00002a9f 00000000 0000000000000000 00000006 68656c6c6f30 06"
        "546f70696341 0059"
    )
    + GOLDEN_PROPERTIES
)

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
topics = st.text(st.characters(exclude_categories=["Cs"]), max_size=31) | st.just("t" * 127)


@st.composite
def build_messages(draw: st.DrawFn) -> Record:
    body = draw(st.binary(max_size=200))
    topic = draw(topics)
    properties = draw(st.binary(max_size=200))
    born_host = draw(hosts)
    store_host = draw(hosts)
    sys_flag = set_host_bits(draw(st.integers(0, 0x7FF) | int32), born_host, store_host)
    return Record(
        topic=topic,
        queue_id=draw(int32),
        flag=draw(int32),
        body=body,
        properties=properties,
        sys_flag=sys_flag,
        born_timestamp=draw(int64),
        born_host=born_host,
        store_timestamp=draw(int64),
        store_host=store_host,
        reconsume_times=draw(int32),
        prepared_position=draw(int64),
        queue_offset=draw(int64),
        position=draw(int64),
        body_crc=zlib.crc32(body) & 0x7FFFFFFF,
        size=record_size(len(body), len(topic.encode()), len(properties), sys_flag),
    )


def inspect_reason(data: bytes, at: int = 0, position: int | None = None) -> str:
    view = inspect_record(data, at, len(data), True, position)
    assert type(view) is InvalidView
    return view.reason


def patch(data: bytes, at: int, value: int, size: int = 4) -> bytes:
    return data[:at] + (value & (1 << 8 * size) - 1).to_bytes(size, "big") + data[at + size :]


def test_the_captured_record() -> None:
    message = decode_record(GOLDEN_RECORD)
    assert message == Record(
        topic="TopicA",
        body=b"hello0",
        properties=GOLDEN_PROPERTIES,
        born_timestamp=0x1A1DDFED716,
        born_host=pack_host("127.0.0.1", 53124),
        store_timestamp=0x1A1DDFED8A4,
        store_host=pack_host("127.0.0.1", 10911),
        body_crc=0x7036E992,
        size=192,
    )
    assert encode_record(message) == GOLDEN_RECORD
    assert body_crc(b"hello0") == 0x7036E992
    assert record_size(6, 6, 89, 0) == 192
    assert message.read_properties()["CLUSTER"] == "DefaultCluster"
    assert message.get_property("TAGS") == "TagA"
    assert message.get_property("DELAY") is None


def test_fixed_sizes() -> None:
    assert [record_size(0, 0, 0, bits) for bits in (0, 16, 32, 48)] == [91, 103, 103, 115]
    assert body_crc(b"") == 0


@given(build_messages())
def test_records_come_back(message: Record) -> None:
    data = encode_record(message)
    assert len(data) == message.size
    assert decode_record(data) == message
    assert encode_record(decode_record(data)) == data


@given(st.lists(build_messages(), max_size=4))
def test_rows_of_records_come_back(messages: list[Record]) -> None:
    assert decode_records(b"".join(map(encode_record, messages))) == messages


@given(build_messages(), st.binary(max_size=10))
def test_all_kinds_of_buffers_give_the_same_view(message: Record, before: bytes) -> None:
    data = encode_record(message)
    whole = before + data
    at, end = len(before), len(whole)
    view = inspect_record(whole, at, end, True, message.position)
    assert type(view) is RecordView
    assert view.topic == message.topic.encode()
    assert (view.queue_id, view.queue_offset, view.sys_flag) == (
        message.queue_id,
        message.queue_offset,
        message.sys_flag,
    )
    assert (view.store_timestamp, view.prepared_position) == (message.store_timestamp, message.prepared_position)
    assert (view.size, view.position) == (message.size, message.position)
    assert whole[view.body_at : view.body_end] == message.body
    assert whole[view.properties_at : view.properties_end] == message.properties
    assert inspect_record(bytearray(whole), at, end, True, message.position) == view
    assert inspect_record(memoryview(whole), at, end, True, message.position) == view
    with mmap.mmap(-1, end) as mapped:
        mapped[:] = whole
        assert inspect_record(mapped, at, end, True, message.position) == view
        assert decode_record(mapped, at) == message


@given(st.binary(max_size=200), st.integers(0, 200), st.booleans())
def test_arbitrary_bytes_never_raise(data: bytes, at: int, check_crc: bool) -> None:
    at = min(at, len(data))
    view = inspect_record(data, at, len(data), check_crc, 0)
    assert isinstance(view, InvalidView) or view.size <= len(data) - at


@given(build_messages(), st.data())
def test_mutated_records_never_raise_and_never_reach_past_the_end(message: Record, data: st.DataObject) -> None:
    raw = bytearray(encode_record(message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(raw)))
    # The buffer ends at `end`, so a read past it would raise.
    view = inspect_record(bytes(raw[:end]), 0, end, data.draw(st.booleans()))
    if type(view) is RecordView:
        assert 91 <= view.size <= end
        assert view.body_at <= view.body_end < view.properties_at <= view.properties_end == view.size


@given(build_messages(), st.data())
def test_a_cut_record_is_never_valid(message: Record, data: st.DataObject) -> None:
    raw = encode_record(message)
    end = data.draw(st.integers(0, len(raw) - 1))
    assert type(inspect_record(raw, 0, end)) is InvalidView
    with pytest.raises(WireError, match="no record at byte 0"):
        decode_record(raw[:end])


def test_reasons() -> None:
    data = GOLDEN_RECORD
    assert "magic 0x12345678 is illegal" in inspect_reason(patch(data, 4, 0x12345678))
    assert "RocketMQ 5.x" in inspect_reason(patch(data, 4, 0xDAA320AB))
    assert "smaller than its fixed fields" in inspect_reason(patch(data, 0, 90))
    assert "smaller than its fixed fields" in inspect_reason(patch(data, 0, -1))
    assert "runs past the end" in inspect_reason(patch(data, 0, 193))
    assert "runs past the end" in inspect_reason(patch(data, 0, 0x7FFFFFFF))
    assert "do not add up" in inspect_reason(patch(data, 0, 191))
    assert "body of -1 bytes" in inspect_reason(patch(data, 84, -1))
    assert "body of 2147483647 bytes" in inspect_reason(patch(data, 84, 0x7FFFFFFF))
    assert "topic of 200 bytes" in inspect_reason(patch(data, 94, 200, 1))
    assert "topic of 97 bytes" in inspect_reason(patch(data, 94, 97, 1))
    assert "do not add up" in inspect_reason(patch(data, 101, 0x58, 2))
    assert "CRC mismatch" in inspect_reason(patch(data, 88, 0))
    assert "CRC mismatch" in inspect_reason(patch(data, 8, 0))
    assert "claims position 0 but is at 5" in inspect_reason(data, 0, 5)
    assert "5 bytes left" in inspect_reason(data, 187)
    assert "nothing was written here" in inspect_reason(bytes(200))
    assert "smaller than its fixed fields" in inspect_reason(patch(encode_record(Record("")), 36, 48))


def test_only_zeros_count_as_empty() -> None:
    assert inspect_record(bytes(100), 0, 100) == InvalidView("nothing was written here", True)
    view = inspect_record(b"\x01" * 100, 0, 100)
    assert isinstance(view, InvalidView)
    assert not view.empty


def test_a_wrong_crc_passes_when_nobody_asks() -> None:
    damaged = patch(GOLDEN_RECORD, 88, 0)
    assert type(inspect_record(damaged, 0, 192, False)) is RecordView
    assert decode_record(damaged, check_crc=False).body == b"\0\0\0\0o0"
    with pytest.raises(WireError, match="CRC mismatch"):
        decode_record(damaged)


def test_as_much_as_the_length_fields_can_say_is_valid() -> None:
    largest = Record("t" * 255, properties=bytes(65535))
    record = encode_record(largest)
    view = inspect_record(record, 0, len(record))
    assert type(view) is RecordView
    assert (view.topic, view.properties_end - view.properties_at) == (b"t" * 255, 65535)
    assert decode_record(record).properties == largest.properties


def test_blanks() -> None:
    # The example of the storage digest: 754 bytes left in a 16 KiB segment.
    assert encode_blank(754) == bytes.fromhex("000002f2cbd43194")
    segment = bytes(15630) + encode_blank(754) + bytes(746)
    assert inspect_record(segment, 15630, 16384) == BlankView(754)
    assert inspect_record(encode_blank(8), 0, 8) == BlankView(8)
    assert "claims 755" in inspect_reason(encode_blank(755) + bytes(746))
    assert "claims 7" in inspect_reason(encode_blank(7))
    with pytest.raises(WireError, match="a blank"):
        decode_record(segment, 15630)


def test_leftover_bytes_after_records_are_refused() -> None:
    with pytest.raises(WireError, match="no record at byte 192"):
        decode_records(GOLDEN_RECORD + b"\0")


def test_what_does_not_fit_a_record_is_refused() -> None:
    for message in (Record("t" * 256), Record("中" * 86), Record("t", properties=bytes(65536))):
        with pytest.raises(WireError, match="at most 255 and 65535"):
            encode_record(message)
    v6 = pack_host("::1", 1)
    for message in (Record("t", born_host=v6), Record("t", sys_flag=32), Record("t", store_host=b"")):
        with pytest.raises(WireError, match="requires hosts"):
            encode_record(message)


def test_a_topic_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(WireError, match="not UTF-8"):
        decode_record(patch(GOLDEN_RECORD, 95, 0xFF, 1))


def test_the_next_record_is_found_after_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    # A small window, so that records lie across its borders.
    monkeypatch.setattr(record, "_SEARCH_BYTES", 64)
    base = 4096
    first, second, third = (encode_record(Record("T", body=bytes(40), position=base + i * 132)) for i in range(3))
    assert len(first) == 132
    log = first + second + third + bytes(50)
    assert find_record(log, 0, len(log), base) == 0
    assert find_record(log, 1, len(log), base) == 132
    damaged = log[:140] + b"\xff" * 100 + log[240:]
    assert find_record(damaged, 132, len(log), base) == 264
    assert find_record(memoryview(damaged), 1, len(log), base) == 264
    # A copy of a record at another place is not one.
    assert find_record(log, 1, len(log), base + 1) == -1
    assert find_record(log, 265, len(log), base) == -1
    assert find_record(b"", 0, 0, 0) == -1


def test_user_bodies_are_decompressed() -> None:
    text = b"hello " * 100
    assert user_body(Record("T", body=text)) == text
    for kind in (COMPRESSION_ZLIB, COMPRESSION_LZ4):
        message = Record("T", body=compress(text, kind), sys_flag=set_compression(0, kind))
        assert message.body != text
        assert user_body(message) == text
    assert user_body(Record("T", body=zlib.compress(text), sys_flag=1)) == text

"""The columns that the kernel makes of records are what `record.decode_record` says, compiled and as plain Python."""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca._spark import parsing
from eruca._spark.columns import STORE_COLUMNS
from eruca._spark.parsing import RecordParser, check_crcs, find_records, read_int64, split
from eruca._store.log.cursor import RecordCursor
from eruca._wire.host import unpack_host
from eruca._wire.ids import encode_offset_id
from eruca._wire.properties import parse_properties, split_keys
from eruca._wire.record import (
    BlankView,
    InvalidView,
    Record,
    RecordView,
    decode_record,
    encode_blank,
    encode_record,
    inspect_record,
    user_body,
)
from eruca._wire.sysflag import BORN_HOST_V6, COMPRESSED, COMPRESSION_ZLIB, STORE_HOST_V6, TRANSACTION_MASK
from eruca.errors import WireError
from tests.kernels import load_twins
from tests.paths import unpack_golden

Twin = dict[str, ModuleType]
TWINS: dict[str, Twin] = {
    kind: {"columns": columns, "properties": load_twins("eruca._spark.kernel.properties")[kind]}
    for kind, columns in load_twins("eruca._spark.kernel.columns").items()
}
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())
STATES = ("none", "prepared", "committed", "rolledBack")
BASE = 1 << 30
GOLDEN_STORES = ("clean", "killed", "torn", "rebuild")


def with_twin(twin: Twin, call: Callable[[], Any]) -> Any:
    """Run something with one of the twins as the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in twin.items():
            patch.setattr(parsing, name, module)
        return call()


# --- records of all kinds -------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAGSX", b"XTAGS", b"\x01", b"\x02", b" ", b"a", b"Bb", b"", b"\x01\x02",
        b"TAGS\x01t\x02", b"KEYS\x01k1  k2\x02", b"UNIQ_KEY\x01AC11\x02", b"UNIQ_KEY\x01\x02", "é".encode(),
        "消息".encode(), "😀".encode(), b"\xff", b"\xfe", b"\xc3", b"\x00",
    ]
)  # fmt: skip
CROWD = st.integers(60, 70).flatmap(
    lambda count: st.lists(st.integers(0, 80), min_size=count, max_size=count).map(
        lambda names: b"\x02".join(b"p%d\x01v%d" % (name, at) for at, name in enumerate(names))
    )
)
ENTRIES = st.lists(
    st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "b"]), st.text(max_size=12)), max_size=6
).map(lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode("utf-8", "replace"))
PROPERTIES = st.lists(PIECES, max_size=24).map(b"".join) | st.binary(max_size=40) | ENTRIES | CROWD
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(-62_135_596_800_000, 253_402_300_799_999)
TOPICS = st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda text: len(text.encode()) <= 127)


@st.composite
def messages(draw: st.DrawFn) -> Record:
    """A message of any kind a record can hold."""
    flag = draw(st.integers(0, 3)) << 2
    body = draw(st.binary(max_size=60))
    packed = draw(st.sampled_from(["", "", "zlib", "broken"]))
    if packed:
        flag |= COMPRESSED | draw(st.sampled_from([0, COMPRESSION_ZLIB]))
        body = zlib.compress(body) if packed == "zlib" else b"broken" + body
    born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
    flag |= (BORN_HOST_V6 if born_v6 else 0) | (STORE_HOST_V6 if store_v6 else 0)

    def draw_host(v6: bool) -> bytes:
        size = 16 if v6 else 4
        return draw(st.binary(min_size=size, max_size=size)) + struct.pack(">i", draw(INT32))

    return Record(
        topic=draw(TOPICS),
        queue_id=draw(INT32),
        flag=draw(INT32),
        body=body,
        properties=draw(PROPERTIES),
        sys_flag=flag,
        born_timestamp=draw(TIMES),
        born_host=draw_host(born_v6),
        store_timestamp=draw(TIMES),
        store_host=draw_host(store_v6),
        reconsume_times=draw(INT32),
        prepared_position=draw(INT64),
        queue_offset=draw(INT64),
    )


def lay_out(items: list[Record], base: int) -> bytes:
    """Records one after the other, each at the position it claims."""
    data = b""
    for item in items:
        item.position = base + len(data)
        data += encode_record(item)
    return data


def format_host(packed: bytes) -> str:
    ip, port = unpack_host(packed)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def read_body(message: Record) -> bytes | None:
    try:
        return user_body(message)
    except WireError:
        return None


def expect_row(data: bytes, at: int, broker: str) -> tuple[dict[str, Any], int]:
    """The row of a record as the plain decoder has it, and where the next one is."""
    message = decode_record(data, at, check_crc=False)
    properties = parse_properties(message.properties)
    offset_id = encode_offset_id(message.store_host, message.position)
    row = {
        "topic": message.topic,
        "broker": broker,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "messageId": properties.get("UNIQ_KEY", offset_id),
        "offsetId": offset_id,
        "keys": split_keys(properties.get("KEYS", "")),
        "tags": properties.get("TAGS"),
        "body": read_body(message),
        "flag": message.flag,
        "bornTimestamp": message.born_timestamp * 1000,
        "bornHost": format_host(message.born_host),
        "storeTimestamp": message.store_timestamp * 1000,
        "storeHost": format_host(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "transactionState": STATES[(message.sys_flag & TRANSACTION_MASK) >> 2],
        "properties": properties,
        "physicalOffset": message.position,
        "size": message.size,
        "crcOk": not message.body or zlib.crc32(message.body) & 0x7FFFFFFF == message.body_crc,
    }
    return row, at + message.size


def read_rows(data: bytes, base: int, broker: str) -> list[dict[str, Any]]:
    """The rows that the parser makes; times as numbers, because Python's own end with the year 9999."""
    records = find_records(data, base=base)
    assert records.end == len(data)
    batch = RecordParser(STORE_COLUMNS).parse(records, broker)
    batch.validate(full=True)
    columns: dict[str, list[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        columns[name] = (column.view("int64") if name.endswith("Timestamp") else column).to_pylist()
    columns["properties"] = [dict(pairs) for pairs in columns["properties"]]
    assert [len(each) for each in columns["properties"]] == [len(pairs) for pairs in batch["properties"].to_pylist()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@each_twin
@settings(deadline=None)
@given(items=st.lists(messages(), min_size=1, max_size=6), damaged=st.integers(0, 5))
def test_every_column_is_what_the_decoder_says(twin: Twin, items: list[Record], damaged: int) -> None:
    data = bytearray(lay_out(items, BASE))
    if damaged < len(items) and items[damaged].body:
        view = inspect_record(data, items[damaged].position - BASE, len(data), False)
        assert isinstance(view, RecordView)
        data[view.body_at] ^= 0x40
    expected, at = [], 0
    while at < len(data):
        row, at = expect_row(bytes(data), at, "broker-a")
        expected.append(row)
    # As over the wire, where positions are those of another log.
    assert with_twin(twin, functools.partial(read_rows, bytes(data), -1, "broker-a")) == expected


@each_twin
@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"\x01",
        b"\x02\x02",
        b"a\x01b\x02a\x01c",
        b"a\x01b\x02a\x01",
        b"a\x01b\x01c",
        b"name\x02a\x01b",
        b"\x01value\x02a\x01b\x02",
        b"TAGS\x01x\x02TAGS\x01y",
        b"TAGS\x01x\x02TAGS\x01",
        b"KEYS\x01 a  b \x02UNIQ_KEY\x01id",
        b"\xff\x01one\x02\xfe\x01two",
        b"name\x01\xff\xfe",
        b"\x02".join(b"n%d\x01v" % number for number in range(65)),
        b"\x02".join(b"n%d\x01v%d" % (number % 50, number) for number in range(200)),
    ],
)
def test_odd_properties(twin: Twin, properties: bytes) -> None:
    items = [Record("Orders", properties=b"a\x01b"), Record("Orders", properties=properties), Record("Bills")]
    data = lay_out(items, 0)
    rows = with_twin(twin, functools.partial(read_rows, data, -1, ""))
    assert rows[1]["properties"] == parse_properties(properties)
    assert rows == [expect_row(data, item.position, "")[0] for item in items]


@each_twin
def test_no_records(twin: Twin) -> None:
    records = with_twin(twin, lambda: find_records(b""))
    batch = with_twin(twin, lambda: RecordParser(STORE_COLUMNS).parse(records))
    assert (records.count, records.end, batch.num_rows) == (0, 0, 0)
    assert batch.schema.names == [column.name for column in STORE_COLUMNS]


@each_twin
def test_times_that_no_calendar_has_are_cut(twin: Twin) -> None:
    data = lay_out([Record("Orders", born_timestamp=2**63 - 1, store_timestamp=-(2**63))], 0)
    (row,) = with_twin(twin, functools.partial(read_rows, data, -1, ""))
    assert (row["bornTimestamp"], row["storeTimestamp"]) == (253_402_300_799_999_000, -62_135_596_800_000_000)


# --- where the walk ends --------------------------------------------------------------------------------------------


@each_twin
@settings(deadline=None)
@given(
    items=st.lists(messages(), min_size=1, max_size=5),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3),
    rest=st.sampled_from([b"", encode_blank(100) + bytes(92), bytes(200), b"\xda\xa3\x20\xa7" * 40]),
)
def test_the_walk_ends_at_what_is_no_record(
    twin: Twin, items: list[Record], changes: list[tuple[int, int]], rest: bytes
) -> None:
    data = bytearray(lay_out(items, BASE) + rest)
    for at, value in changes:
        data[at % len(data)] = value
    found = with_twin(twin, lambda: find_records(data, base=BASE))
    starts = found.spans.reshape(-1, 5)[: found.count].tolist()
    at = 0
    for begin, body_at, body_end, properties_at, end in starts:
        view = inspect_record(data, at, len(data), False, BASE + at)
        assert isinstance(view, RecordView)
        assert (begin, body_at, body_end, properties_at, end) == (
            at,
            view.body_at,
            view.body_end,
            view.properties_at,
            view.properties_end,
        )
        assert not RecordCursor(data, len(data), BASE).is_cut_short(view)
        at = end
    assert found.end == at
    last = inspect_record(data, at, len(data), False, BASE + at)
    if isinstance(last, RecordView):
        # Only where a zero stands at a place that a power loss may have left so.
        letters = data[last.properties_at - 3], data[last.properties_end - 1]
        sectors = range((last.body_end + 512) // 512 * 512, last.properties_end - 511, 512)
        assert 0 in letters or any(data[sector] == 0 for sector in sectors)
    else:
        assert isinstance(last, BlankView | InvalidView)


@each_twin
def test_a_record_without_properties_does_not_end_the_walk(twin: Twin) -> None:
    data = lay_out([Record("Orders", body=b"b")] * 1 + [Record("Bills"), Record("Orders")], BASE)
    assert with_twin(twin, lambda: find_records(data, base=BASE)).count == 3


@each_twin
def test_only_some_topics_and_only_so_many(twin: Twin) -> None:
    items = [Record("Orders" if number % 3 else "Bills", queue_offset=number) for number in range(20)]
    data = lay_out(items, BASE)
    some = with_twin(twin, lambda: find_records(data, base=BASE, topics={b"Bills"}))
    assert (some.count, some.end) == (7, len(data))
    first = with_twin(twin, lambda: find_records(data, base=BASE, topics={b"Bills"}, count_max=2))
    assert first.count == 2
    assert first.end == items[4].position - BASE
    assert with_twin(twin, lambda: find_records(data, base=BASE, topics=set())).end == len(data)
    assert with_twin(twin, lambda: find_records(data, base=BASE + 1)).count == 0


@each_twin
@given(data=st.binary(max_size=400))
def test_garbage_is_no_record(twin: Twin, data: bytes) -> None:
    assert with_twin(twin, lambda: find_records(data, base=0)).count == 0


@each_twin
def test_crcs_of_bodies_of_any_length(twin: Twin) -> None:
    noise = bytes((number * 37 + number // 11) % 256 for number in range(1600))
    lengths = [*range(40), 255, 256, 511, 512, 513, 1023, 1600]
    items = [Record("Orders", body=noise[:length], properties=b"a\x01b") for length in lengths]
    data = bytearray(lay_out(items, BASE))
    records = find_records(data, base=BASE)
    assert with_twin(twin, lambda: check_crcs(records)).all()
    for item in items[1:]:
        data[item.position - BASE + 88 + len(item.body) - 1] ^= 1
    assert with_twin(twin, lambda: check_crcs(records)).tolist() == [True] + [False] * (len(items) - 1)


def test_records_are_split_by_bytes_and_selected() -> None:
    items = [Record("Orders", body=bytes(100 * number), properties=b"a\x01b") for number in range(10)]
    data = lay_out(items, BASE)
    records = find_records(data, base=BASE)
    parts = list(split(records, 1000))
    assert sum(part.count for part in parts) == 10
    positions = [position for part in parts for position in read_int64(part, 28).tolist()]
    assert positions == [item.position for item in items]
    assert all(part.count == 1 or part.count_bytes(0, 4) <= 1000 for part in parts)
    assert [part.count for part in split(records, 1)] == [1] * 10
    chosen = records.select(read_int64(records, 28) % 2 == 0)
    assert read_int64(chosen, 28).tolist() == [position for position in positions if position % 2 == 0]


@pytest.mark.parametrize("name", GOLDEN_STORES)
def test_the_logs_of_java(name: str, tmp_path: Path) -> None:
    total = 0
    for path in sorted((unpack_golden(name, tmp_path) / "commitlog").iterdir()):
        base, data = int(path.name), path.read_bytes()
        end = find_records(data, base=base).end
        rows = read_rows(data[:end], base, "java")
        at = 0
        for row in rows:
            expected, at = expect_row(data, at, "java")
            assert row == expected
        total += len(rows)
    assert total == {"clean": 2127, "torn": 2426}.get(name, 2427)

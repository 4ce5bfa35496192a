"""From records to Arrow batches, for pull answers and commit logs alike: both have the same bytes.

The loops are in `spark.kernel`; this module allocates their buffers and turns the buffers into columns. Only selected
columns are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eruca._spark.columns import Column, make_arrow_schema
from eruca._spark.kernel import columns, properties
from eruca._wire.compression import decompress
from eruca._wire.host import unpack_host
from eruca._wire.properties import RAW_KEYS, RAW_TAGS, RAW_UNIQ_KEY, parse_properties
from eruca._wire.sysflag import COMPRESSED, TRANSACTION_MASK
from eruca.errors import WireError

if TYPE_CHECKING:
    from eruca._store.filesystem import Buffer

log = logging.getLogger(__name__)

# A batch is large enough to make its overhead negligible, and small enough to stay in the caches.
BATCH_ROWS = 4_096
BATCH_BYTES = 16 * 1024 * 1024
# Up to this many properties of a record are compared with each other; more are parsed one by one.
_CROWD = 64
# The order in which `Records.find_values` has them.
_KEYS, _TAGS, _UNIQ_KEY = range(3)
# By the two transaction bits of sysFlag.
TRANSACTION_STATES = pa.array(["none", "prepared", "committed", "rolledBack"], pa.string())
_TRANSACTION_SHIFT = 2
# Times are clipped to the years 1 to 9999: Spark and Python have no others, and one odd record must not stop a query.
_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Records:
    """Records in one buffer, and their positions."""

    buffer: Buffer | bytes
    spans: Ints
    count: int
    # The position of the first byte that was not read.
    end: int
    # The positions of the properties that are columns; found on first use.
    places: Ints | None = None

    def select(self, chosen: npt.NDArray[np.bool_]) -> Records:
        """Return the chosen records."""
        rows = self.spans.reshape(-1, columns.SPAN)[: self.count][chosen]
        return Records(self.buffer, np.ascontiguousarray(rows).reshape(-1), len(rows), self.end)

    def count_bytes(self, begins: int, ends: int) -> int:
        """Return the number of bytes between two positions of the spans, over all records."""
        rows = self.spans.reshape(-1, columns.SPAN)[: self.count]
        return int(rows[:, ends].sum() - rows[:, begins].sum())

    def find_values(self) -> Ints:
        """Return the positions of keys, tags and id; all three are found at once."""
        if self.places is None:
            self.places = np.empty(self.count * 6, np.int64)
            properties.find_values(self.buffer, self.spans, self.count, RAW_KEYS, RAW_TAGS, RAW_UNIQ_KEY, self.places)
        return self.places

    def slice(self, begin: int, end: int) -> Records:
        """Return the records from one index to another."""
        span = columns.SPAN
        return Records(self.buffer, self.spans[begin * span : end * span], end - begin, self.end)


def find_records(
    buffer: Buffer | bytes,
    at: int = 0,
    end: int | None = None,
    *,
    base: int = -1,
    count_max: int = BATCH_ROWS,
    topics: Collection[bytes] | None = None,
) -> Records:
    """Find up to `count_max` records from `at` on; see `columns.find_records`."""
    spans = np.empty(count_max * columns.SPAN, np.int64)
    stop = len(buffer) if end is None else end
    count, reached = columns.find_records(buffer, at, stop, base, spans, count_max, topics)
    return Records(buffer, spans, count, reached)


def split(records: Records, bytes_max: int = BATCH_BYTES) -> Iterator[Records]:
    """Split into parts of at most `bytes_max` bytes, but at least one record each."""
    ends = records.spans.reshape(-1, columns.SPAN)[: records.count, 4]
    starts = records.spans.reshape(-1, columns.SPAN)[: records.count, 0]
    sums = np.cumsum(ends - starts)
    begin = 0
    while begin < records.count:
        before = int(sums[begin - 1]) if begin else 0
        upto = max(begin + 1, int(np.searchsorted(sums, before + bytes_max, side="right")))
        yield records.slice(begin, upto)
        begin = upto


def read_int32(records: Records, where: int, behind: int = 0) -> npt.NDArray[np.int32]:
    """Read a 4-byte field of every record: its position with IPv4 hosts, and the number of hosts before it."""
    out = np.empty(records.count, np.int32)
    columns.take_int32(records.buffer, records.spans, records.count, where, behind, out)
    return out


def read_int64(records: Records, where: int, behind: int = 0) -> Ints:
    """Read an 8-byte field of every record."""
    out = np.empty(records.count, np.int64)
    columns.take_int64(records.buffer, records.spans, records.count, where, behind, out)
    return out


def read_sys_flags(records: Records) -> npt.NDArray[np.int32]:
    """Read the sysFlag of every record."""
    return read_int32(records, 36)


def check_crcs(records: Records) -> npt.NDArray[np.bool_]:
    """Return whether the CRC of each body is correct."""
    out = np.empty(records.count, np.uint8)
    columns.check_crcs(records.buffer, records.spans, records.count, out)
    return out.view(np.bool_)


class RecordParser:
    """Converts records to batches with the selected columns."""

    def __init__(self, columns: Sequence[Column], *, decompress_bodies: bool = True) -> None:
        self.schema = make_arrow_schema(columns)
        self._columns = tuple(columns)
        self._decompress = decompress_bodies

    def parse(self, records: Records, broker: str = "") -> pa.RecordBatch:
        """Return one batch of all records."""
        arrays: list[pa.Array] = []
        for column in self._columns:
            if column.name == "broker":
                arrays.append(pa.repeat(pa.scalar(broker), records.count))
            elif column.name == "body":
                arrays.append(_read_bodies(records, decompress_bodies=self._decompress))
            elif column.name in _NESTED_READERS:
                arrays.append(_NESTED_READERS[column.name](records, column.arrow))
            else:
                arrays.append(_READERS[column.name](records))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


# -- columns -----------------------------------------------------------------------------------------------------------


def _make_offsets(count: int) -> npt.NDArray[np.int32]:
    return np.empty(count + 1, np.int32)


def _make_binary(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _is_text(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> bool:
    """Whether all of it is UTF-8. Names that are not could become equal when decoded with replacement characters."""
    try:
        _make_binary(offsets, data, pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _make_text(
    offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], valid: npt.NDArray[np.uint8] | None = None
) -> pa.Array:
    """Return a column of text; invalid UTF-8 becomes the replacement character, as in Java."""
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        return pa.array(
            [None if each is None else each.decode("utf-8", "replace") for each in raw.to_pylist()], pa.string()
        )
    return column


def _read_span(records: Records, begins: int, skip: int, ends: int, cut: int, kind: pa.DataType) -> pa.Array:
    offsets = _make_offsets(records.count)
    data = np.empty(records.count_bytes(begins, ends) - records.count * (skip + cut), np.uint8)
    columns.take_bytes(records.buffer, records.spans, records.count, begins, skip, ends, cut, offsets, data)
    return _make_text(offsets, data) if kind == pa.string() else _make_binary(offsets, data, kind)


def _read_topics(records: Records) -> pa.Array:
    return _read_span(records, 2, 1, 3, 2, pa.string())


def _read_bodies(records: Records, *, decompress_bodies: bool) -> pa.Array:
    if decompress_bodies and records.count:
        flags = read_sys_flags(records)
        if (flags & COMPRESSED).any():
            return pa.array(_decompress_bodies(records, flags), pa.binary())
    return _read_span(records, 1, 0, 2, 0, pa.binary())


def _decompress_bodies(records: Records, flags: npt.NDArray[np.int32]) -> Iterator[bytes | None]:
    whole = memoryview(records.buffer)
    rows = records.spans.reshape(-1, columns.SPAN)[: records.count]
    for flag, begin, end in zip(flags.tolist(), rows[:, 1].tolist(), rows[:, 2].tolist(), strict=True):
        body = bytes(whole[begin:end])
        if flag & COMPRESSED:
            try:
                yield decompress(body, flag)
            except WireError as error:
                # One bad body must not stop a stream for good.
                log.warning("a body could not be decompressed and is null: %s", error)
                yield None
        else:
            yield body


def _read_text_property(records: Records, which: int) -> pa.Array:
    offsets, valid = _make_offsets(records.count), np.empty(records.count, np.uint8)
    data = np.empty(records.count_bytes(3, 4), np.uint8)
    size, having = properties.take_property(
        records.buffer, records.find_values(), records.count, which, offsets, data, valid
    )
    return _make_text(offsets, data[:size], None if having == records.count else valid)


def _read_tags(records: Records) -> pa.Array:
    return _read_text_property(records, _TAGS)


def _read_keys(records: Records, kind: pa.DataType) -> pa.Array:
    room = records.count_bytes(3, 4)
    rows, data = _make_offsets(records.count), np.empty(room, np.uint8)
    # A word is at least one character and a space.
    offsets = _make_offsets(room // 2 + records.count)
    words, size = properties.take_keys(records.buffer, records.find_values(), records.count, _KEYS, rows, offsets, data)
    return pa.ListArray.from_arrays(pa.array(rows), _make_text(offsets[: words + 1], data[:size]), type=kind)


def _read_message_ids(records: Records) -> pa.Array:
    """Return the ids assigned by producers; where there is none, those assigned by the broker."""
    found = _read_text_property(records, _UNIQ_KEY)
    if not found.null_count:
        return found
    return pa.compute.coalesce(found, _read_offset_ids(records))


def _read_offset_ids(records: Records) -> pa.Array:
    offsets = _make_offsets(records.count)
    data = np.empty(records.count * columns.OFFSET_ID_CHARS_MAX, np.uint8)
    size = columns.take_offset_ids(records.buffer, records.spans, records.count, offsets, data)
    return _make_binary(offsets, data[:size], pa.string())


def _read_hosts(records: Records, *, stored: bool) -> pa.Array:
    offsets = _make_offsets(records.count)
    data = np.empty(records.count * columns.HOST_CHARS_MAX, np.uint8)
    size = columns.take_hosts(records.buffer, records.spans, records.count, stored, offsets, data)
    if size < 0:
        return pa.array(_format_hosts(records, stored=stored), pa.string())
    return _make_binary(offsets, data[:size], pa.string())


def _format_hosts(records: Records, *, stored: bool) -> Iterator[str]:
    whole = memoryview(records.buffer)
    flags = read_sys_flags(records).tolist()
    begins = records.spans.reshape(-1, columns.SPAN)[: records.count, 0].tolist()
    for flag, begin in zip(flags, begins, strict=True):
        at = begin + (64 + (12 if flag & 0x10 else 0) if stored else 48)
        ip, port = unpack_host(bytes(whole[at : at + (20 if flag & (0x20 if stored else 0x10) else 8)]))
        yield f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _read_transaction_states(records: Records) -> pa.Array:
    kinds = (read_sys_flags(records) & TRANSACTION_MASK) >> _TRANSACTION_SHIFT
    return TRANSACTION_STATES.take(pa.array(kinds))


def _read_properties(records: Records, kind: pa.DataType) -> pa.Array:
    room = records.count_bytes(3, 4)
    # An entry has a name, a value and two separators, except for the last one of a record.
    entries_max = (room + records.count) // 4
    rows = _make_offsets(records.count)
    name_offsets, names = _make_offsets(entries_max), np.empty(room, np.uint8)
    value_offsets, values = _make_offsets(entries_max), np.empty(room, np.uint8)
    scratch = np.empty(3 * _CROWD, np.int64)
    count, name_bytes, value_bytes = properties.take_map(
        records.buffer, records.spans, records.count, scratch, rows, name_offsets, names, value_offsets, values
    )
    if count < 0 or not _is_text(name_offsets[: count + 1], names[:name_bytes]):
        raw = _read_span(records, 3, 0, 4, 0, pa.binary()).to_pylist()
        return pa.array([list(parse_properties(each).items()) for each in raw], kind)
    return pa.MapArray.from_arrays(
        pa.array(rows),
        _make_binary(name_offsets[: count + 1], names[:name_bytes], pa.string()),
        _make_text(value_offsets[: count + 1], values[:value_bytes]),
        type=kind,
    )


def _read_time(records: Records, where: int, behind: int) -> pa.Array:
    times = np.clip(read_int64(records, where, behind), _FIRST_MS, _LAST_MS) * 1000
    return pa.array(times).view(pa.timestamp("us", tz="UTC"))


_READERS: dict[str, Callable[[Records], Any]] = {
    "topic": _read_topics,
    "queueId": lambda records: pa.array(read_int32(records, 12)),
    "queueOffset": lambda records: pa.array(read_int64(records, 20)),
    "messageId": _read_message_ids,
    "offsetId": _read_offset_ids,
    "tags": _read_tags,
    "flag": lambda records: pa.array(read_int32(records, 16)),
    "bornTimestamp": lambda records: _read_time(records, 40, 0),
    "bornHost": lambda records: _read_hosts(records, stored=False),
    "storeTimestamp": lambda records: _read_time(records, 56, 1),
    "storeHost": lambda records: _read_hosts(records, stored=True),
    "reconsumeTimes": lambda records: pa.array(read_int32(records, 72, 2)),
    "transactionState": _read_transaction_states,
    "physicalOffset": lambda records: pa.array(read_int64(records, 28)),
    "size": lambda records: pa.array(read_int32(records, 0)),
    "crcOk": lambda records: pa.array(check_crcs(records)),
}
# These get the type, which says whether elements may be null.
_NESTED_READERS: dict[str, Callable[[Records, pa.DataType], Any]] = {
    "keys": _read_keys,
    "properties": _read_properties,
}

"""Packs Arrow batches into requests: chooses the queue of each row and builds the bytes of each request.

A row must go to the same queue every time it is written, so the queue depends only on the row and its number in the
partition: the queue that the row names, the queue of its sharding key, or otherwise the queue of its stripe. Stripes of
`batchRows` rows take the queues in turn, so that a request carries many rows. `spark.kernel.packing` builds the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eruca._client.produce.packing import COMPRESSIONS
from eruca._ground.limits import PROPERTIES_BYTES_MAX, SENT_BATCH_MESSAGES_MAX
from eruca._spark.kernel import packing
from eruca._spark.sink.options import NO_COMPRESSION, SinkOptions
from eruca._spark.sink.rowcolumns import (
    NONE,
    Ints,
    as_plain,
    find_column,
    make_texts,
    read_numbers,
    read_offsets,
    read_valid,
)
from eruca._spark.sink.rowfields import make_map_field, make_text_field, read_delay, read_timer, read_timestamp
from eruca._wire.bodies import MessageQueue
from eruca._wire.compression import compress
from eruca._wire.ids import UniqueIds
from eruca._wire.properties import (
    ERUCA_ONCE,
    KEYS,
    TAGS,
    WAIT,
)
from eruca._wire.sysflag import set_compression
from eruca.errors import MessageIllegal

# Rows packed at once: few enough that their ids are unique within a millisecond, and that rows which are packed but
# not sent yet take little memory.
PIECE_ROWS: Final = 16_384
PIECE_BYTES: Final = 16 * 1024 * 1024
_IDS_OF_MILLISECOND: Final = 65_536
# The broker adds its own (the cluster name) to these.
_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 300
_ITEM_HEAD: Final = struct.Struct(">iiiii")

# Why a row cannot be a message, in addition to the reasons of `packing`.
_NO_TOPIC: Final = 16
_NO_QUEUE: Final = 17
_BAD_DELAY: Final = 18
_REASONS: Final = {
    packing.NO_BODY: "it has no body, or an empty one",
    packing.BODY_TOO_LARGE: "its body is larger than maxMessageBytes",
    packing.HAS_SEPARATOR: "its tags, keys or properties contain a separator character (0x01 or 0x02)",
    packing.HAS_BLANK: "one of its keys contains a space, which separates keys",
    packing.PROPERTIES_TOO_LARGE: f"its tags, keys and properties have more than {_PROPERTIES_BYTES_MAX} bytes",
    _NO_TOPIC: "it has no topic, and there is no option topic",
    _NO_QUEUE: "its topic has no queue with its queueId",
    _BAD_DELAY: "its delay is negative, too large or not a number",
}

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Request:
    """Rows for one queue: a batch, or one message with its own properties."""

    queue: MessageQueue
    body: bytes
    rows: int
    sys_flag: int
    # Properties of a single message; None for a batch.
    properties: str | None = None
    flag: int = 0


@dataclass(slots=True)
class BadRows:
    """The number of skipped rows, and why the first of them was skipped."""

    count: int = 0
    first: str = ""


class UniqueIdBlocks:
    """Creates the common prefixes of the ids of many rows."""

    def __init__(self, ids: UniqueIds) -> None:
        self._ids = ids
        self._used = _IDS_OF_MILLISECOND
        self._prefix = ""

    def take(self, count: int) -> tuple[bytes, int]:
        """Return the prefix of the next ids, and the number of the first id."""
        # The last four digits of an id count within its millisecond.
        prefix = self._ids.create()[:-4]
        while prefix == self._prefix and self._used + count > _IDS_OF_MILLISECOND:
            prefix = self._ids.create()[:-4]
        if prefix != self._prefix:
            self._prefix, self._used = prefix, 0
        first = self._used
        self._used += count
        return prefix.encode(), first


class RowPacker:
    """Packs the rows of one partition into requests."""

    def __init__(self, options: SinkOptions, partition: int, ids: UniqueIds, once_prefix: str | None = None) -> None:
        self._options = options
        self._partition = partition
        # The prefix of all row marks, if the broker is to store each row once.
        self._once_prefix = None if once_prefix is None else f"{ERUCA_ONCE}\x01{once_prefix}:".encode()
        self._ids = UniqueIdBlocks(ids)
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        # All known queues, and the index of the first queue of each topic.
        self._lanes: list[MessageQueue] = []
        self._begins: dict[str, int] = {}
        self.bad = BadRows()
        self.rows = 0

    def add_topic(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Add the queues of a topic, in the order that sharding keys refer to."""
        self._queues[topic] = queues
        self._begins[topic] = len(self._lanes)
        self._lanes.extend(queues)

    def list_unknown_topics(self, batch: pa.RecordBatch) -> list[str]:
        """Return the topics of a batch whose queues have not been added yet."""
        names = {self._options.topic} if self._options.topic else set()
        column = find_column(batch, "topic")
        if column is not None:
            names.update(name for name in pc.unique(column).to_pylist() if name)
        return sorted(names.difference(self._queues))

    def pack(self, batch: pa.RecordBatch) -> Iterator[Request]:
        """Return requests with the next rows. Raises MessageIllegal for a row that cannot be a message."""
        for piece in split_batch(batch):
            yield from self._pack_piece(piece, self.rows)
            self.rows += piece.num_rows

    def _pack_piece(self, piece: pa.RecordBatch, first: int) -> Iterator[Request]:
        count, options = piece.num_rows, self._options
        why = np.zeros(count, np.uint8)
        lanes = self._choose_lanes(piece, first, why)
        fields, singles = self._make_fields(piece, first, why)
        bodies = as_plain(piece.column(piece.schema.get_field_index("body")))
        texts = make_texts(bodies)
        sizes = np.diff(read_offsets(bodies))
        kinds = singles.astype(np.int64) | (sizes > options.batch_bytes)
        if options.compression != NO_COMPRESSION and (large := sizes >= options.compress_from).any():
            kinds = kinds | (large.astype(np.int64) << 1)
            bodies = self._compress(bodies, large)
            texts = make_texts(bodies)
        order = _sort_rows(lanes, why)
        flags = find_column(piece, "flag")
        flag_numbers = _EMPTY if flags is None else read_numbers(flags, 0).astype(np.int32)
        room = (
            texts.count_bytes(0, count) + count * packing.ITEM_BYTES + sum(field.find_room(count) for field in fields)
        )
        out, ends, reasons = (
            np.empty(room + 64, np.uint8),
            np.empty(len(order), np.int64),
            np.empty(len(order), np.uint8),
        )
        good = packing.pack_rows(
            order, texts, flag_numbers, fields, options.body_bytes_max, _PROPERTIES_BYTES_MAX, out, ends, reasons
        )
        if good < count:
            why[order] = reasons
            self._complain(why, first)
        if good:
            yield from self._cut(out, ends, lanes[order], kinds[order], reasons)

    def _cut(self, out: Bytes, ends: Ints, lanes: Ints, kinds: Ints, reasons: Bytes) -> Iterator[Request]:
        """Return requests with rows of one queue and kind, within the limits of a request."""
        options = self._options
        changes = np.flatnonzero((np.diff(lanes) != 0) | (np.diff(kinds) != 0)) + 1
        for begin, end in zip([0, *changes.tolist()], [*changes.tolist(), len(lanes)], strict=True):
            queue, kind = self._lanes[int(lanes[begin])], int(kinds[begin])
            sys_flag = set_compression(0, COMPRESSIONS[options.compression]) if kind & 2 else 0
            at = begin
            while at < end:
                start = int(ends[at - 1]) if at else 0
                if kind & 1:
                    upto = at + 1
                else:
                    upto = int(np.searchsorted(ends[at:end], start + options.batch_bytes, side="right")) + at
                    upto = min(max(upto, at + 1), at + min(options.batch_rows, SENT_BATCH_MESSAGES_MAX))
                stop = int(ends[upto - 1])
                if stop > start:
                    data = out[start:stop].tobytes()
                    if kind & 1:
                        yield _make_single(queue, data, sys_flag)
                    else:
                        rows = upto - at - int(np.count_nonzero(reasons[at:upto]))
                        yield Request(queue, data, rows, sys_flag)
                at = upto

    # -- queues ------------------------------------------------------------------------------------------------------

    def _choose_lanes(self, piece: pa.RecordBatch, first: int, why: Bytes) -> Ints:
        count, options = piece.num_rows, self._options
        stripes = (np.arange(first, first + count, dtype=np.int64) // options.batch_rows) + self._partition
        begins, sizes = self._read_topics(piece, why)
        lanes = np.add(begins, stripes % sizes, dtype=np.int64)
        shards = find_column(piece, "shardingKey", options.sharding_key)
        if shards is not None:
            hashes = np.empty(count, np.int64)
            packing.hash_texts(make_texts(shards), count, hashes)
            given = read_valid(pc.greater(pc.binary_length(shards), 0))
            np.copyto(lanes, begins + np.abs(hashes) % sizes, where=given)
        numbers = find_column(piece, "queueId")
        if numbers is None and options.queue_id is not None:
            numbers = pa.repeat(pa.scalar(options.queue_id, pa.int64()), count)
        if numbers is not None:
            self._choose_by_number(read_numbers(numbers, options.queue_id), begins, stripes, lanes, why)
        return lanes

    def _read_topics(self, piece: pa.RecordBatch, why: Bytes) -> tuple[Ints, Ints]:
        """Return the index of the first queue of each row's topic, and the number of its queues."""
        topic = self._options.topic
        column = find_column(piece, "topic")
        if column is None:
            begin, size = np.int64(self._begins[topic]), np.int64(len(self._queues[topic]))
            return np.full(piece.num_rows, begin), np.full(piece.num_rows, size)
        encoded = (pc.fill_null(column, topic) if topic else column).dictionary_encode()
        names = encoded.dictionary.to_pylist()
        codes = read_numbers(encoded.indices, len(names))
        begins = np.array([*[self._begins.get(name, 0) for name in names], 0], np.int64)
        sizes = np.array([*[len(self._queues.get(name, ())) for name in names], 0], np.int64)
        why[sizes[codes] == 0] = _NO_TOPIC
        return begins[codes], np.maximum(sizes[codes], 1)

    def _choose_by_number(self, numbers: Ints, begins: Ints, stripes: Ints, lanes: Ints, why: Bytes) -> None:
        """Choose the queues that rows name; if several brokers have a queue of that number, stripes take turns."""
        for topic, queues in self._queues.items():
            of_topic = begins == self._begins[topic]
            for number in np.unique(numbers[of_topic]).tolist():
                if number == NONE:
                    continue
                chosen = of_topic & (numbers == number)
                found = [place for place, queue in enumerate(queues) if queue.queue_id == number]
                if found:
                    places = np.array(found, np.int64)
                    lanes[chosen] = begins[chosen] + places[stripes[chosen] % len(places)]
                else:
                    why[chosen] = _NO_QUEUE

    # -- properties --------------------------------------------------------------------------------------------------

    def _make_fields(
        self, piece: pa.RecordBatch, first: int, why: Bytes
    ) -> tuple[list[packing.Field], npt.NDArray[np.bool_]]:
        """Return the properties of rows, and which rows must be sent one by one."""
        count, options = piece.num_rows, self._options
        fields: list[packing.Field] = [packing.IdField(*self._ids.take(count))]
        fields += make_text_field(piece, "tags", TAGS, options.tags)
        fields += make_text_field(piece, "keys", KEYS, options.keys)
        singles = np.zeros(count, np.bool_)
        for name, default, make in (
            ("delayLevel", options.delay_level, read_delay),
            ("delay", options.delay_ms / 1000, read_timer),
            ("deliverAt", 0, read_timestamp),
        ):
            column = find_column(piece, name)
            if column is None and not default:
                continue
            if column is None:
                column = pa.repeat(pa.scalar(default), count)
            elif default:
                column = pc.fill_null(column.cast(pa.scalar(default).type), default)
            field, delayed, bad = make(column)
            why[bad] = _BAD_DELAY
            fields.append(field)
            singles |= delayed
        column = find_column(piece, "properties")
        if column is not None:
            fields.append(make_map_field(column))
        constant = "".join(f"{name}\x01{value}\x02" for name, value in options.properties.items())
        if not options.wait_store_ok:
            constant += f"{WAIT}\x01false\x02"
        if constant:
            fields.append(packing.ConstantField(constant.encode()))
        if self._once_prefix is not None:
            fields.append(packing.NumberField(self._once_prefix, first))
        return fields, singles

    def _compress(self, bodies: pa.Array, large: npt.NDArray[np.bool_]) -> pa.Array:
        kind, level = COMPRESSIONS[self._options.compression], self._options.compress_level
        found = [
            compress(body, kind, level) if is_large and body is not None else body
            for body, is_large in zip(bodies.cast(pa.binary()).to_pylist(), large.tolist(), strict=True)
        ]
        return pa.array(found, pa.binary())

    def _complain(self, why: Bytes, first: int) -> None:
        bad = np.flatnonzero(why)
        row = first + int(bad[0])
        text = f"row {row} of partition {self._partition} cannot be sent: {_REASONS[int(why[bad[0]])]}"
        if not self._options.skips_bad_rows:
            raise MessageIllegal(text, hint="correct or filter such rows, or leave them out with onBadRow=skip")
        self.bad.first = self.bad.first or text
        self.bad.count += len(bad)


# -- columns -----------------------------------------------------------------------------------------------------------

_EMPTY: Final = np.empty(0, np.int32)


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into pieces of limited size, with at least one row each."""
    sizes = np.cumsum(np.diff(read_offsets(as_plain(batch.column(batch.schema.get_field_index("body"))))))
    begin = 0
    while begin < batch.num_rows:
        before = int(sizes[begin - 1]) if begin else 0
        upto = max(begin + 1, int(np.searchsorted(sizes, before + PIECE_BYTES, side="right")))
        upto = min(upto, begin + PIECE_ROWS)
        yield batch.slice(begin, upto - begin)
        begin = upto


def _sort_rows(lanes: Ints, why: Bytes) -> Ints:
    """Return the good rows, grouped by queue and in their original order."""
    if why.any():
        rows = np.flatnonzero(why == 0)
        return rows[np.argsort(lanes[rows], kind="stable")].astype(np.int64)
    if len(lanes) and (lanes == lanes[0]).all():
        return np.arange(len(lanes), dtype=np.int64)
    return np.argsort(lanes, kind="stable").astype(np.int64)


def _make_single(queue: MessageQueue, item: bytes, sys_flag: int) -> Request:
    """Convert a batch of one message to the request of a single message."""
    _, _, _, flag, size = _ITEM_HEAD.unpack_from(item)
    body_end = _ITEM_HEAD.size + size
    return Request(queue, item[_ITEM_HEAD.size : body_end], 1, sys_flag, item[body_end + 2 :].decode(), flag)

"""What kernels do, stated as plainly as it can be said: tests hold the kernels to it.

Nothing here calls a kernel, and nothing is fast.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple
from zlib import crc32

from eruca._wire.javahash import hash_continue, java_hash
from eruca._wire.properties import parse_properties, split_keys
from eruca._wire.record import Record

Facts = tuple[int, int, bytes, int, int, int, int, bytes]


# --- records ----------------------------------------------------------------------------------------------------------


class ReadRecord(NamedTuple):
    """A valid record, and where its parts lie."""

    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    position: int
    sys_flag: int
    store_time: int
    body_at: int
    body_end: int
    properties_at: int
    properties: bytes


def read_record(data: Any, at: int, end: int, *, check_crc: bool, position: int | None) -> ReadRecord | None:
    """Read the record at a place, if a valid one is there, all of it before `end`."""
    data = bytes(data[at : min(end, len(data))])
    if len(data) < 91:
        return None
    size, magic, crc, queue_id, _, queue_offset, claimed, sys_flag = struct.unpack_from(">iIIiiqqi", data)
    if magic != 0xDAA320A7 or not 91 <= size <= len(data):
        return None
    data = data[:size]
    store_time_at = 48 + (20 if sys_flag & 0x10 else 8)
    body_at = store_time_at + 8 + (20 if sys_flag & 0x20 else 8) + 16
    rest = data[body_at:]
    if len(rest) < 3:
        return None
    (body_size,) = struct.unpack_from(">i", data, body_at - 4)
    if not 0 <= body_size <= len(rest) - 3:
        return None
    body, rest = rest[:body_size], rest[body_size:]
    topic, rest = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
    if len(rest) < 2 or len(rest) - 2 != struct.unpack_from(">H", rest)[0]:
        return None
    if position not in (None, claimed) or (check_crc and body and crc32(body) & 0x7FFFFFFF != crc):
        return None
    (store_time,) = struct.unpack_from(">q", data, store_time_at)
    properties_at = at + size - len(rest) + 2
    body_end = at + body_at + body_size
    return ReadRecord(
        size,
        topic,
        queue_id,
        queue_offset,
        claimed,
        sys_flag,
        store_time,
        at + body_at,
        body_end,
        properties_at,
        rest[2:],
    )


def may_be_cut(data: Any, at: int, record: ReadRecord) -> bool:
    """Is there a zero where a sector of its topic or properties would begin, or its last letter be?"""
    end = at + record.size
    letters = list(range(record.body_end + 1, record.properties_at - 2)) + list(range(record.properties_at, end))
    last = letters[-1] if letters else record.body_end
    sectors = [at for at in range(record.body_end + 1, end) if at % 512 == 0 and at + 512 <= end]
    return any(data[place] == 0 for place in [last, *sectors])


def read_facts(data: Any, at: int, end: int, base: int, count_max: int) -> list[Facts]:
    """What dispatch needs of records, without a look at CRCs, nor at what a power loss may have taken."""
    found: list[Facts] = []
    while len(found) < count_max:
        record = read_record(data, at, end, check_crc=False, position=base + at)
        if record is None:
            break
        found.append(
            (
                base + at,
                record.size,
                record.topic,
                record.queue_id,
                record.queue_offset,
                record.sys_flag,
                record.store_time,
                record.properties,
            )
        )
        at += record.size
    return found


def pack_record(message: Record) -> bytes:
    """The record of a message whose lengths are right."""
    topic = message.topic.encode()
    born, store = message.born_host, message.store_host
    parts = [
        struct.pack(">I", 0xDAA320A7),
        struct.pack(">I", crc32(message.body) & 0x7FFFFFFF),
        struct.pack(">ii", message.queue_id, message.flag),
        struct.pack(">qq", message.queue_offset, message.position),
        struct.pack(">i", message.sys_flag),
        struct.pack(">q", message.born_timestamp) + born,
        struct.pack(">q", message.store_timestamp) + store,
        struct.pack(">iq", message.reconsume_times, message.prepared_position),
        struct.pack(">i", len(message.body)) + message.body,
        bytes([len(topic)]) + topic,
        struct.pack(">H", len(message.properties)) + message.properties,
    ]
    rest = b"".join(parts)
    return struct.pack(">i", len(rest) + 4) + rest


def unpack_record(data: bytes, at: int, *, check_crc: bool) -> Record | None:
    """The message of the record at a place, if a valid one is there and its topic is text."""
    record = read_record(data, at, len(data), check_crc=check_crc, position=None)
    if record is None:
        return None
    try:
        topic = record.topic.decode()
    except UnicodeDecodeError:
        return None
    born, store = (20 if record.sys_flag & bit else 8 for bit in (0x10, 0x20))
    crc, _, flag = struct.unpack_from(">Iii", data, at + 8)
    fields = struct.unpack_from(f">q{born}sq{store}siq", data, at + 40)
    born_time, born_host, store_time, store_host, reconsume_times, prepared = fields
    return Record(
        topic, record.queue_id, flag, data[record.body_at : record.body_end], record.properties, record.sys_flag,
        born_time, born_host, store_time, store_host, reconsume_times, prepared, record.queue_offset,
        record.position, crc, record.size,
    )  # fmt: skip


# --- digests and index ------------------------------------------------------------------------------------------------


def digest(properties: bytes, prefix: int, with_keys: bool = True) -> tuple[int, list[int]]:
    """The hash of the tag, and the index hashes of the keys; `prefix` is the hash of `topic + "#"`."""
    parsed = parse_properties(properties)
    keys = [parsed["UNIQ_KEY"]] if "UNIQ_KEY" in parsed else []
    keys += split_keys(parsed.get("KEYS", ""))
    hashes = [hash_continue(prefix, key) for key in keys if with_keys]
    # Java's abs; the one value without a positive twin becomes 0.
    return java_hash(parsed.get("TAGS", "")), [0 if h == -(2**31) else abs(h) for h in hashes]


_HEADER = struct.Struct(">qqqqii")


def put_index_entries(buffer: Any, slots: int, hashes: list[int], position: int, store_time: int) -> None:
    """Write one entry for each hash of a record into an index file, and the file's header."""
    begin_time, _, begin_position, _, used, number = _HEADER.unpack_from(buffer, 0)
    if number <= 1:
        number, begin_time, begin_position = 1, store_time, position
    elapsed = store_time - begin_time
    seconds = min(2**31 - 1, elapsed // 1000) if elapsed > 0 and begin_time > 0 else 0
    for key_hash in hashes:
        slot_at = 40 + (key_hash % slots) * 4
        (previous,) = struct.unpack_from(">i", buffer, slot_at)
        if previous <= 0 or previous > number:
            previous = 0
            used += 1
        struct.pack_into(">iqii", buffer, 40 + slots * 4 + number * 20, key_hash, position, seconds, previous)
        struct.pack_into(">i", buffer, slot_at, number)
        number += 1
    _HEADER.pack_into(buffer, 0, begin_time, store_time, begin_position, position, used, number)

"""The messages of a store as readable rows, from the commit log alone: no consume queue or index is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from eruca._store.filesystem import FileSystem
from eruca._store.layout import StorePaths
from eruca._store.log.chain import Chain
from eruca._store.log.scan import iter_records
from eruca._store.log.segment import Segment
from eruca._storetools.readonly import ReadOnlyStore
from eruca._wire.host import unpack_host
from eruca._wire.ids import encode_offset_id
from eruca._wire.properties import KEYS, TAGS, UNIQ_KEY, split_keys
from eruca._wire.record import Record, RecordView, body_crc, decode_record, user_body
from eruca._wire.sysflag import (
    BORN_HOST_V6,
    COMPRESSED,
    COMPRESSION_LEGACY_ZLIB,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    INNER_BATCH,
    MULTI_TAGS,
    NEED_UNWRAP,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from eruca.errors import WireError

# Store times follow the log unless the clock was set back; a segment is skipped only when it is this far away.
CLOCK_STEP_MS_MAX = 60_000
BODY_PREVIEW_BYTES = 120


class RecordRow(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the commit log."""

    position: int
    size: int
    topic: str
    queue: int
    offset: int
    store_time: int
    born_time: int
    born_host: str
    store_host: str
    tags: str
    keys: list[str]
    unique_id: str
    offset_id: str
    sys_flag: int
    sys_flag_words: list[str]
    flag: int
    reconsume_times: int
    prepared_position: int
    # As stored, which may be compressed.
    body_size: int
    # As its sender wrote it: text, or hexadecimal when it is not text; truncated.
    body: str
    body_is_text: bool
    body_is_cut: bool
    crc_ok: bool
    properties: dict[str, str]
    # All of it, with the whole body.
    record: Record


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records to show: all given conditions must hold."""

    topic: str | None = None
    queue: int | None = None
    # A word of KEYS, or the unique id.
    key: str | None = None
    from_position: int | None = None
    to_position: int | None = None
    # Store times in milliseconds, both included.
    from_time: int | None = None
    to_time: int | None = None


def dump_records(
    root: Path,
    wanted: RecordFilter | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    limit: int | None = None,
    body_bytes: int = BODY_PREVIEW_BYTES,
    commitlog: Path | None = None,
    disk: FileSystem | None = None,
) -> Iterator[RecordRow]:
    """Each matching record, in log order; damage is skipped, and the store may be open in a running broker."""
    wanted = wanted or RecordFilter()
    left = limit
    with ReadOnlyStore(root, properties, paths=StorePaths(root, commitlog), disk=disk) as store:
        for view, segment, position in _iter_wanted(store, wanted):
            if left is not None and left <= 0:
                return
            record = bytes(segment.view(position, view.size))
            row = make_row(record, view, position - segment.start, position, body_bytes)
            if wanted.key is not None and wanted.key != row.unique_id and wanted.key not in row.keys:
                continue
            yield row
            if left is not None:
                left -= 1


def _iter_wanted(store: ReadOnlyStore, wanted: RecordFilter) -> Iterator[tuple[RecordView, Segment, int]]:
    topic = None if wanted.topic is None else wanted.topic.encode()
    low = max(store.log_start, wanted.from_position or 0)
    for run in store.runs:
        high = run.end if wanted.to_position is None else min(run.end, wanted.to_position)
        start = max(run.start, low)
        if wanted.from_time is not None:
            start = max(start, _skip_older(run, wanted.from_time))
        for view, segment, position in iter_records(run, start, high):
            if topic is not None and view.topic != topic:
                continue
            if wanted.queue is not None and view.queue_id != wanted.queue:
                continue
            if wanted.from_time is not None and view.store_timestamp < wanted.from_time:
                continue
            if wanted.to_time is not None and view.store_timestamp > wanted.to_time:
                if view.store_timestamp > wanted.to_time + CLOCK_STEP_MS_MAX:
                    return
                continue
            yield view, segment, position


def _skip_older(run: Chain, from_time: int) -> int:
    """Start of the last segment whose first record is clearly older than a time; the ones before it are older still."""
    for segment in reversed(run.segments):
        view = segment.inspect(segment.start)
        if isinstance(view, RecordView) and view.store_timestamp < from_time - CLOCK_STEP_MS_MAX:
            return segment.start
    return run.start


def make_row(record: bytes, view: RecordView, at: int, position: int, body_bytes: int) -> RecordRow:
    """A record as a row; `at` is where it begins in the bytes the view was made from."""
    message = _decode(record, view, at)
    properties = message.read_properties()
    crc_ok = not message.body or body_crc(message.body) == message.body_crc
    body, is_text, is_cut = preview_body(message, body_bytes)
    return RecordRow(
        position=position,
        size=view.size,
        topic=message.topic,
        queue=message.queue_id,
        offset=message.queue_offset,
        store_time=message.store_timestamp,
        born_time=message.born_timestamp,
        born_host=_host_text(message.born_host),
        store_host=_host_text(message.store_host),
        tags=properties.get(TAGS, ""),
        keys=split_keys(properties.get(KEYS, "")),
        unique_id=properties.get(UNIQ_KEY, ""),
        offset_id=encode_offset_id(message.store_host, position),
        sys_flag=message.sys_flag,
        sys_flag_words=describe_sys_flag(message.sys_flag),
        flag=message.flag,
        reconsume_times=message.reconsume_times,
        prepared_position=message.prepared_position,
        body_size=len(message.body),
        body=body,
        body_is_text=is_text,
        body_is_cut=is_cut,
        crc_ok=crc_ok,
        properties=properties,
        record=message,
    )


def _decode(record: bytes, view: RecordView, at: int) -> Record:
    try:
        return decode_record(record, check_crc=False)
    except WireError:
        # A topic that is not UTF-8: shown as well as possible, because this row is how one learns about it.
        topic_at = view.body_end - at + 1
        plain = record[:topic_at] + b"?" * len(view.topic) + record[topic_at + len(view.topic) :]
        message = decode_record(plain, check_crc=False)
        message.topic = view.topic.decode("utf-8", "replace")
        return message


def preview_body(message: Record, bytes_max: int) -> tuple[str, bool, bool]:
    """The beginning of a body as text, or as hexadecimal when it is not text; is it text; is it cut off."""
    try:
        body = user_body(message)
    except WireError:
        body = message.body  # damaged, or its compression is not installed: the stored bytes are still useful
    cut = body[:bytes_max]
    is_cut = len(cut) < len(body)
    try:
        # The cut may fall inside a character; up to three bytes of it are dropped.
        text = cut.decode() if not is_cut else _decode_cut(cut)
    except UnicodeDecodeError:
        return cut.hex(), False, is_cut
    if all(character.isprintable() or character in "\t\r\n" for character in text):
        return text, True, is_cut
    return cut.hex(), False, is_cut


def _decode_cut(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if len(data) - error.start > 3 or error.reason != "unexpected end of data":
            raise
        return data[: error.start].decode()


def _host_text(packed: bytes) -> str:
    ip, port = unpack_host(packed)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


_FLAG_WORDS = (
    (MULTI_TAGS, "multi-tags"),
    (BORN_HOST_V6, "born-host-v6"),
    (STORE_HOST_V6, "store-host-v6"),
    (NEED_UNWRAP, "need-unwrap"),
    (INNER_BATCH, "inner-batch"),
)
_TRANSACTION_WORDS = {
    TRANSACTION_PREPARED: "prepared",
    TRANSACTION_COMMIT: "commit",
    TRANSACTION_ROLLBACK: "rollback",
}
_COMPRESSION_WORDS = {
    COMPRESSION_LEGACY_ZLIB: "zlib",
    COMPRESSION_ZLIB: "zlib",
    COMPRESSION_LZ4: "lz4",
    COMPRESSION_ZSTD: "zstd",
}


def describe_sys_flag(sys_flag: int) -> list[str]:
    """The bits of a sysFlag as words."""
    words = []
    if sys_flag & COMPRESSED:
        words.append(f"compressed-{_COMPRESSION_WORDS.get(sys_flag & COMPRESSION_MASK, 'unknown')}")
    if sys_flag & TRANSACTION_MASK:
        words.append(_TRANSACTION_WORDS[sys_flag & TRANSACTION_MASK])
    words.extend(word for bit, word in _FLAG_WORDS if sys_flag & bit)
    return words

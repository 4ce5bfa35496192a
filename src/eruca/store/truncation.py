"""Cutting the end off a log: what a broker does with messages that the master it follows now never had.

    1  the bytes from the cut on are copied to eruca-diverged/<epoch>-<begin>-<end>.log, and synced
    2  the replication record says so, and that the log is being cut ("truncating"), and is synced
    3  log, consume queues, index, and the small files that tell of the log are cut, and synced
    4  the record says that nothing is being cut any more

A crash before step 2 leaves the log as it was. From there on `MessageStore.open` finishes the cut: it cuts the log and
then recovers as after any crash, by which the rest follows from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from eruca.errors import BAD_JSON, StoreError
from eruca.store.chain import Chain
from eruca.store.filesystem import FileSystem, replace_file
from eruca.store.read import read_store_time
from eruca.store.replicationstate import Diverged
from eruca.store.scan import Damage, iter_facts, scan_log
from eruca.store.timerlog import decode_checkpoint, encode_checkpoint
from eruca.wire.names import TIMER_TOPIC
from eruca.wire.record import BlankView, Message, RecordView, decode_record, find_record, inspect_record

if TYPE_CHECKING:
    from eruca.store.replicated import Replicated

log = logging.getLogger(__name__)

_COPY_BYTES = 1024 * 1024
_STAGING_NAME = ".eruca-new-diverged"


class _AboutLog(msgspec.Struct):
    """What every table has that tells of the log: up to where."""

    position: int = 0


# -- finding the place -------------------------------------------------------------------------------------------------


def find_boundary(chain: Chain, position: int, damage: list[Damage]) -> int:
    """The end of the last whole record, or end-of-segment record, up to a position; -1 before the log's start."""
    for item in reversed(damage):
        if item.position < position < item.end:
            position = item.position  # a list of damage that goes beyond the end would hide what comes there
    if position < chain.start:
        return -1
    segment = chain.find(position)
    if segment is None or position == segment.start:
        return min(position, chain.end)
    if scan_log(chain, segment.start, check_crc=False, stop=position).end == position:
        return position
    end = segment.start
    for run in iter_facts(chain, segment.start, position, damage):
        last_at, last_size = run[-1][:2]
        end = last_at if last_at + last_size > position else last_at + last_size
    return end


def find_last_time(chain: Chain, position: int) -> int:
    """When the last record before a position (where one ends) was stored; 0 when there is none."""
    for segment in reversed(chain.segments):
        if segment.start < position:
            scan = scan_log(chain, segment.start, check_crc=False, stop=min(position, segment.end))
            if scan.records:
                return scan.last_store_time
    return 0


# -- setting aside -----------------------------------------------------------------------------------------------------


def set_aside(store: Replicated, position: int, epoch: int) -> Diverged | None:
    """Copy the log from a position on into a file that is durable when this returns; None when there is nothing."""
    chain, tail = store.commitlog.chain, store.commitlog.tail
    begin = max(chain.start, find_boundary(chain, position, store.damage.items))
    if begin >= tail:
        return None
    directory, disk = store.paths.diverged, store.disk
    name = f"{epoch}-{begin}-{tail}.log"
    for number in range(2, 1000):
        if not disk.exists(directory / name):
            _copy_out(disk, chain, begin, tail, directory / name)
            break
        # Set aside before, perhaps by a `truncate` that a crash ended; or other bytes that only have the same name.
        if _is_copy(disk, chain, begin, tail, directory / name):
            break
        name = f"{epoch}-{begin}-{tail}-{number}.log"
    return Diverged(file=name, epoch=epoch, begin=begin, end=tail, found_ms=store.clock.now_ms())


def _iter_pieces(chain: Chain, begin: int, end: int) -> Iterator[tuple[int, memoryview]]:
    """The bytes of the log in pieces, each with its distance from the beginning."""
    at = begin
    while at < end:
        segment = chain.find(at)
        if segment is None:
            raise StoreError(f"the commit log has nothing at {at}")
        size = min(end, segment.end, at + _COPY_BYTES) - at
        yield at - begin, segment.view(at, size)
        at += size


def _copy_out(disk: FileSystem, chain: Chain, begin: int, end: int, path: Path) -> None:
    if not disk.is_directory(path.parent):
        disk.make_directory(path.parent)
        disk.sync_directory(path.parent.parent)
    root = path.parent.parent
    staged = root / f"{_STAGING_NAME}-whole"
    mapping = disk.create(staged, end - begin, staging=root / _STAGING_NAME, durable=True)
    try:
        for at, piece in _iter_pieces(chain, begin, end):
            mapping.buffer[at : at + len(piece)] = piece
        mapping.sync()
    except BaseException:
        mapping.close()
        disk.remove(staged)
        raise
    mapping.close()
    disk.rename(staged, path)


def _is_copy(disk: FileSystem, chain: Chain, begin: int, end: int, path: Path) -> bool:
    if disk.size(path) != end - begin:
        return False
    mapping = disk.map(path, writable=False)
    try:
        return all(
            memoryview(mapping.buffer)[at : at + len(piece)] == piece for at, piece in _iter_pieces(chain, begin, end)
        )
    finally:
        mapping.close()


def read_diverged(store: Replicated, file: str) -> Iterator[Message]:
    """The messages in a file that was set aside."""
    row = next((row for row in store.replication.diverged if row.file == file), None)
    if row is None:
        raise StoreError(f"nothing was set aside as {file!r}")
    return _iter_messages(store.disk, store.paths.diverged / file, row.begin)


def _iter_messages(disk: FileSystem, path: Path, base: int) -> Iterator[Message]:
    mapping = disk.map(path, writable=False)
    data, at = mapping.buffer, 0
    try:
        while 0 <= at < mapping.size:
            view = inspect_record(data, at, mapping.size, True, base + at)
            if type(view) is RecordView:
                yield decode_record(data, at)
                at += view.size
            elif type(view) is BlankView:
                at += view.size
            else:  # damage, or the end of what a slave had received
                at = find_record(data, at + 1, mapping.size, base)
    finally:
        mapping.close()


# -- cutting -----------------------------------------------------------------------------------------------------------


def truncate_store(store: Replicated, position: int, epoch: int) -> Diverged | None:
    """Do all four steps with an open store, in the thread that owns it."""
    store.commit()
    commitlog, record = store.commitlog, store.replication
    if record.truncating >= 0:  # the last one failed half-way
        position, diverged = record.truncating, record.diverged[-1]
    else:
        begin = find_boundary(commitlog.chain, position, store.damage.items)
        if begin >= commitlog.tail:
            return None
        position = max(0, begin)
        found = set_aside(store, position, epoch)
        if found is None:
            return None
        diverged = found
        store.save_replication(truncating=position, diverged=[*record.diverged, diverged])
    log.warning(
        "cutting the log back to %d; %d bytes that only this broker has are set aside in %s",
        position,
        diverged.end - diverged.begin,
        store.paths.diverged / diverged.file,
    )
    with store.flusher.guard:
        _cut_open(store, position)
        finish_cut(store, position)
    return diverged


def cut_log(store: Replicated, position: int) -> None:
    """Cut the log and the list of deleted topics, durably; queues and index are not touched."""
    chain, disk = store.commitlog.chain, store.disk
    chain.settle()
    segment = chain.find(position)
    if position < chain.start or position == 0:
        chain.remove_from(0)
    elif segment is None or (position == segment.start and segment is not chain.segments[0]):
        chain.remove_from(position)
    else:  # the first segment stays even without a record: its name says where the log goes on
        chain.remove_from(segment.end)
        chain.zero_from(position)
        segment.mapping.sync()
    disk.sync_directory(chain.directory)
    # A topic deleted behind the cut is deleted at it: records that come now are not those that were deleted.
    if store.removed.lower_to(position):
        store.removed.save()


def _cut_open(store: Replicated, position: int) -> None:
    """Cut everything of an open store, durably."""
    commitlog, flusher, checkpoint = store.commitlog, store.flusher, store.checkpoint
    # First of all: a read that goes wrong half-way from here on finds nothing instead of half a record.
    commitlog.readable_end = min(commitlog.readable_end, position)
    store.ends.remove()
    last_time = find_last_time(commitlog.chain, position)
    _cut_derived(store, position)
    cut_log(store, position)
    commitlog.open_at(position)
    store.damage.replace_from(position, [], found_ms=store.clock.now_ms())
    store.dispatch.last_damage = None
    flusher.flushed = min(flusher.flushed, position)
    flusher.last_store_time = last_time
    checkpoint.log_time = min(checkpoint.log_time, last_time)
    checkpoint.queue_time = min(checkpoint.queue_time, last_time)
    has_index = store.index is not None and bool(store.index.files)
    checkpoint.index_time = min(checkpoint.index_time, last_time) if has_index else 0
    checkpoint.lower_to(position)
    checkpoint.save()


def _cut_derived(store: Replicated, position: int) -> None:
    store.forget_topics()
    if position < store.commitlog.start or position == 0:
        store.queues.clear()
        if store.index is not None:
            store.index.clear()
        return
    for queue in store.queues:
        offset = queue.find_position(position)
        if offset < queue.max_offset:
            count = len(queue.chain.segments)
            queue.truncate(offset)
            queue.min_offset = min(queue.min_offset, queue.max_offset)
            if queue.end_position < 0 and store.commitlog.start == 0:
                queue.destroy()  # only entries for lost messages are left, and their number was a guess
                continue
            queue.sync()
            if len(queue.chain.segments) != count:
                store.disk.sync_directory(queue.chain.directory)
    if store.index is not None and store.index.end_position >= position:
        store.index.drop_from(position, lambda at: _read_time(store, at))
        store.index.sync()


def _read_time(store: Replicated, position: int) -> int:
    """When the record at a position was stored; -1 when it cannot be read."""
    view = store.view_record(position)
    return -1 if view is None else read_store_time(store.commitlog, position, len(view))


def finish_cut(store: Replicated, position: int) -> None:
    """Correct the small files that tell of a longer log, and note that the cut is done."""
    store.load_mark()
    _reset_once(store.disk, store.paths.once, position)
    _reset_timer(store)
    record = store.replication
    # Epochs without a byte in the log are gone; the highest number stays known.
    highest = max([record.seen_epoch, *(item.epoch for item in record.epochs)])
    kept = [item for item in record.epochs if item.start < position]
    unsure = -1 if record.unsure >= position else record.unsure
    store.save_replication(truncating=-1, epochs=kept, seen_epoch=highest, unsure=unsure)


def _reset_once(disk: FileSystem, path: Path, position: int) -> None:
    """Have the marks of idempotent sinks read from the log again, if their table knows some that were cut off."""
    backup = path.with_name(path.name + ".bak")
    tables = [name for name in (path, backup) if disk.exists(name)]
    if any(_read_position(disk, name) > position for name in tables):
        replace_file(disk, path, msgspec.json.encode(_AboutLog()))
        disk.remove(backup)


def _read_position(disk: FileSystem, path: Path) -> int:
    try:
        return msgspec.json.decode(disk.read_file(path), type=_AboutLog).position
    except BAD_JSON:
        return 0  # its owner will say so


def _reset_timer(store: Replicated) -> None:
    """Have the timer read its queue again, if it knows messages that were cut off; it still knows what it delivered."""
    path, disk = store.paths.timer / "checkpoint", store.disk
    if not disk.exists(path):
        return
    try:
        checkpoint, _ = decode_checkpoint(disk.read_file(path))
    except BAD_JSON:
        return
    queue = store.queues.get(TIMER_TOPIC, 0)
    if checkpoint.read_offset > (0 if queue is None else queue.max_offset):
        replaced = msgspec.structs.replace(checkpoint, read_offset=0, log_end=0)
        for name in disk.list(store.paths.timer / "log"):
            disk.remove(store.paths.timer / "log" / name)
        replace_file(disk, path, encode_checkpoint(replaced))

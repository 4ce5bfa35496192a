"""From records of the log to the entries of their queues and of the index, for a run of ordinary records.

They may belong to any number of queues. The first record that is not ordinary ends the run; it is then dispatched by
`Dispatch.run_record`.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.cpython import buffer as buffers
    from cython.cimports.eruca._store.kernel.index import *
    from cython.cimports.eruca._store.kernel.sizes import *
    from cython.cimports.eruca._wire.kernel.digest import *
    from cython.cimports.eruca._wire.kernel.memory import *
    from cython.cimports.eruca._wire.kernel.record import *
else:
    from eruca._store.kernel.index import put_entries
    from eruca._store.kernel.sizes import ENTRY_BYTES, INDEX_HEADER_BYTES, write_entry
    from eruca._wire.kernel.digest import find_hashes
    from eruca._wire.kernel.memory import equals, read_i32, read_i64, read_u32, take
    from eruca._wire.kernel.record import (
        BEGIN,
        BODY_END,
        END,
        HASHES_MAX,
        HIDDEN,
        PROPERTIES,
        QUEUE_ID_AT,
        QUEUE_OFFSET_AT,
        SYS_FLAG_AT,
        VALID,
        find_parts,
        read_store_time,
    )

compiled: bool = cython.compiled

# A bound, because topics come and go.
_LANES_KEPT_MAX = cython.declare(cython.int, 65536)


# --- memory -----------------------------------------------------------------------------------------------------------


@cython.cclass
class _Memory:
    """The bytes of a buffer for the duration of a run; cheaper than a typed view."""

    held: buffers.Py_buffer
    p: cython.p_uchar
    size: cython.Py_ssize_t

    @cython.cfunc
    def hold(self, buffer: Any, writable: cython.bint) -> cython.int:
        """Acquire a buffer, which cannot be closed until `release`."""
        if cython.compiled:
            flags: cython.int = buffers.PyBUF_WRITABLE if writable else buffers.PyBUF_SIMPLE
            buffers.PyObject_GetBuffer(buffer, cython.address(self.held), flags)
            self.p = cython.cast(cython.p_uchar, self.held.buf)
            self.size = self.held.len
        else:
            self.p = memoryview(buffer)
            self.size = len(self.p)
        return 0

    @cython.cfunc
    def release(self) -> cython.int:
        """Release the buffer; does nothing when there is none."""
        if cython.compiled:
            buffers.PyBuffer_Release(cython.address(self.held))
        else:
            self.p = None
        return 0


@cython.cclass
class Lane(_Memory):
    """The constant facts of a queue, and during a run the place of its next entry and what was written to it."""

    name: tuple[str, int]
    prefix: cython.uint
    # None outside a run.
    queue: Any
    at: cython.Py_ssize_t
    room: cython.Py_ssize_t
    begin: cython.longlong
    offset: cython.longlong
    end_position: cython.longlong

    def __init__(self, topic: str, queue_id: int, prefix: int) -> None:
        """`prefix` is the hash of `topic + "#"`, unsigned."""
        self.name, self.prefix = (topic, queue_id), prefix
        self.queue = None

    @cython.cfunc
    def open(self, queue: Any) -> cython.int:
        """Start at the end of a queue; may raise."""
        offset: cython.longlong = queue.max_offset
        buffer, at, room = queue.find_room()
        self.begin = self.offset = offset
        self.at, self.room = at, room
        self.end_position = 0
        self.hold(buffer, True)
        if self.at < 0 or self.room < 0 or self.at + ENTRY_BYTES * self.room > self.size:
            self.release()
            raise ValueError(f"{room} entries at {at} are not inside {len(buffer)} bytes")
        self.queue = queue
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put(self, position: cython.longlong, size: cython.Py_ssize_t, tags_code: cython.longlong) -> cython.void:
        """Write the next entry; there must be room for it."""
        write_entry(self.p, self.at, position, size, tags_code)
        self.at += ENTRY_BYTES
        self.room -= 1
        self.offset += 1
        self.end_position = position + size

    @cython.cfunc
    def close(self) -> Any:
        """Record in the queue what was written to it, and return the queue."""
        queue = self.queue
        self.queue = None
        self.release()
        if self.offset > self.begin:
            queue.add_run(self.offset - self.begin, self.end_position)
        return queue


# --- a run ------------------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_same_queue(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, topic_at: cython.Py_ssize_t, parts: cython.p_longlong
) -> cython.bint:
    """Does a record belong to the same queue as the one at `at`, whose topic follows its length at `topic_at`?"""
    its_topic: cython.Py_ssize_t = parts[BODY_END]
    if read_u32(p, at + QUEUE_ID_AT) != read_u32(p, parts[BEGIN] + QUEUE_ID_AT) or p[topic_at] != p[its_topic]:
        return False
    return equals(p, topic_at + 1, p, its_topic + 1, p[topic_at])


@cython.cfunc
def _close_lanes(lanes: list[Any]) -> list[tuple[Any, int]]:
    """Record in the queues what was written; returns those that grew, each with its first new offset."""
    lane: Lane
    grown: list[tuple[Any, int]] = []
    for found in lanes:
        lane = found
        queue = lane.close()
        if lane.offset > lane.begin:
            grown.append((queue, lane.begin))
    return grown


@cython.cclass
class Replayer:
    """Writes the entries of consecutive records of the log."""

    _learn: Any
    _find_queue: Any
    _lanes: dict[bytes, Any]

    def __init__(
        self, learn: Callable[[bytes, int], Lane | None], find_queue: Callable[[tuple[str, int]], Any]
    ) -> None:
        """`learn` returns the lane of an encoded topic and a queue id, or None when no record there is ordinary.
        `find_queue` returns the queue of a topic and a queue id, or None when there is none yet.
        """
        self._learn = learn
        self._find_queue = find_queue
        self._lanes = {}

    def run(
        self,
        log: Any,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        base: cython.longlong,
        covers: Callable[[str, int, int], bool] | None,
        with_keys: cython.bint,
        index: Any,
        slots: cython.longlong,
        index_room: cython.longlong,
    ) -> tuple[int, int, int, list[tuple[Any, int]], Exception | None]:
        """Dispatch the records from `at` to `end`, which `reading.skip_records` has checked, while they are ordinary.

        `base` is the position of the first byte of `log`. `covers(topic, queue_id, position)` returns whether the topic
        was deleted after that record; None when no topic was. `with_keys`: there is an index; `index` is its last file,
        None before the first, with room for `index_room` entries.

        Returns the place of the first record not dispatched, the store time of the last one dispatched, the number of
        index entries written, the queues that grew, each with its first new offset, and the error that ended the run,
        if any (such as a full disk).
        """
        records: _Memory = _Memory.__new__(_Memory)
        file: _Memory = _Memory.__new__(_Memory)
        opened: list[Any] = []
        lane: Lane
        p: cython.p_const_uchar
        if cython.compiled:
            out: cython.longlong[33]
        else:
            out = [0] * 33
        parts: cython.longlong[5] = [0, 0, 0, 0, 0]
        its_time: cython.longlong
        store_time: cython.longlong = 0
        written: cython.longlong = 0
        indexed_end: cython.longlong = -1
        # The last record whose lane was looked up, and the place of its topic.
        last: cython.Py_ssize_t = -1
        last_topic: cython.Py_ssize_t = -1
        count: cython.int
        trouble: Exception | None = None
        try:
            records.hold(log, False)
            p = records.p
            file.hold(b"" if index is None else index, index is not None)
            if file.size >= INDEX_HEADER_BYTES and read_i32(file.p, 36) > 1:
                indexed_end = read_i64(file.p, 24)
            # A place without a record ends the run, and so does the first record that is not ordinary.
            while find_parts(p, at, min(end, records.size), parts) == VALID:
                if read_u32(p, at + SYS_FLAG_AT) & HIDDEN:
                    break
                if last < 0 or not _is_same_queue(p, last, last_topic, parts):
                    found = self._find_lane(p, parts, base + at, covers, opened)
                    if found is None:
                        break
                    lane = found
                    last, last_topic = at, parts[BODY_END]
                if lane.offset != read_i64(p, at + QUEUE_OFFSET_AT) or lane.room <= 0:
                    break
                count = find_hashes(p, parts[PROPERTIES], parts[END], lane.prefix, with_keys, out, HASHES_MAX)
                its_time = read_store_time(p, at)
                # A record that hit a full disk between index and queue is in the index already.
                if count > 0 and base + at > indexed_end:
                    if count > HASHES_MAX or written + count > index_room:
                        break
                    if not put_entries(file.p, file.size, slots, out, count, base + at, its_time):
                        break
                    written += count
                lane.put(base + at, parts[END] - at, out[0])
                store_time = its_time
                at = parts[END]
        except Exception as error:
            trouble = error  # returned, because the caller must also know what was done before it
        finally:
            file.release()
            records.release()
            grown = _close_lanes(opened)
        return at, store_time, written, grown, trouble

    @cython.cfunc
    def _find_lane(
        self,
        p: cython.p_const_uchar,
        parts: cython.p_longlong,
        position: cython.longlong,
        covers: Any,
        opened: list[Any],
    ) -> Any:
        """The open lane of a record; None when the record is not ordinary."""
        lane: Lane
        at: cython.Py_ssize_t = parts[BEGIN] + QUEUE_ID_AT
        name: bytes = take(p, at, at + 4) + take(p, parts[BODY_END] + 1, parts[PROPERTIES] - 2)
        found = self._lanes.get(name)
        if found is None:
            found = self._learn(name[4:], read_i32(p, at))
            if found is None:
                return None
            if len(self._lanes) >= _LANES_KEPT_MAX:
                self._lanes.clear()
            self._lanes[name] = found
        lane = found
        if lane.queue is None:
            queue = self._find_queue(lane.name)
            # Only the first records of a queue can belong to a topic that was deleted since.
            if queue is None or (covers is not None and covers(*lane.name, position)):
                return None
            lane.open(queue)
            opened.append(lane)
        return lane


def dispatch_one(
    properties: bytes,
    prefix: cython.uint,
    position: cython.longlong,
    size: cython.int,
    store_time: cython.longlong,
    entries: Any,
    entries_at: cython.Py_ssize_t,
    with_keys: cython.bint,
    keys: Any,
    slots: cython.longlong,
    room: cython.longlong,
) -> int:
    """Dispatch a record that was just written, with these properties, to a queue whose next entry goes to `entries_at`.

    `with_keys`: there is an index; `keys` is its last file, None before the first, with room for that many entries.
    Returns how many of them were written, or -1 when the record is not ordinary; then nothing was written.
    """
    memory: _Memory = _Memory.__new__(_Memory)
    if cython.compiled:
        out: cython.longlong[33]
    else:
        out = [0] * 33
    p: cython.p_const_uchar = properties
    is_put: cython.bint
    count: cython.int = find_hashes(p, 0, len(properties), prefix, with_keys, out, HASHES_MAX)
    if count > 0:
        if keys is None or count > HASHES_MAX or count > room:
            return -1
        memory.hold(keys, True)
        is_put = put_entries(memory.p, memory.size, slots, out, count, position, store_time)
        memory.release()
        if not is_put:
            return -1
    memory.hold(entries, True)
    if entries_at < 0 or entries_at + ENTRY_BYTES > memory.size:
        memory.release()
        raise ValueError(f"an entry at {entries_at} is not inside {len(entries)} bytes")
    write_entry(memory.p, entries_at, position, size, out[0])
    memory.release()
    return count

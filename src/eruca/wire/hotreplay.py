"""The inner loop of a slave, typed for Cython: from records of the log to the entries of their queues and of the index.

As with `hot`, the same file runs as plain Python or compiled. The readable statement is `Dispatch.replay`, one record
at a time; here is a run of ordinary ones, of any number of queues, and the first that is not ordinary ends it.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import cython  # type: ignore[import-untyped]
except ImportError:  # an installation without compiler and without Cython
    from eruca.wire import nocython as cython

if cython.compiled:
    from cython.cimports.cpython import buffer as buffers  # type: ignore[import-untyped]
    from cython.cimports.eruca.wire.hot import find_hashes, put_entries  # type: ignore[import-untyped]
    from cython.cimports.eruca.wire.hotbytes import read_i32, read_i64, read_u32, take, write_i64, write_u32  # type: ignore[import-untyped]
else:
    from eruca.wire.hot import find_hashes, put_entries
    from eruca.wire.hotbytes import read_i32, read_i64, read_u32, take, write_i64, write_u32

compiled: bool = cython.compiled

# Both kinds of records of a transaction that have no entry in a queue have this bit: prepared and rolled back.
_HIDDEN_MASK = cython.declare(cython.uint, 0x4)
_FIXED_BYTES = cython.declare(cython.int, 91)
_HEAD_BYTES = cython.declare(cython.int, 88)
_ENTRY_BYTES = cython.declare(cython.int, 20)
# A record with more keys is not an ordinary one.
_HASHES_MAX = cython.declare(cython.int, 32)
# A bound, because topics come and go.
_LANES_KEPT_MAX = cython.declare(cython.int, 65536)


# --- memory -----------------------------------------------------------------------------------------------------------


@cython.cclass
class _Memory:
    """The bytes of a buffer, for as long as a run needs them; holding one costs a fraction of a typed view."""

    held: buffers.Py_buffer
    p: cython.p_uchar
    size: cython.Py_ssize_t

    @cython.cfunc
    def hold(self, buffer: Any, writable: cython.bint) -> cython.int:
        """Take a buffer, which cannot be closed until `release`."""
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
        """Let go of it; nothing happens when there is none."""
        if cython.compiled:
            buffers.PyBuffer_Release(cython.address(self.held))
        return 0


@cython.cclass
class Lane(_Memory):
    """What is always true of a queue, and in a run where its next entry goes and what it has got."""

    name: tuple[str, int]
    prefix: cython.uint
    # None while it is not part of a run.
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
        """Begin where a queue ends; may raise."""
        offset: cython.longlong = queue.max_offset
        buffer, at, room = queue.find_room()
        self.begin = self.offset = offset
        self.at, self.room = at, room
        self.end_position = 0
        self.hold(buffer, True)
        if self.at < 0 or self.room < 0 or self.at + _ENTRY_BYTES * self.room > self.size:
            self.release()
            raise ValueError(f"{room} entries at {at} are not inside {len(buffer)} bytes")
        self.queue = queue
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put(self, position: cython.longlong, size: cython.Py_ssize_t, tags_code: cython.longlong) -> cython.void:
        """Write the next entry, for which there is room."""
        write_i64(self.p, self.at, position)
        write_u32(self.p, self.at + 8, cython.cast(cython.uint, size))
        write_i64(self.p, self.at + 12, tags_code)
        self.at += _ENTRY_BYTES
        self.room -= 1
        self.offset += 1
        self.end_position = position + size

    @cython.cfunc
    def close(self) -> Any:
        """Tell the queue what it has got, and give it."""
        queue = self.queue
        self.queue = None
        self.release()
        if self.offset > self.begin:
            queue.add_run(self.offset - self.begin, self.end_position)
            queue.next_offset = self.offset
        return queue


# --- a run ------------------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _find_topic(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the topic of the record at `at` begins; -1 when it has no entry in a queue, or is not inside of `end`."""
    if end - at < _FIXED_BYTES:
        return -1
    size: cython.Py_ssize_t = read_u32(p, at)
    flag: cython.uint = read_u32(p, at + 36)
    topic_at: cython.Py_ssize_t = at + _HEAD_BYTES + (12 if flag & 0x10 else 0) + (12 if flag & 0x20 else 0)
    if flag & _HIDDEN_MASK or size > end - at or topic_at + 3 > at + size:
        return -1
    topic_at += read_u32(p, topic_at - 4) + 1
    if topic_at + 2 > at + size or topic_at + p[topic_at - 1] + 2 > at + size:
        return -1
    return topic_at


@cython.cfunc
def _close_lanes(lanes: list[Any]) -> list[tuple[Any, int]]:
    """Let queues know what they have got; gives those that grew, each with its first new offset."""
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
    """Writes the entries of records that lie in the log one behind the other."""

    _learn: Any
    _find_queue: Any
    _lanes: dict[bytes, Any]

    def __init__(
        self, learn: Callable[[bytes, int], Lane | None], find_queue: Callable[[tuple[str, int]], Any]
    ) -> None:
        """`learn` makes the lane of an encoded topic and a queue id, or None when no record there is ordinary.
        `find_queue` gives the queue of a topic and a queue id, or None when there is none yet.
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
        """Dispatch the records from `at` to `end`, which `hotread.skip_records` has passed, while they are ordinary.

        `base` is the position of the first byte of `log`. `covers` says of topic, queue id and position whether the
        topic was deleted after a record; None: none was. `with_keys`: there is an index; `index` is its last file, None
        before the first, with room for so many entries.

        Gives where the first record lies that is not done, the store time of the last one that is, how many index
        entries were written, the queues that grew, each with its first new offset, and the error that ended it, if it
        was one (a disk is full).
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
        topic_at: cython.Py_ssize_t
        size: cython.Py_ssize_t
        its_time: cython.longlong
        store_time: cython.longlong = 0
        written: cython.longlong = 0
        count: cython.int
        trouble: Exception | None = None
        try:
            records.hold(log, False)
            p = records.p
            file.hold(b"" if index is None else index, index is not None)
            # A place without a record ends it, and so does the first record that is not ordinary.
            while (topic_at := _find_topic(p, at, min(end, records.size))) >= 0:
                size = read_u32(p, at)
                found = self._find_lane(p, at, topic_at, base + at, covers, opened)
                if found is None:
                    break
                lane = found
                if lane.offset != read_i64(p, at + 20) or lane.room <= 0:
                    break
                count = find_hashes(
                    p, topic_at + p[topic_at - 1] + 2, at + size, lane.prefix, with_keys, out, _HASHES_MAX
                )
                if count > _HASHES_MAX or written + count > index_room:
                    break
                its_time = read_i64(p, at + 56 + (12 if read_u32(p, at + 36) & 0x10 else 0))
                if count > 0:
                    # A record that met a full disk between index and queue is in the index already.
                    if file.size < 40 or base + at <= read_i64(file.p, 24):
                        break
                    if not put_entries(file.p, file.size, slots, out, count, base + at, its_time):
                        break
                    written += count
                lane.put(base + at, size, out[0])
                store_time = its_time
                at += size
        except Exception as error:
            trouble = error  # for the caller, who must know what is done by then
        finally:
            file.release()
            records.release()
            grown = _close_lanes(opened)
        return at, store_time, written, grown, trouble

    @cython.cfunc
    def _find_lane(
        self,
        p: cython.p_const_uchar,
        at: cython.Py_ssize_t,
        topic_at: cython.Py_ssize_t,
        position: cython.longlong,
        covers: Any,
        opened: list[Any],
    ) -> Any:
        """The lane of a record, open; None when the record is not ordinary."""
        lane: Lane
        name: bytes = take(p, at + 12, at + 16) + take(p, topic_at, topic_at + p[topic_at - 1])
        found = self._lanes.get(name)
        if found is None:
            found = self._learn(name[4:], read_i32(p, at + 12))
            if found is None:
                return None
            if len(self._lanes) >= _LANES_KEPT_MAX:
                self._lanes.clear()
            self._lanes[name] = found
        lane = found
        if lane.queue is None:
            queue = self._find_queue(lane.name)
            # Of the records of a queue only the first ones can be of a topic that was deleted since.
            if queue is None or (covers is not None and covers(*lane.name, position)):
                return None
            lane.open(queue)
            opened.append(lane)
        return lane

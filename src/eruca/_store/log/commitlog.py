"""The commit log: every message of every topic, one record after the other.

There is one writer, the event loop, so there is no append lock. A record never crosses a segment boundary: when it does
not fit, an end-of-segment record fills the rest and the record starts the next segment.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from eruca._ground.clock import Clock
from eruca._ground.config import FlushMode, StoreOptions
from eruca._store.filesystem import Buffer, FileSystem
from eruca._store.log.chain import Chain
from eruca._store.log.segment import Segment
from eruca._wire.record import BLANK_BYTES, Record, RecordView, encode_blank, pack_record, write_record
from eruca.errors import StoreError, StoreFull

# How far ahead of the tail pages are touched in the background: 1 KiB appends cost a third less on touched pages, and
# a bound keeps a new segment from becoming resident memory all at once.
PREFAULT_BYTES = 32 * 1024 * 1024
_ZERO_BYTES = 1024 * 1024


class CommitLog:
    """The chain of records and the place where the next one goes."""

    def __init__(
        self, disk: FileSystem, directory: Path, options: StoreOptions, clock: Clock, executor: Executor | None = None
    ) -> None:
        self.chain = Chain(
            disk,
            directory,
            options.commitlog_segment_bytes,
            durable=True,
            size_key="mappedFileSizeCommitLog",
            executor=executor,
        )
        self._clock = clock
        # A touched page is dirty, so the next sync writes it: with sync flush a whole window would delay an answer,
        # for a saving that is negligible beside a sync.
        self._toucher = executor if options.flush_mode is FlushMode.ASYNC else None
        self._warm: Callable[[Segment], None] | None = None
        if options.warm_segments:
            self._warm = self._warm_whole
        elif self._toucher is not None:
            self._warm = self._warm_window
        # Where the next record goes; everything before it is a record or an end-of-segment record.
        self.tail = 0
        # Readers see records before this position; it equals the tail except with a transient buffer.
        self.readable_end = 0
        # Where copied bytes end; 0 while nothing was copied in.
        self._copied_end = 0
        # The transient buffer, unused while the log is only copied to.
        self._unused_transient: TransientBuffer | None = None
        # With a transient buffer, records wait there before they are written to the file.
        self.transient: TransientBuffer | None = None
        if options.transient_enabled:
            bound = options.transient_pool_size * options.commitlog_segment_bytes
            self.transient = TransientBuffer(self.chain, bound)
        # The longest wait of an append for a segment, in milliseconds: the first sign of a slow disk.
        self.append_wait_ms_max = 0.0
        self._segment: Segment | None = None
        # The segment being written, and where it starts.
        self.buffer: Buffer = bytearray()
        self.segment_start = 0
        self._segment_end = 0
        self._prefaulted = 0

    @property
    def start(self) -> int:
        """Position of the oldest record that is kept."""
        return self.chain.start

    def open_at(self, tail: int) -> None:
        """Continue writing at a position found by recovery."""
        self.tail = self.readable_end = self._copied_end = tail
        segment = self.chain.find(tail)
        self._segment = None
        self.segment_start = self._segment_end = tail
        if segment is not None:
            self._enter(segment)
        else:
            self.chain.prepare_next(self._warm)
        transient = self.transient or self._unused_transient
        if transient is not None:
            transient.start_at(tail)

    def reserve(self, size: int) -> int:
        """Make sure a record of this size fits at the tail, rolling to the next segment if not; returns its position.

        May raise (a full or broken disk); then nothing has been written and the next call starts afresh.
        """
        tail = self.tail
        if tail + size + BLANK_BYTES <= self._segment_end:
            return tail
        if size + BLANK_BYTES > self.chain.segment_bytes:
            raise StoreFull(
                f"a record of {size} bytes does not fit in a segment of {self.chain.segment_bytes}",
                hint="mappedFileSizeCommitLog is too small for maxMessageSize",
            )
        following = self._get_segment(self._segment_end)
        if tail == self._segment_end:
            self._enter(following)  # an empty chain, or a replica's copy ended exactly here
            return tail
        blank = encode_blank(self._segment_end - tail)
        if self.transient is not None:
            self.transient.append(blank)
            self.transient.skip_to(self._segment_end)
        else:
            self.buffer[tail - self.segment_start : tail - self.segment_start + BLANK_BYTES] = blank
        self.tail = following.start
        if self.transient is None:
            self.readable_end = self.tail
        self._enter(following)
        return self.tail

    def append(self, message: Record, topic: bytes, size: int) -> None:
        """Write the record of a message, `size` bytes, at the tail; sets the message's position and size.

        Only making room can fail, so after a `reserve` this cannot.
        """
        tail = self.tail
        end = tail + size
        if end + BLANK_BYTES > self._segment_end:
            tail = self.reserve(size)
            end = tail + size
        message.position = tail
        message.size = size
        if self.transient is not None:
            self.write(pack_record(message, topic, size))
            return
        write_record(self.buffer, tail - self.segment_start, message, topic, size)
        self.tail = self.readable_end = end
        if end > self._prefaulted:
            self._prefault()

    def append_batch(self, messages: list[Record], topic: bytes, sizes: list[int]) -> None:
        """Write the records of messages consecutively in one segment; on an error none of them is stored."""
        position = self.reserve(sum(sizes))
        start = self.segment_start
        packed: list[bytes] = []
        try:
            for message, size in zip(messages, sizes, strict=True):
                message.position = position
                message.size = size
                if self.transient is not None:
                    packed.append(pack_record(message, topic, size))
                else:
                    write_record(self.buffer, position - start, message, topic, size)
                position += size
        except BaseException:
            if self.transient is None:  # otherwise a start would find the first records of a refused batch
                self.buffer[self.tail - start : position - start] = bytes(position - self.tail)
            raise
        if self.transient is not None:
            self.write(b"".join(packed))
            return
        self.tail = self.readable_end = position
        if position > self._prefaulted:
            self._prefault()

    def find_run(self, size: int) -> tuple[Buffer, int, int]:
        """Make room for consecutive records; returns the buffer, their place in it, and their position."""
        position = self.reserve(size)
        return self.buffer, position - self.segment_start, position

    def add_run(self, size: int) -> None:
        """Count records that were written where `find_run` returned."""
        self.tail = self.readable_end = self.tail + size
        if self.tail > self._prefaulted:
            self._prefault()

    def write(self, data: bytes) -> None:
        """Write bytes that `reserve` made room for. Cannot fail."""
        tail = self.tail
        end = tail + len(data)
        if self.transient is not None:
            self.transient.append(data)
            self.tail = end
            return
        start = self.segment_start
        self.buffer[tail - start : end - start] = data
        self.tail = self.readable_end = end
        if end > self._prefaulted:
            self._prefault()

    @property
    def written_end(self) -> int:
        """Everything before it is in the files; it is beyond readable_end while records are not dispatched."""
        return max(self.readable_end, self._copied_end)

    def begin_copy(self) -> None:
        """Allow raw bytes to be copied in from now on; they bypass the transient buffer, which must be empty."""
        if self.transient is not None:
            self._unused_transient, self.transient = self.transient, None

    def end_copy(self) -> None:
        """Append records again."""
        if self._unused_transient is not None:
            self.transient, self._unused_transient = self._unused_transient, None
            self.transient.start_at(self.tail)

    def start_copy_at(self, position: int) -> None:
        """Begin a log without records at any position: a replica's copy starts where its master does."""
        if self.tail:
            raise StoreError(f"bytes for {position} cannot be copied in: the log ends at {self.tail}")
        chain = self.chain
        chain.settle()
        chain.remove_from(0)
        chain.disk.sync_directory(chain.directory)  # with both files on the disk, the store would not open
        segment = self._get_segment(position)
        self.tail = self.readable_end = self._copied_end = position
        self._enter(segment)

    def copy_in(self, data: memoryview) -> int:
        """Write raw log bytes at the tail, as a replica does, up to the end of its segment; returns how many fitted.

        Readers do not see them before `show_copied`.
        """
        tail = self.tail
        if tail == self._segment_end:
            self._enter(self._get_segment(tail))
        taken = min(len(data), self._segment_end - tail)
        at = tail - self.segment_start
        self.buffer[at : at + taken] = data[:taken]
        self.tail = self._copied_end = tail + taken
        if self.tail > self._prefaulted:
            self._prefault()
        return taken

    def show_copied(self, end: int) -> None:
        """Make copied bytes before a position, which is a record boundary, visible to readers."""
        self.readable_end = end

    def drop_copied(self) -> None:
        """Remove copied bytes after readable_end, leaving zeros."""
        start = self.readable_end
        if self._copied_end <= start:
            return
        for segment in self.chain.from_position(start):
            for at in range(max(start, segment.start), min(self._copied_end, segment.end), _ZERO_BYTES):
                low, high = at - segment.start, min(at + _ZERO_BYTES, self._copied_end, segment.end) - segment.start
                segment.buffer[low:high] = bytes(high - low)
        self.tail = self._copied_end = start
        found = self.chain.find(start)
        if found is not None and found is not self._segment:
            self._enter(found)

    def sync_tail(self) -> None:
        """Return when the segment of the tail is on the disk, including bytes after the tail; may run in a thread."""
        segment = self.chain.find(self.tail)
        if segment is not None:
            segment.mapping.sync()

    def read_bytes(self, begin: int, end: int) -> bytes | None:
        """A copy of the log between two positions, records or not; None when it is not (or no longer) there."""
        if not self.start <= begin <= end <= self.written_end:
            return None
        parts: list[memoryview] = []
        for segment in self.chain.from_position(begin):
            low, high = max(begin, segment.start), min(end, segment.end)
            if low < high:
                parts.append(segment.view(low, high - low))
        return b"".join(parts)

    def view(self, position: int, length: int) -> memoryview | None:
        """Readable bytes at a position without a copy, or None when they are not (or no longer) there."""
        if position < 0 or length < 0 or position + length > self.readable_end:
            return None
        segment = self.chain.find(position)
        if segment is None or position + length > segment.end:
            return None
        return segment.view(position, length)

    def view_record(self, position: int) -> memoryview | None:
        """The record that starts at a position, visible to readers or not; None when none does."""
        segment = self.chain.find(position)
        if segment is None:
            return None
        view = segment.inspect(position)
        return segment.view(position, view.size) if type(view) is RecordView else None

    def read_time(self, position: int) -> int:
        """When the record at a position was stored, visible to readers or not; -1 when none starts there."""
        segment = self.chain.find(position)
        view = None if segment is None else segment.inspect(position)
        return view.store_timestamp if type(view) is RecordView else -1

    def prefetch(self, begin: int, bytes_max: int) -> tuple[int, Callable[[], None]] | None:
        """The end of a stretch of a segment, and a function for a thread that reads it into memory; None at the end."""
        segment = self.chain.find(begin)
        if segment is None:
            return None
        end = min(begin + bytes_max, segment.end)
        return end, partial(segment.mapping.prefetch, begin - segment.start, end - segment.start)

    @property
    def waiting_bytes(self) -> int | None:
        """Bytes waiting in the transient buffer; None without one."""
        return None if self.transient is None else self.transient.waiting_bytes

    def view_segment(self, position: int) -> tuple[int, int, memoryview]:
        """The readable part of the segment that holds a position: where it starts and ends, and its bytes."""
        segment = self.chain.find(position)
        if segment is None:
            return 0, -1, memoryview(b"")
        end = segment.end
        return segment.start, end if end < self.readable_end else self.readable_end, memoryview(segment.buffer)

    def commit(self) -> int:
        """Write the content of the transient buffer to the file; returns the position readable after that."""
        if self.transient is not None:
            self.readable_end = self._copied_end = self.transient.commit()
        return self.readable_end

    # -- inside ------------------------------------------------------------------------------------------------------

    def _get_segment(self, position: int) -> Segment:
        before = self._clock.monotonic()
        segment = self.chain.segment_for(position)
        waited = (self._clock.monotonic() - before) * 1000
        self.append_wait_ms_max = max(self.append_wait_ms_max, waited)
        return segment

    def _enter(self, segment: Segment) -> None:
        self._segment = segment
        self.buffer = segment.buffer
        self.segment_start = segment.start
        self._segment_end = segment.end
        self._prefaulted = max(self.tail, self.segment_start)
        if segment.end == self.chain.end:
            self.chain.prepare_next(self._warm)
        self._prefault()

    def _prefault(self) -> None:
        """Touch the next window in the background when the tail approaches the end of the last one."""
        segment = self._segment
        if segment is None or self._toucher is None:
            self._prefaulted = self._segment_end
            return
        start = max(self.tail, self._prefaulted) - segment.start
        end = min(segment.size, start + PREFAULT_BYTES)
        self._prefaulted = segment.start + (start + end) // 2 if end < segment.size else segment.end
        self._toucher.submit(segment.mapping.populate, start, end)

    @staticmethod
    def _warm_window(segment: Segment) -> None:
        segment.mapping.populate(0, PREFAULT_BYTES)

    @staticmethod
    def _warm_whole(segment: Segment) -> None:
        segment.mapping.populate(0, segment.size)


class TransientBuffer:
    """Records in memory that a timer commits to the file, so that a burst never waits for a page of the file.

    Its content is lost when the process dies, so it is only used with async flush.
    """

    def __init__(self, chain: Chain, bytes_max: int) -> None:
        self._chain = chain
        self._bytes_max = bytes_max
        # Runs of bytes, each with its start position: a new run begins after an end-of-segment record.
        self._runs: list[tuple[int, bytearray]] = []
        self.waiting_bytes = 0

    def start_at(self, position: int) -> None:
        """Begin empty at a position."""
        self._runs = [(position, bytearray())]
        self.waiting_bytes = 0

    def check_room(self, size: int) -> None:
        """Refuse when the file does not keep up and the limit on waiting bytes is reached."""
        if self.waiting_bytes + size > self._bytes_max:
            raise StoreFull(
                f"{self.waiting_bytes} bytes are waiting in the transient buffer",
                hint="the disk is too slow for this load; raise transientStorePoolSize or send less",
            )

    def append(self, data: bytes) -> None:
        """Add bytes that directly follow the last ones."""
        self._runs[-1][1].extend(data)
        self.waiting_bytes += len(data)

    def skip_to(self, position: int) -> None:
        """Continue at the start of the next segment."""
        self._runs.append((position, bytearray()))

    def commit(self) -> int:
        """Write everything to the file. A short write is continued; after an error, unwritten bytes are kept."""
        while True:
            start, data = self._runs[0]
            segment = self._chain.segment_for(start) if data else None
            while data and segment is not None:
                with memoryview(data) as view:
                    taken = segment.mapping.write(start - segment.start, view)
                del data[:taken]
                start += taken
                self.waiting_bytes -= taken
                self._runs[0] = (start, data)
            if len(self._runs) == 1:
                return start
            self._runs.pop(0)

"""Limits how many files of consume queues are mapped at a time.

A store may have 40,000 queues, most of them idle, and the system limits the number of mappings (vm.max_map_count,
65,530 by default). So a queue's file is mapped when it is used, and the least recently used files are unmapped. A
mapping that is still being read stays until the read is done.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from eruca._ground.limits import MAPPED_QUEUES_MAX
from eruca._store.filesystem import Buffer, FileSystem, Mapping
from eruca._store.log.segment import Segment


class MapPool:
    """Keeps the number of mapped queue files below a bound."""

    def __init__(self, files_max: int = MAPPED_QUEUES_MAX) -> None:
        self._files_max = files_max
        # In the order they were mapped. Both the loop and the flush thread map files. Not plain dicts: finding a dict's
        # first key takes longer the more keys before it were deleted.
        self._mapped: OrderedDict[PooledSegment, None] = OrderedDict()
        self._writers: OrderedDict[Callable[[], None], None] = OrderedDict()
        self._guard = threading.Lock()

    def add(self, segment: PooledSegment) -> None:
        """A segment was mapped; another one may have to be unmapped."""
        with self._guard:
            self._mapped[segment] = None
            while len(self._mapped) > self._files_max:
                oldest, _ = self._mapped.popitem(last=False)
                if oldest.was_used and oldest is not segment:
                    oldest.was_used = False  # a second chance: it was used since it was mapped or last passed over
                    self._mapped[oldest] = None
                else:
                    oldest.unmap()

    def forget(self, segment: PooledSegment) -> None:
        """A segment is closed."""
        with self._guard:
            self._mapped.pop(segment, None)

    def add_writer(self, release: Callable[[], None]) -> None:
        """A queue holds the buffer of its last file; `release` is called when it must let go of it.

        Only the thread that writes to queues calls this, so a queue is never interrupted in the middle of a write.
        """
        self._writers[release] = None
        self._writers.move_to_end(release)
        if len(self._writers) > self._files_max:
            self._writers.popitem(last=False)[0]()


class PooledSegment(Segment):
    """A segment that is mapped on first access to its bytes."""

    __slots__ = ("_disk", "_mapping", "_pool", "_writable", "was_used")

    def __init__(
        self,
        disk: FileSystem,
        path: Path,
        start: int,
        size: int,
        pool: MapPool,
        *,
        writable: bool = True,
        mapping: Mapping | None = None,
    ) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.end = start + size
        self.allocated_end = 0
        self.was_used = True
        self._disk = disk
        self._pool = pool
        self._writable = writable
        self._mapping = mapping
        if mapping is not None:
            pool.add(self)

    @property
    def mapping(self) -> Mapping:  # type: ignore[override]
        """The mapped file."""
        self.was_used = True
        mapping = self._mapping
        if mapping is None:
            mapping = self._mapping = self._disk.map(self.path, writable=self._writable)
            self._pool.add(self)
        return mapping

    @property
    def buffer(self) -> Buffer:  # type: ignore[override]
        """The bytes of the file."""
        self.was_used = True
        mapping = self._mapping
        return self.mapping.buffer if mapping is None else mapping.buffer

    def unmap(self) -> None:
        """Unmap as soon as no reader is left; the next use maps the file again."""
        self._mapping = None

    def close(self) -> None:
        """Close the file."""
        self._pool.forget(self)
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            mapping.close()

"""A segment: one file of fixed size in a chain."""

from __future__ import annotations

from pathlib import Path

from eruca._store.filesystem import Buffer, Mapping
from eruca._wire.record import Inspection, inspect_record


class Segment:
    """One file of a chain."""

    __slots__ = ("allocated_end", "buffer", "end", "mapping", "path", "size", "start")

    def __init__(self, path: Path, start: int, mapping: Mapping, *, allocated: bool) -> None:
        self.path = path
        self.start = start
        self.size = mapping.size
        self.end = start + mapping.size
        self.mapping = mapping
        self.buffer: Buffer = mapping.buffer
        self.allocated_end = mapping.size if allocated else 0

    def view(self, position: int, length: int) -> memoryview:
        """The bytes at a position of the chain, without a copy."""
        at = position - self.start
        return memoryview(self.buffer)[at : at + length]

    def inspect(self, position: int) -> Inspection:
        """Return what is at a position of the chain, if it is a commit log; bodies are not checked."""
        return inspect_record(self.buffer, position - self.start, self.size, False, position)

    def ensure_allocated(self, end: int, step: int) -> None:
        """Reserve blocks up to `end` (an offset in the file), `step` bytes at a time."""
        if end > self.allocated_end:
            goal = min(self.size, max(end, self.allocated_end + step))
            self.mapping.allocate(self.allocated_end, goal)
            self.allocated_end = goal

    def close(self) -> None:
        """Close the file."""
        self.mapping.close()

    def list_written(self, at: int, step: int) -> list[tuple[int, int]]:
        """Ranges from a place on that may have been written, each at most `step` long: most of a segment never was.

        All ranges are queried before any of them is read. The kernel reads ahead, and empty pages it has read count as
        written from then on: alternating queries and reads would continue to the end of the segment.
        """
        found: list[tuple[int, int]] = []
        while at < self.size:
            at = self.mapping.next_data(at)
            stop = min(self.size, at + step)
            if at < stop:
                found.append((at, stop))
            at = stop
        return found

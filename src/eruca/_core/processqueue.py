"""The messages of one queue from pull to completion: what is cached, and up to where everything is done.

Messages arrive in the order of their offsets and are started in that order; they may finish in any order. The offset to
commit is that of the first unfinished one, so that a crash repeats messages but never skips one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Cached(Protocol):
    """What the queue needs to know about a message."""

    queue_offset: int
    size: int


Item = TypeVar("Item", bound=Cached)


class ProcessQueue(Generic[Item]):
    """Messages of one queue that are not done yet."""

    __slots__ = ("_done", "_end", "_expected", "_open", "_sizes", "bytes")

    def __init__(self) -> None:
        # Offsets in order of arrival, from the first that is not done; later ones that are done are in _done.
        self._open: deque[int] = deque()
        self._sizes: dict[int, int] = {}
        self._done: set[int] = set()
        # Ranges of offsets that another consumer has finished, and that have not arrived here.
        self._expected: deque[tuple[int, int]] = deque()
        # The offset after the last message that ever arrived; negative when none did.
        self._end = -1
        self.bytes = 0

    @property
    def count(self) -> int:
        """How many messages are here and not done."""
        return len(self._sizes)

    def put(self, items: list[Item]) -> list[Item]:
        """Add pulled messages; returns those to work on. A message that arrived before is not added twice."""
        if items and items[0].queue_offset < self._end:
            items = [item for item in items if item.queue_offset >= self._end]
        if items:
            if self._expected:
                return self._put_expected(items)
            sizes = {item.queue_offset: item.size for item in items}
            self._open.extend(sizes)
            self._sizes.update(sizes)
            self.bytes += sum(sizes.values())
            self._end = items[-1].queue_offset + 1
        return items

    def _put_expected(self, fresh: list[Item]) -> list[Item]:
        """Add messages of which some are done already."""
        left = []
        opened, done = self._open, self._done
        for item in fresh:
            offset = item.queue_offset
            self._end = offset + 1
            opened.append(offset)
            if self._is_expected(offset):
                done.add(offset)
                continue
            self._sizes[offset] = item.size
            self.bytes += item.size
            left.append(item)
        while opened and opened[0] in done:
            done.discard(opened.popleft())
        return left

    def _is_expected(self, offset: int) -> bool:
        expected = self._expected
        while expected and expected[0][1] <= offset:
            expected.popleft()
        return bool(expected) and expected[0][0] <= offset

    def finish(self, offset: int) -> bool:
        """Mark a message as done; False when it is not (or no longer) here."""
        size = self._sizes.pop(offset, None)
        if size is None:
            return False
        self.bytes -= size
        opened, done = self._open, self._done
        if opened[0] != offset:
            done.add(offset)
            return True
        opened.popleft()
        while done and opened[0] in done:
            done.discard(opened.popleft())
        return True

    def is_open(self, offset: int) -> bool:
        """Is a message here and not done?"""
        return offset in self._sizes

    def skip_to(self, offset: int) -> None:
        """Nothing below an offset will arrive anymore: the filter dropped it all."""
        self._end = max(self._end, offset)

    def expect_done(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take messages in these ranges for done when they arrive; `ranges` are ascending, and replace earlier ones."""
        self._expected = deque(ranges)

    @property
    def expects_done(self) -> bool:
        """Whether messages that are done already may still arrive."""
        return bool(self._expected)

    def list_done(self) -> list[tuple[int, int]]:
        """Return what is done behind the offset to commit: ranges, each with its first offset and that after its last.

        Offsets between two messages that are done belong to a range too if nothing in between has arrived.
        """
        ranges: list[tuple[int, int]] = []
        first = last = -1
        for offset in self._open if self._done else ():
            if offset in self._done:
                first, last = offset if first < 0 else first, offset
            elif first >= 0:
                ranges.append((first, last + 1))
                first = -1
        if first >= 0:
            ranges.append((first, last + 1))
        return ranges + [(max(begin, self._end), end) for begin, end in self._expected if end > self._end]

    @property
    def commit_offset(self) -> int | None:
        """Where a consumer must continue after a crash; None when nothing has arrived yet."""
        if self._open:
            return self._open[0]
        return self._end if self._end >= 0 else None

    @property
    def first_open(self) -> int | None:
        """The first offset that is not done; None when all are."""
        return self._open[0] if self._open else None

    @property
    def last_open(self) -> int | None:
        """The last offset that arrived, while anything is not done."""
        return self._open[-1] if self._open else None

    @property
    def span(self) -> int:
        """The distance between the first and the last offset that are not done."""
        return self._open[-1] - self._open[0] if self._open else 0

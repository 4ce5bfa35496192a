"""The messages of one queue from pull to completion: what is cached, and up to where everything is done.

Messages arrive in the order of their offsets and are started in that order; they may finish in any order. The offset to
commit is that of the first unfinished one, so that a crash repeats messages but never skips one.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar


class Cached(Protocol):
    """What the queue needs to know about a message."""

    queue_offset: int
    size: int


Item = TypeVar("Item", bound=Cached)


class ProcessQueue(Generic[Item]):
    """Messages of one queue that are not done yet."""

    __slots__ = ("_done", "_end", "_open", "_sizes", "bytes")

    def __init__(self) -> None:
        # Offsets in order of arrival, from the first that is not done; later ones that are done are in _done.
        self._open: deque[int] = deque()
        self._sizes: dict[int, int] = {}
        self._done: set[int] = set()
        # The offset after the last message that ever arrived; negative when none did.
        self._end = -1
        self.bytes = 0

    @property
    def count(self) -> int:
        """How many messages are here and not done."""
        return len(self._sizes)

    def put(self, items: list[Item]) -> list[Item]:
        """Add pulled messages; returns the new ones. A message that arrived before is not added twice."""
        if items and items[0].queue_offset < self._end:
            items = [item for item in items if item.queue_offset >= self._end]
        if items:
            sizes = {item.queue_offset: item.size for item in items}
            self._open.extend(sizes)
            self._sizes.update(sizes)
            self.bytes += sum(sizes.values())
            self._end = items[-1].queue_offset + 1
        return items

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

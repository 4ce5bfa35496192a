"""When deliveries run out: buckets of an eighth of a second, in order.

A delivery that is settled before stays in its bucket until most of the bucket is settled, so that removing one costs
the same however many there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, Protocol

#: The width of a bucket; a delivery runs out at most this much late.
BUCKET_MS: Final = 125
_CROWD: Final = 64


class Timed(Protocol):
    """Something that runs out."""

    due_ms: int

    @property
    def is_over(self) -> bool:
        """Whether it no longer waits."""


class _Bucket:
    __slots__ = ("items", "over")

    def __init__(self) -> None:
        self.items: list[Timed] = []
        self.over = 0


class DueTimes:
    """Deliveries by the time at which they run out."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._order: list[int] = []

    def add(self, item: Timed) -> None:
        """Something begins to wait."""
        number = item.due_ms // BUCKET_MS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = _Bucket()
            heapq.heappush(self._order, number)
        bucket.items.append(item)

    def remove(self, item: Timed) -> None:
        """Something is over before its time."""
        bucket = self._buckets.get(item.due_ms // BUCKET_MS)
        if bucket is None:
            return
        bucket.over += 1
        if bucket.over >= len(bucket.items):
            bucket.items.clear()
            bucket.over = 0
        elif len(bucket.items) > _CROWD and bucket.over * 2 > len(bucket.items):
            bucket.items = [each for each in bucket.items if not each.is_over]
            bucket.over = 0

    @property
    def next_ms(self) -> int | None:
        """When the first bucket is due; it may be empty."""
        return (self._order[0] + 1) * BUCKET_MS if self._order else None

    def take(self, now_ms: int) -> Iterator[Timed]:
        """Iterate over what ran out, and remove it."""
        while self._order and (self._order[0] + 1) * BUCKET_MS <= now_ms:
            bucket = self._buckets[self._order[0]]
            while bucket.items:
                item = bucket.items.pop()
                if item.is_over:
                    bucket.over -= 1
                else:
                    yield item
            del self._buckets[heapq.heappop(self._order)]

"""Which records of a log are still needed: those that wrote the current state of something.

Records are counted in pages. The first page with something in it is where a reader of the log has to begin, so whoever
writes the log stores again what is in pages that are far behind, and drops them.
"""

from __future__ import annotations

from typing import Final

#: Records of a page.
PAGE_RECORDS: Final = 256
# Below this many references, those to dead things are not removed.
_CROWD: Final = 64


class Kept:
    """Something whose state is in one record of the log."""

    __slots__ = ("page",)

    def __init__(self) -> None:
        #: The page of the record; -1: none.
        self.page = -1


class _Page:
    __slots__ = ("live", "since_ms", "things")

    def __init__(self, since_ms: int) -> None:
        self.things: list[Kept] = []
        self.live = 0
        self.since_ms = since_ms


class Pages:
    """The pages from the first one that is needed."""

    def __init__(self, low: int = 0) -> None:
        self._pages: dict[int, _Page] = {}
        # No page before it has anything.
        self._low = low // PAGE_RECORDS

    def __len__(self) -> int:
        return len(self._pages)

    def keep(self, thing: Kept, at: int, now_ms: int) -> None:
        """The state of something was written to the record at an offset."""
        number = at // PAGE_RECORDS
        if thing.page == number:
            return
        self.drop(thing)
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = _Page(now_ms)
        page.things.append(thing)
        page.live += 1
        thing.page = number

    def drop(self, thing: Kept) -> None:
        """Something is gone, or its state is about to be written again."""
        number, thing.page = thing.page, -1
        if number < 0:
            return
        page = self._pages[number]
        page.live -= 1
        if not page.live:
            del self._pages[number]
        elif len(page.things) > max(_CROWD, 2 * page.live):
            page.things = [each for each in page.things if each.page == number]

    def find_low(self, end: int) -> int:
        """Return the offset of the first record that is needed, or `end` where nothing is."""
        last = end // PAGE_RECORDS
        while self._low < last and self._low not in self._pages:
            self._low += 1
        return min(end, self._low * PAGE_RECORDS) if self._pages else end

    def list_oldest(self, end: int) -> tuple[list[Kept], int]:
        """Return what is in the first page, and since when it is there; nothing if there is no page."""
        number = self.find_low(end) // PAGE_RECORDS
        page = self._pages.get(number)
        if page is None:
            return [], 0
        return [each for each in page.things if each.page == number], page.since_ms

"""What is at a place of the log: a record, the end of a segment, or neither; and where the next record is."""

from __future__ import annotations

from collections.abc import Iterator

from eruca._store.filesystem import Buffer
from eruca._wire.record import (
    BLANK_BYTES,
    BLANK_HEAD,
    BLANK_MAGIC,
    RECORD_MAGIC,
    Inspection,
    InvalidView,
    RecordView,
    find_record,
    inspect_record,
)

# The unit a disk writes atomically: after a power loss each of these is old or new.
_SECTOR_BYTES = 512
_ZEROS_OF_SIZE = 3


class RecordCursor:
    """Inspects bytes that begin at a position of the log. Use one cursor for a whole walk from front to end.

    Topic and properties come last in a record and have no checksum. So a record whose last sectors were lost in a power
    failure can look whole, with zeros instead of text. A doubting cursor does not accept such a record.
    """

    __slots__ = ("_base", "_buffer", "_check_crc", "_doubting", "_growing", "_judged_cut", "_judged_end", "_size")

    def __init__(
        self,
        buffer: Buffer,
        size: int,
        base: int,
        *,
        check_crc: bool = False,
        doubting: bool = True,
        growing: bool = False,
    ) -> None:
        """Nothing is read from `size` on; `growing` means that more bytes will follow there."""
        self._buffer = buffer
        self._size = size
        self._base = base
        self._check_crc = check_crc
        self._doubting = doubting
        self._growing = growing
        # Consecutive records that end in a zero byte are judged together, by what follows the last one.
        self._judged_end = -1
        self._judged_cut = False

    def look(self, at: int) -> Inspection:
        """Return what is at a place."""
        view = inspect_record(self._buffer, at, self._size, self._check_crc, self._base + at)
        if self._doubting and type(view) is RecordView and self.is_cut_short(view):
            return InvalidView("its topic or properties are zeros that were never overwritten")
        return view

    def find(self, at: int, stop: int | None = None) -> int:
        """The place of the first record with a good body, from `at` on and before `stop`; -1 when there is none."""
        while (at := find_record(self._buffer, at, self._size, self._base, stop)) >= 0:
            if type(self.look(at)) is RecordView:
                break
            at += 1
        return at

    def iter_records(self) -> Iterator[tuple[RecordView, int]]:
        """Each record and its place; anything that is neither a record nor the end of a segment is skipped."""
        at = 0
        while 0 <= at < self._size:
            view = self.look(at)
            if type(view) is RecordView:
                yield view, at
            at = self.find(at + 1) if isinstance(view, InvalidView) else at + view.size

    def is_cut_short(self, view: RecordView) -> bool:
        """Was the end of a record never written, although its lengths add up and its body has the right CRC?

        The store never writes properties that end in a zero byte (`MessageStore` adds a separator). A record of another
        writer may end that way, and then a good record follows it, unless it is the very last.
        """
        if view.properties_end <= self._judged_end:
            return self._judged_cut
        buffer, size = self._buffer, self._size
        is_cut = False
        while not (is_cut := _has_lost_sector(buffer, view)) and _ends_in_zero(buffer, view):
            end = view.properties_end
            if self._growing:  # a part of the next record is enough; bytes beyond the end are unknown
                known = size - end >= BLANK_BYTES
                is_cut = known and BLANK_HEAD.unpack_from(buffer, end)[1] not in (RECORD_MAGIC, BLANK_MAGIC)
                break
            following = inspect_record(buffer, end, size, True, self._base + end)
            if type(following) is not RecordView:
                is_cut = type(following) is InvalidView
                break
            view = following
        self._judged_end, self._judged_cut = view.properties_end, is_cut
        return is_cut


def _ends_in_zero(buffer: Buffer, view: RecordView) -> bool:
    """Is the last byte of a record's properties zero, or of its topic if it has no properties?"""
    end = view.properties_end
    return not buffer[end - 1 if end > view.properties_at else view.properties_at - 3]


def _has_lost_sector(buffer: Buffer, view: RecordView) -> bool:
    """Is a whole sector of a record's topic or properties zero, perhaps including the first zeros of the next size?"""
    end = view.properties_end
    at = -(-(view.body_end + 1) // _SECTOR_BYTES) * _SECTOR_BYTES
    while at + _SECTOR_BYTES <= end + _ZEROS_OF_SIZE:
        if not any(buffer[at : min(end, at + _SECTOR_BYTES)]):
            return True
        at += _SECTOR_BYTES
    return False

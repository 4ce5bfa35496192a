"""Checking the index against the log: its entries are in log order, so both are read side by side."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from eruca._store.log.scan import Damage
from eruca._store.queues.indexfile import HEADER_BYTES, SLOT_BYTES, IndexFile
from eruca._storetools.readonly import Kind, ReadOnlyStore

_HINT = "`eruca store rebuild` rebuilds it from the commit log"
# Times are stored as whole seconds since that of the first entry.
_SECONDS_OFF_MAX = 1
_SECONDS_MAX = 2**31 - 1


class _Entry(NamedTuple):
    file: IndexFile
    number: int
    key_hash: int
    position: int
    seconds: int


class IndexCheck:
    """Reads all index files once, in step with the records of a walk over the log."""

    def __init__(self, store: ReadOnlyStore, damage: list[Damage]) -> None:
        self._findings = store.findings
        self._paths = store.paths
        self._aborted = store.aborted
        self._log_start = store.log_start
        # Grows while the log is walked.
        self._damage = damage
        self._unindexed = 0
        self._unindexed_from = 0
        self._last_position = -1
        self._source = self._read_files(store)
        self._ahead = next(self._source, None)
        self._head: _Entry | None = None
        self._advance()

    # -- in step with the log ----------------------------------------------------------------------------------------

    def see(self, position: int, hashes: list[int], store_time: int) -> None:
        """Process the next record of the log that has keys."""
        while self._head is not None and self._head.position < position:
            self._note_stray(self._head)
            self._advance()
        found: set[int] = set()
        while self._head is not None and self._head.position == position:
            entry = self._head
            if entry.key_hash not in hashes:
                self._note(entry, f"the record at {position} has no key with hash {entry.key_hash}")
            else:
                found.add(entry.key_hash)
                self._check_time(entry, store_time)
            self._advance()
        # After the last entry: a running broker has not indexed the record yet, or the next start will.
        if len(found) < len(set(hashes)) and (self._head is not None or not self._aborted):
            if not self._unindexed:
                self._unindexed_from = position
            self._unindexed += 1

    def finish(self, log_end: int) -> None:
        """Check what is left at the end of the log."""
        while self._head is not None:
            if self._head.position >= log_end and self._aborted:
                self._findings.add_warning(
                    Kind.INDEX,
                    self._head.file.path,
                    f"entry {self._head.number}: position {self._head.position} is beyond the end of the log",
                    hint="the next start repairs it",
                )
            else:
                self._note_stray(self._head)
            self._advance()
        if self._unindexed:
            # A Java broker drops part of its index after a crash, so this is not damage.
            self._findings.add_warning(
                Kind.INDEX,
                self._paths.index,
                f"{self._unindexed} records cannot be found by key, the first at {self._unindexed_from}",
                position=self._unindexed_from,
                hint=_HINT,
            )

    def _advance(self) -> None:
        """Read the next entry; one that is out of order is reported and skipped, so that it cannot hide the others."""
        while True:
            self._head, self._ahead = self._ahead, next(self._source, None)
            head = self._head
            if head is None:
                return
            if head.position < self._last_position or (
                self._ahead is not None and self._last_position <= self._ahead.position < head.position
            ):
                self._note(head, f"position {head.position} is out of order")
                continue
            self._last_position = head.position
            if head.position >= self._log_start:
                return  # otherwise its segment expired and was deleted

    def _check_time(self, entry: _Entry, store_time: int) -> None:
        # The first entry of a file may count from the start time of the previous file.
        expected = min(_SECONDS_MAX, max(0, (store_time - entry.file.begin_time) // 1000))
        if entry.number > 1 and abs(entry.seconds - expected) > _SECONDS_OFF_MAX:
            self._note(entry, f"{entry.seconds} seconds after the first entry, expected {expected} from its record")

    def _note_stray(self, entry: _Entry) -> None:
        if not any(item.position <= entry.position < item.end for item in self._damage):
            self._note(entry, f"no record with a key starts at position {entry.position}")

    def _note(self, entry: _Entry, reason: str) -> None:
        self._findings.add_error(
            Kind.INDEX, entry.file.path, f"entry {entry.number}: {reason}", position=entry.position, hint=_HINT
        )

    # -- the files themselves ----------------------------------------------------------------------------------------

    def _read_files(self, store: ReadOnlyStore) -> Iterator[_Entry]:
        for file, count in zip(store.index_files, store.index_counts, strict=True):
            yield from self._read_file(file, count)

    def _read_file(self, file: IndexFile, count: int) -> Iterator[_Entry]:
        """Each entry of a file; the hash chains are followed as they were built, so a cycle cannot be missed."""
        newest = array("i", bytes(4 * file.slots))
        for number in range(1, count):
            key_hash, position, seconds, previous = file.entry(number)
            entry = _Entry(file, number, key_hash, position, seconds)
            slot = key_hash % file.slots
            if key_hash < 0:
                self._note(entry, f"key hash {key_hash} is negative")
            elif previous != newest[slot]:
                self._note(entry, f"its chain continues at entry {previous} instead of {newest[slot]}")
            newest[slot] = number
            yield entry
        self._check_slots(file, newest, count)

    def _check_slots(self, file: IndexFile, newest: array[int], count: int) -> None:
        slots = array("i", bytes(memoryview(file.buffer)[HEADER_BYTES : HEADER_BYTES + file.slots * SLOT_BYTES]))
        if sys.byteorder == "little":
            slots.byteswap()
        if slots == newest:
            self._check_header(file, count, sum(1 for number in newest if number))
            return
        for slot, (found, expected) in enumerate(zip(slots, newest, strict=True)):
            # A running broker may have written more since the entries were counted.
            if found != expected and not (self._aborted and found >= count):
                self._findings.add_error(
                    Kind.INDEX,
                    file.path,
                    f"slot {slot} points to entry {found}, the newest of its chain is {expected}",
                    hint=_HINT,
                )

    def _check_header(self, file: IndexFile, count: int, used: int) -> None:
        if count <= 1:
            return
        first, last = file.entry(1), file.entry(count - 1)
        says = (file.used_slots, file.begin_position, file.end_position)
        # A running broker may have written more since the entries were counted.
        if says != (used, first[1], last[1]) and file.next_entry == count:
            self._findings.add_error(
                Kind.INDEX,
                file.path,
                f"the header has {says[0]} slots and positions {says[1]} to {says[2]}, "
                f"the entries have {used} and {first[1]} to {last[1]}",
                hint=_HINT,
            )

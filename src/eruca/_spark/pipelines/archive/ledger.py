"""What an archive contains, and how it is changed in one step.

Each change of an archive is an entry in its ledger, a numbered file that exactly one run can create. Files are first
written to a staging directory; then the entry is written, which lists the files to move and to delete; then they are
moved. A run that dies before the entry has changed nothing; one that dies after it is completed by the next run. So
nothing is ever in the archive twice.

    ARCHIVE/messages/topic=T/date=D/*.parquet      what was archived
    ARCHIVE/bad/reason=R/topic=T/date=D/*.parquet  what was set aside
    ARCHIVE/_eruca/ledger/00000012.json            the entries
    ARCHIVE/_eruca/done.json                       the last entry whose files are all in place
    ARCHIVE/_eruca/staging/RUN/...                 what runs write
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from eruca._ground.badjson import BAD_JSON
from eruca._spark.offsets import Offsets, decode_offsets, encode_offsets
from eruca._spark.pipelines.directories import Directory
from eruca.errors import ConfigError

MESSAGES: Final = "messages"
BAD: Final = "bad"
# How Spark names the directory of rows whose partition column is null: here, those that have no fault.
NO_REASON: Final = "reason=__HIVE_DEFAULT_PARTITION__"
STAGING: Final = "_eruca/staging"
_LEDGER: Final = "_eruca/ledger"
_DONE: Final = "_eruca/done.json"
# Number of entries to keep, as a history.
_KEPT: Final = 100


class Contents(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What an archive contains after an entry."""

    # `parquet` or `delta`.
    format: str = "parquet"
    # How far each queue is archived, as `encode_offsets` writes it.
    offsets: dict[str, Any] = msgspec.field(default_factory=lambda: {"topics": {}})
    # How far the commit log of each broker is archived that was read from its files.
    positions: dict[str, int] = msgspec.field(default_factory=dict)

    def read_offsets(self) -> Offsets:
        """Return how far each queue is archived."""
        return decode_offsets(self.offsets)

    def advance(self, offsets: Offsets, positions: dict[str, int] | None = None) -> Contents:
        """Return contents with advanced queues and logs; none moves back."""
        before = self.read_offsets()
        merged = before | {queue: max(offset, before.get(queue, 0)) for queue, offset in offsets.items()}
        further = self.positions | {
            name: max(position, self.positions.get(name, 0)) for name, position in (positions or {}).items()
        }
        return msgspec.structs.replace(self, offsets=encode_offsets(merged), positions=further)


class Entry(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One change of an archive."""

    generation: int
    # `archive` or `compact`.
    kind: str
    run: str
    contents: Contents
    # From where to where, relative to the archive.
    moves: list[tuple[str, str]] = []
    removes: list[str] = []
    summary: dict[str, Any] = {}


class Ledger:
    """The ledger of one archive."""

    def __init__(self, place: Directory) -> None:
        self._place = place

    def read(self) -> Entry | None:
        """Return the last completed entry; None for an empty archive."""
        done = self._read_done()
        return self._read_entry(done) if done else None

    def find_unfinished(self) -> Entry | None:
        """Return the entry whose files are being moved, or were when a run died."""
        numbers = self._list_numbers()
        return self._read_entry(numbers[-1]) if numbers and numbers[-1] > self._read_done() else None

    def recover(self) -> Entry | None:
        """Complete what an interrupted run left, and return the last entry."""
        unfinished = self.find_unfinished()
        if unfinished is not None:
            self._put_in_place(unfinished)
        return self.read()

    def commit(self, entry: Entry) -> None:
        """Change the archive. Raises ConfigError if another run was faster."""
        last = self.find_unfinished() or self.read()
        created = (last.generation if last else 0) + 1 == entry.generation and self._place.create(
            _name_entry(entry.generation), msgspec.json.format(msgspec.json.encode(entry), indent=1)
        )
        if not created:
            raise ConfigError(
                f"another run has changed {self._place} in the meantime, so nothing of this one was added",
                hint="run it again, one at a time",
            )
        self._put_in_place(entry)

    def _put_in_place(self, entry: Entry) -> None:
        for source, target in entry.moves:
            self._place.move(source, target)
        for path in entry.removes:
            self._place.remove_file(path)
        self._place.replace(_DONE, msgspec.json.encode({"generation": entry.generation}))
        self._place.remove_directory(f"{STAGING}/{entry.run}")
        for number in self._list_numbers()[:-_KEPT]:
            self._place.remove_file(_name_entry(number))

    def _read_done(self) -> int:
        data = self._place.read(_DONE)
        if data is None:
            return 0
        try:
            return msgspec.json.decode(data, type=dict[str, int])["generation"]
        except (*BAD_JSON, KeyError) as error:
            raise ConfigError(f"{_DONE} in {self._place} is unreadable: {error}") from None

    def _read_entry(self, number: int) -> Entry:
        data = self._place.read(_name_entry(number))
        if data is None:
            raise ConfigError(f"{_name_entry(number)} is missing in {self._place}", hint="was it deleted manually?")
        try:
            return msgspec.json.decode(data, type=Entry)
        except BAD_JSON as error:
            raise ConfigError(f"{_name_entry(number)} in {self._place} is unreadable: {error}") from None

    def _list_numbers(self) -> list[int]:
        names = [name.removesuffix(".json") for name in self._place.list_names(_LEDGER) if name.endswith(".json")]
        return sorted(int(name) for name in names if name.isdecimal())


def _name_entry(number: int) -> str:
    return f"{_LEDGER}/{number:08d}.json"

"""Cancelled messages of the timer, in files that are written once: a save writes what is new, not everything.

     0       4       8       12              20              28                              44
    +-------+-------+-------+---------------+---------------+-------------------------------+
    | ETC1  | count |  CRC  |     until     | topic digest  |         key digest            |   an entry, `count` times
    +-------+-------+-------+---------------+---------------+-------------------------------+

The CRC covers all entries. A later file counts more than an earlier one. From time to time one file replaces all
others; if some of those are still there after a crash, they only have what is in it, or what is over.

Topics and keys are digests, because senders choose them: each entry has the same size.
"""

from __future__ import annotations

import hashlib
import logging
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from eruca._store.filesystem import FileSystem, replace_file
from eruca._store.jsonfile import JsonFile
from eruca.errors import StoreError

log = logging.getLogger(__name__)

_HEADER: Final = struct.Struct(">4sII")
_ENTRY: Final = struct.Struct(">q8s16s")
_MAGIC: Final = b"ETC1"
_FILES_MAX: Final = 32
# This many entries may be in the files although none of them counts any more.
_SPARE: Final = 4096
_CONSEQUENCE: Final = "messages that were cancelled may be delivered"


class Cancelled(NamedTuple):
    """A cancelled message, and until when that is remembered."""

    topic: bytes
    key: bytes
    until_ms: int


def digest_topic(topic: str) -> bytes:
    """Return the digest of a topic."""
    return hashlib.blake2b(topic.encode("utf-8", "replace"), digest_size=8).digest()


def digest_key(unique_id: str) -> bytes:
    """Return the digest of the unique id of a message."""
    return hashlib.blake2b(unique_id.encode("utf-8", "replace"), digest_size=16).digest()


class CancelledFiles:
    """The files of one timer. All methods block, and one runs at a time."""

    def __init__(self, disk: FileSystem, directory: Path) -> None:
        """`directory` is that of the timer."""
        self._disk = disk
        self._directory = directory / "cancelled"
        # What an earlier version wrote, with whole names.
        self._old = JsonFile(disk, directory / "cancelled.json", msgspec.json.Decoder(dict[str, int]).decode)
        self._has_old = False
        self._names: list[str] = []
        self._entries = 0
        self._last = 0

    def load(self) -> list[Cancelled]:
        """Read all files, the oldest first; one that is damaged is reported and left out."""
        found = []
        self._has_old = self._old.exists()
        for name, until_ms in self._old.read_or({}, _CONSEQUENCE).items():
            topic, _, key = name.partition(" ")
            found.append(Cancelled(digest_topic(topic), digest_key(key), until_ms))
        self._names = [name for name in self._disk.list(self._directory) if name.isdigit()]
        self._last = int(self._names[-1]) if self._names else 0
        for name in self._names:
            data = self._disk.read_file(self._directory / name)
            try:
                found += decode_cancelled(data)
            except StoreError as error:
                log.error("%s is unreadable, %s: %s", self._directory / name, _CONSEQUENCE, error)
        self._entries = len(found)
        return found

    def should_replace(self, count: int) -> bool:
        """Return whether it is time to write all that counts, which has this many entries, into one file."""
        return len(self._names) >= _FILES_MAX or self._entries > 2 * count + _SPARE or self._has_old

    def add(self, entries: Sequence[Cancelled]) -> None:
        """Write entries that are new or have changed."""
        name = f"{self._last + 1:012}"
        replace_file(self._disk, self._directory / name, encode_cancelled(entries))
        self._last += 1
        self._names.append(name)
        self._entries += len(entries)

    def replace(self, entries: Sequence[Cancelled]) -> None:
        """Write all entries there are, and remove all others."""
        others, self._names = self._names, []
        try:
            self.add(entries)
        except StoreError:
            self._names = others
            raise
        self._entries = len(entries)
        self._remove(others)

    def _remove(self, names: Sequence[str]) -> None:
        self._old.remove()
        self._has_old = False
        for name in names:
            self._disk.remove(self._directory / name)

    def discard(self) -> None:
        """Remove everything."""
        self._remove([name for name in self._disk.list(self._directory) if name.isdigit()])
        self._names, self._entries = [], 0


def encode_cancelled(entries: Sequence[Cancelled]) -> bytes:
    """Return the bytes of a file with these entries."""
    body = b"".join([_ENTRY.pack(until_ms, topic, key) for topic, key, until_ms in entries])
    return _HEADER.pack(_MAGIC, len(entries), zlib.crc32(body)) + body


def decode_cancelled(data: bytes) -> list[Cancelled]:
    """Read the entries of a file. Raises StoreError if it is damaged."""
    if len(data) < _HEADER.size:
        raise StoreError("it is too short")
    magic, count, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or len(body) != count * _ENTRY.size or zlib.crc32(body) != crc:
        raise StoreError("its checksum is wrong")
    return [Cancelled(topic, key, until_ms) for until_ms, topic, key in _ENTRY.iter_unpack(body)]

"""The list of damaged ranges of the commit log, kept beside the tables so that later runs know them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from eruca._store.filesystem import FileSystem
from eruca._store.jsonfile import JsonFile
from eruca._store.log.scan import Damage


class _Row(msgspec.Struct, rename="camel"):
    position: int
    length: int
    reason: str
    found_ms: int = 0


def _encode(rows: list[_Row]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(rows), indent=1)


class DamageList:
    """Damaged ranges, which readers skip."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._file = JsonFile(disk, path, msgspec.json.Decoder(list[_Row]).decode, _encode)
        self._rows: list[_Row] = []
        self.items: list[Damage] = []

    def load(self) -> None:
        """Read what earlier runs found; an unreadable list is only logged, because a scan finds damage again."""
        self._rows = self._file.read_or([], "starting with an empty list")
        self.items = [Damage(row.position, row.length, row.reason) for row in self._rows]

    def replace_from(self, start: int, found: list[Damage], *, found_ms: int) -> None:
        """Replace the known damage from a position on with what a walk from there found.

        Old ranges must not be kept: when the records after a damaged place are lost in a second crash, the place is cut
        off and overwritten, and a skipped range would hide good records.
        """
        known = {(row.position, row.length): row for row in self._rows}
        rows = [row for row in self._rows if row.position < start]
        reached = max((row.position + row.length for row in rows), default=0)
        for item in found:
            if item.end <= reached:
                continue  # the walk began inside a known range
            row = known.get((item.position, item.length))
            rows.append(row or _Row(item.position, item.length, item.reason, found_ms))
        if rows == self._rows:
            return
        self._rows = rows
        self.items = [Damage(row.position, row.length, row.reason) for row in rows]
        self._file.write(rows)

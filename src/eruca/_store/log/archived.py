"""How far the log is archived: a position kept beside the tables. Retention can be configured not to delete beyond it.

The archiving job sets it: through a running broker, or here in the directory of a stopped one. It only grows.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from eruca._store.filesystem import FileSystem
from eruca._store.jsonfile import JsonFile
from eruca.errors import StoreError

log = logging.getLogger(__name__)


class _Content(msgspec.Struct):
    position: int


class ArchiveMark:
    """The position of the commit log before which everything is in an archive."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._file = JsonFile(disk, path, msgspec.json.Decoder(_Content).decode)

    def read(self) -> int:
        """The position; 0 when nothing is archived or that is unknown, so that nothing is deleted too soon."""
        try:
            return max(0, self._file.read_or(_Content(0), "so nothing counts as archived").position)
        except StoreError as error:
            log.error("%s cannot be read, so nothing counts as archived: %s", self._file.path, error)
            return 0

    def raise_to(self, position: int) -> int:
        """Move it forward, never back, and return its value; may run in a thread."""
        before = self.read()
        if position <= before:
            return before
        self.write(position)
        return position

    def write(self, position: int) -> None:
        """Set the position; a recovery that cut the log moves it back."""
        self._file.write(_Content(position))

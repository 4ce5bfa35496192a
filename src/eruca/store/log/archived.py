"""How far the log is archived: a position kept beside the tables, which retention does not go beyond when told so.

The job that archives sets it: through a running broker, or here in the directory of one that is stopped. It only grows.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from eruca.errors import BAD_JSON, StoreError
from eruca.store.filesystem import FileSystem, replace_file

log = logging.getLogger(__name__)


class _Content(msgspec.Struct):
    position: int


class ArchiveMark:
    """The position of the commit log before which everything is in an archive."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._disk = disk
        self._path = path

    def read(self) -> int:
        """The position; 0 when nothing is archived or nobody can tell, so that nothing goes too soon."""
        if not self._disk.exists(self._path):
            return 0
        try:
            return max(0, msgspec.json.decode(self._disk.read_file(self._path), type=_Content).position)
        except (*BAD_JSON, StoreError) as error:
            log.error("%s is unreadable, so nothing counts as archived: %s", self._path, error)
            return 0

    def raise_to(self, position: int) -> int:
        """Move it forward, never back, and give where it is; may run in a thread."""
        before = self.read()
        if position <= before:
            return before
        self.write(position)
        return position

    def write(self, position: int) -> None:
        """Put it where it is; a recovery that cut the log moves it back."""
        replace_file(self._disk, self._path, msgspec.json.encode(_Content(position)))

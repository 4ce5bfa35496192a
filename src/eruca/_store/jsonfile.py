"""Small JSON files of a store: replaced as a whole, and read by somebody who must go on when one is damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from eruca._ground.badjson import BAD_JSON
from eruca._ground.limits import TABLE_BYTES_MAX
from eruca._store.filesystem import FileSystem, replace_file
from eruca.errors import StoreError, TableFull, WireError

log = logging.getLogger(__name__)

Content = TypeVar("Content")


class FileDamaged(StoreError):
    """A small file is there, and its content is not what it should be."""


class FileEmpty(FileDamaged):
    """A small file is there, and nothing is in it."""


class JsonFile(Generic[Content]):
    """One small file. After a crash it has its old content or its new one, never a part."""

    def __init__(
        self,
        disk: FileSystem,
        path: Path,
        decode: Callable[[bytes], Content],
        encode: Callable[[Content], bytes] = msgspec.json.encode,
    ) -> None:
        """`decode` raises one of BAD_JSON, or WireError, for what is not such a file."""
        self._disk = disk
        self.path = path
        self._decode = decode
        self._encode = encode

    def exists(self) -> bool:
        """Is there such a file, whatever is in it?"""
        return self._disk.exists(self.path)

    def read(self) -> Content | None:
        """Return the content; None when there is no file. Raises FileDamaged, with the reason alone as its text."""
        if not self.exists():
            return None
        if self._disk.size(self.path) > TABLE_BYTES_MAX:
            raise FileDamaged(f"larger than {TABLE_BYTES_MAX} bytes")
        data = self._disk.read_file(self.path)
        if not data.strip():
            raise FileEmpty("empty")
        try:
            return self._decode(data)
        except (*BAD_JSON, WireError) as error:
            raise FileDamaged(str(error)) from error

    def read_or(self, default: Content, consequence: str) -> Content:
        """Return the content; `default` without a file. Of a damaged one the log says what follows from that."""
        try:
            found = self.read()
        except FileDamaged as error:
            log.error("%s is unreadable, %s: %s", self.path, consequence, error)
            return default
        return default if found is None else found

    def encode(self, content: Content) -> bytes:
        """Return what a file with this content has. Raises TableFull when that is more than `read` would take."""
        data = self._encode(content)
        if len(data) > TABLE_BYTES_MAX:
            size = f"{len(data)} bytes; a start reads at most {TABLE_BYTES_MAX}"
            raise TableFull(f"{self.path.name} would have {size}")
        return data

    def write(self, content: Content) -> None:
        """Replace the content in one step; may run in a thread."""
        replace_file(self._disk, self.path, self.encode(content))

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self._disk.remove(self.path)

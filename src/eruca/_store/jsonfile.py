"""Small JSON files of a store: replaced as a whole, and read by code that must carry on when one is damaged."""

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
    """A small file exists, but its content is not valid."""


class FileEmpty(FileDamaged):
    """A small file exists, but is empty."""


class JsonFile(Generic[Content]):
    """One small file. After a crash it has its old content or its new content, never a mix."""

    def __init__(
        self,
        disk: FileSystem,
        path: Path,
        decode: Callable[[bytes], Content],
        encode: Callable[[Content], bytes] = msgspec.json.encode,
    ) -> None:
        """`decode` raises one of BAD_JSON, or WireError, for invalid content."""
        self._disk = disk
        self.path = path
        self._decode = decode
        self._encode = encode

    def exists(self) -> bool:
        """Does the file exist, whatever its content?"""
        return self._disk.exists(self.path)

    def read(self) -> Content | None:
        """Return the content; None when there is no file. Raises FileDamaged, with only the reason as its text."""
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
        """Return the content, or `default` when there is no file or it is damaged; damage is logged."""
        try:
            found = self.read()
        except FileDamaged as error:
            log.error("%s is unreadable, %s: %s", self.path, consequence, error)
            return default
        return default if found is None else found

    def encode(self, content: Content) -> bytes:
        """Return the bytes of a file with this content. Raises TableFull when `read` would refuse them as too large."""
        data = self._encode(content)
        if len(data) > TABLE_BYTES_MAX:
            size = f"{len(data)} bytes; a start reads at most {TABLE_BYTES_MAX}"
            raise TableFull(f"{self.path.name} would have {size}")
        return data

    def write(self, content: Content) -> None:
        """Replace the content atomically; may run in a thread."""
        replace_file(self._disk, self.path, self.encode(content))

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self._disk.remove(self.path)

"""Directories in which jobs keep files: on this machine, or anywhere that Arrow can reach (HDFS, S3, GCS)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from pyarrow import fs

from eruca.errors import ConfigError

# Characters that Hadoop reads as part of a pattern; a backslash escapes them.
_IN_PATTERNS: Final = re.compile(r"[{}\[\]*?\\]")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file in a directory."""

    path: str
    size: int


class Directory:
    """A directory, given as a local path or as an address such as `s3://bucket/archive`."""

    def __init__(self, where: str) -> None:
        self.is_local = "://" not in where or where.startswith("file://")
        self._fs: Any
        try:
            if self.is_local:
                self._fs, self._root = fs.LocalFileSystem(), os.path.abspath(where.removeprefix("file://"))
                # Workers may have another working directory, or another default file system.
                self.address = f"file://{self._root}"
            else:
                self._fs, self._root = fs.FileSystem.from_uri(where)
                self.address = where.rstrip("/")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{where} cannot be used: {error}", hint="give a directory, or an address that Arrow supports"
            ) from None

    def __str__(self) -> str:
        return self._root if self.is_local else self.address

    def locate(self, path: str) -> str:
        """Return the address of a path in this directory, for Spark."""
        return f"{self.address}/{path}"

    def locate_to_read(self, path: str) -> str:
        """Return the address for Spark's file readers, which would treat `[1]` or `*` in a name as a pattern."""
        return _IN_PATTERNS.sub(r"\\\g<0>", self.locate(path))

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return bool(self._fs.get_file_info(self._join(path)).type != fs.FileType.NotFound)

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist."""
        try:
            with self._fs.open_input_stream(self._join(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def replace(self, path: str, data: bytes) -> None:
        """Replace the content of a small file atomically."""
        draft = self._write_draft(path, data)
        self._fs.move(draft, self._join(path))

    def create(self, path: str, data: bytes) -> bool:
        """Create a file with its content atomically; returns False if it exists. On other file systems than the local
        one, two callers at the same moment may both succeed."""
        if not self.is_local:
            if self.exists(path):
                return False
            self.replace(path, data)
            return True
        draft = self._write_draft(path, data)
        try:
            os.link(draft, self._join(path))
        except FileExistsError:
            return False
        finally:
            os.unlink(draft)
        return True

    def _write_draft(self, path: str, data: bytes) -> str:
        target = self._join(path)
        directory, _, name = target.rpartition("/")
        self._fs.create_dir(directory, recursive=True)
        draft = f"{directory}/.{name}.{uuid4().hex}"
        with self._fs.open_output_stream(draft) as stream:
            stream.write(data)
        if self.is_local:
            descriptor = os.open(draft, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return draft

    def list_files(self, path: str) -> Iterator[FileFacts]:
        """Return every file below a directory, with relative paths; nothing if the directory does not exist."""
        selector = fs.FileSelector(self._join(path), allow_not_found=True, recursive=True)
        for info in self._fs.get_file_info(selector):
            if info.type == fs.FileType.File:
                yield FileFacts(info.path[len(self._root) :].lstrip("/"), info.size)

    def list_names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        selector = fs.FileSelector(self._join(path), allow_not_found=True)
        return sorted(info.base_name for info in self._fs.get_file_info(selector))

    def move(self, source: str, target: str) -> None:
        """Move a file; does nothing if it was moved before."""
        if not self.exists(source):
            if self.exists(target):
                return
            raise ConfigError(
                f"{source} and {target} are both missing in {self}", hint="was something deleted manually?"
            )
        joined = self._join(target)
        self._fs.create_dir(joined.rpartition("/")[0], recursive=True)
        self._fs.move(self._join(source), joined)

    def remove_file(self, path: str) -> None:
        """Delete a file, if it exists."""
        if self.exists(path):
            self._fs.delete_file(self._join(path))

    def remove_directory(self, path: str) -> None:
        """Delete a directory and its contents, if it exists."""
        if self.exists(path):
            self._fs.delete_dir(self._join(path))

    def _join(self, path: str) -> str:
        return f"{self._root}/{path}"

"""Small files on the local disk, replaced as a whole: after a crash a file has its old content or its new one.

Clients and servers use this. It runs on every platform that Python runs on, and raises OSError.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

#: Messages concern only the broker and its system group. Java leaves the mode to the umask.
FILE_MODE: Final = 0o640
DIRECTORY_MODE: Final = 0o750


def make_directories(path: Path) -> None:
    """Create a directory and its missing parents."""
    if not path.is_dir():
        make_directories(path.parent)
        path.mkdir(DIRECTORY_MODE, exist_ok=True)


def write_file(path: Path, data: bytes) -> None:
    """Write a file and return when its bytes are on the disk."""
    with open(path, "wb", opener=_open_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def rename_file(old: Path, new: Path) -> None:
    """Rename a file, replacing an existing one, and return when the new name is on the disk."""
    old.replace(new)
    sync_directory(new.parent)


def sync_directory(path: Path) -> None:
    """Return when the names in a directory are on the disk. Windows has no such call and needs none."""
    if sys.platform == "win32":
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of a file in one step; creates the file and its directory if needed."""
    make_directories(path.parent)
    staging = path.with_name(path.name + ".tmp")
    write_file(staging, data)
    rename_file(staging, path)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)

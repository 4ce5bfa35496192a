"""Small files on the local disk, replaced as a whole: after a crash a file has its old content or its new one.

Clients and servers use this. It runs on every platform that Python runs on, and raises OSError.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Final

#: Messages, accounts and options concern nobody but the user that runs the process. Java leaves the mode to the umask.
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700


def make_directories(path: Path) -> None:
    """Create a directory and its missing parents."""
    if not path.is_dir():
        make_directories(path.parent)
        path.mkdir(DIRECTORY_MODE, exist_ok=True)


def write_file(path: Path, data: bytes) -> None:
    """Write a file and return when its bytes are on the disk."""
    with open(path, "wb", opener=open_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def rename_file(old: Path, new: Path) -> None:
    """Rename a file, replacing an existing one, and return when the new name is on the disk.

    A file that replaces another gets its mode: who may read the tables of a Java broker stays as it was.
    """
    if sys.platform != "win32" and new.exists() and (mode := stat.S_IMODE(new.stat().st_mode)) != FILE_MODE:
        old.chmod(mode)
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


def open_private(path: str, flags: int) -> int:
    """Open a file, for `open(..., opener=)`; a new one can be read by its owner only."""
    return os.open(path, flags, FILE_MODE)

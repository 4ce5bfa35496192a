"""Parts of a log that a member set aside because its master never had them; the store may be open in a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eruca._store.filesystem import FileSystem, LocalFileSystem
from eruca._store.layout import StorePaths
from eruca._store.lineage.replicationstate import Diverged, ReplicationFile
from eruca._store.log.cursor import RecordCursor
from eruca._storetools.dump import BODY_PREVIEW_BYTES, RecordRow, make_row
from eruca.errors import StoreError


def list_diverged(root: Path, *, disk: FileSystem | None = None) -> list[Diverged]:
    """The parts of a log that were set aside, oldest first. Raises StoreError where there is no store."""
    disk = disk or LocalFileSystem()
    if not disk.is_directory(root):
        raise StoreError(f"{root} is not a directory", hint="DIR is the directory named by storePathRootDir")
    return ReplicationFile(disk, StorePaths(root).replication).load().diverged


def dump_diverged(
    root: Path, file: str, *, body_bytes: int = BODY_PREVIEW_BYTES, disk: FileSystem | None = None
) -> Iterator[RecordRow]:
    """The messages in a file that was set aside, with the positions they had; damage is skipped."""
    disk = disk or LocalFileSystem()
    row = next((row for row in list_diverged(root, disk=disk) if row.file == file), None)
    if row is None:
        raise StoreError(f"nothing was set aside as {file!r}", hint="run the command without FILE for a list")
    path = StorePaths(root).diverged / file
    if not disk.exists(path):
        raise StoreError(f"{path} no longer exists", hint="it was moved or deleted")
    mapping = disk.map(path, writable=False)
    try:
        data = mapping.buffer
        # The last record is accepted as it is: its writer may have ended it with zeros.
        for view, at in RecordCursor(data, mapping.size, row.begin, doubting=False).iter_records():
            yield make_row(bytes(data[at : at + view.size]), view, at, row.begin + at, body_bytes)
    finally:
        mapping.close()

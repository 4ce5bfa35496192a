"""What a member set aside because its master never had it, read from its directory; a broker may have it open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eruca.errors import StoreError
from eruca.store.filesystem import FileSystem, LocalFileSystem
from eruca.store.layout import StorePaths
from eruca.store.lineage.replicationstate import Diverged, ReplicationFile
from eruca.storetools.dump import BODY_PREVIEW_BYTES, RecordRow, make_row
from eruca.wire.record import BlankView, RecordView, find_record, inspect_record


def list_diverged(root: Path, *, disk: FileSystem | None = None) -> list[Diverged]:
    """The parts of a log that were set aside, the oldest first. Raises StoreError where there is no store."""
    disk = disk or LocalFileSystem()
    if not disk.is_directory(root):
        raise StoreError(f"{root} is not a directory", hint="DIR is what storePathRootDir names")
    return ReplicationFile(disk, StorePaths(root).replication).load().diverged


def dump_diverged(
    root: Path, file: str, *, body_bytes: int = BODY_PREVIEW_BYTES, disk: FileSystem | None = None
) -> Iterator[RecordRow]:
    """The messages in a file that was set aside, with the positions they had; what is damaged is stepped over."""
    disk = disk or LocalFileSystem()
    row = next((row for row in list_diverged(root, disk=disk) if row.file == file), None)
    if row is None:
        raise StoreError(f"nothing was set aside as {file!r}", hint="without FILE the command lists what was")
    path = StorePaths(root).diverged / file
    if not disk.exists(path):
        raise StoreError(f"{path} is not there any more", hint="somebody moved it away or deleted it")
    mapping = disk.map(path, writable=False)
    try:
        data, at = mapping.buffer, 0
        while 0 <= at < len(data):
            view = inspect_record(data, at, len(data), False, row.begin + at)
            if type(view) is RecordView:
                yield make_row(bytes(data[at : at + view.size]), view, at, row.begin + at, body_bytes)
                at += view.size
            elif type(view) is BlankView:
                at += view.size
            else:
                at = find_record(data, at + 1, len(data), row.begin)
    finally:
        mapping.close()

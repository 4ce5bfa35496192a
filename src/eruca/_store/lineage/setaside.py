"""Setting aside before a log is cut: finding the place of the cut, and copying what comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eruca._store.filesystem import FileSystem
from eruca._store.log.chain import Chain
from eruca._store.log.scan import Damage, iter_facts, scan_log
from eruca.errors import StoreError

_COPY_BYTES = 1024 * 1024
_STAGING_NAME = ".eruca-new-diverged"


# -- finding the place -------------------------------------------------------------------------------------------------


def find_boundary(chain: Chain, position: int, damage: list[Damage]) -> int:
    """The end of the last whole record, or end-of-segment record, up to a position; -1 before the log's start."""
    for item in reversed(damage):
        if item.position < position < item.end:
            position = item.position  # a damaged range beyond the end would hide what is written there
    if position < chain.start:
        return -1
    segment = chain.find(position)
    if segment is None or position == segment.start:
        return min(position, chain.end)
    if scan_log(chain, segment.start, check_crc=False, stop=position).end == position:
        return position
    end = segment.start
    for run in iter_facts(chain, segment.start, position, damage):
        last_at, last_size = run[-1][:2]
        end = last_at if last_at + last_size > position else last_at + last_size
    return end


# -- setting aside -----------------------------------------------------------------------------------------------------


def copy_aside(disk: FileSystem, directory: Path, chain: Chain, begin: int, end: int, epoch: int) -> str:
    """Copy a part of the log into a file, durable when this returns; returns its name."""
    name = f"{epoch}-{begin}-{end}.log"
    for number in range(2, 1000):
        if not disk.exists(directory / name):
            _copy_out(disk, chain, begin, end, directory / name)
            break
        # Set aside before, perhaps by a cut that a crash interrupted; or different bytes under the same name.
        if _is_copy(disk, chain, begin, end, directory / name):
            break
        name = f"{epoch}-{begin}-{end}-{number}.log"
    return name


def _iter_pieces(chain: Chain, begin: int, end: int) -> Iterator[tuple[int, memoryview]]:
    """The bytes of the log in pieces, each with its offset from the beginning."""
    at = begin
    while at < end:
        segment = chain.find(at)
        if segment is None:
            raise StoreError(f"the commit log has nothing at {at}")
        size = min(end, segment.end, at + _COPY_BYTES) - at
        yield at - begin, segment.view(at, size)
        at += size


def _copy_out(disk: FileSystem, chain: Chain, begin: int, end: int, path: Path) -> None:
    if not disk.is_directory(path.parent):
        disk.make_directory(path.parent)
        disk.sync_directory(path.parent.parent)
    root = path.parent.parent
    staged = root / f"{_STAGING_NAME}-whole"
    mapping = disk.create(staged, end - begin, staging=root / _STAGING_NAME, durable=True)
    try:
        for at, piece in _iter_pieces(chain, begin, end):
            mapping.buffer[at : at + len(piece)] = piece
        mapping.sync()
    except BaseException:
        mapping.close()
        disk.remove(staged)
        raise
    mapping.close()
    disk.rename(staged, path)


def _is_copy(disk: FileSystem, chain: Chain, begin: int, end: int, path: Path) -> bool:
    if disk.size(path) != end - begin:
        return False
    mapping = disk.map(path, writable=False)
    try:
        return all(
            memoryview(mapping.buffer)[at : at + len(piece)] == piece for at, piece in _iter_pieces(chain, begin, end)
        )
    finally:
        mapping.close()

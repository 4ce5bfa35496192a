"""Offsets of a group: kept by the broker, or in a local file for broadcast consumers."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from eruca._client.session.session import Session
from eruca._ground.smallfiles import make_directories, open_private, rename_file, replace_file
from eruca._wire.bodies import MessageQueue, ResetOffsetBody, decode_reset_offsets, encode_reset_offsets
from eruca._wire.done import Ranges, decode_done, encode_done
from eruca.errors import ConfigError, ErucaError, StoreIOError

log = logging.getLogger(__name__)


class Progress(NamedTuple):
    """How far a group is in a queue: an offset, and the messages behind it that are done."""

    offset: int
    done: Ranges = ()
    # Where the messages that are done were stored: the broker, and how often connections to it had been lost.
    source: tuple[str, int] | None = None


class OffsetStore(Protocol):
    """Keeps the progress of a group in each queue."""

    # The group the offsets belong to.
    group: str

    async def open(self) -> None:
        """Make ready."""

    async def read(self, queue: MessageQueue) -> Progress | None:
        """Return what is kept for a queue; None if there is nothing. Raises ErucaError when it cannot be read now."""

    async def write(self, positions: Mapping[MessageQueue, Progress], *, wait: bool = False) -> None:
        """Keep positions; with `wait` they are kept when this returns. Raises ErucaError.

        Without `wait` this is called repeatedly with the newest ones, so those that could not be kept are retried.
        """

    async def close(self) -> None:
        """Let go."""


class BrokerOffsets:
    """Offsets that the broker of each queue keeps."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self.group = group
        # Writes to a broker are sequential: a multi-threaded broker could apply a newer one before an older one.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._writes: set[asyncio.Task[None]] = set()
        # What a broker has acknowledged, and its address: a restarted master does not know what its slaves keep.
        self._kept: dict[MessageQueue, tuple[str | None, Progress]] = {}

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Wait for writes in progress."""
        if self._writes:
            await asyncio.wait(self._writes)

    async def read(self, queue: MessageQueue) -> Progress | None:
        """Ask the broker. A 0 is checked twice: for young queues it may mean that there is no offset."""
        calls, address = self._session.calls, self._address_of(queue)
        self._kept.pop(queue, None)  # others may have committed since
        source = (address, self._session.count_losses(address))
        found = await calls.read_progress(address, self.group, queue)
        if found is None:
            return None
        if found.offset == 0 and not await calls.has_offset(address, self.group, queue):
            return None
        return Progress(found.offset, decode_done(found.offset, found.eruca_done or ""), source)

    async def write(self, positions: Mapping[MessageQueue, Progress], *, wait: bool = False) -> None:
        """Send positions to the brokers; an unreachable broker does not prevent writes to the others.

        Without `wait`, a broker only gets positions it has not acknowledged, and only when no other write to it is in
        progress: the next call sends them then.
        """
        by_broker: defaultdict[str, dict[MessageQueue, Progress]] = defaultdict(dict)
        for queue, position in positions.items():
            if wait or not (self._turns[queue.broker_name].locked() or self._is_kept(queue, position)):
                by_broker[queue.broker_name][queue] = position
        if not by_broker:
            return
        # When the caller is cancelled, the write continues, so that the next one still knows when it is over.
        task = asyncio.get_running_loop().create_task(self._write_all(by_broker))
        self._writes.add(task)
        task.add_done_callback(self._end_write)
        if wait:
            await asyncio.shield(task)

    def _is_kept(self, queue: MessageQueue, position: Progress) -> bool:
        return self._kept.get(queue) == (self._session.routes.find_address(queue.broker_name), position)

    def _end_write(self, task: asyncio.Task[None]) -> None:
        self._writes.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ErucaError):  # those are reported queue by queue
            log.error("not all offsets of group %s could be committed", self.group, exc_info=error)

    async def _write_all(self, by_broker: Mapping[str, dict[MessageQueue, Progress]]) -> None:
        # Concurrently: one after the other, brokers that do not answer would delay the close of a consumer for minutes.
        work = [self._write_to(broker, positions) for broker, positions in by_broker.items()]
        failures = [error for errors in await asyncio.gather(*work) for error in errors]
        if failures:
            raise failures[-1]

    async def _write_to(self, broker: str, positions: dict[MessageQueue, Progress]) -> list[ErucaError]:
        async with self._turns[broker]:
            answers = await asyncio.gather(*[self._write(queue, position) for queue, position in positions.items()])
        return [error for error in answers if error is not None]

    async def _write(self, queue: MessageQueue, position: Progress) -> ErucaError | None:
        # Until the broker has answered, the offset it keeps is unknown.
        self._kept.pop(queue, None)
        address = queue.broker_name
        try:
            address = self._address_of(queue)
            done = encode_done(position.offset, position.done)
            await self._session.calls.write_offset(address, self.group, queue, position.offset, done=done, wait=True)
        except ErucaError as error:
            self._session.outages.report(log, address, error, "%s: offset not committed now: %s", queue, error)
            return error
        self._kept[queue] = (address, position)
        return None

    def _address_of(self, queue: MessageQueue) -> str:
        return self._session.routes.require_address(queue.broker_name)


class LocalOffsets:
    """Offsets in a file, as Java's broadcast consumers keep theirs: directory/ip@instance/group/offsets.json."""

    def __init__(self, directory: Path, owner: str, group: str) -> None:
        self._path = directory / owner / group / "offsets.json"
        self._owner = owner
        self.group = group
        self._offsets: dict[MessageQueue, int] = {}
        self._lock: IO[bytes] | None = None
        self._saving = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Read the file and lock it. Raises ConfigError when another process has locked it."""
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        make_directories(self._path.parent)
        lock = os.fdopen(open_private(str(self._path.with_name("offsets.lock")), os.O_WRONLY | os.O_CREAT), "wb")
        try:
            _lock(lock)
        except OSError:
            lock.close()
            raise ConfigError(
                f"another broadcast consumer of group {self.group} on this machine runs as {self._owner}",
                hint='give each process its own name: options=ClientOptions(instance="...")',
            ) from None
        self._lock = lock
        self._offsets = self._load()

    def _load(self) -> dict[MessageQueue, int]:
        for path in (self._path, self._path.with_name("offsets.json.bak")):
            try:
                return dict(decode_reset_offsets(path.read_bytes()).offset_table)
            except FileNotFoundError:
                continue
            except (OSError, ErucaError) as error:
                log.warning("%s cannot be read, trying its backup: %s", path, error)
        return {}

    async def read(self, queue: MessageQueue) -> Progress | None:
        """Return the offset in the file."""
        offset = self._offsets.get(queue)
        return None if offset is None else Progress(offset)

    async def write(self, positions: Mapping[MessageQueue, Progress], *, wait: bool = False) -> None:
        """Write the offsets to the file if any has changed. The file, which is Java's, has no place for more."""
        offsets = {queue: position.offset for queue, position in positions.items()}
        # When the caller is cancelled, the write continues: its thread cannot be stopped. The next write, and the next
        # process that opens the file, must not run at the same time.
        task = asyncio.get_running_loop().create_task(self._write(offsets))
        self._writes.add(task)
        task.add_done_callback(self._end_write)
        await asyncio.shield(task)

    def _end_write(self, task: asyncio.Task[None]) -> None:
        self._writes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("the offsets of group %s could not be written: %s", self.group, error)

    async def _write(self, offsets: dict[MessageQueue, int]) -> None:
        async with self._saving:
            if offsets.items() <= self._offsets.items():
                return
            merged = {**self._offsets, **offsets}
            await asyncio.to_thread(self._save, merged)
            # Not earlier: offsets that could not be written are written the next time.
            self._offsets = merged

    def _save(self, offsets: dict[MessageQueue, int]) -> None:
        content = encode_reset_offsets(ResetOffsetBody(offset_table=offsets))
        try:
            if self._path.exists():
                rename_file(self._path, self._path.with_name("offsets.json.bak"))
            replace_file(self._path, content)
        except OSError as error:
            raise StoreIOError(f"write {self._path}: {error.strerror or error}") from error

    async def close(self) -> None:
        """Wait for a write in progress, and unlock the file."""
        if self._writes:
            await asyncio.wait(self._writes)
        if self._lock is not None:
            await asyncio.to_thread(self._lock.close)
            self._lock = None


def _lock(file: IO[bytes]) -> None:
    """Lock a file for this process until it is closed. Raises OSError when another process has locked it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def make_offsets(session: Session, group: str, *, broadcast: bool, directory: Path) -> OffsetStore:
    """Return the offset store of a consumer: the brokers, or a local file for broadcast."""
    if not broadcast:
        return BrokerOffsets(session, group)
    options = session.options
    return LocalOffsets(directory.expanduser(), f"{options.ip}@{options.instance}", group)

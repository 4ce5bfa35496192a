"""Where a group has got to: kept by the broker, or in a file of our own when every member reads everything."""

from __future__ import annotations

import asyncio
import fcntl
import logging
from pathlib import Path
from typing import IO, Protocol

from eruca.client.session import Session
from eruca.errors import ConfigError, ErucaError
from eruca.store.filesystem import LocalFileSystem, replace_file
from eruca.wire.bodies import MessageQueue, ResetOffsetBody, decode_reset_offsets, encode_reset_offsets

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Keeps one offset a queue."""

    # Whose offsets they are.
    group: str

    async def open(self) -> None:
        """Make ready."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset kept for a queue; None when there is none. Raises ErucaError when it cannot be known now."""

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool = False) -> None:
        """Keep offsets; with `wait` they are kept when this returns. Raises ErucaError."""

    async def close(self) -> None:
        """Let go."""


class BrokerOffsets:
    """Offsets that the broker of each queue keeps."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self.group = group
        # One write after the other: a broker that works in several threads may let a newer one pass an older one.
        self._turn = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._writes:
            await asyncio.wait(self._writes)

    async def read(self, queue: MessageQueue) -> int | None:
        """Ask the broker. A 0 is looked at twice: for young queues it may mean that there is none."""
        calls, address = self._session.calls, self._address_of(queue)
        offset = await calls.read_offset(address, self.group, queue)
        if offset == 0 and not await calls.has_offset(address, self.group, queue):
            return None
        return offset

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool = False) -> None:
        """Tell the brokers; one that cannot be reached does not keep the others from being told."""
        # Whoever is cancelled leaves the write to itself, so that the next one still knows when it is over.
        task = asyncio.get_running_loop().create_task(self._write_all(offsets))
        self._writes.add(task)
        task.add_done_callback(self._end_write)
        if wait:
            await asyncio.shield(task)

    def _end_write(self, task: asyncio.Task[None]) -> None:
        self._writes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("not all offsets of group %s could be committed: %s", self.group, error)

    async def _write_all(self, offsets: dict[MessageQueue, int]) -> None:
        async with self._turn:
            # All at once: one after the other, a silent broker would hold up the end of a consumer for minutes.
            work = [self._write(queue, offset) for queue, offset in offsets.items()]
            failures = [error for error in await asyncio.gather(*work) if error is not None]
        if failures:
            raise failures[-1]

    async def _write(self, queue: MessageQueue, offset: int) -> ErucaError | None:
        try:
            await self._session.calls.write_offset(self._address_of(queue), self.group, queue, offset, wait=True)
        except ErucaError as error:
            return error
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
        """Read the file and keep others away from it. Raises ConfigError when another process has it."""
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = self._path.with_name("offsets.lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise ConfigError(
                f"another broadcast consumer of group {self.group} on this machine is {self._owner}",
                hint='give each process a name of its own: options=ClientOptions(instance="...")',
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
                log.warning("%s cannot be read, its backup is tried: %s", path, error)
        return {}

    async def read(self, queue: MessageQueue) -> int | None:
        """What the file says."""
        return self._offsets.get(queue)

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool = False) -> None:
        """Write the file when anything changed."""
        # Whoever is cancelled leaves the write to itself: its thread goes on all the same, and the next write, and
        # whoever opens the file after us, must not meet it.
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
            # Not before: what could not be written is written the next time.
            self._offsets = merged

    def _save(self, offsets: dict[MessageQueue, int]) -> None:
        disk = LocalFileSystem()
        if disk.exists(self._path):
            disk.rename(self._path, self._path.with_name("offsets.json.bak"))
        replace_file(disk, self._path, encode_reset_offsets(ResetOffsetBody(offset_table=offsets)))

    async def close(self) -> None:
        """Wait for what is being written, and let others have the file."""
        if self._writes:
            await asyncio.wait(self._writes)
        if self._lock is not None:
            await asyncio.to_thread(self._lock.close)
            self._lock = None


def make_offsets(session: Session, group: str, *, broadcast: bool, directory: Path) -> OffsetStore:
    """Where the offsets of a consumer are kept: by the brokers, or in a file when every member reads everything."""
    if not broadcast:
        return BrokerOffsets(session, group)
    options = session.options
    return LocalOffsets(directory.expanduser(), f"{options.ip}@{options.instance}", group)

"""What all calls of the fault disk share: counting, tracing, failing, and the free space."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable
from typing import TypeAlias

from eruca._ground.clock import Clock
from eruca._store.filesystem import translate_os_error
from eruca._testing.clock import VirtualClock
from eruca._testing.faults.image import BLOCK, FileImage
from eruca._testing.faults.journal import ROOT, Directory, Journal
from eruca._testing.faults.plan import Fault, FaultPlan
from eruca.errors import StoreError

Call: TypeAlias = tuple[int, str, str]  # number, operation, path


class Volume:
    """The state of a fault disk and the switches of its faults.

    All randomness comes from `seed` and the number of the call, so a run with one thread replays exactly.
    """

    def __init__(self, seed: int = 0, capacity_bytes: int | None = None, clock: Clock | None = None) -> None:
        self.seed = seed
        self.capacity_bytes = capacity_bytes
        self.clock: Clock = clock or VirtualClock()
        self.usage: float | None = None  # what used_ratio returns, regardless of the files
        self.full = False  # no block is available
        self.broken_sync = False  # every sync fails, including those inside create, write_file and rename
        # On ext4 a sync commits the whole journal. True: only what fdatasync guarantees, so a rename may be lost.
        self.strict_datasync = False
        self.plan = FaultPlan()
        self.calls = 0
        self.trace: list[Call] = []
        self.injected: list[tuple[int, str, str, Fault]] = []  # the faults that occurred
        self.bus_errors: list[tuple[str, int]] = []  # mappings written where no room was left: a SIGBUS in reality
        self.on_call: Callable[[int, str, str], None] | None = None  # sees each call before it has an effect
        self.guard = threading.RLock()
        self.journal = Journal({ROOT: Directory(self.clock.now_ms())})
        self.mapped: dict[int, FileImage] = {}  # by id of the mapping: a deleted file takes room until it is closed
        self.locked: set[str] = set()

    def fail(self, call_number: int, kind: Fault | str) -> None:
        """Make the call with this number fail; `calls` is the number of the last one."""
        self.plan.fail(call_number, kind)

    def fail_next(self, operation: str, kind: Fault | str, *, times: int = 1) -> None:
        """Make the next calls of one operation fail."""
        self.plan.fail_next(operation, kind, times=times)

    def begin(self, operation: str, path: str) -> Fault | None:
        """Count a call and return how it should fail; None if it should not."""
        self.calls += 1
        self.trace.append((self.calls, operation, path))
        if self.on_call is not None:
            self.on_call(self.calls, operation, path)
        fault = self.plan.take(self.calls, operation)
        if fault is Fault.SHORT and operation not in ("write", "write_file"):
            return None
        if fault is not None:
            self.injected.append((self.calls, operation, path, fault))
        return fault

    def draw(self) -> random.Random:
        """Return a random generator for the details of the current call."""
        return random.Random(f"{self.seed}:call:{self.calls}")

    def used_bytes(self) -> int:
        """Return the number of bytes of all allocated blocks."""
        images = {id(node): node for node in self.journal.tree.values() if isinstance(node, FileImage)}
        images.update((id(image), image) for image in self.mapped.values())
        return sum(image.allocated_bytes() for image in images.values())

    def free_blocks(self) -> int | None:
        """Return the number of free blocks; None if there is no limit."""
        if self.full:
            return 0
        if self.capacity_bytes is None:
            return None
        return max(0, self.capacity_bytes - self.used_bytes()) // BLOCK

    def has_room(self, blocks: int) -> bool:
        """Whether at least this many blocks are free."""
        free = None if blocks == 0 else self.free_blocks()
        return free is None or blocks <= free

    def sync_image(self, path: str, image: FileImage, fault: Fault | None) -> None:
        """Make a file and the journal durable; after a failure the kernel treats its dirty sectors as clean."""
        dirty = image.find_dirty()
        if dirty:
            image.modified_ms = self.clock.now_ms()
            for sector in dirty:
                self._reserve_faulted(path, image, sector)
        if fault is not None or self.broken_sync:
            image.forget(dirty)
            raise make_error(fault.errno if fault else errno.EIO, f"sync {path}")
        if self.strict_datasync:
            self.journal.commit_for(image)
        else:
            self.journal.commit()
        image.sync(dirty)

    def _reserve_faulted(self, path: str, image: FileImage, sector: int) -> None:
        """Allocate a block for a sector that was written without `allocate`, as the kernel does in a page fault."""
        start = image.position_of(sector)
        if image.count_missing_blocks(start, start + 1):
            if not self.has_room(1):
                self.bus_errors.append((path, start))
            image.allocate(start, start + 1)


def make_error(number: int, doing: str) -> StoreError:
    """Return the store's error for an error of the system."""
    return translate_os_error(OSError(number, os.strerror(number)), doing)

"""The fault disk: an in-memory `FileSystem` that loses data, fails and tears writes as a real one may.

    disk = SimulatedDisk(seed=7)
    store = open_store(disk, ...)          # runs as on a real disk
    disk.fail_next("sync", Fault.EIO)      # the next sync fails and forgets what was dirty, as Linux does
    after = disk.crash()                   # what the machine finds after a power loss; the same seed, the same bytes
    after = disk.kill()                    # what the next process finds after kill -9

`crash` and `kill` leave the disk they are called on as it is, so one run can be cut at many points.
"""

from __future__ import annotations

from eruca._testing.faults.disk import SimulatedDisk
from eruca._testing.faults.image import BLOCK, SECTOR, CrashMode
from eruca._testing.faults.mapping import SimulatedLock, SimulatedMapping
from eruca._testing.faults.plan import COUNTED_OPERATIONS, Fault, FaultPlan

__all__ = [
    "BLOCK",
    "COUNTED_OPERATIONS",
    "SECTOR",
    "CrashMode",
    "Fault",
    "FaultPlan",
    "SimulatedDisk",
    "SimulatedLock",
    "SimulatedMapping",
]

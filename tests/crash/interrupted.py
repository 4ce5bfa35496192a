"""Recovery that is itself interrupted, at every one of its file-system calls, on a log with damage and a torn tail."""

from __future__ import annotations

import contextlib
import random
from functools import cache

from eruca._store.messagestore import open_store
from eruca._testing.faults import CrashMode, SimulatedDisk
from tests.crash.ledger import expect
from tests.crash.middle import OPTIONS, SEGMENT_BYTES, Base, check_rest, make_base, write_log
from tests.crash.world import ROOT, PowerCut

_VARIANTS = 4
_MODES = (CrashMode.DROP, CrashMode.SECTORS, None)


def _make_base() -> Base:
    """No checkpoint, so the first recovery walks the whole log; times that pass, so the next one need not."""
    return make_base(step_ms=5000, with_checkpoint=False)


def _make_disk(variant: int) -> tuple[SimulatedDisk, int]:
    """A killed store with one damaged record in an early segment and garbage after the last; returns its place."""
    rng = random.Random(f"interrupted:{variant}")
    base = _make_base()
    disk = base.killed.kill()
    early = [position for position in sorted(base.ledger.records) if position < SEGMENT_BYTES * (1 + variant % 2)]
    hit = rng.choice(early)
    write_log(disk, hit + 4, rng.randbytes(4))
    end = max(stored.end for stored in base.ledger.records.values())
    write_log(disk, end, rng.randbytes(rng.randint(1, 300)))
    return disk, hit


@cache
def list_interruptions() -> tuple[tuple[int, int, CrashMode | None], ...]:
    """Every call of the recovery of every variant, with every end; None is kill -9."""
    cases: list[tuple[int, int, CrashMode | None]] = []
    for variant in range(_VARIANTS):
        disk, _ = _make_disk(variant)
        before = disk.calls
        open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
        cases.extend((variant, call, mode) for call in range(1, disk.calls - before + 1) for mode in _MODES)
    return tuple(cases)


def count_interrupted() -> int:
    """How many cases there are."""
    return len(list_interruptions())


def describe_interrupted(case: int) -> str:
    """What a case does."""
    variant, call, mode = list_interruptions()[case]
    return f"variant {variant}, {'kill' if mode is None else mode.value} at call {call} of the recovery"


def run_interrupted(case: int) -> None:
    """Interrupt one recovery at one call; the next one must find and keep the same."""
    variant, call, mode = list_interruptions()[case]
    disk, hit = _make_disk(variant)
    left: list[SimulatedDisk] = []
    first = disk.calls

    def count(number: int, operation: str, path: str) -> None:
        if number - first == call:
            left.append(disk.kill() if mode is None else disk.crash(mode, seed=case))
            raise PowerCut

    disk.on_call = count
    with contextlib.suppress(PowerCut):
        open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
    ledger = _make_base().ledger
    lost = [ledger.records[hit]]
    store = open_store(ROOT, OPTIONS, disk=left[0], clock=disk.clock)
    expect(any(item.position == hit for item in store.damage.items), f"damage at {hit} is not in {store.damage.items}")
    expect(store.log.tail == max(stored.end for stored in ledger.records.values()), "the torn tail was not cut")
    check_rest(store, ledger, lost)
    store.close()
    again = open_store(ROOT, OPTIONS, disk=left[0], clock=disk.clock)
    expect(again.damage.items == store.damage.items, "the damage is forgotten after a restart")
    check_rest(again, ledger, lost)
    again.close()

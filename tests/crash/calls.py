"""Failing calls: a fixed scenario in which every file-system call fails once, each in every way it can.

The scenario runs twice: once to count its calls, then with one of them failing. A failed operation is retried, as a
broker does, and must then work; everything acknowledged before, between and after must survive a power loss.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

from eruca._ground.config import FlushMode, StoreOptions
from eruca._testing.faults import CrashMode, Fault, SimulatedDisk
from tests.crash.ledger import expect
from tests.crash.world import World

_ALWAYS_SHORT = frozenset({"write", "write_file"})
_TRIES_MAX = 3

Step = Callable[[World], None]


def _make_options(*, transient: bool = False) -> StoreOptions:
    return StoreOptions(
        commitlog_segment_bytes=4096,
        consumequeue_segment_bytes=20 * 4,
        index_slots=4,
        index_entries=20,
        flush_mode=FlushMode.ASYNC if transient else FlushMode.SYNC,
        transient_enabled=transient,
        retention_hours=1,
        delete_segments_per_pass=2,
    )


def _write(world: World) -> None:
    """Append, acknowledge, and bring everything to the disk."""
    for number in range(14):
        do(world, world.append_batch if number % 4 == 3 else world.append)
        if number % 2:
            do(world, world.commit)
            do(world, world.sync)
        if number % 5 == 4:
            do(world, world.sync_derived)
    do(world, world.save_table)
    do(world, world.sync_derived)


def _delete(world: World) -> None:
    do(world, world.retain)
    do(world, world.append)
    do(world, world.save_table)
    do(world, world.sync)


def _restart(world: World) -> None:
    """Stop and start; a stop that fails is a crash of the process."""
    world.attempt(world.close)
    do(world, lambda: _open(world))


def _recover(world: World) -> None:
    """Lose the power and start; what fails now is recovery."""
    for _ in range(2):
        do(world, world.append)
    before = world.disk
    world.lose_power(CrashMode.SECTORS)
    _go_on_counting(world, before)
    do(world, lambda: _open(world))


def _kill(world: World) -> None:
    """Kill the process and start."""
    for _ in range(2):
        do(world, world.append)
    before = world.disk
    world.kill_process()
    _go_on_counting(world, before)
    do(world, lambda: _open(world))


def _go_on_counting(world: World, before: SimulatedDisk) -> None:
    """Continue counting calls, so that a fault can target a call of the recovery."""
    world.disk.plan, world.disk.calls = before.plan, before.calls
    world.disk.trace, world.disk.injected = before.trace, before.injected


def _open(world: World) -> None:
    world.open()


# The scenarios; each name is part of a case's name, so that a failure shows what was going on.
STORIES: dict[str, tuple[Step, ...]] = {
    "sync": (_open, _write, _restart, _write),
    "transient": (_open, _write, _restart, _write),
    "inline": (_open, _write, _delete, _write),
    "recover": (_open, _write, _recover, _write, _kill, _write),
    "delete": (_open, _write, _write, _delete, _delete, _restart),
}


def do(world: World, work: Callable[[], object]) -> None:
    """Do something; when the disk refuses, check the damage and try again."""
    for _ in range(_TRIES_MAX):
        failures = len(world.errors)
        world.attempt(work)
        if len(world.errors) == failures:
            return
        _check_promises(world)
    raise AssertionError(f"still failing, although the fault is gone: {world.errors[-1]}")


def _check_promises(world: World) -> None:
    """Everything acknowledged must survive a power loss now; the scenario itself continues with its own disk."""
    twin = World("twin", random.Random(1), world.options)
    twin.clock = world.clock
    twin.number = world.number
    twin.ledger = world.ledger.copy()
    twin.ledger.written_end = 0
    twin.disk = world.disk.crash(CrashMode.DROP)
    twin.saved = list(world.saved)
    twin.open()
    twin.check_table()
    twin.close()


@cache
def list_cases() -> tuple[tuple[str, int, Fault], ...]:
    """Every story with every call of it and every way that call can fail."""
    cases: list[tuple[str, int, Fault]] = []
    for name in STORIES:
        world = _tell(name, None)
        for number, operation, _ in world.disk.trace:
            kinds = list(Fault) if operation in _ALWAYS_SHORT else [Fault.EIO, Fault.ENOSPC]
            cases.extend((name, number, kind) for kind in kinds)
    return tuple(cases)


def _tell(name: str, fault: tuple[int, Fault] | None) -> World:
    rng = random.Random(f"calls:{name}")
    options = _make_options(transient=name == "transient")
    world = World(f"calls:{name}", rng, options, inline=name == "inline")
    if fault is not None:
        world.disk.fail(*fault)
    for step in STORIES[name]:
        if step is _open:
            do(world, lambda: _open(world))
        else:
            step(world)
    return world


def run_calls(case: int) -> None:
    """Run one scenario with one call failing, then lose the power and check."""
    name, number, kind = list_cases()[case]
    world = _tell(name, (number, kind))
    expect(bool(world.disk.injected) or world.disk.calls < number, "the fault never struck")
    world.lose_power(CrashMode.DROP)
    world.open()
    world.check_table()
    for _ in range(3):
        world.append()
    world.sync()
    world.close()
    world.open()
    world.close()


def count_calls() -> int:
    """How many cases there are."""
    return len(list_cases())


def describe_call(case: int) -> str:
    """Which call of which story fails how."""
    name, number, kind = list_cases()[case]
    return f"story {name}, call {number}, {kind.value}"

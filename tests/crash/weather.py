"""Bad weather: a disk that is full for a while, whose syncs fail for a while, whose calls fail now and then.

Random stories as in `power`, but every step may be refused. Only the store's own errors may come out, nothing that was
acknowledged may be lost, nothing that was refused may appear, and when the sky clears everything works again.
"""

from __future__ import annotations

import random

from eruca._testing.faults import CrashMode, Fault
from eruca.errors import StoreFull
from tests.crash.ledger import expect
from tests.crash.power import finish
from tests.crash.world import World, draw_options

_OPEN_TRIES_MAX = 50


def run_weather(seed: int) -> None:
    """One seed: a failing disk, a recovered one, a power loss, and a check of what is left."""
    rng = random.Random(f"weather:{seed}")
    world = World(f"weather:{seed}", rng, draw_options(rng), inline=rng.random() < 0.3)
    world.open()
    for _ in range(rng.randint(1, 3)):
        _live(world, rng.randint(10, 70))
        _clear_sky(world)
        _open_again(world)
        world.append()
        world.commit()
        world.sync()
        world.sync_derived()
        mode = rng.choice((CrashMode.DROP, CrashMode.SECTORS))
        if rng.random() < 0.5:
            _change_weather(world)
        world.lose_power(mode)
        _open_again(world)
        _clear_sky(world)
        world.check_table()
    finish(world)


def _live(world: World, steps: int) -> None:
    acts = [world.append] * 40 + [world.append_batch] * 12 + [world.sync_derived] * 6 + [world.save_table] * 4
    acts += [world.pass_time] * 6 + [world.retain] * 3 + [world.sync] * 8 + [world.commit] * 4
    acts += [lambda: _change_weather(world)] * 8 + [lambda: _restart(world)] * 2
    for _ in range(steps):
        if not world.is_open:
            _open_again(world)
        world.attempt(world.rng.choice(acts))


def _change_weather(world: World) -> None:
    """One kind of trouble begins or ends."""
    rng, disk = world.rng, world.disk
    kind = rng.randrange(6)
    if kind == 0:
        disk.full = not disk.full
    elif kind == 1:
        disk.broken_sync = not disk.broken_sync
    elif kind == 2:
        disk.fail(disk.calls + rng.randint(1, 10), rng.choice(list(Fault)))
    elif kind == 3:
        disk.fail_next(rng.choice(("sync", "allocate", "create", "write", "rename")), rng.choice(list(Fault)))
    elif kind == 4:
        disk.usage = rng.choice((0.5, 0.8, 0.95))
    else:
        _clear_sky(world)


def _clear_sky(world: World) -> None:
    world.disk.full = False
    world.disk.broken_sync = False
    world.disk.usage = None
    world.disk.plan.clear()
    if world.is_open and world.store.refusal:
        world.retain()  # this is what takes a refusal back
        expect(not world.store.refusal, f"still refused on an empty disk: {world.store.refusal}")


def _restart(world: World) -> None:
    """Stop; the next step starts again. A stop that fails is one more crash of the process."""
    world.close()


def _open_again(world: World) -> None:
    """Start as often as it takes; the sky clears in the end."""
    for number in range(_OPEN_TRIES_MAX):
        if world.is_open:
            return
        if number > 3:
            _clear_sky(world)
        world.attempt(world.open)
        if world.errors and isinstance(world.errors[-1], StoreFull):
            world.disk.full = False
    raise AssertionError(f"the store does not open any more: {world.errors[-1]}")

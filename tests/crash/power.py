"""Power loss: random stories on the fault disk, cut anywhere, also in the middle of recovery."""

from __future__ import annotations

import random

from eruca._testing.faults import CrashMode
from tests.crash.ledger import expect
from tests.crash.world import World, draw_options

# The last one is kill -9; with the first two a sector is old or new, with the others it may be torn in its middle.
_ENDS = (CrashMode.DROP, CrashMode.SECTORS, CrashMode.SECTORS, CrashMode.PREFIX, CrashMode.RANDOM, None)
_WHOLE_SECTORS = (CrashMode.DROP, CrashMode.SECTORS, None)
_RECOVERY_CUTS_MAX = 3


def run_power(seed: int) -> None:
    """One seed: up to three lives of a store, each ended by a power loss or a kill, then a clean end."""
    rng = random.Random(f"power:{seed}")
    world = World(f"power:{seed}", rng, draw_options(rng), inline=rng.random() < 0.3)
    world.disk.strict_datasync = rng.random() < 0.2
    world.open()
    for _ in range(rng.randint(1, 3)):
        live(world, rng.randint(0, 60))
        mode = rng.choice(_ENDS)
        if not (
            mode is not None
            and rng.random() < 0.5
            and world.cut_power_during(rng.randint(1, 40), mode, lambda: live(world, 30))
        ):
            end_life(world, mode)
        come_back(world, torn_sectors=mode not in _WHOLE_SECTORS)
    finish(world)


def live(world: World, steps: int) -> None:
    """Let random things happen to an open store."""
    acts = [world.append] * 50 + [world.append_batch] * 12 + [world.sync_derived] * 6 + [world.save_table] * 3
    acts += [world.pass_time] * 8 + [world.retain] * 2 + [world.sync] * 4
    acts += [lambda: reopen(world)] * 2
    if world.options.transient_enabled:
        acts += [world.commit] * 10
    for _ in range(steps):
        world.rng.choice(acts)()


def reopen(world: World) -> None:
    """Stop and start."""
    world.close()
    world.open()
    assert world.store.recovered is not None
    expect(world.store.recovered.clean, "a clean stop was taken for a crash")


def end_life(world: World, mode: CrashMode | None) -> None:
    """Take the power away, or kill the process."""
    if mode is None:
        world.kill_process()
    else:
        world.lose_power(mode)


def come_back(world: World, *, torn_sectors: bool) -> None:
    """Recover, with the power going again now and then; then judge."""
    for _ in range(_RECOVERY_CUTS_MAX):
        mode = world.rng.choice(_ENDS[:-1])
        if world.rng.random() >= 0.3:
            break
        torn_sectors = torn_sectors or mode not in _WHOLE_SECTORS
        if not world.cut_power_during(world.rng.randint(1, 60), mode or CrashMode.DROP, lambda: _open_unchecked(world)):
            end_life(world, mode)
    world.open(torn_sectors=torn_sectors)
    world.check_table()


def _open_unchecked(world: World) -> None:
    world.open(check=False)


def finish(world: World) -> None:
    """After everything: the store takes messages, closes cleanly, and opens again without a complaint."""
    for _ in range(5):
        world.append()
    world.commit()
    world.sync()
    damage = list(world.store.damage.items)
    tail = world.store.log.tail
    world.close()
    world.open()
    plan = world.store.recovered
    assert plan is not None
    expect(plan.clean and not plan.torn, f"a clean stop was taken for a crash or is torn: {plan.torn}")
    expect(plan.log_end == tail, f"closed at {tail}, opened at {plan.log_end}")
    expect(world.store.damage.items == damage, "a clean stop brought new damage")
    world.close()

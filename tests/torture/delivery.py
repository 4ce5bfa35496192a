"""`make torture ONLY=delivery`: a broker is killed with `kill -9` in the middle of everything it does.

All parts run at the same time against one `eruca up`, which is killed and started again on the same directory and ports
while the clients continue. A kill counts for a part only when an operation of that part was in progress. When
the kills of a run are over, the broker must have kept what it confirmed to its clients. Runs follow each other, each
with an empty directory and a new seed, until each part had its kills.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from eruca import Producer
from tests.torture.askingparts import Offsets, Requests, Tables
from tests.torture.consumingparts import Filters, Ordered, Retries
from tests.torture.delayparts import Delays, Timers
from tests.torture.deliverystage import BROKER_SETTINGS, Part, Stage
from tests.torture.killedbroker import KilledBroker
from tests.torture.producingparts import Moved, Sends, Transactions
from tests.torture.runner import STATE, keep_quiet

PARTS: dict[str, type[Part]] = {
    part.name: part
    for part in (Sends, Delays, Timers, Transactions, Moved, Retries, Ordered, Filters, Requests, Offsets, Tables)
}
KILLS_EACH = 20
_KILLS_A_RUN = 5
# The maximum number of kills, as a multiple, for a part that has nothing in progress now and then.
_TRIES = 6
_STATE = STATE / "delivery.json"
_FLUSH_MODES = ("ASYNC_FLUSH", "SYNC_FLUSH")


@dataclass(frozen=True)
class Settings:
    """One run."""

    seed: int
    # For each part; those that miss one cost a few more.
    kills: int = _KILLS_A_RUN
    parts: tuple[str, ...] = tuple(PARTS)
    # Work before each kill.
    work_s: tuple[float, float] = (0.3, 1.5)
    # Between the beginning of much at once and the kill.
    press_s: tuple[float, float] = (0.0, 0.03)


@dataclass
class Result:
    """What was seen in one run."""

    settings: Settings
    kills_all: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    summaries: dict[str, str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def summarise(self) -> str:
        """A line for each part."""
        head = f"delivery, seed {self.settings.seed}: {self.kills_all} kills in {self.seconds:.1f} s"
        rows = [f"  {name:12} {self.kills[name]:3} kills: {text}" for name, text in self.summaries.items()]
        return "\n".join([head, *rows])


async def run(settings: Settings, home: Path) -> Result:
    """Run all parts through some kills."""
    began = time.monotonic()
    rng = random.Random(f"delivery:{settings.seed}")
    result = Result(settings)
    broker = KilledBroker(home, BROKER_SETTINGS)
    await broker.start(flushDiskType=rng.choice(_FLUSH_MODES))
    looker = Producer(broker.nameserver, group="looker")
    parts: list[Part] = []
    try:
        await looker.start()
        stage = Stage(broker.nameserver, broker.address, settings.seed, looker)
        for name in settings.parts:
            part = PARTS[name](stage)
            await part.start()
            parts.append(part)
        while min(part.kills for part in parts) < settings.kills and len(stage.kills) < _TRIES * settings.kills:
            await _kill(settings, rng, broker, stage, parts)
        stage.is_feeding = False
        await asyncio.gather(*[part.settle() for part in parts])
        for part in parts:
            await part.check()
    finally:
        for part in parts:
            await part.close()
        await looker.close()
        status = await broker.end()
    result.seconds = time.monotonic() - began
    result.kills_all = len(stage.kills)
    result.kills = Counter({part.name: part.kills for part in parts})
    result.summaries = {part.name: part.summarise() for part in parts}
    result.violations = [violation for part in parts for violation in part.violations]
    if status:
        result.violations.append(f"the broker ended with {status} in the end")
    result.violations += [f"the broker logged: {line}" for line in await asyncio.to_thread(broker.list_complaints)]
    return result


async def _kill(settings: Settings, rng: random.Random, broker: KilledBroker, stage: Stage, parts: list[Part]) -> None:
    """Let the parts work, kill the broker in the middle of it, and start it again."""
    await asyncio.gather(*[part.prepare() for part in parts])
    await asyncio.sleep(rng.uniform(*settings.work_s))
    for part in parts:
        part.press()
    await asyncio.sleep(rng.uniform(*settings.press_s))
    for part in parts:
        part.kills += part.count_under_way() > 0
    broker.kill()
    stage.kills.append(asyncio.get_running_loop().time())
    await broker.wait()
    await broker.start(flushDiskType=rng.choice(_FLUSH_MODES))
    counts = {part: part.count_done() for part in parts}
    await asyncio.gather(*[part.on_restart() for part in parts])
    for part, count in counts.items():
        await part.wait_for_more(count)


# --- many runs ---------------------------------------------------------------------------------------------------


def torture(minutes: float | None) -> int:
    """Resume a stopped run, until each part had its kills or the time is over; 0 when all is well."""
    keep_quiet()
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    kills, seed = _read_state()
    while any(kills[name] < KILLS_EACH for name in PARTS):
        if deadline is not None and time.monotonic() >= deadline:
            print(f"delivery: stopped before seed {seed}, {_describe(kills)} of {KILLS_EACH} each; goes on next time")
            return 0
        with tempfile.TemporaryDirectory(prefix="eruca-delivery-") as home:
            result = asyncio.run(run(Settings(seed), Path(home)))
        print(result.summarise(), flush=True)
        for violation in result.violations:
            print(f"FAILED {violation}")
        if result.violations:
            print(f"replay: {name_replay(seed)}")
            return 1
        kills += result.kills
        seed += 1
        _write_state(kills, seed)
    forget()
    print(f"delivery: seeds 0 to {seed - 1}, kills in the middle of each part: {_describe(kills)}; nothing lost")
    return 0


def forget() -> None:
    """Start over next time."""
    _STATE.unlink(missing_ok=True)


def name_replay(seed: int) -> str:
    """The command that runs one seed again; the kills come at the same places, as far as the clock allows."""
    return f".venv/bin/python -m tests.torture.delivery {seed}"


def _describe(kills: Counter[str]) -> str:
    return ", ".join(f"{name} {kills[name]}" for name in PARTS)


def _read_state() -> tuple[Counter[str], int]:
    if not _STATE.exists():
        return Counter(), 0
    state = json.loads(_STATE.read_text(encoding="utf-8"))
    return Counter(state["kills"]), state["next"]


def _write_state(kills: Counter[str], seed: int) -> None:
    _STATE.parent.mkdir(exist_ok=True)
    _STATE.write_text(json.dumps({"kills": kills, "next": seed}), encoding="utf-8")


def main() -> int:
    """One run: its seed, and the parts it shall have if not all."""
    seed, *names = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with tempfile.TemporaryDirectory(prefix="eruca-delivery-") as home:
        result = asyncio.run(run(Settings(int(seed), parts=tuple(names) or tuple(PARTS)), Path(home)))
    print("\n".join([result.summarise(), *[f"FAILED {violation}" for violation in result.violations]]))
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())

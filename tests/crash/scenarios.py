"""Every crash scenario by name: what `make torture` runs whole, and `make test` in slices.

A scenario is a function of one number. For the random ones it is a seed; for the exhaustive ones it counts the cases.
Either way the number determines everything, so a failure is replayed by passing it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from tests.crash.calls import count_calls, describe_call, run_calls
from tests.crash.cut import count_cut, describe_cut, run_cut
from tests.crash.damage import count_damage, describe_damage, run_damage
from tests.crash.interrupted import count_interrupted, describe_interrupted, run_interrupted
from tests.crash.kill import run_kill
from tests.crash.middle import describe_middle, run_middle
from tests.crash.power import run_power
from tests.crash.replica import run_replica
from tests.crash.rot import describe_rot, run_rot
from tests.crash.weather import run_weather

SLICE_CASES = int(os.environ.get("ERUCA_SEEDS", "100"))


@dataclass(frozen=True)
class Scenario:
    """One kind of trouble."""

    name: str
    what: str
    # Returns the result of the case as a word, or nothing.
    run: Callable[[int], str | None]
    count: Callable[[], int]
    describe: Callable[[int], str] = lambda case: f"seed {case}"
    # Cases that are one second or more each, so that a slice takes few.
    slow: bool = False
    group: str = "store"

    def pick_slice(self, wanted: int) -> list[int]:
        """That many cases, spread evenly over all of them."""
        total = self.count()
        wanted = min(total, max(2, wanted // 50) if self.slow else wanted)
        return [number * total // wanted for number in range(wanted)]

    def name_replay(self, case: int) -> str:
        """The command that runs one case again."""
        return f".venv/bin/python -m tests.torture --only {self.name} --from-seed {case} --seeds 1"


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("cut", "the last record cut at every byte", run_cut, count_cut, describe_cut),
        Scenario("middle", "damage with good records behind it", run_middle, lambda: 2000, describe_middle),
        Scenario("power", "power loss, also during recovery", run_power, lambda: 2000),
        Scenario("calls", "every file-system call failing once", run_calls, count_calls, describe_call),
        Scenario("weather", "a disk that is full or fails for a while", run_weather, lambda: 2000),
        Scenario("rot", "consume queues and index that rotted", run_rot, lambda: 1000, describe_rot),
        Scenario(
            "interrupted",
            "recovery that ends at any of its calls",
            run_interrupted,
            count_interrupted,
            describe_interrupted,
        ),
        Scenario("replica", "two brokers that take over from each other and lose power", run_replica, lambda: 3000),
        Scenario(
            "damage",
            "any file damaged in any way, after a clean stop or a kill",
            run_damage,
            count_damage,
            describe_damage,
            group="damage",
        ),
        Scenario("kill", "kill -9 of a writing process", run_kill, lambda: 34, slow=True),
    )
}


def find_scenarios(only: str) -> list[Scenario]:
    """The scenarios of a name or a group; all without one."""
    return [s for s in SCENARIOS.values() if only in ("", s.name, s.group)]

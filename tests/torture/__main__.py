"""The long randomised runs: `make torture ONLY=name MINUTES=n`.

Progress is kept under `torture-state/`, so a stopped run resumes where it was. A failure prints the number of
its case and the command that runs it again: with `--from-seed N --seeds 1` a case runs in this process, with its logs.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from rich.console import Console

from tests.crash.scenarios import SCENARIOS, Scenario, find_scenarios
from tests.torture.delivery import forget as forget_delivery
from tests.torture.delivery import torture as run_delivery
from tests.torture.hostile import torture as run_hostile
from tests.torture.limits import torture as run_limits
from tests.torture.popkills import torture as run_pop_kills
from tests.torture.replication import PARTS as REPLICATION_PARTS
from tests.torture.replication import forget as forget_replication
from tests.torture.replication import run_part as run_replication_part
from tests.torture.replication import torture as run_replication
from tests.torture.runner import Outcome, Run, run_here
from tests.torture.sendsoon import torture as run_send_soon
from tests.torture.slowhandler import torture as run_slow_handler
from tests.torture.spark import PARTS as SPARK_PARTS
from tests.torture.spark import find_part as find_spark_part
from tests.torture.spark import torture as run_spark

# Runs that are one long scenario instead of many cases; each gets its number of minutes, and prints what it saw.
STORIES = {
    "slow-handler": run_slow_handler,
    "delivery": run_delivery,
    "hostile": run_hostile,
    "limits": run_limits,
    "pop-kills": run_pop_kills,
    "send-soon": run_send_soon,
    "spark": run_spark,
    "replication": run_replication,
}

# Failures that are shown with their text; one cause often has hundreds.
_SHOWN_MAX = 20


def main() -> int:
    """Run what the command line names; 0 when nothing failed."""
    arguments = parse_arguments()
    console = Console(soft_wrap=True)
    if arguments.fresh:
        forget_delivery()
        forget_replication()
    if arguments.only in STORIES:
        return STORIES[arguments.only](arguments.minutes)
    if arguments.only in SPARK_PARTS:
        return find_spark_part(arguments.only)(arguments.minutes)
    if arguments.only in REPLICATION_PARTS:
        return run_replication_part(arguments.only, arguments.minutes)
    scenarios = find_scenarios(arguments.only)
    if not scenarios:
        groups = sorted({scenario.group for scenario in SCENARIOS.values()})
        names = [*groups, *SCENARIOS, *STORIES, *SPARK_PARTS, *REPLICATION_PARTS]
        console.print(f"there is no {arguments.only!r}; there are: {', '.join(names)}")
        return 2
    if arguments.from_seed is not None and arguments.seeds == 1:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        return run_here(scenarios[0], arguments.from_seed, console)
    run = Run(console, jobs=arguments.jobs, minutes=arguments.minutes, fresh=arguments.fresh)
    outcomes = [run.run(scenario, first=arguments.from_seed, count=arguments.seeds) for scenario in scenarios]
    failed = report(scenarios, outcomes, console)
    for story in STORIES.values() if not arguments.only else ():
        failed |= story(arguments.minutes)
    return failed


def parse_arguments() -> argparse.Namespace:
    """The command-line options."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--only", default="", help="a scenario, or a group of them (store)")
    parser.add_argument("--seeds", type=int, help="how many cases of each; all by default")
    parser.add_argument("--from-seed", type=int, help="the first case; otherwise a stopped run continues where it was")
    parser.add_argument("--minutes", type=float, help="stop after this many minutes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--fresh", action="store_true", help="begin anew, whatever a stopped run left")
    return parser.parse_args()


def report(scenarios: list[Scenario], outcomes: list[Outcome], console: Console) -> int:
    """Report what was run and what failed."""
    console.print()
    for scenario, outcome in zip(scenarios, outcomes, strict=True):
        console.print(outcome.summarise(scenario), markup=False, highlight=False)
    failures = [(s, case, text) for s, o in zip(scenarios, outcomes, strict=True) for case, text in o.failures]
    for scenario, case, text in failures[:_SHOWN_MAX]:
        console.print(f"\nFAILED {scenario.name} {case}: {scenario.describe(case)}", style="red")
        console.print(text, markup=False, highlight=False)
        console.print(f"replay: {scenario.name_replay(case)}", markup=False, highlight=False)
    if len(failures) > _SHOWN_MAX:
        console.print(f"\nand {len(failures) - _SHOWN_MAX} more failures", style="red")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

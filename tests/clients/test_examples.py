"""Every example, run as its reader runs it: alone, and on a cluster of either kind."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.interop.brokers import Cluster
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S

EXAMPLES = REPOSITORY / "examples"
SECONDS_MAX = PATIENCE_S

# What each must say: these lines, in this order, with others in between.
STORIES: dict[str, list[str]] = {
    "order_life": [
        r"\* 6 orders were sent step by step, interleaved",
        r"  (Ada|Bob): o-3 placed",
        r"  (Ada|Bob): o-3 paid: the bank does not answer",
        r"  (Ada|Bob): o-3 paid",
        r"  (Ada|Bob): o-3 done",
        r"\* Every order was placed, then paid, then done.",
    ],
    "payment_transaction": [
        r"\* The process that took the payment of carla died after booking",
        r"\* The process that took the payment of dora died before booking",
        r"\* Only those who paid have points: anna 3, ben 0, carla 5, dora 0.",
    ],
    "retry_to_dead_letter": [
        r"\* Three invoices were sent.",
        r"  i-3: delivery 3",
        r'\* i-3 is a dead letter after 3 deliveries: {"id": "i-3", "amount": -30}',
        r"\* Repaired and sent again; i-3 is booked.",
    ],
    "async_for": [
        r"\* Sent three pages as one batch.",
        r"  not now: kind regards",
        r"  read: kind regards \(delivered again\)",
        r"\* All five letters were read, and no adverts.",
    ],
    "plain": [
        r"\* Five readings were sent",
        r"  r-3 is 35.9 degrees: ring the bell!",
        r"\* The average of 5 readings is 23.18 degrees.",
    ],
    "request_reply": [
        r"\* What is one apple\? 0.50",
        r"\* What is one melon\? 3.20",
        r"\* What is one moonfruit\? No answer: nobody replied",
    ],
    "celery_tasks": [
        r"\* 3 tasks were sent.",
        r"  worker: the adding machine is warming up",
        r"  worker: 1 \+ 2 \+ 3 = 6, on the second try",
        r"\* All tasks are done, and the worker was told to stop.",
    ],
    "taskiq_tasks": [
        r"\* 3 tasks were sent.",
        r"\* All tasks are done, and the worker was told to stop.",
    ],
}
# Besides these, wherever they stand.
ASIDES = {
    "payment_transaction": {
        "* anna paid 30.",
        "* ben did not pay: the card of ben does not cover 70.",
        "  The broker asks about the payment of carla: commit.",
        "  The broker asks about the payment of dora: rollback.",
    },
    "retry_to_dead_letter": {"* i-1 is booked.", "* i-2 is booked.", "  i-2: delivery 2"},
    "celery_tasks": {"  worker: mail to ada: your order is on its way", "  worker: mail to bob: so is yours"},
    "taskiq_tasks": {"  worker: mail to ada: your order is on its way", "  worker: 1 + 2 + 3 = 6"},
}
SLOW = {"celery_tasks", "taskiq_tasks"}
CASES = [pytest.param(name, marks=pytest.mark.whole if name in SLOW else ()) for name in STORIES]


def run_example(name: str, *arguments: str) -> str:
    """Run an example; returns what it prints. It must end well, and on its own."""
    environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
    # Celery prints many warnings; ours leaves nothing open and prints only the story.
    strict = [] if name in SLOW else ["-W", "error"]
    command = [sys.executable, *strict, str(EXAMPLES / f"{name}.py"), *arguments]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=REPOSITORY
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Traceback" not in run.stderr if name in SLOW else run.stderr == "", run.stderr
    return run.stdout


def check_story(name: str, said: str) -> None:
    """The lines are there, and in order."""
    lines = iter(said.splitlines())
    for wanted in STORIES[name]:
        assert any(re.match(wanted, line) for line in lines), f"not found, or not in order: {wanted}\n{said}"
    assert ASIDES.get(name, set()) <= set(said.splitlines()), said


def test_every_example_is_here() -> None:
    # Those with Spark are in tests/spark.
    found = {path.stem for path in EXAMPLES.glob("*.py") if not path.stem.startswith("spark")}
    assert found == {*STORIES, "stage"}


@pytest.mark.parametrize("name", CASES)
def test_example_alone(name: str) -> None:
    said = run_example(name)
    assert said.startswith("* A broker was started for this example.")
    check_story(name, said)


@pytest.mark.whole
@pytest.mark.parametrize("name", STORIES)
def test_example_on_a_cluster(name: str, cluster: Cluster) -> None:
    said = run_example(name, "--nameserver", cluster.name_server)
    assert said.startswith(f"* Using the cluster at {cluster.name_server}.")
    check_story(name, said)


@pytest.mark.parametrize("name", STORIES)
def test_help_says_what_it_is_about(name: str) -> None:
    said = run_example(name, "--help")
    assert f"python examples/{name}.py" in said
    assert "NAMESRV_ADDR" in said

"""Every example with Spark, run as its reader runs it: alone, and on a cluster of either kind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest

from tests.interop.brokers import Cluster
from tests.paths import REPOSITORY
from tests.patience import SPARK_S
from tests.spark.streams import TOO_SLOW

EXAMPLES = REPOSITORY / "examples"

# What each must say, line by line.
STORIES: dict[str, list[str]] = {
    "spark_batch": [
        r"\* 6 messages were sent\.",
        r"\* By tag: \[\('cellar', 2\), \('garden', 1\), \('roof', 3\)\]",
        r"\* The hottest place is the roof, with 33\.0 degrees\.",
        r"\* Set aside: 'the battery is low', as it is not JSON\.",
    ],
    "spark_stream": [
        r"  100 new clicks in 2 batches",
        r"\* Run 1: 100 clicks in the files, 100 distinct\.",
        r"  100 new clicks in 2 batches",
        r"\* Run 2: 200 clicks in the files, 200 distinct\.",
        r"\* Nothing is missing and nothing is duplicated\.",
    ],
    "spark_sink": [
        r"\* Spark sent 4 prices\.",
        r'  basil \(herb\): {"name":"basil","cents":150}',
        r'  fig \(fruit\): {"name":"fig","cents":80}',
        r'  melon \(fruit\): {"name":"melon","cents":320}',
        r'  pear \(fruit\): {"name":"pear","cents":45}',
        r"\* All prices were read\.",
    ],
}


def run_example(name: str, *arguments: str) -> list[str]:
    """Run an example; returns the lines it prints. It must end well, and on its own.

    One whose Python processes were too slow for Spark is run again: its topics have names of their own each time.
    """
    without = {key: value for key, value in os.environ.items() if key not in ("NAMESRV_ADDR", "PYTHONPATH")}
    deadline = time.monotonic() + SPARK_S
    while True:
        run = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
            env=without,
            capture_output=True,
            text=True,
            timeout=SPARK_S,
            check=False,
            cwd=REPOSITORY,
        )
        if not run.returncode or TOO_SLOW not in run.stdout + run.stderr or time.monotonic() > deadline:
            break
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Traceback" not in run.stderr, run.stderr
    return run.stdout.splitlines()


def check_story(name: str, lines: list[str]) -> None:
    """The lines are there, and no others."""
    assert len(lines) == len(STORIES[name]), lines
    for said, wanted in zip(lines, STORIES[name], strict=True):
        assert re.fullmatch(wanted, said), f"{said!r} is not {wanted!r}"


def test_every_example_is_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("spark*.py")} == {*STORIES, "sparkstage"}


@pytest.mark.whole
@pytest.mark.parametrize("name", STORIES)
def test_example_alone(name: str) -> None:
    first, *lines = run_example(name)
    assert first.startswith("* A broker was started for this example.")
    check_story(name, lines)


@pytest.mark.whole
@pytest.mark.parametrize("name", STORIES)
def test_example_on_a_cluster(name: str, cluster: Cluster) -> None:
    first, *lines = run_example(name, "--nameserver", cluster.name_server)
    assert first == f"* Using the cluster at {cluster.name_server}."
    check_story(name, lines)


@pytest.mark.parametrize("name", STORIES)
def test_help_says_what_it_is_about(name: str) -> None:
    said = "\n".join(run_example(name, "--help"))
    assert f"python examples/{name}.py" in said
    assert "NAMESRV_ADDR" in said

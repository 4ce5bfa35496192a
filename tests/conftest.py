"""What every test gets: a loop that refuses blocking calls, and random data that can be replayed."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, BlockBusterFunction
from hypothesis import settings

from tests.figures import list_figures

# `ci` gives everyone the same examples; `explore` looks for new ones. Both print how to repeat a failure.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=2_000)

PROFILE = os.environ.get("ERUCA_HYPOTHESIS", "ci")
settings.load_profile(PROFILE)


def pytest_report_header() -> list[str]:
    """Say which random data this run uses, so that a failure in a log can be repeated."""
    return [f"eruca: ERUCA_HYPOTHESIS={PROFILE} ERUCA_SEEDS={os.environ.get('ERUCA_SEEDS', '(default)')}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the tests counted."""
    if figures := list_figures():
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs Java where `make test` found none; `make test-<suite>` does not go on without it."""
    if not os.environ.get("ERUCA_WITHOUT_JAVA"):
        return
    left_out = [item for item in items if _needs_java(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _needs_java(item: pytest.Item) -> bool:
    suite = item.path.relative_to(Path(__file__).parent).parts[0]
    if suite == "spark":
        return True
    if suite not in ("clients", "delivery", "replication") or not isinstance(item, pytest.Function):
        return False
    values = item.callspec.params if hasattr(item, "callspec") else {}
    systems = (values.get("cluster"), values.get("system"))
    return "java" in systems or "peer" in item.fixturenames or "java" in item.path.name


@pytest.fixture
def excuse_calls() -> Callable[[BlockBuster], None]:
    """What may block all the same. A module whose loops run on from test to test has a fixture of its own with this
    name: what is allowed only when the calls are forbidden already comes too late for a loop in another thread.
    """
    return lambda buster: None


@pytest.fixture(autouse=True)
def forbid_blocking_calls(excuse_calls: Callable[[BlockBuster], None]) -> Iterator[BlockBuster]:
    """Make a blocking call on a running event loop raise `BlockingError` in every test.

    It covers plain tests too, because they may run a loop of their own; without a running loop the calls go through.
    Waiting for the disk is what a store does most and what BlockBuster does not know by itself, so it is added here.
    """
    buster = BlockBuster()
    buster.functions |= {
        "os.fsync": BlockBusterFunction(None, "os.fsync"),
        "os.fdatasync": BlockBusterFunction(None, "os.fdatasync"),
        "mmap.mmap.flush": BlockBusterFunction(mmap.mmap, "flush"),
    }
    excuse_calls(buster)
    buster.activate()
    try:
        yield buster
    finally:
        buster.deactivate()

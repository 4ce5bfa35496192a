"""What every test gets: a loop that refuses blocking calls, and random data that can be replayed."""

from __future__ import annotations

import asyncio
import gc
import mmap
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# Failed assertions of what tests share are to say as much as those of tests. All such modules are named here, because
# one suite may import those of another before that one has its turn.
_SHARED = {
    "admin": ("stage", "cases_*"),
    "clients": ("stage", "cases_*"),
    "console": ("browsing",),
    "delivery": ("plans", "pythonparts", "replaycases", "toolcases"),
    "replication": ("pairs", "groups", "following", "killing", "faults", "electing"),
    "spark": ("producing", "reading"),
}
pytest.register_assert_rewrite(
    *[
        f"tests.{suite}.{path.stem}"
        for suite, patterns in _SHARED.items()
        for pattern in patterns
        for path in sorted((Path(__file__).parent / suite).glob(f"{pattern}.py"))
    ]
)

from blockbuster import BlockBuster, BlockBusterFunction  # noqa: E402
from hypothesis import settings  # noqa: E402

from eruca._cli.store import raise_open_files_limit  # noqa: E402
from tests.figures import take_figures  # noqa: E402
from tests.needs import declare_needs, describe_left_out, leave_out, list_needs  # noqa: E402

# `ci` gives everyone the same examples; `explore` looks for new ones. Both print how to repeat a failure.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=2_000)

PROFILE = os.environ.get("ERUCA_HYPOTHESIS", "ci")
settings.load_profile(PROFILE)


LEFT_OUT = pytest.StashKey[str]()
# Figures that arrived with the reports of tests.
_figures: list[str] = []


def pytest_configure() -> None:
    """Let signals do what they do in a shell, also for a run that was started with nohup or in the background.

    Such a run ignores them, its children inherit that, and tests of signals would wait for ever. And allow as many open
    files as our servers allow themselves: tests with a thousand connections have both ends of each in one process.
    """
    raise_open_files_limit()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_report_header() -> list[str]:
    """Say which random data this run uses, so that a failure in a log can be repeated."""
    return [f"eruca: ERUCA_HYPOTHESIS={PROFILE} ERUCA_SEEDS={os.environ.get('ERUCA_SEEDS', '(default)')}"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests whose tools are missing, of those that `-m` and `-k` chose."""
    left_out, counts = leave_out(items)
    if left_out:
        config.stash[LEFT_OUT] = describe_left_out(len(left_out), counts)
        config.hook.pytest_deselected(items=left_out)
        away = set(left_out)
        items[:] = [item for item in items if item not in away]


def pytest_collection_finish() -> None:
    """Keep what was collected, millions of objects, out of every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Let tests that share something expensive stay together."""
    from tests.workers import GroupScheduling

    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test start only the tools that it says it needs."""
    declare_needs(list_needs(item))
    try:
        return (yield)
    finally:
        declare_needs(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send figures with the report of the test that noted them, so that they arrive from a worker too."""
    report = yield
    report.user_properties = [*report.user_properties, *(("figure", line) for line in take_figures())]
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep figures for the end."""
    _figures.extend(str(line) for name, line in report.user_properties if name == "figure")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that runs the workers what was left out: it collects no tests itself."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take it from a worker. All of them collect the same tests."""
    if said := getattr(node, "workeroutput", {}).get("left_out"):
        node.config.stash[LEFT_OUT] = said


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the tests counted."""
    if _figures:
        terminalreporter.section("figures")
        for line in _figures:
            terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say at the very end what was left out."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and (said := config.stash.get(LEFT_OUT, "")):
        reporter.write_line(said, yellow=True)


@pytest.fixture
def excuse_calls() -> Callable[[BlockBuster], None]:
    """What may block all the same. A module whose loops run on from test to test has its own fixture with this
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
    # The end of uvloop waits for the thread that ends the executor. BlockBuster excuses only asyncio's own loop.
    buster.functions["threading.Lock.acquire"].can_block_in("asyncio/runners.py", "close")
    excuse_calls(buster)
    buster.activate()
    try:
        yield buster
    finally:
        buster.deactivate()


@pytest.fixture(autouse=True)
def check_signals() -> Iterator[None]:
    """Fail a test that leaves a loop's handler of SIGINT behind: Ctrl-C would be lost from then on."""
    yield
    found = signal.getsignal(signal.SIGINT)
    if isinstance(getattr(found, "__self__", None), asyncio.AbstractEventLoop):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pytest.fail(f"a handler of SIGINT was left behind: {found}")

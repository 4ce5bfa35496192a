"""The two systems, the console of each, and a browser; no test leaves a complaint behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, StorageState, sync_playwright

import eruca.sync
from tests.console.browsing import ConsoleProcess, Visitor, choose_first_password, launch
from tests.console.scenery import allow_here
from tests.interop.brokers import PATIENCE, SETTINGS, Cluster, ErucaCluster, JavaCluster
from tests.interop.javapeer import prepare_peer
from tests.needs import starts

Open = Callable[..., Visitor]


@pytest.fixture(scope="session", params=["eruca", "java"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running system; every test that wants one runs once with each."""
    home = tmp_path_factory.mktemp(f"{request.param}-console")
    java = {**SETTINGS, **PATIENCE}
    with (
        ErucaCluster(home, allow_here(home))
        if request.param == "eruca"
        else JavaCluster(prepare_peer(), home, java) as it
    ):
        yield it


@pytest.fixture(scope="session")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """The console of the system; its administrator has not chosen a password yet, unless a test logged in."""
    home = tmp_path_factory.mktemp(f"{cluster.kind}-page")
    options = {"consoleWatchInterval": 500}
    with ConsoleProcess(home, {cluster.kind: cluster.name_server}, options) as it:
        yield it
        assert it.list_complaints() == []


@pytest.fixture(scope="session")
def admin_state(console: ConsoleProcess) -> StorageState:
    """The cookies of an administrator who has logged in and chosen a password."""
    return choose_first_password(console)


@pytest.fixture(scope="module")
@starts("chromium")
def browser() -> Iterator[Browser]:
    """The browser of the system. Its loop runs below the tests of a module, and no loop can run beside it."""
    with sync_playwright() as playwright:
        running = launch(playwright)
        yield running
        running.close()


@pytest.fixture(autouse=True)
def forbid_blocking_calls() -> None:
    """Allow them: these tests are plain ones, below which the loop of the browser runs."""


@pytest.fixture
def open_visitor(browser: Browser, console: ConsoleProcess, cluster: Cluster) -> Iterator[Open]:
    """Open browsers of their own: `open_visitor(storage_state=..., locale="zh-CN", viewport=...)`.

    At the end none of them may have complained: no error in the log, no violation of the policy for content.
    """
    opened: list[Visitor] = []

    def open_one(**settings: Any) -> Visitor:
        wanted = {"viewport": {"width": 1440, "height": 900}, "locale": "en", **settings}
        visitor = Visitor(browser.new_context(**wanted), console.address, cluster.kind)
        opened.append(visitor)
        return visitor

    yield open_one
    for visitor in opened:
        visitor.context.close()
        assert visitor.list_complaints() == []


@pytest.fixture
def visitor(open_visitor: Open, admin_state: StorageState) -> Visitor:
    """An administrator who is logged in."""
    return open_visitor(storage_state=admin_state)


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[eruca.sync.Admin]:
    """An admin of the system, to prepare and to check."""
    with eruca.sync.Admin(cluster.name_server) as it:
        yield it


@pytest.fixture
def name(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A name of a topic or group that no other test has."""
    return f"{request.node.originalname.removeprefix('test_').replace('_', '-')[:80]}-{cluster.kind}"

"""Every page: it answers, the browser has nothing to complain about, it fits a phone, and it is accessible."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, StorageState, expect

from tests.console.browsing import ConsoleProcess, Visitor
from tests.console.conftest import Open
from tests.console.pagelist import list_pages
from tests.console.scenery import Scenery, build_scenery
from tests.interop.brokers import Cluster
from tests.patience import PATIENCE_S

# What axe finds that users of screen readers or keyboards cannot do without.
_SERIOUS = ("serious", "critical")
_LOOKS = (
    ("light", "en", 1440),
    pytest.param("dark", "zh", 1280, marks=pytest.mark.whole),
    pytest.param("dark", "en", 390, marks=pytest.mark.whole),
)
# Pages that are errors on purpose.
_REFUSED = {"error": "404"}


@contextmanager
def keep_scenery(nameserver: str) -> Iterator[Scenery]:
    """Fill a cluster, and keep its groups running in a thread."""
    built: list[Scenery] = []
    failed: list[BaseException] = []
    is_ready, loop, ending = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def keep() -> None:
        try:
            async with AsyncExitStack() as stack:
                built.append(await stack.enter_async_context(build_scenery(nameserver)))
                is_ready.set()
                await ending.wait()
        except BaseException as error:
            failed.append(error)
            is_ready.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(keep()))
    thread.start()
    try:
        assert is_ready.wait(PATIENCE_S), "the scenery is not there in time"
        assert not failed, failed
        yield built[0]
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(PATIENCE_S)
        loop.close()


@pytest.fixture(scope="module")
def scenery(cluster: Cluster) -> Iterator[Scenery]:
    """A cluster with something on every page."""
    with keep_scenery(cluster.name_server) as it:
        yield it


@pytest.mark.parametrize(("theme", "language", "width"), _LOOKS)
def test_every_page(
    open_visitor: Open,
    admin_state: StorageState,
    scenery: Scenery,
    cluster: Cluster,
    console: ConsoleProcess,
    theme: str,
    language: str,
    width: int,
) -> None:
    visitor: Visitor = open_visitor(
        storage_state=admin_state, color_scheme=theme, locale=language, viewport={"width": width, "height": 900}
    )
    visitor.expected += _REFUSED.values()
    findings: list[str] = []
    for name, path in list_pages(scenery, cluster.kind).items():
        answer = visitor.page.goto(console.address + path)
        assert answer is not None
        if answer.status != int(_REFUSED.get(name, "200")):
            findings.append(f"{name}: {answer.status}")
        expect(visitor.page.locator(".htmx-request")).to_have_count(0)
        findings += [f"{name}: {finding}" for finding in check_page(visitor.page)]
        if visitor.page.evaluate("document.documentElement.lang") != language:
            findings.append(f"{name}: another language than {language}")
    assert findings == []


def check_page(page: Page) -> list[str]:
    """What is wrong with a page: it is wider than the window, or not accessible."""
    findings = []
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    if wide[0] > wide[1]:
        findings.append(f"it is {wide[0]} pixels wide in a window of {wide[1]}")
    for violation in Axe().run(page).response["violations"]:
        if violation["impact"] in _SERIOUS:
            where = [node["html"][:160] for node in violation["nodes"][:3]]
            findings.append(f"{violation['impact']}: {violation['id']}: {where}")
    return findings

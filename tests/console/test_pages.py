"""Every page: it answers, the browser has nothing to complain about, it fits a phone, it is accessible, and the
commands that it shows exist."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, StorageState

from tests.commandlines import find_fault
from tests.console.browsing import ConsoleProcess, Visitor
from tests.console.conftest import Open
from tests.console.pagelist import LOG_IN, list_pages, open_page
from tests.console.scenery import Scenery, keep_scenery
from tests.interop.brokers import Cluster

# What axe finds that users of screen readers or keyboards cannot do without.
_SERIOUS = ("serious", "critical")
_LOOKS = (
    ("light", "en", 1440),
    pytest.param("dark", "zh", 1280, marks=pytest.mark.whole),
    pytest.param("dark", "en", 390, marks=pytest.mark.whole),
)
# Pages that are errors on purpose; the Java broker of these tests has no access control, and so no accounts.
_REFUSED = {"eruca": {"error": "404"}, "java": {"error": "404", "account": "404"}}


@pytest.fixture(scope="module")
def scenery(cluster: Cluster, console: ConsoleProcess, admin_state: StorageState) -> Iterator[Scenery]:
    """A cluster with something on every page."""
    assert admin_state["cookies"], "the administrator has chosen a password"
    with keep_scenery(cluster.name_server, console, cluster.kind) as it:
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
    settings = {"color_scheme": theme, "locale": language, "viewport": {"width": width, "height": 900}}
    visitor: Visitor = open_visitor(storage_state=admin_state, **settings)
    refused = _REFUSED[cluster.kind]
    visitor.expected += refused.values()
    findings: list[str] = []
    for name, path in list_pages(scenery, cluster.kind).items():
        status = open_page(visitor.page, name, console.address + path)
        if status != int(refused.get(name, "200")):
            findings.append(f"{name}: {status}")
        findings += [f"{name}: {finding}" for finding in check_page(visitor.page)]
        if visitor.page.evaluate("document.documentElement.lang") != language:
            findings.append(f"{name}: another language than {language}")
    stranger: Visitor = open_visitor(**settings)
    stranger.page.goto(console.address + LOG_IN)
    findings += [f"login: {finding}" for finding in check_page(stranger.page)]
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
    return findings + check_commands(page)


def check_commands(page: Page) -> list[str]:
    """What is wrong with the commands that a page has to copy."""
    copied = page.locator("[data-copy]").evaluate_all("all => all.map(each => each.dataset.copy)")
    return [fault for text in copied if text.startswith("eruca ") and (fault := find_fault(text)) is not None]

"""Brokers: state, options with their meaning, and what the overview shows of a change; language and theme."""

from __future__ import annotations

import re

from playwright.sync_api import expect

import eruca.sync
from tests.console.browsing import Visitor, poll
from tests.interop.brokers import BROKER_NAME, Cluster

# An option that both kinds of broker have, with the same default, and that no other test looks at.
_KEY = "flushCommitLogLeastPages"


def test_an_option_is_changed_after_a_preview(visitor: Visitor, admin: eruca.sync.Admin) -> None:
    page = visitor.go("brokers")
    page.get_by_role("link", name=BROKER_NAME).click()
    expect(page.locator(".stat").first).to_be_visible()
    page.get_by_role("link", name="Configuration").click()
    page.locator("[data-search]").fill(_KEY)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("dirty 4 KiB pages that make a sync worthwhile")
    rows.get_by_role("link").click()
    page.get_by_label("Value").fill("8")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".outcomes del")).to_have_text("4")
    expect(page.locator(".outcomes ins")).to_have_text("8")
    visitor.confirm()
    expect(page.locator(".notice.ok")).to_be_visible()
    assert admin.brokers.config(BROKER_NAME).items[0].options[_KEY] == "8"
    visitor.go()
    changed = page.locator(".events li").filter(has_text=BROKER_NAME)
    expect(changed.first).to_contain_text("Change option")


def test_the_overview_has_its_figures_live(
    visitor: Visitor, admin: eruca.sync.Admin, cluster: Cluster, name: str
) -> None:
    page = visitor.go()
    expect(page.locator("h1")).to_have_text(cluster.kind)
    expect(page.locator("#overview-figures .stat")).to_have_count(6)
    stored = page.locator("#overview-figures .stat dd").first
    poll(stored.inner_text, lambda text: text.startswith("0"), "nothing is sent now")
    admin.topics.create(name)
    poll(lambda: [row.name for row in admin.topics.list(limit=100_000).items], lambda names: name in names, name)
    with eruca.sync.Producer(cluster.name_server) as producer:
        poll(
            lambda: (producer.send(name, b"hello"), stored.inner_text())[1], lambda text: not text.startswith("0"), "in"
        )


def test_language_and_theme_stay_chosen(visitor: Visitor) -> None:
    page = visitor.go("topics", q="none")
    page.locator(".choices .picker summary").click()
    page.get_by_role("link", name="中文").click()
    expect(page).to_have_url(re.compile("/topics"))
    expect(page.locator("h1")).to_have_text("主题")
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    page.locator("[data-theme-switch]").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    visitor.go("brokers")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("html")).to_have_attribute("lang", "zh")

"""Topics: create with a preview, look, change, mark, export, delete."""

from __future__ import annotations

import csv
import io
import re

from playwright.sync_api import expect

import eruca.sync
from tests.console.browsing import Visitor, poll
from tests.interop.brokers import BROKER_NAME, Cluster


def test_a_topic_is_created_changed_and_deleted(visitor: Visitor, admin: eruca.sync.Admin, name: str) -> None:
    page = visitor.go("topics")
    page.get_by_role("link", name="Create topic").click()
    page.get_by_label("Topic").fill(name)
    page.get_by_label("Queues per broker").fill("3")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".command code")).to_contain_text(f"eruca topic create {name} --queues 3")
    assert name not in [row.name for row in admin.topics.list(limit=100_000).items]
    visitor.confirm()
    expect(page.locator(".notice.ok")).to_be_visible()
    assert {row.settings.write_queues for row in admin.topics.show(name).brokers} == {3}

    page.get_by_role("link", name="Continue").click()
    page.get_by_role("link", name="Change").click()
    page.get_by_label("Write queues per broker").fill("5")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".outcomes del")).to_have_text("3")
    expect(page.locator(".outcomes ins")).to_have_text("5")
    visitor.confirm()
    assert {row.settings.write_queues for row in admin.topics.show(name).brokers} == {5}

    page = visitor.go("topics", name)
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Preview").click()
    page.locator("#confirm").fill("another")
    page.locator("form.confirm button[type=submit]").click()
    visitor.expected.append("400")
    expect(page.locator(".field-error")).to_be_visible()
    visitor.confirm(name)
    expect(page.locator(".notice.ok")).to_be_visible()
    poll(lambda: [row.name for row in admin.topics.list(limit=100_000).items], lambda names: name not in names, name)


def test_the_fields_of_a_form_are_checked(visitor: Visitor) -> None:
    visitor.expected.append("400")
    page = visitor.go("new", "topic")
    page.get_by_label("Topic").fill("no spaces please")
    page.get_by_label("Queues per broker").fill("many")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".field-error")).to_have_text("This is not a whole number.")
    expect(page.get_by_label("Topic")).to_have_value("no spaces please")
    page.get_by_label("Queues per broker").fill("4")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".notice.error")).to_be_visible()


def test_the_list_is_filtered_sorted_marked_and_exported(visitor: Visitor, admin: eruca.sync.Admin, name: str) -> None:
    for word in ("a", "b", "c"):
        admin.topics.create(f"{name}-{word}", queues=4)
    page = visitor.go("topics", q=name)
    rows = page.locator("tbody tr")
    poll(lambda: (page.reload(), rows.count())[1], lambda count: count == 3, "the topics are in the list")
    page.locator("[data-search]").fill(f"{name}-b")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("-b"))
    page.locator("[data-search]").fill(name)
    expect(rows).to_have_count(3)
    page.get_by_role("link", name="Topic", exact=True).click()
    expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("link", name="Topic", exact=True).click()
    expect(rows.first).to_contain_text(f"{name}-c")
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    text = started.value.path().read_text()
    assert [row["name"] for row in csv.DictReader(io.StringIO(text))] == [f"{name}-{word}" for word in "cba"]
    star = page.get_by_role("button", name=f"Add to favourites {name}-b")
    star.click()
    expect(page.get_by_role("button", name=f"Remove from favourites {name}-b")).to_be_visible()
    page = visitor.go("topics", q=name)
    expect(rows.first).to_contain_text(f"{name}-b")


def test_one_topic_shows_its_queues_and_what_happens_now(
    visitor: Visitor, admin: eruca.sync.Admin, name: str, cluster: Cluster
) -> None:
    admin.topics.create(name, queues=2)
    poll(lambda: [row.name for row in admin.topics.list(limit=100_000).items], lambda names: name in names, name)
    page = visitor.go("topics", name)
    expect(page.locator("tbody tr")).to_have_count(2)
    with eruca.sync.Producer(cluster.name_server) as producer:
        poll(lambda: producer.send(name, b"hello"), lambda receipt: receipt is not None, "a message is stored")
        expect(page.locator("#topic-count")).not_to_have_text("0")
    for tab in ("Groups", "Traffic", "Routes", "Producers", "Settings and retention"):
        page.get_by_role("link", name=tab, exact=True).last.click()
        expect(page.locator(".tabs [aria-current]")).to_have_text(tab)
    kept = admin.brokers.config(BROKER_NAME).items[0].options["fileReservedTime"]
    expect(page.get_by_text(f"{kept} hours")).to_be_visible()


def test_a_command_is_copied(visitor: Visitor) -> None:
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visitor.go("topics")
    page.locator("[data-copy]").click()
    expect(page.locator("#toast")).to_have_class("shown")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("eruca topic list -n 127.0.0.1:")


def test_keys_lead_to_pages(visitor: Visitor) -> None:
    page = visitor.go("topics")
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("b")
    expect(page).to_have_url(re.compile("/brokers$"))
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()

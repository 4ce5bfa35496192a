"""Messages in a browser, on both systems: search, send, copy, import, live tail, traces, dead letters, decisions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from playwright.sync_api import Dialog, Page, StorageState, expect

import eruca.sync
from eruca.admin import Admin, StoredMessage
from tests.console.browsing import Visitor, poll, run_eruca
from tests.console.conftest import Open
from tests.integration.admin.staging import bury, prepare
from tests.interop.brokers import Cluster

Answer = TypeVar("Answer")

SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'


@pytest.fixture
def topic(admin: eruca.sync.Admin, name: str) -> str:
    """A topic of this test with two queues, which can be written to."""
    create_topic(admin, name)
    return name


def create_topic(admin: eruca.sync.Admin, name: str) -> None:
    """Create a topic with two queues; returns when the name server knows it."""
    admin.topics.create(name, queues=2)
    listed = poll(admin.topics.list, lambda found: name in [row.name for row in found.items], f"a route of {name}")
    assert not listed.cut


def apart(cluster: Cluster, work: Callable[[Admin], Awaitable[Answer]]) -> Answer:
    """Run a coroutine with an admin in another thread: the loop of the browser runs in this one."""

    async def run() -> Answer:
        async with Admin(cluster.name_server) as admin:
            return await work(admin)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()


def send(admin: eruca.sync.Admin, topic: str, *bodies: str, **how: object) -> list[str]:
    """Send messages; returns their ids when they are all there."""
    ids = []
    for body in bodies:
        receipt = admin.messages.send(topic, body.encode(), **how)  # type: ignore[arg-type]
        assert receipt is not None
        ids.append(receipt.message_id)
    for each in ids:
        poll(lambda each=each: admin.messages.find(topic, each).items, bool, f"message {each}")  # type: ignore[misc]
    return ids


def read(admin: eruca.sync.Admin, topic: str) -> list[StoredMessage]:
    """The messages of a topic, in the order in which they were stored."""
    return list(admin.messages.read(topic))


def submit(page: Page) -> None:
    """Show the preview of the form."""
    page.get_by_role("button", name="Preview").click()


# -- searching ---------------------------------------------------------------------------------------------------------


def test_a_message_is_sent_and_found_by_its_key(visitor: Visitor, admin: eruca.sync.Admin, topic: str) -> None:
    page = visitor.go("messages", topic=topic)
    expect(page.locator(".empty")).to_be_visible()
    page.locator(".empty").get_by_role("link", name="Send message").click()
    page.get_by_label("Body", exact=True).fill('{"amount": 120.5, "customer": {"name": "张三"}}')
    page.get_by_label("Tags").fill("paid")
    page.get_by_label("Keys").fill("order-7 customer-3")
    page.get_by_label("Properties").fill("region=eu\nsource=test")
    page.get_by_label("Shard").fill("customer-3")
    submit(page)
    expect(page.locator(".command code")).to_contain_text(f"eruca send {topic}")
    expect(page.locator(".outcomes")).to_contain_text("张三")
    assert read(admin, topic) == []
    visitor.confirm()
    expect(page.locator(".notice.ok")).to_be_visible()
    (stored,) = poll(lambda: read(admin, topic), bool, "the message is stored")
    assert (stored.tags, stored.keys, stored.properties["region"]) == ("paid", ["order-7", "customer-3"], "eu")

    page = visitor.go("messages", topic=topic)
    page.get_by_label("Search by").select_option("key")
    expect(page.get_by_label("Stored until")).to_be_visible()
    expect(page.get_by_label("Queue")).to_be_hidden()
    page.get_by_label("Key or id").fill("order-7")
    page.get_by_role("button", name="Search").click()
    rows = page.locator("table.messages tbody tr:has(a.place)")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("order-7 customer-3")
    rows.get_by_role("link").click()
    expect(page.locator("#body pre")).to_contain_text('"name": "张三"')
    for format, text in (("Hex", "7b 22 61 6d"), ("Text", '{"amount": 120.5'), ("Decoded", '  "amount": 120.5')):
        page.get_by_role("link", name=format, exact=True).click()
        expect(page.locator("#body pre")).to_contain_text(text)
    expect(page.locator(".command code")).to_contain_text(f"eruca message show {stored.offset_id}")


def test_a_filter_looks_into_bodies_and_is_saved(visitor: Visitor, admin: eruca.sync.Admin, topic: str) -> None:
    for number in range(12):
        body = json.dumps({"amount": number * 10, "items": [{"sku": f"book-{number % 3}"}]})
        send(admin, topic, body, tags="even" if number % 2 == 0 else "odd", properties={"number": str(number)})
    page = visitor.go("messages", topic=topic)
    rows = page.locator("table.messages tbody tr:has(a.place)")
    expect(rows).to_have_count(12)
    expect(rows.first).to_contain_text('"amount": 110')
    page.get_by_label("Filter", exact=True).fill("body.amount >= 30 and tags = 'even' and body.items.sku <> 'book-1'")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(2)
    expect(page.locator(".progress")).to_contain_text("12 messages read, 2 found")
    page.get_by_label("Name of the filter").fill("large even ones")
    page.get_by_role("button", name="Save filter").click()
    page = visitor.go("messages", topic=topic)
    page.get_by_role("link", name="large even ones", exact=True).click()
    expect(rows).to_have_count(2)
    with page.expect_download() as started:
        page.get_by_role("link", name="JSON lines").click()
    lines = [json.loads(line) for line in started.value.path().read_text().splitlines()]
    assert [json.loads(line["body"])["amount"] for line in lines] == [80, 60]
    page.get_by_role("button", name="Delete the filter large even ones").click()
    expect(page.get_by_role("link", name="large even ones", exact=True)).to_have_count(0)
    visitor.expected.append("400")
    page.get_by_label("Filter", exact=True).fill("body.amount >")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".notice.error")).to_contain_text("the filter is wrong at character 14")


def test_what_others_wrote_is_shown_as_text(visitor: Visitor, admin: eruca.sync.Admin, topic: str) -> None:
    """A dialog, an image that fails or a script that the policy refuses would be a complaint of the browser."""
    alerts: list[str] = []
    page = visitor.page

    def note(dialog: Dialog) -> None:
        alerts.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    for body in (SCRIPT, json.dumps({"a": SCRIPT, IMAGE: IMAGE})):
        send(admin, topic, body, tags=IMAGE, keys=[SCRIPT], properties={IMAGE: SCRIPT})
    visitor.go("messages", topic=topic)
    cell = page.locator("table.messages td.body").last
    expect(cell).to_have_text(SCRIPT)
    page.locator("a.place").last.click()
    expect(page.locator("#body pre")).to_have_text(SCRIPT)
    expect(page.get_by_role("rowheader", name=IMAGE)).to_be_visible()
    page.get_by_role("link", name="Edit and resend").click()
    expect(page.get_by_label("Body", exact=True)).to_have_value(SCRIPT)
    submit(page)
    expect(page.locator(".outcomes")).to_contain_text(SCRIPT)
    visitor.go("tail", topic=topic)
    expect(page.locator("#tail-rows tr")).to_have_count(2)
    expect(page.locator("#tail-rows")).to_contain_text(SCRIPT)
    visitor.go("messages", topic=topic, filter=f"body contains '{IMAGE}'", name=IMAGE)
    expect(page.get_by_label("Filter", exact=True)).to_have_value(f"body contains '{IMAGE}'")
    assert page.locator("main img").count() == 0 and page.locator("main script").count() == 0 and alerts == []


# -- sending -----------------------------------------------------------------------------------------------------------


def test_a_message_is_copied_to_another_topic(visitor: Visitor, admin: eruca.sync.Admin, topic: str) -> None:
    other = f"{topic}-copies"
    create_topic(admin, other)
    send(admin, topic, '{"amount": 1}', tags="paid", keys=["order-7"], properties={"region": "eu"})
    page = visitor.go("messages", topic=topic)
    page.locator("a.place").click()
    page.get_by_role("link", name="Edit and resend").click()
    page.get_by_label("To topic").fill(other)
    page.get_by_label("Body", exact=True).fill('{"amount": 2}')
    submit(page)
    expect(page.locator(".outcomes del")).to_have_text([topic, '{"amount": 1}'])
    expect(page.locator(".outcomes ins")).to_have_text([other, '{"amount": 2}'])
    visitor.confirm()
    (copied,) = poll(lambda: read(admin, other), bool, "the copy is stored")
    assert (copied.body, copied.tags, copied.keys) == (b'{"amount": 2}', "paid", ["order-7"])
    assert copied.properties["region"] == "eu" and len(read(admin, topic)) == 1


def test_a_wrong_form_says_what_is_wrong(visitor: Visitor, topic: str) -> None:
    visitor.expected.append("400")
    page = visitor.go("messages", "send", topic=topic)
    page.get_by_label("Body", exact=True).fill("x")
    page.get_by_label("Deliver after").fill("7s")
    page.get_by_label("Properties").fill("region")
    submit(page)
    expect(page.locator(".field-error")).to_have_text("region: expected NAME=VALUE.")
    page.get_by_label("Properties").fill("")
    submit(page)
    expect(page.locator(".notice.error")).to_contain_text("no such delay level")
    expect(page.get_by_label("Body", exact=True)).to_have_value("x")


def test_a_file_is_imported_and_every_line_has_an_outcome(
    visitor: Visitor, admin: eruca.sync.Admin, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    send(admin, topic, "first", "second", keys=["order-7"])
    # What a command prints is what the page takes.
    printed = run_eruca("message", "find", topic, "--key", "order-7", "-n", cluster.name_server, "-o", "json")
    file = tmp_path / "orders.jsonl"
    file.write_text(printed + '{"tags": "no body"}\n')
    page = visitor.go("messages", "import", topic=topic)
    page.get_by_label("File").set_input_files(file)
    submit(page)
    expect(page.locator(".outcomes tbody")).to_have_count(3)
    expect(page.locator(".outcomes")).to_contain_text("neither body nor body_base64")
    expect(page.locator(".command code")).to_contain_text(f"eruca message import {topic} orders.jsonl")
    assert len(read(admin, topic)) == 2
    visitor.confirm()
    expect(page.locator(".outcomes .tag.ok")).to_have_count(2)
    expect(page.locator(".outcomes .tag.error")).to_have_count(1)
    stored = poll(lambda: read(admin, topic), lambda found: len(found) == 4, "the file is imported")
    assert sorted(each.body for each in stored) == [b"first", b"first", b"second", b"second"]


# -- live tail and traces ----------------------------------------------------------------------------------------------


def test_a_live_tail_shows_what_arrives_filtered_and_paused(
    visitor: Visitor, admin: eruca.sync.Admin, topic: str
) -> None:
    send(admin, topic, "before")
    page = visitor.go("tail", topic=topic, filter="not body contains 'quiet'")
    rows = page.locator("#tail-rows tr")
    expect(rows).to_have_text([_row("before")])
    send(admin, topic, "quiet", "one")
    expect(rows).to_have_text([_row("one"), _row("before")])
    expect(page.locator("#tail-count")).to_contain_text("3 messages have arrived")
    page.get_by_role("button", name="Pause").click()
    send(admin, topic, "two", "three")
    expect(page.get_by_role("button", name="Continue (2 new)")).to_be_visible()
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Continue (2 new)").click()
    expect(rows).to_have_count(4)
    expect(page.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "false")
    rows.last.get_by_role("link").click()
    expect(page.locator("#body pre")).to_have_text("before")


def _row(body: str) -> re.Pattern[str]:
    """A pattern for the text of a row that ends with a body."""
    return re.compile(rf"{body}\s*$")


def test_a_trace_is_a_timeline(visitor: Visitor, admin: eruca.sync.Admin, cluster: Cluster, topic: str) -> None:
    group, key = f"{topic}-billing", f"{topic}-7"
    with eruca.sync.Producer(cluster.name_server, group="shop", trace=True) as producer:
        producer.send(topic, b"traced", keys=[key])
    consumer = eruca.sync.Consumer(cluster.name_server, group=group, start="earliest", trace=True)
    consumer.handler(topic)(lambda message: None)
    with consumer:

        def steps() -> set[str]:
            return {step.step for step in admin.messages.trace(key).items}

        poll(steps, lambda found: found >= {"sent", "delivered", "consumed"}, "the trace is stored")
    page = visitor.go("traces", topic=topic, name=key)
    expect(page.locator("svg.timeline g.event")).to_have_count(4)
    expect(page.locator("#events-table tbody tr")).to_have_count(4)
    expect(page.locator("#events-table")).to_contain_text(f"{group} @ ")
    expect(page.locator("#tracks-table")).to_contain_text(group)
    page.get_by_role("link", name="Show the message").click()
    expect(page.locator("#body pre")).to_have_text("traced")
    page.get_by_role("link", name="Traces").last.click()
    expect(page.locator("svg.timeline")).to_be_visible()


# -- dead letters, delayed messages, transactions ----------------------------------------------------------------------


def test_an_edited_dead_letter_is_sent_again(
    visitor: Visitor, admin: eruca.sync.Admin, cluster: Cluster, topic: str
) -> None:
    group = f"{topic}-billing"
    apart(cluster, lambda admin: bury(admin, group, topic, 3))
    page = visitor.go("deadletters")
    page.get_by_role("link", name=group).click()
    rows = page.locator("#letters-table tbody tr")
    expect(rows).to_have_count(3)
    # One is corrected.
    rows.first.get_by_role("link").click()
    page.get_by_role("link", name="Edit and resend").click()
    expect(page.get_by_label("To topic")).to_have_value(topic)
    page.get_by_label("Body", exact=True).fill("corrected")
    submit(page)
    visitor.confirm()
    expect(page.locator(".notice.ok")).to_be_visible()
    stored = poll(lambda: read(admin, topic), lambda found: len(found) == 4, "the corrected one is stored")
    assert stored[-1].body == b"corrected"
    # The others are sent as they are, only to their group.
    page = visitor.go("deadletters", group)
    visitor.expected.append("400")
    page.get_by_role("button", name="Resend selected").click()
    expect(page.locator("main")).to_contain_text("Select between 1 and 1000 dead letters")
    page = visitor.go("deadletters", group)
    for number in (1, 2):
        rows.nth(number).get_by_role("checkbox").check()
    page.get_by_role("button", name="Resend selected").click()
    expect(page.locator(".outcomes tbody")).to_have_count(2)
    expect(page.locator(".command code")).to_contain_text(f"eruca dlq resend {group}")
    expect(page.locator(".command code")).to_contain_text("--only-group")
    visitor.confirm()
    expect(page.locator(".outcomes .tag.ok")).to_have_count(2)
    retried = poll(lambda: read(admin, f"%RETRY%{group}"), lambda found: len(found) == 2, "they are in the retry topic")
    assert all(each.topic == topic for each in retried) and len(read(admin, topic)) == 4


def test_a_delayed_message_is_cancelled(
    visitor: Visitor, admin: eruca.sync.Admin, cluster: Cluster, topic: str
) -> None:
    admin.messages.send(topic, b"fixed", delay=timedelta(hours=2), keys=["fixed-1"])
    has_timer = cluster.kind == "eruca"
    if has_timer:
        admin.messages.send(topic, b"free", timer=timedelta(hours=3), keys=["free-1"])
    count = 1 + has_timer
    poll(lambda: admin.delayed.list(topic=topic).items, lambda found: len(found) == count, "delayed messages")
    page = visitor.go("delayed", topic=topic)
    rows = page.locator("#delayed-table tbody tr")
    expect(rows).to_have_count(count)
    fixed = rows.filter(has_text="fixed-1")
    expect(fixed.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(fixed).to_contain_text("fixed")
    if has_timer:
        rows.filter(has_text="free-1").get_by_role("button", name="Cancel").click()
        expect(page.locator(".command code")).to_contain_text(f"eruca delayed cancel {topic}")
        assert len(admin.delayed.list(topic=topic).items) == 2
        visitor.confirm()
        expect(page.locator(".notice.ok")).to_be_visible()
        poll(lambda: admin.delayed.list(topic=topic).items, lambda found: len(found) == 1, "it is cancelled")


def test_a_transaction_is_decided(visitor: Visitor, admin: eruca.sync.Admin, cluster: Cluster, topic: str) -> None:
    name = f"7F000001000026A2{'0' if cluster.kind == 'eruca' else '1'}00000000000007"
    apart(cluster, lambda admin: prepare(admin, topic, name))
    # In a test, brokers give up after a few checks; whichever state it is in, there is something to decide.
    page = visitor.go("transactions")
    page.get_by_role("link", name=name).click()
    expect(page.locator("main")).to_contain_text("What the broker knows")
    expect(page.locator("main")).to_contain_text(f"half {name}")
    page.get_by_role("button", name="Discard transaction").click()
    expect(page.locator(".command code")).to_contain_text(f"eruca txn discard {name}")
    visitor.confirm(name)
    expect(page.locator(".notice.ok")).to_be_visible()

    def find_states() -> set[str]:
        return {row.state.value for row in admin.transactions.list(limit=1000).items if row.message_id == name}

    poll(find_states, lambda states: not states, "it is decided")
    page = visitor.go("transactions", state="all", q=name)
    expect(page.locator("#transactions-table .tag")).to_have_text("rolled back")


# -- the look ----------------------------------------------------------------------------------------------------------


def test_the_pages_are_in_chinese_and_fit_a_phone(open_visitor: Open, admin_state: StorageState, topic: str) -> None:
    visitor = open_visitor(storage_state=admin_state, locale="zh-CN", viewport={"width": 390, "height": 844})
    for parts, heading in (
        (("messages",), "消息"),
        (("messages", "send"), "发送消息"),
        (("messages", "import"), "导入文件"),
        (("tail",), "实时跟踪"),
        (("traces",), "消息轨迹"),
        (("deadletters",), "死信"),
        (("delayed",), "延迟消息"),
        (("transactions",), "事务消息"),
    ):
        page = visitor.go(*parts, topic=topic)
        expect(page.locator("h1")).to_have_text(heading)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), parts

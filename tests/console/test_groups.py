"""Groups: watching lag grow and shrink, why a group is behind, moving it without fear."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

import eruca.sync
from eruca import Offsets
from eruca.sync import Message
from tests.console.browsing import Visitor, poll, run_eruca
from tests.interop.brokers import Cluster

QUEUES = 2


def fill(cluster: Cluster, admin: eruca.sync.Admin, topic: str, count: int = 20) -> None:
    """Send messages to a topic, which is created if it is not there, and wait until they are in its queues."""
    admin.topics.create(topic, queues=QUEUES)
    poll(lambda: has_route(admin, topic), bool, f"a route of {topic}")
    before = count_messages(admin, topic)
    with eruca.sync.Producer(cluster.name_server, group="senders") as producer:
        for number in range(count):
            producer.send(topic, b"body %d" % number, keys=f"key{number}")
    poll(lambda: count_messages(admin, topic), lambda found: found == before + count, f"{count} messages in {topic}")


def has_route(admin: eruca.sync.Admin, topic: str) -> bool:
    return topic in [row.name for row in admin.topics.list(limit=100_000).items]


def count_messages(admin: eruca.sync.Admin, topic: str) -> int:
    return sum(row.count for row in admin.topics.queues(topic).items)


def list_offsets(admin: eruca.sync.Admin, group: str) -> list[int]:
    found = poll(lambda: admin.offsets.show(group), lambda listed: not listed.problems, f"the offsets of {group}")
    return [row.offset for row in found.items if not row.topic.startswith("%")]


def sum_lag(admin: eruca.sync.Admin, group: str) -> int:
    return sum(row.lag for row in admin.offsets.show(group).items)


@contextmanager
def member(cluster: Cluster, group: str, topic: str, gate: threading.Event) -> Iterator[None]:
    """A member whose handler waits at a gate."""
    consumer = eruca.sync.Consumer(cluster.name_server, group=group, start="earliest", offsets=Offsets(interval=0.2))

    @consumer.handler(topic)
    def wait(message: Message) -> None:
        gate.wait()

    with consumer:
        try:
            yield
        finally:
            gate.set()


@pytest.fixture
def away(cluster: Cluster, admin: eruca.sync.Admin, name: str) -> str:
    """A group that has consumed nothing of 20 messages and has no members; its topic has the same name."""
    fill(cluster, admin, name)
    assert not admin.offsets.reset(name, name, "earliest").failed
    return name


def test_lag_grows_and_shrinks_and_the_page_states_why(
    visitor: Visitor, cluster: Cluster, admin: eruca.sync.Admin, name: str
) -> None:
    fill(cluster, admin, name, 4)
    gate = threading.Event()
    with member(cluster, name, name, gate):
        poll(lambda: admin.groups.members(name).items if knows(admin, name) else [], bool, "a member")
        fill(cluster, admin, name, 36)
        page = visitor.go("groups", q=name)
        row = page.locator("#groups-table tbody tr")
        poll(lambda: (page.reload(), row.count())[1], lambda count: count == 1, "the group is in the list")
        # The list asks again automatically.
        expect(row.locator("td").nth(2)).to_have_text("40")
        row.get_by_role("link", name=name).click()
        expect(page.locator("#group-figures")).to_contain_text("40")
        why = page.locator("#diagnosis")
        expect(why).to_contain_text("waits on message")
        expect(why).to_contain_text("Its owner")
        owner = admin.groups.members(name).items[0].client_id
        expect(why).to_contain_text(owner)
        expect(page.locator("#queues tbody tr")).not_to_have_count(0)
        expect(page.locator("#members tbody tr")).to_have_count(1)
        # What the owner is doing.
        why.get_by_role("link", name="What is its owner doing?").click()
        expect(page.locator("h1")).to_contain_text(owner)
        expect(page.locator("#stack")).to_be_visible()
        expect(page.locator("main")).to_contain_text(name)
        page = visitor.go("groups", name)
        gate.set()
        poll(lambda: sum_lag(admin, name), lambda lag: lag == 0, "the backlog is consumed")
        expect(page.locator("#group-figures .stat").nth(1).locator("dd")).to_have_text(re.compile(r"^0\s*messages"))
        # The history has the rise and the fall.
        expect(page.locator("#group-charts svg path.line").first).to_be_visible()
        page.locator("#diagnosis").get_by_role("button", name="Look again").click()
        expect(page.locator("#diagnosis.ok")).to_contain_text("Nothing waits")


def knows(admin: eruca.sync.Admin, group: str) -> bool:
    return group in [row.name for row in admin.groups.list(limit=100_000).items]


def test_one_queue_is_moved_and_moved_back_with_the_command(
    visitor: Visitor, cluster: Cluster, admin: eruca.sync.Admin, away: str
) -> None:
    assert list_offsets(admin, away) == [0, 0]
    page = visitor.go("groups", away)
    expect(page.locator("#diagnosis.error")).to_contain_text("no member is connected")
    page.locator("#queues tbody tr").first.get_by_role("link", name=re.compile("^Move ")).click()
    page.get_by_label("Move it").select_option("by")
    page.get_by_label("Offset or number of messages").fill("3")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".outcomes del")).to_have_text("0")
    expect(page.locator(".outcomes ins")).to_have_text("3")
    expect(page.locator(".command code").first).to_contain_text(f"eruca offset set {away} {away} ")
    # Nothing has changed yet.
    assert list_offsets(admin, away) == [0, 0]
    visitor.confirm()
    expect(page.locator(".notice.ok")).to_be_visible()
    assert sorted(list_offsets(admin, away)) == [0, 3]
    undo = page.locator(".command code").last.inner_text()
    assert undo.startswith("eruca offset set"), undo
    run_eruca(*undo.split()[1:], "--yes")
    assert list_offsets(admin, away) == [0, 0]


def test_a_queue_is_not_moved_under_its_owner(
    visitor: Visitor, cluster: Cluster, admin: eruca.sync.Admin, name: str
) -> None:
    visitor.expected.append("400")
    fill(cluster, admin, name)
    gate = threading.Event()
    with member(cluster, name, name, gate):
        poll(lambda: sum_lag(admin, name) if knows(admin, name) else 0, bool, "the group is behind")
        poll(lambda: admin.groups.members(name).items, bool, "a member")
        broker = admin.topics.queues(name).items[0].broker
        page = visitor.go("groups", name, "set", topic=name, broker=broker, queue=0, way="end")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator(".notice.error")).to_contain_text("connected")


def test_a_group_is_reset_by_time_skipped_copied_and_deleted(
    visitor: Visitor, cluster: Cluster, admin: eruca.sync.Admin, away: str
) -> None:
    page = visitor.go("groups", away)
    page.get_by_role("link", name="Skip the backlog").click()
    page.get_by_label("Topic").select_option(away)
    page.get_by_role("button", name="Preview").click()
    visitor.confirm()
    expect(page.locator(".notice.ok")).to_be_visible()
    assert sum_lag(admin, away) == 0

    page = visitor.go("groups", away)
    page.get_by_role("link", name="Reset by time").click()
    page.get_by_label("To", exact=True).fill("yesterday")
    page.get_by_label("Topic").select_option(away)
    visitor.expected.append("400")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".field-error")).to_contain_text("yesterday")
    page.get_by_label("To", exact=True).fill("-1h")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".outcomes ins").first).to_have_text("0")
    visitor.confirm()
    expect(page.locator(".notice.ok")).to_be_visible()
    assert list_offsets(admin, away) == [0, 0]

    page = visitor.go("groups", away)
    page.get_by_role("link", name="Copy offsets").click()
    page.get_by_label("The other group").fill(f"{away}-copy")
    page.get_by_role("button", name="Preview").click()
    visitor.confirm()
    expect(page.locator(".notice.ok")).to_be_visible()
    assert list_offsets(admin, f"{away}-copy") == [0, 0]

    page = visitor.go("groups", f"{away}-copy")
    page.get_by_role("link", name="Delete group").click()
    page.get_by_role("button", name="Preview").click()
    visitor.confirm(f"{away}-copy")
    expect(page.locator(".notice.ok")).to_be_visible()
    poll(lambda: list_offsets(admin, f"{away}-copy"), lambda found: found == [], "its offsets are gone")


def test_the_doctor_states_what_to_do(visitor: Visitor, away: str) -> None:
    page = visitor.go("doctor", again=1)
    finding = page.locator(".finding", has_text=f"group {away} ")
    expect(finding.first).to_contain_text("no member is connected")
    expect(finding.first.locator(".command code")).to_contain_text(f"eruca group show {away}")
    finding.first.get_by_role("link", name=f"group {away}").click()
    expect(page.locator("h1")).to_contain_text(away)


def test_a_group_that_does_not_exist(visitor: Visitor) -> None:
    visitor.expected.append("404")
    page = visitor.go("groups", "no-such-group")
    expect(page.locator("main")).to_contain_text("no broker knows a group no-such-group")

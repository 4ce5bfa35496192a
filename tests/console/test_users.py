"""Users: the first log-in, a viewer who is refused, rights by prefix, hidden fields, and the audit log of all of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import eruca.sync
from tests.console.browsing import ADMIN, PASSWORD, ConsoleProcess, Visitor, poll
from tests.console.conftest import Open
from tests.interop.brokers import Cluster

# The browser reports the status of a page that is refused.
REFUSED = "status of 40[0135]"


@pytest.fixture
def fresh(cluster: Cluster, tmp_path: Path) -> Iterator[ConsoleProcess]:
    """A console that nobody has used yet, of two clusters."""
    clusters = {cluster.kind: cluster.name_server, "again": cluster.name_server}
    with ConsoleProcess(tmp_path / "home", clusters) as it:
        yield it
        assert it.list_complaints() == []


def fill_log_in(page: Page, user: str, password: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def create_user(visitor: Visitor, name: str, role: str, rights: str = "") -> str:
    """Create a user; returns the one-time password, which is shown once."""
    page = visitor.page
    page.goto(f"{visitor.address}/users")
    page.get_by_role("link", name="Create user").click()
    page.get_by_label("User", exact=True).fill(name)
    page.get_by_label("Role").select_option(role)
    page.get_by_label("Rights by prefix").fill(rights)
    page.get_by_role("button", name="Preview").click()
    visitor.confirm()
    return page.locator("#secret").inner_text()


def log_in_anew(visitor: Visitor, name: str, one_time: str) -> None:
    """Log in for the first time, and choose a password."""
    visitor.log_in(name, one_time)
    visitor.choose_password(one_time, PASSWORD)


def post(page: Page, path: str, **fields: str) -> int:
    """Post a form with the session of a page and its token; returns the status of the answer."""
    send = """async ([path, fields]) => {
        const { csrf } = await (await fetch("/api/session")).json();
        const body = new URLSearchParams({ ...fields, csrf });
        return (await fetch(path, { method: "POST", body })).status;
    }"""
    status: int = page.evaluate(send, [path, fields])
    return status


def test_the_first_log_in(fresh: ConsoleProcess, open_visitor: Open) -> None:
    visitor = open_visitor()
    visitor.address = fresh.address
    visitor.expected.append(REFUSED)
    # A page that needs a log-in leads to it, and the log-in leads back.
    page = visitor.go("topics", q="none")
    expect(page.locator("h1")).to_have_text("Log in")
    fill_log_in(page, ADMIN, "not the password")
    expect(page.locator(".notice.error")).to_have_text("The user or the password is wrong.")
    expect(page.get_by_label("User")).to_have_value(ADMIN)
    fill_log_in(page, ADMIN, fresh.first_password)
    expect(page.locator("h1")).to_have_text("Change password")
    # The one-time password opens nothing else.
    visitor.go("topics")
    expect(page.locator("h1")).to_have_text("Change password")
    page.get_by_label("Present password").fill(fresh.first_password)
    page.get_by_label("New password", exact=True).fill("too short")
    page.get_by_label("New password again").fill("too short")
    page.locator("main button[type=submit]").click()
    expect(page.locator(".notice.error, .field-error").first).to_contain_text("12 to 1024 characters")
    visitor.choose_password(fresh.first_password, PASSWORD)
    expect(page.locator("h1")).to_have_text(visitor.cluster)
    # Another cluster of the same console.
    page.locator("details.picker summary").first.click()
    page.get_by_role("link", name="again").click()
    expect(page.locator("h1")).to_have_text("again")
    page.get_by_title("Log out").click()
    expect(page.locator("h1")).to_have_text("Log in")
    visitor.go("topics", q="none")
    expect(page.locator("h1")).to_have_text("Log in")
    # The one-time password was for once; what was asked for is shown after the log-in.
    fill_log_in(page, ADMIN, fresh.first_password)
    expect(page.locator(".notice.error")).to_be_visible()
    fill_log_in(page, ADMIN, PASSWORD)
    page.wait_for_url(visitor.path("topics", q="none"))
    page.goto(f"{visitor.address}/audit")
    for text in ("Log in", "Log out", "Change password", "127.0.0.1"):
        expect(page.locator("#audit-table")).to_contain_text(text)
    assert fresh.first_password not in page.content() and PASSWORD not in page.content()


def test_a_viewer_looks_and_is_refused_all_else(
    visitor: Visitor, open_visitor: Open, admin: eruca.sync.Admin, name: str
) -> None:
    admin.topics.create(name, queues=2)
    poll(lambda: [row.name for row in admin.topics.list(limit=100_000).items], lambda names: name in names, name)
    user, hidden = f"vera-{name}"[:60], f"{name}-hidden"
    one_time = create_user(visitor, user, "viewer", f"topic {hidden} none")
    other = open_visitor()
    other.expected.append(REFUSED)
    log_in_anew(other, user, one_time)
    page = other.go("topics", name)
    expect(page.locator("tbody tr")).to_have_count(2)
    # Nothing is offered that would be refused.
    for text in ("Change", "Delete"):
        expect(page.locator("main").get_by_role("link", name=text, exact=True)).to_have_count(0)
    for parts in (("new", "topic"), ("topics", name, "delete"), ("messages", "send"), ("topics", hidden)):
        other.go(*parts)
        expect(page.locator("main")).to_contain_text("may not")
    page.goto(f"{other.address}/audit")
    expect(page.locator("main")).to_contain_text("may not")
    base = other.path().removeprefix(other.address)
    for path, fields in (
        (f"{base}/topics/{name}/delete", {"confirm": name}),
        (f"{base}/new/topic", {"topic": f"{name}-more", "queues": "1", "permission": "RW"}),
        (f"{base}/messages/send", {"topic": name, "body": "x", "encoding": "text"}),
        ("/users/new", {"name": "mallory", "role": "admin"}),
    ):
        assert post(page, path, **fields) == 403, path
        assert post(page, f"/api{path}", **fields) in (403, 404, 405), path
    assert admin.topics.show(name).brokers and list(admin.messages.read(name)) == []

    # As an operator of this prefix the same user may.
    page = visitor.page
    page.goto(f"{visitor.address}/users/{user}")
    page.get_by_label("Rights by prefix").fill(f"topic {name} operator")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".outcomes ins")).to_contain_text([f"topic {name} operator"])
    visitor.confirm()
    page = other.go("messages", "send", topic=name)
    page.get_by_label("Body", exact=True).fill("sent by an operator")
    page.get_by_role("button", name="Preview").click()
    other.confirm()
    poll(lambda: [each.body for each in admin.messages.read(name)], lambda found: found == [b"sent by an operator"], "")
    assert post(page, f"{base}/new/topic", topic="elsewhere", queues="1", permission="RW") == 403
    # A user who is disabled is out at once.
    page = visitor.page
    page.goto(f"{visitor.address}/users/{user}")
    page.get_by_label("May not log in").check()
    page.get_by_role("button", name="Preview").click()
    visitor.confirm()
    other.go("topics")
    expect(other.page.locator("h1")).to_have_text("Log in")


def test_a_masked_field_is_hidden_from_a_viewer(
    visitor: Visitor, open_visitor: Open, admin: eruca.sync.Admin, name: str
) -> None:
    admin.topics.create(name, queues=1)
    poll(lambda: [row.name for row in admin.topics.list(limit=100_000).items], lambda names: name in names, name)
    admin.messages.send(name, json.dumps({"amount": 3, "card": {"number": "4711"}}).encode())
    poll(lambda: list(admin.messages.read(name)), bool, "the message is stored")
    page = visitor.page
    page.goto(f"{visitor.address}/masks")
    page.get_by_role("link", name="Mask fields").click()
    page.get_by_label("Prefix of the topics").fill(name)
    page.get_by_label("Fields", exact=True).fill("card.number")
    page.get_by_role("button", name="Preview").click()
    visitor.confirm()
    user = f"mia-{name}"[:60]
    one_time = create_user(visitor, user, "operator")
    other = open_visitor()
    log_in_anew(other, user, one_time)
    for who, text, missing in ((other, "******", "4711"), (visitor, "4711", "******")):
        page = who.go("messages", topic=name)
        expect(page.locator("table.messages")).to_contain_text(text)
        page.locator("a.place").click()
        expect(page.locator("#body pre")).to_contain_text(text)
        assert missing not in page.content()


def test_the_audit_log_has_every_change(visitor: Visitor, admin: eruca.sync.Admin, name: str) -> None:
    page = visitor.go("new", "topic")
    page.get_by_label("Topic").fill(name)
    page.get_by_label("Queues per broker").fill("2")
    page.get_by_role("button", name="Preview").click()
    visitor.confirm()
    poll(lambda: [row.name for row in admin.topics.list(limit=100_000).items], lambda names: name in names, name)
    page = visitor.go("topics", name, "change")
    page.get_by_label("Write queues per broker").fill("4")
    page.get_by_role("button", name="Preview").click()
    # A preview is not a change.
    page.goto(f"{visitor.address}/audit?text={name}")
    expect(page.locator("#audit-table tbody tr")).to_have_count(1)
    page = visitor.go("topics", name, "change")
    page.get_by_label("Write queues per broker").fill("4")
    page.get_by_role("button", name="Preview").click()
    visitor.confirm()
    page = visitor.go("messages", "send", topic=name)
    page.get_by_label("Body", exact=True).fill("a body that the log does not have")
    page.get_by_role("button", name="Preview").click()
    visitor.confirm()
    page = visitor.go("topics", name, "delete")
    page.get_by_role("button", name="Preview").click()
    visitor.confirm(name)
    expect(page.locator(".notice.ok")).to_be_visible()

    page.goto(f"{visitor.address}/audit")
    page.get_by_label("User, action or name").fill(name)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#audit-table tbody tr")).to_have_count(4)
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(started.value.path().read_text())))
    assert [row["action"] for row in rows] == ["topic.delete", "message.send", "topic.change", "topic.create"]
    deleted, sent, changed, created = rows
    for row in rows:
        assert (row["user"], row["target"], row["outcome"], row["address"]) == (ADMIN, name, "done", "127.0.0.1"), row
        assert row["at"] and row["cluster"] == visitor.cluster and row["command"].startswith("eruca "), row
    assert ("write_queues" in changed["before"], "write_queues" in changed["after"]) == (True, True)
    assert changed["before"] != changed["after"] and created["after"] and deleted["before"]
    assert "a body that" not in sent["after"] + sent["before"]
    # Whoever wants to change it gets nowhere.
    assert post(page, "/audit", id="1") == 405
    visitor.expected.append("405")

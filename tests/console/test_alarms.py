"""Alarms: a rule fires, is delivered to a webhook and by e-mail, acknowledged, and ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import eruca.sync
from eruca._console.pages.texts import texts_of
from tests.console.browsing import ADMIN, ConsoleProcess, Visitor, choose_first_password, poll
from tests.console.listening import MAIL_PASSWORD, MAIL_USER, SECRET, Hook, Post, run_hook, run_post
from tests.console.test_groups import fill, sum_lag
from tests.interop.brokers import Cluster


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A web server that takes alarms."""
    with run_hook() as running:
        yield running
        assert running.faults == []


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    """A mail server."""
    with run_post(tmp_path / "post") as running:
        yield running


@pytest.fixture
def watching(cluster: Cluster, tmp_path: Path, post: Post) -> Iterator[ConsoleProcess]:
    """A console that may reach this machine with webhooks, and has a mail server."""
    options = {
        "consoleWatchInterval": 300,
        "alarmWebhookTargets": "127.0.0.1",
        "alarmMailHost": "127.0.0.1",
        "alarmMailPort": post.port,
        "alarmMailCaFile": post.ca,
        "alarmMailUser": MAIL_USER,
        "alarmMailPassword": MAIL_PASSWORD,
        "alarmMailFrom": "console@example.com",
    }
    with ConsoleProcess(tmp_path / "home", {cluster.kind: cluster.name_server}, options) as it:
        yield it
        assert it.list_complaints() == []
        # A password that is an option is not in a log.
        assert MAIL_PASSWORD not in it.log.with_suffix(".err").read_text(errors="replace")


@pytest.fixture
def guard(watching: ConsoleProcess, browser: Browser, cluster: Cluster) -> Iterator[Visitor]:
    """An administrator of that console."""
    state = choose_first_password(watching)
    with browser.new_context(viewport={"width": 1440, "height": 900}, locale="en", storage_state=state) as context:
        visitor = Visitor(context, watching.address, cluster.kind)
        yield visitor
        assert visitor.list_complaints() == []


def create_channel(visitor: Visitor, name: str, kind: str, target: str, secret: str = "") -> None:
    page = visitor.go("alarms", "channels")
    page.get_by_role("link", name="Create channel").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Kind").select_option(kind)
    page.get_by_label("URL or addresses").fill(target)
    page.get_by_label("Secret").fill(secret)
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".channel", has_text=name)).to_be_visible()


def create_rule(visitor: Visitor, name: str, threshold: int, prefix: str, *channels: str) -> None:
    page = visitor.go("alarms")
    page.get_by_role("link", name="Create rule").first.click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Watches").select_option("lag")
    page.get_by_label("Fires from this value on").fill(str(threshold))
    page.get_by_label("For at least").fill("0")
    page.get_by_label(re.compile("Only names that begin with")).fill(prefix)
    for channel in channels:
        page.get_by_label(channel).check()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#rules-table")).to_contain_text(name)


def test_an_alarm_is_delivered_acknowledged_and_ends(
    guard: Visitor, cluster: Cluster, admin: eruca.sync.Admin, name: str, hook: Hook, post: Post
) -> None:
    create_channel(guard, "on call", "webhook", hook.url, SECRET)
    page = guard.page
    # The path of a URL often is a secret.
    assert "token-4711" not in page.content()
    assert SECRET not in page.content()
    create_channel(guard, "letters", "mail", "ops@example.com, ann@example.com")
    page.locator(".channel", has_text="on call").get_by_role("button", name="Send a test").click()
    expect(page.locator(".notice.ok")).to_be_visible()
    assert [report["event"] for report in hook.reports] == ["test"]
    guard.go("alarms", "channels")
    page.locator(".channel", has_text="letters").get_by_role("button", name="Send a test").click()
    expect(page.locator(".notice.ok")).to_be_visible()
    assert post.list_subjects() == ["[eruca] test: a test"]

    create_rule(guard, "far behind", 10, name, "on call", "letters")
    # The first try fails; the delivery is repeated.
    hook.refusals = 1
    fill(cluster, admin, name, 12)
    admin.offsets.reset(name, name, "earliest")
    page = guard.go("alarms")
    alarm = page.locator(".alarm", has_text=name)
    expect(alarm).to_contain_text("12 messages")
    poll(lambda: hook.list_events(name), lambda found: found == ["firing"], "the webhook is told")
    poll(
        post.list_subjects, lambda found: any(f"firing: lag of {name} is 12 messages" in text for text in found), "mail"
    )
    report = hook.reports[-1]
    assert (report["rule"]["name"], report["alarms"][0]["value"], report["count"]) == ("far behind", 12, 1)
    mail = post.mails[-1]
    assert (mail["To"], mail["From"]) == ("ops@example.com, ann@example.com", "console@example.com")

    alarm.get_by_role("textbox").fill("restarting its consumers")
    alarm.get_by_role("button", name="Acknowledge").click()
    expect(alarm).to_contain_text(f"{ADMIN} acknowledged it")
    expect(alarm).to_contain_text("restarting its consumers")
    poll(lambda: hook.list_events(name), lambda found: found[-1:] == ["acknowledged"], "the webhook is told again")
    # The page of the group tells too.
    page = guard.go("groups", name)
    expect(page.locator(".notice", has_text="far behind")).to_be_visible()

    admin.offsets.skip(name, name)
    assert sum_lag(admin, name) == 0
    page = guard.go("alarms")
    past = page.locator("#past-table tbody tr", has_text=name)
    poll(lambda: (page.reload(), past.count())[1], lambda count: count == 1, "the alarm has ended")
    expect(past).to_contain_text(ADMIN)
    expect(past).to_contain_text("12 messages")
    poll(lambda: hook.list_events(name), lambda found: found == ["firing", "acknowledged", "resolved"], "all three")

    page = guard.go("alarms", "channels")
    expect(page.locator("#deliveries-table")).to_contain_text("delivered")
    page.goto(f"{guard.address}/audit")
    for action in ("alarm.channel.create", "alarm.rule.create", "alarm.acknowledge", "alarm.channel.test"):
        expect(page.locator("#audit-table")).to_contain_text(texts_of("en")(f"action.{action}"))


def test_a_channel_cannot_reach_what_is_not_allowed(guard: Visitor, hook: Hook) -> None:
    # Another address of this machine, which only the console can reach.
    create_channel(guard, "inside", "webhook", hook.url.replace("127.0.0.1", "127.0.0.2"), SECRET)
    page = guard.page
    page.locator(".channel", has_text="inside").get_by_role("button", name="Send a test").click()
    expect(page.locator(".notice.error")).to_contain_text("webhooks may not reach 127.0.0.2")
    assert hook.reports == []


def test_rules_are_changed_and_deleted(guard: Visitor) -> None:
    create_rule(guard, "a rule", 10, "bill")
    page = guard.page
    page.get_by_role("link", name="a rule").click()
    page.get_by_label("Fires from this value on").fill("none")
    guard.expected.append("400")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".field-error")).to_be_visible()
    page.get_by_label("Fires from this value on").fill("25")
    page.get_by_label("Enabled").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#rules-table")).to_contain_text("25 messages")
    expect(page.locator("#rules-table")).to_contain_text("no")
    page.get_by_role("link", name="a rule").click()
    page.get_by_role("button", name="Delete rule").click()
    expect(page.locator("main")).to_contain_text("No rules yet")

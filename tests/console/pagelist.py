"""The address of every page by a name, for checks and pictures of all of them.

tests/unit/console/test_pagelist.py compares it with the routes of the console, so no page is forgotten.
"""

from __future__ import annotations

from typing import Final

from playwright.sync_api import Page, expect

from eruca._console.pages.visit import make_url
from tests.console.scenery import ABSENT, ACCOUNT, DOUBT, FAILING, KEY, SLOW, USER, Scenery

LOG_IN: Final = "/login"
#: Pages that appear when the form at their address is sent, and those that appear when the preview is confirmed too.
SENT: Final = frozenset({"topic-change-preview", "group-set-preview", "group-reset-preview", "group-delete-preview"})
CONFIRMED: Final = frozenset({"group-set-done"})


def open_page(page: Page, name: str, url: str) -> int:
    """Open a page of the list, and wait until all of it is there; returns the status of the answer."""
    answer = page.goto(url)
    assert answer is not None
    if name in SENT | CONFIRMED:
        page.locator("main form.form button[type=submit]").click()
        expect(page.locator("form.confirm")).to_have_count(1)
    if name in CONFIRMED:
        page.locator("form.confirm button[type=submit]").click()
        expect(page.locator("form.confirm")).to_have_count(0)
    expect(page.locator(".htmx-request")).to_have_count(0)
    return answer.status


def list_pages(scenery: Scenery, cluster: str, queue: int = 1) -> dict[str, str]:
    """Return the path of each page that one user sees after the other; `queue` is the one that is moved."""

    def at(*parts: str, **query: object) -> str:
        return make_url("c", cluster, *parts, **query)

    place = {"topic": "shop-orders", "broker": "broker-a", "queue": queue}
    return {
        "overview": at(),
        "brokers": at("brokers"),
        "broker": at("brokers", "broker-a"),
        "broker-config": at("brokers", "broker-a", tab="config"),
        "broker-replication": at("brokers", "broker-a", tab="replication"),
        "broker-option": at("brokers", "broker-a", "config", key="fileReservedTime"),
        "broker-permission": at("brokers", "broker-a", "permission"),
        "topics": at("topics"),
        "topics-prefix": at("topics", prefix="shop-"),
        "topic": at("topics", "shop-orders"),
        "topic-groups": at("topics", "shop-orders", tab="groups"),
        "topic-traffic": at("topics", "shop-orders", tab="traffic"),
        "topic-routes": at("topics", "shop-orders", tab="routes"),
        "topic-producers": at("topics", "shop-orders", tab="producers"),
        "topic-settings": at("topics", "shop-orders", tab="settings"),
        "topic-create": at("new", "topic"),
        "topic-change": at("topics", "shop-orders", "change"),
        "topic-change-preview": at("topics", "shop-orders", "change", write_queues=16, read_queues=16),
        "topic-delete": at("topics", "shop-orders", "delete"),
        "groups": at("groups"),
        "group": at("groups", SLOW),
        "group-client": at("groups", SLOW, "client", id=scenery.client),
        "group-set": at("groups", ABSENT, "set", **place),
        "group-set-preview": at("groups", ABSENT, "set", **place, way="begin"),
        "group-set-done": at("groups", ABSENT, "set", **place, way="by", amount=1),
        "group-reset": at("groups", ABSENT, "reset"),
        "group-reset-preview": at("groups", ABSENT, "reset"),
        "group-skip": at("groups", ABSENT, "skip"),
        "group-clone": at("groups", ABSENT, "clone"),
        "group-delete": at("groups", ABSENT, "delete"),
        "group-delete-preview": at("groups", ABSENT, "delete"),
        "messages": at("messages", topic="shop-orders"),
        "messages-key": at("messages", topic="shop-orders", mode="key", name=KEY),
        "message": at(*scenery.message_path),
        "message-send": at("messages", "send", topic="shop-orders"),
        "message-import": at("messages", "import", topic="shop-orders"),
        "tail": at("tail", topic="shop-orders"),
        "trace": at("traces", topic="shop-orders", name=KEY),
        "deadletters": at("deadletters"),
        "deadletters-group": at("deadletters", FAILING),
        "delayed": at("delayed"),
        "transactions": at("transactions"),
        "transaction": at("transactions", "shop-payments", DOUBT),
        "alarms": at("alarms"),
        "alarm-rules": at("alarms", "rules"),
        "alarm-rule": at("alarms", "rules", scenery.rule),
        "alarm-rule-create": at("alarms", "new", "rule"),
        "alarm-channels": at("alarms", "channels"),
        "alarm-channel-create": at("alarms", "new", "channel"),
        "doctor": at("doctor"),
        "accounts": at("accounts"),
        "account": at("accounts", ACCOUNT),
        "account-create": at("new", "account"),
        "account-addresses": at("new", "addresses"),
        "users": "/users",
        "user": make_url("users", USER),
        "user-create": "/users/new",
        "masks": "/masks",
        "mask-create": "/masks/new",
        "audit": "/audit",
        "profile": "/profile",
        "password": "/password",
        "api": "/api",
        "error": at("topics", "no-such-topic"),
    }

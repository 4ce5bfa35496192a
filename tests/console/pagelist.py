"""The address of every page by a name, for checks and pictures of all of them."""

from __future__ import annotations

from eruca._console.pages.visit import make_url
from tests.console.scenery import ABSENT, DOUBT, FAILING, KEY, SLOW, Scenery


def list_pages(scenery: Scenery, cluster: str) -> dict[str, str]:
    """Return the path of each page that one user sees after the other; all are read with GET."""

    def at(*parts: str, **query: object) -> str:
        return make_url("c", cluster, *parts, **query)

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
        "topic-delete": at("topics", "shop-orders", "delete"),
        "groups": at("groups"),
        "group": at("groups", SLOW),
        "group-set": at("groups", ABSENT, "set", topic="shop-orders", broker="broker-a", queue=1),
        "group-reset": at("groups", ABSENT, "reset"),
        "group-clone": at("groups", ABSENT, "clone"),
        "group-delete": at("groups", ABSENT, "delete"),
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
        "alarm-channels": at("alarms", "channels"),
        "alarm-rule": at("alarms", "new", "rule"),
        "alarm-channel": at("alarms", "new", "channel"),
        "doctor": at("doctor"),
        "accounts": at("accounts"),
        "users": "/users",
        "user-create": "/users/new",
        "masks": "/masks",
        "audit": "/audit",
        "profile": "/profile",
        "password": "/password",
        "api": "/api",
        "error": at("topics", "no-such-topic"),
    }

"""What accounts may do with topics and groups, as in Java."""

from __future__ import annotations

import pytest

from eruca._access.accounts import DENY, PUB, SUB, Account

MIXED = Account(
    "account",
    "secret",
    default_topic=DENY,
    default_group=SUB,
    permissions={"a": DENY, "b": PUB | SUB, "c": SUB, "%RETRY%x": DENY, "%RETRY%y": PUB | SUB, "%DLQ%x": SUB},
)


@pytest.mark.parametrize(
    ("topic", "publish", "subscribe"),
    [
        ("a", False, False),
        ("b", True, True),
        ("c", False, True),
        ("d", False, False),
        # The retry topic follows its group in both directions.
        ("%RETRY%x", False, False),
        ("%RETRY%y", True, True),
        ("%RETRY%z", True, True),
        # So do the dead letters, but only for reading, and a permission of their own takes precedence.
        ("%DLQ%x", False, True),
        ("%DLQ%y", False, True),
        # Everyone may write traces; reading them needs a permission.
        ("RMQ_SYS_TRACE_TOPIC", True, False),
    ],
)
def test_topics(topic: str, publish: bool, subscribe: bool) -> None:
    assert (MIXED.may_use_topic(topic, PUB), MIXED.may_use_topic(topic, SUB)) == (publish, subscribe)


def test_groups() -> None:
    assert [MIXED.may_use_group(group) for group in ("x", "y", "z")] == [False, True, True]
    publisher = Account("account", "secret", default_group=PUB)
    assert not publisher.may_use_group("x")


def test_an_admin_may_use_everything_unless_it_has_permissions() -> None:
    admin = Account("account", "secret", admin=True)
    assert admin.may_use_topic("a", PUB) and admin.may_use_topic("a", SUB) and admin.may_use_group("x")
    limited = Account("account", "secret", admin=True, permissions={"a": SUB})
    assert not limited.may_use_topic("a", PUB) and not limited.may_use_topic("b", SUB)
    assert limited.may_use_topic("a", SUB) and not limited.may_use_group("x")


def test_a_broker_may_read_everything_and_write_nothing() -> None:
    broker = Account("account", "secret", broker=True)
    assert broker.may_use_topic("a", SUB) and broker.may_use_group("x") and not broker.may_use_topic("a", PUB)


def test_the_topics_of_brokers_are_not_covered_by_a_default() -> None:
    reader = Account("account", "secret", default_topic=PUB | SUB)
    for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"):
        assert not reader.may_use_topic(topic, SUB) and not reader.may_use_topic(topic, PUB)
        allowed = Account("account", "secret", permissions={topic: SUB})
        assert allowed.may_use_topic(topic, SUB)
    admin = Account("account", "secret", admin=True, default_topic=SUB, permissions={"a": SUB})
    assert admin.may_use_topic("SCHEDULE_TOPIC_XXXX", SUB)


def test_deny_takes_precedence() -> None:
    account = Account("account", "secret", default_topic=DENY | PUB, permissions={"a": DENY | SUB})
    assert not account.may_use_topic("b", PUB) and not account.may_use_topic("a", SUB)

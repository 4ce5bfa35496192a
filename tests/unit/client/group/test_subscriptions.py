"""What a group wants of its topics, and how it is told to brokers."""

from __future__ import annotations

import pytest

from eruca._client.group.subscriptions import Sql, make_subscription, make_subscriptions
from eruca._filter.tags import ExpressionError
from eruca._wire.javahash import java_hash
from eruca.errors import ConfigError, InvalidName


def test_tags_are_told_as_text_as_set_and_as_hashes() -> None:
    data = make_subscription("orders", " vip || gold", 9).data
    assert (data.topic, data.sub_string, data.expression_type, data.sub_version) == ("orders", " vip || gold", "TAG", 9)
    assert sorted(data.tags_set) == ["gold", "vip"]
    assert sorted(data.code_set) == sorted([java_hash("gold"), java_hash("vip")])


def test_all_is_told_without_sets() -> None:
    data = make_subscription("orders", "*", 9).data
    assert (data.sub_string, data.tags_set, data.code_set) == ("*", [], [])


def test_sql_is_told_as_it_is() -> None:
    made = make_subscription("orders", Sql("a > 1"), 9)
    assert made.tags is None
    assert (made.data.sub_string, made.data.expression_type, made.data.tags_set) == ("a > 1", "SQL92", [])


def test_one_topic_several_or_a_mapping() -> None:
    assert list(make_subscriptions("orders", "", 1)[0]) == ["orders"]
    assert list(make_subscriptions(["orders", "bills"], "", 1)[0]) == ["orders", "bills"]
    made, _ = make_subscriptions({"orders": "vip", "bills": Sql("x IS NULL")}, "shop", 1)
    assert {topic: (item.topic, item.kind) for topic, item in made.items()} == {
        "shop%orders": ("shop%orders", "TAG"),
        "shop%bills": ("shop%bills", "SQL92"),
    }


def test_what_cannot_be_subscribed_is_said() -> None:
    with pytest.raises(InvalidName):
        make_subscriptions("no good", "", 1)
    with pytest.raises(ConfigError, match="empty"):
        make_subscription("orders", Sql("  "), 1)
    with pytest.raises(ExpressionError):
        make_subscription("orders", "|| ||", 1)

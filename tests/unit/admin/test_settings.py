"""Permissions, orders, kinds of topics, lists: the pure parts of topics and groups."""

from __future__ import annotations

import pytest

from eruca._admin.lag import QueueLag, is_own_group, sum_lag
from eruca._admin.orders import join_order, split_order
from eruca._admin.results import Change, Changed, cut_list, name_outcome, read_time
from eruca._admin.settings import (
    GroupSettings,
    TopicSettings,
    describe_group,
    describe_topic,
    make_group_config,
    read_permission,
    show_permission,
)
from eruca._admin.topics import find_kind
from eruca._wire.bodies import TopicConfig
from eruca.errors import ConfigError


def test_permissions_are_read_as_they_are_shown() -> None:
    assert [show_permission(number) for number in (6, 4, 2, 0, 7)] == ["RW", "R", "W", "-", "RWX"]
    assert all(read_permission(show_permission(number)) == number for number in range(16))
    assert read_permission("wr") == 6


@pytest.mark.parametrize("wrong", ["", "RWZ", "RR", "6", "R-"])
def test_what_is_not_a_permission_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="expected RW, R, W or -"):
        read_permission(wrong)


def test_orders() -> None:
    assert split_order("broker-a:4;broker-b:16;") == {"broker-a": 4, "broker-b": 16}
    assert join_order({"broker-a": 4, "broker-b": 16}) == "broker-a:4;broker-b:16"
    assert split_order("") == split_order("broker-a") == split_order(":4") == {}


def test_a_topic_is_ordered_where_its_order_names_the_broker() -> None:
    config = TopicConfig(topic_name="steps", read_queue_nums=4, write_queue_nums=4)
    assert describe_topic(config, "broker-a:4", "broker-a") == TopicSettings(
        read_queues=4, write_queues=4, ordered=True
    )
    assert not describe_topic(config, "broker-a:4", "broker").ordered and not describe_topic(config).ordered


def test_settings_of_a_group_survive_the_way_to_a_broker() -> None:
    settings = GroupSettings(
        consume=False,
        consume_from_min=False,
        broadcast=False,
        retry_queues=3,
        retries=7,
        broker_id=2,
        slow_broker_id=3,
        notify=False,
    )
    assert describe_group(make_group_config("billing", settings)) == settings


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", "normal"),
        ("%RETRY%billing", "retry"),
        ("%DLQ%billing", "dlq"),
        ("SCHEDULE_TOPIC_XXXX", "system"),
        ("rmq_sys_anything", "system"),
        ("broker-a", "system"),
        ("broker-b", "normal"),
        ("cluster_REPLY_TOPIC", "system"),
        ("orders_REPLY_TOPIC", "normal"),
    ],
)
def test_kinds_of_topics(topic: str, kind: str) -> None:
    assert find_kind(topic, {"broker-a", "cluster"}) == kind


def test_own_groups() -> None:
    own = ["TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "CID_ONSAPI_PULL", "CID_ONS-HTTP-PROXY"]
    assert all(map(is_own_group, own))
    assert not any(map(is_own_group, ["TOOLS_CONSUMER_OF_OURS", "CID_ONSAPI", "billing"]))


def test_outcomes() -> None:
    assert name_outcome(1, 1, dry_run=True) == "unchanged" == name_outcome(None, None, dry_run=False)
    assert (name_outcome(1, 2, dry_run=True), name_outcome(1, 2, dry_run=False)) == ("planned", "done")
    done = Change(where="a", before=1, after=2, outcome="done")
    lost = Change(where="b", before=1, after=1, outcome="failed", reason="away")
    assert not Changed(name="x", changes=[done]).failed and Changed(name="x", changes=[done, lost]).failed


def test_lists_are_cut() -> None:
    assert (cut_list([1, 2], 2).items, cut_list([1, 2], 2).cut) == ([1, 2], False)
    assert (cut_list([1, 2, 3], 2).items, cut_list([1, 2, 3], 2).cut) == ([1, 2], True)
    assert cut_list([1], 2, more=True).cut


def test_times_of_servers() -> None:
    assert read_time(0) is None and read_time(-1) is None and read_time(10**18) is None
    assert read_time(1000) is not None


def test_a_group_without_waiting_messages_has_no_wait() -> None:
    row = QueueLag(group="g", topic="t", broker="b", queue=0, offset=3, end=3, lag=0)
    (total,) = sum_lag([row])
    assert (total.lag, total.lag_time, total.queues) == (0, None, 1)

"""Members of groups, as several brokers report them, and how they differ."""

from __future__ import annotations

from eruca._admin.groupmembers import Subscribed, _join_members, find_differences
from eruca._admin.groupqueues import GroupQueue, add_owners
from eruca._admin.targets import BrokerRow
from eruca._wire.bodies import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    MessageQueue,
    ProcessQueueInfo,
    SubscriptionData,
)
from eruca._wire.codes import VERSION_4_9_7

A, B = [BrokerRow(cluster="c", broker=name, broker_id=0, address=f"{name}:1") for name in ("a", "b")]


def connect(*places: tuple[str, str]) -> ConsumerConnection:
    return ConsumerConnection(
        connection_set=[
            Connection(client_id=client_id, client_addr=address, version=VERSION_4_9_7) for client_id, address in places
        ]
    )


def test_a_member_of_two_brokers_is_one() -> None:
    found = _join_members([(A, connect(("x", "10.0.0.1:1"))), (B, connect(("x", "10.0.0.1:2"), ("y", "10.0.0.2:3")))])
    assert [(each.client_id, each.address, each.brokers) for each in found] == [
        ("x", "10.0.0.1:1", ["a", "b"]),
        ("y", "10.0.0.2:3", ["b"]),
    ]
    assert {each.version for each in found} == {"4.9.7"}


def test_two_members_with_one_id_are_two() -> None:
    twice = connect(("x", "10.0.0.1:1"), ("x", "10.0.0.1:2"))
    found = _join_members([(A, twice), (B, connect(("x", "10.0.0.1:3"), ("x", "10.0.0.1:4")))])
    assert [each.brokers for each in found] == [["a", "b"], ["a", "b"]]
    apart = _join_members([(A, connect(("x", "10.0.0.1:1"), ("x", "10.0.0.2:1")))])
    assert len(apart) == 2


def subscribe(**topics: str) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        subscription_set=[SubscriptionData(topic=topic, sub_string=text) for topic, text in topics.items()]
    )


def test_differences_are_found() -> None:
    assert find_differences({"x": subscribe(orders="a"), "y": subscribe(orders="a")}) == []
    assert find_differences({"x": subscribe(orders="a")}) == []
    (row,) = find_differences({"x": subscribe(orders="a", bills="*"), "y": subscribe(orders="b", bills="*")})
    assert row.topic == "orders"
    assert row.by_member == {
        "x": Subscribed(topic="orders", expression="a"),
        "y": Subscribed(topic="orders", expression="b"),
    }
    (row,) = find_differences({"x": subscribe(orders="a"), "y": subscribe()})
    assert row.by_member["y"] is None


def test_members_differ_in_their_retry_topics_only_by_name() -> None:
    retry = ConsumerRunningInfo(subscription_set=[SubscriptionData(topic="%RETRY%g", sub_string="*")])
    assert find_differences({"x": retry, "y": subscribe()}) == []


def test_owners_are_those_that_have_not_dropped_a_queue() -> None:
    queues = [GroupQueue(topic="t", broker="a", queue=number, offset=0, end=1, lag=1) for number in range(3)]
    held = {MessageQueue("a", 0, "t"): ProcessQueueInfo(), MessageQueue("a", 1, "t"): ProcessQueueInfo(dropped=True)}
    found = add_owners(queues, {"x": ConsumerRunningInfo(mq_table=held)})
    assert [queue.owner for queue in found] == ["x", "", ""]

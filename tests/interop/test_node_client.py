"""The Node client `ali-ons`, which speaks the remoting protocol, against a freshly started Eruca and against Java.

What the client does not have is not here: it has no batch and no oneway send, no ordered and no pull consumer, no
transactions, and cannot look up messages by key or id. It is the one npm has in plain JavaScript: `apache-rocketmq`
wraps a C++ library, and `rocketmq-client-nodejs` speaks the gRPC protocol of version 5.
"""

from __future__ import annotations

import base64
import hashlib
import random
import re

import pytest

from tests.interop.brokers import BROKER_NAME
from tests.interop.clientprograms import Stage, list_bodies, make_messages
from tests.interop.javapeer import PeerError

SEND_OK = "SEND_OK"
CHINESE = "火箭菜、一条中文消息。含表情🚀与换行\n第二行"


# --- produce ------------------------------------------------------------------------------------------------------


def test_send_tells_id_queue_and_offset(node: Stage) -> None:
    topic = node.make_topic(queues=1)
    rows = node.start_producer().send(*make_messages(topic, 3))
    assert [(row["status"], row["broker"], row["queue"], row["offset"]) for row in rows] == [
        (SEND_OK, BROKER_NAME, 0, offset) for offset in range(3)
    ]
    port = int(node.cluster.broker.rpartition(":")[2])
    assert all(re.fullmatch(f"7F000001{port:08X}[0-9A-F]{{16}}", row["msgId"]) for row in rows)


def test_many_sends_at_once(node: Stage) -> None:
    topic = node.make_topic(queues=4)
    messages = make_messages(topic, 200)
    rows = node.start_producer().send(*messages, mode="together")
    assert {row["status"] for row in rows} == {SEND_OK}
    assert len({(row["queue"], row["offset"]) for row in rows}) == 200
    assert {row["queue"] for row in rows} == {0, 1, 2, 3}
    assert list_bodies(node.start_consumer(topic).wait(200)) == list_bodies(messages)


def test_tags_keys_properties_and_flag_arrive_unchanged(node: Stage) -> None:
    topic = node.make_topic()
    properties = {"colour": "green", "a b": "x=y&z"}
    message = {"topic": topic, "body": "all", "tags": "TagA", "keys": ["order-1", "user-2"], "flag": 77}
    (sent,) = node.start_producer().send({**message, "properties": properties})
    (row,) = node.start_consumer(topic).wait(1)
    assert (row["body"], row["tags"], row["keys"], row["flag"]) == ("all", "TagA", "order-1 user-2", 77)
    assert properties.items() <= row["properties"].items()
    assert (row["queue"], row["offset"], row["offsetMsgId"]) == (sent["queue"], sent["offset"], sent["msgId"])
    assert row["storeHost"] == node.cluster.broker
    assert row["bornHost"].startswith("127.0.0.1:")
    assert row["storeTimestamp"] >= row["bornTimestamp"] > 0


def test_chinese_text_arrives_unchanged(node: Stage) -> None:
    topic = node.make_topic()
    message = {
        "topic": topic,
        "body": CHINESE,
        "tags": "标签",
        "keys": ["键一", "键二"],
        "properties": {"颜色": "绿🥬"},
    }
    node.start_producer().send(message)
    (row,) = node.start_consumer(topic).wait(1)
    assert (row["body"], row["tags"], row["keys"]) == (CHINESE, "标签", "键一 键二")
    assert row["properties"]["颜色"] == "绿🥬"


def test_large_bodies_arrive_unchanged(node: Stage) -> None:
    topic = node.make_topic(queues=1)
    # One the client compresses well, and one it cannot; it reads at most 1 MiB at a time.
    bodies = [b"abc" * 300_000, random.Random(1).randbytes(500_000)]
    producer = node.start_producer()
    producer.send(*({"topic": topic, "base64": base64.b64encode(body).decode()} for body in bodies))
    rows = node.start_consumer(topic).wait(2)
    assert [(row["length"], row["sha256"]) for row in rows] == [
        (len(body), hashlib.sha256(body).hexdigest()) for body in bodies
    ]
    assert [row["sysFlag"] & 1 for row in rows] == [1, 1]


@pytest.mark.whole
def test_body_over_the_limit_is_refused(node: Stage) -> None:
    topic = node.make_topic(queues=1)
    producer = node.start_producer()
    body = base64.b64encode(random.Random(3).randbytes((4 << 20) + 4096)).decode()
    with pytest.raises(PeerError, match="MQClientException: the message is illegal"):
        producer.send({"topic": topic, "base64": body})
    (row,) = producer.send({"topic": topic, "body": "the connection goes on"})
    assert row["offset"] == 0


@pytest.mark.whole
def test_sharding_key_chooses_the_queue(node: Stage) -> None:
    topic = node.make_topic(queues=8)
    # The client takes a choice of queue 0 for none.
    keys = [key for key in "abcdefghijkl" if hashlib.md5(key.encode()).digest()[3] % 8]
    messages = [{"topic": topic, "body": f"{key} {n}", "shardingKey": key} for n in range(3) for key in keys]
    queues: dict[str, set[int]] = {}
    for message, row in zip(messages, node.start_producer().send(*messages), strict=True):
        queues.setdefault(message["shardingKey"], set()).add(row["queue"])
    assert {len(numbers) for numbers in queues.values()} == {1}
    assert len(set.union(*queues.values())) > 1


def test_unknown_topic_without_a_template_is_refused(node: Stage) -> None:
    topic = node.make_name("topic")
    producer = node.start_producer(template="NoSuchTemplate")
    with pytest.raises(PeerError, match=f"No topic route info in name server for the topic: {topic}"):
        producer.send({"topic": topic, "body": "x"})


# --- consume ------------------------------------------------------------------------------------------------------


def test_consumer_gets_messages_sent_while_it_waits(node: Stage) -> None:
    topic = node.make_topic()
    consumer = node.start_consumer(topic)
    producer = node.start_producer()
    for number in range(5):
        producer.send({"topic": topic, "body": f"m{number}"})
        assert len(consumer.wait(number + 1)) == number + 1


def test_from_first_offset_gets_older_messages(node: Stage) -> None:
    topic = node.make_topic()
    messages = make_messages(topic, 40)
    node.start_producer().send(*messages)
    assert list_bodies(node.start_consumer(topic).wait(40)) == list_bodies(messages)


def test_tag_expression_leaves_others_out(node: Stage) -> None:
    topic = node.make_topic(queues=1)
    messages = [{"topic": topic, "body": f"{tag} {n}", "tags": tag} for n in range(10) for tag in ("A", "B", "C", "D")]
    node.start_producer().send(
        *messages, {"topic": topic, "body": "no tag"}, {"topic": topic, "body": "end", "tags": "B"}
    )
    rows = node.start_consumer(topic, expression="A || B").wait(21)
    assert [row["body"] for row in rows] == [f"{tag} {n}" for n in range(10) for tag in "AB"] + ["end"]


@pytest.mark.whole
def test_one_consumer_of_two_topics(node: Stage) -> None:
    topics = [node.make_topic(), node.make_topic()]
    node.start_producer().send(*({"topic": topic, "body": topic} for topic in topics))
    rows = node.start_consumer(*topics).wait(2)
    assert sorted((row["topic"], row["body"]) for row in rows) == sorted((topic, topic) for topic in topics)


def test_two_consumers_share_the_queues(node: Stage) -> None:
    topic = node.make_topic(queues=4)
    group = node.make_name("group")
    members = [node.start_consumer(topic, group=group) for _ in range(2)]
    node.wait_for_sharing(members, topic, node.start_producer().send)
    assert all(member.list() for member in members)


@pytest.mark.whole
def test_broadcast_reaches_every_consumer(node: Stage) -> None:
    topic = node.make_topic()
    group = node.make_name("group")
    messages = make_messages(topic, 12)
    node.start_producer().send(*messages)
    for consumer in [node.start_consumer(topic, group=group, broadcast=True) for _ in range(2)]:
        assert list_bodies(consumer.wait(12)) == list_bodies(messages)


def test_consumer_goes_on_where_its_group_stopped(node: Stage) -> None:
    topic = node.make_topic(queues=2)
    group = node.make_name("group")
    producer = node.start_producer()
    producer.send(*make_messages(topic, 10))
    first = node.start_consumer(topic, group=group)
    first.wait(10)
    first.stop()
    producer.send({"topic": topic, "body": "later"})
    second = node.start_consumer(topic, group=group)
    assert list_bodies(second.wait(1)) == ["later"]


@pytest.mark.whole
@pytest.mark.parametrize("throws", [False, True], ids=["asked", "thrown"])
def test_failed_message_comes_again(node: Stage, throws: bool) -> None:
    topic = node.make_topic(queues=1)
    group = node.make_name("group")
    (sent,) = node.start_producer().send({"topic": topic, "body": "fails once", "tags": "T", "keys": ["k"]})
    first, second = node.start_consumer(topic, group=group, fail=1, throws=throws).wait(2)
    assert (first["reconsumeTimes"], second["reconsumeTimes"]) == (0, 1)
    assert (second["topic"], second["body"], second["tags"], second["keys"]) == (topic, "fails once", "T", "k")
    assert second["properties"]["ORIGIN_MESSAGE_ID"] == sent["msgId"]
    # The broker chooses the delay: ten seconds the first time.
    assert second["storeTimestamp"] - first["storeTimestamp"] >= 10_000


def test_delayed_message_comes_later(node: Stage) -> None:
    topic = node.make_topic(queues=1)
    consumer = node.start_consumer(topic)
    node.start_producer().send(
        {"topic": topic, "body": "delayed", "tags": "T", "delayLevel": 1}, {"topic": topic, "body": "at once"}
    )
    # A listener that gets both together may be called for either first; their queue has the order.
    first, second = sorted(consumer.wait(2), key=lambda row: row["offset"])
    assert (first["body"], second["body"], second["tags"]) == ("at once", "delayed", "T")
    assert second["storeTimestamp"] - second["bornTimestamp"] >= 1000


def test_unknown_topic_cannot_be_consumed(node: Stage) -> None:
    topic = node.make_name("topic")
    consumer = node.start_consumer(topic)
    errors = node.ask("awaitComplaint", name=consumer.name, containing=topic)
    assert any(f"No topic route info in name server for the topic: {topic}" in error for error in errors)


# --- both clients -------------------------------------------------------------------------------------------------


def test_messages_of_go_arrive_in_node(node: Stage, go: Stage) -> None:
    topic = node.make_topic(queues=1)
    message = {"topic": topic, "body": CHINESE, "tags": "T", "keys": ["k"], "properties": {"颜色": "绿"}}
    go.start_producer().send(message, {"topic": topic, "body": "x" * 5000})
    rows = node.start_consumer(topic).wait(2)
    assert (rows[0]["body"], rows[0]["tags"], rows[0]["keys"], rows[0]["properties"]["颜色"]) == (
        CHINESE,
        "T",
        "k",
        "绿",
    )
    assert rows[1]["sha256"] == hashlib.sha256(b"x" * 5000).hexdigest()


def test_messages_of_node_arrive_in_go(node: Stage, go: Stage) -> None:
    topic = node.make_topic(queues=1)
    message = {"topic": topic, "body": CHINESE, "tags": "T", "keys": ["k"], "properties": {"颜色": "绿"}}
    node.start_producer().send(message, {"topic": topic, "body": "x" * 5000})
    rows = sorted(go.start_consumer(topic).wait(2), key=lambda row: int(row["offset"]))
    assert (rows[0]["body"], rows[0]["tags"], rows[0]["keys"], rows[0]["properties"]["颜色"]) == (
        CHINESE,
        "T",
        "k",
        "绿",
    )
    assert rows[1]["sha256"] == hashlib.sha256(b"x" * 5000).hexdigest()

"""The official Go client against a freshly started Eruca, and the same cases against the official Java broker.

What the client does not have is not here: it cannot look up messages by key or id (its admin knows topics and groups),
and a batch goes to one queue with the sender's choice only.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
import re
from datetime import UTC, datetime

import pytest

from eruca import PullConsumer
from tests.clients.stage import poll
from tests.interop.brokers import BROKER_NAME
from tests.interop.clientprograms import (
    Stage,
    in_order,
    list_bodies,
    make_messages,
)
from tests.interop.javapeer import PeerError

SEND_OK = 0
PULL_FOUND, PULL_NO_NEW_MESSAGE, PULL_NO_MATCH, PULL_OFFSET_ILLEGAL = range(4)
CHINESE = "火箭菜、一条中文消息。含表情🚀与换行\n第二行"


# --- produce ------------------------------------------------------------------------------------------------------


def test_sync_send_tells_ids_queue_and_offset(go: Stage) -> None:
    topic = go.make_topic(queues=2)
    rows = go.start_producer(selector="manual").send(*make_messages(topic, 3, queue=1))
    assert [row["status"] for row in rows] == [SEND_OK] * 3
    assert [(row["topic"], row["broker"], row["queue"], row["offset"]) for row in rows] == [
        (topic, BROKER_NAME, 1, offset) for offset in range(3)
    ]
    assert len({row["msgId"] for row in rows}) == len({row["offsetMsgId"] for row in rows}) == 3
    # The address of the broker and a position in its log, as hexadecimal digits.
    port = int(go.cluster.broker.rpartition(":")[2])
    assert all(re.fullmatch(f"7F000001{port:08X}[0-9A-F]{{16}}", row["offsetMsgId"]) for row in rows)
    assert {row["region"] for row in rows} == {"DefaultRegion"}


def test_async_send_calls_back_for_every_message(go: Stage) -> None:
    topic = go.make_topic()
    rows = go.start_producer().send(*make_messages(topic, 200), mode="async")
    assert [row["status"] for row in rows] == [SEND_OK] * 200
    places = {(row["queue"], row["offset"]) for row in rows}
    assert places == {(queue, offset) for queue in range(4) for offset in range(50)}


def test_oneway_send_arrives(go: Stage) -> None:
    topic = go.make_topic()
    messages = make_messages(topic, 20)
    assert go.start_producer().send(*messages, mode="oneway") == []
    assert list_bodies(go.start_consumer(topic).wait(20)) == list_bodies(messages)


def test_batch_is_one_answer_and_arrives_as_messages(go: Stage) -> None:
    topic = go.make_topic()
    messages = make_messages(topic, 10)
    (row,) = go.start_producer().send(*messages, mode="batch")
    assert (row["status"], row["offset"]) == (SEND_OK, 0)
    # One id for each message, separated by commas.
    assert len(set(row["offsetMsgId"].split(","))) == 10
    rows = go.start_consumer(topic).wait(10)
    assert {row["queue"] for row in rows} == {row["queue"]}
    assert sorted((one["offset"], one["body"]) for one in rows) == [(n, m["body"]) for n, m in enumerate(messages)]
    assert {one["offsetMsgId"] for one in rows} == set(row["offsetMsgId"].split(","))


@pytest.mark.whole
def test_batch_keeps_tags_keys_and_properties_of_each_message(go: Stage) -> None:
    topic = go.make_topic()
    messages = [
        {"topic": topic, "body": f"m{n}", "tags": f"tag{n}", "keys": [f"key{n}"], "properties": {"number": str(n)}}
        for n in range(5)
    ]
    go.start_producer().send(*messages, mode="batch")
    rows = go.start_consumer(topic).wait(5)
    assert sorted((row["body"], row["tags"], row["keys"], row["properties"]["number"]) for row in rows) == [
        (f"m{n}", f"tag{n}", f"key{n}", str(n)) for n in range(5)
    ]


@pytest.mark.whole
def test_batch_is_sent_async_and_oneway(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    producer = go.start_producer()
    (row,) = producer.send(*make_messages(topic, 3), mode="batchAsync")
    assert (row["status"], len(row["offsetMsgId"].split(","))) == (SEND_OK, 3)
    assert producer.send(*make_messages(topic, 3), mode="batchOneway") == []
    rows = go.start_consumer(topic).wait(6)
    assert sorted((row["offset"], row["body"]) for row in rows) == [(n, f"message {n % 3}") for n in range(6)]


def test_tags_keys_properties_and_flag_arrive_unchanged(go: Stage) -> None:
    topic = go.make_topic()
    message = {
        "topic": topic,
        "body": "with everything",
        "tags": "TagA",
        "keys": ["order-1", "user-2"],
        "properties": {"colour": "green", "a b": "x=y&z"},
        "flag": 77,
    }
    (sent,) = go.start_producer().send(message)
    (row,) = go.start_consumer(topic).wait(1)
    assert (row["body"], row["tags"], row["keys"], row["flag"]) == ("with everything", "TagA", "order-1 user-2", 77)
    assert message["properties"].items() <= row["properties"].items()  # type: ignore[attr-defined]
    assert row["properties"]["UNIQ_KEY"] == row["msgId"] == sent["msgId"]
    assert (row["queue"], row["offset"], row["offsetMsgId"]) == (sent["queue"], sent["offset"], sent["offsetMsgId"])
    assert row["storeHost"] == go.cluster.broker
    assert row["bornHost"].startswith("127.0.0.1:")
    assert row["storeTimestamp"] >= row["bornTimestamp"] > 0
    assert row["reconsumeTimes"] == 0


def test_properties_the_broker_adds_are_the_same(go: Stage) -> None:
    topic = go.make_topic()
    go.start_producer().send({"topic": topic, "body": "x", "tags": "t"})
    (row,) = go.start_consumer(topic).wait(1)
    properties = row["properties"]
    # The client adds the bounds of the queue and when consumption began.
    assert properties.keys() == {"CLUSTER", "CONSUME_START_TIME", "MAX_OFFSET", "MIN_OFFSET", "TAGS", "UNIQ_KEY"}
    assert properties["CLUSTER"] == "DefaultCluster"
    assert (properties["MIN_OFFSET"], properties["MAX_OFFSET"]) == ("0", "1")


def test_chinese_text_arrives_unchanged(go: Stage) -> None:
    topic = go.make_topic()
    message = {
        "topic": topic,
        "body": CHINESE,
        "tags": "标签",
        "keys": ["键一", "键二"],
        "properties": {"颜色": "绿🥬"},
    }
    go.start_producer().send(message)
    # No tag expression: the client's hash of such a tag is not Java's, so a Java broker would find nothing.
    (row,) = go.start_consumer(topic).wait(1)
    assert (row["body"], row["tags"], row["keys"]) == (CHINESE, "标签", "键一 键二")
    assert row["properties"]["颜色"] == "绿🥬"


def test_large_bodies_arrive_unchanged(go: Stage) -> None:
    topic = go.make_topic()
    # One the client compresses well, one it cannot, and one just below the broker's limit of 4 MiB.
    bodies = [b"abc" * 300_000, random.Random(1).randbytes(1 << 20), random.Random(2).randbytes((4 << 20) - 4096)]
    messages = [{"topic": topic, "base64": base64.b64encode(body).decode()} for body in bodies]
    go.start_producer().send(*messages)
    rows = go.start_consumer(topic).wait(3)
    assert {(row["length"], row["sha256"]) for row in rows} == {
        (len(body), hashlib.sha256(body).hexdigest()) for body in bodies
    }


@pytest.mark.whole
def test_body_over_the_limit_is_refused(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    producer = go.start_producer(retries=0)
    body = base64.b64encode(random.Random(3).randbytes((4 << 20) + 4096)).decode()
    with pytest.raises(PeerError, match="CODE: 13, DESC: the message is illegal"):
        producer.send({"topic": topic, "base64": body})
    (row,) = producer.send({"topic": topic, "body": "the connection goes on"})
    assert row["offset"] == 0


@pytest.mark.whole
def test_round_robin_visits_every_queue(go: Stage) -> None:
    rows = go.start_producer().send(*make_messages(go.make_topic(queues=8), 16))
    assert sorted(row["queue"] for row in rows) == sorted([*range(8), *range(8)])


@pytest.mark.whole
def test_sharding_key_chooses_the_queue(go: Stage) -> None:
    topic = go.make_topic(queues=8)
    producer = go.start_producer(selector="hash")
    messages = [{"topic": topic, "body": f"{key} {n}", "shardingKey": key} for n in range(3) for key in "abcdefgh"]
    queues: dict[str, set[int]] = {}
    for message, row in zip(messages, producer.send(*messages), strict=True):
        queues.setdefault(message["shardingKey"], set()).add(row["queue"])
    assert {len(numbers) for numbers in queues.values()} == {1}
    assert len(set.union(*queues.values())) > 1


def test_unknown_topic_is_made_by_sending(go: Stage) -> None:
    topic = go.make_name("topic")
    assert topic not in go.ask("listTopics")
    rows = go.start_producer().send(*make_messages(topic, 4))
    assert {row["queue"] for row in rows} == {0, 1, 2, 3}
    # A broker tells its name server of a topic that made itself without waiting for it.
    go.wait_until(lambda: topic in go.ask("listTopics"), f"the name server knows {topic}")
    assert len(go.start_consumer(topic).wait(4)) == 4


@pytest.mark.whole
def test_unknown_topic_without_a_template_is_refused(go: Stage) -> None:
    topic = go.make_name("topic")
    with pytest.raises(PeerError, match="route info not found"):
        go.start_producer(template="NoSuchTemplate", retries=0).send({"topic": topic, "body": "x"})
    assert topic not in go.ask("listTopics")


@pytest.mark.whole
def test_namespace_keeps_topics_apart(go: Stage) -> None:
    topic = go.make_name("topic")
    inside = go.start_producer(namespace="Room")
    go.make_topic(name=f"Room%{topic}")
    go.make_topic(name=topic)
    inside.send({"topic": topic, "body": "inside"})
    go.start_producer().send({"topic": topic, "body": "outside"})
    (row,) = go.start_consumer(topic, namespace="Room").wait(1)
    assert row["body"] == "inside"
    (row,) = go.start_consumer(topic).wait(1)
    assert row["body"] == "outside"


# --- consume ------------------------------------------------------------------------------------------------------


def test_consumer_gets_messages_sent_while_it_waits(go: Stage) -> None:
    topic = go.make_topic()
    consumer = go.start_consumer(topic)
    producer = go.start_producer()
    for number in range(5):
        producer.send({"topic": topic, "body": f"m{number}"})
        assert len(consumer.wait(number + 1)) == number + 1


def test_tag_expression_leaves_others_out(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    messages = [{"topic": topic, "body": f"{tag} {n}", "tags": tag} for n in range(10) for tag in ("A", "B", "C", "D")]
    go.start_producer().send(
        *messages, {"topic": topic, "body": "no tag"}, {"topic": topic, "body": "end", "tags": "B"}
    )
    rows = go.start_consumer(topic, expression="A || B").wait(21)
    assert {row["tags"] for row in rows} == {"A", "B"}
    assert list_bodies(rows) == sorted([f"{tag} {n}" for n in range(10) for tag in "AB"] + ["end"])


@pytest.mark.whole
def test_tags_with_the_same_hash_are_told_apart(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    # Java's String.hashCode is the same for both, so the broker lets both pass and the client looks again.
    messages = [{"topic": topic, "body": tag, "tags": tag} for tag in ("AaBB", "BBAa", "AaBB")]
    go.start_producer().send(*messages)
    assert list_bodies(go.start_consumer(topic, expression="AaBB").wait(2)) == ["AaBB", "AaBB"]


@pytest.mark.whole
def test_sql_expression_chooses_by_properties(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    messages = [
        {"topic": topic, "body": f"m{n}", "properties": {"size": str(n), "colour": "red" if n % 2 else "blue"}}
        for n in range(10)
    ]
    go.start_producer().send(*messages)
    rows = go.start_consumer(topic, sql=True, expression="size > 4 AND colour = 'red'").wait(3)
    assert list_bodies(rows) == ["m5", "m7", "m9"]


def test_from_first_offset_gets_older_messages(go: Stage) -> None:
    topic = go.make_topic()
    messages = make_messages(topic, 40)
    go.start_producer().send(*messages)
    assert list_bodies(go.start_consumer(topic, **{"from": "first"}).wait(40)) == list_bodies(messages)


@pytest.mark.whole
def test_from_last_offset_begins_a_young_queue_at_its_start(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    messages = make_messages(topic, 5)
    go.start_producer().send(*messages)
    # A broker that still has the first message of a queue tells a new group to begin there, whatever it asked for.
    assert list_bodies(go.start_consumer(topic, **{"from": "last"}).wait(5)) == list_bodies(messages)


@pytest.mark.whole
def test_from_a_time_of_the_past_gets_older_messages(go: Stage) -> None:
    topic = go.make_topic()
    messages = make_messages(topic, 8)
    go.start_producer().send(*messages)
    past = datetime.now(UTC).replace(microsecond=0).strftime("%Y%m%d000000")
    rows = go.start_consumer(topic, timestamp=past, **{"from": "timestamp"}).wait(8)
    assert list_bodies(rows) == list_bodies(messages)


@pytest.mark.whole
def test_one_consumer_of_two_topics(go: Stage) -> None:
    topics = [go.make_topic(), go.make_topic()]
    go.start_producer().send(*({"topic": topic, "body": topic} for topic in topics))
    rows = go.start_consumer(*topics).wait(2)
    assert sorted((row["topic"], row["body"]) for row in rows) == sorted((topic, topic) for topic in topics)


@pytest.mark.whole
def test_listener_gets_several_messages_at_once(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    go.start_producer().send(*make_messages(topic, 20), mode="batch")
    rows = go.start_consumer(topic, batch=8).wait(20)
    assert max(row["together"] for row in rows) == 8


def test_two_consumers_share_the_queues(go: Stage) -> None:
    topic = go.make_topic(queues=4)
    group = go.make_name("group")
    members = [go.start_consumer(topic, group=group) for _ in range(2)]
    go.wait_for_sharing(members, topic, go.start_producer(selector="manual").send)
    assert {len(member.list()) > 0 for member in members} == {True}


@pytest.mark.whole
def test_remaining_consumer_takes_over(go: Stage) -> None:
    topic = go.make_topic(queues=4)
    group = go.make_name("group")
    staying, leaving = (go.start_consumer(topic, group=group) for _ in range(2))
    producer = go.start_producer(selector="manual")
    go.wait_for_sharing([staying, leaving], topic, producer.send)
    leaving.stop()
    bodies = [f"after {queue}" for queue in range(4)]
    producer.send(*({"topic": topic, "body": body, "queue": queue} for queue, body in enumerate(bodies)))
    assert set(go.wait_for_bodies([staying], bodies)[staying.name]) == set(bodies)


@pytest.mark.whole
def test_broadcast_reaches_every_consumer(go: Stage) -> None:
    topic = go.make_topic()
    group = go.make_name("group")
    consumers = [go.start_consumer(topic, group=group, broadcast=True) for _ in range(3)]
    messages = make_messages(topic, 12)
    go.start_producer().send(*messages)
    for consumer in consumers:
        assert list_bodies(consumer.wait(12)) == list_bodies(messages)


# Not in the slice: now and then the Go client loses its last commit to Java's broker, and messages are delivered again.
@pytest.mark.whole
def test_consumer_goes_on_where_its_group_stopped(go: Stage) -> None:
    topic = go.make_topic(queues=2)
    group = go.make_name("group")
    producer = go.start_producer()
    producer.send(*make_messages(topic, 10))
    first = go.start_consumer(topic, group=group)
    first.wait(10)
    first.stop()
    producer.send({"topic": topic, "body": "later"})
    second = go.start_consumer(topic, group=group)
    assert list_bodies(second.wait(1)) == ["later"]


@pytest.mark.whole
def test_ordered_consumer_keeps_the_order_of_each_queue(go: Stage) -> None:
    topic = go.make_topic(queues=2)
    messages = [{"topic": topic, "body": f"{queue}-{n:03}", "queue": queue} for n in range(100) for queue in range(2)]
    go.start_producer(selector="manual").send(*messages, mode="sync")
    rows = go.start_consumer(topic, ordered=True).wait(200)
    for queue in range(2):
        assert in_order(rows, queue) == [f"{queue}-{n:03}" for n in range(100)]


@pytest.mark.whole
def test_ordered_consumer_repeats_a_failed_message_first(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    go.start_producer().send(*make_messages(topic, 3))
    rows = go.start_consumer(topic, ordered=True, fail=2).wait(9)
    assert [row["body"] for row in rows] == [f"message {n}" for n in range(3) for _ in range(3)]


@pytest.mark.whole
def test_ordered_queues_are_locked_for_one_member(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    group = go.make_name("group")
    go.start_producer().send(*make_messages(topic, 5))
    first = go.start_consumer(topic, group=group, ordered=True)
    first.wait(5)
    second = go.start_consumer(topic, group=group, ordered=True)
    more = [{"topic": topic, "body": f"more {n}"} for n in range(20)]
    go.start_producer().send(*more)
    shares = go.wait_for_bodies([first, second], list_bodies(more))
    # One queue has one reader at a time, so nothing comes twice.
    assert sorted(shares[first.name] + shares[second.name]) == list_bodies(more)


def test_failed_message_comes_again(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    group = go.make_name("group")
    # The client asks for routes every 30 s; it shall know the retry topic from the beginning.
    go.make_topic(queues=1, name=f"%RETRY%{group}")
    (sent,) = go.start_producer().send({"topic": topic, "body": "fails once", "tags": "T", "keys": ["k"]})
    consumer = go.start_consumer(topic, group=group, fail=1, delayLevel=1)
    first, second = consumer.wait(2)
    assert (first["reconsumeTimes"], second["reconsumeTimes"]) == (0, 1)
    assert (second["topic"], second["body"], second["tags"], second["keys"]) == (topic, "fails once", "T", "k")
    assert second["properties"]["RETRY_TOPIC"] == topic
    assert second["properties"]["ORIGIN_MESSAGE_ID"] == sent["offsetMsgId"]
    assert second["msgId"] == first["msgId"] == sent["msgId"]
    assert second["storeTimestamp"] - first["storeTimestamp"] >= 1000


@pytest.mark.whole
def test_message_that_fails_too_often_is_put_aside(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    group = go.make_name("group")
    go.make_topic(queues=1, name=f"%RETRY%{group}")
    go.start_producer().send({"topic": topic, "body": "fails always"})
    consumer = go.start_consumer(topic, group=group, fail=100, delayLevel=1, triesMax=1)
    consumer.wait(2)
    dead = f"%DLQ%{group}"
    # The topic is made when the first message dies, and can be written only, so it is opened for reading first.
    go.make_topic(queues=1, name=dead)
    (row,) = go.start_consumer(dead).wait(1)
    assert (row["body"], row["properties"]["RETRY_TOPIC"]) == ("fails always", topic)
    assert len(consumer.list()) == 2


def test_unknown_topic_cannot_be_consumed(go: Stage) -> None:
    topic = go.make_name("topic")
    with pytest.raises(PeerError, match=f"the topic={topic} route info not found, it may not exist"):
        go.start_consumer(topic)


# --- pull ---------------------------------------------------------------------------------------------------------


def test_pull_from_an_offset(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    go.start_producer().send(*make_messages(topic, 10))
    puller = go.start("startPuller", topic=topic, group=go.make_name("group"), expression="*")
    place = {"name": puller, "topic": topic, "broker": BROKER_NAME, "queue": 0}
    (row,) = go.ask("pullFrom", offset=3, count=4, **place)
    assert (row["status"], row["next"], row["min"], row["max"]) == (PULL_FOUND, 7, 0, 10)
    assert [message["body"] for message in row["messages"]] == [f"message {n}" for n in range(3, 7)]
    (row,) = go.ask("pullFrom", offset=100, count=4, **place)
    assert (row["status"], row["next"], row["messages"]) == (PULL_OFFSET_ILLEGAL, 10, [])


@pytest.mark.whole
def test_pull_with_tags(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    go.start_producer().send(*({"topic": topic, "body": f"{n}", "tags": "AB"[n % 2]} for n in range(10)))
    puller = go.start("startPuller", topic=topic, group=go.make_name("group"), expression="B")
    place = {"name": puller, "topic": topic, "broker": BROKER_NAME, "queue": 0}
    (row,) = go.ask("pullFrom", offset=0, count=32, **place)
    assert [message["body"] for message in row["messages"]] == ["1", "3", "5", "7", "9"]
    assert row["next"] == 10
    (row,) = go.ask("pullFrom", offset=0, count=2, **place)
    assert [message["body"] for message in row["messages"]] == ["1", "3"]


@pytest.mark.whole
def test_pull_at_the_end_is_held_and_then_told_of_nothing(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    go.start_producer().send(*make_messages(topic, 10))
    puller = go.start("startPuller", topic=topic, group=go.make_name("group"), expression="*")
    (row,) = go.ask("pullFrom", name=puller, topic=topic, broker=BROKER_NAME, queue=0, offset=10, count=4)
    assert (row["status"], row["next"], row["min"], row["max"]) == (PULL_NO_NEW_MESSAGE, 10, 0, 10)
    assert row["milliseconds"] >= 10_000


async def wait_for_commits(stage: Stage, group: str, topic: str, count: int) -> None:
    """Wait until a group has committed this many messages: the client does not wait for the broker's word when it ends,
    and Java's broker may answer the next one's question first.
    """
    async with PullConsumer(stage.cluster.name_server, group=group, auto_commit=False) as looker:
        queues = await looker.list_queues(topic)

        async def read() -> int:
            return sum([await looker.committed(queue) or 0 for queue in queues])

        await poll(read, lambda committed: committed == count)


def test_poll_and_acknowledge(go: Stage) -> None:
    topic = go.make_topic(queues=2)
    group = go.make_name("group")
    messages = make_messages(topic, 10)
    producer = go.start_producer()
    producer.send(*messages)
    puller = go.start("startPuller", topic=topic, group=group, expression="*")
    assert list_bodies(go.ask("poll", name=puller, count=10)) == list_bodies(messages)
    # Before the stop: what the client commits while it stops may be lost, also on the Java broker.
    asyncio.run(wait_for_commits(go, group, topic, 10))
    go.stop(puller)
    producer.send({"topic": topic, "body": "later"})
    puller = go.start("startPuller", topic=topic, group=group, expression="*")
    assert list_bodies(go.ask("poll", name=puller, count=1)) == ["later"]


@pytest.mark.whole
def test_offset_of_a_pull_consumer_is_kept_by_the_broker(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    group = go.make_name("group")
    go.start_producer().send(*make_messages(topic, 10))
    place = {"topic": topic, "broker": BROKER_NAME, "queue": 0}
    puller = go.start("startPuller", topic=topic, group=group, expression="*")
    go.ask("poll", name=puller, count=10)
    go.ask("commit", name=puller, offset=4, **place)
    go.stop(puller)
    other = go.start("startPuller", topic=topic, group=group, expression="*")
    assert go.ask("readOffset", name=other, **place) == [4]
    assert list_bodies(go.ask("poll", name=other, count=6)) == [f"message {n}" for n in range(4, 10)]


# --- later --------------------------------------------------------------------------------------------------------


def test_delayed_message_comes_later(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    consumer = go.start_consumer(topic)
    go.start_producer().send(
        {"topic": topic, "body": "delayed", "tags": "T", "delayLevel": 1}, {"topic": topic, "body": "at once"}
    )
    # A listener that gets both together may be called for either first; their queue has the order.
    first, second = sorted(consumer.wait(2), key=lambda row: row["offset"])
    assert (first["body"], second["body"], second["tags"]) == ("at once", "delayed", "T")
    assert second["storeTimestamp"] - second["bornTimestamp"] >= 1000
    assert second["properties"]["REAL_TOPIC"] == topic


@pytest.mark.whole
def test_delay_levels_come_in_the_order_of_their_delays(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    consumer = go.start_consumer(topic)
    go.start_producer().send(
        *({"topic": topic, "body": f"level {level}", "delayLevel": level} for level in (3, 2, 1)),
    )
    assert [row["body"] for row in consumer.wait(3)] == ["level 1", "level 2", "level 3"]


def test_transactions_commit_and_roll_back(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    producer = go.start("startTransactions", group=go.make_name("group"))
    messages = [
        {"topic": topic, "body": f"{word} {n}", "tags": "T", "properties": {"local": word}}
        for n in range(3)
        for word in ("commit", "rollback")
    ]
    rows = go.ask("sendInTransaction", name=producer, messages=messages)
    assert [row["status"] for row in rows] == [SEND_OK] * 6
    committed = go.start_consumer(topic).wait(3)
    assert list_bodies(committed) == ["commit 0", "commit 1", "commit 2"]
    assert {row["tags"] for row in committed} == {"T"}
    assert {row["msgId"] for row in committed} == {row["msgId"] for row in rows[::2]}


@pytest.mark.whole
def test_undecided_transactions_are_asked_about(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    producer = go.start("startTransactions", group=go.make_name("group"))
    messages = [
        {"topic": topic, "body": word, "properties": {"local": "unknown", "check": word}}
        for word in ("rollback", "commit")
    ]
    go.ask("sendInTransaction", name=producer, messages=messages)
    (row,) = go.start_consumer(topic).wait(1)
    assert row["body"] == "commit"
    assert sorted(set(go.ask("listChecks", name=producer, count=2))) == ["commit", "rollback"]


@pytest.mark.whole
def test_request_gets_its_reply(go: Stage) -> None:
    topic = go.make_topic(queues=1)
    answering = go.start_producer()
    go.start_consumer(topic, reply=answering.name)
    asking = go.start_producer()
    for number in range(3):
        message = {"topic": topic, "body": f"question {number}"}
        assert go.ask("request", seconds=30, name=asking.name, messages=[message]) == [
            {"body": f"re: question {number}"}
        ]


# --- manage -------------------------------------------------------------------------------------------------------


def test_topic_is_made_and_removed(go: Stage) -> None:
    topic = go.make_topic(queues=3)
    assert topic in go.ask("listTopics")
    assert sorted(go.ask("listQueues", topic=topic)) == [f"{BROKER_NAME}/{queue}" for queue in range(3)]
    go.ask("deleteTopic", topic=topic)
    assert topic not in go.ask("listTopics")


def test_name_server_knows_a_topic_as_soon_as_it_is_made(go: Stage) -> None:
    asked = [go.ask("createTopic", topic=go.make_name("topic"), queues=2) for _ in range(10)]
    assert asked == [[1]] * 10


@pytest.mark.whole
def test_groups_are_listed_with_their_settings(go: Stage) -> None:
    topic = go.make_topic()
    group = go.make_name("group")
    go.start_consumer(topic, group=group)
    (row,) = (row for row in go.ask("listGroups") if row["GroupName"] == group)
    assert row == {
        "GroupName": group,
        "ConsumeEnable": True,
        "ConsumeFromMinEnable": True,
        "ConsumeBroadcastEnable": True,
        "RetryMaxTimes": 16,
        "RetryQueueNums": 1,
        "BrokerId": 0,
        "WhichBrokerWhenConsumeSlowly": 1,
        "NotifyConsumerIdsChangedEnable": True,
    }

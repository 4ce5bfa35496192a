"""Topics as operators make, change, look at and delete them."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._ground.limits import TOPIC_QUEUES_MAX
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import DataVersion, GroupConfig, MessageQueue
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import (
    CreateTopicHeader,
    DeleteGroupHeader,
    Header,
    QueueHeader,
    TopicHeader,
    UpdateConsumerOffsetHeader,
)
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Peer


def creation(topic: str = "T", **changes: Any) -> CreateTopicHeader:
    fields = {"read_queue_nums": 4, "write_queue_nums": 4, "perm": 6} | changes
    return CreateTopicHeader(topic=topic, **fields)


async def test_a_topic_is_made_changed_and_listed(broker: Broker, peer: Peer) -> None:
    before = broker.topics.data_version
    answer = await peer.expect(RequestCode.UPDATE_AND_CREATE_TOPIC, creation(topic_sys_flag=2))
    assert (answer.remark, answer.ext, answer.body) == ("not set any response code", None, None)
    changed = creation(read_queue_nums=8, write_queue_nums=6, perm=4, topic_filter_type="MULTI_TAG", order=True)
    await peer.expect(RequestCode.UPDATE_AND_CREATE_TOPIC, changed)
    listed = await peer.expect(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert listed.ext == {}
    topic = listed.body.topic_config_table["T"]
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (8, 6, 4)
    assert (topic.topic_filter_type, topic.topic_sys_flag, topic.order) == ("MULTI_TAG", 0, False)
    assert listed.body.data_version.counter == before.counter + 2
    assert isinstance(listed.body.data_version, DataVersion)


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", "The specified topic is blank."),
        (" ", "The specified topic is blank."),
        ("a/b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("..", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, "The specified topic is longer than topic max length."),
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        ("SCHEDULE_TOPIC_XXXX", "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic."),
        ("DefaultCluster", "The topic[DefaultCluster] is conflict with system topic."),
        ("rmq_sys_anything", "The topic[rmq_sys_anything] is conflict with system topic."),
    ],
)
async def test_names_that_are_none_or_the_brokers_own_are_refused(
    broker: Broker, peer: Peer, topic: str, remark: str
) -> None:
    refusal = (ResponseCode.SYSTEM_ERROR, remark)
    assert await peer.refused(RequestCode.UPDATE_AND_CREATE_TOPIC, creation(topic)) == refusal
    assert await peer.refused(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=topic)) == refusal


@pytest.mark.parametrize(
    "changes",
    [
        {"read_queue_nums": -1},
        {"write_queue_nums": TOPIC_QUEUES_MAX + 1},
        {"perm": -1},
        {"perm": 16},
        {"topic_filter_type": "NO_TAG"},
    ],
)
async def test_settings_that_cannot_be_are_refused(broker: Broker, peer: Peer, changes: dict[str, Any]) -> None:
    code, remark = await peer.refused(RequestCode.UPDATE_AND_CREATE_TOPIC, creation(**changes))
    assert (code, "illegal" in remark or "filter type" in remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert broker.topics.get("T") is None


async def test_a_deleted_topic_leaves_nothing_but_its_records(broker: Broker, peer: Peer, tmp_path: Path) -> None:
    await peer.make_topic("T", 2)
    for topic in ("T", "Kept"):
        await peer.send(topic, 0)
        await peer.send(topic, 1)
        commit = UpdateConsumerOffsetHeader(consumer_group="G", topic=topic, queue_id=0, commit_offset=1)
        await peer.expect(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    end = broker.store.log.tail
    answer = await peer.expect(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic="T"))
    assert (answer.remark, answer.ext) == (None, None)
    assert broker.topics.get("T") is None
    assert list(broker.offsets.pairs()) == [("Kept", "G")]
    assert {queue.topic for queue in broker.store.queues} == {"Kept"}
    assert await asyncio.to_thread(os.listdir, tmp_path / "store" / "consumequeue") == ["Kept"]
    assert broker.store.log.tail == end
    # A topic created again under its name starts empty.
    sent = await peer.send("T", 0)
    assert sent["queueOffset"] == "0"


async def test_a_topic_takes_no_messages_while_its_files_go(broker: Broker, peer: Peer) -> None:
    await peer.send("T", 0)
    remove = broker.store.detach_topic("T")
    with pytest.raises(AssertionError, match="topic T is being deleted"):
        await peer.send("T", 0)
    await asyncio.to_thread(remove)
    assert (await peer.send("T", 0))["queueOffset"] == "0"


async def test_deleting_what_is_not_there_succeeds(broker: Broker, peer: Peer) -> None:
    answer = await peer.expect(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic="Nowhere"))
    assert answer.code == ResponseCode.SUCCESS


async def test_the_brokers_own_topics_are_listed(broker: Broker, peer: Peer) -> None:
    names = (await peer.expect(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body.topic_list
    assert set(names) == {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "DefaultCluster_REPLY_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "BenchmarkTest",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "OFFSET_MOVED_EVENT",
        "TBW102",
        "broker-a",
        "SELF_TEST_TOPIC",
        "DefaultCluster",
    }


async def test_the_ends_of_a_topics_queues(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    await peer.make_topic("T", 3)
    await peer.send("T", 1)
    clock.advance(5000)
    await peer.send("T", 1)
    answer = await peer.expect(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic="T"))
    table = answer.body.offset_table
    assert [queue.queue_id for queue in table] == [0, 1, 2]
    filled = table[MessageQueue("broker-a", 1, "T")]
    assert (filled.min_offset, filled.max_offset, filled.last_update_timestamp) == (0, 2, clock.now_ms())
    empty = table[MessageQueue("broker-a", 0, "T")]
    assert (empty.min_offset, empty.max_offset, empty.last_update_timestamp) == (0, 0, 0)
    refusal = await peer.refused(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic="Nowhere"))
    assert refusal == (ResponseCode.TOPIC_NOT_EXIST, "topic[Nowhere] not exist")


async def test_queues_without_a_topic_are_cleaned_up(broker: Broker, peer: Peer) -> None:
    for topic in ("Kept", "Lost"):
        await peer.send(topic, 0)
    broker.topics.delete("Lost")
    own = await peer.send("BenchmarkTest", 0)
    broker.topics.delete("BenchmarkTest")  # a topic of the broker's own that has queues, but no settings
    answer = await peer.expect(RequestCode.CLEAN_UNUSED_TOPIC)
    assert (answer.ext, answer.remark) == (None, None)
    assert {queue.topic for queue in broker.store.queues} == {"Kept", "BenchmarkTest"}
    assert own["queueOffset"] == "0"


async def test_old_segments_go_when_an_operator_says_so(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    never_now = f"{(datetime.now().hour + 12) % 24:02}"
    broker = await make_broker(
        commitlog_segment_bytes=4096, retention_hours=0, delete_hours=never_now, queue_flush_interval_ms=5
    )
    peer = make_peer(broker)
    for _ in range(300):
        await peer.send("T", 0, b"x" * 50)
    assert len(broker.store.log.chain.segments) > 10
    await asyncio.to_thread(broker.store.flusher.sync_log)  # what is not synced is not deleted
    answer = await peer.expect(RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert answer.code == ResponseCode.SUCCESS
    queue = broker.store.queues.get("T", 0)
    assert queue is not None
    start = broker.store.log.start
    assert start > 0
    first = await peer.expect(RequestCode.GET_MIN_OFFSET, QueueHeader(topic="T", queue_id=0))
    assert 0 < first.header.offset == queue.min_offset < 300


async def test_queue_files_go_when_all_their_messages_are_gone(broker: Broker, peer: Peer) -> None:
    for _ in range(250):  # 100 entries a file
        await peer.send("T", 0)
    queue = broker.store.queues.get("T", 0)
    assert queue is not None and len(queue.chain.segments) == 3
    await peer.expect(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    assert len(queue.chain.segments) == 3
    entry = queue.entry(240)
    assert entry is not None
    files = [segment.path for segment in queue.chain.segments]
    log_start = entry.position
    broker.store.log.chain.segments[0].start = log_start  # as if the log began there
    await peer.expect(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    broker.store.log.chain.segments[0].start = 0
    assert (queue.min_offset, queue.max_offset) == (240, 250)
    assert await asyncio.to_thread(lambda: [path.exists() for path in files]) == [False, False, True]


@pytest.mark.parametrize(
    ("code", "header", "body"),
    [
        (RequestCode.UPDATE_AND_CREATE_TOPIC, creation(), None),
        (RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic="T"), None),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, GroupConfig(group_name="G")),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupHeader(group_name="G"), None),
    ],
)
async def test_a_slave_changes_nothing(
    make_broker: MakeBroker, make_peer: MakePeer, code: int, header: Header | None, body: Any
) -> None:
    broker = await make_broker(role=BrokerRole.SLAVE, broker_id=1)
    answer = await make_peer(broker).ask(code, header, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None and answer.remark.startswith("Can't modify topic or subscription group from slave")

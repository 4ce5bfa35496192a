"""Names and numbers that become keys of tables: what cannot be one is refused, and no table grows without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eruca._broker import topics as topics_module
from eruca._broker.app import Broker
from eruca._broker.groups import groups as groups_module
from eruca._broker.groups.offsets import Offsets
from eruca._broker.options import BrokerOptions, LiveOptions
from eruca._ground.limits import FRAME_BYTES_MAX, SHARED_TABLE_BYTES_MAX, TOPIC_QUEUES_MAX
from eruca._observe.metrics import SERVER
from eruca._store.tables.tables import encode_table
from eruca._wire.bodies import (
    ConsumerData,
    ConsumerOffsets,
    GroupConfig,
    GroupConfigTable,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    TopicConfig,
    TopicConfigTable,
)
from eruca._wire.bodies.shared import encode_json
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import CloneGroupOffsetHeader, UpdateConsumerOffsetHeader
from eruca.errors import RequestRefused, TableFull
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Answer, Peer
from tests.integration.broker.requests import EXPRESSION, try_pull
from tests.unit.broker.tables import make_groups, make_topics

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1


async def commit(peer: Peer, group: str = "G", topic: str = "T", queue_id: int = 0, offset: int = 5) -> Answer:
    header = UpdateConsumerOffsetHeader(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset)
    return await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


# -- offsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "offset"),
    [
        ("g" * 900_000, "T", 0, 5),
        ("g.h", "T", 0, 5),
        ("", "T", 0, 5),
        ("G", "t" * 256, 0, 5),
        ("G", "../T", 0, 5),
        ("G", "T", 4, 5),
        ("G", "T", -1, 5),
        ("G", "Unknown", TOPIC_QUEUES_MAX, 5),
        ("G", "T", 0, -1),
    ],
)
async def test_an_offset_of_what_cannot_be_is_refused(
    broker: Broker, peer: Peer, group: str, topic: str, queue_id: int, offset: int
) -> None:
    await peer.make_topic("T", queues=4)
    assert (await commit(peer, group, topic, queue_id, offset)).code == ResponseCode.SYSTEM_ERROR
    assert list(broker.offsets.pairs()) == []


async def test_an_offset_of_what_may_come_or_was_there_is_taken_as_in_java(broker: Broker, peer: Peer) -> None:
    """A consumer may be quicker than its retry topic, and one may finish reading a queue that its topic lost."""
    await peer.send("T", queue_id=3)
    broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    for topic, queue_id in (("%RETRY%G", 0), ("Unknown", 7), ("T", 3), ("T", 1)):
        assert (await commit(peer, "G", topic, queue_id, INT64_MAX)).code == ResponseCode.SUCCESS
        assert broker.offsets.get("G", topic, queue_id) == INT64_MAX


async def test_a_broker_that_makes_nothing_by_itself_takes_offsets_of_what_it_has(
    make_broker: MakeBroker, make_peer: MakePeer
) -> None:
    broker = await make_broker(auto_create_topic=False, auto_create_group=False)
    peer = make_peer(broker)
    await peer.make_topic("T")
    assert (await commit(peer)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    broker.groups.put(GroupConfig(group_name="G"))
    assert (await commit(peer)).code == ResponseCode.SUCCESS
    assert (await commit(peer, topic="Unknown")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await commit(peer, topic="%RETRY%G")).code == ResponseCode.SUCCESS


async def test_a_group_with_a_name_that_is_none_gets_no_copied_offsets(broker: Broker, peer: Peer) -> None:
    await peer.send("T")
    await commit(peer)
    header = CloneGroupOffsetHeader(src_group="G", dest_group="x" * 1000, topic="T", offline=True)
    await peer.refused(RequestCode.CLONE_GROUP_OFFSET, header)
    assert list(broker.offsets.pairs()) == [("T", "G")]


async def test_a_table_of_offsets_that_is_full_takes_no_new_ones_and_goes_on_with_the_old(
    make_broker: MakeBroker, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await make_broker()
    peer = make_peer(broker)
    await peer.send("T")
    for number in range(300):
        broker.groups.get(f"G{number}")
    broker.live.change(table_bytes_max=5000)
    taken = 0
    while (answer := await commit(peer, f"G{taken}")).code == ResponseCode.SUCCESS:
        taken += 1
    assert 20 < taken < 200
    assert "cannot be stored: the limit is reached with" in (answer.remark or "")
    assert "(maxTableBytes=5000)" in (answer.remark or "")
    assert caplog.text.count("cannot be stored: the limit is reached") == 1
    assert (await commit(peer, "G0", offset=9)).code == ResponseCode.SUCCESS
    # A pull that also commits continues.
    pulled = await try_pull(peer, consumer_group=f"G{taken}", sys_flag=EXPRESSION | 1, commit_offset=1)
    assert pulled.code == ResponseCode.SUCCESS
    await broker.stop()
    again = await make_broker(table_bytes_max=5000)
    assert len(list(again.offsets.pairs())) == taken
    assert again.offsets.get("G0", "T", 0) == 9
    again.offsets.remove_group("G0")
    again.offsets.commit("G_new", "T", 0, 1)
    with pytest.raises(TableFull):
        again.offsets.clone("G1", "G_newer", "T")


def make_offsets(table: dict[str, dict[int, int]]) -> Offsets:
    """A table that accepts every group, topic and queue."""
    return Offsets(
        LiveOptions(BrokerOptions()), ConsumerOffsets(offset_table=table), lambda group, topic, queue_id: None
    )


def test_what_is_removed_makes_room_for_as_much() -> None:
    offsets = make_offsets({"T@G": {0: 1, 1: 2}, "strange": {0: 3}, "U@G": {5: 5}})
    empty = make_offsets({})
    assert offsets.snapshot().offset_table == {"T@G": {0: 1, 1: 2}, "strange": {0: 3}, "U@G": {5: 5}}
    offsets.clone("G", "H", "T")
    offsets.clone("G", "H", "T")
    offsets.put("H", "V", 1, 1)
    offsets.merge(ConsumerOffsets(offset_table={"T@H": {0: 7, 4: 7}}))
    assert sorted(offsets.pairs()) == [("T", "G"), ("T", "H"), ("U", "G"), ("V", "H")]
    assert (offsets.topics_of("H"), offsets.groups_of("T")) == (["T", "V"], ["G", "H"])
    assert offsets.queues("H", "T") == {0: 7, 1: 2, 4: 7}
    offsets.remove_topic("T")
    offsets.remove_group("G")
    offsets.remove_group("H")
    assert list(offsets.pairs()) == []
    assert offsets._bytes == empty._bytes == 0
    with pytest.raises(RequestRefused):
        offsets.commit("G", "T", 0, -5)


# -- how large tables become -----------------------------------------------------------------------------------------


def test_no_entry_takes_more_than_it_is_counted_for() -> None:
    """So a table that is full fits into one frame, which is how slaves copy it, and a start reads it."""
    name = "n" * 100
    empty = len(encode_json(TopicConfigTable()))
    topic = TopicConfig(
        topic_name=name,
        perm=-INT32_MAX,
        read_queue_nums=-INT32_MAX,
        write_queue_nums=-INT32_MAX,
        topic_sys_flag=-INT32_MAX,
    )
    table = encode_json(TopicConfigTable(topic_config_table={name: topic}))
    assert len(table) - empty <= topics_module._weigh(name)
    group = GroupConfig(
        group_name=name,
        broker_id=-INT64_MAX,
        consume_broadcast_enable=False,
        consume_enable=False,
        consume_from_min_enable=False,
        notify_consumer_ids_changed_enable=False,
        retry_max_times=-INT32_MAX,
        retry_queue_nums=-INT32_MAX,
        which_broker_when_consume_slowly=-INT64_MAX,
    )
    groups = encode_json(GroupConfigTable(subscription_group_table={name: group}))
    assert len(groups) - len(encode_json(GroupConfigTable())) <= groups_module._weigh(name)
    offsets = make_offsets({})
    offsets.put(name, name, INT32_MAX, INT64_MAX)
    assert len(encode_json(offsets.snapshot())) - len(encode_json(ConsumerOffsets())) <= offsets._bytes
    assert SHARED_TABLE_BYTES_MAX + 4096 < FRAME_BYTES_MAX
    # Indented as on disk it is larger, but far from what a start refuses.
    assert len(encode_table(offsets.snapshot())) < 2 * offsets._bytes


@pytest.mark.parametrize("limits", [{"table_bytes_max": 10_000}, {"topics_max": 30, "groups_max": 30}])
def test_topics_and_groups_are_bounded_and_what_is_deleted_makes_room(
    caplog: pytest.LogCaptureFixture, limits: dict[str, Any]
) -> None:
    topics = make_topics(**limits)
    groups = make_groups(**limits)
    with pytest.raises(TableFull, match="the limit is reached"):
        for number in range(1000):
            topics.create_internal(f"T{number}", 1)
    with pytest.raises(TableFull, match="the limit is reached"):
        for number in range(1000):
            groups.get(f"G{number}")
    assert "the limit is reached" in caplog.text
    topics.put(TopicConfig(topic_name="T0", perm=4))  # existing entries can change
    groups.put(GroupConfig(group_name="G0", retry_max_times=3))
    topics.delete("T0")
    groups.delete("G0")
    topics.create_internal("New", 1)
    groups.get("New")
    assert topics.get("New") is not None and groups.find("New") is not None
    topics.replace(TopicConfigTable())
    groups.replace(GroupConfigTable())
    topics.create_internal("T0", 1)
    groups.get("G0")


def test_the_number_of_offsets_is_bounded() -> None:
    options = LiveOptions(BrokerOptions(offsets_max=3))
    offsets = Offsets(options, ConsumerOffsets(offset_table={"T@G": {0: 1}}), lambda group, topic, queue_id: None)
    offsets.commit("G", "T", 1, 5)
    offsets.commit("H", "T", 0, 5)
    with pytest.raises(TableFull, match=r"the limit is reached with 3 offsets \(maxOffsets=3\).*or raise maxOffsets"):
        offsets.commit("H", "U", 0, 5)
    offsets.commit("H", "T", 0, 6)
    offsets.remove_group("G")
    offsets.clone("H", "G", "T")
    offsets.commit("G", "T", 7, 1)
    with pytest.raises(TableFull):
        offsets.clone("G", "I", "T")
    shown = SERVER.snapshot()
    assert shown["eruca_server_offsets"] >= 3 and shown['eruca_server_refused_total{option="maxOffsets"}'] >= 2


async def test_a_broker_with_full_tables_says_so_and_starts_again(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(table_bytes_max=5000)
    peer = make_peer(broker)
    made = 0
    with pytest.raises(AssertionError, match="the limit is reached"):
        while True:
            await peer.send(f"T{made}")
            made += 1
    assert made > 5
    # The group is not accepted, because its retry topic cannot be created.
    body = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="G")])
    assert "the limit is reached" in (await peer.refused(RequestCode.HEART_BEAT, None, body))[1]
    await broker.stop()
    assert f"T{made - 1}" in (await make_broker()).topics.names()


# -- heartbeats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        HeartbeatData(client_id="c" * 1000),
        HeartbeatData(client_id=""),
        HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="p" * 1000)]),
        HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="p\n")]),
        HeartbeatData(
            client_id="c",
            consumer_data_set=[
                ConsumerData(group_name="G", subscription_data_set=[SubscriptionData(topic="t" * 1000)])
            ],
        ),
    ],
)
async def test_a_heartbeat_with_a_name_that_is_none_registers_nobody(
    broker: Broker, peer: Peer, body: HeartbeatData
) -> None:
    assert (await peer.refused(RequestCode.HEART_BEAT, None, body))[0] == ResponseCode.SYSTEM_ERROR
    clients = broker.clients
    assert (clients.consumers, clients.producers) == ({}, {})


async def test_a_heartbeat_of_thousands_of_groups_lets_others_be_served(
    broker: Broker, peer: Peer, make_peer: MakePeer
) -> None:
    other = make_peer(broker)
    await other.send("T")
    groups = [ConsumerData(group_name=f"G{number}") for number in range(3000)]
    beating = asyncio.create_task(
        peer.expect(RequestCode.HEART_BEAT, None, HeartbeatData(client_id="c", consumer_data_set=groups))
    )
    clients = broker.clients
    served_between = 0
    while not beating.done():
        await other.send("T")
        served_between += 0 < len(clients.consumers) < 3000
    await beating
    assert served_between >= 3
    assert len(clients.consumers) == 3000
    assert broker.topics.get("%RETRY%G2999") is not None

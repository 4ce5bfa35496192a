"""Creating, changing and deleting subscription groups, and listing their members."""

from __future__ import annotations

import pytest

from eruca._broker.app import Broker
from eruca._wire.bodies import ConsumeFromWhere, ConsumeType, GroupConfig, MessageModel
from eruca._wire.codes import Language, RequestCode, ResponseCode
from eruca._wire.headers import ConsumerGroupHeader, DeleteGroupHeader, ProducerGroupHeader, UpdateConsumerOffsetHeader
from tests.integration.broker.conftest import MakePeer
from tests.integration.broker.peer import Peer
from tests.unit.net.rawpeer import turn_until


async def test_a_group_is_made_changed_and_listed(broker: Broker, peer: Peer) -> None:
    answer = await peer.expect(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, GroupConfig(group_name="G", retry_max_times=3)
    )
    assert (answer.ext, answer.remark, answer.body) == (None, None, None)
    config = GroupConfig(group_name="G", retry_max_times=5, consume_enable=False)
    await peer.expect(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
    listed = await peer.expect(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert listed.body.subscription_group_table["G"] == config
    assert "TOOLS_CONSUMER" in listed.body.subscription_group_table
    assert listed.body.data_version.counter == 2
    assert listed.ext is None


@pytest.mark.parametrize(
    "config",
    [GroupConfig(group_name="a b"), GroupConfig(group_name=""), GroupConfig(group_name="G", retry_queue_nums=-1)],
)
async def test_a_group_that_cannot_be_is_refused(broker: Broker, peer: Peer, config: GroupConfig) -> None:
    code, remark = await peer.refused(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
    assert (code, bool(remark)) == (ResponseCode.SYSTEM_ERROR, True)
    assert broker.groups.find(config.group_name) is None
    code, _ = await peer.refused(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    assert code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("remove_offset", [True, False, None])
async def test_a_deleted_group_keeps_its_offsets_unless_asked(
    broker: Broker, peer: Peer, remove_offset: bool | None
) -> None:
    for group in ("G", "G2"):
        await peer.expect(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, GroupConfig(group_name=group))
        commit = UpdateConsumerOffsetHeader(consumer_group=group, topic="T", queue_id=0, commit_offset=1)
        await peer.expect(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    await peer.expect(
        RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupHeader(group_name="G", remove_offset=remove_offset)
    )
    assert broker.groups.find("G") is None
    assert broker.groups.find("G2") is not None
    left = {group for _, group in broker.offsets.pairs()}
    assert left == ({"G2"} if remove_offset else {"G", "G2"})


async def test_who_is_in_a_consumer_group(broker: Broker, peer: Peer) -> None:
    await peer.join("G", "me@1", "T", "U", expression="TagA")
    answer = await peer.expect(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumer_group="G"))
    (connection,) = answer.body.connection_set
    assert (connection.client_id, connection.language, connection.version) == ("me@1", Language.JAVA, 407)
    assert connection.client_addr.startswith("127.0.0.1:")
    assert answer.body.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert answer.body.message_model is MessageModel.CLUSTERING
    assert answer.body.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert {topic: item.sub_string for topic, item in answer.body.subscription_table.items()} == {
        "T": "TagA",
        "U": "TagA",
    }
    assert (answer.remark, answer.ext) == (None, None)
    refusal = await peer.refused(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumer_group="H"))
    assert refusal == (ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group[H] not online")


async def test_operators_are_told_what_is_wrong_with_a_group(broker: Broker, peer: Peer, make_peer: MakePeer) -> None:
    await peer.join("G", "same", "T", expression="TagA")
    await make_peer(broker).join("G", "same", "T", expression="TagB")
    answer = await peer.expect(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumer_group="G"))
    assert answer.remark is not None
    assert "client id same is on 2 connections" in answer.remark
    assert "members subscribe to topic T differently: 'TagA', 'TagB'" in answer.remark
    await turn_until(lambda: bool(broker.clients.conflicts))
    table = (await peer.expect(RequestCode.GET_BROKER_RUNTIME_INFO)).body.table
    assert table["consumerGroupConflicts_G"] == answer.remark


async def test_who_is_in_a_producer_group(broker: Broker, peer: Peer, make_peer: MakePeer) -> None:
    await peer.produce("P", "me")
    await make_peer(broker).produce("P", "you")
    header = ProducerGroupHeader(producer_group="P")
    listed = (await peer.expect(RequestCode.GET_PRODUCER_CONNECTION_LIST, header)).body.connection_set
    assert [connection.client_id for connection in listed] == ["me", "you"]
    refusal = await peer.refused(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupHeader(producer_group="Q"))
    assert refusal == (ResponseCode.SYSTEM_ERROR, "the producer group[Q] not exist")
    everyone = (await peer.expect(RequestCode.GET_ALL_PRODUCER_INFO)).body.data
    assert {group: [info.client_id for info in infos] for group, infos in everyone.items()} == {"P": ["me", "you"]}
    assert everyone["P"][0].remote_ip.startswith("/127.0.0.1:")
    assert everyone["P"][0].last_update_timestamp > 0

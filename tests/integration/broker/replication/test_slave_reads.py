"""Reading from slaves: which readers are redirected, what a slave corrects, and what it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._wire.bodies import GroupConfig
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import (
    CreateTopicHeader,
    DeleteGroupHeader,
    EmptyHeader,
    EndTransactionHeader,
    SendBackHeader,
    TopicHeader,
    UpdateConsumerOffsetHeader,
)
from tests.integration.broker.peer import Answer, Peer
from tests.integration.broker.replication.members import Group, wait_for_copy, wait_until
from tests.integration.broker.requests import COMMIT, EXPRESSION, HOLD, pull_header, send_header


async def pull(peer: Peer, offset: int = 0, *, sys_flag: int = EXPRESSION, **fields: Any) -> Answer:
    """Pull once, without waiting."""
    return await peer.ask(RequestCode.PULL_MESSAGE, pull_header(queue_offset=offset, sys_flag=sys_flag, **fields))


async def make_pair(group: Group, **options: Any) -> tuple[Broker, Broker]:
    """A master with five messages in queue 0, and a slave that has them."""
    master, slave = await group.add(0, **options), await group.add(1, **options)
    peer = group.connect(master)
    for number in range(5):
        await peer.send("T", body=b"%d" % number)
    await wait_for_copy(slave, master)
    await wait_until(lambda: slave.topics.get("T") is not None)
    return master, slave


def suggested(answer: Answer) -> int:
    return int(answer.header.suggest_which_broker_id)


async def test_a_slave_gives_what_it_has_and_points_at_the_master(group: Group) -> None:
    _, slave = await make_pair(group)
    answer = await pull(group.connect(slave), 2)
    assert answer.code == ResponseCode.SUCCESS
    assert (answer.header.next_begin_offset, suggested(answer)) == (5, 0)


@pytest.mark.parametrize("ratio", [0, 100])
async def test_slow_readers_are_sent_to_a_slave(group: Group, ratio: int) -> None:
    master, slave = await make_pair(group, slave_read=True, memory_ratio_max=ratio)
    config = GroupConfig(group_name="readers", which_broker_when_consume_slowly=1)
    peer = group.connect(master)
    await peer.expect(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
    await wait_until(lambda: slave.groups.find("readers") is not None)
    for broker in (master, slave):
        answer = await pull(group.connect(broker), max_message_nums=2)
        assert suggested(answer) == (1 if ratio == 0 else 0)


async def test_without_the_option_nobody_is_sent_anywhere(group: Group) -> None:
    master, _ = await make_pair(group, memory_ratio_max=0)
    assert suggested(await pull(group.connect(master))) == 0


async def test_the_slave_a_group_wants_is_suggested(group: Group) -> None:
    master, _ = await make_pair(group, slave_read=True, memory_ratio_max=0)
    peer = group.connect(master)
    config = GroupConfig(group_name="readers", which_broker_when_consume_slowly=3, broker_id=2)
    await peer.expect(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
    assert suggested(await pull(peer)) == 3
    master.live.change(memory_ratio_max=100)
    assert suggested(await pull(peer)) == 2


@pytest.mark.parametrize("offset", [9, 5000])
async def test_a_slave_corrects_no_offsets(group: Group, offset: int) -> None:
    """It may just be behind: a reader that was further on its master must not be sent back."""
    _, slave = await make_pair(group)
    answer = await pull(group.connect(slave), offset)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.header.next_begin_offset == offset
    # Of a queue it does not have at all, too.
    answer = await pull(group.connect(slave), offset, queue_id=1)
    assert (answer.code, answer.header.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, offset)


async def test_a_slave_corrects_offsets_when_it_is_told_to(group: Group) -> None:
    _, slave = await make_pair(group, offset_check_in_slave=True)
    answer = await pull(group.connect(slave), 9)
    assert (answer.code, answer.header.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 5)


async def test_a_held_pull_of_a_slave_wakes_when_the_message_is_copied(group: Group) -> None:
    master, slave = await make_pair(group)
    task = asyncio.create_task(pull(group.connect(slave), 5, sys_flag=EXPRESSION | HOLD))
    await wait_until(lambda: len(slave.pull.holds))
    await group.connect(master).send("T", body=b"new")
    answer = await task
    assert (answer.code, answer.header.next_begin_offset) == (ResponseCode.SUCCESS, 6)


async def test_pulls_commit_nothing_on_a_slave_but_commits_do(group: Group) -> None:
    _, slave = await make_pair(group)
    peer = group.connect(slave)
    await pull(peer, sys_flag=EXPRESSION | COMMIT, commit_offset=3)
    assert slave.offsets.get("readers", "T", 0) == -1
    header = UpdateConsumerOffsetHeader(consumer_group="readers", topic="T", queue_id=0, commit_offset=4)
    await peer.expect(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert slave.offsets.get("readers", "T", 0) == 4


async def test_a_slave_makes_no_topics_and_groups(group: Group) -> None:
    _, slave = await make_pair(group)
    peer = group.connect(slave)
    await peer.join("newcomers", "c", "T")
    assert (await pull(peer, consumer_group="others")).code == ResponseCode.SUCCESS
    assert slave.groups.find("newcomers") is slave.groups.find("others") is None
    assert slave.topics.get("%RETRY%newcomers") is None


def refused_requests() -> list[tuple[RequestCode, Any, Any, int]]:
    """What a slave does not do, and the response codes."""
    topic = CreateTopicHeader(
        topic="New", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6, order=False
    )
    end = EndTransactionHeader(
        producer_group="p", half_offset=0, position=0, decision=8, message_id="", transaction_id=""
    )
    back = SendBackHeader(offset=0, group="readers", delay_level=0)
    unavailable, error = ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR
    return [
        (RequestCode.SEND_MESSAGE_V2, send_header(), b"x", unavailable),
        (RequestCode.SEND_MESSAGE_V2, send_header("Unknown"), b"x", unavailable),
        (RequestCode.SEND_MESSAGE_V2, send_header(properties="DELAY\x011"), b"x", unavailable),
        (RequestCode.SEND_MESSAGE_V2, send_header(properties="TRAN_MSG\x01true\x02PGROUP\x01p"), b"x", unavailable),
        (RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), b"x", unavailable),
        (
            RequestCode.SEND_MESSAGE_V2,
            send_header(producer_group="ERUCA_ONCE_SINK", properties="ERUCA_ONCE\x01q:1:0:1"),
            b"x",
            unavailable,
        ),
        (RequestCode.SEND_REPLY_MESSAGE_V2, send_header(), b"x", unavailable),
        (RequestCode.END_TRANSACTION, end, None, ResponseCode.SLAVE_NOT_AVAILABLE),
        (RequestCode.CONSUMER_SEND_MSG_BACK, back, None, error),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, topic, None, error),
        (RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic="T"), None, error),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, GroupConfig(group_name="G"), error),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupHeader(group_name="readers"), None, error),
        (RequestCode.CLEAN_UNUSED_TOPIC, EmptyHeader(), None, error),
    ]


async def test_what_a_slave_refuses(group: Group) -> None:
    master, slave = await make_pair(group)
    peer = group.connect(slave)
    before = slave.store.log.tail
    for code, header, body, expected in refused_requests():
        answered, remark = await peer.refused(code, header, body)
        assert answered == expected, f"{code.name}: {answered} {remark}"
    assert slave.store.log.tail == before
    assert slave.topics.snapshot() == master.topics.snapshot()


async def test_readers_are_told_the_mastership_once_masters_have_changed(group: Group) -> None:
    master, slave = await make_pair(group)
    answer = await pull(group.connect(master))
    assert answer.ext is not None and "erucaEpoch" not in answer.ext
    await group.remove(master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    answer = await pull(group.connect(slave))
    assert answer.ext is not None and answer.ext["erucaEpoch"] == "1000"
    assert answer.header.next_begin_offset == 5

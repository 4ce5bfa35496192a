"""A broker that does not answer is reported; the others are in the result all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eruca import ClientOptions
from eruca._wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from eruca._wire.codes import RequestCode
from eruca._wire.headers import RegisterBrokerHeader
from eruca.admin import Admin
from eruca.testing import EmbeddedBroker

DEAD, PORT = "broker-z", "127.0.0.1:1"


@pytest.fixture
async def halved(broker: EmbeddedBroker) -> AsyncIterator[Admin]:
    """An admin of a cluster with a broker that answers and one that does not."""
    await asyncio.to_thread(broker.create_topic, "orders", 2)
    async with Admin(broker.nameserver, ClientOptions(call_timeout=2.0)) as admin:
        (row,) = (await admin.brokers.list()).items
        header = RegisterBrokerHeader(
            broker_name=DEAD, broker_addr=PORT, cluster_name=row.cluster, ha_server_addr="127.0.0.1:2", broker_id=0
        )
        table = TopicConfigTable(
            data_version=DataVersion(counter=1, timestamp=1),
            topic_config_table={"orders": TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2)},
        )
        # It is registered for as long as this connection is open.
        await admin.connection.ask(
            broker.nameserver,
            RequestCode.REGISTER_BROKER,
            header,
            RegisterBrokerBody(topic_config_serialize_wrapper=table),
        )
        yield admin


async def test_questions_have_what_the_others_say(halved: Admin) -> None:
    topic = await halved.topics.show("orders")
    assert len(topic.queues) == 2
    for problems in (
        topic.problems,
        (await halved.topics.queues("orders")).problems,
        (await halved.topics.settings()).problems,
        (await halved.topics.groups("orders")).problems,
        (await halved.groups.list()).problems,
        (await halved.groups.settings()).problems,
        (await halved.offsets.lag()).problems,
        (await halved.brokers.runtime()).problems,
        (await halved.brokers.config()).problems,
        (await halved.brokers.consume_stats()).problems,
        (await halved.clients.producers()).problems,
        (await halved.transactions.list()).problems,
        (await halved.delayed.list()).problems,
        (await halved.accounts.list()).problems,
    ):
        assert {(each.where, each.address) for each in problems} == {(DEAD, PORT)}
        assert all(each.error for each in problems)
    assert len((await halved.brokers.runtime()).items) == 1
    health = {each.broker: each.answers for each in (await halved.brokers.health()).items}
    assert health.pop(DEAD) is False and list(health.values()) == [True]


async def test_changes_are_made_where_they_can_be(halved: Admin) -> None:
    changed = await halved.topics.create("bills", queues=2)
    assert {each.where == DEAD: each.outcome for each in changed.changes} == {True: "failed", False: "done"}
    group = await halved.groups.create("billing")
    assert {each.where == DEAD: each.outcome for each in group.changes} == {True: "failed", False: "done"}
    config = await halved.brokers.set_config({"fileReservedTime": "71"}, dry_run=True)
    assert {each.where == DEAD: each.outcome for each in config.changes} == {True: "failed", False: "planned"}
    moved = await halved.offsets.reset("billing", "orders", "earliest")
    assert {move.broker == DEAD: move.outcome for move in moved.moves} == {True: "failed", False: "written"}
    deleted = await halved.topics.delete("orders")
    assert {each.where == DEAD: each.outcome for each in deleted.changes} == {True: "failed", False: "done"}
    # The name server still lists it: the broker that is away may have it.
    assert "orders" in {row.name for row in (await halved.topics.list()).items}

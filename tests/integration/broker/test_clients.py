"""Clients: members of groups, notifications of changes, expired members, and problems of groups."""

from __future__ import annotations

import logging

import pytest

from eruca._broker.app import Broker
from eruca._broker.groups.clients import ConsumerGroup, Member
from eruca._net.link import Link
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import (
    CheckClientBody,
    ConsumerData,
    GroupConfig,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
    TopicList,
    decode_json,
)
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command
from eruca._wire.headers import (
    ConsumerGroupHeader,
    QueryConsumerOffsetHeader,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
)
from eruca._wire.names import CONFLICTS_PREFIX
from eruca.errors import NetError
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import Inbox, stored
from tests.integration.broker.peer import Peer
from tests.unit.net.rawpeer import turn_until

CHANGED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
CREATED = RequestCode.TOPICS_CREATED


async def list_ids(peer: Peer, group: str = "G") -> list[str]:
    answer = await peer.expect(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(consumer_group=group))
    return sorted(answer.body.consumer_id_list)


async def beat(peer: Peer, *subscriptions: SubscriptionData, client_id: str = "c") -> None:
    data = ConsumerData(group_name="G", subscription_data_set=list(subscriptions))
    await peer.expect(RequestCode.HEART_BEAT, None, HeartbeatData(client_id=client_id, consumer_data_set=[data]))


# -- coming and going ------------------------------------------------------------------------------------------------


async def test_a_heartbeat_makes_members_of_every_group_it_names(broker: Broker, peer: Peer) -> None:
    body = HeartbeatData(
        client_id="c1",
        consumer_data_set=[ConsumerData(group_name=name, subscription_data_set=[]) for name in ("G", "H")],
        producer_data_set=[ProducerData(group_name="P")],
    )
    answer = await peer.expect(RequestCode.HEART_BEAT, None, body)
    assert (answer.ext, answer.remark) == (None, None)
    assert (await list_ids(peer, "G"), await list_ids(peer, "H")) == (["c1"], ["c1"])
    assert list(broker.clients.producers) == ["P"]
    for group in ("G", "H"):
        assert broker.groups.find(group) is not None
        retry = broker.topics.get(f"%RETRY%{group}")
        assert retry is not None
        assert (retry.read_queue_nums, retry.perm) == (1, 6)


async def test_a_heartbeat_of_a_group_that_may_not_make_itself(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(auto_create_group=False)
    peer = make_peer(broker)
    await peer.join("G", "c", "T")
    assert (broker.groups.find("G"), broker.topics.get("%RETRY%G")) == (None, None)
    assert await list_ids(peer) == ["c"]  # it is still registered, as in Java


async def test_a_heartbeat_needs_a_body_that_can_be_read(peer: Peer) -> None:
    for body in (b"", b"x", b"[]", b'{"clientID":5}', b"[" * 10_000):
        code, remark = await peer.refused(RequestCode.HEART_BEAT, None, body)
        assert (code, bool(remark)) == (ResponseCode.SYSTEM_ERROR, True)


async def test_nobody_in_a_group(peer: Peer) -> None:
    code, remark = await peer.refused(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(consumer_group="G"))
    assert (code, remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, G")


async def test_a_client_leaves_the_groups_it_names(broker: Broker, peer: Peer) -> None:
    await peer.join("G", "c", "T")
    await peer.join("H", "c", "T")
    await peer.produce("P", "c")
    header = UnregisterClientHeader(client_id="c", consumer_group="G", producer_group="P")
    await peer.expect(RequestCode.UNREGISTER_CLIENT, header)
    clients = broker.clients
    assert (list(clients.consumers), list(clients.producers)) == (["H"], [])
    await peer.expect(RequestCode.UNREGISTER_CLIENT, header)  # again does no harm


async def test_a_closed_connection_takes_its_members_along(broker: Broker, make_peer: MakePeer, peer: Peer) -> None:
    await peer.join("G", "stays", "T")
    other = make_peer(broker)
    await other.join("G", "goes", "T")
    await other.produce("P", "goes")
    assert await list_ids(peer) == ["goes", "stays"]
    await other.close()
    clients = broker.clients
    await turn_until(lambda: not clients.producers)
    assert await list_ids(peer) == ["stays"]


async def test_a_client_without_heartbeat_is_forgotten_and_closed(
    make_broker: MakeBroker, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    silent, alive = make_peer(broker), make_peer(broker)
    await silent.join("G", "silent", "T")
    await silent.produce("P", "silent")
    await alive.join("G", "alive", "T")
    clients = broker.clients
    clock.advance(120_000)
    clients.expire(broker.options.client_timeout_ms)
    assert await list_ids(alive) == ["alive", "silent"]  # just in time
    clock.advance(1)
    await alive.join("G", "alive", "T")
    clients.expire(broker.options.client_timeout_ms)
    assert (await list_ids(alive), list(clients.producers)) == (["alive"], [])
    await turn_until(lambda: not silent._caller.is_connected(broker.standing.address))
    assert len([record for record in caplog.records if "sent no heartbeat" in record.message]) >= 1


async def test_the_timer_of_the_broker_finds_silent_clients(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, client_scan_ms=1, idle_seconds=3600)
    await make_peer(broker).join("G", "c", "T")
    clients = broker.clients
    assert list(clients.consumers) == ["G"]
    clock.advance(120_001)
    await turn_until(lambda: not clients.consumers)


# -- new topics -----------------------------------------------------------------------------------------------------


async def watch(peer: Peer, *groups: str) -> None:
    """Ask to be told about new topics, in one group after the other."""
    data = [ConsumerData(group_name=name, subscription_data_set=[], eruca_new_topics=True) for name in groups]
    await peer.expect(RequestCode.HEART_BEAT, None, HeartbeatData(client_id="c", consumer_data_set=data))


def read_topics(command: Command) -> list[str]:
    assert command.is_oneway
    return list(decode_json(TopicList, command.body).topic_list)


async def test_who_asks_is_told_about_new_topics_and_nobody_else(broker: Broker, make_peer: MakePeer) -> None:
    mine, other = Inbox(), Inbox()
    one, two = make_peer(broker, handlers={CREATED: mine.handle}), make_peer(broker, handlers={CREATED: other.handle})
    await watch(one, "G")
    await two.join("H", "c2", "T")  # the retry topic of its group is no news
    await one.make_topic("Orders")
    assert read_topics(await mine.get()) == ["Orders"]
    await one.make_topic("Orders", queues=8)  # it is changed, not created
    await two.send("Bills")
    assert read_topics(await mine.get()) == ["Bills"]
    assert mine.commands.empty()
    assert other.commands.empty()


async def test_topics_that_are_created_together_are_told_together(broker: Broker, make_peer: MakePeer) -> None:
    mine = Inbox()
    peer = make_peer(broker, handlers={CREATED: mine.handle})
    await watch(peer, "G")
    names = [f"t{number}" for number in range(2500)]
    for name in names:
        broker.topics.create_internal(name, 1)
    notices = [read_topics(await mine.get()) for _ in range(3)]
    assert [len(told) for told in notices] == [1000, 1000, 500]
    assert [name for told in notices for name in told] == names


async def test_who_leaves_is_told_nothing_more(broker: Broker, make_peer: MakePeer) -> None:
    mine, last = Inbox(), Inbox()
    peer, other = make_peer(broker, handlers={CREATED: mine.handle}), make_peer(broker, handlers={CREATED: last.handle})
    watchers = broker.clients.topic_watchers
    await watch(peer, "G", "H")
    await watch(other, "G")
    await peer.expect(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader(client_id="c", consumer_group="G"))
    assert len(watchers) == 2
    await peer.expect(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader(client_id="c", consumer_group="H"))
    await peer.make_topic("Orders")
    assert read_topics(await last.get()) == ["Orders"]
    assert mine.commands.empty()
    await other.close()
    await turn_until(lambda: not watchers)


# -- being told ------------------------------------------------------------------------------------------------------


async def test_members_are_told_when_their_group_changes(broker: Broker, make_peer: MakePeer) -> None:
    first, second = Inbox(), Inbox()
    one, two = make_peer(broker, handlers={CHANGED: first.handle}), make_peer(broker, handlers={CHANGED: second.handle})
    await one.join("G", "one", "T")
    told = await first.get()
    assert told.is_oneway
    assert told.decode_header(ConsumerGroupHeader).consumer_group == "G"
    await two.join("G", "two", "T")
    await first.get()
    await second.get()
    await two.join("G", "two", "T")  # nothing new
    await two.close()
    await first.get()
    await list_ids(one)
    assert (first.commands.empty(), second.commands.empty()) == (True, True)


async def test_members_are_told_of_new_and_lost_topics(broker: Broker, make_peer: MakePeer) -> None:
    inbox = Inbox()
    peer = make_peer(broker, handlers={CHANGED: inbox.handle})
    t, u = (SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in "TU")
    for subscriptions in ((t,), (t, u), (u,)):
        await beat(peer, *subscriptions)
        await inbox.get()
    await beat(peer, SubscriptionData(topic="U", sub_string="x", sub_version=2))  # only the expression: no notification
    await list_ids(peer)
    assert inbox.commands.empty()
    group = broker.clients.consumer("G")
    assert group is not None
    assert {topic: item.sub_string for topic, item in group.subscriptions.items()} == {"U": "x"}


async def test_an_older_subscription_changes_nothing(broker: Broker, peer: Peer) -> None:
    for text, version in (("new", 5), ("old", 4), ("same", 5)):
        await beat(peer, SubscriptionData(topic="T", sub_string=text, sub_version=version))
    group = broker.clients.consumer("G")
    assert group is not None
    assert group.subscriptions["T"].sub_string == "new"


async def test_changes_that_follow_each_other_closely_are_told_together(broker: Broker, make_peer: MakePeer) -> None:
    """A hundred members that join one after the other do not cause a hundred rounds of notifications."""
    inbox = Inbox()
    watching = make_peer(broker, handlers={CHANGED: inbox.handle})
    await watching.join("G", "watching", "T")
    await inbox.get()  # at once
    peers = [make_peer(broker) for _ in range(100)]
    for number, peer in enumerate(peers):
        await peer.join("G", f"c{number}", "T")
    told = 0
    while len(await list_ids(watching)) < 101 or not told or not inbox.commands.empty():
        await inbox.get()
        told += 1
    assert told < 60
    for peer in peers:
        await peer.close()
    await turn_until(lambda: len(broker.clients.consumers["G"].members) == 1)
    await inbox.get()  # and of their end, too
    assert await list_ids(watching) == ["watching"]


async def test_a_connection_that_ends_is_looked_for_in_its_own_groups_only(broker: Broker, peer: Peer) -> None:
    clients = broker.clients
    await peer.join("G", "c", "T")
    await peer.produce("P", "c")
    (link,) = clients.consumers["G"].members

    class Untouchable(dict[Link, Member]):
        def __contains__(self, key: object) -> bool:
            raise AssertionError("a group that the connection is not in was searched")

    clients.producers["other"] = Untouchable()
    clients.consumers["other"] = ConsumerGroup("other", members=Untouchable())
    clients.drop_link(link)
    assert (list(clients.consumers), list(clients.producers)) == (["other"], ["other"])
    assert clients.account.total == 0
    clients.consumers.clear()
    clients.producers.clear()


async def test_the_list_of_members_is_written_once_for_each_change(broker: Broker, peer: Peer) -> None:
    await peer.join("G", "c", "T")
    group = broker.clients.consumers["G"]
    first = group.encode_ids()
    assert group.encode_ids() is first
    await peer.join("G", "c", "T")
    assert group.encode_ids() is first
    assert await list_ids(peer) == ["c"]
    assert group.find("c") is not None and group.find("d") is None


async def test_heartbeats_are_weighed_and_the_heaviest_client_goes(
    broker: Broker, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    account = broker.clients.account
    account.bytes_max = 100_000
    good, heavy = make_peer(broker), make_peer(broker)
    await good.join("G", "good", "T")
    await heavy.join("G", "heavy", "T", expression="x" * 60_000)
    assert 60_000 < account.total < 70_000
    await heavy.join("G", "heavy", "T", expression="x" * 50_000)  # replaces its previous subscription
    assert 50_000 < account.total < 60_000
    with pytest.raises(NetError):
        await heavy.join("H", "heavy", "T", expression="y" * 60_000)
    assert await list_ids(good) == ["good"]
    assert account.total < 10_000
    assert len(warnings_of(caplog, "its heartbeats take")) == 1


@pytest.mark.parametrize("who", ["broker", "group"])
async def test_nobody_is_told_when_that_is_switched_off(broker: Broker, make_peer: MakePeer, who: str) -> None:
    if who == "broker":
        broker.live.change(notify_group_changes=False)
    else:
        broker.groups.put(GroupConfig(group_name="G", notify_consumer_ids_changed_enable=False))
    inbox = Inbox()
    peer = make_peer(broker, handlers={CHANGED: inbox.handle})
    await peer.join("G", "c", "T")
    await list_ids(peer)
    assert inbox.commands.empty()


async def test_the_last_heartbeat_decides_the_model(broker: Broker, peer: Peer) -> None:
    for model in (MessageModel.BROADCASTING, MessageModel.CLUSTERING, MessageModel.BROADCASTING):
        data = ConsumerData(group_name="G", message_model=model, subscription_data_set=[])
        await peer.expect(RequestCode.HEART_BEAT, None, HeartbeatData(client_id="c", consumer_data_set=[data]))
        group = broker.clients.consumer("G")
        assert group is not None
        assert group.message_model is model


# -- what is wrong ---------------------------------------------------------------------------------------------------


def warnings_of(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING and word in record.message]


async def test_an_id_on_two_connections_is_said_once(
    broker: Broker, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = make_peer(broker), make_peer(broker)
    for _ in range(5):
        for peer in (one, two):
            await peer.join("G", "twin", "T")
    assert await list_ids(one) == ["twin", "twin"]
    conflicts = broker.clients.conflicts
    await turn_until(lambda: bool(conflicts))
    assert conflicts == {"G": ["client id twin is on 2 connections: each needs its own instance name"]}
    assert len(warnings_of(caplog, "twin")) == 1
    await two.close()
    await turn_until(lambda: not conflicts)


async def test_problems_of_many_groups_do_not_flood_the_log(
    broker: Broker, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    groups = [ConsumerData(group_name=f"G{number}") for number in range(200)]
    beat = HeartbeatData(client_id="twin", consumer_data_set=groups)
    for peer in (make_peer(broker), make_peer(broker)):
        await peer.expect(RequestCode.HEART_BEAT, None, beat)
    await turn_until(lambda: len(broker.clients.conflicts) == 200)
    assert len(warnings_of(caplog, "twin")) == 64


async def test_members_that_subscribe_differently_are_said_once(
    broker: Broker, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = make_peer(broker), make_peer(broker)
    for _ in range(5):
        await one.join("G", "one", "T", expression="a")
        await two.join("G", "two", "T", expression="b")
    conflicts = broker.clients.conflicts
    await turn_until(lambda: bool(conflicts))
    assert conflicts == {"G": ["members subscribe to topic T differently: 'a', 'b'"]}
    assert len(warnings_of(caplog, "differently")) == 1
    await two.close()
    await turn_until(lambda: not conflicts)


async def test_problems_of_a_group_are_cut(
    broker: Broker, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    """Peers choose expressions, ids and the number of topics; none of it makes a log line or an answer long."""
    topics = [f"T{number}" for number in range(30)]
    for number in range(8):
        member = make_peer(broker)
        wanted = [SubscriptionData(topic=topic, sub_string=f"{number}" + "x" * 5000) for topic in topics]
        await beat(member, *wanted, client_id=f"c{number}")
    await turn_until(lambda: len(broker.clients.conflicts.get("G", ())) == 21)
    first, *_, last = broker.clients.conflicts["G"]
    assert first.startswith("members subscribe to topic T0 differently: '0xxx") and first.endswith(" and 3 more")
    assert last == "there are more"
    assert max(len(record.message) for record in caplog.records) < 2000
    listed = await make_peer(broker).expect(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader("G"))
    assert len(listed.remark or "") < 50_000
    info = await make_peer(broker).expect(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert len(info.command.body) < 20_000


async def test_many_groups_with_problems_hide_no_runtime_info(broker: Broker, make_peer: MakePeer) -> None:
    groups = [ConsumerData(group_name=f"G{number}") for number in range(300)]
    heartbeat = HeartbeatData(client_id="twin", consumer_data_set=groups)
    for peer in (make_peer(broker), make_peer(broker)):
        await peer.expect(RequestCode.HEART_BEAT, None, heartbeat)
    await turn_until(lambda: len(broker.clients.conflicts) == 300)
    info = await make_peer(broker).expect(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert len([key for key in info.body.table if key.startswith(CONFLICTS_PREFIX)]) == 100


async def test_a_member_that_changes_its_mind_is_noticed(
    broker: Broker, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = make_peer(broker), make_peer(broker)
    same = SubscriptionData(topic="T", sub_string="a", sub_version=1)
    await beat(one, same, client_id="one")
    await beat(two, same, client_id="two")
    conflicts = broker.clients.conflicts
    assert conflicts == {}
    await beat(two, SubscriptionData(topic="T", sub_string="b", sub_version=2), client_id="two")
    await turn_until(lambda: list(conflicts) == ["G"])
    await beat(one, SubscriptionData(topic="T", sub_string="b", sub_version=3), client_id="one")
    await turn_until(lambda: conflicts == {})
    assert len(warnings_of(caplog, "differently")) == 1


# -- offsets and expressions -----------------------------------------------------------------------------------------


async def query(peer: Peer, topic: str = "T") -> tuple[int, int | None]:
    answer = await peer.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetHeader(consumer_group="G", topic=topic, queue_id=0)
    )
    return answer.code, int(answer.ext["offset"]) if answer.ext else None


async def test_offsets_are_committed_and_asked_for(broker: Broker, peer: Peer) -> None:
    assert await query(peer, "Nothing") == (ResponseCode.SUCCESS, 0)
    for _ in range(3):
        await peer.send("T")
    assert await query(peer) == (ResponseCode.SUCCESS, 0)
    queue = broker.store.queues.get("T", 0)
    assert queue is not None
    queue.raise_min(stored(broker, "T")[1].position)
    assert await query(peer) == (ResponseCode.QUERY_NOT_FOUND, None)
    for offset in (2, 1, 0):
        header = UpdateConsumerOffsetHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=offset)
        await peer.expect(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        assert await query(peer) == (ResponseCode.SUCCESS, offset)


async def commit(peer: Peer, offset: int, done: str | None = None) -> None:
    header = UpdateConsumerOffsetHeader(
        consumer_group="G", topic="T", queue_id=0, commit_offset=offset, eruca_done=done
    )
    await peer.expect(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def ask_done(peer: Peer) -> str | None:
    header = QueryConsumerOffsetHeader(consumer_group="G", topic="T", queue_id=0)
    return ((await peer.expect(RequestCode.QUERY_CONSUMER_OFFSET, header)).ext or {}).get("erucaDone")


async def test_what_is_done_behind_an_offset_belongs_to_this_offset(broker: Broker, peer: Peer) -> None:
    for _ in range(9):
        await peer.send("T")
    await commit(peer, 2, "1-2,4")
    assert await ask_done(peer) == "1-2,4"
    # Only what exists is done: this queue ends at 9.
    await commit(peer, 3, "2-20,30")
    assert await ask_done(peer) == "2-5"
    # Whatever sets another offset removes it: a commit, also an old client's, a reset, a deleted group.
    await commit(peer, 3)
    assert await ask_done(peer) is None
    await commit(peer, 3, "2")
    broker.offsets.put("G", "T", 0, 1)
    assert await ask_done(peer) is None
    await commit(peer, 3, "2")
    broker.offsets.remove_group("G")
    await commit(peer, 3)
    assert await ask_done(peer) is None


async def test_what_is_not_done_behind_an_offset_is_refused(broker: Broker, peer: Peer) -> None:
    await peer.send("T")
    await commit(peer, 0, "0")
    header = UpdateConsumerOffsetHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=1, eruca_done="4,3")
    assert "is not a range" in str(await peer.refused(RequestCode.UPDATE_CONSUMER_OFFSET, header))
    assert (await query(peer), await ask_done(peer)) == ((ResponseCode.SUCCESS, 0), "0")


async def test_the_room_for_what_is_done_is_bounded(broker: Broker, peer: Peer) -> None:
    await peer.send("T")
    await commit(peer, 0)
    size = broker.offsets._bytes
    broker.live.change(table_bytes_max=size + 3)
    await commit(peer, 0, "1,2")
    assert broker.offsets.get_done("G", "T", 0, 9) == "1,2"
    assert broker.offsets._bytes == size + 3
    # The offset counts all the same; after a crash these messages are delivered again.
    await commit(peer, 1, "1,2,3")
    assert (broker.offsets.get("G", "T", 0), broker.offsets.get_done("G", "T", 0, 9)) == (1, "")
    assert broker.offsets._bytes == size


@pytest.mark.parametrize(
    ("kind", "text", "switched_on", "code"),
    [
        ("TAG", "a || b", False, ResponseCode.SUCCESS),
        ("SQL92", "a = 1", True, ResponseCode.SUCCESS),
        ("SQL92", "a =", True, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("SQL92", "a = 1", False, ResponseCode.SYSTEM_ERROR),
        ("", "*", True, ResponseCode.SUCCESS),
    ],
)
async def test_an_expression_is_checked_before_a_client_starts(
    broker: Broker, peer: Peer, kind: str, text: str, switched_on: bool, code: int
) -> None:
    broker.live.change(property_filter=switched_on)
    data = SubscriptionData(topic="T", sub_string=text, expression_type=kind)
    body = CheckClientBody(client_id="c", group="G", subscription_data=data)
    assert (await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body)).code == code

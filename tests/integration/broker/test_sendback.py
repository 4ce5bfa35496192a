"""Messages sent back by consumers: where they go, what they carry, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._ground.config import FlushMode
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import GroupConfig, TopicConfig
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import SendBackHeader
from eruca._wire.ids import encode_offset_id
from eruca._wire.record import Record
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import look, pull, stored
from tests.integration.broker.peer import Peer

RETRY = "%RETRY%workers"
DEAD = "%DLQ%workers"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TIMER = "rmq_sys_wheel_timer"
BACK = RequestCode.CONSUMER_SEND_MSG_BACK


async def send(peer: Peer) -> Record:
    ext = await peer.send("Orders", body=b"work", TAGS="TagA", KEYS="k1", USER="me")
    return look(peer.broker, int(ext["msgId"][-16:], 16))


def give_back(message: Record, level: int = 0, times_max: int | None = None, group: str = "workers") -> SendBackHeader:
    return SendBackHeader(
        offset=message.position, group=group, delay_level=level, max_reconsume_times=times_max, origin_topic="Orders"
    )


async def test_the_copy_waits_in_the_delay_topic_for_the_retry_topic(peer: Peer) -> None:
    message = await send(peer)
    answer = await peer.expect(BACK, give_back(message))
    assert answer.ext is None
    (copy,) = stored(peer.broker, SCHEDULE, 2)
    assert (copy.topic, copy.queue_id, copy.reconsume_times) == (SCHEDULE, 2, 1)
    assert copy.read_properties() == {
        "TAGS": "TagA",
        "KEYS": "k1",
        "USER": "me",
        "CLUSTER": "DefaultCluster",
        "RETRY_TOPIC": "Orders",
        "ORIGIN_MESSAGE_ID": encode_offset_id(message.store_host, message.position),
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }
    for name in ("body", "flag", "sys_flag", "born_timestamp", "born_host", "store_host"):
        assert getattr(copy, name) == getattr(message, name), name
    assert copy.prepared_position == 0


async def test_each_retry_waits_longer_and_the_origin_stays(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=5)
    peer = make_peer(broker)
    first = message = await send(peer)
    for times, level in enumerate((3, 4, 5)):
        await peer.expect(BACK, give_back(message, times_max=3))
        (copy,) = stored(broker, SCHEDULE, level - 1)
        assert copy.get_property("DELAY") == str(level)
        clock.advance(60_000)
        (message,) = await pull(peer, RETRY, offset=times)
        assert message.reconsume_times == times + 1
        assert message.get_property("RETRY_TOPIC") == "Orders"
        assert message.get_property("ORIGIN_MESSAGE_ID") == encode_offset_id(first.store_host, first.position)
    await peer.expect(BACK, give_back(message, times_max=3))
    (dead,) = stored(broker, DEAD)
    assert dead.reconsume_times == 4
    assert dead.get_property("DELAY") == "0"
    # Properties added by the delay topic stay, as in Java's files.
    assert dead.get_property("REAL_TOPIC") == RETRY
    assert [message.position for message in await pull(peer, DEAD)] == [dead.position]


@pytest.mark.parametrize(("asked", "stored_level"), [(1, 1), (18, 18), (99, 18)])
async def test_the_consumer_may_choose_the_level(peer: Peer, asked: int, stored_level: int) -> None:
    await peer.expect(BACK, give_back(await send(peer), asked))
    (copy,) = stored(peer.broker, SCHEDULE, stored_level - 1)
    assert copy.get_property("DELAY") == str(stored_level)


def delayed(message: Record, delay_ms: int, times_max: int | None = None) -> SendBackHeader:
    header = give_back(message, 2, times_max)
    header.eruca_delay_ms = delay_ms
    return header


async def test_the_consumer_may_choose_any_delay(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    peer = make_peer(await make_broker(clock=clock, schedule_interval_ms=5))
    message = await send(peer)
    await peer.expect(BACK, delayed(message, 2500))
    (copy,) = stored(peer.broker, TIMER)
    assert stored(peer.broker, SCHEDULE, 1) == []
    assert copy.get_property("TIMER_OUT_MS") == str(clock.now_ms() + 2500)
    assert (copy.get_property("DELAY"), copy.get_property("REAL_TOPIC"), copy.reconsume_times) == ("0", RETRY, 1)
    clock.advance(2600)
    (again,) = await pull(peer, RETRY)
    assert (again.body, again.reconsume_times, again.get_property("RETRY_TOPIC")) == (b"work", 1, "Orders")
    # Once more, and then as a dead letter: what the timer has added to the message does not get in the way.
    await peer.expect(BACK, delayed(again, 100))
    clock.advance(1200)
    (third,) = await pull(peer, RETRY, offset=1)
    assert third.reconsume_times == 2
    await peer.expect(BACK, delayed(third, 100, times_max=2))
    assert [dead.body for dead in stored(peer.broker, DEAD)] == [b"work"]


@pytest.mark.parametrize(
    ("options", "delay_ms"), [({"timer_enabled": False}, 2500), ({"delay_levels": "0s 0s 0s"}, 2500), ({}, 0), ({}, -1)]
)
async def test_where_no_timer_runs_the_level_counts(
    make_broker: MakeBroker, make_peer: MakePeer, options: dict[str, Any], delay_ms: int
) -> None:
    peer = make_peer(await make_broker(**options))
    await peer.expect(BACK, delayed(await send(peer), delay_ms))
    assert [copy.get_property("DELAY") for copy in stored(peer.broker, SCHEDULE, 1)] == ["2"]


async def test_a_delay_is_at_most_what_the_timer_keeps(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    peer = make_peer(await make_broker(clock=clock, timer_delay_seconds_max=60))
    await peer.expect(BACK, delayed(await send(peer), 2**63 - 1))
    (copy,) = stored(peer.broker, TIMER)
    assert copy.get_property("TIMER_OUT_MS") == str(clock.now_ms() + 60_000)


async def test_a_retry_cancels_no_other(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    """With the name of another message: only a producer cancels."""
    clock = VirtualClock(1_700_000_000_000)
    broker = await make_broker(clock=clock, schedule_interval_ms=3_600_000)
    peer = make_peer(broker)
    await peer.expect(BACK, delayed(await send(peer), 60_000))
    ext = await peer.send("Orders", body=b"evil", DELAY="1", TIMER_DEL_UNIQKEY="its id")
    clock.advance(1000)
    position = int(ext["msgId"][-16:], 16)
    await peer.expect(BACK, delayed(look(broker, position), 60_000))
    assert [copy.get_property("TIMER_DEL_UNIQKEY") for copy in stored(broker, TIMER)] == [None, None]


async def test_below_zero_goes_to_the_dead_letters_at_once(peer: Peer) -> None:
    await peer.expect(BACK, give_back(await send(peer), -1))
    assert [message.body for message in stored(peer.broker, DEAD)] == [b"work"]
    topic = peer.broker.topics.get(DEAD)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


async def test_only_new_clients_say_how_often_they_try(peer: Peer) -> None:
    message = await send(peer)
    await peer.expect(BACK, give_back(message, times_max=0), version=120)
    assert stored(peer.broker, DEAD) == []
    await peer.expect(BACK, give_back(message, times_max=0), version=121)
    assert len(stored(peer.broker, DEAD)) == 1


async def test_the_group_s_own_limit_counts_when_the_client_has_none(broker: Broker, peer: Peer) -> None:
    broker.groups.put(GroupConfig(group_name="workers", retry_max_times=0))
    await peer.expect(BACK, give_back(await send(peer)))
    assert len(stored(broker, DEAD)) == 1


async def test_a_group_without_retry_queues_drops_it(broker: Broker, peer: Peer) -> None:
    broker.groups.put(GroupConfig(group_name="workers", retry_queue_nums=0))
    await peer.expect(BACK, give_back(await send(peer), -1))
    assert stored(broker, DEAD) == []
    assert broker.topics.get(RETRY) is None


async def test_retries_spread_over_the_queues_of_the_group(broker: Broker, peer: Peer) -> None:
    broker.groups.put(GroupConfig(group_name="workers", retry_queue_nums=3))
    message = await send(peer)
    for _ in range(60):
        await peer.expect(BACK, give_back(message))
    queues = {copy.get_property("REAL_QID") for copy in stored(broker, SCHEDULE, 2)}
    assert queues == {"0", "1", "2"}
    topic = broker.topics.get(RETRY)
    assert topic is not None
    assert topic.write_queue_nums == 3


async def test_unit_mode_marks_the_topic(broker: Broker, peer: Peer) -> None:
    header = give_back(await send(peer))
    header.unit_mode = True
    await peer.expect(BACK, header)
    topic = broker.topics.get(RETRY)
    assert topic is not None
    assert topic.topic_sys_flag == 2


async def test_refusals(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(auto_create_group=False)
    peer = make_peer(broker)
    message = await send(peer)
    code, remark = await peer.refused(BACK, give_back(message))
    assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "subscription group not exist, workers" in remark
    broker.groups.put(GroupConfig(group_name="workers"))
    for wrong in (message.position + 1, -1, 2**62):
        header = give_back(message)
        header.offset = wrong
        assert await peer.refused(BACK, header) == (
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed, {wrong}",
        )
    broker.topics.put(TopicConfig(topic_name=RETRY, perm=4))
    code, remark = await peer.refused(BACK, give_back(message))
    assert (code, remark) == (ResponseCode.NO_PERMISSION, f"the topic[{RETRY}] sending message is forbidden")
    broker.live.change(permission=4)
    code, remark = await peer.refused(BACK, give_back(message))
    assert code == ResponseCode.NO_PERMISSION
    assert "the broker[127.0.0.1] sending message is forbidden" in remark
    assert stored(broker, SCHEDULE, 2) == []


async def test_a_full_store_says_so(broker: Broker, peer: Peer) -> None:
    message = await send(peer)
    broker.store.refuse("the disk is full")
    code, remark = await peer.refused(BACK, give_back(message))
    assert code == ResponseCode.SYSTEM_ERROR
    assert "full" in remark


async def test_with_sync_flush_the_answer_waits_for_the_disk(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(flush_mode=FlushMode.SYNC)
    peer = make_peer(broker)
    await peer.expect(BACK, give_back(await send(peer)))
    (copy,) = stored(broker, SCHEDULE, 2)
    assert broker.store.flusher.flushed >= copy.position + copy.size


async def test_what_was_given_back_is_counted(broker: Broker, peer: Peer) -> None:
    message = await send(peer)
    await peer.expect(BACK, give_back(message))
    await peer.expect(BACK, give_back(message, -1))
    assert broker.stats.find("SNDBCK_PUT_NUMS", "Orders@workers") is not None
    assert broker.stats.find("TOPIC_PUT_NUMS", SCHEDULE) is not None


async def test_names_of_topics_that_senders_made_up_are_not_counted(broker: Broker, peer: Peer) -> None:
    await peer.expect(BACK, give_back(await send(peer)))  # makes the topic of the retries
    for number in range(3):
        ext = await peer.send(RETRY, body=b"work", RETRY_TOPIC=f"{number}" + "t" * 30_000)
        await peer.expect(BACK, give_back(look(broker, int(ext["msgId"][-16:], 16))))
    named = {key: series.count for key, series in broker.stats.list_named("SNDBCK_PUT_NUMS")}
    assert named == {"Orders@workers": 1, "%RETRY%workers@workers": 3}


async def test_a_damaged_message_is_not_given_a_clean_bill(broker: Broker, peer: Peer) -> None:
    message = await send(peer)
    segment = broker.store.log.chain.find(message.position)
    assert segment is not None
    segment.buffer[message.position - segment.start + 88] ^= 1
    code, _ = await peer.refused(BACK, give_back(message))
    assert code == ResponseCode.SYSTEM_ERROR

"""Replies to request messages: delivered to the requester, stored, and refused."""

from __future__ import annotations

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._ground.config import FlushMode
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import PushReplyHeader, SendMessageHeader, SendMessageV2Header
from eruca._wire.ids import encode_offset_id
from eruca._wire.properties import encode_properties, parse_properties
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import Inbox, stored
from tests.integration.broker.peer import Peer

PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
REPLY = RequestCode.SEND_REPLY_MESSAGE_V2
TOPIC = "DefaultCluster_REPLY_TOPIC"


def make_reply(client_id: str | None, topic: str = TOPIC) -> SendMessageV2Header:
    properties = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "TTL": "3000"}
    if client_id is not None:
        properties["REPLY_TO_CLIENT"] = client_id
    return SendMessageV2Header(
        producer_group="repliers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=1,
        born_timestamp=123,
        flag=5,
        properties=encode_properties(properties).decode(),
        reconsume_times=0,
        unit_mode=False,
    )


async def join(broker: Broker, make_peer: MakePeer, inbox: Inbox) -> Peer:
    """A requester, connected as a producer."""
    peer = make_peer(broker, handlers={PUSH: inbox.handle})
    await peer.produce("askers", "asker@1")
    return peer


async def test_the_requester_gets_the_reply(broker: Broker, peer: Peer, make_peer: MakePeer) -> None:
    inbox = Inbox()
    await join(broker, make_peer, inbox)
    answer = await peer.expect(REPLY, make_reply("asker@1"), b"yes")
    command = await inbox.get()
    assert command.body == b"yes"
    pushed = command.decode_header(PushReplyHeader)
    assert (pushed.producer_group, pushed.topic, pushed.queue_id) == ("repliers", TOPIC, 0)
    assert (pushed.sys_flag, pushed.flag, pushed.born_timestamp) == (1, 5, 123)
    assert pushed.store_host == broker.standing.address
    assert (pushed.born_host or "").startswith("127.0.0.1:")
    properties = parse_properties(pushed.properties or "")
    assert properties.pop("PUSH_REPLY_TIME") == str(pushed.store_timestamp)
    assert properties == parse_properties(make_reply("asker@1").properties or "")
    (kept,) = stored(broker, TOPIC)
    assert (kept.body, kept.get_property("CORRELATION_ID"), kept.get_property("PUSH_REPLY_TIME")) == (
        b"yes",
        "c-1",
        None,
    )
    assert answer.ext == {
        "msgId": encode_offset_id(kept.store_host, kept.position),
        "queueId": "0",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


async def test_long_names_work_as_well(broker: Broker, peer: Peer, make_peer: MakePeer) -> None:
    inbox = Inbox()
    await join(broker, make_peer, inbox)
    short = make_reply("asker@1")
    header = SendMessageHeader(
        producer_group=short.producer_group,
        topic=short.topic,
        default_topic=short.default_topic,
        default_topic_queue_nums=4,
        queue_id=-1,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=short.properties,
    )
    await peer.expect(RequestCode.SEND_REPLY_MESSAGE, header, b"yes")
    assert (await inbox.get()).body == b"yes"


async def test_replies_that_are_not_kept_have_no_id(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(store_replies=False)
    inbox = Inbox()
    await join(broker, make_peer, inbox)
    answer = await make_peer(broker).expect(REPLY, make_reply("asker@1"), b"yes")
    assert answer.ext is not None
    assert (answer.ext["msgId"], answer.ext["queueOffset"]) == ("0", "0")
    assert stored(broker, TOPIC) == []
    assert (await inbox.get()).body == b"yes"


@pytest.mark.parametrize("synced", [True, False])
async def test_the_answer_to_a_reply_waits_for_the_disk(
    make_broker: MakeBroker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch, synced: bool
) -> None:
    broker = await make_broker(flush_mode=FlushMode.SYNC, sync_flush_timeout_ms=60_000 if synced else 1)
    store = broker.store
    if not synced:
        monkeypatch.setattr(broker.background.group_commit, "want", lambda _: None)
    inbox = Inbox()
    await join(broker, make_peer, inbox)
    answer = await make_peer(broker).ask(REPLY, make_reply("asker@1"), b"yes")
    assert answer.code == (ResponseCode.SUCCESS if synced else ResponseCode.FLUSH_DISK_TIMEOUT)
    assert (store.flusher.flushed == store.log.tail) is synced
    assert answer.ext is not None
    assert "msgId" in answer.ext  # it was delivered, and is stored
    assert (await inbox.get()).body == b"yes"


async def test_the_answer_to_a_reply_waits_for_slaves(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(role=BrokerRole.SYNC_MASTER, in_sync_replicas=2)
    inbox = Inbox()
    await join(broker, make_peer, inbox)
    answer = await make_peer(broker).ask(REPLY, make_reply("asker@1"), b"yes")
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("client_id", "remark"),
    [(None, "reply message properties[REPLY_TO_CLIENT] is null"), ("nobody", "channel of <nobody> not found.")],
)
async def test_a_reply_to_nobody_fails_but_is_kept(
    broker: Broker, peer: Peer, client_id: str | None, remark: str
) -> None:
    answer = await peer.ask(REPLY, make_reply(client_id), b"yes")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")
    (kept,) = stored(broker, TOPIC)
    assert answer.ext is not None
    assert answer.ext["msgId"] == encode_offset_id(kept.store_host, kept.position)
    assert answer.ext["TRACE_ON"] == "true"


async def test_a_requester_that_refuses_or_left(broker: Broker, peer: Peer, make_peer: MakePeer) -> None:
    inbox = Inbox(ResponseCode.SYSTEM_ERROR)
    requester = await join(broker, make_peer, inbox)
    code, remark = await peer.refused(REPLY, make_reply("asker@1"), b"yes")
    assert code == ResponseCode.SYSTEM_ERROR
    assert "push reply message to asker@1 fail" in remark
    await inbox.get()
    await requester.close()
    code, _ = await peer.refused(REPLY, make_reply("asker@1"), b"yes")
    assert code == ResponseCode.SYSTEM_ERROR


async def test_a_topic_that_may_not_be_sent_to(broker: Broker, peer: Peer) -> None:
    answer = await peer.ask(REPLY, make_reply("asker@1", "SCHEDULE_TOPIC_XXXX"), b"yes")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


async def test_a_full_store_does_not_keep_the_reply_from_its_requester(
    broker: Broker, peer: Peer, make_peer: MakePeer
) -> None:
    inbox = Inbox()
    await join(broker, make_peer, inbox)
    broker.store.refuse("the disk is full")
    answer = await peer.expect(REPLY, make_reply("asker@1"), b"yes")
    assert answer.ext is not None
    assert answer.ext["msgId"] == "0"
    assert (await inbox.get()).body == b"yes"

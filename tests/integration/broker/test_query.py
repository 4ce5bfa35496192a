"""Finding messages by key, unique id and position, and the entries of a queue."""

from __future__ import annotations

import pytest

from eruca._broker.app import Broker
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import encode_command, make_request
from eruca._wire.headers import QueryConsumeQueueHeader, QueryMessageHeader, ViewMessageHeader
from eruca._wire.ids import decode_offset_id
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Answer, Peer
from tests.unit.net.rawpeer import turn_until
from tests.unit.net.test_link import make_link

FOREVER = 2**63 - 1


async def find(peer: Peer, key: str, topic: str = "T", count: int = 10, **more: int | bool) -> Answer:
    """Ask for messages by key."""
    begin, end = int(more.get("begin", 0)), int(more.get("end", FOREVER))
    unique = bool(more.get("unique", False))
    header = QueryMessageHeader(
        topic=topic, key=key, max_num=count, begin_timestamp=begin, end_timestamp=end, unique_key_query=unique
    )
    return await peer.ask(RequestCode.QUERY_MESSAGE, header)


def bodies(answer: Answer) -> list[bytes]:
    return [message.body for message in answer.body or []]


async def test_messages_are_found_by_key_in_the_order_of_the_log(broker: Broker, peer: Peer) -> None:
    await peer.send("T", 0, b"one", KEYS="k1 k2", UNIQ_KEY="U1")
    await peer.send("T", 1, b"two", KEYS="k2", UNIQ_KEY="U2")
    await peer.send("Other", 0, b"three", KEYS="k2", UNIQ_KEY="U3")
    answer = await find(peer, "k2")
    assert answer.code == ResponseCode.SUCCESS
    assert bodies(answer) == [b"one", b"two"]
    assert answer.ext == {
        "indexLastUpdateTimestamp": str(broker.store.flusher.last_store_time),
        "indexLastUpdatePhyoffset": str(broker.store.index and broker.store.index.end_position),
    }
    assert bodies(await find(peer, "k1")) == [b"one"]
    assert bodies(await find(peer, "k2", topic="Other")) == [b"three"]


async def test_a_message_is_found_by_its_unique_id(broker: Broker, peer: Peer) -> None:
    await peer.send("T", 0, b"one", UNIQ_KEY="U1")
    assert bodies(await find(peer, "U1", unique=True, count=0)) == [b"one"]  # the count is the broker's own
    assert bodies(await find(peer, "U1")) == [b"one"]


async def test_much_that_is_found_comes_in_pieces_from_the_log(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    """Copied in one go it would block the loop, and unread answers would fill the memory."""
    broker = await make_broker(commitlog_segment_bytes=8 << 20)
    peer, sent = make_peer(broker), [bytes([number]) * 700_000 for number in range(5)]
    for body in sent:
        await peer.send("T", 0, body, KEYS="k")
    assert bodies(await find(peer, "k")) == sent
    assert bodies(await find(peer, "k", count=1)) == sent[-1:]
    link, transport, _ = make_link(broker.ports.handlers)
    header = QueryMessageHeader("T", "k", 10, 0, FOREVER)
    link.data_received(encode_command(make_request(RequestCode.QUERY_MESSAGE, header)))
    await turn_until(lambda: sum(map(len, transport.writes)) > sum(map(len, sent)))
    assert max(map(len, transport.writes)) <= 256 * 1024


@pytest.mark.parametrize("key", ["nobody", ""])
async def test_nothing_found_says_so_with_zeros(broker: Broker, peer: Peer, key: str) -> None:
    await peer.send("T", 0, b"one", KEYS="k1")
    answer = await find(peer, key)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "can not find message, maybe time range not correct"
    assert answer.ext == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
    assert answer.command.body == b""


async def test_count_and_time_bound_the_answer(broker: Broker, peer: Peer) -> None:
    for _ in range(70):
        await peer.send("T", 0, b"x", KEYS="k")
    assert len(bodies(await find(peer, "k", count=3))) == 3
    assert len(bodies(await find(peer, "k", count=1000))) == 64
    assert (await find(peer, "k", count=-1)).code == ResponseCode.QUERY_NOT_FOUND
    assert (await find(peer, "k", begin=0, end=1)).code == ResponseCode.QUERY_NOT_FOUND


async def test_an_answer_fits_a_frame(broker: Broker, peer: Peer) -> None:
    large = bytes(900_000)
    for _ in range(20):
        await peer.send("T", 0, large, KEYS="k")
    found = bodies(await find(peer, "k", count=64))
    assert found and all(body == large for body in found)
    assert len(found) == 18  # 16 MiB less the header


async def test_a_message_is_viewed_by_its_position(broker: Broker, peer: Peer) -> None:
    sent = await peer.send("T", 0, b"one", KEYS="k1")
    position = decode_offset_id(sent["msgId"]).position
    answer = await peer.expect(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset=position))
    assert answer.body.body == b"one"
    assert answer.body.topic == "T"
    assert answer.ext is None


@pytest.mark.parametrize("position", [1, -1, 10_000, 2**62])
async def test_no_record_starts_there(broker: Broker, peer: Peer, position: int) -> None:
    await peer.send("T", 0, b"one")
    code, remark = await peer.refused(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset=position))
    assert (code, remark) == (ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {position}")


def entries(index: int = 0, count: int = 10, group: str | None = None, topic: str = "T") -> QueryConsumeQueueHeader:
    return QueryConsumeQueueHeader(topic=topic, queue_id=0, index=index, count=count, consumer_group=group)


async def test_entries_of_a_queue_are_listed(broker: Broker, peer: Peer) -> None:
    for tag in ("TagA", "TagB", "TagA"):
        await peer.send("T", 0, b"x", TAGS=tag)
    answer = await peer.expect(RequestCode.QUERY_CONSUME_QUEUE, entries(1, 5))
    assert (answer.body.min_queue_index, answer.body.max_queue_index) == (0, 3)
    assert [entry.tags_code for entry in answer.body.queue_data] == [2598920, 2598919]
    assert answer.body.queue_data[0].position == answer.body.queue_data[0].size
    assert (answer.body.filter_data, answer.body.subscription_data) == (None, None)
    assert answer.remark == "not set any response code"
    none = await peer.expect(RequestCode.QUERY_CONSUME_QUEUE, entries(0, -3))
    assert none.body.queue_data == []


async def test_entries_come_with_what_a_group_wants(broker: Broker, peer: Peer) -> None:
    await peer.send("T", 0, b"x", TAGS="TagA")
    answer = await peer.expect(RequestCode.QUERY_CONSUME_QUEUE, entries(group="G"))
    assert (answer.body.filter_data, answer.body.subscription_data) == ("G@T is not online!", None)
    await peer.join("G", "me", "T", expression="TagA || TagB")
    answer = await peer.expect(RequestCode.QUERY_CONSUME_QUEUE, entries(group="G"))
    assert answer.body.filter_data == "null"
    assert answer.body.subscription_data.sub_string == "TagA || TagB"


async def test_entries_that_are_not_there(broker: Broker, peer: Peer) -> None:
    await peer.send("T", 0, b"x")
    answer = await peer.expect(RequestCode.QUERY_CONSUME_QUEUE, entries(1))
    assert (answer.body, answer.remark) == (None, "Index 1 of 0@T is not exist!")
    code, remark = await peer.refused(RequestCode.QUERY_CONSUME_QUEUE, entries(topic="Nowhere"))
    assert (code, remark) == (ResponseCode.SYSTEM_ERROR, "0@Nowhere is not exist!")

"""Batches at their limits: what is stored can be answered, and what cannot be answered is refused in advance."""

from __future__ import annotations

import asyncio
import struct
import zlib
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._ground.limits import BATCH_MESSAGES_MAX, FRAME_BYTES_MAX
from eruca._store.messagestore import MessageStore
from eruca._wire.batch import BatchItem, encode_batch
from eruca._wire.codes import RequestCode, ResponseCode, SerializeType
from eruca._wire.command import decode_binary_header, decode_json_header
from eruca._wire.frame import Command, encode_command, make_request
from eruca._wire.headers import SendMessageHeader
from eruca._wire.properties import parse_properties
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import stored
from tests.integration.broker.peer import Peer
from tests.integration.broker.requests import send_header
from tests.patience import PATIENCE_S
from tests.unit.net.rawpeer import turn_until

SECONDS_MAX = PATIENCE_S
EMPTY = encode_batch([BatchItem(0, b"", b"")])
ILLEGAL = ResponseCode.MESSAGE_ILLEGAL


async def make_large(make_broker: MakeBroker, **options: Any) -> Broker:
    """A broker whose files have room for a large batch."""
    room = {"commitlog_segment_bytes": 1 << 27, "consumequeue_segment_bytes": 20 << 20, "index_entries": 1 << 20}
    return await make_broker(**room | options)


async def ask_raw(broker: Broker, command: Command) -> tuple[Command, int]:
    """Send a request as any client might, whatever our own limits of reading are; return the response and its bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.standing.port)
    try:
        async with asyncio.timeout(SECONDS_MAX):
            writer.write(encode_command(command))
            total, word = struct.unpack(">iI", await reader.readexactly(8))
            data = await reader.readexactly(total - 4)
    finally:
        writer.close()
        await writer.wait_closed()
    decode = decode_binary_header if word >> 24 else decode_json_header
    return decode(data[: word & 0xFFFFFF]), total + 4


def count_stored(broker: Broker, topic: str = "T") -> int:
    queue = broker.store.queues.get(topic, 0)
    return 0 if queue is None else queue.max_offset


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("encoded", [True, False])
async def test_the_answer_to_40000_messages_names_them_all(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, binary: bool, encoded: bool
) -> None:
    if not encoded:
        monkeypatch.setattr(MessageStore, "_measure_encoded", lambda *_: None)
    broker = await make_large(make_broker)
    command = make_request(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), EMPTY * 40_000)
    if binary:
        command.serialization = SerializeType.ROCKETMQ
    answer, _ = await ask_raw(broker, command)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert len(set(answer.ext_dict()["msgId"].split(","))) == 40_000
    assert count_stored(broker) == 40_000


async def test_the_answer_to_the_largest_batch_of_java_s_default_fits_a_frame(make_broker: MakeBroker) -> None:
    broker = await make_large(make_broker)
    limit = broker.store.options.message_bytes_max
    count = limit // len(EMPTY)
    answer, size = await ask_raw(broker, make_request(RequestCode.SEND_BATCH_MESSAGE, send_header(), EMPTY * count))
    assert answer.code == ResponseCode.SUCCESS
    assert count_stored(broker) == count < BATCH_MESSAGES_MAX
    assert size < FRAME_BYTES_MAX


@pytest.mark.parametrize("encoded", [True, False])
async def test_a_batch_whose_answer_would_not_fit_a_frame_is_refused_whole(
    make_broker: MakeBroker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch, encoded: bool
) -> None:
    if not encoded:
        monkeypatch.setattr(MessageStore, "_measure_encoded", lambda *_: None)
    broker = await make_large(make_broker, message_bytes_max=8 << 20)
    body = EMPTY * (BATCH_MESSAGES_MAX + 1)
    answer = await make_peer(broker).ask(RequestCode.SEND_BATCH_MESSAGE, send_header(), body)
    assert (answer.code, f"at most {BATCH_MESSAGES_MAX}" in (answer.remark or "")) == (ILLEGAL, True)
    assert count_stored(broker) == 0


async def test_the_whole_batch_has_a_bound_not_only_its_bodies(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(message_bytes_max=4096)
    peer = make_peer(broker)
    fits = EMPTY * (4096 // len(EMPTY))
    answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(), fits + EMPTY)
    assert (answer.code, count_stored(broker)) == (ILLEGAL, 0)
    await peer.expect(RequestCode.SEND_BATCH_MESSAGE, send_header(), fits)
    assert count_stored(broker) == 4096 // len(EMPTY)


@pytest.mark.parametrize("encoded", [True, False])
async def test_properties_that_all_messages_get_do_not_multiply_without_end(
    make_broker: MakeBroker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch, encoded: bool
) -> None:
    """A request of 100 kB would otherwise become 130 MB of the log."""
    if not encoded:
        monkeypatch.setattr(MessageStore, "_measure_encoded", lambda *_: None)
    broker = await make_large(make_broker)
    shared = "a\x01" + "b" * 32_000
    answer = await make_peer(broker).ask(RequestCode.SEND_BATCH_MESSAGE, send_header(properties=shared), EMPTY * 4_000)
    assert (answer.code, count_stored(broker)) == (ILLEGAL, 0)
    assert "bytes" in (answer.remark or "")


# -- batches that are stored in pieces ---------------------------------------------------------------------------------


async def test_others_are_served_while_a_large_batch_is_stored(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_large(make_broker)
    body = encode_batch([BatchItem(0, b"%d" % number, b"") for number in range(40_000)])
    peer, other = make_peer(broker), make_peer(broker)
    await other.expect(RequestCode.SEND_MESSAGE_V2, send_header("Other"), b"x")
    large = asyncio.create_task(ask_raw(broker, make_request(RequestCode.SEND_BATCH_MESSAGE, send_header(), body)))
    await turn_until(lambda: count_stored(broker) > 0)
    between = 0
    while not large.done():
        await other.expect(RequestCode.SEND_MESSAGE_V2, send_header("Other"), b"x")
        between += count_stored(broker) < 40_000
    answer, _ = await large
    assert answer.code == ResponseCode.SUCCESS and answer.ext_dict()["queueOffset"] == "0"
    assert between >= 1, "the batch was stored in one go"
    assert [message.body for message in stored(broker, "T")] == [b"%d" % number for number in range(40_000)]
    await peer.expect(RequestCode.SEND_MESSAGE_V2, send_header(), b"last")
    assert count_stored(broker) == 40_001


async def test_requests_behind_a_large_batch_wait_for_it(make_broker: MakeBroker) -> None:
    broker = await make_large(make_broker)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.standing.port)
    large = make_request(RequestCode.SEND_BATCH_MESSAGE, send_header(), EMPTY * 40_000, oneway=True)
    behind = make_request(RequestCode.SEND_MESSAGE_V2, send_header(), b"behind", opaque=7)
    writer.write(encode_command(large) + encode_command(behind))
    async with asyncio.timeout(SECONDS_MAX):
        (total,) = struct.unpack(">i", await reader.readexactly(4))
        data = await reader.readexactly(total)
    answer = decode_json_header(data[4 : 4 + int.from_bytes(data[1:4])])
    assert (answer.opaque, answer.ext_dict()["queueOffset"]) == (7, "40000")
    writer.close()
    await writer.wait_closed()


async def test_a_broker_that_may_not_write_any_more_stores_no_more_pieces(make_broker: MakeBroker) -> None:
    broker = await make_large(make_broker)
    sent = asyncio.create_task(
        ask_raw(broker, make_request(RequestCode.SEND_BATCH_MESSAGE, send_header(), EMPTY * 40_000))
    )
    await turn_until(lambda: count_stored(broker) > 0)
    broker.store.fence("another broker is master")
    answer, _ = await sent
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert 0 < count_stored(broker) < 40_000


# -- batches that their sender compressed ------------------------------------------------------------------------------


def cpp_header(sys_flag: int = 1) -> SendMessageHeader:
    """The header of a batch as the C++ client writes it: for code 10, with `batch` as 1, and flagged as compressed."""
    return SendMessageHeader(
        producer_group="P",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp=1,
        flag=0,
        properties="WAIT\x01true",
        reconsume_times=16,
        batch=True,
    )


ITEMS = [
    BatchItem(number, b"message %d" % number * 40, b"TAGS\x01t\x02KEYS\x01k%d\x02" % number) for number in range(20)
]


async def test_a_batch_that_is_compressed_as_a_whole_is_unpacked(broker: Broker, peer: Peer) -> None:
    body = zlib.compress(encode_batch(ITEMS), 5)
    assert int.from_bytes(body[:4]) > FRAME_BYTES_MAX
    answer = await peer.expect(RequestCode.SEND_MESSAGE, cpp_header(), body)
    assert answer.ext is not None
    assert len(answer.ext["msgId"].split(",")) == len(ITEMS)
    messages = stored(broker, "T")
    assert [(each.body, each.flag, each.sys_flag) for each in messages] == [(each.body, each.flag, 0) for each in ITEMS]
    assert parse_properties(messages[3].properties)["KEYS"] == "k3"


async def test_the_number_one_in_text_is_a_batch_too(broker: Broker) -> None:
    """As sent by the C++ client: its JSON has "batch":"1"."""
    command = make_request(RequestCode.SEND_MESSAGE, cpp_header(), zlib.compress(encode_batch(ITEMS), 5))
    frame = encode_command(command)
    text = encode_command(Command(command.code, ext={**command.ext_dict(), "batch": "1"}, body=command.body))
    assert b'"batch":"1"' in text
    assert len(text) != len(frame)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.standing.port)
    writer.write(text)
    async with asyncio.timeout(SECONDS_MAX):
        total, word = struct.unpack(">iI", await reader.readexactly(8))
        answer = decode_json_header((await reader.readexactly(total - 4))[: word & 0xFFFFFF])
    writer.close()
    await writer.wait_closed()
    assert answer.code == ResponseCode.SUCCESS
    assert [message.body for message in stored(broker, "T")] == [item.body for item in ITEMS]


async def test_a_batch_of_compressed_bodies_stays_as_it_is(broker: Broker, peer: Peer) -> None:
    """As our Spark sink sends it: the flag is about each body."""
    bodies = [zlib.compress(item.body) for item in ITEMS]
    body = encode_batch([BatchItem(0, each, b"") for each in bodies])
    await peer.expect(RequestCode.SEND_BATCH_MESSAGE, send_header(sys_flag=0x301), body)
    assert [(each.body, each.sys_flag) for each in stored(broker, "T")] == [(each, 0x301) for each in bodies]


@pytest.mark.parametrize(
    ("body", "sys_flag"),
    [
        (zlib.compress(bytes(5 << 20)), 1),  # unpacks to more than a batch may have
        (zlib.compress(encode_batch(ITEMS))[:-4], 1),
        (b"\x78\x9c" + b"\xff" * 50, 1),
        (zlib.compress(encode_batch(ITEMS)), 0x101),  # does not match the flag
        (zlib.compress(b"x"), 1),  # not a batch
    ],
)
async def test_a_batch_that_cannot_be_unpacked_is_refused(
    broker: Broker, peer: Peer, body: bytes, sys_flag: int
) -> None:
    answer = await peer.ask(RequestCode.SEND_MESSAGE, cpp_header(sys_flag), body)
    assert answer.code in (ILLEGAL, ResponseCode.SYSTEM_ERROR)
    assert count_stored(broker) == 0

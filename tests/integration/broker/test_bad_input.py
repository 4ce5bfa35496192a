"""Bad input to a broker in this process: Java's code or a closed connection, and healthy clients are not affected.

`test_hostile_peers.py` has the tests that need a separate process: crowds, stalls, memory and mutated recordings.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._ground.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from eruca._wire.bodies import ConsumerData, HeartbeatData, ProducerData
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.ext import Header
from eruca._wire.frame import Command, encode_command, make_request
from eruca._wire.headers import (
    ConsumerGroupHeader,
    EndTransactionHeader,
    QueryConsumerOffsetHeader,
    QueryMessageHeader,
    SearchOffsetHeader,
    SendBackHeader,
    UpdateConsumerOffsetHeader,
)
from tests.integration.broker.conftest import MakePeer
from tests.integration.broker.delivery import pull
from tests.integration.broker.peer import Peer
from tests.integration.broker.requests import pull_header, send_header, try_send
from tests.unit.net.rawpeer import RawPeer, open_peer, turn_until

# Java refuses these; we read them as integers in another notation, or as missing where none is needed.
WHOLE = ["5.0", "1e9", "null"]
NUMBERS = [
    *("-1", str(-(2**31)), str(2**31 - 1), str(2**31), str(-(2**63)), str(2**63 - 1), str(2**63), "9" * 5000),
    *("", " ", " 5", "+5", *WHOLE, "0x10", "NaN", "१", "5\0", "-"),
]
NAMES = ["", " ", "..", "../x", "../../../tmp/x", "/tmp/x", "a\\b", "x" * 300, "\0", "a\r\nb", "\x1b[31m", "\U0001d54f"]


@pytest.fixture(autouse=True)
async def stay_well(
    broker: Broker, make_peer: MakePeer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[None]:
    """After every test: a client is served, no internal error is in the log, no file is outside the store."""
    yield
    healthy = make_peer(broker)
    await healthy.send("Healthy", body=b"well")
    assert (await pull(healthy, "Healthy"))[-1].body == b"well"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert await asyncio.to_thread(os.listdir, tmp_path) == ["store"]


@pytest.fixture
async def raw(broker: Broker) -> AsyncIterator[RawPeer]:
    async with open_peer(broker.standing.port) as peer:
        yield peer


def frame(header: bytes, body: bytes = b"", *, kind: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


# -- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", FRAME_BYTES_MAX - 3),
        struct.pack(">I", 0x7FFFFFFF),
        struct.pack(">I", 0xFFFFFFFF),
        struct.pack(">I", 0),
        struct.pack(">I", 3),
        struct.pack(">II", 100, 97),
        struct.pack(">II", 100, 0x02000010),
        struct.pack(">II", FRAME_BYTES_MAX - 4, HEADER_BYTES_MAX + 1),
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        frame(b"not json"),
        frame(b""),
        frame(b"[]"),
        frame(b"null"),
        frame(b'{"code":'),
        frame(b'{"code":"x"}'),
        frame(b'{"code":99999999999999999999}'),
        frame(b'{"code":10,"extFields":' + b"[" * 100_000),
        frame(b'{"code":10,"opaque":1e400}'),
        frame(b"\xff\xfe{}"),
        frame(b"", kind=1),
        frame(b"\0" * 20, kind=1),
        frame(b"\xff" * 64, kind=1),
        frame(b"\0\x0a\0\0\x01\0\0\0\x01\0\0\0\0\x7f\xff\xff\xff\0\0\0\0", kind=1),
    ],
)
async def test_bytes_that_are_no_frame_close_the_connection(
    raw: RawPeer, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    raw.write_bytes(data)
    await raw.wait_for_end()
    said = [record.getMessage() for record in caplog.records if "bad frame" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("127.0.0.1:")


async def test_a_thousand_bad_frames_make_one_line(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(1000):
        async with open_peer(broker.standing.port) as peer:
            peer.write_bytes(b"\xff" * 8)
            await peer.wait_for_end()
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


async def test_requests_before_a_bad_frame_are_answered(raw: RawPeer) -> None:
    good = make_request(RequestCode.SEND_MESSAGE_V2, send_header(), b"x", opaque=5)
    await raw.ask(good)  # the first one makes the topic, and its answer waits for the disk
    raw.write_bytes(encode_command(good) + b"\xff" * 8)
    assert (await raw.read()).opaque == 5
    assert await raw.wait_for_end() == b""


@pytest.mark.parametrize("code", [0, 1, 9, 55, 999, 32767, -1, 2**31 - 1, -(2**31)])
async def test_unknown_codes_are_refused_as_java_does(raw: RawPeer, code: int) -> None:
    answer = await raw.ask(Command(code=code, opaque=4))
    assert (answer.code, answer.remark) == (
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        f" request type {code} not supported",
    )


async def test_answers_nobody_waits_for_are_passed_over(raw: RawPeer) -> None:
    for opaque in (0, 1, 2**31 - 1, -1):
        raw.write(Command(code=0, opaque=opaque, flag=1))
    answer = await raw.ask(make_request(RequestCode.SEND_MESSAGE_V2, send_header(), b"x", opaque=9))
    assert answer.code == ResponseCode.SUCCESS


# -- headers ---------------------------------------------------------------------------------------------------------

SHAPES: dict[RequestCode, Header] = {
    RequestCode.SEND_MESSAGE_V2: send_header(reconsume_times=0, max_reconsume_times=3, batch=False, unit_mode=False),
    RequestCode.PULL_MESSAGE: pull_header(),
    RequestCode.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffsetHeader(
        consumer_group="G", topic="T", queue_id=0, commit_offset=1
    ),
    RequestCode.QUERY_CONSUMER_OFFSET: QueryConsumerOffsetHeader(consumer_group="G", topic="T", queue_id=0),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: SearchOffsetHeader(topic="T", queue_id=0, timestamp=1),
    RequestCode.CONSUMER_SEND_MSG_BACK: SendBackHeader(offset=0, group="G", delay_level=1),
    RequestCode.END_TRANSACTION: EndTransactionHeader(
        producer_group="P",
        half_offset=0,
        position=0,
        decision=8,
        message_id="x",
    ),
    RequestCode.QUERY_MESSAGE: QueryMessageHeader(topic="T", key="k", max_num=3, begin_timestamp=0, end_timestamp=9),
}


def list_fields(kind: type) -> list[tuple[RequestCode, str]]:
    """Every field of the requests above whose value is of a type."""
    found = []
    for code, header in SHAPES.items():
        pairs = zip(header.__struct_fields__, header.__struct_encode_fields__, strict=True)
        found += [(code, name) for attribute, name in pairs if type(getattr(header, attribute)) is kind]
    return found


async def ask_with(raw: RawPeer, code: RequestCode, name: str, value: str, opaque: int) -> Command | None:
    """Send a request with one field replaced; return the response, or None if the next request is answered first."""
    command = make_request(code, SHAPES[code], b"body", opaque=opaque)
    command.ext = command.ext_dict() | {name: value}
    raw.write(command, Command(code=9, opaque=-opaque))
    first = await raw.read()
    if first.opaque == -opaque:
        return None
    assert (first.opaque, (await raw.read()).opaque) == (opaque, -opaque)
    return first


@pytest.mark.parametrize(("code", "name"), list_fields(int))
async def test_numbers_that_are_none_or_too_large(raw: RawPeer, peer: Peer, code: RequestCode, name: str) -> None:
    await peer.send("T")
    for opaque, text in enumerate(NUMBERS, 1):
        answer = await ask_with(raw, code, name, text, opaque)
        if answer is not None:
            assert answer.is_response
            digits = text.lstrip("-")
            fits = digits.isascii() and digits.isdigit() and -(2**63) <= int(text[:30]) < 2**63
            fits = fits or text in WHOLE
            assert fits or answer.code == ResponseCode.SYSTEM_ERROR, (text[:20], answer.code, answer.remark)
            assert answer.code == ResponseCode.SUCCESS or answer.remark


@pytest.mark.parametrize(("code", "name"), list_fields(str))
async def test_names_that_break_the_rule(raw: RawPeer, peer: Peer, code: RequestCode, name: str) -> None:
    await peer.send("T")
    for opaque, text in enumerate([*NAMES, "x" * 100_000], 1):
        answer = await ask_with(raw, code, name, text, opaque)
        assert answer is None or answer.code == ResponseCode.SUCCESS or answer.remark


@pytest.mark.parametrize("code", list(SHAPES))
async def test_fields_that_are_missing(raw: RawPeer, code: RequestCode) -> None:
    full = make_request(code, SHAPES[code]).ext_dict()
    for opaque, name in enumerate([*full, None], 1):
        command = make_request(code, SHAPES[code], b"body", opaque=opaque)
        command.ext = {key: value for key, value in full.items() if key != name} if name else None
        raw.write(command, Command(code=9, opaque=-opaque))
        while (answer := await raw.read()).opaque != -opaque:
            assert answer.code == ResponseCode.SUCCESS or answer.remark


@pytest.mark.parametrize("topic", NAMES)
async def test_a_bad_topic_reaches_no_path(broker: Broker, peer: Peer, topic: str) -> None:
    assert (await try_send(peer, topic)).code == ResponseCode.SYSTEM_ERROR
    for prefix in ("%RETRY%", "%DLQ%"):
        if topic.strip() and topic != "x" * 300:
            assert (await try_send(peer, prefix + topic)).code == ResponseCode.SYSTEM_ERROR
    names = broker.topics.names()
    assert not [name for name in names if "/" in name or "\\" in name or "." in name or "\0" in name]


@pytest.mark.parametrize("group", NAMES)
async def test_a_bad_group_makes_nothing(broker: Broker, peer: Peer, group: str) -> None:
    before = (broker.topics.names(), broker.groups.names())
    groups = [ConsumerData(group_name=name) for name in (group, "Good")]
    body = HeartbeatData(client_id="c", consumer_data_set=groups, producer_data_set=[ProducerData(group_name="p")])
    assert (await peer.refused(RequestCode.HEART_BEAT, None, body))[0] == ResponseCode.SYSTEM_ERROR
    # One heartbeat lists all groups of a client; the valid ones are registered.
    assert set(broker.clients.consumers) == {"Good"}
    assert set(broker.clients.producers) == {"p"}
    before = (before[0] + ["%RETRY%Good"], before[1] + ["Good"])
    await peer.refused(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(consumer_group="nobody"))
    assert (broker.topics.names(), broker.groups.names()) == before


async def test_a_group_whose_retry_topic_would_be_too_long(broker: Broker, peer: Peer) -> None:
    """Groups may have 255 characters, topics 127, and `%RETRY%` is added."""
    for length in (120, 121, 127, 255):
        group = "g" * length
        await peer.join(group, "c", "T")
        assert broker.clients.consumer(group) is not None


# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4 * 1024 * 1024 + 1, FRAME_BYTES_MAX - 4096])
async def test_a_body_over_four_mebibytes_is_illegal(peer: Peer, size: int) -> None:
    answer = await try_send(peer, body=b"x" * size)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "msg body length limit 4194304B" in (answer.remark or "")
    answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(), b"x" * size)
    assert answer.code in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR)


@pytest.mark.parametrize("size", [32_768, 65_536, 900_000])
async def test_properties_over_their_bound_are_illegal(peer: Peer, size: int) -> None:
    answer = await try_send(peer, properties="k\x01" + "v" * (size - 2))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    "text", ["\x01", "\x02", "\x01\x02" * 1000, "a\x01b\x01c", "\0", "é\x01\U0001d54f", "DELAY\x01", "a"]
)
async def test_properties_of_any_form_are_stored(broker: Broker, peer: Peer, text: str) -> None:
    assert (await try_send(peer, properties=text)).code == ResponseCode.SUCCESS
    for more in ("\x02TRAN_MSG\x01true\x02PGROUP\x01p", "\x02DELAY\x013"):  # these are read and written again
        answer = await try_send(peer, properties=text + more)
        assert answer.code == ResponseCode.SUCCESS or "\x01b\x01" in text


# -- crowds ----------------------------------------------------------------------------------------------------------


async def test_answers_are_not_made_while_nobody_reads_them(
    broker: Broker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read full of small pulls for a large message must not become gigabytes of answers."""
    await peer.send("T", body=b"x" * 900_000)
    made = 0
    encode = broker.pull._encode_head

    def count(*what: Any) -> bytes:
        nonlocal made
        made += 1
        return encode(*what)

    monkeypatch.setattr(broker.pull, "_encode_head", count)
    one = encode_command(make_request(RequestCode.PULL_MESSAGE, pull_header(), opaque=1))
    async with open_peer(broker.standing.port) as greedy:
        greedy.writer.write(one * 600)
        server = broker.ports.servers[0]
        await turn_until(lambda: not all(link.is_writable for link in server.links))
        await peer.send("T")  # the loop has run since
        assert made < 40  # 2 MiB plus the system's buffers
        for _ in range(600):  # and all are answered once they are read
            assert (await greedy.read()).code == ResponseCode.SUCCESS
    assert made == 600

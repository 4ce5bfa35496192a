"""The recorded requests to the Java name server, sent to ours in their order: the answers have the shape of Java's.

The recording has one example of each kind, so a request whose answer is not the first of its kind is not in it; those
are created from what the answer contains. Each connection of the recording is a connection here.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._wire import fastjson
from eruca._wire.codes import RequestCode, ResponseCode, SerializeType
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import Header, KVConfigHeader, RouteHeader
from tests.golden.shapes import compare_answers
from tests.paths import GOLDEN
from tests.unit.net.rawpeer import RawPeer, open_peer, split_frames

LINKS = {"client-namesrv", "broker-namesrv", "slave-namesrv"}
FILES = {"json": "frames.jsonl", "binary": "frames-rocketmq.jsonl"}
LEFT_OUT = {
    RequestCode.UPDATE_NAMESRV_CONFIG: "only listed keys can be changed here; tests/unit/nameserver has its tests"
}
# What had been set before the recording began.
ORDER_CONFIG = ("ORDER_TOPIC_CONFIG", "Ex_Order", "broker-a:4")
# Requests known only from their answers.
UNSEEN: dict[tuple[int, int], Header] = {
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.TOPIC_NOT_EXIST): RouteHeader("Ex_Auto"),
    (RequestCode.GET_KV_CONFIG, ResponseCode.QUERY_NOT_FOUND): KVConfigHeader("NS1", "NOPE"),
}
# Their answers depend on nothing but what was replayed, so they are Java's to the last value.
EXACT = {
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_UNIT_TOPIC_LIST,
}


@dataclass
class Exchange:
    """One recorded answer and the request it belongs to."""

    name: str
    conn: int
    request: bytes | Command
    answer: Command


@dataclass
class Recording:
    """What is to be sent, in order: (connection, request, the exchange it belongs to)."""

    steps: list[tuple[int, bytes | Command, Exchange | None]] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)


def read_recording(kind: str) -> Recording:
    with (GOLDEN / FILES[kind]).open(encoding="utf-8") as lines:
        rows: list[dict[str, Any]] = [row for row in map(json.loads, lines) if row["link"] in LINKS]
    recording = Recording()
    answers = {key(row): row for row in rows if row["kind"] == "response"}
    for row in rows:
        conn, code = row["conn"], row["requestCode"]
        if code in LEFT_OUT:
            continue
        if row["kind"] == "response":
            if key(row) in answers:  # not requested above
                request = make_unseen(row)
                add_exchange(recording, kind, row, request)
        elif key(row) in answers and row["kind"] == "request":
            add_exchange(recording, kind, answers.pop(key(row)), bytes.fromhex(row["rawHex"]))
        else:
            recording.steps.append((conn, bytes.fromhex(row["rawHex"]), None))
    return recording


def key(row: dict[str, Any]) -> tuple[int, int]:
    return row["conn"], row["header"]["opaque"]


def add_exchange(recording: Recording, kind: str, answer: dict[str, Any], request: bytes | Command) -> None:
    code = RequestCode(answer["requestCode"])
    name = f"{kind}-{code.name}-{answer['responseCode']}-{answer['link'].partition('-')[0]}"
    (command,) = split_frames(bytes.fromhex(answer["rawHex"]))
    exchange = Exchange(name, answer["conn"], request, command)
    recording.exchanges.append(exchange)
    recording.steps.append((answer["conn"], request, exchange))


def make_unseen(answer: dict[str, Any]) -> Command:
    header = answer["header"]
    request = make_request(
        answer["requestCode"],
        UNSEEN[answer["requestCode"], answer["responseCode"]],
        opaque=header["opaque"],
        version=header["version"],
    )
    if answer["serializeType"] == "ROCKETMQ":
        request.serialization = SerializeType.ROCKETMQ
    return request


RECORDINGS = {kind: read_recording(kind) for kind in FILES}
EXCHANGES = [exchange for recording in RECORDINGS.values() for exchange in recording.exchanges]


async def replay(recording: Recording, folder: Path) -> dict[str, Command]:
    """Send everything to a fresh name server; returns our answers by the names of the exchanges."""
    options = NameServerOptions(
        listen_port=0, kv_config_path=str(folder / "kv.json"), config_store_path=str(folder / "namesrv.conf")
    )
    server = NameServer(options)
    await server.start()
    await server.kv.put(*ORDER_CONFIG)
    answers: dict[str, Command] = {}
    async with AsyncExitStack() as stack:
        peers: dict[int, RawPeer] = {}
        for conn, request, exchange in recording.steps:
            if conn not in peers:
                peers[conn] = await stack.enter_async_context(open_peer(server.address))
            peer = peers[conn]
            if isinstance(request, bytes):
                peer.write_bytes(request)
            else:
                peer.write(request)
            if exchange is not None:
                answers[exchange.name] = answer = await peer.read()
                # Whatever must not be answered before this, was not.
                assert answer.is_response and answer.opaque == exchange.answer.opaque
        for peer in peers.values():
            final = await peer.ask(make_request(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=123_456_789))
            assert final.code == ResponseCode.SUCCESS
    await server.stop()
    return answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    """Our answers to both recordings."""
    given: dict[str, Command] = {}
    for kind, recording in RECORDINGS.items():
        given |= asyncio.run(replay(recording, tmp_path_factory.mktemp(kind)))
    return given


def test_recordings_are_whole() -> None:
    assert len(RECORDINGS["json"].exchanges) == 22
    assert len(RECORDINGS["binary"].exchanges) == 4
    assert len({exchange.name for exchange in EXCHANGES}) == len(EXCHANGES)
    silent = [step for recording in RECORDINGS.values() for step in recording.steps if step[2] is None]
    assert len(silent) == 4  # three oneway registrations and the unknown code


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_answer_has_the_shape_of_javas(exchange: Exchange, answers: dict[str, Command]) -> None:
    ours = answers[exchange.name]
    assert compare_answers(exchange.answer, ours) == []
    assert ours.remark == exchange.answer.remark


@pytest.mark.parametrize(
    "exchange",
    [exchange for exchange in EXCHANGES if RequestCode[exchange.name.split("-")[1]] in EXACT],
    ids=lambda exchange: exchange.name,
)
def test_answer_is_javas_where_it_depends_on_the_recording_alone(
    exchange: Exchange, answers: dict[str, Command]
) -> None:
    ours = answers[exchange.name]
    assert ours.ext_dict() == exchange.answer.ext_dict()
    assert bool(ours.body) == bool(exchange.answer.body)
    if ours.body:
        assert fastjson.parse(ours.body) == fastjson.parse(exchange.answer.body)


def test_both_name_servers_write_routes_byte_for_byte_alike(answers: dict[str, Command]) -> None:
    routes = [exchange for exchange in EXCHANGES if "GET_ROUTEINFO_BY_TOPIC-0" in exchange.name]
    assert len(routes) == 2
    for exchange in routes:
        assert answers[exchange.name].body == exchange.answer.body

"""The recorded requests to the Java broker, sent to ours in their order: the answers have the shape of Java's.

The recording has one example of each kind, so much that came before an answer is not in it. What is missing is created:
heartbeats, offsets, a half message (`PREPARED`), and requests known only from their answers (`UNSEEN`). Requests of our
broker to clients are compared with Java's, and answered with the recorded answers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._ground.config import StoreOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._wire.bodies import (
    CheckClientBody,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    encode_json,
)
from eruca._wire.codes import RequestCode, ResponseCode, SerializeType
from eruca._wire.frame import Command, FrameBuffer, encode_command, make_request
from eruca._wire.headers import (
    ConsumeDirectlyHeader,
    ConsumerGroupHeader,
    Header,
    PullMessageHeader,
    QueryMessageHeader,
    ResetOffsetHeader,
    SendMessageV2Header,
    UpdateConsumerOffsetHeader,
)
from eruca._wire.ids import decode_offset_id
from eruca._wire.properties import parse_properties
from tests.golden.shapes import compare_answers, compare_bodies
from tests.golden.test_frames import complete
from tests.integration.broker.peer import find_port
from tests.paths import GOLDEN
from tests.patience import PATIENCE_S

FILES = {"json": "frames.jsonl", "binary": "frames-rocketmq.jsonl"}
SECONDS_MAX = PATIENCE_S
ADMIN = 4  # the connection of the Java tools in the first recording
OWN_OPAQUE = 1_000_000_000  # of requests that we add

_ACCESS = "access control comes with a later issue"
LEFT_OUT = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: _ACCESS,
    RequestCode.DELETE_ACL_CONFIG: _ACCESS,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: _ACCESS,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _ACCESS,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: _ACCESS,
    RequestCode.UPDATE_BROKER_CONFIG: "only listed keys can be changed here; tests/unit/broker has its tests",
}
# Remarks in other words than Java's, and why.
OTHER_WORDS = {
    (RequestCode.CHECK_CLIENT_CONFIG, ResponseCode.SUBSCRIPTION_PARSE_FAILED): "the parser explains itself",
    (RequestCode.PULL_MESSAGE, ResponseCode.PULL_NOT_FOUND): "a queue is not made by looking at it, so it is not there",
}

Row = dict[str, Any]


@dataclass
class Exchange:
    """One frame of Java's broker, and ours in its place."""

    name: str
    code: int
    java: Command
    ours: Command


class Line:
    """One connection: answers by opaque, and requests of the broker by code."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._came = asyncio.Condition()
        self._answers: dict[int, Command] = {}
        self._asked: dict[int, list[Command]] = {}
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        frames = FrameBuffer()
        while data := await self._reader.read(1 << 16):
            async with self._came:
                for command in frames.feed(data):
                    if command.is_response:
                        self._answers[command.opaque] = command
                    else:
                        self._asked.setdefault(command.code, []).append(command)
                self._came.notify_all()

    async def answer(self, opaque: int) -> Command:
        """The answer to a request."""
        async with asyncio.timeout(SECONDS_MAX), self._came:
            await self._came.wait_for(lambda: opaque in self._answers)
            return self._answers.pop(opaque)

    async def asked(self, code: int) -> Command:
        """The first request of the broker with a code."""
        async with asyncio.timeout(SECONDS_MAX), self._came:
            await self._came.wait_for(lambda: bool(self._asked.get(code)))
            return self._asked[code].pop(0)

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()
        await self._task


class Replay:
    """One recording, sent to one broker."""

    def __init__(self, kind: str, broker: Broker) -> None:
        self.kind = kind
        self.broker = broker
        self.rows = read_rows(kind)
        self.exchanges: list[Exchange] = []
        self._lines: dict[int, Line] = {}
        self._waiting: set[tuple[int, int]] = set()
        self._asked: dict[tuple[int, int], Command] = {}
        self._opaque = OWN_OPAQUE
        # Ids of messages as our broker assigned them.
        self.message_ids: list[str] = []
        self.batch_ids: list[str] = []
        self.halves: list[dict[str, str]] = []

    async def run(self) -> None:
        """Send everything, and close every connection."""
        try:
            await self._run()
        finally:
            for line in self._lines.values():
                await line.close()

    async def _run(self) -> None:
        done: set[tuple[str, int]] = set()
        for row in self.rows:
            code = row["requestCode"]
            if code in LEFT_OUT:
                continue
            moment = (row["direction"], code)
            if moment not in done and moment in PREPARED:
                await PREPARED[moment](self, row)
            done.add(moment)
            if row["direction"] == "c2s":
                await (self._answer_broker(row) if row["kind"] == "response" else self._send(row))
            elif row["kind"] == "response":
                await self._compare_answer(row)
            else:
                await self._compare_question(row)

    async def line(self, conn: int) -> Line:
        """The connection with a number in the recording."""
        if conn not in self._lines:
            host, _, port = self.broker.standing.address.rpartition(":")
            self._lines[conn] = Line(*await asyncio.open_connection(host, int(port)))
        return self._lines[conn]

    async def ask(self, conn: int, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """Send a request that is not in the recording and return its answer, which must be a success."""
        self._opaque += 1
        command = make_request(code, header, body, opaque=self._opaque)
        line = await self.line(conn)
        line.writer.write(encode_command(command))
        answer = await line.answer(command.opaque)
        assert answer.code == ResponseCode.SUCCESS, f"{code}: {answer.code} {answer.remark}"
        return answer

    async def _send(self, row: Row) -> None:
        """Send a recorded request, with the places of messages as they are in our broker."""
        line = await self.line(row["conn"])
        command = feed(complete(row))
        moved = MOVED.get(row["requestCode"])
        if moved is not None:
            command.ext = command.ext_dict() | moved(self)
        line.writer.write(encode_command(command) if moved is not None else complete(row))
        if row["kind"] == "request":
            self._waiting.add((row["conn"], command.opaque))

    async def _compare_answer(self, row: Row) -> None:
        conn, opaque = row["conn"], row["header"]["opaque"]
        java = feed(complete(row))
        line = await self.line(conn)
        if (conn, opaque) not in self._waiting:
            header, body = UNSEEN[row["requestCode"], row["responseCode"]]
            request = make_request(row["requestCode"], header, body, opaque=opaque, version=java.version)
            request.serialization = java.serialization
            line.writer.write(encode_command(request))
        ours = await line.answer(opaque)
        self._keep(row, java, ours)
        if ours.code == ResponseCode.SUCCESS and row["requestCode"] == RequestCode.SEND_MESSAGE_V2:
            self.message_ids.append(ours.ext_dict()["msgId"])
        if row["requestCode"] == RequestCode.SEND_BATCH_MESSAGE:
            self.batch_ids = ours.ext_dict()["msgId"].split(",")

    async def _compare_question(self, row: Row) -> None:
        """Wait for what our broker asks a client where Java's did."""
        ours = await (await self.line(row["conn"])).asked(row["requestCode"])
        self._asked[row["conn"], row["requestCode"]] = ours
        self._keep(row, feed(complete(row)), ours)

    async def _answer_broker(self, row: Row) -> None:
        """Answer our broker as the recorded client answered Java's."""
        answer = feed(complete(row))
        answer.opaque = self._asked.pop((row["conn"], row["requestCode"])).opaque
        (await self.line(row["conn"])).writer.write(encode_command(answer))

    def _keep(self, row: Row, java: Command, ours: Command) -> None:
        code = row["requestCode"]
        name = RequestCode(code).name if code in RequestCode._value2member_map_ else f"UNKNOWN_{code}"
        end = row["responseCode"] if row["kind"] == "response" else "asked"
        self.exchanges.append(Exchange(f"{self.kind}-{name}-{end}", code, java, ours))

    def find(self, direction: str, code: int) -> Row:
        """The first row of a kind."""
        return next(row for row in self.rows if (row["direction"], row["requestCode"]) == (direction, code))


def read_rows(kind: str) -> list[Row]:
    with (GOLDEN / FILES[kind]).open(encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if row["link"] == "client-broker"]


def feed(raw: bytes) -> Command:
    (command,) = FrameBuffer().feed(raw)
    return command


# --- requests known only from their answers ---------------------------------------------------------------------------


def pull(
    topic: str, queue_id: int, offset: int, *, group: str = "Ex_CG", subscription: str | None = "*", version: int = 0
) -> PullMessageHeader:
    return PullMessageHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_message_nums=32,
        sys_flag=0 if subscription is None else 4,
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription=subscription,
        subscription_version=version,
    )


def send(topic: str, properties: str = "", queue_id: int = 0) -> SendMessageV2Header:
    return SendMessageV2Header(
        producer_group="Ex_PG2",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=properties,
    )


_BAD_SQL = CheckClientBody(
    client_id="c",
    group="Ex_CG_SQL",
    subscription_data=SubscriptionData(topic="Ex_Sql", expression_type="SQL92", sub_string="a > > 5"),
)
_NO_KEY = QueryMessageHeader(topic="Ex_T", key="none", max_num=10, begin_timestamp=0, end_timestamp=2**63 - 1)
_RESET_OFFLINE = ResetOffsetHeader(topic="Ex_T", group="Ex_PL", timestamp=0, is_force=True)
UNSEEN: dict[tuple[int, int], tuple[Header | None, bytes]] = {
    (RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL): (send("Ex_T"), bytes(4 * 1024 * 1024 + 1)),
    (RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS): (pull("Ex_T", 1, 0), b""),
    (RequestCode.PULL_MESSAGE, ResponseCode.SUBSCRIPTION_NOT_LATEST): (
        pull("Ex_T", 1, 0, subscription=None, version=2**62),
        b"",
    ),
    (RequestCode.PULL_MESSAGE, ResponseCode.PULL_RETRY_IMMEDIATELY): (pull("Ex_T", 1, 0, subscription="NoTag"), b""),
    (RequestCode.PULL_MESSAGE, ResponseCode.PULL_OFFSET_MOVED): (pull("Ex_T", 1, 1000), b""),
    (RequestCode.PULL_MESSAGE, ResponseCode.PULL_NOT_FOUND): (pull("BenchmarkTest", 5, 0), b""),
    (RequestCode.PULL_MESSAGE, ResponseCode.TOPIC_NOT_EXIST): (pull("Ex_Sql", 0, 0), b""),
    (RequestCode.PULL_MESSAGE, ResponseCode.SUBSCRIPTION_NOT_EXIST): (
        pull("Ex_T", 0, 0, group="Ex_Gone", subscription=None),
        b"",
    ),
    (RequestCode.CHECK_CLIENT_CONFIG, ResponseCode.SUBSCRIPTION_PARSE_FAILED): (None, encode_json(_BAD_SQL)),
    (RequestCode.QUERY_MESSAGE, ResponseCode.QUERY_NOT_FOUND): (_NO_KEY, b""),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, ResponseCode.SYSTEM_ERROR): (ConsumerGroupHeader("Ex_LP"), b""),
    (RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE): (
        ConsumerGroupHeader("Ex_NOSUCH"),
        b"",
    ),
    (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResponseCode.CONSUMER_NOT_ONLINE): (_RESET_OFFLINE, b""),
}


# --- what must have happened before -----------------------------------------------------------------------------------


async def join_producers(replay: Replay, row: Row) -> None:
    """The client that will be brought a reply is there."""
    reply = replay.find("c2s", RequestCode.SEND_REPLY_MESSAGE_V2)
    properties = parse_properties(reply["header"]["extFields"]["i"].encode())
    body = HeartbeatData(client_id=properties["REPLY_TO_CLIENT"], producer_data_set=[ProducerData(group_name="Ex_PG")])
    await replay.ask(reply["conn"], RequestCode.HEART_BEAT, None, encode_json(body))


async def join_consumers(replay: Replay, row: Row) -> None:
    """The consumer that is notified about its group is connected; the second recording has its heartbeat."""
    if replay.kind == "binary":
        return
    listed = next(row for row in replay.rows if row["requestCode"] == 38 and row["kind"] == "response")
    version = int(replay.find("c2s", RequestCode.PULL_MESSAGE)["header"]["extFields"]["subVersion"])
    topics = ("Ex_T", "%RETRY%Ex_CG")
    data = ConsumerData(
        group_name="Ex_CG",
        subscription_data_set=[SubscriptionData(topic=topic, sub_string="*", sub_version=version) for topic in topics],
    )
    body = HeartbeatData(client_id=listed["bodyText"]["consumerIdList"][0], consumer_data_set=[data])
    await replay.ask(row["conn"], RequestCode.HEART_BEAT, None, encode_json(body))


async def send_halves(replay: Replay, row: Row) -> None:
    """One half message that is decided, and one the broker asks about."""
    body = HeartbeatData(client_id="tx", producer_data_set=[ProducerData(group_name="Ex_TXG")])
    await replay.ask(row["conn"], RequestCode.HEART_BEAT, None, encode_json(body))
    for number in range(2):
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01Ex_TXG\x02UNIQ_KEY\x01U{number}"
        answer = await replay.ask(row["conn"], RequestCode.SEND_MESSAGE_V2, send("Ex_Tx", properties), b"half")
        replay.halves.append(answer.ext_dict())


async def commit_offsets(replay: Replay, row: Row) -> None:
    """Two groups have offsets in every queue."""
    for group in ("Ex_CG", "Ex_PL"):
        for queue_id in range(4):
            header = UpdateConsumerOffsetHeader(consumer_group=group, topic="Ex_T", queue_id=queue_id, commit_offset=0)
            await replay.ask(row["conn"], RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def consume_directly(replay: Replay, row: Row) -> None:
    """A tool requests that a message be consumed."""
    header = ConsumeDirectlyHeader(
        consumer_group="Ex_CG",
        client_id=row["header"]["extFields"]["clientId"],
        message_id=replay.message_ids[0],
    )
    request = make_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, opaque=OWN_OPAQUE)
    (await replay.line(ADMIN)).writer.write(encode_command(request))


PREPARED: dict[tuple[str, int], Callable[[Replay, Row], Awaitable[None]]] = {
    ("c2s", RequestCode.SEND_MESSAGE_V2): join_producers,
    ("s2c", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): join_consumers,
    ("c2s", RequestCode.END_TRANSACTION): send_halves,
    ("c2s", RequestCode.GET_CONSUME_STATS): commit_offsets,
    ("s2c", RequestCode.CONSUME_MESSAGE_DIRECTLY): consume_directly,
}
# Fields that locate a message.
MOVED: dict[int, Callable[[Replay], dict[str, str]]] = {
    RequestCode.CONSUMER_SEND_MSG_BACK: lambda replay: {"offset": str(decode_offset_id(replay.batch_ids[1]).position)},
    RequestCode.END_TRANSACTION: lambda replay: {
        "commitLogOffset": str(decode_offset_id(replay.halves[0]["msgId"]).position),
        "tranStateTableOffset": replay.halves[0]["queueOffset"],
    },
}


# --- the tests --------------------------------------------------------------------------------------------------------


async def replay_to_new_broker(kind: str, folder: Path) -> list[Exchange]:
    nameserver = NameServer(NameServerOptions(listen_port=0, kv_config_path=str(folder / "kv.json")))
    await nameserver.start()
    options = BrokerOptions(
        port=find_port(),
        nameservers=nameserver.address,
        # The second half message is asked about while the recording is replayed.
        transaction_check_interval_ms=50,
        transaction_timeout_ms=0,
    )
    store = StoreOptions(
        commitlog_segment_bytes=16 << 20, consumequeue_segment_bytes=60_000, index_slots=500, index_entries=2000
    )
    broker = Broker(options, store, folder / "store")
    await broker.start()
    replay = Replay(kind, broker)
    try:
        await replay.run()
    finally:
        await broker.stop()
        await nameserver.stop()
    return replay.exchanges


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exchange]:
    """Java's frames and ours, by name."""
    found: dict[str, Exchange] = {}
    for kind in FILES:
        for exchange in asyncio.run(replay_to_new_broker(kind, tmp_path_factory.mktemp(kind))):
            assert exchange.name not in found
            found[exchange.name] = exchange
    return found


def name_exchanges() -> list[str]:
    names = []
    for kind in FILES:
        for row in read_rows(kind):
            code = row["requestCode"]
            if row["direction"] != "s2c" or code in LEFT_OUT:
                continue
            name = RequestCode(code).name if code in RequestCode._value2member_map_ else f"UNKNOWN_{code}"
            names.append(f"{kind}-{name}-{row['responseCode'] if row['kind'] == 'response' else 'asked'}")
    return names


def test_what_is_left_out_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = {row["requestCode"] for kind in FILES for row in read_rows(kind)}
    with capsys.disabled():
        for code, reason in LEFT_OUT.items():
            assert code in recorded
            print(f"\n  not replayed: {code.value} {code.name}: {reason}", end="")
    assert len(name_exchanges()) == len(set(name_exchanges())) == 98


@pytest.mark.parametrize("name", name_exchanges())
def test_answer_has_the_shape_of_javas(name: str, exchanges: dict[str, Exchange]) -> None:
    exchange = exchanges[name]
    java, ours = exchange.java, exchange.ours
    if ours.is_response:
        assert compare_answers(java, ours) == []
    else:
        assert ours.ext_dict().keys() == java.ext_dict().keys()
        assert ours.is_oneway == java.is_oneway
        assert list(compare_bodies(java.body, ours.body)) == []
    if (exchange.code, java.code) not in OTHER_WORDS:
        assert ours.remark == java.remark


def test_binary_answers_are_binary(exchanges: dict[str, Exchange]) -> None:
    kinds = {
        exchange.ours.serialization
        for name, exchange in exchanges.items()
        if name.startswith("binary")
        if exchange.ours.is_response
    }
    assert kinds == {SerializeType.ROCKETMQ}

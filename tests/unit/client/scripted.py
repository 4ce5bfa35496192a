"""A cluster of scripted peers: a name server that knows what a test says, and brokers that fail as it wants."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

from eruca._net.handlers import HandlerTable, Reply, Request, refuse_unknown
from eruca._net.link import Answer, Link
from eruca._net.server import Server, ServerSettings
from eruca._wire.bodies import BrokerData, HeartbeatData, KVTable, QueueData, TopicList, TopicRouteData
from eruca._wire.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from eruca._wire.frame import Command, encode_command
from eruca._wire.headers import SendMessageAnswerHeader, SendMessageV2Header
from eruca._wire.host import pack_host
from eruca._wire.ids import encode_offset_id
from eruca._wire.once import ONCE_KEY
from tests.patience import PATIENCE_S

SILENT, DROP, WITHOUT_HEADER = "silent", "drop the connection", "answer without a header"
# What a broker does with one send: a code to answer, one of the words above, or what makes the answer.
Step = int | str | Callable[[Link, Command], Answer]
SECONDS_MAX = PATIENCE_S


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, within bounds."""
    async with asyncio.timeout(SECONDS_MAX):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class ScriptedBroker:
    """Stores nothing; does with each send what the next step of its script says, and answers well without one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.script: deque[Step] = deque()
        # The header and the body of every send, and all that came one way.
        self.sends: list[tuple[SendMessageV2Header, bytes]] = []
        self.oneways: list[Command] = []
        self.ends: list[Command] = []
        self.heartbeats: list[HeartbeatData] = []
        self.goodbyes: list[str] = []
        # What it reports of itself.
        self.runtime = {ONCE_KEY: "1"}
        self._offset = itertools.count()
        table = HandlerTable()
        for code in (
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
        ):
            table.add_raw(code, self._on_send)
        table.add_raw(RequestCode.END_TRANSACTION, self._on_end)
        table.add(RequestCode.GET_BROKER_RUNTIME_INFO, lambda _: Reply(body=KVTable(table=self.runtime)))
        table.add(RequestCode.HEART_BEAT, self._on_heartbeat)
        table.add(RequestCode.UNREGISTER_CLIENT, self._on_goodbye)
        self.server = Server(table.handlers, refuse_unknown, ServerSettings(scan_seconds=0.05))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.sends]

    def _on_send(self, link: Link, command: Command) -> Answer:
        header = command.decode_header(SendMessageV2Header)
        self.sends.append((header, command.body))
        if command.flag & FLAG_ONEWAY:
            self.oneways.append(command)
            return None
        step = self.script.popleft() if self.script else int(ResponseCode.SUCCESS)
        if callable(step):
            return step(link, command)
        return self.answer(link, command, step)

    def answer(self, link: Link, command: Command, step: int | str = 0) -> bytes | None:
        """What one step answers."""
        header = command.decode_header(SendMessageV2Header)
        offset = next(self._offset)
        if step == DROP:
            link.abort()
        if step in (SILENT, DROP):
            return None
        if step == WITHOUT_HEADER:
            return encode_command(command.answer(0))
        assert isinstance(step, int)
        if step not in (0, 10, 11, 12):
            return encode_command(command.answer(step, remark="as the test wants"))
        host, _, port = self.address.partition(":")
        stored = SendMessageAnswerHeader(
            message_id=encode_offset_id(pack_host(host, int(port)), 1000 + offset),
            queue_id=header.queue_id,
            queue_offset=offset,
            region="DefaultRegion",
            trace_on=True,
        )
        return encode_command(command.answer(step, stored))

    def _on_end(self, link: Link, command: Command) -> Answer:
        self.ends.append(command)
        return None

    def _on_heartbeat(self, request: Request) -> Reply:
        self.heartbeats.append(request.body)
        return Reply()

    def _on_goodbye(self, request: Request) -> Reply:
        self.goodbyes.append(request.header.producer_group or request.header.consumer_group)
        return Reply()


class ScriptedNameServer:
    """Answers from a table that a test fills."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicRouteData] = {}
        # What was asked, by topic; the topic list is `*`.
        self.asked: list[str] = []
        self.is_silent = False
        self.is_list_silent = False
        table = HandlerTable()
        table.add(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._on_route)
        table.add(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self._on_list)
        self.server = Server(table.handlers, refuse_unknown, ServerSettings(scan_seconds=0.05))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def _on_route(self, request: Request) -> Reply | None:
        topic = request.header.topic
        self.asked.append(topic)
        if self.is_silent:
            return None
        found = self.topics.get(topic)
        if found is None:
            return Reply(code=ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info in name server")
        return Reply(body=found)

    def _on_list(self, request: Request) -> Reply | None:
        self.asked.append("*")
        return None if self.is_list_silent else Reply(body=TopicList(topic_list=list(self.topics)))


class ScriptedCluster:
    """One name server and the brokers a test adds."""

    def __init__(self) -> None:
        self.nameserver = ScriptedNameServer()
        self.brokers: dict[str, ScriptedBroker] = {}

    async def start(self) -> None:
        await self.nameserver.server.start()

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.server.stop()
        await self.nameserver.server.stop()

    @property
    def address(self) -> str:
        return self.nameserver.address

    async def add_broker(self, name: str = "broker-a") -> ScriptedBroker:
        broker = self.brokers[name] = ScriptedBroker(name)
        await broker.server.start()
        return broker

    def add_topic(self, topic: str, *brokers: str, queues: int = 4, perm: int = 6, order: str = "") -> TopicRouteData:
        """Give a topic queues on some brokers, or on all there are."""
        names = brokers or tuple(self.brokers)
        route = make_route_data({name: self.brokers[name].address for name in names}, queues, perm, order)
        self.nameserver.topics[topic] = route
        return route


def make_route_data(brokers: dict[str, str], queues: int = 4, perm: int = 6, order: str = "") -> TopicRouteData:
    """What a name server answers for a topic that has as many queues on each broker."""
    return TopicRouteData(
        order_topic_conf=order or None,
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm) for name in brokers
        ],
        broker_datas=[
            BrokerData(cluster="DefaultCluster", broker_name=name, broker_addrs={0: address})
            for name, address in brokers.items()
        ],
    )

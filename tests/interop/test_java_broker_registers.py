"""The official Java broker lives with our name server, and the official tools see it there."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._wire.bodies import TopicRouteData
from eruca._wire.catalog import build_request, decode_answer
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import RouteHeader
from tests.interop.javapeer import JavaBroker, JavaProgram, Peer
from tests.patience import PATIENCE_S
from tests.unit.net.rawpeer import RawPeer, open_peer

# Registered by every Java broker at its start; sending to a topic that is not there uses it.
TEMPLATE = "TBW102"
# Less than the 120 s after which a broker is forgotten that says nothing.
GONE_SECONDS_MAX = 100


@asynccontextmanager
async def run_name_server(folder: Path) -> AsyncIterator[NameServer]:
    options = NameServerOptions(
        listen_port=0, kv_config_path=str(folder / "kv.json"), config_store_path=str(folder / "namesrv.conf")
    )
    server = NameServer(options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Tools:
    """The official mqadmin against our name server; one process runs all commands."""

    def __init__(self, program: JavaProgram, server: NameServer) -> None:
        self._program = program
        self._server = server

    async def ask(self, command: str, *arguments: str) -> str:
        """Run a command and give what it prints; it must not complain."""
        request = {"do": "run", "nameServer": self._server.address, "arguments": [command, *arguments]}
        (row,) = await asyncio.to_thread(self._program.ask, request)
        assert not row.get("error"), row
        return str(row["out"])


async def find_route(client: RawPeer, topic: str = TEMPLATE) -> TopicRouteData | None:
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    answer = await client.ask(build_request(code, RouteHeader(topic)))
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    _, route = decode_answer(code, answer)
    assert isinstance(route, TopicRouteData)
    return route


async def wait_until(client: RawPeer, is_so: Callable[[set[str]], bool]) -> None:
    """Ask which brokers have the template topic until the answer is as wanted; each question is one round trip."""
    async with asyncio.timeout(GONE_SECONDS_MAX):
        while True:
            route = await find_route(client)
            if is_so({broker.broker_name for broker in route.broker_datas} if route else set()):
                return


async def test_java_brokers_come_and_go(peer: Peer, tmp_path: Path) -> None:
    async with run_name_server(tmp_path) as server, open_peer(server.address) as client:

        def start_broker(name: str) -> JavaBroker:
            return JavaBroker(peer, server.address, tmp_path / name / "store", name=name, home=tmp_path / name)

        first, second, program = await asyncio.gather(
            asyncio.to_thread(start_broker, "broker-a"),
            asyncio.to_thread(start_broker, "broker-b"),
            asyncio.to_thread(JavaProgram, peer, "eruca.interop.MqAdmin", tmp_path / "tools"),
        )
        try:
            await check_what_tools_see(Tools(program, server), server, first, second)
            route = await find_route(client)
            assert route is not None
            addresses = {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}
            assert addresses == {"broker-a": {0: first.address}, "broker-b": {0: second.address}}

            # One says goodbye, the other has no time to: both are gone at once, not after 120 s.
            ending = asyncio.create_task(asyncio.to_thread(first.end))
            await wait_until(client, lambda names: names == {"broker-b"})
            await asyncio.to_thread(second.end, signal.SIGKILL)
            await wait_until(client, lambda names: not names)
            assert list(server.routes.list_topics()) == []
            assert await ending is not None
        finally:
            for process in (first, second, program):
                await asyncio.to_thread(process.end, signal.SIGKILL)


async def check_what_tools_see(tools: Tools, server: NameServer, first: JavaBroker, second: JavaBroker) -> None:
    ask = tools.ask
    # A broker that has just come up may not answer yet when it is asked for its version, which is left out then.
    async with asyncio.timeout(PATIENCE_S):
        while (clusters := await ask("clusterList")).count("V4_9_7") < 2:
            pass
    topic = ("-c", "DefaultCluster", "-t", "Interop")
    created = await ask("updateTopic", *topic, "-r", "3", "-w", "2")
    options = await ask("getNamesrvConfig")
    await ask("updateKvConfig", "-s", "NS1", "-k", "K", "-v", "V")
    for broker in (first, second):
        (row,) = [line.split() for line in clusters.splitlines() if broker.name in line]
        assert row[:5] == ["DefaultCluster", broker.name, "0", broker.address, "V4_9_7"]
    assert created.count("success") == 2
    assert "orderMessageEnable" in options and "listenPort" in options
    assert server.kv.get("NS1", "K") == "V"

    topics, route = await ask("topicList"), await ask("topicRoute", "-t", "Interop")
    assert {"Interop", TEMPLATE, "SCHEDULE_TOPIC_XXXX", "broker-a", "broker-b"} <= set(topics.split())
    for broker in (first, second):
        assert broker.address in route
    assert route.count('"readQueueNums":3') == route.count('"writeQueueNums":2') == 2

    assert "wipe write perm of broker[broker-a]" in await ask("wipeWritePerm", "-b", "broker-a")
    known = server.routes.find_route("Interop")
    assert known is not None
    assert {queue.broker_name: queue.perm for queue in known.queue_datas} == {"broker-a": 4, "broker-b": 6}
    assert "success" in await ask("deleteTopic", *topic)
    assert server.routes.find_route("Interop") is None

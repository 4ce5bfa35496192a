"""Registration: every name server is told, one that is down delays no other, and a stop unregisters."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from eruca import Consumer, Producer
from eruca._broker.administering import topics as admintopics
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._net.addresses import NameServers, fetch_addresses, split_addresses
from eruca._net.caller import Caller
from eruca._wire.bodies import TopicConfig
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import CreateTopicHeader
from eruca._wire.names import ORDER_TOPICS
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import find_port
from tests.patience import PATIENCE_S
from tests.unit.net.rawpeer import turn_until

MakeNames = Callable[..., Awaitable[NameServer]]


@pytest.fixture
async def make_names(tmp_path: Path) -> AsyncIterator[MakeNames]:
    """Starts name servers on loopback."""
    running: list[NameServer] = []

    async def make(port: int = 0) -> NameServer:
        folder = tmp_path / f"names{len(running)}"
        server = NameServer(
            NameServerOptions(
                listen_port=port,
                kv_config_path=str(folder / "kv.json"),
                config_store_path=str(folder / "namesrv.conf"),
            )
        )
        await server.start()
        running.append(server)
        return server

    yield make
    for server in running:
        await server.stop()


def brokers_of(names: NameServer) -> dict[str, dict[int, str]]:
    return {name: dict(data.broker_addrs) for name, data in names.routes.describe_clusters().broker_addr_table.items()}


def topics_of(names: NameServer) -> set[str]:
    return set(names.routes.list_topics())


async def test_every_name_server_is_told_at_the_start(make_names: MakeNames, make_broker: MakeBroker) -> None:
    servers = [await make_names(), await make_names()]
    broker = await make_broker(nameservers=";".join(server.address for server in servers), cluster="C")
    for server in servers:
        assert brokers_of(server) == {"broker-a": {0: broker.standing.address}}
        assert topics_of(server) >= {"TBW102", "C", "broker-a"}
        route = server.routes.find_route("TBW102")
        assert route is not None
        assert [(queue.write_queue_nums, queue.perm) for queue in route.queue_datas] == [(8, 7)]


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_new_topic_is_told_at_once(
    make_names: MakeNames, make_broker: MakeBroker, make_peer: MakePeer, compressed: bool
) -> None:
    servers = [await make_names(), await make_names()]
    broker = await make_broker(
        nameservers=";".join(server.address for server in servers),
        register_interval_ms=3_600_000,
        compressed_register=compressed,
    )
    await make_peer(broker).send("Fresh")
    for server in servers:
        await turn_until(lambda server=server: "Fresh" in topics_of(server))  # type: ignore[misc]
    broker.topics.put(TopicConfig(topic_name="Fresh", write_queue_nums=2, read_queue_nums=3))

    def queues(server: NameServer) -> list[tuple[int, int]]:
        route = server.routes.find_route("Fresh")
        assert route is not None
        return [(queue.write_queue_nums, queue.read_queue_nums) for queue in route.queue_datas]

    for server in servers:
        await turn_until(lambda server=server: queues(server) == [(2, 3)])  # type: ignore[misc]


async def test_topics_whose_order_name_servers_keep_are_marked(make_names: MakeNames, make_broker: MakeBroker) -> None:
    names = [await make_names(), await make_names()]
    broker = await make_broker(nameservers=";".join(each.address for each in names), register_interval_ms=20)
    for topic in ("First", "Second"):
        broker.topics.put(TopicConfig(topic_name=topic))

    def ordered() -> list[str]:
        return [name for name in broker.topics.names() if (found := broker.topics.get(name)) and found.order]

    await names[0].kv.put(ORDER_TOPICS, "First", "broker-a:4")
    await names[1].kv.put(ORDER_TOPICS, "Second", "broker-a:4")
    await turn_until(lambda: ordered() == ["First", "Second"])
    await names[0].kv.delete(ORDER_TOPICS, "First")
    await turn_until(lambda: "First" not in ordered())
    assert ordered() == ["Second"]


async def test_a_mistake_of_ours_does_not_end_the_registrations(
    make_names: MakeNames, make_broker: MakeBroker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await make_names()
    broker = await make_broker(nameservers=names.address, register_interval_ms=3_600_000)
    registration = broker.registration
    assert registration is not None
    encode, tries = registration._encode_topics, 0

    async def fail_first(*args: Any) -> bytes:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise KeyError("a mistake")
        return await encode(*args)

    monkeypatch.setattr(registration, "_encode_topics", fail_first)
    await registration.announce()  # waiting callers are released
    await make_peer(broker).send("Fresh")
    await turn_until(lambda: "Fresh" in topics_of(names))
    assert tries > 1


async def test_a_name_server_that_is_down_holds_nobody_up(
    make_names: MakeNames, make_broker: MakeBroker, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    alive = await make_names()
    port = find_port()
    broker = await make_broker(nameservers=f"127.0.0.1:{port};{alive.address}", register_interval_ms=20)
    assert brokers_of(alive) == {"broker-a": {0: broker.standing.address}}
    said = f"not registered with name server 127.0.0.1:{port}"
    assert said in caplog.text
    await make_peer(broker).send("Fresh")
    await turn_until(lambda: "Fresh" in topics_of(alive))
    # It comes back, and the periodic registration sends it everything.
    late = await make_names(port)
    await turn_until(lambda: "Fresh" in topics_of(late))
    assert brokers_of(late) == {"broker-a": {0: broker.standing.address}}
    # And it was logged once, not with every attempt.
    assert (
        len([record for record in caplog.records if record.levelno >= logging.WARNING and said in record.message]) == 1
    )


async def test_a_broker_that_stops_says_goodbye_to_those_that_are_there(
    make_names: MakeNames, make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await make_names(), await make_names()
    broker = await make_broker(nameservers=f"{one.address};{two.address};127.0.0.1:{find_port()}")
    await two.stop()
    # By a request, not by the end of the connection: that would be too late for clients that ask meanwhile.
    monkeypatch.setattr(one.routes, "drop_link", lambda link: [])
    async with asyncio.timeout(PATIENCE_S):
        await broker.stop()
    assert brokers_of(one) == {}


async def test_a_name_server_that_forgot_the_broker_learns_it_again(
    make_names: MakeNames, make_broker: MakeBroker
) -> None:
    names = await make_names()
    broker = await make_broker(nameservers=names.address, register_interval_ms=20)
    for link in list(names.server.links):
        link.abort()
    await turn_until(lambda: not brokers_of(names))
    await turn_until(lambda: bool(brokers_of(names)))
    assert brokers_of(names) == {"broker-a": {0: broker.standing.address}}


async def test_rights_of_the_broker_bound_the_rights_of_its_topics(
    make_names: MakeNames, make_broker: MakeBroker
) -> None:
    names = await make_names()
    await make_broker(nameservers=names.address, permission=4)
    route = names.routes.find_route("TBW102")
    assert route is not None
    assert {queue.perm for queue in route.queue_datas} == {4}


# -- where the name servers are ------------------------------------------------------------------------------------


class AddressServer:
    """A loopback HTTP server that answers as a test wants."""

    def __init__(self) -> None:
        self.text = ""
        self.status = 200
        self.asked = 0
        outer = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/rocketmq/nsaddr"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def address_server() -> Iterator[AddressServer]:
    server = AddressServer()
    yield server
    server.close()


@pytest.fixture
def ask_again(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the time between two questions to the address server pass."""
    return lambda: monkeypatch.setattr("eruca._net.addresses._ADDRESS_SERVER_INTERVAL_S", -1.0)


async def test_an_address_server_tells_the_name_servers(
    make_names: MakeNames,
    make_broker: MakeBroker,
    address_server: AddressServer,
    monkeypatch: pytest.MonkeyPatch,
    ask_again: Callable[[], None],
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    one, two = await make_names(), await make_names()
    address_server.text = f" {one.address}\n"
    broker = await make_broker(
        nameserver_domain=address_server.url, fetch_nameservers=True, register_interval_ms=3_600_000
    )
    assert (bool(brokers_of(one)), bool(brokers_of(two)), address_server.asked) == (True, False, 1)
    await broker.registration.register_all()
    assert address_server.asked == 1  # not asked at every registration
    address_server.text = f"{one.address};{two.address}"
    ask_again()
    await broker.registration.register_all()
    assert (bool(brokers_of(two)), address_server.asked) == (True, 2)


@pytest.mark.parametrize(("status", "text"), [(500, "sorry"), (404, ""), (200, ""), (200, " ; , ")])
async def test_an_address_server_that_says_nothing_changes_nothing(
    address_server: AddressServer,
    monkeypatch: pytest.MonkeyPatch,
    ask_again: Callable[[], None],
    status: int,
    text: str,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    names = NameServers("", address_server.url)
    address_server.text = "127.0.0.1:9876"
    await names.refresh()
    assert names.addresses == ["127.0.0.1:9876"]
    address_server.status, address_server.text = status, text
    ask_again()
    await names.refresh()
    assert names.addresses == ["127.0.0.1:9876"]


async def test_an_address_server_that_speaks_no_http_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"hello\r\n\r\n")
        writer.close()

    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        names = NameServers("", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        await names.refresh()
    assert names.addresses == []
    assert "does not answer: the response is not HTTP" in caplog.text


async def test_the_option_comes_before_the_environment_and_both_before_the_address_server(
    address_server: AddressServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address_server.text = "c:3"
    monkeypatch.setenv("NAMESRV_ADDR", "b:2")
    names = NameServers("a:1", address_server.url)
    await names.refresh()
    assert (names.addresses, address_server.asked) == (["a:1"], 0)
    assert NameServers("").addresses == ["b:2"]
    names = NameServers("", address_server.url)
    await names.refresh()
    assert (names.addresses, address_server.asked) == (["b:2"], 0)


def test_an_address_server_is_http_and_nothing_else() -> None:
    for url in ("file:///etc/passwd", "ftp://127.0.0.1/x", "127.0.0.1:8080"):
        with pytest.raises(ValueError, match="http"):
            fetch_addresses(url)


def test_lists_of_addresses() -> None:
    assert split_addresses(" a:1; b:2,,c:3 ;") == ["a:1", "b:2", "c:3"]
    assert split_addresses("") == []


# -- many changes ----------------------------------------------------------------------------------------------------


class Registrations:
    """The registrations of brokers with a name server: the topics of each, and the version it was based on."""

    def __init__(self, names: NameServer, *, is_java: bool = False) -> None:
        self.seen: list[tuple[set[str], str | None]] = []
        take = names.routes.register

        def register(header: Any, body: Any, *rest: Any, **more: Any) -> Any:
            self.seen.append((set(body.topic_config_serialize_wrapper.topic_config_table), header.eruca_base))
            if is_java:
                header.eruca_base = None
            return take(header, body, *rest, **more)

        names.routes.register = register  # type: ignore[method-assign]


async def test_many_new_topics_make_few_registrations_that_have_each_of_them_once(
    make_names: MakeNames, make_broker: MakeBroker
) -> None:
    names = await make_names()
    seen = Registrations(names).seen
    broker = await make_broker(nameservers=names.address, register_interval_ms=3_600_000)
    assert seen[0][1] == ""
    for number in range(2000):
        broker.topics.create_internal(f"T{number}", 1)
        if number % 100 == 0:
            await asyncio.sleep(0)
    await turn_until(lambda: "T1999" in topics_of(names))
    told = [topic for topics, _ in seen[1:] for topic in topics]
    assert len(told) == len(set(told)) == 2000
    assert len(seen) < 200
    assert all(base for _, base in seen[1:])
    version = broker.topics.data_version
    assert names.routes.query_data_version(broker.standing.address, version, 0.0)[0] is False


async def test_a_name_server_of_java_is_told_everything_each_time(
    make_names: MakeNames, make_broker: MakeBroker
) -> None:
    names = await make_names()
    seen = Registrations(names, is_java=True).seen
    broker = await make_broker(nameservers=names.address, register_interval_ms=3_600_000)
    for number in range(500):
        broker.topics.create_internal(f"T{number}", 1)
    await turn_until(lambda: "T499" in topics_of(names))
    assert len(seen) <= 4
    assert seen[-1][0] >= {"TBW102", "T0", "T499"}


async def test_a_name_server_that_forgot_the_broker_is_told_everything_at_once(
    make_names: MakeNames, make_broker: MakeBroker
) -> None:
    names = await make_names()
    broker = await make_broker(nameservers=names.address, register_interval_ms=3_600_000)
    for link in list(names.server.links):
        names.routes.drop_link(link)  # it drops the broker, but the connection stays open
    assert not topics_of(names)
    broker.topics.create_internal("New", 1)
    await turn_until(lambda: topics_of(names) >= {"New", "TBW102"})
    # What incremental registrations did not contain is there after the next one.
    names.routes.delete_topic("TBW102")
    broker.topics.renew()
    await turn_until(lambda: "TBW102" in topics_of(names))


async def test_a_flood_of_changes_nobody_waits_for_leaves_nothing_behind(
    make_names: MakeNames, make_broker: MakeBroker, make_peer: MakePeer
) -> None:
    names = await make_names()
    broker = await make_broker(nameservers=names.address, register_interval_ms=3_600_000)
    caller = Caller()
    for number in range(3000):
        header = CreateTopicHeader(topic=f"T{number}", read_queue_nums=1, write_queue_nums=1, perm=6)
        await caller.notify(broker.standing.address, make_request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
    most = 0
    while broker.topics.get("T2999") is None:
        await asyncio.sleep(0)
        most = max(most, len(asyncio.all_tasks()))
    assert most < 2000  # those of one read
    await turn_until(lambda: len(asyncio.all_tasks()) < 50)
    async with asyncio.timeout(20):
        await broker.stop()
    await caller.close()


async def test_an_operator_waits_for_the_name_servers_that_can_be_told(
    make_names: MakeNames, make_broker: MakeBroker, make_peer: MakePeer
) -> None:
    names = await make_names()
    nobody = f"127.0.0.1:{find_port()}"
    broker = await make_broker(nameservers=f"{nobody};{names.address}", register_interval_ms=3_600_000)
    peer = make_peer(broker)
    async with asyncio.timeout(20):
        for number in range(20):
            await peer.make_topic(f"T{number}")
            assert f"T{number}" in topics_of(names)


async def test_too_many_operators_at_once_are_told_to_come_later(
    make_broker: MakeBroker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admintopics, "OPERATORS_MAX", 3)
    broker = await make_broker()
    may_save = asyncio.Event()

    async def wait(name: str) -> None:
        await may_save.wait()

    broker.saver.wait_until_saved = wait  # type: ignore[method-assign]
    peer = make_peer(broker)
    waiting = [asyncio.create_task(peer.make_topic(f"T{number}")) for number in range(3)]
    await turn_until(lambda: broker.topics.get("T2") is not None)
    header = CreateTopicHeader(topic="More", read_queue_nums=1, write_queue_nums=1, perm=6)
    assert (await peer.refused(RequestCode.UPDATE_AND_CREATE_TOPIC, header))[0] == ResponseCode.SYSTEM_BUSY
    assert broker.topics.get("More") is None
    may_save.set()
    await asyncio.gather(*waiting)
    await peer.expect(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def test_a_broker_may_announce_a_host_name(make_names: MakeNames, make_broker: MakeBroker) -> None:
    """Clients and routes have the name, and records its address."""
    names = await make_names()
    broker = await make_broker(nameservers=names.address, host="localhost", bind="127.0.0.1")
    address = f"localhost:{broker.options.port}"
    assert brokers_of(names) == {broker.options.name: {0: address}}
    async with Producer(names.address, group="sender") as producer:
        await producer.send("Named", b"one melon")
    async with Consumer(names.address, group="taker", subscribe="Named", start="earliest") as consumer:
        async for message in consumer:
            assert message.store_host == f"127.0.0.1:{broker.options.port}"
            await message.ack()
            break

"""Two brokers and two name servers: what the official Java client notices when one is gone, and when it is back.

Every server is a separate process, killed without warning. The producer sends all the time, and a send counts as
failed when the client's own retries did not save it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.interop.javapeer import (
    START_SECONDS_MAX,
    JavaProcess,
    JavaProgram,
    Peer,
    PeerError,
    find_broker_port,
    find_ports,
)

# What Must show 5 allows; a name server notices a killed broker at once, so it takes a fraction of it.
RESUME_SECONDS_MAX = 35.0
TOPIC = "Spanning"
SMALL_FILES = {"mappedFileSizeCommitLog": 16 << 20, "registerNameServerPeriod": 1000}


class Server(JavaProcess):
    """`eruca nameserver` or `eruca broker`."""

    def __init__(self, home: Path, kind: str, *flags: str) -> None:
        self.home = home
        self.kind = kind
        self.flags = flags
        home.mkdir(parents=True, exist_ok=True)
        super().__init__([sys.executable, "-m", "eruca", kind, "-o", "json", *flags], home / f"{kind}.log", talks=True)
        try:
            line = self.wait_for(lambda text: text.startswith("{"), START_SECONDS_MAX)
        except PeerError:
            self.end(signal.SIGKILL)
            raise
        told: dict[str, Any] = json.loads(self.lines[line])
        self.address = str(told[kind])

    def kill(self) -> None:
        """End it as a power cut would."""
        self.end(signal.SIGKILL)

    def complaints(self) -> str:
        """What it wrote of mistakes."""
        text = self.log.with_suffix(".err").read_text(encoding="utf-8", errors="replace")
        return "\n".join(line for line in text.splitlines() if "Traceback" in line)


class Home:
    """Starts servers below a folder, on their own ports, and ends what is left of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.servers: list[Server] = []

    def start(self, name: str, kind: str, *flags: str) -> Server:
        """Start a server; one with the same name and flags has the same data."""
        server = self._stack.enter_context(Server(self._folder / name, kind, *flags))
        self.servers.append(server)
        return server

    def start_again(self, server: Server) -> Server:
        """Start a server that was killed."""
        return self.start(server.home.name, server.kind, *server.flags)

    def name_server(self, name: str) -> Server:
        """A name server on a free port."""
        return self.start(name, "nameserver", "--listen-port", str(find_ports()))

    def broker(self, name: str, *flags: str) -> Server:
        """A broker on a free port."""
        options = [f"--option={key}={value}" for key, value in SMALL_FILES.items()]
        return self.start(
            name, "broker", "--broker-name", name, "--listen-port", str(find_broker_port()), *options, *flags
        )

    def close(self) -> None:
        """End everything."""
        self._stack.close()
        assert [server.complaints() for server in self.servers if server.complaints()] == []


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    place = Home(tmp_path)
    yield place
    place.close()


@pytest.fixture(scope="module")
def java(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    """The official client, in one process for all tests here."""
    with JavaProgram(peer, "eruca.interop.KeepSending", tmp_path_factory.mktemp("keep-sending")) as program:
        yield program


class Producer:
    """A producer that sends without end."""

    def __init__(self, java: JavaProgram, name: str, name_servers: str | None, topic: str = TOPIC) -> None:
        self._java = java
        self._name = name
        java.ask({"do": "start", "name": name, "nameServer": name_servers, "topic": topic})

    def status(self) -> dict[str, Any]:
        """What happened until now."""
        row: dict[str, Any] = self._java.ask({"do": "status", "name": self._name})[0]
        return row

    def wait_until(self, is_so: Callable[[dict[str, Any]], bool], seconds: float = RESUME_SECONDS_MAX) -> float:
        """Ask until something is so; returns how many seconds it took."""
        began = time.monotonic()
        while not is_so(row := self.status()):
            assert time.monotonic() - began < seconds, row
        return time.monotonic() - began

    def wait_for_more(self, broker: str, more: int = 100) -> float:
        """Wait until a broker took this many more messages."""
        start = self.status()["taken"].get(broker, 0)
        return self.wait_until(lambda row: row["taken"].get(broker, 0) >= start + more)

    def stop(self) -> dict[str, Any]:
        """Stop; returns what happened in all."""
        row: dict[str, Any] = self._java.ask({"do": "stop", "name": self._name})[0]
        return row


def make_topic(java: JavaProgram, name_server: str, broker: Server, queues: int = 4, topic: str = TOPIC) -> None:
    request = {"do": "createTopic", "nameServer": name_server, "address": broker.address}
    java.ask({**request, "topic": topic, "queues": queues})


def test_a_killed_name_server_goes_unnoticed(home: Home, java: JavaProgram) -> None:
    names = [home.name_server("names-a"), home.name_server("names-b")]
    everyone = ";".join(server.address for server in names)
    brokers = [home.broker("broker-a", "-n", everyone), home.broker("broker-b", "-n", everyone)]
    for broker in brokers:
        make_topic(java, everyone, broker)
    producer = Producer(java, "names", everyone)
    producer.wait_until(lambda row: row["queues"] == {"broker-a": 4, "broker-b": 4})
    for name in ("broker-a", "broker-b"):
        producer.wait_for_more(name)
    names[0].kill()
    for name in ("broker-a", "broker-b"):
        producer.wait_for_more(name)
    # Routes go on being learnt, and brokers go on registering, with the one that is left.
    make_topic(java, names[1].address, brokers[0], queues=6)
    producer.wait_until(lambda row: row["queues"] == {"broker-a": 6, "broker-b": 4})
    back = home.start_again(names[0])
    names[1].kill()  # the one that was gone learnt everything meanwhile
    assert back.address == names[0].address
    for name in ("broker-a", "broker-b"):
        producer.wait_for_more(name)
    fresh = Producer(java, "fresh", back.address)  # may come before the brokers do, and fail until then
    fresh.wait_until(lambda row: row["queues"] == {"broker-a": 6, "broker-b": 4})
    fresh.wait_for_more("broker-b", 20)
    fresh.stop()
    status = producer.stop()
    assert status["failed"] == 0, status


def test_a_killed_broker_costs_no_send(home: Home, java: JavaProgram) -> None:
    names = [home.name_server("names-a"), home.name_server("names-b")]
    everyone = ";".join(server.address for server in names)
    brokers = [home.broker("broker-a", "-n", everyone), home.broker("broker-b", "-n", everyone)]
    for broker in brokers:
        make_topic(java, everyone, broker)
    producer = Producer(java, "brokers", everyone)
    producer.wait_until(lambda row: row["queues"] == {"broker-a": 4, "broker-b": 4})
    for name in ("broker-a", "broker-b"):
        producer.wait_for_more(name)
    for dead, other in ((0, 1), (1, 0)):
        victim, survivor = brokers[dead].home.name, brokers[other].home.name
        began = time.monotonic()
        brokers[dead].kill()
        producer.wait_for_more(survivor)
        producer.wait_until(lambda row, left=survivor: row["queues"] == {left: 4})  # type: ignore[misc]
        seconds = time.monotonic() - began
        print(f"{victim} killed: its queues were given up after {seconds:.1f} s")
        assert seconds < RESUME_SECONDS_MAX
        assert producer.status()["failed"] == 0, producer.status()
        brokers[dead] = home.start_again(brokers[dead])
        producer.wait_until(lambda row: row["queues"] == {"broker-a": 4, "broker-b": 4})
        producer.wait_for_more(victim)  # used again
    status = producer.stop()
    assert status["failed"] == 0, status
    print(f"{sum(status['taken'].values())} sends, 0 failed, the longest took {status['longestMs']} ms")
    assert status["longestMs"] < RESUME_SECONDS_MAX * 1000


# --- where the name servers are --------------------------------------------------------------------------------------


class AddressServer:
    """A loopback HTTP server that tells name servers, as the Java client and the broker ask for them."""

    def __init__(self) -> None:
        self.text = ""
        self.paths: set[str] = set()
        outer = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.paths.add(self.path)
                data = outer.text.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.domain = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.domain}/rocketmq/nsaddr"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def address_server() -> Iterator[AddressServer]:
    server = AddressServer()
    yield server
    server.close()


def test_brokers_and_clients_find_name_servers_through_an_address_server(
    home: Home, java: JavaProgram, address_server: AddressServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [home.name_server("names-a"), home.name_server("names-b")]
    everyone = ";".join(server.address for server in names)
    address_server.text = f"{everyone}\n"
    by_http = home.broker(
        "broker-a",
        f"--option=rmqAddressServerDomain={address_server.url}",
        "--option=fetchNamesrvAddrByAddressServer=true",
    )
    assert address_server.paths == {"/rocketmq/nsaddr"}
    monkeypatch.setenv("NAMESRV_ADDR", everyone)
    by_environment = home.broker("broker-b")
    for broker in (by_http, by_environment):
        make_topic(java, everyone, broker)
    java.ask({"do": "domain", "domain": address_server.domain})
    producer = Producer(java, "http", None)
    producer.wait_until(lambda row: row["queues"] == {"broker-a": 4, "broker-b": 4})
    for name in ("broker-a", "broker-b"):
        producer.wait_for_more(name, 20)
    status = producer.stop()
    assert status["failed"] == 0, status

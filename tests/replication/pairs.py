"""Masters and slaves in separate processes: ours, which may be killed and restarted, and Java's.

All brokers of a test share one Eruca name server and one broker name. A broker may announce an address other than the
one it listens on, so that a proxy is between it and others.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from eruca import ClientOptions
from eruca._wire.bodies import MessageQueue
from eruca._wire.catalog import build_request
from eruca._wire.codes import RequestCode
from eruca._wire.headers import CreateTopicHeader, EmptyHeader
from eruca.admin import Admin
from eruca.errors import ErucaError
from tests.clients.stage import PATIENCE_SECONDS, poll
from tests.interop.brokers import PATIENCE
from tests.interop.javapeer import LOOPBACK, JavaBroker, Peer, find_broker_port, find_ports
from tests.patience import PATIENCE_S
from tests.torture.killedbroker import make_environment

BROKER_NAME = "broker-a"
CLUSTER = "DefaultCluster"
QUEUES = 4
_START_SECONDS_MAX = PATIENCE_S
_POLL_S = 0.05
# Brokers are not to wait for an interval of the defaults; a Java broker knows the first ones only.
QUICK: Mapping[str, object] = {
    "registerNameServerPeriod": 1000,
    "flushConsumerOffsetInterval": 500,
    "haSendHeartbeatInterval": 500,
}
QUICK_OURS: Mapping[str, object] = {
    "haHousekeepingInterval": 2000,
    "haReconnectInterval": 200,
    "haMetadataInterval": 200,
    "slaveTimeout": 1000,
}


class OurProcess:
    """A server of ours. It can be started again on the same directory and port."""

    def __init__(self, kind: str, home: Path, flags: Sequence[str]) -> None:
        self.kind = kind
        self.home = home
        self.log = home / f"{kind}.log"
        self.starts = 0
        self._flags = list(flags)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, **more: object) -> None:
        """Start it and wait until it is up; `more` are settings for this time only."""
        await asyncio.to_thread(self.home.mkdir, parents=True, exist_ok=True)
        command = [sys.executable, "-m", "eruca", self.kind, "-o", "json", *self._flags]
        command += [f"--option={key}={value}" for key, value in more.items()]
        with self.log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=log, env=make_environment(), cwd=self.home
            )
        self.starts += 1
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START_SECONDS_MAX):
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            await self.end(signal.SIGKILL)
            raise AssertionError(f"the {self.kind} did not start: {await self.read_log()}")
        self.on_up(json.loads(line))

    def on_up(self, facts: dict[str, Any]) -> None:
        """Whether it reports that it is up."""

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Was it started, and has it not ended?"""
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """`kill -9`, now."""
        assert self.is_running, f"the {self.kind} ended by itself: {await self.read_log()}"
        await self.end(signal.SIGKILL)

    def freeze(self, frozen: bool) -> None:
        """Stop the process, or let it continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    async def end(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Terminate it if it runs; return its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(with_signal)
        await process.communicate()
        return process.returncode or 0

    async def read_log(self, size: int = 3000) -> str:
        """Return the end of its log."""
        return (await asyncio.to_thread(self._read_all))[-size:]

    def _read_all(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    async def list_complaints(self) -> list[str]:
        """Return the internal errors that it has logged."""
        text = await asyncio.to_thread(self._read_all)
        return [line for line in text.splitlines() if re.search(r"\bERROR\b|Traceback|Error:", line)]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end(signal.SIGKILL if error else signal.SIGTERM)


class Names(OurProcess):
    """A name server."""

    def __init__(self, home: Path) -> None:
        self.address = f"{LOOPBACK}:{find_ports()}"
        port = self.address.rpartition(":")[2]
        super().__init__("nameserver", home, ["--listen-port", port])


class Member(OurProcess):
    """A broker of ours that is one of several with one name."""

    def __init__(
        self,
        home: Path,
        name_server: str,
        *,
        broker_id: int,
        role: str,
        told_host: str = LOOPBACK,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.port = find_broker_port()
        self.store = home / "store"
        self.broker_id = broker_id
        self.name_server = name_server
        # Where it listens, and the address that it announces.
        self.address = f"{LOOPBACK}:{self.port}"
        self.told_address = f"{told_host}:{self.port}"
        options = {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER_NAME,
            "brokerId": broker_id,
            "brokerRole": role,
            "brokerIP1": told_host,
            "bindAddress": LOOPBACK,
            "listenPort": self.port,
            "namesrvAddr": name_server,
            "storePathRootDir": self.store,
            "diskMaxUsedSpaceRatio": 95,
            **QUICK,
            **QUICK_OURS,
            **(settings or {}),
        }
        super().__init__("broker", home, [f"--option={key}={value}" for key, value in options.items()])


def start_java_member(
    peer: Peer,
    home: Path,
    name_server: str,
    *,
    broker_id: int,
    role: str,
    port: int | None = None,
    settings: Mapping[str, object] | None = None,
    wait: bool = True,
    heap: str = "512m",
) -> JavaBroker:
    """Start an official broker in a role. Blocks."""
    properties = {**PATIENCE, **QUICK, "brokerId": broker_id, "brokerRole": role, **(settings or {})}
    store = home / "store"
    return JavaBroker(
        peer,
        name_server,
        store,
        name=BROKER_NAME,
        home=home,
        port=port,
        properties=properties,
        wait=wait,
        heap=heap,
    )


async def run_command(*arguments: str) -> tuple[int, str, str]:
    """Run `eruca` with some arguments; return its exit status, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eruca", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=make_environment(),
    )
    async with asyncio.timeout(_START_SECONDS_MAX):
        printed, said = await process.communicate()
    return process.returncode or 0, printed.decode(), said.decode()


# --- looking at them ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a broker's log, and how much of it is not in its queues yet."""

    start: int
    end: int
    behind: int


class Watch:
    """Asks brokers directly, whatever their roles are."""

    def __init__(self, name_server: str, call_timeout_ms: int = 2000) -> None:
        self._admin = Admin(name_server, ClientOptions(call_timeout=call_timeout_ms / 1000, route_interval=0.2))

    async def __aenter__(self) -> Self:
        await self._admin.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._admin.__aexit__(kind, error, trace)

    @property
    def admin(self) -> Admin:
        """The session it works with."""
        return self._admin

    async def ask(self, address: str, code: RequestCode) -> Any:
        """Send a request without a header; return the body of the response."""
        return (await self._admin.connection.calls.ask(address, build_request(code, EmptyHeader())))[1]

    async def find_tail(self, address: str) -> Tail:
        """Return the end of a broker's log."""
        table = (await self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)).table
        return Tail(
            int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]), int(table["dispatchBehindBytes"])
        )

    async def wait_until_synced(self, addresses: Sequence[str], seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until all logs end at the same position and are in their queues; return the position."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        seen: object = None
        while loop.time() < deadline:
            try:
                tails = [await self.find_tail(address) for address in addresses]
            except ErucaError as error:
                seen = error
            else:
                seen = tails
                if len({tail.end for tail in tails}) == 1 and not any(tail.behind for tail in tails):
                    return tails[0].end
            await asyncio.sleep(_POLL_S)
        raise AssertionError(f"not in sync after {seconds:.0f} s: {seen}")

    async def create_topic(self, address: str, topic: str, queues: int = QUEUES) -> list[MessageQueue]:
        """Create a topic on a broker and wait until the name server knows it; return its queues."""
        header = CreateTopicHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6
        )

        async def is_made() -> bool:
            try:
                await self._admin.connection.calls.ask(
                    address, build_request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
                )
            except ErucaError:
                return False  # the disk may be slow; to ask again does no harm
            return True

        async def is_known() -> bool:
            try:
                return await self._admin.connection.find_route(topic) is not None
            except ErucaError:
                return False

        await poll(is_made, bool)
        await poll(is_known, bool)
        return [MessageQueue(BROKER_NAME, number, topic) for number in range(queues)]

    async def list_members(self) -> dict[int, str]:
        """Return the brokers registered under the broker name, by id."""
        route = await self._admin.connection.calls.ask(
            self._admin.options.nameservers, build_request(RequestCode.GET_BROKER_CLUSTER_INFO, EmptyHeader())
        )
        table = route[1].broker_addr_table
        found = table.get(BROKER_NAME)
        return dict(found.broker_addrs) if found is not None else {}

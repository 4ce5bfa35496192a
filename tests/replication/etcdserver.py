"""A real etcd on loopback for tests: free ports, its own directory, timing that suits a test."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from urllib.request import urlopen

from tests.interop.javapeer import find_ports
from tests.needs import expect_need
from tests.patience import PATIENCE_S

START_SECONDS = PATIENCE_S
# A lease cannot be shorter than one and a half elections, so a short election makes short leases.
FAST = ("--heartbeat-interval", "20", "--election-timeout", "200")


class EtcdServer:
    """One etcd process; it can be stopped, frozen and started again on the same data."""

    def __init__(self, folder: Path, *options: str, context: ssl.SSLContext | None = None) -> None:
        """With `context`, by which it can be reached, its port is TLS; the options say with which files."""
        self._folder = folder
        self._options = (*FAST, *options)
        self._context = context
        self._port, peer_port = find_ports(), find_ports()
        self._peer = f"http://127.0.0.1:{peer_port}"
        # All servers of its cluster, by name.
        self._cluster = {folder.name: self._peer}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where clients find it."""
        return f"{'http' if self._context is None else 'https'}://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start it and wait until it is healthy."""
        await self.launch()
        await self.wait_until_healthy()

    async def launch(self) -> None:
        """Start it; one of several is healthy only when most of them are there."""
        await asyncio.to_thread(self._spawn)

    async def wait_until_healthy(self) -> None:
        """Wait until it serves."""
        loop = asyncio.get_running_loop()
        end = loop.time() + START_SECONDS
        while not await asyncio.to_thread(self._is_healthy):
            assert self._process is not None
            assert self._process.poll() is None, f"etcd ended: {self._read_log()}"
            assert loop.time() < end, f"etcd is not healthy after {START_SECONDS} s: {self._read_log()}"
            await asyncio.sleep(0.02)

    def _make_command(self) -> list[str]:
        cluster = ",".join(f"{name}={peer}" for name, peer in self._cluster.items())
        return [
            *("etcd", "--data-dir", str(self._folder / "data"), "--name", self._folder.name),
            *("--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint),
            *("--listen-peer-urls", self._peer, "--initial-advertise-peer-urls", self._peer),
            *("--initial-cluster", cluster, "--log-level", "warn"),
            *self._options,
        ]

    def _spawn(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        expect_need("etcd")
        command = self._make_command()
        with (self._folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _read_log(self) -> str:
        return (self._folder / "etcd.log").read_text(encoding="utf-8", errors="replace")[-2000:]

    def _is_healthy(self) -> bool:
        url = f"{self.endpoint}/health"
        with suppress(OSError, ValueError), urlopen(url, timeout=1, context=self._context) as answer:
            return str(json.loads(answer.read()).get("health")) == "true"
        return False

    def freeze(self) -> None:
        """Make it silent, as a network that drops everything."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    async def stop(self) -> None:
        """End it; the data stays."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        await asyncio.to_thread(process.wait)

    async def lose_data(self) -> None:
        """Restart it without data, as if its data directory had been emptied."""
        await self.stop()
        await asyncio.to_thread(shutil.rmtree, self._folder / "data")
        await self.start()

    def join(self, servers: Sequence[EtcdServer]) -> None:
        """Be one server of a cluster, before it is started."""
        self._cluster = {server._folder.name: server._peer for server in servers}

    async def __aenter__(self) -> EtcdServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


@asynccontextmanager
async def run_cluster(folder: Path, count: int) -> AsyncIterator[list[EtcdServer]]:
    """Several servers that are one etcd."""
    servers = [EtcdServer(folder / f"etcd{number}") for number in range(count)]
    try:
        for server in servers:
            server.join(servers)
            await server.launch()
        for server in servers:
            await server.wait_until_healthy()
        yield servers
    finally:
        for server in servers:
            await server.stop()

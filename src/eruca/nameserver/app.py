"""The name server as one object: start it, stop it, ask for its address."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from eruca.clock import Clock, SystemClock
from eruca.nameserver.handlers import NameServerHandlers
from eruca.nameserver.kvconfig import KVConfig
from eruca.nameserver.options import NameServerOptions
from eruca.nameserver.routes import RouteTables
from eruca.nameserver.running import RunningOptions
from eruca.net.handlers import Authorize, ignore_unknown
from eruca.net.link import Link
from eruca.net.server import Server, ServerSettings
from eruca.store.filesystem import FileSystem, LocalFileSystem

log = logging.getLogger(__name__)


class NameServer:
    """Knows which brokers are alive and tells clients where the queues are."""

    def __init__(
        self,
        options: NameServerOptions | None = None,
        clock: Clock | None = None,
        disk: FileSystem | None = None,
        *,
        authorize: Authorize | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        options = options or NameServerOptions()
        disk = disk or LocalFileSystem()
        self._clock = clock or SystemClock()
        self.routes = RouteTables()
        self.kv = KVConfig(disk, Path(options.kv_config_path))
        self.running = RunningOptions(options, disk, self._apply)
        self._handlers = NameServerHandlers(self.routes, self.kv, self.running, self._clock)
        handlers = self._handlers.build_table(authorize)
        settings = ServerSettings(options.bind_address, options.listen_port, options.idle_seconds, tls=tls)
        self.server = Server(handlers.handlers, ignore_unknown, settings, on_close=self._drop_link)
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._stopping = False

    async def start(self) -> None:
        """Read the key-value config and listen."""
        self._stopping = False
        await self.kv.load()
        await self.server.start()
        self._repeat(self._expire_brokers, lambda options: options.scan_interval_ms)
        self._repeat(self.kv.log_all, lambda options: options.kv_log_interval_ms)
        log.info("name server listens on %s", self.address)

    async def stop(self) -> None:
        """Close the port and every connection, and wait until what was changed is on the disk."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self.server.stop()
        await self.kv.close()
        log.info("name server stopped")

    @property
    def address(self) -> str:
        """Where brokers and clients find it."""
        return f"{self.server.settings.host}:{self.server.port}"

    def _repeat(self, action: Callable[[], None], interval_ms: Callable[[NameServerOptions], int]) -> None:
        """Do something again and again; the interval may change in between."""

        def act() -> None:
            action()
            schedule()

        def schedule() -> None:
            delay_s = interval_ms(self.running.current) / 1000
            self._timers[action] = asyncio.get_running_loop().call_later(delay_s, act)

        schedule()

    def _expire_brokers(self) -> None:
        age_max = self.running.current.broker_expiry_ms / 1000
        for link in self.routes.expire(self._clock.monotonic(), age_max):
            if isinstance(link, Link):
                link.close()  # the broker, should it still be there, connects and registers again

    def _drop_link(self, link: Link) -> None:
        self._handlers.account.leave(link)
        # When we stop, it is not the brokers that are gone.
        if not self._stopping:
            self.routes.drop_link(link)

    def _apply(self, options: NameServerOptions) -> None:
        self.server.settings.idle_seconds = options.idle_seconds

"""The name server as one object that starts, stops and knows its address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from eruca._access.control import AccessControl
from eruca._access.options import AccessOptions
from eruca._ground.clock import Clock, SystemClock
from eruca._ground.repeating import Repeating
from eruca._nameserver.handlers import NameServerHandlers
from eruca._nameserver.kvconfig import KVConfig
from eruca._nameserver.observing import list_figures
from eruca._nameserver.options import NameServerOptions
from eruca._nameserver.routes import RouteTables
from eruca._nameserver.running import RunningOptions
from eruca._net.handlers import ignore_unknown
from eruca._net.link import Link
from eruca._net.server import Server, ServerSettings
from eruca._net.tls import ServerTls
from eruca._net.tlsoptions import TlsOptions
from eruca._net.turns import find_turns
from eruca._observe.figures import Figures
from eruca._store.filesystem import FileSystem, LocalFileSystem

log = logging.getLogger(__name__)


class NameServer:
    """Tracks which brokers are alive, and tells clients where the queues are."""

    def __init__(
        self,
        options: NameServerOptions | None = None,
        clock: Clock | None = None,
        disk: FileSystem | None = None,
        *,
        access: AccessOptions | None = None,
        tls: TlsOptions | None = None,
    ) -> None:
        options = options or NameServerOptions()
        disk = disk or LocalFileSystem()
        self._clock = clock or SystemClock()
        self.running = RunningOptions(options, self._apply)
        self.routes = RouteTables(self._drop_in_turns, lambda: self.running.current)
        self.kv = KVConfig(disk, Path(options.kv_config_path), lambda: self.running.current.kv_bytes_max)
        self._handlers = NameServerHandlers(self.routes, self.kv, self.running, self._clock)
        self.access = AccessControl(access or AccessOptions())
        handlers = self._handlers.build_table(self.access.guard())
        self._tls = ServerTls(tls or TlsOptions(), options.bind_address)
        settings = ServerSettings(
            options.bind_address,
            options.listen_port,
            options.idle_seconds,
            limits=lambda: self.running.current,
            has_accounts=handlers.has_accounts,
            tls=self._tls,
        )
        self.server = Server(handlers.handlers, ignore_unknown, settings, on_close=self._drop_link)
        self._timers = [
            Repeating(
                "removing silent brokers",
                self._expire_brokers,
                lambda: self.running.current.scan_interval_ms / 1000,
            ),
            Repeating(
                "logging the key-value config", self._log_kv, lambda: self.running.current.kv_log_interval_ms / 1000
            ),
        ]
        self._stopping = False
        self._is_serving = False

    async def start(self) -> None:
        """Load the key-value config and listen. A start that fails leaves nothing behind."""
        self._stopping = False
        try:
            await self.access.start()
            await self.kv.load()
            await self._tls.start()
            await self.server.start()
        except BaseException:
            await self.stop()
            raise
        for timer in self._timers:
            timer.start()
        self._is_serving = True
        log.info("name server is listening on %s", self.address)

    async def stop(self) -> None:
        """Close the port and every connection, and wait until all changes are on disk."""
        self._stopping = True
        self._is_serving = False
        for timer in self._timers:
            await timer.stop()
        await self.server.stop()
        await self._tls.stop()
        await self.access.stop()
        try:
            await self.kv.close()
        finally:
            log.info("name server stopped")

    def look_again(self) -> None:
        """Check for changes the files that are read while it runs: certificates."""
        self._tls.look_again()

    @property
    def address(self) -> str:
        """The address for brokers and clients."""
        return f"{self.server.settings.host}:{self.server.port}"

    # -- observing ---------------------------------------------------------------------------------------------------

    def list_obstacles(self) -> list[str]:
        """List the reasons why it is not ready; empty if it is."""
        return [] if self._is_serving else ["it is not running"]

    async def collect_figures(self, rows_max: int) -> AsyncIterator[Figures]:
        """Yield the figures of this name server for monitoring."""
        for figures in list_figures(self.routes.describe_clusters()):
            yield figures

    # -- periodic work -----------------------------------------------------------------------------------------------

    async def _log_kv(self) -> None:
        self.kv.log_all()

    async def _expire_brokers(self) -> None:
        age_max = self.running.current.broker_expiry_ms / 1000
        for link in self.routes.expire(self._clock.monotonic(), age_max):
            if isinstance(link, Link):
                link.close()  # a broker that is still alive reconnects and registers again

    def _drop_link(self, link: Link) -> None:
        self._handlers.account.leave(link)
        # When this server stops, the brokers are not gone.
        if not self._stopping:
            self.routes.drop_link(link)

    def _drop_in_turns(self) -> None:
        """Remove the queues of brokers that are gone, a few in each loop iteration."""

        def drop() -> None:
            if self.routes.drop_some():
                turns.call(drop)

        turns = find_turns(asyncio.get_running_loop())
        turns.call(drop)

    def _apply(self, options: NameServerOptions) -> None:
        self.server.settings.idle_seconds = options.idle_seconds
        for timer in self._timers:
            timer.look_again()

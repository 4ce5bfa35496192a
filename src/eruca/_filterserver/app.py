"""The filter server as one object that starts, stops and knows its address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from eruca._access.control import AccessControl
from eruca._access.options import AccessOptions
from eruca._filterserver.classes import FilterClasses
from eruca._filterserver.options import FilterServerOptions
from eruca._filterserver.plugins import FilterClass, load_plugins
from eruca._filterserver.pulls import FilteredPulls
from eruca._filterserver.sandbox import Sandbox
from eruca._ground.repeating import Repeating
from eruca._net.caller import Caller
from eruca._net.handlers import HandlerTable, expect_success, refuse_unknown
from eruca._net.server import Server, ServerSettings
from eruca._net.tls import ServerTls, open_outgoing
from eruca._net.tlsoptions import TlsOptions
from eruca._observe.figures import Figures
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.headers import RegisterFilterServerAnswerHeader, RegisterFilterServerHeader
from eruca.errors import ErucaError

log = logging.getLogger(__name__)


class FilterServer:
    """Serves filtered pulls for one broker."""

    def __init__(
        self, options: FilterServerOptions, *, access: AccessOptions | None = None, tls: TlsOptions | None = None
    ) -> None:
        self.options = options
        self.access = AccessControl(access or AccessOptions())
        # The name of the broker it serves, once the broker has responded.
        self.broker_name = ""
        self.plugins: dict[str, FilterClass] = {}
        tls = tls or TlsOptions()
        self._tls = ServerTls(tls, options.host, options.bind)
        self._outgoing_tls = open_outgoing(tls)
        self._caller = Caller(tls=self._outgoing_tls, credentials=self.access.options.credentials)
        self._sandbox: Sandbox | None = None
        self._classes: FilterClasses | None = None
        self._server: Server | None = None
        self._registering = Repeating(
            "registering with the broker", self._register, lambda: options.register_interval_ms / 1000
        )

    @property
    def address(self) -> str:
        """The address for clients."""
        port = self._server.port if self._server is not None else self.options.port
        return f"{self.options.host}:{port}"

    async def start(self) -> None:
        """Load the installed classes, listen, and register with the broker; if the broker is not up yet, it is retried.

        A start that fails leaves nothing behind.
        """
        try:
            await self._begin()
        except BaseException:
            await self.stop()
            raise

    async def _begin(self) -> None:
        options = self.options
        await self._tls.start()
        if self._outgoing_tls is not None:
            await self._outgoing_tls.get_context()
        await self.access.start()
        if options.plugins:
            self.plugins = await asyncio.to_thread(load_plugins, Path(options.plugins))
        self._sandbox = await asyncio.to_thread(Sandbox, options.sandbox)
        self._classes = FilterClasses(self._sandbox, self.plugins, uploads=options.uploads, workers=options.workers)
        table = HandlerTable(self.access.guard())
        self._classes.register(table)
        FilteredPulls(options, self._caller, self._classes).register(table)
        settings = ServerSettings(
            options.bind_host,
            options.port,
            limits=lambda: options,
            has_accounts=table.has_accounts,
            tls=self._tls,
        )
        self._server = Server(table.handlers, refuse_unknown, settings)
        await self._server.start()
        await self._register()
        self._registering.start()
        log.info("filter server is listening on %s, for broker %s", self.address, options.broker)

    async def stop(self) -> None:
        """Close everything; the broker sees the connection close and removes this server from the routes."""
        await self._registering.stop()
        await self.access.stop()
        await self._caller.close()
        if self._server is not None:
            await self._server.stop()
            self._server = None
        await self._tls.stop()
        if self._classes is not None:
            await self._classes.close()
            self._classes = None
        if self._sandbox is not None:
            await asyncio.to_thread(self._sandbox.close)
            self._sandbox = None

    def list_obstacles(self) -> list[str]:
        """List the reasons why it is not ready; empty if it is."""
        if self._server is None:
            return ["it is not running"]
        return [] if self.broker_name else [f"not registered with the broker {self.options.broker}"]

    async def collect_figures(self, rows_max: int) -> AsyncIterator[Figures]:
        """Yield no figures: it has none besides those that every server has."""
        none: tuple[Figures, ...] = ()
        for figures in none:
            yield figures

    def look_again(self) -> None:
        """Check for changes the files that are read while it runs: certificates."""
        self._tls.look_again()

    async def _register(self) -> None:
        options = self.options
        header = RegisterFilterServerHeader(filter_server_addr=self.address)
        command = make_request(RequestCode.REGISTER_FILTER_SERVER, header)
        try:
            answer = expect_success(await self._caller.call(options.broker, command, options.call_timeout_ms))
            told = answer.decode_header(RegisterFilterServerAnswerHeader)
        except ErucaError as error:
            log.warning("not registered with broker %s: %s", options.broker, error)
            return
        if told.broker_name != self.broker_name:
            self.broker_name = told.broker_name
            log.info("serving broker %s", told.broker_name)

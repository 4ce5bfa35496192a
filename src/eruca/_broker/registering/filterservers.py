"""The filter servers of a broker: those that register regularly appear in the routes, until they fall silent."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from eruca._broker.options import LiveOptions
from eruca._broker.refusals import refuse
from eruca._broker.standing import Standing
from eruca._ground.clock import Clock
from eruca._ground.signals import Signal
from eruca._net.addresses import check_addresses, split_addresses
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._net.link import Link
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import RegisterFilterServerAnswerHeader
from eruca.errors import ConfigError

log = logging.getLogger(__name__)

_ADDRESS_CHARS_MAX = 255


@dataclass(slots=True)
class _Known:
    link: Link
    last_s: float


@dataclass(frozen=True, slots=True, eq=False)
class FilterServers:
    """Accepts up to `filterServerNums` filter servers: none by default."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _known: dict[str, _Known] = field(default_factory=dict)
    #: Called when one was added or removed, so that name servers are told.
    changed: Signal[()] = field(default_factory=Signal[()])

    def register(self, table: HandlerTable) -> None:
        """Register the handler."""
        table.add(RequestCode.REGISTER_FILTER_SERVER, self._take)

    def list_addresses(self) -> list[str]:
        """List their addresses."""
        return sorted(self._known)

    def _take(self, request: Request) -> Reply:
        options = self._options.now
        address: str = request.header.filter_server_addr
        is_new = address not in self._known
        if not options.filter_servers_max:
            refuse(
                ResponseCode.NO_PERMISSION,
                "this broker does not accept filter servers: set filterServerNums to allow some",
            )
        if is_new and len(self._known) >= options.filter_servers_max:
            refuse(
                ResponseCode.NO_PERMISSION,
                f"this broker already has {len(self._known)} filter servers (see filterServerNums)",
            )
        try:
            check_addresses("filterServerAddr", address)
        except ConfigError as error:
            refuse(ResponseCode.SYSTEM_ERROR, str(error))
        if split_addresses(address) != [address] or len(address) > _ADDRESS_CHARS_MAX:
            refuse(ResponseCode.SYSTEM_ERROR, "filterServerAddr is not one host:port")
        self._known[address] = _Known(request.link, self._clock.monotonic())
        if is_new:
            log.info("filter server %s registered", address)
            self.changed.tell()
        return Reply(RegisterFilterServerAnswerHeader(broker_name=options.name, broker_id=self._standing.broker_id))

    def expire(self) -> None:
        """Remove those that have been silent for too long."""
        oldest = self._clock.monotonic() - self._options.now.filter_server_timeout_ms / 1000
        self._forget([address for address, known in self._known.items() if known.last_s < oldest])

    def drop_link(self, link: Link) -> None:
        """Remove those whose connection closed."""
        self._forget([address for address, known in self._known.items() if known.link is link])

    def _forget(self, addresses: list[str]) -> None:
        for address in addresses:
            del self._known[address]
            log.info("filter server %s was removed", address)
        if addresses:
            self.changed.tell()

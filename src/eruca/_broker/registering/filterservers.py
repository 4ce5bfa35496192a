"""The filter servers of a broker: who says in intervals that it is there goes into the routes, until it is silent."""

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
    """Takes registrations of filter servers, as many as `filterServerNums` allows: none by default."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _known: dict[str, _Known] = field(default_factory=dict)
    #: Told when one came or went: name servers are to hear of it.
    changed: Signal[()] = field(default_factory=Signal[()])

    def register(self, table: HandlerTable) -> None:
        """Take the registration code."""
        table.add(RequestCode.REGISTER_FILTER_SERVER, self._take)

    def list_addresses(self) -> list[str]:
        """Where they are."""
        return sorted(self._known)

    def _take(self, request: Request) -> Reply:
        options = self._options.now
        address: str = request.header.filter_server_addr
        is_new = address not in self._known
        if not options.filter_servers_max:
            refuse(ResponseCode.NO_PERMISSION, "this broker takes no filter servers: set filterServerNums to have some")
        if is_new and len(self._known) >= options.filter_servers_max:
            refuse(ResponseCode.NO_PERMISSION, f"this broker has {len(self._known)} filter servers (filterServerNums)")
        try:
            check_addresses("filterServerAddr", address)
        except ConfigError as error:
            refuse(ResponseCode.SYSTEM_ERROR, str(error))
        if split_addresses(address) != [address] or len(address) > _ADDRESS_CHARS_MAX:
            refuse(ResponseCode.SYSTEM_ERROR, "filterServerAddr is not one host:port")
        self._known[address] = _Known(request.link, self._clock.monotonic())
        if is_new:
            log.info("filter server %s is there", address)
            self.changed.tell()
        return Reply(RegisterFilterServerAnswerHeader(broker_name=options.name, broker_id=self._standing.broker_id))

    def expire(self) -> None:
        """Forget those that have been silent for too long."""
        oldest = self._clock.monotonic() - self._options.now.filter_server_timeout_ms / 1000
        self._forget([address for address, known in self._known.items() if known.last_s < oldest])

    def drop_link(self, link: Link) -> None:
        """Forget those whose connection ended."""
        self._forget([address for address, known in self._known.items() if known.link is link])

    def _forget(self, addresses: list[str]) -> None:
        for address in addresses:
            del self._known[address]
            log.info("filter server %s is gone", address)
        if addresses:
            self.changed.tell()

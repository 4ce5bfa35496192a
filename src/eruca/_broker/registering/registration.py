"""Registering this broker and its topics with the name servers."""

from __future__ import annotations

import asyncio
import functools
import logging
import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from eruca._broker.options import LiveOptions
from eruca._broker.registering.asking import ask_addresses
from eruca._broker.registering.filterservers import FilterServers
from eruca._broker.registering.telling import Teller
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._core.replication.epochs import is_epoch
from eruca._ground.repeating import Repeating
from eruca._ground.signals import Signal
from eruca._nameserver.masterships import STALE_MASTER
from eruca._net.addresses import NameServers
from eruca._net.caller import Caller
from eruca._net.guards import Reporter
from eruca._net.handlers import expect_success
from eruca._wire.bodies import RegisterBrokerBody, TopicConfig, TopicConfigTable, encode_registration
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import BrokerHeader, RegisterBrokerAnswerHeader, RegisterBrokerHeader
from eruca._wire.names import MASTER_ID, READ, WRITE
from eruca.errors import ErucaError

log = logging.getLogger(__name__)

_NO_MASTER: Final = ("", "")
_ACCOUNT_HINT: Final = " (set brokerAccessKey and brokerSecretKey to an account with `broker: true`)"
# With more topics than this, the body is encoded in a thread.
_MANY_TOPICS: Final = 2000


async def _wait_for(asked: list[asyncio.Future[None]]) -> None:
    if asked:
        await asyncio.wait(asked)  # not cancelled with the waiter: others may wait for the same futures


class _Told(NamedTuple):
    """What a name server confirmed it has: the version of the table, and our revision at that time."""

    version: str
    revision: int


@dataclass(eq=False)
class Registration:
    """Registers a broker with every name server: at start, periodically, and when its topics change."""

    _options: LiveOptions
    _standing: Standing
    _topics: Topics
    _filter_servers: FilterServers
    _caller: Caller

    def __post_init__(self) -> None:
        self.nameservers = NameServers(self._options.now.nameservers, self._options.now.nameserver_domain)
        # The master's address and HA address from a slave's last registration.
        self._master = _NO_MASTER
        #: Called with the master's address and HA address when they change.
        self.master_named: Signal[str, str] = Signal()
        #: Called with reason and epoch if a name server reports that another broker is the master, with a newer epoch.
        self.replaced: Signal[str, int] = Signal()
        # A rejected broker registers again every few seconds.
        self._rejections = Reporter(log)
        # Name servers that did not respond the last time; a slave without a master asks them every second.
        self._silent: set[str] = set()
        # Those that accepted the last registration.
        self._accepting: set[str] = set()
        self._repeating = Repeating(
            "registering with name servers",
            self.register_all,
            lambda: self._options.now.register_interval_ms / 1000,
        )
        self._tellers: dict[str, Teller] = {}
        # Name servers that accept incremental changes; Java's get the full table each time.
        self._told: dict[str, _Told] = {}
        self._topics.changed.listen(self.tell_change)
        self._filter_servers.changed.listen(self.tell_change)

    async def start(self) -> None:
        """Register now and then periodically."""
        await self.register_all()
        self._repeating.start()

    def tell_change(self) -> None:
        """Send changes to the name servers without waiting for them."""
        if self._repeating.is_running and self._standing.may_register:
            self._ask_all(now=False)

    async def announce(self) -> None:
        """Send changes to the name servers, and wait until those that can be reached have them."""
        if self._repeating.is_running and self._standing.may_register:
            await _wait_for(self._ask_all(now=False))

    async def register_all(self) -> None:
        """Register with all name servers in parallel; an unresponsive one does not delay the others."""
        if not self._standing.may_register:
            return
        await self.nameservers.refresh()
        await _wait_for(self._ask_all(now=True))

    def _ask_all(self, *, now: bool) -> list[asyncio.Future[None]]:
        asked: list[asyncio.Future[None]] = []
        for address in self.nameservers.addresses:
            teller = self._tellers.get(address)
            if teller is None:
                what = f"registering with name server {address}"
                teller = self._tellers[address] = Teller(what, functools.partial(self._register, address))
            asked.append(teller.ask(now=now))
        return asked

    async def stop(self) -> None:
        """Unregister from every name server."""
        await self._repeating.stop()
        await asyncio.gather(*[teller.stop() for teller in self._tellers.values()])
        self._tellers.clear()
        self._accepting.clear()
        await asyncio.gather(*[self._unregister(address) for address in self.nameservers.addresses])

    async def _register(self, address: str) -> bool:
        """Register with one name server; return whether it accepted."""
        told = await self._tell(address, self._told.pop(address, None))
        if told is not None and told.eruca_known == "":
            # It does not have what it had confirmed: it was restarted, or dropped this broker.
            told = await self._tell(address, None)
        (self._accepting.discard if told is None else self._accepting.add)(address)
        return told is not None

    @property
    def accepted(self) -> list[str]:
        """The name servers that accepted the last registration."""
        return [address for address in self.nameservers.addresses if address in self._accepting]

    async def _tell(self, address: str, base: _Told | None) -> RegisterBrokerAnswerHeader | None:
        """Register with all topics, or with those changed since `base`; return None if it was not accepted."""
        epoch, revision = self._standing.epoch, self._topics.revision
        version = self._topics.data_version
        try:
            body = await self._encode_topics(base)
            if not self._standing.may_register:
                return None
            command = self._build_registration(body, base.version if base is not None else "")
            answer = await self._caller.call(address, command, self._options.now.register_timeout_ms)
        except ErucaError as error:
            self._note_silent(address, f"not registered with name server {address}: {error}")
            return None
        self._silent.discard(address)
        if answer.code != ResponseCode.SUCCESS:
            remark = answer.remark or f"code {answer.code}"
            hint = _ACCOUNT_HINT if "AclException" in remark else ""
            self._rejections.report(
                f"{address} {remark}", f"name server {address} rejected the registration: {remark}{hint}"
            )
            if epoch is not None and epoch == self._standing.epoch and remark.startswith(STALE_MASTER):
                self.replaced.tell(remark, _read_epoch(answer))
            return None
        try:
            told = answer.decode_header(RegisterBrokerAnswerHeader)
        except ErucaError as error:
            log.warning("cannot decode the response of name server %s to a registration: %s", address, error)
            return None
        if told.eruca_known == f"{version.counter}:{version.timestamp}":
            self._told[address] = _Told(told.eruca_known, revision)
        if self._standing.epoch is None and told.master_addr:
            self._learn_master(told.master_addr, told.ha_server_addr or "")
        return told

    def _note_silent(self, address: str, text: str) -> None:
        """Log once that a name server does not respond, until it does again."""
        log.log(logging.DEBUG if address in self._silent else logging.WARNING, "%s", text)
        self._silent.add(address)

    def _learn_master(self, address: str, ha_address: str) -> None:
        if (address, ha_address) != self._master:
            self._master = (address, ha_address)
            self.master_named.tell(address, ha_address)

    def forget_master(self) -> None:
        """Report the master again at the next registration, even if it is the same."""
        self._master = _NO_MASTER

    async def find_master(self) -> str:
        """Ask the name servers for the master of this name without registering; empty if there is none."""
        options = self._options.now
        await self.nameservers.refresh()
        for address in self.nameservers.addresses:
            try:
                known = await ask_addresses(self._caller, address, options.name, options.register_timeout_ms)
            except ErucaError as error:
                self._note_silent(address, f"cannot ask name server {address} for the master: {error}")
                continue
            self._silent.discard(address)
            if found := known.get(MASTER_ID, ""):
                return found
        return ""

    async def _unregister(self, address: str) -> None:
        if not self._standing.may_register or not self._caller.is_connected(address):
            return
        options, standing = self._options.now, self._standing
        header = BrokerHeader(
            broker_name=options.name,
            broker_addr=standing.address,
            cluster_name=options.cluster,
            broker_id=standing.broker_id,
        )
        try:
            command = make_request(RequestCode.UNREGISTER_BROKER, header)
            expect_success(await self._caller.call(address, command, options.register_timeout_ms))
        except ErucaError as error:
            log.warning("not unregistered from name server %s: %s", address, error)

    async def _encode_topics(self, base: _Told | None) -> bytes:
        options = self._options.now
        changes = self._topics.list_changes(base.revision) if base is not None else None
        table = self._topics.snapshot() if changes is None else self._topics.make_table(changes)
        if options.permission & (READ | WRITE) != READ | WRITE:
            # A broker that is not readable or writable registers its topics with reduced permissions.
            table = TopicConfigTable(
                data_version=table.data_version,
                topic_config_table={
                    name: TopicConfig(
                        topic_name=name,
                        read_queue_nums=topic.read_queue_nums,
                        write_queue_nums=topic.write_queue_nums,
                        perm=options.permission,
                    )
                    for name, topic in table.topic_config_table.items()
                },
            )
        body = RegisterBrokerBody(
            filter_server_list=self._filter_servers.list_addresses(), topic_config_serialize_wrapper=table
        )
        encode = functools.partial(encode_registration, body, compressed=options.compressed_register)
        return await asyncio.to_thread(encode) if len(table.topic_config_table) > _MANY_TOPICS else encode()

    def _build_registration(self, body: bytes, base: str) -> Command:
        options, standing = self._options.now, self._standing
        header = RegisterBrokerHeader(
            broker_name=options.name,
            broker_addr=standing.address,
            cluster_name=options.cluster,
            ha_server_addr=standing.ha_address,
            broker_id=standing.broker_id,
            compressed=options.compressed_register,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
            eruca_epoch=standing.epoch,
            eruca_store=standing.store_id if standing.epoch is not None else None,
            eruca_base=base,
        )
        return make_request(RequestCode.REGISTER_BROKER, header, body)


def _read_epoch(answer: Command) -> int:
    """Read the epoch from a name server's refusal; 0 if it is missing or invalid."""
    try:
        epoch = answer.decode_header(RegisterBrokerAnswerHeader).eruca_epoch or 0
        return epoch if is_epoch(epoch) else 0
    except ErucaError:
        return 0

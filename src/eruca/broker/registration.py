"""Telling name servers that this broker is there and which topics it has."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable

from eruca.broker.options import BrokerOptions
from eruca.broker.topics import Topics
from eruca.core.replication.epochs import is_epoch
from eruca.errors import ErucaError
from eruca.nameserver.routes import STALE_MASTER
from eruca.net.addresses import NameServers
from eruca.net.caller import Caller
from eruca.net.handlers import expect_success
from eruca.repeating import Repeating
from eruca.wire.bodies import ClusterInfo, RegisterBrokerBody, TopicConfig, TopicConfigTable, encode_registration
from eruca.wire.catalog import decode_answer
from eruca.wire.codes import RequestCode, ResponseCode
from eruca.wire.frame import Command, make_request
from eruca.wire.headers import BrokerHeader, EmptyHeader, RegisterBrokerAnswerHeader, RegisterBrokerHeader
from eruca.wire.names import MASTER_ID, READ, WRITE

log = logging.getLogger(__name__)


class Registration:
    """Registers a broker with every name server, at start, in intervals, and on every change of its topics."""

    def __init__(self, options: BrokerOptions, topics: Topics, caller: Caller) -> None:
        self._options = options
        self._topics = topics
        self._caller = caller
        self.nameservers = NameServers(options.nameservers, options.nameserver_domain)
        # The filter servers that clients are to find.
        self.list_filter_servers: Callable[[], list[str]] = list
        # Which mastership of its name this broker's is; None on a slave.
        self.epoch: int | None = None
        # The identity of its store.
        self.store_id: str | None = None
        # A broker that does not know what it is (it was replaced, or has no id) does not register.
        self.is_paused = False
        # What the last registration of a slave learnt of its master: its address, and that of its log.
        self.master_address = ""
        self.master_ha_address = ""
        # Told when that is another one than before.
        self.on_master: Callable[[str, str], None] = lambda address, ha_address: None
        # Told when a name server says that another broker is the master, with a newer epoch.
        self.on_replaced: Callable[[str, int], None] = lambda reason, epoch: None
        # Name servers that did not answer the last time; a slave without a master asks them every second.
        self._silent: set[str] = set()
        self._repeating = Repeating(
            "the registration with name servers", self.register_all, lambda: options.register_interval_ms / 1000
        )
        self._change_tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Register now and from now on."""
        await self.register_all()
        self._repeating.start()

    def tell_change(self) -> None:
        """Tell the name servers what is new without waiting for them."""
        if not self._repeating.is_running:
            return
        task = asyncio.get_running_loop().create_task(self.register_all(oneway=True))
        self._change_tasks.add(task)
        task.add_done_callback(self._change_tasks.discard)

    async def stop(self) -> None:
        """Say goodbye to every name server."""
        await self._repeating.stop()
        await asyncio.gather(*self._change_tasks, return_exceptions=True)
        await asyncio.gather(*[self._unregister(address) for address in self.nameservers.addresses])

    async def register_all(self, *, oneway: bool = False) -> None:
        """Register with every name server at the same time; one that does not answer does not hold up the others."""
        if self.is_paused:
            return
        await self.nameservers.refresh()
        await asyncio.gather(*[self._register(address, oneway) for address in self.nameservers.addresses])

    async def _register(self, address: str, oneway: bool) -> None:
        epoch = self.epoch
        try:
            if oneway:
                await self._caller.notify(address, self._build_registration())
                return
            answer = await self._caller.call(address, self._build_registration(), self._options.register_timeout_ms)
        except ErucaError as error:
            self._note_silent(address, f"not registered with name server {address}: {error}")
            return
        self._silent.discard(address)
        if answer.code != ResponseCode.SUCCESS:
            remark = answer.remark or f"code {answer.code}"
            log.warning("name server %s does not take the registration: %s", address, remark)
            if epoch is not None and epoch == self.epoch and remark.startswith(STALE_MASTER):
                self.on_replaced(remark, _read_epoch(answer))
            return
        try:
            told = answer.decode_header(RegisterBrokerAnswerHeader)
        except ErucaError as error:
            log.warning("name server %s answers a registration with what is none: %s", address, error)
            return
        if self.epoch is None and told.master_addr:
            self._learn_master(told.master_addr, told.ha_server_addr or "")

    def _note_silent(self, address: str, text: str) -> None:
        """Say once that a name server does not answer, until it does."""
        log.log(logging.DEBUG if address in self._silent else logging.WARNING, "%s", text)
        self._silent.add(address)

    def _learn_master(self, address: str, ha_address: str) -> None:
        if (address, ha_address) != (self.master_address, self.master_ha_address):
            self.master_address, self.master_ha_address = address, ha_address
            self.on_master(address, ha_address)

    async def find_master(self) -> str:
        """The address of the master of our name as a name server knows it, without registering; empty for none."""
        await self.nameservers.refresh()
        for address in self.nameservers.addresses:
            try:
                command = make_request(RequestCode.GET_BROKER_CLUSTER_INFO, EmptyHeader())
                answer = expect_success(await self._caller.call(address, command, self._options.register_timeout_ms))
                info = decode_answer(RequestCode.GET_BROKER_CLUSTER_INFO, answer)[1]
            except ErucaError as error:
                self._note_silent(address, f"name server {address} could not be asked for the master: {error}")
                continue
            self._silent.discard(address)
            if isinstance(info, ClusterInfo) and (broker := info.broker_addr_table.get(self._options.name)) is not None:
                found = broker.broker_addrs.get(MASTER_ID, "")
                if found:
                    return found
        return ""

    async def _unregister(self, address: str) -> None:
        if self.is_paused or not self._caller.is_connected(address):
            return
        options = self._options
        header = BrokerHeader(
            broker_name=options.name,
            broker_addr=options.address,
            cluster_name=options.cluster,
            broker_id=options.broker_id,
        )
        try:
            command = make_request(RequestCode.UNREGISTER_BROKER, header)
            expect_success(await self._caller.call(address, command, options.register_timeout_ms))
        except ErucaError as error:
            log.warning("not unregistered from name server %s: %s", address, error)

    def _build_registration(self) -> Command:
        options = self._options
        table = self._topics.snapshot()
        if options.permission & (READ | WRITE) != READ | WRITE:
            # A broker that may not be read or written says so for each of its topics.
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
        body = encode_registration(
            RegisterBrokerBody(filter_server_list=self.list_filter_servers(), topic_config_serialize_wrapper=table),
            compressed=options.compressed_register,
        )
        header = RegisterBrokerHeader(
            broker_name=options.name,
            broker_addr=options.address,
            cluster_name=options.cluster,
            ha_server_addr=options.ha_address,
            broker_id=options.broker_id,
            compressed=options.compressed_register,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
            eruca_epoch=self.epoch,
            eruca_store=self.store_id if self.epoch is not None else None,
        )
        return make_request(RequestCode.REGISTER_BROKER, header, body)


def _read_epoch(answer: Command) -> int:
    """The epoch that a name server names with its refusal; 0 when it does not, or when it cannot be one."""
    try:
        epoch = answer.decode_header(RegisterBrokerAnswerHeader).eruca_epoch or 0
        return epoch if is_epoch(epoch) else 0
    except ErucaError:
        return 0

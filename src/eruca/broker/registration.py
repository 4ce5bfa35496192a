"""Telling name servers that this broker is there and which topics it has."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable

from eruca.broker.options import BrokerOptions
from eruca.broker.topics import Topics
from eruca.errors import ErucaError
from eruca.net.addresses import NameServers
from eruca.net.caller import Caller
from eruca.net.handlers import expect_success
from eruca.wire.bodies import RegisterBrokerBody, TopicConfig, TopicConfigTable, encode_registration
from eruca.wire.codes import RequestCode
from eruca.wire.frame import Command, make_request
from eruca.wire.headers import BrokerHeader, RegisterBrokerAnswerHeader, RegisterBrokerHeader
from eruca.wire.names import READ, WRITE

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
        # What the last registration of a slave learnt of its master.
        self.master_address = ""
        self.master_ha_address = ""
        self._task: asyncio.Task[None] | None = None
        self._change_tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Register now and from now on."""
        await self.register_all()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._options.register_interval_ms / 1000)
            await self.register_all()

    def on_topic_change(self, _: TopicConfig | None) -> None:
        """A topic was made, changed or deleted."""
        self.tell_change()

    def tell_change(self) -> None:
        """Tell the name servers what is new without waiting for them."""
        if self._task is None:
            return
        task = asyncio.get_running_loop().create_task(self.register_all(oneway=True))
        self._change_tasks.add(task)
        task.add_done_callback(self._change_tasks.discard)

    async def stop(self) -> None:
        """Say goodbye to every name server."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, *self._change_tasks, return_exceptions=True)
            self._task = None
        await asyncio.gather(*[self._unregister(address) for address in self.nameservers.addresses])

    async def register_all(self, *, oneway: bool = False) -> None:
        """Register with every name server at the same time; one that does not answer does not hold up the others."""
        await self.nameservers.refresh()
        await asyncio.gather(*[self._register(address, oneway) for address in self.nameservers.addresses])

    async def _register(self, address: str, oneway: bool) -> None:
        try:
            if oneway:
                await self._caller.notify(address, self._build_registration())
                return
            answer = await self._caller.call(address, self._build_registration(), self._options.register_timeout_ms)
            told = expect_success(answer).decode_header(RegisterBrokerAnswerHeader)
        except ErucaError as error:
            log.warning("not registered with name server %s: %s", address, error)
            return
        if told.master_addr:
            self.master_address = told.master_addr
        if told.ha_server_addr:
            self.master_ha_address = told.ha_server_addr

    async def _unregister(self, address: str) -> None:
        if not self._caller.is_connected(address):
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
        )
        return make_request(RequestCode.REGISTER_BROKER, header, body)

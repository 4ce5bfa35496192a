"""Telling name servers that this broker is there and which topics it has."""

from __future__ import annotations

import asyncio
import logging
import os
import urllib.error
import urllib.request
import zlib

from eruca.broker.options import BrokerOptions
from eruca.broker.topics import READ, WRITE, Topics
from eruca.errors import ErucaError
from eruca.net.caller import Caller
from eruca.net.handlers import expect_success
from eruca.wire.bodies import RegisterBrokerBody, TopicConfig, TopicConfigTable, encode_registration
from eruca.wire.codes import RequestCode
from eruca.wire.frame import Command, make_request
from eruca.wire.headers import BrokerHeader, RegisterBrokerAnswerHeader, RegisterBrokerHeader

log = logging.getLogger(__name__)

_ADDRESS_SERVER_SECONDS = 3.0
_ADDRESS_SERVER_BYTES_MAX = 64 * 1024
_ADDRESS_SERVER_INTERVAL_S = 120.0


def split_addresses(text: str) -> list[str]:
    """Addresses from a list separated by `;` or `,`."""
    return [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]


class NameServers:
    """Which name servers there are: from the option, the environment, or an address server the user names."""

    def __init__(self, options: BrokerOptions) -> None:
        self._options = options
        self.addresses = split_addresses(options.nameservers or os.environ.get("NAMESRV_ADDR", ""))
        # As in Java, the address server is asked only when neither the option nor the environment says anything.
        self._are_told = bool(self.addresses)
        self._asked_at = float("-inf")

    async def refresh(self) -> None:
        """Ask the address server, if there is one and it is time."""
        url = self._options.nameserver_domain
        loop = asyncio.get_running_loop()
        if not url or self._are_told or loop.time() - self._asked_at < _ADDRESS_SERVER_INTERVAL_S:
            return
        try:
            text = await loop.run_in_executor(None, fetch_addresses, url)
        except (OSError, ValueError, urllib.error.URLError) as error:
            log.error("the address server %s does not answer: %s", url, error)
            return
        self._asked_at = loop.time()
        found = split_addresses(text)
        if found and found != self.addresses:
            log.info("name servers are now %s", "; ".join(found))
            self.addresses = found


def fetch_addresses(url: str) -> str:
    """What an address server answers; blocks."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("an address server is named by an http:// or https:// address")
    with urllib.request.urlopen(url, timeout=_ADDRESS_SERVER_SECONDS) as answer:
        content: bytes = answer.read(_ADDRESS_SERVER_BYTES_MAX)
    return content.decode("utf-8", "replace").strip()


class Registration:
    """Registers a broker with every name server, at start, in intervals, and on every change of its topics."""

    def __init__(self, options: BrokerOptions, topics: Topics, caller: Caller) -> None:
        self._options = options
        self._topics = topics
        self._caller = caller
        self.nameservers = NameServers(options)
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
        """A topic was made, changed or deleted: tell the name servers without waiting for them."""
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
            RegisterBrokerBody(topic_config_serialize_wrapper=table), compressed=options.compressed_register
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

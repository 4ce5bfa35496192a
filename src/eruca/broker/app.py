"""A broker: its parts put together, started and stopped."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from eruca.broker.admin import AdminHandlers
from eruca.broker.arrivals import Arrivals
from eruca.broker.clienthandlers import ClientHandlers
from eruca.broker.clients import Clients, ConsumerGroup
from eruca.broker.failover import FailoverDriver, open_client
from eruca.broker.filterservers import FilterServers
from eruca.broker.groups import Groups
from eruca.broker.offsets import Offsets
from eruca.broker.once import load_once
from eruca.broker.options import FAST_PORT_BELOW, BrokerOptions
from eruca.broker.parts import Parts
from eruca.broker.pull import PullHandlers
from eruca.broker.registration import Registration
from eruca.broker.replication.acknowledging import Acknowledgement
from eruca.broker.replication.members import KnownMembers, open_members
from eruca.broker.replication.meters import ReplicationMeter
from eruca.broker.replication.primary import HA_PORT_ABOVE
from eruca.broker.replication.roles import Roles, Services
from eruca.broker.replication.standing import BrokerStanding
from eruca.broker.replication.state import StateHandlers
from eruca.broker.replication.threads import finish_in_thread
from eruca.broker.reply import ReplyHandlers
from eruca.broker.schedule import Schedule
from eruca.broker.send import SendHandlers
from eruca.broker.sendback import SendBackHandlers
from eruca.broker.stats import Stats
from eruca.broker.steadytime import SteadyTime
from eruca.broker.timing import Timing
from eruca.broker.topics import Topics
from eruca.broker.transactions import TransactionHandlers
from eruca.clock import Clock, SystemClock
from eruca.config import StoreOptions
from eruca.errors import ConnectFailed, StoreError
from eruca.net.caller import Caller
from eruca.net.etcd import EtcdClient
from eruca.net.handlers import HandlerTable, refuse_unknown
from eruca.net.link import Link
from eruca.net.server import Server, ServerSettings
from eruca.net.turns import Slices, find_turns
from eruca.repeating import Repeating
from eruca.store.background import StoreBackground
from eruca.store.filesystem import FileSystem, LocalFileSystem
from eruca.store.messagestore import MessageStore, open_store
from eruca.store.saving import TableSaver
from eruca.store.scan import Progress
from eruca.store.tables import Tables
from eruca.wire.codes import RequestCode
from eruca.wire.frame import encode_command, make_request
from eruca.wire.headers import ConsumerGroupHeader
from eruca.wire.host import pack_host

log = logging.getLogger(__name__)

_HOLD_SCAN_S = 0.2
# Where a broker looks for ports when it may choose. Systems choose from 32,768 on, for clients too, and the port of a
# client stays taken for a minute after its connection: after thousands of connections hardly one has free neighbours.
_PORTS: Final = range(12_000, 20_000)
_PORT_TRIES = 100
# A write takes the system some 10 us.
_TOLD_AT_ONCE = 100


class Broker:
    """One broker on one store directory."""

    def __init__(
        self,
        options: BrokerOptions,
        store_options: StoreOptions,
        root: Path,
        *,
        clock: Clock | None = None,
        disk: FileSystem | None = None,
        progress: Progress | None = None,
        kept_options: Path | None = None,
        overridden: Mapping[str, str] | None = None,
    ) -> None:
        """`kept_options` is the file that changes of options are kept in; `overridden` names the keys that something
        else sets at the next start, and what that is.
        """
        self.options = options
        self._store_options = store_options
        self._root = root
        self._kept_options = kept_options
        self._overridden = overridden or {}
        # Told how many bytes recovery has read, from the thread it runs in.
        self._progress = progress
        self._clock = clock or SystemClock()
        self._disk = disk or LocalFileSystem()
        self._executor: ThreadPoolExecutor | None = None
        # What a start has begun and a stop has to end, whichever comes first.
        self._store: MessageStore | None = None
        self._etcd: EtcdClient | None = None
        self._is_wired = False
        self._is_cancelled = False
        self._servers: list[Server] = []
        self._timers: list[Repeating] = []
        self._caller = Caller()
        self._meter = ReplicationMeter()
        self.parts: Parts | None = None
        self.registration: Registration | None = None
        #: Where the members elect their master.
        self.failover: FailoverDriver | None = None

    async def start(self) -> None:
        """Open the store, listen, register. A start that fails or is cancelled leaves nothing behind."""
        try:
            # What is wrong with it is said before anything else is begun.
            self._etcd = await open_client(self.options) if self.options.failover else None
            await self._open()
            assert self._store is not None
            tables = Tables(self._disk, self._store.paths.config)
            self.parts = parts = await finish_in_thread(self._make_parts, self._store, tables)
            parts.background.start()
            self._wire(parts)
            self._is_wired = True
            await self._begin(parts)
        except BaseException:
            # Ports and files are let go, so that it can be tried again.
            await self.stop()
            raise
        log.info("broker %s of cluster %s is at %s", self.options.name, self.options.cluster, self.options.address)

    async def _open(self) -> None:
        """Open the store in a thread; who is cancelled meanwhile need not wait for a long recovery."""
        self._is_cancelled = False
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="eruca-segments")
        opening = asyncio.get_running_loop().run_in_executor(None, self._open_store)
        try:
            self._store = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._is_cancelled = True
            found = (await asyncio.gather(opening, return_exceptions=True))[0]
            self._store = found if isinstance(found, MessageStore) else None
            raise

    def _note_progress(self, count: int) -> None:
        """Recovery has read so many bytes; it ends here when nobody waits for it any more, and the next one goes on."""
        if self._is_cancelled:
            raise StoreError("the broker was stopped while it opened the store")
        if self._progress is not None:
            self._progress(count)

    async def _begin(self, parts: Parts) -> None:
        # What stores messages by itself looks where its queues end, so it comes before the first message.
        await self.roles.decide()
        await self._listen()
        parts.store_host = pack_host(self.options.host, self.options.port)
        await self.roles.open()
        assert self.registration is not None
        await self.registration.start()
        if self._etcd is not None:
            etcd, self._etcd = self._etcd, None
            await self._join_election(parts, etcd)
        self._start_timers(parts)

    async def _join_election(self, parts: Parts, etcd: EtcdClient) -> None:
        standing = BrokerStanding(parts, self.roles.server, self.roles.members)
        self.failover = self.state.failover = FailoverDriver(self.options, self._clock, self.roles, standing, etcd)
        parts.replication.guard = self.failover.may_acknowledge
        await self.failover.start()

    def _open_store(self) -> MessageStore:
        return open_store(
            self._root,
            self._store_options,
            disk=self._disk,
            clock=self._clock,
            executor=self._executor,
            progress=self._note_progress,
            commitlog=Path(self.options.commitlog_path) if self.options.commitlog_path else None,
        )

    def _make_parts(self, store: MessageStore, tables: Tables) -> Parts:
        options, clock = self.options, self._clock
        options.configured_id = options.broker_id
        parts = Parts(
            options=options,
            clock=clock,
            store=store,
            background=StoreBackground(store),
            tables=tables,
            saver=TableSaver(),
            topics=Topics(options, clock, tables.topics.load(), name_length_max=self._store_options.topic_bytes_max),
            groups=Groups(options, clock, tables.groups.load()),
            offsets=Offsets(tables.consumer_offsets.load()),
            once=load_once(store),
            clients=Clients(clock),
            stats=Stats(options.cluster, clock),
            steady=SteadyTime(clock, store),
            store_host=pack_host(options.host, options.port),
            started_ms=clock.now_ms(),
        )
        parts.replication = Acknowledgement(parts)
        members = open_members(self._disk, store.paths.config)
        self._members = KnownMembers(options, members.load())
        self._members.join(parts.saver, members)
        reads = parts.replication.reads
        reads.load(self._members.confirmed)
        self._members.find_readable = reads.snapshot
        return parts

    def _wire(self, parts: Parts) -> None:
        """Tell the parts of each other, and fill the handler tables."""
        saver = parts.saver
        saver.add("topics", parts.tables.topics, parts.topics.snapshot_to_save, parts.topics.note_saved)
        saver.add("groups", parts.tables.groups, parts.groups.snapshot)
        saver.add("offsets", parts.tables.consumer_offsets, parts.offsets.snapshot)
        parts.once.join(saver)
        parts.topics.on_change = self._on_topic_change
        parts.groups.on_change = lambda: saver.mark("groups")
        parts.clients.on_group_change = self._tell_group_changed
        self._table = HandlerTable()
        self.pull = PullHandlers(parts)
        self.send = SendHandlers(parts)
        self.admin = AdminHandlers(parts)
        self.admin.config.path = self._kept_options
        self.admin.config.overridden = self._overridden
        self.schedule = Schedule(parts)
        self.timing = Timing(parts)
        self.transactions = TransactionHandlers(parts)
        self.filter_servers = FilterServers(parts)
        self.schedule.find_timer = lambda: self.timing.progress
        self.schedule.tell_timer = self.timing.inherit
        self.admin.progress.find_delay_offsets = self.schedule.snapshot
        self.registration = Registration(self.options, parts.topics, self._caller)
        self.admin.topics.tell_nameservers = self.registration.announce
        self.registration.list_filter_servers = self.filter_servers.list_addresses
        self.filter_servers.on_change = self.registration.tell_change
        services = Services(self.schedule, self.timing, self.transactions, self.pull.holds)
        self.roles = Roles(parts, self._caller, self.registration, services, self._members)
        self.state = StateHandlers(parts, self._caller, self.roles, self.schedule)
        self.admin.runtime.find_state = self.state.describe
        for handlers in (
            self.send,
            self.pull,
            ClientHandlers(parts, self.pull.filters),
            self.admin,
            SendBackHandlers(parts),
            ReplyHandlers(parts, self.send),
            self.transactions,
            self.filter_servers,
            self.state,
        ):
            handlers.register(self._table)
        reads = parts.replication.reads
        arrivals = Arrivals(parts.store, reads, self.pull.holds)
        parts.store.on_arrival = arrivals.on_arrival
        parts.store.on_batch_arrival = arrivals.on_batch
        reads.on_readable = arrivals.wake

    async def _listen(self) -> None:
        """Open the main port and the fast one, which does not take pulls.

        A broker that may choose (port 0) takes a port whose neighbours are free, too.
        """
        given = self.options.port
        for left in reversed(range(1 if given else _PORT_TRIES)):
            try:
                await self._open_ports(given or random.choice(_PORTS))
                return
            except ConnectFailed:
                while self._servers:
                    await self._servers.pop().stop()
                if not left:
                    raise

    async def _open_ports(self, port: int) -> None:
        handlers = self._table.handlers
        main = Server(handlers, refuse_unknown, self._settings(port), on_close=self._on_link_close)
        await main.start()
        self._servers.append(main)
        without_pulls = {code: handler for code, handler in handlers.items() if code != RequestCode.PULL_MESSAGE}
        fast_port = max(0, main.port - FAST_PORT_BELOW)
        fast = Server(without_pulls, refuse_unknown, self._settings(fast_port), on_close=self._on_link_close)
        await fast.start()
        self._servers.append(fast)
        if not self.options.port:
            # The port for slaves is opened later, with the role.
            probe = Server({}, refuse_unknown, self._settings(main.port + HA_PORT_ABOVE))
            await probe.start()
            await probe.stop()
        self.options.port = main.port

    def _settings(self, port: int) -> ServerSettings:
        return ServerSettings(host=self.options.bind_host, port=port, idle_seconds=self.options.idle_seconds)

    # -- what parts tell ---------------------------------------------------------------------------------------------

    def _on_topic_change(self) -> None:
        assert self.parts is not None
        self.parts.saver.mark("topics")
        if self.registration is not None:
            self.registration.tell_change()

    def _on_link_close(self, link: Link) -> None:
        assert self.parts is not None
        self.parts.clients.drop_link(link)
        self.pull.holds.drop_link(link)
        self.filter_servers.drop_link(link)

    def _tell_group_changed(self, group: ConsumerGroup) -> None:
        assert self.parts is not None
        config = self.parts.groups.find(group.name)
        allowed = config is None or config.notify_consumer_ids_changed_enable
        if not self.options.notify_group_changes or not allowed:
            return
        header = ConsumerGroupHeader(consumer_group=group.name)
        notice = encode_command(make_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))
        self._tell(list(group.members), notice)

    def _tell(self, links: list[Link], notice: bytes) -> None:
        """Send the same to many connections, some in each turn of the loop."""
        for link in links[:_TOLD_AT_ONCE]:
            link.send(notice)
        if len(links) > _TOLD_AT_ONCE:
            find_turns(asyncio.get_running_loop()).call(partial(self._tell, links[_TOLD_AT_ONCE:], notice))

    # -- timers ------------------------------------------------------------------------------------------------------

    def _start_timers(self, parts: Parts) -> None:
        options = self.options
        scans_between = max(1, round(options.hold_scan_ms / 1000 / _HOLD_SCAN_S))
        count = 0

        async def scan_holds() -> None:
            nonlocal count
            count += 1
            slices = Slices()
            for _ in self.pull.holds.scan_queues(unmatched=count % scans_between == 0):
                if slices.is_over:
                    await slices.rest()

        saved_version = parts.offsets.version

        async def save_offsets() -> None:
            nonlocal saved_version
            if parts.offsets.version != saved_version:
                saved_version = parts.offsets.version
                parts.saver.mark("offsets")
            parts.once.save_if_changed()
            if parts.replication.reads.is_bounding:
                self._members.save_if_moved()

        async def tick() -> None:
            self.admin.tick()
            self._meter.show(self.state.describe())

        async def expire_clients() -> None:
            parts.clients.expire(options.client_timeout_ms)
            self.filter_servers.expire()

        self._timers = [
            Repeating("the scan of held pulls", scan_holds, lambda: _HOLD_SCAN_S),
            Repeating("the save of offsets", save_offsets, lambda: options.offsets_interval_ms / 1000),
            Repeating("the search for silent clients", expire_clients, lambda: options.client_scan_ms / 1000),
            Repeating("the sampling of statistics", tick, lambda: 1.0),
        ]
        for timer in self._timers:
            timer.start()

    # -- stopping ----------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Unregister, close the ports, save and close everything; also what a start that failed has begun."""
        failed: list[StoreError] = []
        try:
            if self.parts is not None:
                await self._stop_parts(self.parts)
        except StoreError as error:  # tables that could not be saved: the log is closed all the same
            failed.append(error)
        finally:
            self.parts = None
            self._is_wired = False
            if self._etcd is not None:
                await self._etcd.close()
                self._etcd = None
            if self._store is not None:
                store, self._store = self._store, None
                try:
                    await asyncio.get_running_loop().run_in_executor(None, store.close)
                except StoreError as error:
                    failed.append(error)
                log.info("broker %s is stopped", self.options.name)
            if self._executor is not None:
                await asyncio.to_thread(self._executor.shutdown)
                self._executor = None
        if failed:
            raise StoreError("; ".join(map(str, failed))) from failed[0]

    async def _stop_parts(self, parts: Parts) -> None:
        """Stop all that works with the store."""
        if self._is_wired:
            await self._stop_services(parts)
        await parts.background.stop()
        if self._is_wired:
            parts.once.finish()
            await parts.saver.close()

    async def _stop_services(self, parts: Parts) -> None:
        """Stop what answers and what happens in intervals."""
        for timer in self._timers:
            await timer.stop()
        self._meter.close()
        if self.failover is not None:
            await self.failover.stop()
            self.failover = None
        if self.registration is not None:
            await self.registration.stop()
        await self.roles.stop()
        parts.replication.abandon()
        self.pull.holds.release_all()
        for server in self._servers:
            await server.stop()
        self._servers.clear()
        await self._caller.close()

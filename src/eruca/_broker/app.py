"""The broker: builds, starts and stops its parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from eruca._access.changing import AccountHandlers, Whereabouts
from eruca._access.control import AccessControl
from eruca._access.options import AccessOptions
from eruca._broker.administering.config import ConfigHandlers
from eruca._broker.administering.groups import GroupHandlers
from eruca._broker.administering.relays import RelayHandlers
from eruca._broker.administering.runtime import RuntimeHandlers
from eruca._broker.administering.stats import Stats
from eruca._broker.administering.topics import Operators, TopicHandlers
from eruca._broker.delaying.cancellations import Cancellations
from eruca._broker.delaying.schedule import Schedule
from eruca._broker.delaying.steadytime import SteadyTime
from eruca._broker.delaying.timing import Timing
from eruca._broker.groups.clients import Clients
from eruca._broker.groups.groups import Groups
from eruca._broker.groups.handlers import ClientHandlers
from eruca._broker.groups.locks import LockHandlers, QueueLocks
from eruca._broker.groups.notices import GroupNotices, TopicNotices
from eruca._broker.groups.offsetrules import OffsetRules
from eruca._broker.groups.offsets import Offsets
from eruca._broker.groups.progress import ProgressHandlers
from eruca._broker.housekeeping import Housekeeping
from eruca._broker.observing.figures import BrokerFigures
from eruca._broker.opening import open_in_thread
from eruca._broker.options import BrokerOptions, LiveOptions
from eruca._broker.popping.parts import build_popping
from eruca._broker.ports import Ports
from eruca._broker.pulling.arrivals import Arrivals
from eruca._broker.pulling.pull import PullHandlers
from eruca._broker.pulling.query import QueryHandlers
from eruca._broker.registering.filterservers import FilterServers
from eruca._broker.registering.registration import Registration
from eruca._broker.replication.acknowledging import Acknowledgement, Gate
from eruca._broker.replication.failover import open_client
from eruca._broker.replication.members import open_members
from eruca._broker.replication.membership import Membership
from eruca._broker.replication.readlimit import ReadLimit
from eruca._broker.replication.replication import Replication
from eruca._broker.replication.services import Services
from eruca._broker.replication.tables import CopiedTables
from eruca._broker.replication.threads import finish_in_thread
from eruca._broker.sending.answering import SendAnswers
from eruca._broker.sending.drafting import Drafting
from eruca._broker.sending.once import load_once
from eruca._broker.sending.reply import ReplyHandlers
from eruca._broker.sending.send import SendHandlers
from eruca._broker.sending.sendback import SendBackHandlers
from eruca._broker.sending.stored import read_topic
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._broker.transactions.checkback import CheckBackService
from eruca._broker.transactions.decisions import Decisions
from eruca._broker.transactions.handlers import TransactionHandlers
from eruca._ground.clock import Clock, SystemClock
from eruca._ground.config import StoreOptions
from eruca._net.addresses import find_ip
from eruca._net.caller import Caller
from eruca._net.etcd import EtcdClient
from eruca._net.handlers import Handlers, HandlerTable
from eruca._net.link import Link
from eruca._net.tls import ServerTls, open_outgoing
from eruca._net.tlsoptions import TlsOptions
from eruca._observe.figures import Figures
from eruca._store.background import StoreBackground
from eruca._store.filesystem import FileSystem, LocalFileSystem
from eruca._store.log.scan import Progress
from eruca._store.tables.saving import TableSaver
from eruca._store.tables.tables import Tables
from eruca.errors import StoreError

log = logging.getLogger(__name__)

_STOPPED = "it is not running"


class Broker:
    """One broker on one store directory.

    Its parts are attributes that can be inspected while it runs; `start` sets them.
    """

    def __init__(
        self,
        options: BrokerOptions,
        store_options: StoreOptions,
        root: Path,
        *,
        clock: Clock | None = None,
        disk: FileSystem | None = None,
        access: AccessOptions | None = None,
        progress: Progress | None = None,
        kept_options: Path | None = None,
        overridden: Mapping[str, str] | None = None,
        tls: TlsOptions | None = None,
    ) -> None:
        """`progress` is called with the number of bytes that recovery has read, from the recovery thread. Changed
        options are saved in the file `kept_options`; `overridden` maps each key that another source sets at the next
        start to the name of that source.
        """
        #: The options in force; mutable ones change while the broker runs.
        self.live = LiveOptions(options)
        #: The broker's current role, id and address.
        self.standing = Standing(options)
        #: The accounts, and the check of every request.
        self.access = AccessControl(access or AccessOptions())
        #: The source of time.
        self.clock = clock or SystemClock()
        self._store_options = store_options
        self._root = root
        self._disk = disk or LocalFileSystem()
        self._progress = progress
        self._kept_options = kept_options
        self._overridden = overridden or {}
        tls = tls or TlsOptions()
        self._membership = Membership(
            options.name,
            self.access,
            allow_strangers=options.ha_allow_unauthenticated,
            verifies_tls=tls.verifies_servers,
        )
        self._tls = ServerTls(tls, options.host, options.ha_host, options.bind)
        self._outgoing_tls = open_outgoing(tls)
        self._caller = Caller(tls=self._outgoing_tls, credentials=self.access.options.credentials)
        # How to stop what `start` has started; the last entry is stopped first.
        self._endings: list[Callable[[], Awaitable[None]]] = []
        # What the broker is doing until it is ready; empty while it serves.
        self._pending = _STOPPED

    @property
    def options(self) -> BrokerOptions:
        """The options in force."""
        return self.live.now

    # -- starting ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, listen, register. A start that fails or is cancelled leaves nothing behind."""
        try:
            self._pending = "the address of brokerIP1 is being looked up"
            self.standing = Standing(self.options, await find_ip(self.options.host))
            self.standing.listen(self.options.port)
            self._pending = "its store is being opened"
            # A misconfiguration is reported before anything else is started.
            self._endings.append(self._tls.stop)
            await self._tls.start()
            if self._outgoing_tls is not None:
                await self._outgoing_tls.get_context()
            self._endings.append(self.access.stop)
            await self.access.start()
            etcd = await self._open_etcd() if self.options.failover else None
            await self._open_store()
            await finish_in_thread(self._load_tables)
            self._build_services()
            self._build_pulling()
            self._build_replication(etcd)
            self._build_observing()
            self._build_ports()
            self._pending = "it is taking on its role and opening its ports"
            await self._begin()
        except BaseException:
            # Release ports and files, so that the start can be retried.
            await self.stop()
            raise
        log.info(
            "broker %s of cluster %s is listening at %s", self.options.name, self.options.cluster, self.standing.address
        )

    async def _open_etcd(self) -> EtcdClient:
        etcd = await open_client(self.options)
        self._endings.append(etcd.close)
        return etcd

    async def _open_store(self) -> None:
        executor = ThreadPoolExecutor(2, thread_name_prefix="eruca-segments")
        self._endings.append(partial(asyncio.to_thread, executor.shutdown))
        self.store = await open_in_thread(
            self._root,
            self._store_options,
            disk=self._disk,
            clock=self.clock,
            executor=executor,
            progress=self._progress,
            commitlog=Path(self.options.commitlog_path) if self.options.commitlog_path else None,
        )
        self._endings.append(self._close_store)

    async def _begin(self) -> None:
        """Take on the role, open the ports and register."""
        self._endings.append(self._save_tables)
        self.background.start()
        self._endings += [self.background.stop, self._caller.close, self.ports.close, self._release_waiting]
        self._endings.append(self.replication.stop)
        await self.replication.decide()
        self.standing.listen(await self.ports.open())
        await self.replication.open()
        self._endings.append(self.registration.stop)
        await self.registration.start()
        self._endings.append(self.replication.leave_election)
        await self.replication.join_election()
        self._endings += [self.housekeeping.stop, self._topic_notices.stop]
        self.housekeeping.start()
        self._topic_notices.start()
        self._endings.append(self._figures.stop)
        self._pending = ""

    # -- building, bottom-up -----------------------------------------------------------------------------------------

    def _load_tables(self) -> None:
        """Load the tables from disk; runs in a thread."""
        options, standing, clock, store = self.live, self.standing, self.clock, self.store
        self.tables = tables = Tables(self._disk, store.paths.config)
        self.saver = saver = TableSaver()
        longest = self._store_options.topic_bytes_max
        self.topics = topics = Topics(options, standing, clock, tables.topics.load(), name_length_max=longest)
        saver.add("topics", tables.topics, topics.snapshot_to_save, topics.note_saved)
        topics.changed.listen(partial(saver.mark, "topics"))
        self.groups = groups = Groups(options, standing, clock, tables.groups.load())
        saver.add("groups", tables.groups, groups.snapshot)
        groups.changed.listen(partial(saver.mark, "groups"))
        rules = OffsetRules(options, groups, topics, store)
        self.offsets = Offsets(options, tables.consumer_offsets.load(), rules.check)
        self.offsets.bound_done(store.queues.find_end)
        saver.add("offsets", tables.consumer_offsets, self.offsets.snapshot)
        self.once = load_once(options, store, saver)
        self._known_members = open_members(self._disk, store.paths.config).load()

    def _build_services(self) -> None:
        """Build the services that use the store, whatever the role."""
        options, standing, clock, store = self.live, self.standing, self.clock, self.store
        topics, saver = self.topics, self.saver
        #: When it was started, by the wall clock.
        self.started_ms = clock.now_ms()
        #: Flushes, commits and deletes in the background.
        self.background = StoreBackground(store)
        group_commit, sync = self.background.group_commit, self.background.sync
        self.stats = stats = Stats(options.now.cluster, clock)
        tell_members = GroupNotices(options, self.groups).tell
        self.clients = Clients(clock, tell_members, options.now.heartbeats_bytes_max)
        self.locks = QueueLocks(clock, options)
        reads = ReadLimit(options, standing, store, self._known_members.confirmed)
        gate = Gate(clock) if options.now.failover else None
        self.acknowledgement = Acknowledgement(options, standing, store, group_commit, stats.put_times, reads, gate)
        self._steady = steady = SteadyTime(clock, store)
        self._cancellations = Cancellations(options, clock)
        #: Deliver delayed messages: at any time, and by levels.
        self.timing = Timing(options, standing, clock, store, sync, stats, steady, self._cancellations)
        file = self.tables.delay_offsets
        self.schedule = Schedule(options, standing, store, sync, stats, saver, steady, file, self.timing)
        self._decisions = Decisions(standing, clock, store, stats)
        #: Asks producers about half messages.
        self.checks = CheckBackService(
            options,
            standing,
            store,
            sync,
            topics,
            self.offsets,
            self.clients,
            stats,
            saver,
            steady,
            self._decisions,
            self.access.may_publish,
        )
        self.filter_servers = FilterServers(options, standing, clock)
        self.registration = Registration(options, standing, topics, self.filter_servers, self._caller)
        self._topic_notices = TopicNotices(self.clients, self.registration.announce)
        topics.created.listen(self._topic_notices.note)

    def _build_pulling(self) -> None:
        """Build the parts that serve and hold pulls, and those that wake held pulls."""
        reads = self.acknowledgement.reads
        self.pull = PullHandlers(
            self.live,
            self.standing,
            self.clock,
            self.store,
            self.topics,
            self.groups,
            self.offsets,
            self.clients,
            self.stats,
            reads,
        )
        self.store.dispatched.listen(Arrivals(self.store, reads, self.pull.holds).on_dispatched)
        parts = (self.live, self.standing, self.store, self.topics, self.groups, self.offsets, self.stats)
        safe, sync = self.acknowledgement, self.background.sync
        #: Messages that any member of a group may have, until they are acknowledged.
        self.popping = build_popping(*parts, self._steady, safe, self.pull.filters, sync)

    def _build_replication(self, etcd: EtcdClient | None) -> None:
        """Build the parts that deal with the other members of this name, and decide who is the master."""
        store, topics, offsets, schedule, timing = self.store, self.topics, self.offsets, self.schedule, self.timing
        popping = self.popping.redelivery
        self.replication = Replication(
            self.live,
            self.standing,
            self.clock,
            store,
            self.background.group_commit,
            self.saver,
            self._caller,
            self.acknowledgement,
            self.registration,
            Services(store, topics, offsets, self.once, schedule, timing, self.checks, self.pull.holds, popping),
            CopiedTables(topics, self.groups, offsets, schedule, timing),
            self._known_members,
            self._membership,
            etcd,
            port_tls=self._tls,
            outgoing_tls=self._outgoing_tls,
        )

    def _build_observing(self) -> None:
        """Build what shows the figures of this broker, at operators' request and to monitoring systems."""
        options, standing, clock, store = self.live, self.standing, self.clock, self.store
        clients, stats = self.clients, self.stats
        delays, state = self.schedule.snapshot, self.replication.describe
        self._runtime = RuntimeHandlers(
            options, clock, self.started_ms, store, clients, self.once, stats, delays, state
        )
        self._figures = BrokerFigures(
            options,
            standing,
            clock,
            store,
            self.topics,
            self.groups,
            self.offsets,
            clients,
            stats,
            self.pull.holds,
            self.popping.service,
            self.acknowledgement,
            self.schedule,
            self.timing,
            self.checks,
            self._decisions,
            self.once,
            self.registration,
            self.replication,
            self._runtime,
        )

    def _build_ports(self) -> None:
        """Build the handlers, the ports that serve them, and the periodic jobs."""
        table = HandlerTable(self.access.guard(partial(read_topic, self.store)))
        for handlers in (*self._make_client_handlers(), *self.replication.handlers, *self._make_admin_handlers()):
            handlers.register(table)
        self._membership.prove_answers(table)
        self.ports = Ports(self.live, table, self._on_link_close, self._tls)
        self.housekeeping = Housekeeping(
            self.options,
            self.pull.holds,
            self.offsets,
            self.once,
            self.saver,
            self.clients,
            self.filter_servers,
            self.locks,
            self.stats,
            self.replication,
        )

    def _make_client_handlers(self) -> tuple[Handlers, ...]:
        """Build the handlers for producers and consumers."""
        options, standing, clock, store = self.live, self.standing, self.clock, self.store
        topics, groups, clients, stats = self.topics, self.groups, self.clients, self.stats
        safe = self.acknowledgement
        drafting = Drafting(options, standing, clock, store, topics, groups, self._cancellations)
        answers = SendAnswers(options, store, topics, self.saver, safe)
        return (
            SendHandlers(standing, store, stats, self.once, drafting, answers),
            SendBackHandlers(options, standing, clock, store, topics, groups, stats, safe),
            ReplyHandlers(options, standing, clock, store, clients, stats, safe, drafting),
            TransactionHandlers(options, standing, store, stats, safe, self._decisions),
            self.pull,
            self.popping.handlers,
            QueryHandlers(options, store, clients, self.pull.pieces),
            ClientHandlers(options, store, topics, groups, self.offsets, clients, safe.reads, self.pull.filters),
            LockHandlers(self.locks),
            self.filter_servers,
        )

    def _make_admin_handlers(self) -> tuple[Handlers, ...]:
        """Build the handlers for operators and their tools."""
        options, standing, clock, store = self.live, self.standing, self.clock, self.store
        topics, groups, offsets, clients = self.topics, self.groups, self.offsets, self.clients
        background, saver, stats, locks = self.background, self.saver, self.stats, self.locks
        operators, announce = Operators(standing), self.registration.announce
        started_ms, delays = self.started_ms, self.schedule.snapshot
        safe, kept, overridden = self.acknowledgement, self._kept_options, self._overridden
        popping = self.popping.redelivery
        return (
            TopicHandlers(
                options, store, background, topics, offsets, stats, saver, locks, operators, announce, popping
            ),
            GroupHandlers(clock, groups, offsets, clients, stats, saver, locks, operators, popping),
            ProgressHandlers(options, standing, clock, store, topics, groups, offsets, clients, stats, delays),
            RelayHandlers(options, store, topics, offsets, clients, self.access.may_subscribe),
            ConfigHandlers(
                options,
                standing,
                clock,
                started_ms,
                store,
                background,
                topics,
                safe,
                kept,
                overridden,
                self.access.options,
            ),
            self._runtime,
            AccountHandlers(self.access, clock, self._describe),
        )

    def _describe(self) -> Whereabouts:
        return Whereabouts(self.options.name, self.standing.address, self.options.cluster)

    def _on_link_close(self, link: Link) -> None:
        self.clients.drop_link(link)
        self.pull.holds.drop_link(link)
        self.filter_servers.drop_link(link)

    def look_again(self) -> None:
        """Check for changes the files that are read while it runs: certificates."""
        self._tls.look_again()

    # -- observing ---------------------------------------------------------------------------------------------------

    def list_obstacles(self) -> list[str]:
        """List the reasons why it is not ready; empty if it is."""
        return [self._pending] if self._pending else self._figures.list_obstacles()

    async def collect_figures(self, rows_max: int) -> AsyncIterator[Figures]:
        """Yield the figures of this broker for monitoring; none until it has started."""
        if not self._pending:
            async for figures in self._figures.collect(rows_max):
                yield figures

    # -- stopping ----------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Unregister, close the ports, save and close everything, including the parts of a failed start."""
        self._pending = _STOPPED
        errors: list[BaseException] = []
        while self._endings:
            try:
                await self._endings.pop()()
            except BaseException as error:  # the remaining parts are still stopped
                errors.append(error)
        for other in errors:
            if not isinstance(other, StoreError):
                raise other
        if errors:
            raise StoreError("; ".join(map(str, errors))) from errors[0]

    async def _release_waiting(self) -> None:
        """Reply to requests that wait for an acknowledgement or for messages."""
        self.acknowledgement.abandon()
        self.pull.holds.release_all()
        self.popping.service.waiting.release_all()

    async def _save_tables(self) -> None:
        self.once.finish()
        await self.saver.close()

    async def _close_store(self) -> None:
        await asyncio.to_thread(self.store.close)
        log.info("broker %s stopped", self.options.name)

"""Collects the figures of a broker, in slices, from the tables that it has anyway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice

from eruca._broker.administering.runtime import DiskFacts, RuntimeHandlers, look_at_disk
from eruca._broker.administering.stats import QueueSeries, Stats
from eruca._broker.delaying.schedule import Schedule
from eruca._broker.delaying.timing import Timing
from eruca._broker.groups.clients import Clients
from eruca._broker.groups.groups import Groups
from eruca._broker.groups.offsets import Offsets
from eruca._broker.groups.progress import find_ends
from eruca._broker.observing.clientfigures import ClientFigures
from eruca._broker.observing.exporter import ExporterTables
from eruca._broker.observing.own import OwnTables
from eruca._broker.observing.progress import QUEUES_MAX, ProgressReader
from eruca._broker.observing.readiness import list_obstacles
from eruca._broker.observing.rocketmq5 import Rocketmq5Tables, StorageFacts
from eruca._broker.observing.runtimefigures import read_runtime
from eruca._broker.options import LiveOptions
from eruca._broker.popping.service import PopService
from eruca._broker.pulling.hold import Holds
from eruca._broker.registering.registration import Registration
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.replication.replication import Replication
from eruca._broker.sending.once import Once
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._broker.transactions.checkback import CheckBackService
from eruca._broker.transactions.decisions import Decisions
from eruca._ground.clock import Clock
from eruca._net.turns import Slices, find_turns
from eruca._observe.figures import Figures
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import ReplicationState
from eruca._wire.names import DLQ_PREFIX, MASTER


class BrokerFigures:
    """Collects them, and knows whether the broker is ready."""

    def __init__(
        self,
        options: LiveOptions,
        standing: Standing,
        clock: Clock,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        clients: Clients,
        stats: Stats,
        holds: Holds,
        popping: PopService,
        acknowledgement: Acknowledgement,
        schedule: Schedule,
        timing: Timing,
        checks: CheckBackService,
        decisions: Decisions,
        once: Once,
        registration: Registration,
        replication: Replication,
        runtime: RuntimeHandlers,
    ) -> None:
        self._options = options
        self._standing = standing
        self._store = store
        self._topics = topics
        self._groups = groups
        self._stats = stats
        self._holds = holds
        self._acknowledgement = acknowledgement
        self._schedule = schedule
        self._timing = timing
        self._checks = checks
        self._decisions = decisions
        self._registration = registration
        self._replication = replication
        self._runtime = runtime
        cluster, name = options.now.cluster, options.now.name
        self._progress = ProgressReader(clock, store, topics, offsets, clients, stats, popping.count_in_flight)
        self._members = ClientFigures(options, clock, clients)
        self._exporter = ExporterTables(cluster, name, store, offsets, clients, stats)
        self._rocketmq5 = Rocketmq5Tables(cluster, name, clients, stats)
        self._own = OwnTables(cluster, name, standing, store, clients, registration, replication, checks, once)

    def list_obstacles(self) -> list[str]:
        """List the reasons why the broker is not ready; empty if it is."""
        state = self._replication.describe()
        return list(list_obstacles(self._options.now, self._standing, self._store, self._registration, state))

    async def collect(self, rows_max: int) -> AsyncIterator[Figures]:
        """Yield all figures, with about this many rows each; it gives others their turn in between."""
        state = self._replication.describe()
        disk = await asyncio.get_running_loop().run_in_executor(None, look_at_disk, self._store)
        for figures in self._list_broker(state, disk):
            yield figures
        if state.role != MASTER:
            return  # its master shows topics and groups; both would be counted twice
        slices = Slices()
        async for figures in self._list_topics(rows_max, slices):
            yield figures
        async for figures in self._list_groups(rows_max, slices):
            yield figures
        await slices.rest()
        self._members.want()
        for figures in self._exporter.list_members(self._members.found, self._members.left_out):
            yield figures

    async def stop(self) -> None:
        """End what collecting has started."""
        await self._members.stop()

    def _list_broker(self, state: ReplicationState, disk: DiskFacts) -> Iterator[Figures]:
        options, acknowledgement = self._options.now, self._acknowledgement
        table = self._runtime.collect(disk)
        yield from read_runtime(table, options.cluster, state.address, options.host)
        yield from self._exporter.list_brokers(state)
        waiting = {
            "send": acknowledgement.waiting,
            "pull": self._holds.waking,
            "admin": find_turns(asyncio.get_running_loop()).queued,
        }
        topics, groups = len(self._topics), len(self._groups)
        yield from self._rocketmq5.list_broker(waiting, options.permission, topics, groups)
        oldest_ms = int(table["earliestMessageTimeStamp"])
        facts = StorageFacts(
            used_bytes=disk.total_bytes - disk.free_bytes,
            flush_behind=self._store.flusher.waiting_bytes,
            dispatch_behind=int(table["dispatchBehindBytes"]),
            oldest_ms=None if oldest_ms <= 0 else max(0, self._store.clock.now_ms() - oldest_ms),
        )
        yield from self._rocketmq5.list_storage(facts, self._timing.describe())
        yield from self._rocketmq5.list_transactions(self._decisions.latency, self._checks.count_halves())
        yield from self._own.list_broker(state, acknowledgement.waiting, self._stats.put_failures)
        yield from self._own.list_delays(self._schedule.snapshot())
        yield from self._own.list_store(disk)

    # -- topics ------------------------------------------------------------------------------------------------------

    async def _list_topics(self, rows_max: int, slices: Slices) -> AsyncIterator[Figures]:
        ends = await self._find_ends(rows_max, slices)
        left_out = len(self._topics) - len(ends)
        for figures in self._exporter.list_offsets(ends):
            yield figures._replace(left_out=left_out)
        dead = [(topic, end) for topic, end in ends if topic.startswith(DLQ_PREFIX)]
        for figures in (*self._exporter.list_dead([topic for topic, _ in dead]), *self._rocketmq5.list_dead(dead)):
            yield figures
        await slices.rest()
        known = self._stats.list_puts()
        puts = known[:rows_max]
        await _add_up([queues for _, queues in puts], slices)
        for figures in self._exporter.list_puts(puts, len(known) - len(puts)):
            yield figures
            await slices.rest()
        for figures in self._rocketmq5.list_puts(puts, len(known) - len(puts)):
            yield figures
            await slices.rest()
        for figures in (*self._exporter.list_producers(), *self._rocketmq5.list_connections()):
            yield figures

    async def _find_ends(self, rows_max: int, slices: Slices) -> list[tuple[str, int]]:
        """Add up the ends of the queues of each topic."""
        ends: list[tuple[str, int]] = []
        queues_left = QUEUES_MAX
        for name in islice(self._topics.names(), rows_max):
            topic = self._topics.get(name)
            if topic is None:
                continue
            queues = max(topic.write_queue_nums, topic.read_queue_nums)
            queues_left -= queues
            if queues_left < 0:
                break
            total = 0
            for queue_id in range(queues):
                total += find_ends(self._store, name, queue_id)[1]
                if slices.is_over:
                    await slices.rest()
            ends.append((name, total))
        return ends

    # -- groups ------------------------------------------------------------------------------------------------------

    async def _list_groups(self, rows_max: int, slices: Slices) -> AsyncIterator[Figures]:
        known = self._stats.list_gets()
        gets = known[:rows_max]
        await _add_up([queues for _, _, queues in gets], slices)
        for figures in self._exporter.list_gets(gets, len(known) - len(gets)):
            yield figures
            await slices.rest()
        for figures in (*self._rocketmq5.list_gets(gets, len(known) - len(gets)), *self._exporter.list_send_backs()):
            yield figures
            await slices.rest()
        progress, left_out = await self._progress.read(rows_max)
        for figures in self._exporter.list_progress(progress, left_out):
            yield figures
            await slices.rest()
        for figures in self._rocketmq5.list_progress(progress, left_out):
            yield figures
            await slices.rest()
        for figures in self._exporter.list_groups([each.group for each in progress]):
            yield figures


async def _add_up(series: list[QueueSeries], slices: Slices) -> None:
    """Add up the queues of each topic, as of now."""
    for queues in series:
        queues.add_up()
        if slices.is_over:
            await slices.rest()

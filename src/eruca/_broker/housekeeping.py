"""Periodic jobs of a broker in any role: held pulls, offsets, silent clients, locks, statistics."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._broker.administering.stats import Stats
from eruca._broker.groups.clients import Clients
from eruca._broker.groups.locks import QueueLocks
from eruca._broker.groups.offsets import Offsets
from eruca._broker.options import BrokerOptions
from eruca._broker.pulling.hold import Holds
from eruca._broker.registering.filterservers import FilterServers
from eruca._broker.replication.replication import Replication
from eruca._broker.sending.once import Once
from eruca._ground.repeating import Repeating
from eruca._net.heap import HeapWatch
from eruca._net.turns import Slices
from eruca._store.tables.saving import TableSaver

_HOLD_SCAN_S = 0.2
_SAMPLE_S = 1.0
# How often expired locks are removed; clients that want a queue check for expiry themselves.
_LOCK_SWEEP_S = 60.0


@dataclass(eq=False)
class Housekeeping:
    """The timers of one broker."""

    _options: BrokerOptions
    _holds: Holds
    _offsets: Offsets
    _once: Once
    _saver: TableSaver
    _clients: Clients
    _filter_servers: FilterServers
    _locks: QueueLocks
    _stats: Stats
    _replication: Replication

    def __post_init__(self) -> None:
        self._scans = 0
        self._heap = HeapWatch()
        self._saved_version = self._offsets.version
        self._timers = [
            Repeating("scanning held pulls", self._scan_holds, lambda: _HOLD_SCAN_S),
            Repeating("saving offsets", self._save_offsets, lambda: self._options.offsets_interval_ms / 1000),
            Repeating("removing silent clients", self._expire_clients, lambda: self._options.client_scan_ms / 1000),
            Repeating("sampling statistics", self._sample, lambda: _SAMPLE_S),
            Repeating("removing expired locks", self._sweep_locks, lambda: _LOCK_SWEEP_S),
        ]

    def start(self) -> None:
        """Start; needs a running loop."""
        for timer in self._timers:
            timer.start()

    async def stop(self) -> None:
        """End."""
        for timer in self._timers:
            await timer.stop()

    async def _scan_holds(self) -> None:
        self._scans += 1
        scans_between = max(1, round(self._options.hold_scan_ms / 1000 / _HOLD_SCAN_S))
        await self._heap.look(self._holds.weight)
        slices = Slices()
        for _ in self._holds.scan(unmatched=self._scans % scans_between == 0):
            if slices.is_over:
                await slices.rest()

    async def _save_offsets(self) -> None:
        if self._offsets.version != self._saved_version:
            self._saved_version = self._offsets.version
            self._saver.mark("offsets")
        self._once.save_if_changed()
        self._replication.save_if_moved()

    async def _expire_clients(self) -> None:
        self._clients.expire(self._options.client_timeout_ms)
        self._filter_servers.expire()

    async def _sample(self) -> None:
        self._stats.tick()
        self._replication.measure()

    async def _sweep_locks(self) -> None:
        self._locks.remove_expired()

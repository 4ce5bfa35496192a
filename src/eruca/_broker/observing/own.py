"""Metrics of a broker that RocketMQ does not have: the log, the disk, syncs, registration, failover, delayed delivery.

Those of replication are in `replication.meters`, those of the limits of a server in `net.meters`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from eruca._broker.administering.runtime import DiskFacts
from eruca._broker.groups.clients import Clients
from eruca._broker.groups.progress import find_ends
from eruca._broker.registering.registration import Registration
from eruca._broker.replication.replication import Replication
from eruca._broker.sending.once import Once
from eruca._broker.standing import Standing
from eruca._broker.transactions.checkback import CheckBackService
from eruca._ground.config import parse_delay_levels
from eruca._observe.figures import Description, Figures, Kind, Row, read_value
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import DelayOffsets, ReplicationState
from eruca._wire.names import MASTER, SCHEDULE_TOPIC

_BROKER: Final = ("cluster", "broker", "member")
_HOUR_S: Final = 3600


def _gauge(name: str, help_text: str, *labels: str) -> Description:
    return Description(f"eruca_{name}", Kind.GAUGE, help_text, (*_BROKER, *labels))


def _counter(name: str, help_text: str) -> Description:
    return Description(f"eruca_{name}_total", Kind.COUNTER, help_text, _BROKER)


WRITABLE: Final = _gauge("broker_writable", "1 while producers can store messages here.")
REQUIRED: Final = _gauge("broker_replication_copies_required", "Copies that a send waits for, the master's included.")
COPIES: Final = _gauge("broker_replication_copies", "Copies that are in sync, the master's included.")
NAMESERVERS: Final = _gauge("broker_nameservers", "Name servers that this broker registers with.")
REGISTERED: Final = _gauge("broker_nameservers_registered", "Those that accepted its last registration.")
ETCD: Final = _gauge("broker_etcd_reachable", "1 while etcd answers; only with failover=etcd.")
WAITING: Final = _gauge("broker_acknowledgements_waiting", "Sends that wait for disk or slaves.")
DELAYED: Final = _gauge("broker_delayed_messages", "Messages of a delay level that are not delivered yet.", "level")
ORPHANS: Final = _gauge(
    "broker_halves_without_producer", "Undecided half messages of which no producer is connected to be asked."
)
GIVEN_UP: Final = _counter("broker_halves_given_up", "Half messages that were undecided for too long.")
CONFLICTS: Final = _gauge(
    "broker_group_conflicts", "Groups with duplicate client ids or with members that subscribe differently."
)
DROPPED: Final = _counter("broker_duplicates_dropped", "Messages of idempotent senders that were stored already.")
FAILED: Final = _counter("broker_put_failures", "Messages that could not be stored.")
LOG_START: Final = _gauge("store_log_start_bytes", "The start of the commit log.")
LOG_END: Final = _gauge("store_log_end_bytes", "The end of the commit log.")
RETENTION: Final = _gauge("store_retention_seconds", "How long messages are kept (fileReservedTime).")
QUEUES: Final = _gauge("store_queues", "Number of consume queues.")
FULL: Final = _gauge("store_full", "1 while messages are refused because the disk is too full.")
DAMAGED: Final = _gauge("store_damaged_ranges", "Parts of the commit log that cannot be read.")
DISK_TOTAL: Final = _gauge("store_disk_bytes", "Size of the disk of the store.")
DISK_FREE: Final = _gauge("store_disk_free_bytes", "Free bytes of that disk.")
# Not the rest of both: blocks that are reserved for root are neither used nor free.
DISK_USED: Final = _gauge("store_disk_used_ratio", "How full that disk is, 0 to 1, as diskMaxUsedSpaceRatio counts.")
SYNCS: Final = Description(
    "eruca_store_sync_seconds", Kind.HISTOGRAM, "How long syncs of the commit log to disk took.", _BROKER
)
SYNC_FAILURES: Final = _counter("store_sync_failures", "Syncs of the commit log that failed.")
APPEND_WAIT: Final = _gauge(
    "store_append_wait_seconds_max", "The longest time that an append waited for a new segment since the start."
)


@dataclass(frozen=True, slots=True)
class OwnTables:
    """Makes the figures."""

    _cluster: str
    _broker: str
    _standing: Standing
    _store: MessageStore
    _clients: Clients
    _registration: Registration
    _replication: Replication
    _checks: CheckBackService
    _once: Once

    @property
    def _labels(self) -> tuple[str, str, str]:
        return self._cluster, self._broker, self._standing.address

    def _show(self, values: Iterable[tuple[Description, float]]) -> Iterator[Figures]:
        labels = self._labels
        for about, value in values:
            yield Figures(about, [(labels, value)])

    def list_broker(self, state: ReplicationState, waiting: int, failures: int) -> Iterator[Figures]:
        """Yield what concerns the role of the broker, and its surroundings."""
        registration, failover = self._registration, self._replication.failover
        yield from self._show(
            [
                (WRITABLE, int(state.writable)),
                (NAMESERVERS, len(registration.nameservers.addresses)),
                (REGISTERED, len(registration.accepted)),
                (WAITING, waiting),
                (ORPHANS, self._checks.orphans),
                (GIVEN_UP, self._checks.given_up),
                (CONFLICTS, len(self._clients.conflicts)),
                (DROPPED, self._once.dropped),
                (FAILED, failures),
            ]
        )
        if state.role == MASTER:
            copies = 1 + sum([slave.in_sync for slave in state.slaves])
            yield from self._show([(REQUIRED, state.required), (COPIES, copies)])
        if failover is not None:
            yield from self._show([(ETCD, int(not failover.is_out_of_reach))])

    def list_delays(self, delays: DelayOffsets) -> Iterator[Figures]:
        """Yield the delay levels."""
        rows: list[Row] = []
        for level in range(1, len(parse_delay_levels(self._store.options.delay_levels)) + 1):
            first, end = find_ends(self._store, SCHEDULE_TOPIC, level - 1)
            if end:
                done = max(first, delays.offset_table.get(level, 0))
                rows.append(((*self._labels, str(level)), max(0, end - done)))
        yield Figures(DELAYED, rows)

    def list_store(self, disk: DiskFacts) -> Iterator[Figures]:
        """Yield what concerns the store."""
        store = self._store
        yield from self._show(
            [
                (LOG_START, store.log.start),
                (LOG_END, store.log.readable_end),
                (RETENTION, store.options.retention_hours * _HOUR_S),
                (QUEUES, len(store.queues)),
                (FULL, int(bool(store.full_reason))),
                (DAMAGED, len(store.damage.items)),
                (DISK_TOTAL, disk.total_bytes),
                (DISK_FREE, disk.free_bytes),
                (DISK_USED, max(0.0, disk.log_ratio)),
                (SYNC_FAILURES, store.flusher.sync_failures),
                (APPEND_WAIT, store.log.append_wait_ms_max / 1000),
            ]
        )
        yield Figures(SYNCS, [(self._labels, read_value(store.flusher.sync_times))])

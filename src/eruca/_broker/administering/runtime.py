"""Runtime metrics of a broker, under the names that Java's tools and the exporter expect."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from eruca._broker.administering.javakeys import IGNORED
from eruca._broker.administering.rates import RATE_SPANS
from eruca._broker.administering.stats import Stats
from eruca._broker.groups.clients import Clients
from eruca._broker.groups.progress import find_ends
from eruca._broker.options import LiveOptions
from eruca._broker.sending.once import Once
from eruca._ground.clock import Clock
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import DelayOffsets, KVTable, ReplicationState
from eruca._wire.codes import VERSION_ANNOUNCED, RequestCode
from eruca._wire.fastjson import write_double
from eruca._wire.names import CONFLICTS_PREFIX, SCHEDULE_TOPIC
from eruca._wire.once import ONCE_KEY, ONCE_VERSION
from eruca._wire.record import RecordView, inspect_record
from eruca.errors import StoreError

_VERSION_TEXT: Final = "V4_9_7"
# What Java reports when there is no buffer pool that could run out.
_NO_POOL: Final = 2**31 - 1
# Groups whose conflicts are listed, and of each: clients can make any number, and the answer must fit in a frame.
_CONFLICTS_MAX: Final = 100
_PROBLEMS_MAX: Final = 2
_UNITS: Final = "KMGTPE"
_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """Disk usage, read in a thread."""

    log_ratio: float
    queue_ratio: float
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class RuntimeHandlers:
    """Handles requests for the broker's runtime metrics."""

    _options: LiveOptions
    _clock: Clock
    _started_ms: int
    _store: MessageStore
    _clients: Clients
    _once: Once
    _stats: Stats
    _list_delay_offsets: Callable[[], DelayOffsets]
    # The role of this broker among the members of its name.
    _find_state: Callable[[], ReplicationState]

    def register(self, table: HandlerTable) -> None:
        """Register the handler."""
        table.add(RequestCode.GET_BROKER_RUNTIME_INFO, self.describe)

    async def describe(self, request: Request) -> Reply:
        """Return all metrics."""
        disk = await asyncio.get_running_loop().run_in_executor(None, look_at_disk, self._store)
        return Reply(body=KVTable(table=self.collect(disk)))

    def collect(self, disk: DiskFacts) -> dict[str, str]:
        """Collect the metrics by name."""
        return {
            "bootTimestamp": str(self._started_ms),
            "runtime": write_duration(self._clock.now_ms() - self._started_ms),
            "brokerVersion": str(int(VERSION_ANNOUNCED)),
            "brokerVersionDesc": _VERSION_TEXT,
            "startAcceptSendRequestTimeStamp": str(self._options.now.accept_sends_from_ms),
            **self._describe_traffic(self._stats),
            **self._describe_store(self._store, disk),
            **self._describe_delays(self._list_delay_offsets()),
            **_describe_pools(),
            **self._describe_replication(),
            # Eruca only: tells a sink that this broker drops duplicates of messages it has already stored.
            ONCE_KEY: str(ONCE_VERSION),
            "erucaOnceDropped": str(self._once.dropped),
            **self._describe_conflicts(),
        }

    def _describe_conflicts(self) -> dict[str, str]:
        """Eruca only, and only if there are any: groups with duplicate ids or differing subscriptions."""
        conflicts = islice(self._clients.conflicts.items(), _CONFLICTS_MAX)
        return {f"{CONFLICTS_PREFIX}{name}": "; ".join(found[:_PROBLEMS_MAX]) for name, found in conflicts}

    def _describe_replication(self) -> dict[str, str]:
        """Eruca only, since Java's broker reports nothing about its slaves: the role, and the lag of each slave."""
        state = self._find_state()
        table = {"erucaRole": state.role, "erucaEpoch": str(state.epoch), "erucaSlaves": str(len(state.slaves))}
        if state.master is not None:
            table["erucaLagBytes"], table["erucaLagMs"] = str(state.master.lag_bytes), str(state.master.lag_ms)
        for slave in state.slaves:
            table[f"erucaSlaveLagBytes_{slave.address}"] = str(slave.lag_bytes)
            table[f"erucaSlaveLagMs_{slave.address}"] = str(slave.lag_ms)
        return table

    def _describe_traffic(self, stats: Stats) -> dict[str, str]:
        times = stats.put_times
        waited_ms = max(times.max_ms, int(self._store.log.append_wait_ms_max))
        return {
            "msgPutTotalYesterdayMorning": str(stats.put_yesterday_morning),
            "msgPutTotalTodayMorning": str(stats.put_morning),
            "msgPutTotalTodayNow": str(stats.put_total),
            "msgGetTotalYesterdayMorning": str(stats.get_yesterday_morning),
            "msgGetTotalTodayMorning": str(stats.get_morning),
            "msgGetTotalTodayNow": str(stats.get_total),
            "putMessageTimesTotal": str(stats.put_total),
            "putMessageFailedTimes": str(stats.put_failures),
            "putMessageSizeTotal": str(stats.put_bytes),
            "putMessageAverageSize": write_double(stats.put_bytes / max(1, stats.put_total)),
            "putMessageEntireTimeMax": str(waited_ms),
            "putMessageDistributeTime": times.describe(),
            "putLatency99": f"{times.quantile(0.99):.2f}",
            "putLatency999": f"{times.quantile(0.999):.2f}",
            "getMessageEntireTimeMax": str(stats.get_ms_max),
            "putTps": _write_rates(stats, "put"),
            "getFoundTps": _write_rates(stats, "found"),
            "getMissTps": _write_rates(stats, "missed"),
            "getTransferedTps": _write_rates(stats, "transferred"),
            "getTotalTps": _write_total_rates(stats),
        }

    @staticmethod
    def _describe_store(store: MessageStore, disk: DiskFacts) -> dict[str, str]:
        log = store.log
        table = {
            "commitLogMinOffset": str(log.start),
            "commitLogMaxOffset": str(log.readable_end),
            "commitLogDiskRatio": _write_ratio(disk.log_ratio),
            f"commitLogDiskRatio_{store.paths.commitlog}": _write_ratio(disk.log_ratio),
            "consumeQueueDiskRatio": _write_ratio(disk.queue_ratio),
            "commitLogDirCapacity": f"Total : {write_bytes(disk.total_bytes)}, Free : {write_bytes(disk.free_bytes)}.",
            # Entries are written with the record, except while records wait in the transient buffer.
            "dispatchBehindBytes": str(log.tail - log.readable_end),
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(read_earliest_time(store)),
            "pageCacheLockTimeMills": "0",  # there is no append lock to wait for
            "remainHowManyDataToFlush": write_bytes(store.flusher.waiting_bytes),
            "remainTransientStoreBufferNumbs": str(_NO_POOL),
        }
        waiting = log.waiting_bytes
        if waiting is not None:
            used = math.ceil(waiting / store.options.commitlog_segment_bytes)
            table["remainTransientStoreBufferNumbs"] = str(max(0, store.options.transient_pool_size - used))
            table["remainHowManyDataToCommit"] = write_bytes(waiting)
        return table

    def _describe_delays(self, delays: DelayOffsets) -> dict[str, str]:
        table: dict[str, str] = {}
        for level, offset in sorted(delays.offset_table.items()):
            end = find_ends(self._store, SCHEDULE_TOPIC, level - 1)[1]
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return table


def look_at_disk(store: MessageStore) -> DiskFacts:
    """Read how full the disk is; blocks."""
    try:
        usage = shutil.disk_usage(store.paths.root)
        total, free = usage.total, usage.free
    except OSError:
        total = free = 0  # the store is not on a disk of this machine
    return DiskFacts(
        log_ratio=_ask_ratio(store, store.paths.commitlog),
        queue_ratio=_ask_ratio(store, store.paths.consumequeue),
        total_bytes=total,
        free_bytes=free,
    )


def _ask_ratio(store: MessageStore, path: Path) -> float:
    try:
        return store.disk.used_ratio(path)
    except StoreError:
        return -1.0  # as Java reports for a missing path


def read_earliest_time(store: MessageStore) -> int:
    """Return the store time of the oldest record in the log; -1 if the log is empty."""
    record = store.reader.view_record(store.log.start)
    view = None if record is None else inspect_record(record, 0, len(record), False)
    return view.store_timestamp if type(view) is RecordView else -1


def _describe_pools() -> dict[str, str]:
    """Describe thread pools that do not exist here: nothing is queued, and the limits are Java's."""
    table = {"EndTransactionQueueSize": "0"}
    table["EndTransactionThreadPoolQueueCapacity"] = IGNORED["endTransactionPoolQueueCapacity"][0]
    for pool in ("send", "pull", "query"):
        table[f"{pool}ThreadPoolQueueSize"] = "0"
        table[f"{pool}ThreadPoolQueueCapacity"] = IGNORED[f"{pool}ThreadPoolQueueCapacity"][0]
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return table


def _write_rates(stats: Stats, column: str) -> str:
    """Format the rates over 10, 60 and 600 seconds; empty where less time has passed."""
    rates = [stats.rates.over(seconds, column) for seconds in RATE_SPANS]
    return " ".join(["" if rate is None else write_double(rate) for rate in rates])


def _write_total_rates(stats: Stats) -> str:
    totals = []
    for seconds in RATE_SPANS:
        rates = (stats.rates.over(seconds, "found"), stats.rates.over(seconds, "missed"))
        totals.append(write_double(sum((rate for rate in rates if rate is not None), 0.0)))
    return " ".join(totals)


def _write_ratio(ratio: float) -> str:
    """Format a share of the disk with two digits, rounded up as Java does."""
    return write_double(ratio if ratio < 0 else math.ceil(ratio * 100) / 100)


def write_bytes(count: int) -> str:
    """Format a number of bytes: 0 B, 1.5 KiB, 252.0 GiB."""
    if count < _KIB:
        return f"{count} B"
    power = 0
    size = float(count)
    while size >= _KIB and power < len(_UNITS):
        size /= _KIB
        power += 1
    return f"{size:.1f} {_UNITS[power - 1]}iB"


def write_duration(elapsed_ms: int) -> str:
    """Format an elapsed time as Java does."""
    minutes, seconds = divmod(max(0, elapsed_ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"

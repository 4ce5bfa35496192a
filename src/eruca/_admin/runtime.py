"""What a broker reports about itself (code 28), read from text into numbers and times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import read_time
from eruca._admin.targets import BrokerRow
from eruca._ground.digits import read_digits
from eruca._wire.bodies import KVTable
from eruca._wire.codes import RequestCode

_UPTIME = re.compile(r"(\d{1,9}) days?, (\d{1,9}) hours?, (\d{1,9}) minutes?, (\d{1,9}) seconds?")
_SIZE = re.compile(r"([\d.]{1,20})\s*([KMGTPE]?)i?B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_LEVEL = "scheduleMessageOffset_"
_POOLS = {"send": "send", "pull": "pull", "query": "query"}
_VERSION = re.compile(r"V(\d+)_(\d+)_(\d+)")
_KIB = 1024


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker reports about itself. A value that it does not report is None; `raw` has all as text."""

    broker: str
    address: str
    raw: dict[str, str]
    # The release it announces: `4.9.7`.
    version: str | None = None
    started_at: datetime | None = None
    uptime: timedelta | None = None
    # Messages per second, over the last 10, 60 and 600 seconds; shorter while it is young.
    put_rates: list[float] = []
    get_rates: list[float] = []
    found_rates: list[float] = []
    missed_rates: list[float] = []
    transferred_rates: list[float] = []
    # Messages in and out: today, yesterday and since it started.
    put_today: int | None = None
    get_today: int | None = None
    put_yesterday: int | None = None
    get_yesterday: int | None = None
    put_total: int | None = None
    get_total: int | None = None
    failed_puts: int | None = None
    mean_size: float | None = None
    # The longest since it started.
    put_time_max: timedelta | None = None
    # The ends of the commit log.
    log_begin: int | None = None
    log_end: int | None = None
    earliest_at: datetime | None = None
    # 0 to 1.
    log_disk_ratio: float | None = None
    queue_disk_ratio: float | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    dispatch_behind_bytes: int | None = None
    unflushed_bytes: int | None = None
    # Requests that wait in the queues of a Java broker, by `send`, `pull`, `query` and `transaction`.
    waiting: dict[str, int] = {}
    # How long the first of them has been waiting.
    waiting_time: dict[str, timedelta] = {}
    # The offset and the end of each delay level.
    delay_levels: dict[int, tuple[int, int]] = {}


async def read_table(connection: Connection, address: str) -> dict[str, str]:
    """Return what a broker reports about itself, as text."""
    _, body = await connection.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return body.table if isinstance(body, KVTable) else {}


def describe_runtime(row: BrokerRow, table: Mapping[str, str]) -> Runtime:
    """Return the values of a report; what cannot be read is left out."""
    put = [_read_int(table, f"msgPutTotal{when}") for when in ("YesterdayMorning", "TodayMorning", "TodayNow")]
    get = [_read_int(table, f"msgGetTotal{when}") for when in ("YesterdayMorning", "TodayMorning", "TodayNow")]
    total, free = _read_capacity(table.get("commitLogDirCapacity", ""))
    longest = _read_float(table, "putMessageEntireTimeMax")
    return Runtime(
        broker=row.where,
        address=row.address,
        raw=dict(table),
        version=read_version(table),
        started_at=read_time(_read_int(table, "bootTimestamp") or 0),
        uptime=read_uptime(table.get("runtime", "")),
        put_rates=_read_rates(table, "putTps"),
        get_rates=_read_rates(table, "getTotalTps"),
        found_rates=_read_rates(table, "getFoundTps"),
        missed_rates=_read_rates(table, "getMissTps"),
        transferred_rates=_read_rates(table, "getTransferedTps", "getTransferredTps"),
        put_today=_subtract(put[2], put[1]),
        get_today=_subtract(get[2], get[1]),
        put_yesterday=_subtract(put[1], put[0]),
        get_yesterday=_subtract(get[1], get[0]),
        put_total=put[2],
        get_total=get[2],
        failed_puts=_read_int(table, "putMessageFailedTimes"),
        mean_size=_read_float(table, "putMessageAverageSize"),
        put_time_max=_to_duration(longest),
        log_begin=_read_int(table, "commitLogMinOffset"),
        log_end=_read_int(table, "commitLogMaxOffset"),
        earliest_at=read_time(_read_int(table, "earliestMessageTimeStamp") or 0),
        log_disk_ratio=_read_ratio(table, "commitLogDiskRatio"),
        queue_disk_ratio=_read_ratio(table, "consumeQueueDiskRatio"),
        disk_total_bytes=total,
        disk_free_bytes=free,
        dispatch_behind_bytes=_read_int(table, "dispatchBehindBytes"),
        unflushed_bytes=read_size(table.get("remainHowManyDataToFlush", "")),
        waiting=_read_waiting(table),
        waiting_time=_read_waiting_times(table),
        delay_levels=_read_levels(table),
    )


def read_clock(table: Mapping[str, str]) -> datetime | None:
    """Return the time of a broker's clock when it made its report, to the second: its start and how long it has run."""
    started_ms, uptime = _read_int(table, "bootTimestamp"), read_uptime(table.get("runtime", ""))
    started = None if started_ms is None else read_time(started_ms)
    try:
        return None if started is None or uptime is None else started.astimezone(UTC) + uptime
    except OverflowError:
        return None


def read_version(table: Mapping[str, str]) -> str | None:
    """Return the release that a broker announces: `4.9.7` for `V4_9_7`."""
    match = _VERSION.fullmatch(table.get("brokerVersionDesc", ""))
    return None if match is None else ".".join(match.groups())


def read_uptime(text: str) -> timedelta | None:
    """Read `[ 0 days, 1 hours, 2 minutes, 3 seconds ]`."""
    match = _UPTIME.search(text)
    if match is None:
        return None
    days, hours, minutes, seconds = map(int, match.groups())
    try:
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        return None


def read_size(text: str) -> int | None:
    """Read a number of bytes: `0 B`, `1.5 KiB`."""
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    try:
        return round(float(match[1]) * float(_KIB ** _POWERS[match[2].upper()]))
    except (ValueError, OverflowError):
        return None


def _read_capacity(text: str) -> tuple[int | None, int | None]:
    """Read `Total : 252.0 GiB, Free : 68.2 GiB.`."""
    parts = dict(part.partition(":")[::2] for part in text.rstrip(". ").split(","))
    sizes = {name.strip(): read_size(size) for name, size in parts.items()}
    return sizes.get("Total"), sizes.get("Free")


def _read_int(table: Mapping[str, str], key: str) -> int | None:
    return read_digits(table.get(key))


def _read_float(table: Mapping[str, str], key: str) -> float | None:
    try:
        value = float(table[key])
    except (KeyError, ValueError):
        return None
    return value if isfinite(value) else None


def _to_duration(time_ms: float | None) -> timedelta | None:
    try:
        return None if time_ms is None else timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def _read_ratio(table: Mapping[str, str], key: str) -> float | None:
    ratio = _read_float(table, key)
    return None if ratio is None or ratio < 0 else ratio  # a missing path is -1


def _read_rates(table: Mapping[str, str], *keys: str) -> list[float]:
    rates = []
    for part in next((table[key] for key in keys if key in table), "").split():
        try:
            rates.append(float(part))
        except ValueError:
            break
    return rates


def _subtract(later: int | None, sooner: int | None) -> int | None:
    return None if later is None or sooner is None else max(0, later - sooner)


def _read_waiting(table: Mapping[str, str]) -> dict[str, int]:
    found = {name: _read_int(table, f"{pool}ThreadPoolQueueSize") for name, pool in _POOLS.items()}
    found["transaction"] = _read_int(table, "EndTransactionQueueSize")
    return {name: count for name, count in found.items() if count is not None}


def _read_waiting_times(table: Mapping[str, str]) -> dict[str, timedelta]:
    found = {name: _read_int(table, f"{pool}ThreadPoolQueueHeadWaitTimeMills") for name, pool in _POOLS.items()}
    return {name: wait for name, time_ms in found.items() if (wait := _to_duration(time_ms)) is not None}


def _read_levels(table: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    found = {}
    for key, text in table.items():
        level = read_digits(key.removeprefix(_LEVEL)) if key.startswith(_LEVEL) else None
        offset, end = map(read_digits, (text.partition(",")[0], text.partition(",")[2]))
        if level is not None and offset is not None and end is not None:
            found[level] = (offset, end)
    return dict(sorted(found.items()))

"""The 63 metrics of rocketmq-exporter that it reads from the runtime info of a broker, read in the same way.

The exporter converts nearly every text of the table with `Long.parseLong` or `Double.parseDouble`; one that is missing
or not a number ends its collection of the broker. Reading them here as strictly shows that they are all there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from eruca._broker.administering.rates import RATE_SPANS
from eruca._observe.figures import Description, Figures, Kind

LABELS: Final = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
_UNITS: Final = "KMGTPE"
_KIB: Final = 1024


class RuntimeFigure(NamedTuple):
    """One metric: its description, the key of the table, and how its text is read."""

    about: Description
    key: str
    read: Callable[[str], float | None]


def _describe(name: str, help_text: str) -> Description:
    return Description(f"rocketmq_brokeruntime_{name}", Kind.GAUGE, help_text, LABELS)


# --- reading texts --------------------------------------------------------------------------------------------------


def read_long(text: str) -> int:
    """Read a whole number as `Long.parseLong` does. Raises ValueError."""
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit():
        raise ValueError(f"not a whole number: {text!r}")
    return int(text)


def read_size(text: str) -> float:
    """Read a size for people, as the exporter does: `1.5 KiB`."""
    number, unit = text.split(" ")
    return float(number) if unit == "B" else float(number) * _KIB ** (_UNITS.index(unit[0]) + 1)


def read_first_number(text: str) -> float:
    """Read the number of a size without its unit, as the exporter does."""
    return float(text.split(" ", maxsplit=1)[0])


def _read_capacity(place: int) -> Callable[[str], float]:
    """Return what reads a part of `Total : 252.0 GiB, Free : 68.2 GiB.`"""

    def read(text: str) -> float:
        words = text.split(" ")
        return read_size(f"{words[place]} {words[place + 1][:-1]}")

    return read


def _read_rate(place: int) -> Callable[[str], float]:
    """Return what reads the rate of one interval; it is 0 until the broker has run for that long."""

    def read(text: str) -> float:
        words = text.split()
        return float(words[place]) if place < len(words) else 0.0

    return read


def _read_bucket(label: str) -> Callable[[str], float | None]:
    """Return what reads one bucket of `[<=0ms]:11 [0~10ms]:6 `; there is none in the first minute."""

    def read(text: str) -> float | None:
        found = dict([word.rsplit(":", 1) for word in text.split() if ":" in word])
        return read_long(found[label]) if found else None

    return read


# --- the list -------------------------------------------------------------------------------------------------------


def _list_buckets() -> Iterator[RuntimeFigure]:
    for suffix, label in (
        ("0ms", "[<=0ms]"),
        ("0to10ms", "[0~10ms]"),
        ("10to50ms", "[10~50ms]"),
        ("50to100ms", "[50~100ms]"),
        ("100to200ms", "[100~200ms]"),
        ("200to500ms", "[200~500ms]"),
        ("500to1s", "[500ms~1s]"),
        ("1to2s", "[1~2s]"),
        ("2to3s", "[2~3s]"),
        ("3to4s", "[3~4s]"),
        ("4to5s", "[4~5s]"),
        ("5to10s", "[5~10s]"),
        ("10stomore", "[10s~]"),
    ):
        about = _describe(f"pmdt_{suffix}", f"Messages of the last minute that took this long to store: {label}.")
        yield RuntimeFigure(about, "putMessageDistributeTime", _read_bucket(label))


def _list_rates() -> Iterator[RuntimeFigure]:
    for name, key, what in (
        ("put", "putTps", "Messages stored per second"),
        ("getfound", "getFoundTps", "Pulls per second that found messages"),
        ("getmiss", "getMissTps", "Pulls per second that found none"),
        ("gettotal", "getTotalTps", "Pulls per second"),
        ("gettransfered", "getTransferedTps", "Messages returned per second"),
    ):
        for place, seconds in enumerate(RATE_SPANS):
            about = _describe(f"{name}_tps{seconds}", f"{what}, over {seconds} s.")
            yield RuntimeFigure(about, key, _read_rate(place))


_NUMBERS: Final[tuple[tuple[str, str, Callable[[str], float], str], ...]] = (
    ("msg_put_total_today_now", "msgPutTotalTodayNow", read_long, "Messages stored since the start."),
    ("msg_gettotal_today_now", "msgGetTotalTodayNow", read_long, "Messages returned since the start."),
    ("msg_puttotal_todaymorning", "msgPutTotalTodayMorning", read_long, "Messages stored until last midnight."),
    ("msg_gettotal_todaymorning", "msgGetTotalTodayMorning", read_long, "Messages returned until last midnight."),
    ("msg_puttotal_yesterdaymorning", "msgPutTotalYesterdayMorning", read_long, "Stored until the midnight before."),
    ("msg_gettotal_yesterdaymorning", "msgGetTotalYesterdayMorning", read_long, "Returned until the midnight before."),
    ("send_threadpool_queue_size", "sendThreadPoolQueueSize", read_long, "Always 0: there is no such pool."),
    ("send_threadpoolqueue_capacity", "sendThreadPoolQueueCapacity", read_long, "As set for Java; without effect."),
    ("send_threadpoolqueue_headwait_timemills", "sendThreadPoolQueueHeadWaitTimeMills", read_long, "Always 0."),
    ("pull_threadpoolqueue_size", "pullThreadPoolQueueSize", read_long, "Always 0: there is no such pool."),
    ("pull_threadpoolqueue_capacity", "pullThreadPoolQueueCapacity", read_long, "As set for Java; without effect."),
    ("pull_threadpoolqueue_headwait_timemills", "pullThreadPoolQueueHeadWaitTimeMills", read_long, "Always 0."),
    ("query_threadpoolqueue_size", "queryThreadPoolQueueSize", read_long, "Always 0: there is no such pool."),
    ("query_threadpool_queue_capacity", "queryThreadPoolQueueCapacity", read_long, "As set for Java; without effect."),
    ("query_threadpoolqueue_headwait_timemills", "queryThreadPoolQueueHeadWaitTimeMills", read_long, "Always 0."),
    ("commitlog_disk_ratio", "commitLogDiskRatio", float, "How full the disk of the commit log is, 0 to 1."),
    ("commitlog_maxoffset", "commitLogMaxOffset", read_long, "The end of the commit log, in bytes."),
    ("commitlog_minoffset", "commitLogMinOffset", read_long, "The start of the commit log, in bytes."),
    ("commitlogdir_capacity_free", "commitLogDirCapacity", _read_capacity(6), "Free bytes of the disk of the store."),
    ("commitlogdir_capacity_total", "commitLogDirCapacity", _read_capacity(2), "Size of the disk of the store, bytes."),
    ("consumequeue_disk_ratio", "consumeQueueDiskRatio", float, "How full the disk of the consume queues is, 0 to 1."),
    ("dispatch_behind_bytes", "dispatchBehindBytes", read_long, "Bytes of the log that have no queue entries yet."),
    ("dispatch_maxbuffer", "dispatchMaxBuffer", read_long, "Always 0: there is no such buffer."),
    ("earliest_message_timestamp", "earliestMessageTimeStamp", read_long, "Store time of the oldest message, in ms."),
    ("getmessage_entire_time_max", "getMessageEntireTimeMax", read_long, "The longest read of a pull, in ms."),
    ("putmessage_entire_time_max", "putMessageEntireTimeMax", read_long, "The longest time to store a message, in ms."),
    ("putmessage_times_total", "putMessageTimesTotal", read_long, "Messages stored since the start."),
    ("put_latency_99", "putLatency99", float, "Time that 99 % of the last minute's messages took to store, in ms."),
    ("put_latency_999", "putLatency999", float, "Time that 99.9 % of them took, in ms."),
    ("put_message_average_size", "putMessageAverageSize", float, "Average size of a stored message, in bytes."),
    ("put_message_size_total", "putMessageSizeTotal", read_long, "Bytes stored since the start."),
    ("pagecache_lock_time_mills", "pageCacheLockTimeMills", read_long, "Always 0: there is no such lock."),
    ("remain_howmanydata_toflush", "remainHowManyDataToFlush", read_first_number, "Not yet flushed; in varying units."),
    (
        "remain_transientstore_buffer_numbs",
        "remainTransientStoreBufferNumbs",
        read_long,
        "Free buffers of the transient pool.",
    ),
    (
        "start_accept_sendrequest_time",
        "startAcceptSendRequestTimeStamp",
        read_long,
        "Sends are refused before this time, in ms.",
    ),
)

#: All of them.
RUNTIME_FIGURES: Final = (
    *_list_buckets(),
    *_list_rates(),
    *[RuntimeFigure(_describe(name, help_text), key, read) for name, key, read, help_text in _NUMBERS],
)


def read_runtime(table: Mapping[str, str], cluster: str, address: str, host: str) -> Iterator[Figures]:
    """Yield the metrics of a table. Raises KeyError or ValueError where the exporter would fail."""
    labels = (
        cluster,
        address,
        host,
        table["brokerVersionDesc"],
        str(read_long(table["bootTimestamp"])),
        str(read_long(table["brokerVersion"])),
    )
    for figure in RUNTIME_FIGURES:
        value = figure.read(table[figure.key])
        yield Figures(figure.about, [] if value is None else [(labels, value)])

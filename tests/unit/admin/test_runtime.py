"""What a broker reports about itself, read from text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eruca._admin.runtime import describe_runtime, read_clock, read_size, read_uptime
from eruca._admin.targets import BrokerRow

ROW = BrokerRow(cluster="c", broker="broker-a", broker_id=1, address="10.0.0.1:10911")
# As a broker of 4.9.7 wrote it.
TABLE = {
    "bootTimestamp": "1795043569094",
    "brokerVersionDesc": "V4_9_7",
    "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]",
    "putTps": "1.5 2.5 ",
    "getTotalTps": "0.0 0.1 0.2",
    "getTransferedTps": "3.0 4.0 5.0",
    "msgPutTotalYesterdayMorning": "10",
    "msgPutTotalTodayMorning": "15",
    "msgPutTotalTodayNow": "35",
    "commitLogMinOffset": "0",
    "commitLogMaxOffset": "157",
    "commitLogDiskRatio": "0.28",
    "consumeQueueDiskRatio": "-1.0",
    "commitLogDirCapacity": "Total : 252.0 GiB, Free : 66.5 GiB.",
    "earliestMessageTimeStamp": "-1",
    "remainHowManyDataToFlush": "1.5 KiB",
    "putMessageEntireTimeMax": "12",
    "sendThreadPoolQueueSize": "3",
    "sendThreadPoolQueueHeadWaitTimeMills": "250",
    "EndTransactionQueueSize": "0",
    "scheduleMessageOffset_3": "4,9",
    "scheduleMessageOffset_18": "0,1",
}


def test_a_report_becomes_numbers_and_times() -> None:
    runtime = describe_runtime(ROW, TABLE)
    assert (runtime.broker, runtime.version, runtime.raw) == ("broker-a:1", "4.9.7", TABLE)
    assert runtime.started_at == datetime.fromtimestamp(1795043569.094, UTC)
    assert runtime.uptime == timedelta(days=1, hours=2, minutes=3, seconds=4)
    assert (runtime.put_rates, runtime.get_rates, runtime.transferred_rates) == ([1.5, 2.5], [0.0, 0.1, 0.2], [3, 4, 5])
    assert (runtime.put_yesterday, runtime.put_today, runtime.put_total) == (5, 20, 35)
    assert (runtime.get_today, runtime.get_total, runtime.mean_size) == (None, None, None)
    assert (runtime.log_begin, runtime.log_end, runtime.earliest_at) == (0, 157, None)
    assert (runtime.log_disk_ratio, runtime.queue_disk_ratio) == (0.28, None)
    assert runtime.disk_total_bytes == 252 * 1024**3 and runtime.disk_free_bytes == 66.5 * 1024**3
    assert (runtime.unflushed_bytes, runtime.put_time_max) == (1536, timedelta(milliseconds=12))
    assert runtime.waiting == {"send": 3, "transaction": 0}
    assert runtime.waiting_time == {"send": timedelta(milliseconds=250)}
    assert runtime.delay_levels == {3: (4, 9), 18: (0, 1)}
    assert read_clock(TABLE) == datetime.fromtimestamp(1795043569.094, UTC) + timedelta(hours=26, minutes=3, seconds=4)


@pytest.mark.parametrize(
    "table",
    [
        {},
        dict.fromkeys(TABLE, ""),
        dict.fromkeys(TABLE, "nonsense"),
        dict.fromkeys(TABLE, "9" * 400),
        dict.fromkeys(TABLE, "-"),
        {"runtime": "[ 999999999 days, 999999999 hours, 1 minutes, 1 seconds ]", "bootTimestamp": "1"},
    ],
)
def test_nonsense_is_left_out(table: dict[str, str]) -> None:
    runtime = describe_runtime(ROW, table)
    assert runtime.raw == table and runtime.version is None and runtime.uptime is None
    assert read_clock(table) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("0 B", 0), ("1023 B", 1023), ("1.5 KiB", 1536), ("2 M", 2 * 1024**2), ("1.2.3 B", None), ("", None), ("B", None)],
)
def test_sizes(text: str, size: int | None) -> None:
    assert read_size(text) == size


def test_an_uptime_in_the_singular() -> None:
    assert read_uptime("[ 1 day, 1 hour, 1 minute, 1 second ]") == timedelta(days=1, hours=1, minutes=1, seconds=1)

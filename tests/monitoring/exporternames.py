"""What rocketmq-exporter shows and reads: every metric with its labels, every key of the runtime info of a broker.

Taken from its source: `RMQMetricsCollector` and `BrokerRuntimeStats` of apache/rocketmq-exporter.
"""

from __future__ import annotations

from collections.abc import Callable

TOPIC = {"cluster", "broker", "topic"}
DEAD = {"cluster", "broker", "group"}
CONSUMED = {"cluster", "broker", "topic", "group"}
DIFF = {"group", "topic", "countOfOnlineConsumers", "msgModel"}
BROKER = {"cluster", "brokerIP", "broker"}
CLIENT = {"clientAddr", "clientId", "group", "topic"}
RUNTIME = {"cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version"}

TABLE_NAMES: dict[str, set[str]] = {
    "rocketmq_producer_tps": TOPIC,
    "rocketmq_producer_message_size": TOPIC,
    "rocketmq_producer_offset": TOPIC,
    "rocketmq_topic_retry_offset": TOPIC,
    "rocketmq_topic_dlq_offset": DEAD,
    "rocketmq_producer_count": DEAD,
    "rocketmq_consumer_tps": CONSUMED,
    "rocketmq_consumer_message_size": CONSUMED,
    "rocketmq_send_back_nums": CONSUMED,
    "rocketmq_consumer_offset": CONSUMED,
    "rocketmq_group_consume_tps": CONSUMED,
    "rocketmq_group_consume_total_offset": CONSUMED,
    "rocketmq_group_get_latency_by_storetime": CONSUMED,
    "rocketmq_group_diff": DIFF,
    "rocketmq_group_retrydiff": DIFF,
    "rocketmq_group_dlqdiff": DIFF,
    "rocketmq_group_count": {"caddr", "localaddr", "group"},
    "rocketmq_client_consume_fail_msg_count": CLIENT,
    "rocketmq_client_consume_fail_msg_tps": CLIENT,
    "rocketmq_client_consume_ok_msg_tps": CLIENT,
    "rocketmq_client_consume_rt": CLIENT,
    "rocketmq_client_consumer_pull_rt": CLIENT,
    "rocketmq_client_consumer_pull_tps": CLIENT,
    "rocketmq_broker_tps": BROKER,
    "rocketmq_broker_qps": BROKER,
    "rocketmq_broker_commitlog_diff": BROKER,
}
# Those without a value in the first minute of a broker: the exporter has none then either.
MINUTE_NAMES = (
    "rocketmq_brokeruntime_pmdt_0ms",
    "rocketmq_brokeruntime_pmdt_0to10ms",
    "rocketmq_brokeruntime_pmdt_10to50ms",
    "rocketmq_brokeruntime_pmdt_50to100ms",
    "rocketmq_brokeruntime_pmdt_100to200ms",
    "rocketmq_brokeruntime_pmdt_200to500ms",
    "rocketmq_brokeruntime_pmdt_500to1s",
    "rocketmq_brokeruntime_pmdt_1to2s",
    "rocketmq_brokeruntime_pmdt_2to3s",
    "rocketmq_brokeruntime_pmdt_3to4s",
    "rocketmq_brokeruntime_pmdt_4to5s",
    "rocketmq_brokeruntime_pmdt_5to10s",
    "rocketmq_brokeruntime_pmdt_10stomore",
)
RUNTIME_NAMES = (
    *MINUTE_NAMES,
    "rocketmq_brokeruntime_msg_put_total_today_now",
    "rocketmq_brokeruntime_msg_gettotal_today_now",
    "rocketmq_brokeruntime_msg_puttotal_todaymorning",
    "rocketmq_brokeruntime_msg_gettotal_todaymorning",
    "rocketmq_brokeruntime_msg_puttotal_yesterdaymorning",
    "rocketmq_brokeruntime_msg_gettotal_yesterdaymorning",
    "rocketmq_brokeruntime_put_tps10",
    "rocketmq_brokeruntime_put_tps60",
    "rocketmq_brokeruntime_put_tps600",
    "rocketmq_brokeruntime_getfound_tps10",
    "rocketmq_brokeruntime_getfound_tps60",
    "rocketmq_brokeruntime_getfound_tps600",
    "rocketmq_brokeruntime_getmiss_tps10",
    "rocketmq_brokeruntime_getmiss_tps60",
    "rocketmq_brokeruntime_getmiss_tps600",
    "rocketmq_brokeruntime_gettotal_tps10",
    "rocketmq_brokeruntime_gettotal_tps60",
    "rocketmq_brokeruntime_gettotal_tps600",
    "rocketmq_brokeruntime_gettransfered_tps10",
    "rocketmq_brokeruntime_gettransfered_tps60",
    "rocketmq_brokeruntime_gettransfered_tps600",
    "rocketmq_brokeruntime_send_threadpool_queue_size",
    "rocketmq_brokeruntime_send_threadpoolqueue_capacity",
    "rocketmq_brokeruntime_send_threadpoolqueue_headwait_timemills",
    "rocketmq_brokeruntime_pull_threadpoolqueue_size",
    "rocketmq_brokeruntime_pull_threadpoolqueue_capacity",
    "rocketmq_brokeruntime_pull_threadpoolqueue_headwait_timemills",
    "rocketmq_brokeruntime_query_threadpoolqueue_size",
    "rocketmq_brokeruntime_query_threadpool_queue_capacity",
    "rocketmq_brokeruntime_query_threadpoolqueue_headwait_timemills",
    "rocketmq_brokeruntime_commitlog_disk_ratio",
    "rocketmq_brokeruntime_commitlog_maxoffset",
    "rocketmq_brokeruntime_commitlog_minoffset",
    "rocketmq_brokeruntime_commitlogdir_capacity_free",
    "rocketmq_brokeruntime_commitlogdir_capacity_total",
    "rocketmq_brokeruntime_consumequeue_disk_ratio",
    "rocketmq_brokeruntime_dispatch_behind_bytes",
    "rocketmq_brokeruntime_dispatch_maxbuffer",
    "rocketmq_brokeruntime_earliest_message_timestamp",
    "rocketmq_brokeruntime_getmessage_entire_time_max",
    "rocketmq_brokeruntime_putmessage_entire_time_max",
    "rocketmq_brokeruntime_putmessage_times_total",
    "rocketmq_brokeruntime_put_latency_99",
    "rocketmq_brokeruntime_put_latency_999",
    "rocketmq_brokeruntime_put_message_average_size",
    "rocketmq_brokeruntime_put_message_size_total",
    "rocketmq_brokeruntime_pagecache_lock_time_mills",
    "rocketmq_brokeruntime_remain_howmanydata_toflush",
    "rocketmq_brokeruntime_remain_transientstore_buffer_numbs",
    "rocketmq_brokeruntime_start_accept_sendrequest_time",
)
EXPORTER_NAMES: dict[str, set[str]] = {**TABLE_NAMES, **dict.fromkeys(RUNTIME_NAMES, RUNTIME)}


# --- the runtime info -----------------------------------------------------------------------------------------------


def parse_long(text: str) -> None:
    """`Long.parseLong`: digits with an optional sign, 64 bits."""
    digits = text[1:] if text[:1] in "+-" and text else text
    assert digits.isascii(), text
    assert digits.isdigit(), text
    assert -(2**63) <= int(text) < 2**63, text


def parse_int(text: str) -> None:
    """`Integer.parseInt`."""
    parse_long(text)
    assert -(2**31) <= int(text) < 2**31, text


def parse_double(text: str) -> None:
    """`Double.parseDouble`, without the forms that only Python takes."""
    assert "_" not in text, text
    assert text.strip().lower() not in ("nan", "inf", "-inf"), text
    float(text)


def parse_rates(text: str) -> None:
    """`split(" ")`, which drops empty parts at the end, and `Double.parseDouble` of up to three."""
    parts = text.rstrip(" ").split(" ") if text.strip() else ([""] if not text else [])
    assert len(parts) <= 3, text
    for part in parts:
        parse_double(part)


def parse_times(text: str) -> None:
    """`null`, or words like `[<=0ms]:11` of which the number is an int."""
    if text.lower() == "null":
        return
    words = text.split(" ")
    assert words[-1] == ""
    for word in words[:-1]:
        name, number = word.split(":")
        assert name.startswith("["), word
        assert name.endswith("]"), word
        parse_int(number)


def parse_capacity(text: str) -> None:
    """`Total : 252.0 GiB, Free : 68.2 GiB.` by the places of its words."""
    words = text.split(" ")
    for number, unit in ((words[2], words[3]), (words[6], words[7])):
        parse_double(number)
        assert unit[:-1] == "B" or unit[0] in "KMGTPE", text


def parse_size(text: str) -> None:
    """The first word of `1.5 KiB`."""
    parse_double(text.split(" ", maxsplit=1)[0])


def parse_pair(text: str) -> None:
    """`delayOffset,maxOffset`."""
    first, second = text.split(",")
    parse_long(first)
    parse_long(second)


def parse_text(text: str) -> None:
    """Anything."""
    assert text


RUNTIME_KEYS: dict[str, Callable[[str], None]] = {
    "msgPutTotalTodayNow": parse_long,
    "putMessageDistributeTime": parse_times,
    "putTps": parse_rates,
    "getMissTps": parse_rates,
    "getTransferedTps": parse_rates,
    "getTotalTps": parse_rates,
    "getFoundTps": parse_rates,
    "commitLogDirCapacity": parse_capacity,
    "sendThreadPoolQueueHeadWaitTimeMills": parse_long,
    "queryThreadPoolQueueHeadWaitTimeMills": parse_long,
    "remainHowManyDataToFlush": parse_size,
    "msgGetTotalTodayNow": parse_long,
    "queryThreadPoolQueueSize": parse_long,
    "bootTimestamp": parse_long,
    "msgPutTotalYesterdayMorning": parse_long,
    "msgGetTotalYesterdayMorning": parse_long,
    "pullThreadPoolQueueSize": parse_long,
    "commitLogMinOffset": parse_long,
    "pullThreadPoolQueueHeadWaitTimeMills": parse_long,
    "runtime": parse_text,
    "dispatchMaxBuffer": parse_long,
    "brokerVersion": parse_int,
    "consumeQueueDiskRatio": parse_double,
    "pageCacheLockTimeMills": parse_long,
    "commitLogDiskRatio": parse_double,
    "commitLogMaxOffset": parse_long,
    "getMessageEntireTimeMax": parse_long,
    "msgPutTotalTodayMorning": parse_long,
    "putMessageTimesTotal": parse_long,
    "msgGetTotalTodayMorning": parse_long,
    "brokerVersionDesc": parse_text,
    "sendThreadPoolQueueSize": parse_long,
    "startAcceptSendRequestTimeStamp": parse_long,
    "putMessageEntireTimeMax": parse_long,
    "earliestMessageTimeStamp": parse_long,
    "remainTransientStoreBufferNumbs": parse_long,
    "queryThreadPoolQueueCapacity": parse_long,
    "putMessageAverageSize": parse_double,
    "dispatchBehindBytes": parse_long,
    "putMessageSizeTotal": parse_long,
    "sendThreadPoolQueueCapacity": parse_long,
    "pullThreadPoolQueueCapacity": parse_long,
    "putLatency99": parse_double,
    "putLatency999": parse_double,
}
# Beside these it reads every key that starts with this.
DELAY_KEY = "scheduleMessageOffset"

"""Every name that others know is at /metrics, with its labels and a value, for a workload of every kind."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eruca._net.caller import Caller
from eruca._wire.bodies import KVTable, decode_json
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.headers import EmptyHeader
from tests.figures import note_figures
from tests.monitoring.conftest import Cluster
from tests.monitoring.exporternames import (
    DELAY_KEY,
    EXPORTER_NAMES,
    MINUTE_NAMES,
    RUNTIME_KEYS,
    parse_pair,
)
from tests.monitoring.metricspage import Values, fetch, list_values, parse, read_values
from tests.monitoring.queries import list_names, list_queries
from tests.monitoring.workload import run_workload
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S

# Of the documentation of RocketMQ 5, for a broker, without pop consumption, tiered storage and RocksDB; the reasons for
# those missing are in docs/METRICS.md.
NODE = {"cluster", "node_type", "node_id"}
PUT = NODE | {"topic", "message_type", "is_system"}
LAG = NODE | {"consumer_group", "topic", "is_retry", "is_system"}
STORAGE = NODE | {"storage_type", "storage_medium"}
ROCKETMQ5_NAMES: dict[str, set[str]] = {
    "rocketmq_processor_watermark": NODE | {"processor"},
    "rocketmq_broker_permission": NODE,
    "rocketmq_topic_number": NODE,
    "rocketmq_consumer_group_number": NODE,
    "rocketmq_messages_in_total": PUT,
    "rocketmq_messages_out_total": LAG,
    "rocketmq_throughput_in_total": PUT,
    "rocketmq_throughput_out_total": LAG,
    "rocketmq_message_size_bucket": PUT | {"le"},
    "rocketmq_message_size_sum": PUT,
    "rocketmq_message_size_count": PUT,
    "rocketmq_producer_connections": NODE | {"language", "version", "protocol_type"},
    "rocketmq_consumer_connections": NODE
    | {"consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"},
    "rocketmq_consumer_lag_messages": LAG,
    "rocketmq_consumer_lag_latency": LAG,
    "rocketmq_consumer_inflight_messages": LAG,
    "rocketmq_consumer_queueing_latency": LAG,
    "rocketmq_consumer_ready_messages": LAG,
    "rocketmq_send_to_dlq_messages_total": NODE | {"consumer_group", "topic", "is_system"},
    "rocketmq_commit_messages_total": NODE | {"topic"},
    "rocketmq_rollback_messages_total": NODE | {"topic"},
    "rocketmq_finish_message_latency_bucket": NODE | {"le"},
    "rocketmq_half_messages": NODE,
    "rocketmq_storage_size": STORAGE,
    "rocketmq_storage_flush_behind_bytes": STORAGE,
    "rocketmq_storage_dispatch_behind_bytes": STORAGE,
    "rocketmq_storage_message_reserve_time": STORAGE,
    "rocketmq_timing_messages": STORAGE,
    "rocketmq_timer_enqueue_lag": STORAGE,
    "rocketmq_timer_dequeue_latency": STORAGE,
}
# Shown only with failover=etcd, which test_prometheus.py has; after something was refused; and when there is too much.
SOMETIMES = {
    "eruca_broker_etcd_reachable",
    "eruca_server_refused_total",
    "eruca_server_closed_for_memory_total",
    "eruca_metrics_left_out",
}


async def collect(cluster: Cluster, wanted: set[str]) -> tuple[Values, Values]:
    """Collect until all wanted names have values; rates and the answers of consumers need some seconds."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            master, slave = [await read_values(url) for url in cluster.urls]
            missing = wanted - master.keys()
            if not missing and has_rates(master):
                return master, slave
            await asyncio.sleep(0.5)


def has_rates(values: Values) -> bool:
    """Whether the first minute's sample was taken."""
    return any(value > 0 for labels, value in values["rocketmq_producer_tps"] if labels["topic"] == "orders")


def find(values: Values, name: str, **labels: str) -> float:
    """The one value with these labels."""
    (found,) = [value for its, value in values[name] if labels.items() <= its.items()]
    return found


async def read_runtime_info(cluster: Cluster) -> dict[str, str]:
    caller = Caller()
    try:
        answer = await caller.call(
            cluster.up.facts["broker"], make_request(RequestCode.GET_BROKER_RUNTIME_INFO, EmptyHeader()), 3000
        )
    finally:
        await caller.close()
    return dict(decode_json(KVTable, answer.body).table)


def test_names_labels_and_values(cluster: Cluster, tmp_path: Path) -> None:
    async def run() -> tuple[Values, Values, list[str], dict[str, str]]:
        wanted = (EXPORTER_NAMES.keys() - set(MINUTE_NAMES)) | ROCKETMQ5_NAMES.keys()
        async with run_workload(cluster.nameserver, tmp_path):
            master, slave = await collect(cluster, set(wanted))
            texts = [await asyncio.to_thread(fetch, url) for url in cluster.urls]
            return master, slave, texts, await read_runtime_info(cluster)

    master, slave, texts, table = asyncio.run(run())
    for name, labels in (EXPORTER_NAMES | ROCKETMQ5_NAMES).items():
        for found, _ in master.get(name, []):
            assert found.keys() == labels, name
    # The names without a value yet are announced nevertheless.
    families = {family.name for text in texts for family in parse(text)}
    assert set(MINUTE_NAMES) <= families
    check_values(master)
    # Both would count twice what a board adds up.
    assert not slave.get("rocketmq_producer_offset")
    assert not slave.get("rocketmq_consumer_lag_messages")
    assert find(slave, "rocketmq_brokeruntime_commitlog_maxoffset") > 0
    check_runtime_info(table)
    check_documents(list_values([family for text in texts for family in parse(text)]), texts)
    note_figures(
        f"metrics: {len(EXPORTER_NAMES)} names of rocketmq-exporter, {len(ROCKETMQ5_NAMES)} of RocketMQ 5, "
        f"{len(RUNTIME_KEYS)} keys of the runtime info"
    )


def check_values(values: Values) -> None:
    """Each group and topic is in the state that the workload brought it into."""
    assert find(values, "rocketmq_group_diff", group="slow", topic="orders") > 10
    assert find(values, "rocketmq_consumer_lag_messages", consumer_group="slow", topic="orders") > 10
    assert find(values, "rocketmq_consumer_lag_latency", consumer_group="slow", topic="orders") > 0
    assert find(values, "rocketmq_group_get_latency_by_storetime", group="slow", topic="orders") > 0
    assert find(values, "rocketmq_consumer_inflight_messages", consumer_group="slow", topic="orders") > 0
    assert find(values, "rocketmq_consumer_ready_messages", consumer_group="slow", topic="orders") > 0
    assert find(values, "rocketmq_group_count", group="archive") == 0
    assert find(values, "rocketmq_group_count", group="billing") == 1
    assert find(values, "rocketmq_group_diff", group="archive", topic="orders", countOfOnlineConsumers="0") > 10
    assert find(values, "rocketmq_producer_count", group="shop") == 1
    assert find(values, "rocketmq_topic_dlq_offset", group="mailer") >= 1
    assert find(values, "rocketmq_group_dlqdiff", group="mailer") >= 1
    assert find(values, "rocketmq_send_to_dlq_messages_total", consumer_group="mailer") >= 1
    assert find(values, "rocketmq_topic_retry_offset", topic="%RETRY%mailer") >= 1
    assert find(values, "rocketmq_send_back_nums", topic="mails", group="mailer") >= 0
    assert find(values, "rocketmq_commit_messages_total", topic="points") == 1
    assert find(values, "rocketmq_rollback_messages_total", topic="points") == 1
    assert find(values, "rocketmq_timing_messages") == 1
    assert find(values, "eruca_broker_delayed_messages", level="18") == 1
    assert find(values, "eruca_broker_halves_without_producer") == 1
    used = find(values, "eruca_store_disk_used_ratio")
    assert used == pytest.approx(find(values, "rocketmq_brokeruntime_commitlog_disk_ratio"), abs=0.05)
    assert find(values, "eruca_nameserver_masters") == 1
    assert find(values, "eruca_nameserver_members") == 2
    # No row for broadcast, where every member has its own progress.
    assert not [labels for labels, _ in values["rocketmq_group_diff"] if labels["group"] == "feed"]
    sent = find(values, "rocketmq_messages_in_total", topic="orders")
    assert sent == find(values, "rocketmq_message_size_count", topic="orders")
    assert sent - find(values, "rocketmq_message_size_bucket", topic="orders", le="1024.0") == 1
    assert sent == find(values, "rocketmq_message_size_bucket", topic="orders", le="524288.0")
    assert find(values, "rocketmq_message_size_sum", topic="orders") == find(
        values, "rocketmq_throughput_in_total", topic="orders"
    )
    members = {labels["group"] for labels, _ in values["rocketmq_client_consume_rt"]}
    assert members == {"billing", "slow", "mailer", "feed"}


def check_runtime_info(table: dict[str, str]) -> None:
    """Every key that the exporter parses is there and parses."""
    for key, parse_value in RUNTIME_KEYS.items():
        parse_value(table[key])
    levels = [key for key in table if key.startswith(DELAY_KEY)]
    assert levels
    for key in levels:
        parse_pair(table[key])


def check_documents(values: Values, texts: list[str]) -> None:
    """docs/METRICS.md lists what is shown, and dashboards and rules name nothing else."""
    documented = set(re.findall(r"^\| `(\w+)`", (REPOSITORY / "docs/METRICS.md").read_text(encoding="utf-8"), re.M))
    shown = set(re.findall(r"^# TYPE (\w+) ", "".join(texts), re.M))
    assert shown - documented == set()
    assert documented - shown - SOMETIMES == set()
    named = set().union(*[list_names(query) for query in list_queries()])
    assert named - values.keys() - SOMETIMES == {"up"}


def test_the_list_is_up_to_date(tmp_path: Path) -> None:
    """`make generate` writes it."""
    made = tmp_path / "METRICS.md"
    subprocess.run([sys.executable, "-m", "eruca._cli.metricsdoc", made], cwd=REPOSITORY, check=True)
    assert (REPOSITORY / "docs/METRICS.md").read_text(encoding="utf-8") == made.read_text(encoding="utf-8")

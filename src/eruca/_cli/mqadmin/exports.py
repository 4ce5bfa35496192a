"""exportMetadata, exportConfigs, exportMetrics: files with what a cluster has."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eruca._admin.groups import NamedGroupSettings
from eruca._admin.lag import is_own_group
from eruca._admin.targets import BrokerRow
from eruca._admin.topics import NamedSettings, TopicKind
from eruca._cli.mqadmin.brokers import first_rate, list_totals, read_runtime
from eruca._cli.mqadmin.call import ALL, Call, ask_each
from eruca._cli.mqadmin.groups import find_connections
from eruca._cli.mqadmin.javatext import java_version, list_group_fields, list_topic_fields, now_ms, show_json
from eruca._cli.mqadmin.stats import count_day
from eruca._ground.smallfiles import replace_file
from eruca._wire.names import HALF_TOPIC, MASTER_ID, SCHEDULE_TOPIC
from eruca.errors import ConfigError, ErucaError

_FOLDER = "/tmp/rocketmq/export"
# The options of a broker that exportConfigs writes.
_OPTIONS = (
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
)


async def _write(call: Call, name: str, document: dict[str, Any]) -> None:
    path = Path(call.line.text("f", _FOLDER), name)
    try:
        await asyncio.to_thread(replace_file, path, show_json(document).encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error}", hint="-f FOLDER names another folder") from error
    call.out.say("export %s success", path)


# --- topics and groups ----------------------------------------------------------------------------------------------


async def export_metadata(call: Call) -> None:
    """Write the settings of topics and groups, of one broker or of a cluster."""
    line = call.line
    only_topics, only_groups = line.has("t"), line.has("g") and not line.has("t")
    if line.has("b") and not (only_topics or only_groups):
        raise ConfigError("-b needs -t (the topics) or -g (the groups)")
    document: dict[str, Any] = {}
    if not only_groups:
        document["topicConfigTable"] = await _list_topics(call)
    if not only_topics:
        document["subscriptionGroupTable"] = await _list_groups(call)
    if line.has("c"):
        document["exportTime"] = now_ms()
    name = "topic.json" if only_topics else "subscriptionGroup.json" if only_groups else "metadata.json"
    await _write(call, name, document)


async def _list_topics(call: Call) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in await _read_topics(call, await call.list_masters(), special=call.line.has("s")):
        fields = list_topic_fields(row.topic, row.settings)
        _add_up(found, row.topic, fields, ("readQueueNums", "writeQueueNums"))
    return found


async def _list_groups(call: Call) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in await _read_groups(call, await call.list_masters()):
        _add_up(found, row.group, list_group_fields(row.group, row.settings), ("retryQueueNums",))
    return found


def _add_up(table: dict[str, dict[str, Any]], name: str, fields: dict[str, Any], counts: Sequence[str]) -> None:
    """Add the settings on one more broker: the queues of all brokers are counted together."""
    before = table.get(name, {})
    table[name] = fields | {count: fields[count] + before.get(count, 0) for count in counts}


async def _read_topics(call: Call, brokers: Sequence[BrokerRow], *, special: bool = False) -> list[NamedSettings]:
    """Return the settings of topics that are not the brokers' own; with `special`, of retry topics and dead letters."""
    kinds = (TopicKind.NORMAL, TopicKind.RETRY, TopicKind.DLQ) if special else (TopicKind.NORMAL,)
    wanted = {row.name for kind in kinds for row in call.take(await call.admin.topics.list(kind=kind, limit=ALL))}
    names = {row.broker for row in brokers}
    rows = call.take(await call.admin.topics.settings(limit=ALL))
    return [row for row in rows if row.broker in names and row.topic in wanted]


async def _read_groups(call: Call, brokers: Sequence[BrokerRow]) -> list[NamedGroupSettings]:
    """Return the settings of groups that are not the brokers' own."""
    names = {row.broker for row in brokers}
    rows = call.take(await call.admin.groups.settings(limit=ALL))
    return [row for row in rows if row.broker in names and not is_own_group(row.group)]


# --- configuration --------------------------------------------------------------------------------------------------


async def export_configs(call: Call) -> None:
    """Write the configuration of the masters of a cluster, and how many servers it has."""
    rows = await call.list_brokers()
    masters = [row for row in rows if row.broker_id == MASTER_ID]
    configs: dict[str, dict[str, str]] = {}
    for row in masters:
        for config in call.take(await call.admin.brokers.config(row.address)):
            configs[row.broker] = {name: config.options[name] for name in _OPTIONS if name in config.options}
    scale = {
        "namesrvSize": len((await call.admin.nameservers.list()).items),
        "masterBrokerSize": len(masters),
        "slaveBrokerSize": len(rows) - len(masters),
    }
    await _write(call, "configs.json", {"brokerConfigs": configs, "clusterScale": scale})


# --- metrics --------------------------------------------------------------------------------------------------------


async def export_metrics(call: Call) -> None:
    """Write the load of the masters of a cluster."""
    runtime = await read_runtime(call, call.line.text("c"))
    reports: dict[str, Any] = {}
    rates: dict[str, float] = defaultdict(float)
    days: dict[str, int] = defaultdict(int)
    for row in await call.list_masters():
        table = runtime.get(row.address)
        if table is None:
            continue  # it is among the problems
        groups = await _read_groups(call, [row])
        quota = await _describe_quota(call, row, table)
        quota["groupSize"] = len(groups)
        for name, rate in quota["tps"].items():
            rates[f"total{name[0].upper()}{name[1:]}"] += rate
        for name, count in quota["oneDayNum"].items():
            days[name] += count
        reports[row.broker] = {
            "runtimeEnv": await _describe_machine(call, row, table),
            "runtimeQuota": quota,
            "runtimeVersion": await _describe_versions(call, groups),
        }
    await _write(
        call, "metrics.json", {"evaluateReport": reports, "totalData": {"totalTps": rates, "totalOneDayNum": days}}
    )


async def _describe_machine(call: Call, row: BrokerRow, table: dict[str, str]) -> dict[str, str]:
    options = {}
    for config in call.take(await call.admin.brokers.config(row.address)):
        options = config.options
    found = {"cpuNum": options.get("clientCallbackExecutorThreads"), "totalMemKBytes": table.get("totalMemKBytes")}
    return {name: value for name, value in found.items() if value is not None}


async def _describe_versions(call: Call, groups: Sequence[NamedGroupSettings]) -> dict[str, Any]:
    clients: set[str] = set()
    for _, found in await ask_each([row.group for row in groups], lambda group: find_connections(call, group)):
        for member in found.connections if found else []:
            clients.add(f"{member.language}%{java_version(member.version)}")
    return {"clientInfo": sorted(clients), "rocketmqVersion": "V4_9_7"}


async def _describe_quota(call: Call, row: BrokerRow, table: dict[str, str]) -> dict[str, Any]:
    halves_rate, halves_day = await _count_topic(call, row, HALF_TOPIC)
    delayed_rate, delayed_day = await _count_topic(call, row, SCHEDULE_TOPIC)
    put_yesterday, get_yesterday, *_ = list_totals(table)
    topics = await _read_topics(call, [row])
    return {
        "diskRatio": {name: table.get(name) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
        "messageAverageSize": table.get("putMessageAverageSize"),
        "oneDayNum": {
            "normalOneDayInNum": put_yesterday,
            "normalOneDayOutNum": get_yesterday,
            "scheduleOneDayInNum": delayed_day,
            "transOneDayInNum": halves_day,
        },
        "topicSize": len(topics),
        "tps": {
            "normalInTps": first_rate(table.get("putTps", "")),
            "normalOutTps": first_rate(table.get("getTransferedTps", "")),
            "scheduleInTps": delayed_rate,
            "transInTps": halves_rate,
        },
    }


async def _count_topic(call: Call, row: BrokerRow, topic: str) -> tuple[float, int]:
    """Return the messages per second that are stored in a topic, and those of a day; none if it is not counted."""
    try:
        found = await call.admin.brokers.statistics("TOPIC_PUT_NUMS", topic, broker=row.address)
    except ErucaError:
        return 0.0, 0
    return sum(rate.minute_rate for rate in found.items), sum(map(count_day, found.items))

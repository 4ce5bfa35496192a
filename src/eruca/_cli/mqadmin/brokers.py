"""brokerStatus, brokerConsumeStats, clusterList, getBrokerConfig, updateBrokerConfig, and cleaning up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime

from eruca._admin.results import Changed
from eruca._admin.targets import BrokerRow
from eruca._cli.mqadmin.call import ALL, Call
from eruca._cli.mqadmin.javatext import cut, show_time, to_ms
from eruca._wire.names import MASTER_ID

_HOUR_MS = 3_600_000

# --- looking --------------------------------------------------------------------------------------------------------


async def read_runtime(call: Call, cluster: str | None = None) -> dict[str, dict[str, str]]:
    """Return what brokers report about themselves, by address; those of `-b`, of a cluster, or all."""
    found = await call.admin.brokers.runtime(call.line.find("b"), cluster=cluster, limit=ALL)
    return {row.address: row.raw for row in call.take(found)}


async def broker_status(call: Call) -> None:
    """Show all that a broker reports about itself, or all brokers of a cluster."""
    for address, table in (await read_runtime(call, call.line.find("c"))).items():
        for key in sorted(table):
            if call.line.has("b"):
                call.out.say("%-32s: %s", key, table[key])
            else:
                call.out.say("%-24s %-32s: %s", address, key, table[key])


async def broker_consume_stats(call: Call) -> None:
    """Show how far all groups are in the queues of a broker."""
    line = call.line
    rows = call.take(await call.admin.brokers.consume_stats(line.text("b"), ordered=line.is_true("o"), limit=ALL))
    form = "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s"
    heads = ("Topic", "Group", "Broker Name", "QID", "Broker Offset", "Consumer Offset", "Diff", "LastTime")
    show = call.out.table(form, *heads)
    for row in rows:
        lag = row.end - row.offset
        if lag >= line.number("l") and row.consumed_at is not None:
            place = (cut(row.topic, 64), row.group, cut(row.broker, 32), row.queue)
            show(*place, row.end, row.offset, lag, show_time(row.consumed_at))
    call.out.say("\nDiff Total: %d", sum(row.end - row.offset for row in rows))


async def cluster_list(call: Call) -> None:
    """List the brokers with their rates; with `-m`, with the messages of today and yesterday."""
    async for _ in call.rounds(call.line.number("i", 1)):
        rows = await call.list_brokers()
        tables = await read_runtime(call)
        if call.line.has("m"):
            form = "%-16s  %-32s %14s %14s %14s %14s"
            heads = ("InTotalYest", "OutTotalYest", "InTotalToday", "OutTotalToday")
            show = call.out.table(form, "Cluster Name", "Broker Name", *heads)
            for row in rows:
                show(row.cluster, row.broker, *list_totals(tables.get(row.address, {})))
        else:
            form = "%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s"
            loads = ("Version", "InTPS(LOAD)", "OutTPS(LOAD)", "PCWait(ms)", "Hour", "SPACE")
            show = call.out.table(form, "Cluster Name", "Broker Name", "BID", "Addr", *loads)
            for row in rows:
                show(*_place(row), *_describe_load(tables.get(row.address, {})))
        if not call.line.has("i"):
            return


def _place(row: BrokerRow) -> tuple[object, ...]:
    return row.cluster, row.broker, row.broker_id, row.address


def list_totals(table: dict[str, str]) -> Iterator[int]:
    """Yield the messages in and out of yesterday, then those of today."""
    for end, begin in (("TodayMorning", "YesterdayMorning"), ("TodayNow", "TodayMorning")):
        for way in ("Put", "Get"):
            yield int(table.get(f"msg{way}Total{end}", 0)) - int(table.get(f"msg{way}Total{begin}", 0))


def first_rate(text: str) -> float:
    """Return the first of the rates `10s 60s 600s`."""
    return float((text.split() or ["0"])[0])


def _describe_load(table: dict[str, str]) -> Iterator[object]:
    yield table.get("brokerVersionDesc", "")
    for rate, pool in (("putTps", "send"), ("getTransferedTps", "pull")):
        size, wait = (
            table.get(f"{pool}ThreadPoolQueueSize", ""),
            table.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", ""),
        )
        yield f"{first_rate(table.get(rate, '')):9.2f}({size},{wait}ms)"
    yield table.get("pageCacheLockTimeMills", "")
    earliest = int(table.get("earliestMessageTimeStamp") or 0)
    yield f"{(to_ms(datetime.now(UTC)) - earliest) / _HOUR_MS if earliest else 0:2.2f}"
    yield f"{float(table.get('commitLogDiskRatio') or 0):.4f}"


async def get_broker_config(call: Call) -> None:
    """Show the configuration of a broker, or of all brokers of a cluster with their slaves."""
    rows = await call.list_brokers()
    masters = {row.broker: row.address for row in rows if row.broker_id == MASTER_ID}
    for row in rows:
        if call.line.has("b"):
            head = row.address
        elif row.broker_id == MASTER_ID:
            head = f"Master: {row.address}"
        else:
            head = f"My Master: {masters.get(row.broker)}=====Slave: {row.address}"
        found = call.take(await call.admin.brokers.config(row.address))
        call.out.say("============%s============", head)
        for config in found:
            for key, value in config.options.items():
                call.out.say("%-50s=  %s", key, value)
        call.out.say("")


# --- changing -------------------------------------------------------------------------------------------------------


async def update_broker_config(call: Call) -> None:
    """Change an option of a broker, or of the masters of a cluster."""
    options = {call.line.text("k"): call.line.text("v")}
    async for row, _ in call.change_each(
        await call.list_masters(), lambda row: call.admin.brokers.set_config(options, broker=row.address)
    ):
        call.out.say("update broker config success, %s", row.address)


async def clean_expired_cq(call: Call) -> None:
    """Delete files of consume queues whose messages are gone."""
    await _clean(call, lambda row: call.admin.brokers.clean_expired_queues(row.address))


async def clean_unused_topic(call: Call) -> None:
    """Delete the queue files of topics that were deleted."""
    await _clean(call, lambda row: call.admin.brokers.clean_unused_topics(row.address))


async def delete_expired_commit_log(call: Call) -> None:
    """Delete files of the log that are older than the retention time."""
    await _clean(call, lambda row: call.admin.brokers.delete_expired_log(row.address))


async def _clean(call: Call, change: Callable[[BrokerRow], Awaitable[Changed[str]]]) -> None:
    rows = await call.list_brokers()
    done = [row async for row, _ in call.change_each(rows, change)]
    call.out.say("%s", "success" if len(done) == len(rows) else "false")

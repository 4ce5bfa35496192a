"""statsAll."""

from __future__ import annotations

from collections.abc import Iterable

from eruca._admin.progress import Progress
from eruca._admin.rates import Rate
from eruca._admin.topics import TopicTraffic
from eruca._cli.mqadmin.call import ALL, Call, ask_each
from eruca._cli.mqadmin.javatext import cut
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX

_FORM = "%-64s  %-64s %12s %11s %11s %14s %14s"


def count_day(rate: Rate) -> int:
    """Return the messages of a day; while a broker is young, those of its hour or minute."""
    return rate.day_sum or rate.hour_sum or rate.minute_sum


async def stats_all(call: Call) -> None:
    """Show for each topic and group what comes in, what goes out, and what waits."""
    heads = ("Topic", "Consumer Group", "Accumulation", "InTPS", "OutTPS", "InMsg24Hour", "OutMsg24Hour")
    call.out.table(_FORM, *heads)
    wanted = call.line.find("t")
    names = [row.name for row in call.take(await call.admin.topics.list(kind="all", limit=ALL))]
    topics = [name for name in names if not name.startswith((RETRY_PREFIX, DLQ_PREFIX)) and wanted in (None, "", name)]
    for topic, found in await ask_each(topics, lambda topic: _read_topic(call, topic)):
        if found is not None:
            _show(call, topic, *found)


async def _read_topic(call: Call, topic: str) -> tuple[TopicTraffic, dict[str, Progress | None]]:
    traffic = await call.admin.topics.traffic(topic)
    groups = call.take(await call.admin.topics.groups(topic, limit=ALL))
    progress = await ask_each(groups, lambda group: call.admin.offsets.progress(group, topic))
    return traffic, dict(progress)


def _show(call: Call, topic: str, traffic: TopicTraffic, groups: dict[str, Progress | None]) -> None:
    only_active = call.line.has("a")
    in_rate, in_day = _sum(traffic.stored)
    if not groups and (in_day or not only_active):
        call.out.say(_FORM, cut(topic, 64), "", 0, f"{in_rate:.2f}", "", in_day, "NO_CONSUMER")
    for group, progress in groups.items():
        out_rate, out_day = _sum(rate for rate in traffic.consumed if rate.key == f"{topic}@{group}")
        lag = sum(row.end - row.offset for row in progress.queues.items) if progress else 0
        if in_day or out_day or not only_active:
            numbers = (max(0, lag), f"{in_rate:.2f}", f"{out_rate:.2f}", in_day, out_day)
            call.out.say(_FORM, cut(topic, 64), cut(group, 64), *numbers)


def _sum(rates: Iterable[Rate]) -> tuple[float, int]:
    """Return the messages per second, and those of a day, on all brokers."""
    found = list(rates)
    return sum(rate.minute_rate for rate in found), sum(map(count_day, found))

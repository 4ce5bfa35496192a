"""One group, topic or broker in detail: what `eruca top` shows when a line is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from eruca._admin.admin import Admin
from eruca._admin.groupqueues import GroupQueue
from eruca._admin.groups import Group
from eruca._admin.members import Lag, Member
from eruca._admin.rates import Rate
from eruca._admin.results import Problem
from eruca._admin.topics import Topic, TopicTraffic
from eruca._cli.output import format_bytes, format_time
from eruca._cli.topview.figures import show_count, show_rate, show_span
from eruca._cli.topview.state import Tab
from eruca._ground.printable import say_count

# Queues and members of one group or topic.
_ROWS_MAX = 500


class Section(NamedTuple):
    """A titled table; a column whose name starts with `>` is aligned to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Detail(NamedTuple):
    """What was opened: a line of facts, tables, and what is missing."""

    name: str
    facts: Sequence[str]
    sections: Sequence[Section]
    problems: Sequence[str]


async def look_at(admin: Admin, tab: Tab, name: str) -> Detail:
    """Return the details of a group, of a topic, or of the broker with an address. Raises NoRoute if it is gone."""
    if tab is Tab.GROUPS:
        return describe_group(await admin.groups.show(name, limit=_ROWS_MAX))
    if tab is Tab.TOPICS:
        topic, traffic = await asyncio.gather(admin.topics.show(name, limit=_ROWS_MAX), admin.topics.traffic(name))
        return describe_topic(topic, traffic)
    member = await admin.cluster.find(name)
    lags = await admin.cluster.lag(member.broker)
    runtime = await admin.brokers.runtime(name)
    figures = runtime.items[0].raw if runtime.items else {}
    return describe_broker(member, lags.items, figures, runtime.problems)


def describe_group(group: Group) -> Detail:
    """Return a group with its queues, those with the most messages waiting first."""
    rows = [
        (
            row.topic,
            row.broker,
            str(row.queue),
            "-" if row.offset is None else str(row.offset),
            str(row.end),
            show_count(row.lag),
            show_span(None if row.lag_time is None else row.lag_time.total_seconds()),
            row.owner or "-",
            row.stuck_on.message_id if row.stuck_on is not None else "",
        )
        for row in sorted(group.queues, key=_by_lag)
    ]
    members = [(row.client_id, row.address, row.language, row.version) for row in group.members]
    differences = [
        (row.topic, client_id, "not subscribed" if found is None else found.expression)
        for row in group.differences
        for client_id, found in sorted(row.by_member.items())
    ]
    wait = None if group.lag_time is None else group.lag_time.total_seconds()
    sections = [
        Section(
            "queues", ["topic", "broker", ">queue", ">offset", ">end", ">lag", ">wait", "owner", "next message"], rows
        ),
        Section("members", ["client id", "address", "language", "version"], members),
    ]
    if differences:
        sections.append(Section("members are subscribed differently", ["topic", "member", "to"], differences))
    return Detail(
        f"group {group.name}",
        [
            *([f"{group.model} {group.kind}".strip()] if group.model else []),
            say_count(len(group.members), "member"),
            f"lag {show_count(group.lag)}",
            f"wait {show_span(wait)}",
            f"fetches {show_rate(group.rate)}/s",
            f"{show_count(group.dead_letters)} dead letters",
        ],
        sections,
        [*_say(group.problems), *(["not all queues or members are shown"] if group.cut else [])],
    )


def _by_lag(row: GroupQueue) -> tuple[int, str, str, int]:
    return -row.lag, row.topic, row.broker, row.queue


def describe_topic(topic: Topic, traffic: TopicTraffic) -> Detail:
    """Return a topic with its queues and its groups."""
    queues = [
        (row.broker, str(row.queue), str(row.begin), str(row.end), show_count(row.count), format_time(row.last_at))
        for row in topic.queues
    ]
    consumed: dict[str, float] = dict.fromkeys(topic.groups, 0.0)
    for rate in traffic.consumed:
        group = rate.key.partition("@")[2]
        consumed[group] = consumed.get(group, 0.0) + rate.minute_rate
    settings = [
        (
            row.broker,
            row.settings.permission,
            str(row.settings.read_queues),
            str(row.settings.write_queues),
            _show_stored(traffic.stored, row.broker),
        )
        for row in topic.brokers
    ]
    return Detail(
        f"topic {topic.name}",
        [topic.kind.value, f"{show_count(topic.count)} messages", say_count(len(topic.groups), "group")],
        [
            Section("brokers", ["broker", "may", ">read queues", ">write queues", ">in/s"], settings),
            Section(
                "groups", ["group", ">fetches/s"], [(name, show_rate(rate)) for name, rate in sorted(consumed.items())]
            ),
            Section("queues", ["broker", ">queue", ">begin", ">end", ">messages", "last stored"], queues),
        ],
        [*_say(topic.problems), *(["not all queues are shown"] if topic.cut else [])],
    )


def _show_stored(rates: Sequence[Rate], broker: str) -> str:
    found = next((rate for rate in rates if rate.broker == broker), None)
    return "-" if found is None else show_rate(found.minute_rate)


def describe_broker(
    member: Member, lags: Sequence[Lag], figures: dict[str, str], problems: Sequence[Problem]
) -> Detail:
    """Return a broker with its slaves and all that it reports about itself."""
    slaves = [
        (
            row.address,
            str(row.broker_id),
            "yes" if row.connected else "no",
            {True: "yes", False: "no", None: "-"}[row.in_sync],
            format_bytes(max(0, row.lag_bytes)),
            show_span(row.lag_seconds),
        )
        for row in lags
    ]
    facts = [member.role or "does not answer", f"id {member.broker_id}", f"cluster {member.cluster}"]
    if member.state is not None:
        facts.append(f"epoch {member.state.epoch}")
    return Detail(
        f"broker {member.broker} ({member.address})",
        facts,
        [
            Section("slaves", ["address", ">id", "connected", "in sync", ">behind", ">behind"], slaves),
            Section("reports", ["name", "value"], sorted(figures.items())),
        ],
        [*([member.problem] if member.problem else []), *_say(problems)],
    )


def _say(problems: Sequence[Problem]) -> list[str]:
    return [f"{problem.where}: {problem.error}" for problem in problems]

"""`eruca lag`: how far groups are behind, all at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TypeVar

import click

from eruca._cli.completing import suggest_groups, suggest_topics
from eruca._cli.grouping import SectionedCommand
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, view_list
from eruca._ground.printable import format_duration
from eruca.admin import Admin, GroupLag, Listed, QueueLag, sum_lag

Behind = TypeVar("Behind", GroupLag, QueueLag)

_NOBODY = "no group has offsets; a group has some after it consumed its first message"


@click.command(cls=SectionedCommand)
@click.argument("groups", metavar="[GROUP]...", nargs=-1, shell_complete=suggest_groups)
@click.option(
    "-t", "--topic", "topics", multiple=True, shell_complete=suggest_topics, help="Only this topic; may be repeated."
)
@click.option("--queues", is_flag=True, help="One row per queue instead of per topic.")
@click.option(
    "--above",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only those more than N messages behind; the exit status is 3 if there are any.",
)
@add_limit_option
@add_view_options
def lag(
    view: Viewing, groups: tuple[str, ...], topics: tuple[str, ...], queues: bool, above: int | None, limit: int | None
) -> None:
    """Show how far groups are behind, in messages and in time: all groups, or the named ones.

    The time is how long the next message to consume has been waiting. The group that is furthest behind is first.
    `eruca group show GROUP` shows the members of a group and which messages it is stuck on. The exit status is 3 if a
    named group has no offsets, or if there is no such topic.

    \b
    Examples:
      eruca lag
      eruca lag billing --queues
      eruca lag --topic orders --watch
      eruca lag --above 10000 || echo "somebody is behind"
      eruca lag -o json | jq -s 'map(.lag) | add'
    """
    rows = view.choose_limit(limit)

    async def ask(admin: Admin) -> View:
        found = await admin.offsets.lag(groups, topics, limit=view.choose_limit(0))
        if queues:
            shown = _view_queues(_choose(found.items, above), rows, found, above)
        else:
            shown = _view_groups(_choose(sum_lag(found.items), above), rows, found, above)
        if topics and above is None:
            shown = replace(shown, empty=f"no group has offsets in topic {' or '.join(topics)}")
        warnings = [warning async for warning in _list_missing(admin, found, groups, topics)]
        if warnings and not shown.value:
            return replace(shown, empty="; ".join(warnings), is_wrong=True)
        return replace(shown, warnings=warnings)

    view.show(ask)


async def _list_missing(
    admin: Admin, found: Listed[QueueLag], groups: Sequence[str], topics: Sequence[str]
) -> AsyncIterator[str]:
    """Yield what was named and is not there: probably another name was meant."""
    absent = set[str]()
    for topic in topics:
        if topic not in {row.topic for row in found.items} and await admin.connection.find_route(topic) is None:
            absent.add(topic)
            yield f"no broker has a topic {topic} (`eruca topic list` shows the topics)"
    if absent or found.cut or found.problems:
        return
    where = f" in topic {' or '.join(topics)}" if topics else ""
    for group in groups:
        if group not in {row.group for row in found.items}:
            yield f"group {group} has no offsets{where} (`eruca group list` shows the groups)"


def _choose(rows: list[Behind], above: int | None) -> list[Behind]:
    chosen = [row for row in rows if above is None or row.lag > above]
    return sorted(chosen, key=lambda row: -row.lag)


def _cut(rows: list[Behind], limit: int, found: Listed[QueueLag]) -> Listed[Behind]:
    return Listed(items=rows[:limit], cut=found.cut or len(rows) > limit, problems=found.problems)


def _view_groups(rows: list[GroupLag], limit: int, found: Listed[QueueLag], above: int | None) -> View:
    return view_list(
        _cut(rows, limit, found),
        ["group", "topic", ">queues", ">lag", ">waiting"],
        lambda row: (row.group, row.topic, str(row.queues), str(row.lag), format_duration(row.lag_time)),
        empty=_NOBODY if above is None else f"no group is more than {above} messages behind",
        is_wrong=above is not None and bool(rows),
    )


def _view_queues(rows: list[QueueLag], limit: int, found: Listed[QueueLag], above: int | None) -> View:
    return view_list(
        _cut(rows, limit, found),
        ["group", "topic", "queue", ">offset", ">end", ">lag", ">waiting"],
        _draw_queue,
        empty=_NOBODY if above is None else f"no group is more than {above} messages behind in a queue",
        is_wrong=above is not None and bool(rows),
    )


def _draw_queue(row: QueueLag) -> tuple[str, ...]:
    where = (row.group, row.topic, f"{row.broker}:{row.queue}")
    return (*where, str(row.offset), str(row.end), str(row.lag), format_duration(row.lag_time))

"""`eruca offset`: show and change the offsets of consumer groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from eruca._cli.administer import operate
from eruca._cli.changing import Changing, add_change_options
from eruca._cli.choosing import add_group_argument, add_topic_argument
from eruca._cli.completing import suggest_groups, suggest_topics
from eruca._cli.connecting import add_nameserver_option
from eruca._cli.grouping import CommandGroup
from eruca._cli.output import format_time, to_plain
from eruca._cli.savedoffsets import read_offsets, write_offsets
from eruca._cli.saying import say
from eruca._cli.viewing import View, Viewing, add_view_options, view_list
from eruca._client.group.settings import Start
from eruca._ground.times import read_moment
from eruca._wire.names import check_group
from eruca.admin import Admin, QueueProgress, SavedOffset, SavedOffsets
from eruca.errors import ConfigError, NoRoute

_PLACE = re.compile(r"(.+):(\d{1,9})=(\d{1,18})")


@click.group(cls=CommandGroup)
def offset() -> None:
    """Consumer offsets: show how far groups are, replay, skip, save and restore.

    \b
    Examples:
      eruca offset show billing               progress, queue by queue
      eruca offset reset billing orders --to 2026-11-15T07:00:00
                                              consume again from that time
      eruca offset reset billing orders --to -2h --dry-run
                                              show the new offsets only
      eruca offset skip billing orders        skip the backlog
      eruca offset clone billing audit        start another group there
      eruca offset export billing --to billing.json
    """


def parse_moment(text: str) -> Start:
    """Read a target: `earliest`, `latest`, `now`, `-2h` (ago) or a time."""
    try:
        return read_moment(text)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


# --- looking ----------------------------------------------------------------------------------------------------------


@offset.command()
@add_group_argument
@click.option("-t", "--topic", shell_complete=suggest_topics, help="Only this topic.")
@add_view_options
def show(view: Viewing, group: str, topic: str | None) -> None:
    """Show how far GROUP is: its offset, the end of each queue, and the number of messages between them.

    `eruca group show` also has the owner of each queue and how long messages have been waiting.

    \b
    Examples:
      eruca offset show billing
      eruca offset show billing -t orders -o json | jq -s 'map(.lag) | add'
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.offsets.show(group, topic, limit=view.choose_limit(0))
        if not listed.items and not listed.problems:
            await _explain_nothing(admin, group, topic)
        columns = ["topic", "broker", ">queue", ">offset", ">end", ">lag", "last consumed"]
        return view_list(listed, columns, _draw_progress, empty="", describe=_describe)

    view.show(ask)


async def _explain_nothing(admin: Admin, group: str, topic: str | None) -> None:
    """Raise NoRoute: why a group has no offsets."""
    if topic is not None and await admin.connection.find_route(topic) is None:
        raise NoRoute(f"no broker has a topic {topic}", hint="eruca topic list shows the topics")
    where = "" if topic is None else f" in topic {topic}"
    raise NoRoute(
        f"group {group} has no offsets{where}",
        hint="it commits its first ones after it has consumed messages; eruca group list shows the groups",
    )


def _describe(row: QueueProgress) -> dict[str, Any]:
    return {**to_plain(row), "lag": row.lag}


def _draw_progress(row: QueueProgress) -> Sequence[str]:
    numbers = (str(row.queue), str(row.offset), str(row.end), str(row.lag))
    return (row.topic, row.broker, *numbers, format_time(row.consumed_at))


# --- moving -----------------------------------------------------------------------------------------------------------


@offset.command()
@add_group_argument
@add_topic_argument
@click.option(
    "--to",
    "moment",
    required=True,
    type=parse_moment,
    metavar="TIME|-2h|earliest|latest",
    help="Continue with messages from this time: 2026-11-15T07:21:06, milliseconds, or an age (s, m, h, d).",
)
@click.option("--only-back", is_flag=True, help="Do not move the group forward in any queue.")
@add_change_options(asks=True)
def reset(change: Changing, group: str, topic: str, moment: Start, only_back: bool) -> None:
    """Move GROUP to the messages that were stored in TOPIC at a time.

    If members of the group are connected, the broker tells them, and they move within seconds (outcome `told`; this
    includes members that use other clients). If none is connected, the offsets are written to the broker (`written`). A
    group that does not exist yet gets offsets too, so its first member starts at that time. Messages that were consumed
    before are delivered again.

    \b
    Examples:
      eruca offset reset billing orders --to 2026-11-15T07:00:00
      eruca offset reset billing orders --to -30m --dry-run
      eruca offset reset billing orders --to earliest --yes
      eruca offset reset audit orders --to 2026-11-01     where a new group starts
    """
    change.apply(
        lambda admin, dry_run: admin.offsets.reset(group, topic, moment, force=not only_back, dry_run=dry_run),
        f"Move group {group} in topic {topic} to {_say(moment)}?",
    )


def _say(moment: Start) -> str:
    if isinstance(moment, datetime):
        return format_time(moment)
    return "its first message" if moment == "earliest" else "its end"


@offset.command()
@add_group_argument
@add_topic_argument
@add_change_options(asks=True)
def skip(change: Changing, group: str, topic: str) -> None:
    """Move GROUP past all messages in TOPIC that it has not consumed yet.

    Skipped messages stay in the topic; `eruca offset reset` goes back to them.

    \b
    Examples:
      eruca offset skip billing orders --dry-run
      eruca offset skip billing orders --yes
    """
    change.apply(
        lambda admin, dry_run: admin.offsets.skip(group, topic, dry_run=dry_run),
        f"Skip all that group {group} has not consumed in topic {topic}?",
    )


@offset.command()
@add_group_argument
@add_topic_argument
@click.option(
    "--by",
    required=True,
    type=int,
    metavar="N",
    help="How many messages in each queue; --by=-10 goes back, --by 10 skips.",
)
@add_change_options(asks=True)
def shift(change: Changing, group: str, topic: str, by: int) -> None:
    """Move GROUP by some messages in each queue of TOPIC, within what the queue has. No member may be connected.

    \b
    Examples:
      eruca offset shift billing orders --by=-10    the last ten again
      eruca offset shift billing orders --by 1      past one that fails
    """
    change.apply(
        lambda admin, dry_run: admin.offsets.shift(group, topic, by, dry_run=dry_run),
        f"Move group {group} by {by} messages in each queue of topic {topic}?",
    )


@offset.command("set")
@add_group_argument
@add_topic_argument
@click.argument("places", metavar="BROKER:QUEUE=OFFSET...", nargs=-1, required=True)
@add_change_options(asks=True)
def set_(change: Changing, group: str, topic: str, places: tuple[str, ...]) -> None:
    """Set offsets of GROUP in single queues of TOPIC. No member may be connected.

    \b
    Examples:
      eruca offset set billing orders broker-a:0=4711
      eruca offset set billing orders broker-a:0=4711 broker-a:1=4699 --yes
    """
    saved = SavedOffsets(
        group=group, taken_at=datetime.now(UTC), offsets=[_parse_place(topic, each) for each in places]
    )
    change.apply(
        lambda admin, dry_run: admin.offsets.restore(saved, group=group, dry_run=dry_run),
        f"Set the offsets of group {group} in topic {topic}?",
    )


def _parse_place(topic: str, text: str) -> SavedOffset:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r}: expected BROKER:QUEUE=OFFSET, for example broker-a:0=4711")
    return SavedOffset(topic=topic, broker=match[1], queue=int(match[2]), offset=int(match[3]))


@offset.command()
@click.argument("source", shell_complete=suggest_groups)
@click.argument("target", shell_complete=suggest_groups)
@click.option(
    "-t", "--topic", shell_complete=suggest_topics, help="Only this topic; default: all in which SOURCE has offsets."
)
@add_change_options(asks=True)
def clone(change: Changing, source: str, target: str, topic: str | None) -> None:
    """Copy the offsets of group SOURCE to group TARGET. No member of TARGET may be connected.

    \b
    Examples:
      eruca offset clone billing billing-v2
      eruca offset clone billing audit --topic orders --yes
    """
    check_group(source)
    check_group(target)
    change.apply(
        lambda admin, dry_run: admin.offsets.clone(source, target, topic, dry_run=dry_run),
        f"Replace the offsets of group {target} by those of {source}?",
    )


# --- saving and restoring ---------------------------------------------------------------------------------------------


@offset.command("export")
@add_group_argument
@click.option("-t", "--topic", shell_complete=suggest_topics, help="Only this topic; default: all with offsets.")
@click.option(
    "--to", "target", type=click.Path(path_type=Path, allow_dash=True), default="-", help="A file [default: stdout]."
)
@add_nameserver_option
def export_(group: str, topic: str | None, target: Path, nameservers: str) -> None:
    """Save the offsets of GROUP as JSON, to restore them later.

    \b
    Examples:
      eruca offset export billing --to billing.json
      eruca offset export billing | jq '.offsets | length'
    """
    saved = operate(nameservers, lambda admin: admin.offsets.export(group, topic))
    write_offsets(target, saved)
    say(f"{len(saved.offsets)} offsets exported")


@offset.command("import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("-g", "--group", shell_complete=suggest_groups, help="Another group than the one that was saved.")
@add_change_options(asks=True)
def import_(change: Changing, file: Path, group: str | None) -> None:
    """Restore offsets that `eruca offset export` saved to FILE. No member of the group may be connected.

    Queues that are gone are reported as failed; the others are restored.

    \b
    Examples:
      eruca offset import billing.json --dry-run
      eruca offset import billing.json --group billing-v2 --yes
    """
    saved = read_offsets(file)
    name = check_group(group or saved.group)
    when = format_time(saved.taken_at)
    change.apply(
        lambda admin, dry_run: admin.offsets.restore(saved, group=name, dry_run=dry_run),
        f"Set the offsets of group {name} to those of {saved.group} at {when}?",
    )

"""`eruca offset`: show and change the offsets of consumer groups."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click

from eruca._admin.admin import Admin
from eruca._admin.moving import Move, Moved
from eruca._admin.progress import QueueProgress
from eruca._cli.administer import add_yes_option, confirm, end_with, operate
from eruca._cli.connecting import add_nameserver_option
from eruca._cli.output import add_output_option, format_time, parse_time, print_rows
from eruca._client.group.settings import Start
from eruca._wire.names import check_group, check_topic
from eruca.errors import NoRoute

_AGO = re.compile(r"-(\d{1,9})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_COLUMNS = ["topic", "broker", ">queue", ">before", ">after", "outcome", "reason"]


@click.group()
def offset() -> None:
    """Consumer offsets: show how far groups are, replay, and skip.

    \b
    Examples:
      eruca offset show billing               progress, queue by queue
      eruca offset reset billing orders --to 2026-11-15T07:00:00
                                              consume again from that time
      eruca offset reset billing orders --to -2h --dry-run
                                              show the new offsets only
      eruca offset skip billing orders        skip the backlog
      eruca offset clone billing audit        start another group there
    """


def parse_moment(text: str) -> Start:
    """Read a target: `earliest`, `latest`, `now`, `-2h` (ago) or a time."""
    if text == "earliest":
        return "earliest"
    if text in ("latest", "now"):
        return "latest"
    if match := _AGO.fullmatch(text):
        try:
            return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            return "earliest"
    moment = parse_time(text)
    if moment < datetime.fromtimestamp(0, UTC):
        raise click.BadParameter(f"{text!r} is before 1970")
    return moment


@offset.command()
@click.argument("group")
@click.option("-t", "--topic", help="Only this topic.")
@add_nameserver_option
@add_output_option
def show(group: str, topic: str | None, nameservers: str, output: str) -> None:
    """Show how far GROUP is: its offset, the end of each queue, and the number of messages between them.

    \b
    Examples:
      eruca offset show billing
      eruca offset show billing -t orders -o json | jq -s 'map(.behind) | add'
    """
    check_group(group)
    rows = operate(nameservers, lambda admin: _find_rows(admin, group, topic))
    if output == "table":
        print_rows(
            rows, output, ["topic", "broker", ">queue", ">offset", ">end", ">behind", "last consumed"], _draw_progress
        )
    else:
        print_rows([_describe(row) for row in rows], output, [], lambda _: [])


async def _find_rows(admin: Admin, group: str, topic: str | None) -> list[QueueProgress]:
    rows = (await admin.offsets.show(group, topic, limit=sys.maxsize)).items
    if rows:
        return rows
    if topic is not None and await admin.connection.find_route(topic) is None:
        raise NoRoute(f"no broker has a topic {topic}", hint="check the spelling of its name")
    where = "" if topic is None else f" in topic {topic}"
    raise NoRoute(
        f"group {group} has no offsets{where}", hint="it commits its first ones after it has consumed messages"
    )


def _describe(row: QueueProgress) -> dict[str, object]:
    return {**{name: getattr(row, name) for name in row.__struct_fields__}, "behind": row.lag}


def _draw_progress(row: QueueProgress) -> Sequence[str]:
    numbers = (str(row.queue), str(row.offset), str(row.end), str(row.lag))
    return (row.topic, row.broker, *numbers, format_time(row.consumed_at))


@offset.command()
@click.argument("group")
@click.argument("topic")
@click.option(
    "--to",
    "moment",
    required=True,
    type=parse_moment,
    metavar="TIME|-2h|earliest|latest",
    help="Continue with messages from this time: 2026-11-15T07:21:06, milliseconds, or an age (s, m, h, d).",
)
@click.option("--only-back", is_flag=True, help="Do not move the group forward in any queue.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets, and change nothing.")
@add_yes_option
@add_nameserver_option
@add_output_option
def reset(
    group: str, topic: str, moment: Start, only_back: bool, dry_run: bool, yes: bool, nameservers: str, output: str
) -> None:
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
    check_group(group)
    check_topic(topic)
    if not dry_run:
        confirm(f"Move group {group} in topic {topic} to {_say(moment)}?", yes)
    moved = operate(
        nameservers,
        lambda admin: admin.offsets.reset(group, topic, moment, force=not only_back, dry_run=dry_run),
    )
    _show_moves(moved, output)


def _say(moment: Start) -> str:
    if isinstance(moment, datetime):
        return format_time(moment)
    return "its first message" if moment == "earliest" else "its end"


@offset.command()
@click.argument("group")
@click.argument("topic")
@click.option("--dry-run", is_flag=True, help="Show what would be skipped, and change nothing.")
@add_yes_option
@add_nameserver_option
@add_output_option
def skip(group: str, topic: str, dry_run: bool, yes: bool, nameservers: str, output: str) -> None:
    """Move GROUP past all messages in TOPIC that it has not consumed yet.

    Skipped messages stay in the topic; `eruca offset reset` goes back to them.

    \b
    Examples:
      eruca offset skip billing orders --dry-run
      eruca offset skip billing orders --yes
    """
    check_group(group)
    check_topic(topic)
    if not dry_run:
        confirm(f"Skip all that group {group} has not consumed in topic {topic}?", yes)
    _show_moves(operate(nameservers, lambda admin: admin.offsets.skip(group, topic, dry_run=dry_run)), output)


@offset.command()
@click.argument("source")
@click.argument("target")
@click.option("-t", "--topic", help="Only this topic; default: all in which SOURCE has offsets.")
@add_yes_option
@add_nameserver_option
@add_output_option
def clone(source: str, target: str, topic: str | None, yes: bool, nameservers: str, output: str) -> None:
    """Copy the offsets of group SOURCE to group TARGET. No member of TARGET may be connected.

    \b
    Examples:
      eruca offset clone billing billing-v2
      eruca offset clone billing audit --topic orders --yes
    """
    check_group(source)
    check_group(target)
    confirm(f"Replace the offsets of group {target} by those of {source}?", yes)
    _show_moves(operate(nameservers, lambda admin: admin.offsets.clone(source, target, topic)), output)


def _show_moves(moved: Moved, output: str) -> None:
    print_rows(moved.moves, output, _COLUMNS, _draw_move)
    end_with(move.outcome for move in moved.moves)


def _draw_move(move: Move) -> Sequence[str]:
    places = ["-" if place is None else str(place) for place in (move.before, move.after)]
    return (move.topic, move.broker, str(move.queue), *places, move.outcome, move.reason)

"""`eruca delayed`: messages that wait for their time."""

from __future__ import annotations

import click

from eruca._cli.administer import add_yes_option, confirm, end_with, operate
from eruca._cli.changing import add_dry_run_option
from eruca._cli.choosing import add_topic_argument
from eruca._cli.completing import suggest_brokers, suggest_topics
from eruca._cli.connecting import add_nameserver_option
from eruca._cli.grouping import CommandGroup
from eruca._cli.output import add_output_option, format_time, print_rows
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, view_list
from eruca._ground.printable import say_count
from eruca.admin import Admin, Cancelled, Delayed, LevelProgress


@click.group(cls=CommandGroup)
def delayed() -> None:
    """Delayed messages: those that wait for their time.

    A message is delayed by a level (`--delay`), or until an exact time (`timer` of a producer).

    \b
    Examples:
      eruca delayed list --topic reminders
      eruca delayed levels                        how many wait in each level
      eruca delayed cancel reminders 7F000001...  one with an exact time
    """


@delayed.command("list")
@click.option("-t", "--topic", shell_complete=suggest_topics, help="Only messages for this topic.")
@click.option("-b", "--broker", metavar="NAME", shell_complete=suggest_brokers, help="Only those of this broker.")
@add_limit_option
@add_view_options
def list_(view: Viewing, topic: str | None, broker: str | None, limit: int | None) -> None:
    """List messages that wait for their time.

    \b
    Examples:
      eruca delayed list
      eruca delayed list --topic reminders -o json | jq -r .message_id
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.delayed.list(topic=topic, broker=broker, limit=view.choose_limit(limit))
        columns = ["due", "topic", "message id", "keys", "tags", ">level"]
        return view_list(listed, columns, _draw_delayed, empty="no message waits for its time")

    view.show(ask)


def _draw_delayed(row: Delayed) -> tuple[str, ...]:
    words = (row.topic, row.message_id, " ".join(row.keys), row.tags)
    return (format_time(row.due_at), *words, str(row.level) if row.level else "timer")


@delayed.command()
@add_view_options
def levels(view: Viewing) -> None:
    """Show how many messages wait in each delay level of each broker.

    \b
    Examples:
      eruca delayed levels
      eruca delayed levels --watch
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.delayed.levels()
        columns = ["broker", ">level", ">waiting", ">delivered up to", ">end"]
        return view_list(listed, columns, _draw_level, empty="no message was ever delayed by a level")

    view.show(ask)


def _draw_level(row: LevelProgress) -> tuple[str, ...]:
    return (row.broker, str(row.level), str(row.waiting), str(row.offset), str(row.end))


@delayed.command()
@add_topic_argument
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@add_dry_run_option
@add_yes_option
@add_nameserver_option
@add_output_option
def cancel(topic: str, ids: tuple[str, ...], dry_run: bool, yes: bool, nameservers: str, output: str) -> None:
    """Cancel messages for TOPIC that have an exact time. This cannot be undone.

    ID is the message id. Messages of a delay level cannot be cancelled.

    \b
    Examples:
      eruca delayed cancel reminders 7F000001000026A20000000000000000 --dry-run
      eruca delayed cancel reminders 7F000001000026A20000000000000000 --yes
    """
    if not dry_run:
        confirm(f"Cancel {say_count(len(ids), 'message')} for {topic} permanently?", yes)

    async def work(admin: Admin) -> list[Cancelled]:
        return [await admin.delayed.cancel(topic, name, dry_run=dry_run) for name in ids]

    rows = operate(nameservers, work)
    print_rows(rows, output, ["message id", "topic", "outcome", "reason"], _draw_cancelled)
    end_with("failed" if row.outcome == "unknown" else row.outcome for row in rows)


def _draw_cancelled(row: Cancelled) -> tuple[str, ...]:
    return (row.message_id, row.topic, row.outcome, row.reason)

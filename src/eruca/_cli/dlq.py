"""`eruca dlq`: the messages that consumer groups gave up on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from eruca._admin.deadletters import write_files
from eruca._cli.administer import add_yes_option, confirm, end_with, operate, show_count
from eruca._cli.changing import add_dry_run_option
from eruca._cli.completing import suggest_groups, suggest_topics
from eruca._cli.connecting import add_nameserver_option
from eruca._cli.grouping import CommandGroup
from eruca._cli.messagerows import LIST_COLUMNS, describe_message, draw_message, draw_row
from eruca._cli.output import add_output_option, parse_time, print_rows
from eruca._cli.saying import say
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, view_list, view_stream
from eruca._wire.names import check_group, check_topic
from eruca.admin import Admin, GroupLetters, Journal, Resent, StoredMessage, Wanted
from eruca.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])

_add_most_option = click.option("--limit", type=click.IntRange(min=1), help="At most this many, the oldest ones.")


@click.group(cls=CommandGroup)
def dlq() -> None:
    """Dead letters: messages that a group gave up on after too many attempts.

    \b
    Examples:
      eruca dlq list                               groups that have dead letters
      eruca dlq list billing                       the dead letters of a group
      eruca dlq show billing 7F000001000026A2...   one of them, with its body
      eruca dlq resend billing --all               send them to their topics again
      eruca dlq export billing --to letters.jsonl  write them to a file
    """


def add_choice_options(function: Function) -> Function:
    """Add the options that select dead letters to a command."""
    for option in reversed(
        [
            click.option("-t", "--topic", shell_complete=suggest_topics, help="Only those first sent to this topic."),
            click.option("-k", "--key", help="Only those with this key."),
            click.option(
                "--from-time",
                "since",
                type=parse_time,
                metavar="TIME",
                help="Only those that became dead letters at this time or later.",
            ),
            click.option(
                "--to-time",
                "until",
                type=parse_time,
                metavar="TIME",
                help="Only those that became dead letters at this time or earlier.",
            ),
        ]
    ):
        function = option(function)
    return function


# --- looking ----------------------------------------------------------------------------------------------------------


@dlq.command("list")
@click.argument("group", required=False, shell_complete=suggest_groups)
@add_choice_options
@add_limit_option
@add_view_options
def list_(view: Viewing, group: str | None, limit: int | None, **conditions: Any) -> None:
    """List the groups that have dead letters, or the dead letters of GROUP.

    \b
    Examples:
      eruca dlq list
      eruca dlq list billing --topic orders --from-time 2026-11-15
      eruca dlq list billing -o json | jq -r .message_id
    """
    if group is None:
        view.show(lambda admin: _view_groups(admin, view, limit))
        return
    name = check_group(group)
    wanted = Wanted(**conditions)
    view.show(
        lambda admin: view_stream(
            admin.dead_letters.read(name, wanted),
            view.output,
            view.choose_limit(limit),
            LIST_COLUMNS,
            draw_row,
            describe=describe_message,
            empty=f"group {name} has no dead letters"
            if wanted == Wanted()
            else f"group {name} has no such dead letters; `eruca dlq list {name}` lists all",
        )
    )


async def _view_groups(admin: Admin, view: Viewing, limit: int | None) -> View:
    listed = await admin.dead_letters.list(limit=view.choose_limit(limit))
    return view_list(
        listed, ["group", ">dead letters", "problem"], _draw_group, empty="no group has dead letters: nothing to do"
    )


def _draw_group(row: GroupLetters) -> Sequence[str]:
    return (row.group, str(row.count), row.problem)


@dlq.command()
@click.argument("group", shell_complete=suggest_groups)
@click.argument("name", metavar="ID")
@add_view_options
def show(view: Viewing, group: str, name: str) -> None:
    """Show one dead letter of GROUP with its properties and its body. ID is its message id or an offset id.

    \b
    Examples:
      eruca dlq show billing 7F00000100002A9F0000000000000123
      eruca dlq show billing 7F00000100002A9F0000000000000123 -o json |
          jq -r .body_base64 | base64 -d
    """
    check_group(group)

    async def ask(admin: Admin) -> View:
        letter = await admin.dead_letters.find(group, name)
        return View(value=describe_message(letter), draw=lambda: draw_message(letter, "dead letter"))

    view.show(ask)


# --- sending again ----------------------------------------------------------------------------------------------------


@dlq.command()
@click.argument("group", shell_complete=suggest_groups)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that the other options select, instead of IDs.")
@click.option(
    "--only-group", is_flag=True, help="Send to GROUP alone (its retry topic), not to all groups of the topic."
)
@click.option("--to-topic", help="Send to this topic instead of the one they came from.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Record outcomes in this file; skip messages it has as sent.",
)
@add_dry_run_option
@add_choice_options
@_add_most_option
@add_yes_option
@add_nameserver_option
@add_output_option
def resend(
    group: str,
    ids: tuple[str, ...],
    everything: bool,
    only_group: bool,
    to_topic: str | None,
    journal: Path | None,
    dry_run: bool,
    yes: bool,
    nameservers: str,
    output: str,
    **conditions: Any,
) -> None:
    """Send dead letters of GROUP again, with the same id, keys, tags, properties and body.

    Each goes to the topic it came from, where every group receives it, or with --only-group to GROUP alone. Each
    message has an outcome, and the exit status is 1 if one of them failed. The dead letters stay until they expire.
    With --journal a run that was interrupted, or that failed for some messages, can be repeated: messages that were
    sent are not sent again. (If a run is killed after sending a message and before recording it, the next run sends
    that message twice.)

    \b
    Examples:
      eruca dlq resend billing 7F00000100002A9F0000000000000123
      eruca dlq resend billing --all --dry-run
      eruca dlq resend billing --all --only-group --journal billing.jsonl
      eruca dlq resend billing --all --topic orders --from-time 2026-11-15 --yes
    """
    check_group(group)
    if bool(ids) == everything:
        raise click.UsageError("pass either the IDs of dead letters or --all")
    if to_topic is not None:
        check_topic(to_topic)
        if only_group:
            raise click.UsageError("--only-group and --to-topic are mutually exclusive")
    if everything and not dry_run:
        confirm(f"Send the dead letters of group {group} again?", yes)
    wanted = Wanted(ids=ids, **conditions)

    async def work(admin: Admin) -> list[Resent]:
        rows = []
        with show_count("dead letters done") as advance:
            async for row in admin.dead_letters.resend(
                group,
                wanted,
                only_group=only_group,
                topic=to_topic,
                journal=Journal(journal),
                dry_run=dry_run,
            ):
                rows.append(row)
                advance(1)
                if output != "table":
                    print_rows([row], output, [], lambda _: [])
        return rows

    rows = operate(nameservers, work)
    missing = [
        Resent(letter=name, message_id=name, topic="", outcome="failed", reason="the group has no such dead letter")
        for name in _list_missing(ids, rows)
    ]
    rows += missing
    columns = ["message id", "topic", "outcome", "broker", ">queue", ">offset", "reason"]
    # JSON and YAML have shown the others already.
    print_rows(rows if output == "table" else missing, output, columns, _draw_sent)
    end_with(row.outcome for row in rows)


def _list_missing(ids: tuple[str, ...], rows: list[Resent]) -> list[str]:
    found = {name for row in rows for name in (row.letter, row.message_id, row.origin_id)}
    return [name for name in ids if name not in found]


def _draw_sent(row: Resent) -> Sequence[str]:
    place = (row.broker, str(row.queue), str(row.offset)) if row.outcome == "sent" else ("-", "-", "-")
    return (row.message_id, row.topic, row.outcome, *place, row.reason)


# --- exporting --------------------------------------------------------------------------------------------------------


@dlq.command()
@click.argument("group", shell_complete=suggest_groups)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--to", "target", default="-", help="A file for JSON lines, or `-` for stdout.", show_default=True)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write two files for each dead letter to this directory instead.",
)
@add_choice_options
@_add_most_option
@add_nameserver_option
def export(
    group: str, ids: tuple[str, ...], target: str, directory: Path | None, nameservers: str, **conditions: Any
) -> None:
    """Write the dead letters of GROUP to JSON lines, or to files.

    JSON lines have the body in base64. With --directory each dead letter becomes two files: OFFSET-ID.body with the
    bytes as they were sent, and OFFSET-ID.json with everything else. Nothing is changed on the broker.

    \b
    Examples:
      eruca dlq export billing --to letters.jsonl
      eruca dlq export billing --topic orders | jq -r .body_base64
      eruca dlq export billing --directory letters
    """
    check_group(group)
    if directory is not None and target != "-":
        raise click.UsageError("--to and --directory are mutually exclusive")
    wanted = Wanted(ids=ids, **conditions)

    async def work(admin: Admin, write: Callable[[StoredMessage], None]) -> int:
        count = 0
        with show_count("dead letters exported") as advance:
            async for letter in admin.dead_letters.read(group, wanted):
                await asyncio.to_thread(write, letter)
                count += 1
                advance(1)
        return count

    try:
        if directory is not None:
            count = operate(nameservers, lambda admin: work(admin, lambda letter: write_files(directory, letter)))
        else:
            with click.open_file(target, "w", encoding="utf-8") as file:
                count = operate(nameservers, lambda admin: work(admin, lambda letter: _write_line(file, letter)))
    except OSError as error:
        raise ConfigError(f"the export cannot be written: {error}", hint="choose another file or directory") from error
    say(f"{count} exported")


def _write_line(file: IO[str], letter: StoredMessage) -> None:
    file.write(json.dumps(describe_message(letter), ensure_ascii=False) + "\n")

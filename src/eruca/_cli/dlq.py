"""`eruca dlq`: the messages that consumer groups gave up on."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from eruca._admin.admin import Admin
from eruca._admin.deadletters import GroupLetters, Journal, Resent, Wanted, write_files
from eruca._admin.storedmessages import StoredMessage, make_row
from eruca._cli.administer import add_yes_option, confirm, end_with, operate, show_count
from eruca._cli.connecting import add_nameserver_option
from eruca._cli.output import add_output_option, format_time, make_table, parse_time, print_document, print_rows
from eruca._wire.names import check_group, check_topic
from eruca.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])

_SHOWN_MAX = 100


@click.group()
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
            click.option("-t", "--topic", help="Only those first sent to this topic."),
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
            click.option("--limit", type=click.IntRange(min=1), help="At most this many."),
        ]
    ):
        function = option(function)
    return function


# --- looking ----------------------------------------------------------------------------------------------------------


@dlq.command("list")
@click.argument("group", required=False)
@add_choice_options
@add_nameserver_option
@add_output_option
def list_(group: str | None, nameservers: str, output: str, **conditions: Any) -> None:
    """List the groups that have dead letters, or the dead letters of GROUP.

    \b
    Examples:
      eruca dlq list
      eruca dlq list billing --topic orders --from-time 2026-11-15
      eruca dlq list billing -o json | jq -r .message_id
    """
    if group is None:
        rows = operate(nameservers, lambda admin: admin.dead_letters.list(limit=sys.maxsize)).items
        print_rows(rows, output, ["group", ">dead letters", "problem"], _draw_group)
        return
    check_group(group)
    wanted = Wanted(**conditions)
    letters, is_cut = operate(nameservers, lambda admin: _gather(admin, group, wanted, output))
    if output != "table":
        print_rows([make_row(letter) for letter in letters], output, [], lambda _: [])
        return
    print_rows(
        letters,
        output,
        ["dead since", "message id", "topic", "tags", "keys", ">tries", ">bytes"],
        _draw_letter,
    )
    if is_cut:
        click.echo(f"eruca: there are more than {_SHOWN_MAX}; --limit, --from-time and -o json show others", err=True)


async def _gather(admin: Admin, group: str, wanted: Wanted, output: str) -> tuple[list[StoredMessage], bool]:
    rows: list[StoredMessage] = []
    # A table of a million rows is of no use; JSON and YAML have all of them.
    rows_max = _SHOWN_MAX if output == "table" and wanted.limit is None else None
    with show_count("dead letters read") as advance:
        async for letter in admin.dead_letters.read(group, wanted):
            if rows_max is not None and len(rows) >= rows_max:
                return rows, True
            rows.append(letter)
            advance(1)
    return rows, False


def _draw_group(row: GroupLetters) -> Sequence[str]:
    return (row.group, str(row.count), row.problem)


def _draw_letter(row: StoredMessage) -> Sequence[str]:
    where = (row.message_id, row.topic, row.tags, " ".join(row.keys))
    return (format_time(row.stored_at), *where, str(row.tries), str(len(row.body)))


@dlq.command()
@click.argument("group")
@click.argument("name", metavar="ID")
@add_nameserver_option
@add_output_option
def show(group: str, name: str, nameservers: str, output: str) -> None:
    """Show one dead letter of GROUP with its properties and its body. ID is its message id or an offset id.

    \b
    Examples:
      eruca dlq show billing 7F00000100002A9F0000000000000123
      eruca dlq show billing 7F00000100002A9F0000000000000123 -o json |
          jq -r .body_base64 | base64 -d
    """
    check_group(group)
    letter = operate(nameservers, lambda admin: admin.dead_letters.find(group, name))
    row, body = make_row(letter), letter.body
    facts = [(key, _write(key, value)) for key, value in row.items() if key not in ("properties", "body_base64")]
    properties = [(key, str(value)) for key, value in row["properties"].items()]
    text = body.decode("utf-8", "replace") if _is_text(body) else f"<{len(body)} bytes, not text; see dlq export>"
    print_document(
        row,
        output,
        lambda: [make_table(["dead letter", ""], [*facts, ("body", text)]), make_table(["property", ""], properties)],
    )


def _write(key: str, value: Any) -> str:
    if key.endswith("_time"):
        return format_time(value)
    return " ".join(value) if isinstance(value, list) else str(value)


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- sending again ----------------------------------------------------------------------------------------------------


@dlq.command()
@click.argument("group")
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
@click.option("--dry-run", is_flag=True, help="Show what would be sent where, and send nothing.")
@add_choice_options
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
@click.argument("group")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--to", "target", default="-", help="A file for JSON lines, or `-` for stdout.", show_default=True)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write two files for each dead letter to this directory instead.",
)
@add_choice_options
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
    click.echo(f"eruca: {count} exported", err=True)


def _write_line(file: IO[str], letter: StoredMessage) -> None:
    file.write(json.dumps(make_row(letter), ensure_ascii=False) + "\n")

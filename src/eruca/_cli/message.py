"""`eruca message`: find messages, show one, follow what happened to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

import click

from eruca._cli.administer import add_yes_option, confirm, operate
from eruca._cli.changing import add_dry_run_option
from eruca._cli.choosing import add_time_options, add_topic_argument, parse_full_place
from eruca._cli.completing import suggest_groups, suggest_topics
from eruca._cli.connecting import add_nameserver_option
from eruca._cli.grouping import CommandGroup
from eruca._cli.messageimport import import_
from eruca._cli.messagerows import LIST_COLUMNS, describe_message, draw_message, draw_row
from eruca._cli.output import add_output_option, format_bytes, format_time, print_document
from eruca._cli.tables import make_table
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, view_list, view_stream
from eruca._ground.printable import format_duration
from eruca.admin import Admin, Consumed, Listed, QueueRow, StoredMessage, TraceRow, Track
from eruca.errors import ConfigError, NoRoute, RequestRefused, WireError

# The number of messages with one key or id that a search returns at most, if all are wanted.
_FOUND_MAX = 10_000
_SUCCESS = frozenset({"CR_SUCCESS", "CR_COMMIT"})


@click.group(cls=CommandGroup)
def message() -> None:
    """Messages: find them by key, id, time or place, show one, follow it.

    `eruca send` sends messages and `eruca tail` shows those that arrive.

    \b
    Examples:
      eruca message find orders --key order-7
      eruca message find orders --from-time 2026-11-15T07:00:00
      eruca message show 7F00000100002A9F...           properties and body
      eruca message consumers 7F00000100002A9F...      who consumed it
      eruca message trace 7F000001000026A2...          what clients traced
      eruca message import orders messages.jsonl       send the messages of a file
    """


# --- finding ----------------------------------------------------------------------------------------------------------


@message.command()
@add_topic_argument
@click.option("-k", "--key", help="Messages with this key.")
@click.option("--id", "name", metavar="ID", help="Messages with this message id: one, or several after a retry.")
@click.option("-q", "--queue", "place", metavar="BROKER:N", help="Messages of this queue, for example broker-a:0.")
@click.option("--offset", type=click.IntRange(min=0), help="With --queue: from this offset on.")
@click.option("--tags", default="*", help="Only messages with one of these tags: created || paid.")
@add_time_options("stored")
@add_limit_option
@add_view_options
def find(
    view: Viewing,
    topic: str,
    key: str | None,
    name: str | None,
    place: str | None,
    offset: int | None,
    tags: str,
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
) -> None:
    """Find messages of TOPIC, by key, by id, in a queue, or by the time at which they were stored.

    Keys and ids are looked up in the index of the brokers. The exit status is 3 if nothing is found.

    \b
    Examples:
      eruca message find orders --key order-7
      eruca message find orders --id 7F000001000026A20000000000000000
      eruca message find orders --queue broker-a:0 --offset 4711 --limit 1
      eruca message find orders --from-time 2026-11-15T07:00:00 --tags paid
      eruca message find orders --key order-7 -o json | jq -r .body
    """
    if sum(each is not None for each in (key, name, place)) > 1:
        raise click.UsageError("--key, --id and --queue are mutually exclusive")
    if offset is not None and place is None:
        raise click.UsageError("--offset needs --queue BROKER:N")
    if name is not None and (since or until):
        raise click.UsageError("--id cannot be combined with times")
    if (key is not None or name is not None) and tags != "*":
        raise click.UsageError("--tags cannot be combined with --key or --id")
    broker, queue = (None, None) if place is None else parse_full_place(place)
    rows = view.choose_limit(limit)
    most = min(rows, _FOUND_MAX)

    async def ask(admin: Admin) -> View:
        if key is not None:
            found = await admin.messages.find_by_key(topic, key, since=since, until=until, limit=most)
            return view_messages(found, f"topic {topic} has no message with key {key}{_in_time(since, until)}")
        if name is not None:
            found = await admin.messages.find(topic, name, limit=most)
            return view_messages(found, f"topic {topic} has no message with id {name}")
        messages = admin.messages.read(
            topic, broker=broker, queue=queue, offset=offset, since=since, until=until, tags=tags, limit=None
        )
        return await _view_read(messages, view, rows, f"topic {topic} has no such messages")

    view.show(ask)


def _in_time(since: datetime | None, until: datetime | None) -> str:
    return " in that time" if since or until else ""


_NEXT = "; the index has only messages that were sent with keys, and `eruca tail` shows what the topic has"


def view_messages(listed: Listed[StoredMessage], missing: str) -> View:
    """Return the view of messages that were found; finding none is worth a status."""
    return view_list(
        listed,
        LIST_COLUMNS,
        draw_row,
        empty=missing + _NEXT,
        describe=describe_message,
        is_wrong=not listed.items,
    )


async def _view_read(messages: AsyncIterator[StoredMessage], view: Viewing, limit: int, missing: str) -> View:
    return await view_stream(
        messages,
        view.output,
        limit,
        LIST_COLUMNS,
        draw_row,
        describe=describe_message,
        empty=f"{missing}; `eruca topic show` shows what its queues have",
        empty_is_wrong=True,
    )


@message.command()
@click.argument("name", metavar="ID")
@click.option("-t", "--topic", shell_complete=suggest_topics, help="The topic, if ID is a message id.")
@add_view_options
def show(view: Viewing, name: str, topic: str | None) -> None:
    """Show one message with its properties and its body. ID is an offset id, or with --topic a message id.

    Of several messages with one id, as after a retry, the newest is shown.

    \b
    Examples:
      eruca message show 7F00000100002A9F0000000000000123
      eruca message show 7F000001000026A20000000000000000 --topic orders
      eruca message show 7F00000100002A9F0000000000000123 -o json |
          jq -r .body_base64 | base64 -d
    """

    async def ask(admin: Admin) -> View:
        found = await _find_one(admin, topic, name)
        return View(value=describe_message(found), draw=lambda: draw_message(found))

    view.show(ask)


async def _find_one(admin: Admin, topic: str | None, name: str) -> StoredMessage:
    """Return the message with an offset id, or the newest with a message id."""
    if topic is None:
        try:
            return await admin.messages.view(name)
        except (NoRoute, WireError, RequestRefused) as error:
            # Both kinds of id have the same form, and tables print that of the producer.
            error.hint = "a producer's id? add --topic TOPIC"
            raise
    found = (await admin.messages.find(topic, name)).items
    if not found:
        raise ConfigError(
            f"topic {topic} has no message with id {name}",
            hint=f"is the id complete? `eruca message find {topic} --key KEY` finds messages by key",
        )
    return found[-1]


@message.command()
@add_topic_argument
@click.argument("place", metavar="BROKER:N")
@click.option("--offset", type=click.IntRange(min=0), default=0, show_default=True, help="The first offset.")
@click.option("--count", type=click.IntRange(min=1, max=1000), default=10, show_default=True, help="How many.")
@click.option("-g", "--group", shell_complete=suggest_groups, help="Show whether this group would get each message.")
@add_view_options
def entries(view: Viewing, topic: str, place: str, offset: int, count: int, group: str | None) -> None:
    """Show entries of a consume queue: where each message is in the commit log.

    \b
    Examples:
      eruca message entries orders broker-a:0 --offset 4711
      eruca message entries orders broker-a:0 --group billing
    """
    broker, queue = parse_full_place(place)

    async def ask(admin: Admin) -> View:
        found = await admin.messages.entries(topic, broker, queue, offset, count=count, group=group)
        return View(
            value=found,
            draw=lambda: [
                make_table([place, ""], [("begin", str(found.begin)), ("end", str(found.end))]),
                make_table([">offset", ">position", ">size", ">tags code", "matches"], map(_draw_entry, found.rows)),
            ],
        )

    view.show(ask)


def _draw_entry(row: QueueRow) -> tuple[str, ...]:
    numbers = (str(row.offset), str(row.position), str(row.size), str(row.tags_code))
    return (*numbers, "yes" if row.matches else "no")


# --- following --------------------------------------------------------------------------------------------------------


@message.command()
@click.argument("name", metavar="OFFSET-ID")
@add_limit_option
@add_view_options
def consumers(view: Viewing, name: str, limit: int | None) -> None:
    """Show what each group of its topic did with a message: consumed, waiting, filtered, not online.

    OFFSET-ID is the offset id that `message find -o json` and `message show` have.

    \b
    Examples:
      eruca message consumers 7F00000100002A9F0000000000000123
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.messages.tracks(name, limit=view.choose_limit(limit))
        return view_list(listed, ["group", "outcome", "reason"], _draw_track, empty="no group consumes its topic")

    view.show(ask)


def _draw_track(row: Track) -> tuple[str, ...]:
    return (row.group, row.outcome, row.reason)


@message.command()
@click.argument("name", metavar="ID")
@click.option("--trace-topic", shell_complete=suggest_topics, help="Where clients write traces, if it is another one.")
@add_limit_option
@add_view_options
def trace(view: Viewing, name: str, trace_topic: str | None, limit: int | None) -> None:
    """Show what clients traced about a message: sent, delivered, consumed. ID is a message id or a key.

    Only clients that trace write this: `trace=True` in Python, enableMsgTrace in Java. The exit status is 3 if nothing
    is found.

    \b
    Examples:
      eruca message trace 7F000001000026A20000000000000000
    """

    async def ask(admin: Admin) -> View:
        try:
            listed = await admin.messages.trace(name, trace_topic=trace_topic, limit=limit or _FOUND_MAX)
        except NoRoute:
            if trace_topic is not None:
                raise
            listed = Listed(items=[])  # nobody has ever traced anything
        columns = ["at", "step", "group", "client", "store", ">took", "succeeded", ">tries"]
        empty = f"nothing was traced about {name}; do its clients trace?"
        return view_list(listed, columns, _draw_step, empty=empty, is_wrong=not listed.items)

    view.show(ask)


def _draw_step(row: TraceRow) -> tuple[str, ...]:
    succeeded = {True: "yes", False: "no", None: "-"}[row.succeeded]
    where = (row.group, row.client_host, row.store_host)
    return (format_time(row.at), row.step, *where, format_duration(row.seconds), succeeded, str(row.tries))


@message.command()
@click.argument("name", metavar="OFFSET-ID")
@click.argument("group", shell_complete=suggest_groups)
@click.argument("client_id", metavar="CLIENT")
@add_dry_run_option
@add_yes_option
@add_nameserver_option
@add_output_option
def deliver(name: str, group: str, client_id: str, dry_run: bool, yes: bool, nameservers: str, output: str) -> None:
    """Have one client of GROUP consume a message now, whatever its offset is. Offsets do not change.

    The exit status is 1 if the handler of the client fails.

    \b
    Examples:
      eruca message deliver 7F00000100002A9F0000000000000123 billing 10.0.0.7@3
    """
    if not dry_run:
        confirm(f"Have {client_id} consume message {name} again?", yes)

    async def work(admin: Admin) -> tuple[StoredMessage, Consumed | None]:
        found = await admin.messages.view(name)
        return found, await admin.messages.consume_directly(name, group, client_id, dry_run=dry_run)

    found, consumed = operate(nameservers, work)
    outcome = consumed or Consumed(client_id=client_id, outcome="planned", seconds=0)
    facts = [
        ("message", f"{found.message_id}, {format_bytes(len(found.body))}"),
        ("client", outcome.client_id),
        ("outcome", outcome.outcome),
        ("took", format_duration(outcome.seconds)),
        ("reason", outcome.reason),
    ]
    print_document(outcome, output, lambda: [make_table(["delivered", ""], [fact for fact in facts if fact[1]])])
    if consumed is not None and consumed.outcome not in _SUCCESS:
        click.get_current_context().exit(1)


message.add_command(import_)

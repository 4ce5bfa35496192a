"""`eruca client`: the connected producers and consumers, and what a consumer is doing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from eruca._cli.choosing import add_group_argument, add_topic_argument
from eruca._cli.completing import suggest_brokers, suggest_clients
from eruca._cli.grouping import CommandGroup
from eruca._cli.output import format_time
from eruca._cli.tables import make_table
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, view_list
from eruca._ground.printable import format_duration, show_safely
from eruca.admin import Admin, ClientOffset, HeldQueue, ProducerClient, RunningInfo, TopicPace

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.group(cls=CommandGroup)
def client() -> None:
    """Clients: connected producers and consumers, and what a consumer is doing.

    CLIENT is a client id, as `eruca group members` lists them.

    \b
    Examples:
      eruca client producers                who sends
      eruca group members billing           who consumes
      eruca client show billing 10.0.0.7@3  queues and pace of one consumer
      eruca client stack billing 10.0.0.7@3 where its threads are
    """


@client.command()
@click.argument("group", required=False)
@click.option("-b", "--broker", metavar="NAME", shell_complete=suggest_brokers, help="Only those of this broker.")
@add_limit_option
@add_view_options
def producers(view: Viewing, group: str | None, broker: str | None, limit: int | None) -> None:
    """List the connected producers, or those of producer group GROUP.

    \b
    Examples:
      eruca client producers
      eruca client producers orders-service -o json | jq -r .client_id
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.clients.producers(group, broker=broker, limit=view.choose_limit(limit))
        columns = ["group", "client id", "address", "language", "version", "broker", "last seen"]
        who = "no producer is connected" if group is None else f"no producer of group {group} is connected"
        return view_list(listed, columns, _draw_producer, empty=f"{who}; a producer connects with its first message")

    view.show(ask)


def _draw_producer(row: ProducerClient) -> tuple[str, ...]:
    what = (row.group, row.client_id, row.address, row.language, row.version, row.broker)
    return (*what, format_time(row.seen_at))


@client.command()
@add_group_argument
@click.argument("client_id", metavar="CLIENT", shell_complete=suggest_clients)
@add_view_options
def show(view: Viewing, group: str, client_id: str) -> None:
    """Show what a consumer is doing: its queues, what it has fetched and not finished, how fast it is.

    \b
    Examples:
      eruca client show billing 10.0.0.7@3
      eruca client show billing 10.0.0.7@3 --watch
    """

    async def ask(admin: Admin) -> View:
        found = await admin.clients.running(group, client_id)
        return View(value=found, draw=lambda: _draw_running(found))

    view.show(ask)


def _draw_running(found: RunningInfo) -> Iterable[RenderableType]:
    facts = [
        ("group", found.group),
        ("started", format_time(found.started_at)),
        ("subscriptions", "\n".join(f"{row.topic}: {row.expression}" for row in found.subscriptions)),
        *sorted(found.properties.items()),
    ]
    yield make_table([found.client_id, ""], [(name, value) for name, value in facts if value])
    columns = ["topic", "queue", ">committed", ">fetched", "from", "last pull", "last done", "locked"]
    yield make_table(columns, map(_draw_held, found.queues))
    columns = ["topic", ">done/s", ">failed/s", ">failed/h", ">handling", ">pull"]
    yield make_table(columns, map(_draw_pace, found.paces))


def _draw_held(row: HeldQueue) -> tuple[str, ...]:
    cached = (str(row.cached), f"{row.cached_from} to {row.cached_to}" if row.cached else "-")
    times = (format_time(row.pulled_at), format_time(row.consumed_at))
    return (row.topic, f"{row.broker}:{row.queue}", str(row.committed), *cached, *times, "yes" if row.locked else "no")


def _draw_pace(row: TopicPace) -> tuple[str, ...]:
    rates = (f"{row.done_rate:.1f}", f"{row.failed_rate:.1f}", str(row.failed_hour))
    return (row.topic, *rates, format_duration(row.handling_time), format_duration(row.pull_time))


@client.command()
@add_group_argument
@click.argument("client_id", metavar="CLIENT", shell_complete=suggest_clients)
@add_view_options
def stack(view: Viewing, group: str, client_id: str) -> None:
    """Show where the threads of a consumer are: for one that hangs.

    \b
    Examples:
      eruca client stack billing 10.0.0.7@3
    """

    async def ask(admin: Admin) -> View:
        from rich.text import Text

        text = await admin.clients.stack(group, client_id)
        return View(value={"client_id": client_id, "stack": text}, draw=lambda: [Text(show_safely(text, keep="\n\t"))])

    view.show(ask)


@client.command()
@add_group_argument
@add_topic_argument
@click.option("--client", "client_id", metavar="CLIENT", help="Only this client.")
@add_limit_option
@add_view_options
def offsets(view: Viewing, group: str, topic: str, client_id: str | None, limit: int | None) -> None:
    """Show the offsets that members of GROUP hold in TOPIC, which they may not have committed yet.

    \b
    Examples:
      eruca client offsets billing orders
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.clients.offsets(group, topic, client_id=client_id, limit=view.choose_limit(limit))
        empty = f"no member of group {group} holds a queue of {topic}; `eruca group members {group}` lists them"
        return view_list(listed, ["client id", "broker", ">queue", ">offset"], _draw_offset, empty=empty)

    view.show(ask)


def _draw_offset(row: ClientOffset) -> tuple[str, ...]:
    return (row.client_id, row.broker, str(row.queue), str(row.offset))

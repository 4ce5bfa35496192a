"""`eruca group`: consumer groups: members, owners, lag, settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from eruca._cli.changing import Changing, add_change_options
from eruca._cli.choosing import add_group_argument, add_place_options, add_topic_argument
from eruca._cli.completing import suggest_groups, suggest_topics
from eruca._cli.grouping import CommandGroup
from eruca._cli.groupviews import draw_group, list_faults, view_differences
from eruca._cli.output import format_time
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, view_list
from eruca._ground.printable import format_duration
from eruca.admin import Admin, GroupMember, GroupName, Listed, NamedGroupSettings, TimeSpan
from eruca.errors import NoRoute

Function = TypeVar("Function", bound=Callable[..., Any])


@click.group(cls=CommandGroup)
def group() -> None:
    """Consumer groups: members, owners of queues, lag, settings.

    \b
    Examples:
      eruca group list                     all groups
      eruca group show billing             members, owners, lag, next messages
      eruca group members billing          who is connected
      eruca group update billing --retries 3
      eruca group delete billing --dry-run

    `eruca offset` moves a group, `eruca dlq` has its dead letters, and `eruca lag` shows all groups.
    """


# --- looking ----------------------------------------------------------------------------------------------------------


@group.command("list")
@click.argument("prefix", default="", shell_complete=suggest_groups)
@click.option("-t", "--topic", shell_complete=suggest_topics, help="Only groups that consume this topic.")
@click.option("--system", is_flag=True, help="Also the brokers' own groups.")
@click.option("--settings", "with_settings", is_flag=True, help="The settings on each broker, not only the names.")
@add_limit_option
@add_view_options
def list_(view: Viewing, prefix: str, topic: str | None, system: bool, with_settings: bool, limit: int | None) -> None:
    """List groups, or those whose name begins with PREFIX.

    A group is known to a broker when it was created, when a member connected, or when it has offsets.

    \b
    Examples:
      eruca group list
      eruca group list --topic orders
      eruca group list bill --settings -o json
    """
    rows = view.choose_limit(limit)

    async def ask(admin: Admin) -> View:
        found = await admin.groups.list(prefix, topic=topic, system=system, limit=rows)
        if not with_settings:
            return _view_names(found, topic)
        names = {row.name for row in found.items}
        listed = await admin.groups.settings(prefix, limit=view.choose_limit(0))
        kept = [row for row in listed.items if row.group in names]
        return _view_settings(msgspec.structs.replace(listed, items=kept, cut=found.cut))

    view.show(ask)


def _view_names(listed: Listed[GroupName], topic: str | None) -> View:
    where = f"no group consumes {topic}" if topic else "there is no such group"
    return view_list(
        listed,
        ["group", "settings", "offsets"],
        lambda row: (row.name, "yes" if row.has_settings else "no", "yes" if row.has_offsets else "no"),
        empty=f"{where}; a group appears when its first member connects, or with `eruca group create NAME`",
    )


def _view_settings(listed: Listed[NamedGroupSettings]) -> View:
    return view_list(
        listed,
        ["group", "broker", "consume", "broadcast", ">retries", ">retry queues"],
        lambda row: (
            row.group,
            row.broker,
            "yes" if row.settings.consume else "no",
            "yes" if row.settings.broadcast else "no",
            str(row.settings.retries),
            str(row.settings.retry_queues),
        ),
        empty="no broker has settings of such a group; `eruca group create NAME` makes one",
    )


@group.command()
@add_group_argument
@click.option("-t", "--topic", shell_complete=suggest_topics, help="Only the queues of this topic.")
@add_limit_option
@add_view_options
def show(view: Viewing, group: str, topic: str | None, limit: int | None) -> None:
    """Show who consumes in GROUP and how far it is.

    Members, subscriptions, and for each queue: its owner, the offset, how many messages are left, how long the next one
    has been waiting, and which one that is. The exit status is 3 if something is wrong: messages wait and no member
    is connected, a queue with messages has no owner, or the subscriptions of members differ.

    \b
    Examples:
      eruca group show billing
      eruca group show billing --topic orders --watch 5
      eruca group show billing -o json | jq '.queues[].stuck_on.message_id'
    """

    async def ask(admin: Admin) -> View:
        found = await admin.groups.show(group, topic=topic, limit=view.choose_limit(limit))
        return View(
            value=found,
            draw=lambda: draw_group(found),
            problems=found.problems,
            cut=found.cut,
            warnings=list_faults(found),
        )

    view.show(ask)


@group.command()
@add_group_argument
@add_limit_option
@add_view_options
def members(view: Viewing, group: str, limit: int | None) -> None:
    """List the connected members of GROUP. The exit status is 3 if there are none.

    `eruca client show GROUP CLIENT` shows what one of them is doing.

    \b
    Examples:
      eruca group members billing
      eruca group members billing -o json | jq -r .client_id
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.groups.members(group, limit=view.choose_limit(limit))
        empty = f"no member of group {group} is connected; start one, or see `eruca group list`"
        return view_list(listed, MEMBER_COLUMNS, draw_member, empty=empty, is_wrong=not listed.items)

    view.show(ask)


MEMBER_COLUMNS = ["client id", "address", "language", "version", "brokers"]


def draw_member(row: GroupMember) -> tuple[str, ...]:
    """Return the cells of a member."""
    return (row.client_id, row.address, row.language, row.version, ", ".join(row.brokers))


@group.command()
@add_group_argument
@add_view_options
def differences(view: Viewing, group: str) -> None:
    """Show the subscriptions in which members of GROUP differ.

    All members of a group must subscribe to the same topics with the same expressions: otherwise messages that a
    member did not ask for are lost. Each member is asked. The exit status is 3 if there are differences.

    \b
    Examples:
      eruca group differences billing
    """

    async def ask(admin: Admin) -> View:
        return view_differences(await admin.groups.differences(group), group)

    view.show(ask)


@group.command()
@add_group_argument
@add_topic_argument
@add_limit_option
@add_view_options
def delays(view: Viewing, group: str, topic: str, limit: int | None) -> None:
    """Show how late GROUP is in TOPIC: when its messages were stored, and when the last consumed one was.

    \b
    Examples:
      eruca group delays billing orders
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.groups.time_spans(group, topic, limit=view.choose_limit(limit))
        if not listed.items and not listed.problems and await admin.connection.find_route(topic) is None:
            raise NoRoute(f"no broker has a topic {topic}", hint="eruca topic list shows the topics")
        columns = ["broker", ">queue", "first", "last", "consumed up to", ">late by"]
        return view_list(listed, columns, _draw_span, empty=f"topic {topic} has no messages")

    view.show(ask)


def _draw_span(row: TimeSpan) -> tuple[str, ...]:
    times = (format_time(row.first_at), format_time(row.last_at), format_time(row.consumed_at))
    return (row.broker, str(row.queue), *times, format_duration(row.delay))


# --- changing ---------------------------------------------------------------------------------------------------------


def _add_settings(defaults: bool) -> Callable[[Function], Function]:
    """Add the settings of a group to a command; without defaults, what is not given is None."""
    count = click.IntRange(min=0)

    def decorate(function: Function) -> Function:
        for flag, default, text in reversed(
            [
                ("--consume/--no-consume", True, "Whether members may consume; without, they wait."),
                ("--consume-from-min/--no-consume-from-min", True, "Whether new members may start at the first one."),
                ("--broadcast/--no-broadcast", True, "Whether members may broadcast."),
                ("--notify/--no-notify", True, "Whether members hear at once that others come and go."),
            ]
        ):
            function = click.option(flag, default=default if defaults else None, show_default=defaults, help=text)(
                function
            )
        for flag, number, text in reversed(
            [
                ("--retries", 16, "How often a message is delivered again before it is a dead letter."),
                ("--retry-queues", 1, "Queues of the retry topic on each broker."),
                ("--broker-id", 0, "The member of a broker name to read from; 0 is the master."),
                ("--slow-broker-id", 1, "The member to read from when a consumer is far behind."),
            ]
        ):
            function = click.option(
                flag, type=count, metavar="N", default=number if defaults else None, show_default=defaults, help=text
            )(function)
        return function

    return decorate


@group.command()
@add_group_argument
@_add_settings(defaults=True)
@add_place_options
@add_change_options()
def create(change: Changing, **settings: Any) -> None:
    """Create GROUP on all masters, or on some.

    Most brokers create a group when its first member connects; this is for those that do not, and for other settings.

    \b
    Examples:
      eruca group create billing
      eruca group create billing --retries 3 --no-broadcast
    """
    change.apply(lambda admin, dry_run: admin.groups.create(**settings, dry_run=dry_run))


@group.command()
@add_group_argument
@_add_settings(defaults=False)
@add_place_options
@add_change_options(asks=True)
def update(change: Changing, **settings: Any) -> None:
    """Change settings of GROUP on the brokers that have it; what is not given stays.

    \b
    Examples:
      eruca group update billing --retries 3
      eruca group update billing --no-consume      stop it; --consume resumes it
    """
    if all(value is None for name, value in settings.items() if name not in ("group", "brokers", "cluster")):
        raise click.UsageError("nothing to change: pass at least one setting, for example --retries 3")
    change.apply(
        lambda admin, dry_run: admin.groups.update(**settings, dry_run=dry_run),
        losing=f"Change group {settings['group']}?",
    )


@group.command()
@add_group_argument
@click.option(
    "--offsets/--keep-offsets", default=True, show_default=True, help="Also its offsets, or keep them for later."
)
@click.option(
    "--topics/--keep-topics", default=True, show_default=True, help="Also its retry topic and its dead letters."
)
@click.option("--force", is_flag=True, help="Also while members are connected; they create it again.")
@add_place_options
@add_change_options(asks=True)
def delete(change: Changing, group: str, **how: Any) -> None:
    """Delete GROUP: its settings, offsets, messages to try again and dead letters. No member may be connected.

    The messages of the topics it consumed stay. A member that connects later creates the group again, and starts as a
    new one does.

    \b
    Examples:
      eruca group delete billing --dry-run
      eruca group delete billing --keep-offsets --yes
    """
    change.apply(
        lambda admin, dry_run: admin.groups.delete(group, **how, dry_run=dry_run),
        f"Delete group {group}?",
    )

"""`eruca topic`: list, show, create, change and delete topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from eruca._cli.changing import Changing, add_change_options
from eruca._cli.choosing import add_place_options, add_topic_argument
from eruca._cli.completing import suggest_clusters, suggest_topics
from eruca._cli.grouping import CommandGroup
from eruca._cli.output import format_time
from eruca._cli.saying import say
from eruca._cli.tables import make_table
from eruca._cli.topicorder import order
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, view_list
from eruca.admin import Admin, Listed, NamedSettings, QueueEnds, Rate, Topic, TopicKind, TopicName, TopicSettings

if TYPE_CHECKING:
    from rich.console import RenderableType

PERMISSIONS = ["RW", "R", "W", "-"]


@click.group(cls=CommandGroup)
def topic() -> None:
    """Topics: list, show, create, change, delete.

    \b
    Examples:
      eruca topic create orders --queues 16       on every master
      eruca topic list                            the topics of applications
      eruca topic show orders                     settings, queues, groups
      eruca topic update orders --queues 32       more queues
      eruca topic permission orders R             let no one send any more
      eruca topic delete orders --dry-run         what would be deleted
    """


topic.add_command(order)

# --- looking ----------------------------------------------------------------------------------------------------------


@topic.command("list")
@click.argument("prefix", default="", shell_complete=suggest_topics)
@click.option(
    "--kind",
    type=click.Choice([*[str(kind) for kind in TopicKind], "all"]),
    default=str(TopicKind.NORMAL),
    show_default=True,
    help="What the topics are for: of applications, retries or dead letters of groups, or of the brokers.",
)
@click.option("--cluster", metavar="NAME", shell_complete=suggest_clusters, help="Only topics of this cluster.")
@click.option("--settings", "with_settings", is_flag=True, help="The settings on each broker, not only the names.")
@click.option("--unused", is_flag=True, help="Only topics without messages and without groups.")
@add_limit_option
@add_view_options
def list_(
    view: Viewing,
    prefix: str,
    kind: str,
    cluster: str | None,
    with_settings: bool,
    unused: bool,
    limit: int | None,
) -> None:
    """List topics, or those whose name begins with PREFIX.

    \b
    Examples:
      eruca topic list
      eruca topic list order --settings
      eruca topic list --unused
      eruca topic list --kind retry -o json | jq -r .name
    """
    if unused and (with_settings or kind != TopicKind.NORMAL or cluster is not None):
        raise click.UsageError("--unused cannot be combined with --settings, --kind or --cluster")
    rows = view.choose_limit(limit)

    async def ask(admin: Admin) -> View:
        if unused:
            found = await admin.topics.unused(limit=rows)
            return _view_names(found, "every topic has messages or groups")
        found = await admin.topics.list(prefix, kind=kind, cluster=cluster, limit=rows)
        if with_settings:
            names = {row.name for row in found.items}
            listed = await admin.topics.settings(prefix, limit=view.choose_limit(0))
            kept = [row for row in listed.items if row.topic in names]
            return _view_settings(msgspec.structs.replace(listed, items=kept, cut=found.cut))
        what = f"no topic begins with {prefix}" if prefix else "there is no such topic"
        return _view_names(found, f"{what}; `eruca topic create NAME` makes one, --kind all shows all kinds")

    view.show(ask)


def _view_names(listed: Listed[TopicName], empty: str) -> View:
    return view_list(listed, ["topic", "kind"], lambda row: (row.name, row.kind), empty=empty)


def _view_settings(listed: Listed[NamedSettings]) -> View:
    columns = ["topic", "broker", ">read", ">write", "perm", "ordered"]
    return view_list(listed, columns, lambda row: (row.topic, row.broker, *_draw_settings(row.settings)), empty=_NONE)


_NONE = "there is no such topic; `eruca topic list` shows those there are"


def _draw_settings(settings: TopicSettings) -> tuple[str, str, str, str]:
    numbers = (str(settings.read_queues), str(settings.write_queues))
    return (*numbers, settings.permission, "yes" if settings.ordered else "no")


@topic.command()
@add_topic_argument
@click.option("--queues", "with_queues", is_flag=True, help="One row per queue, not only per broker.")
@add_limit_option
@add_view_options
def show(view: Viewing, topic: str, with_queues: bool, limit: int | None) -> None:
    """Show the settings, queues and groups of TOPIC.

    \b
    Examples:
      eruca topic show orders
      eruca topic show orders --queues
      eruca topic show orders -o json | jq '.queues[] | {broker, queue, end}'
      eruca topic show orders --watch
    """

    async def ask(admin: Admin) -> View:
        found = await admin.topics.show(topic, limit=view.choose_limit(limit))
        return View(value=found, draw=lambda: _draw_topic(found, with_queues), problems=found.problems, cut=found.cut)

    view.show(ask)


def _draw_topic(found: Topic, with_queues: bool) -> Iterable[RenderableType]:
    facts = [
        ("kind", str(found.kind)),
        ("messages", str(found.count)),
        ("groups", ", ".join(found.groups) or "none"),
        ("order across brokers", found.order),
    ]
    yield make_table([found.name, ""], [(name, value) for name, value in facts if value])
    counts: Counter[str] = Counter()
    for queue in found.queues:
        counts[queue.broker] += queue.count
    rows = [(row.broker, row.address, *_draw_settings(row.settings), str(counts[row.broker])) for row in found.brokers]
    yield make_table(["broker", "address", ">read", ">write", "perm", "ordered", ">messages"], rows)
    if with_queues:
        columns = ["broker", ">queue", ">begin", ">end", ">messages", "first", "last"]
        yield make_table(columns, [_draw_queue(queue) for queue in found.queues])


def _draw_queue(row: QueueEnds) -> Sequence[str]:
    places = (str(row.queue), str(row.begin), str(row.end), str(row.count))
    return (row.broker, *places, format_time(row.first_at), format_time(row.last_at))


@topic.command()
@add_topic_argument
@add_view_options
def stats(view: Viewing, topic: str) -> None:
    """Show how fast messages are stored in TOPIC, and how fast each group gets them.

    Messages per second over the last minute, hour and day, as the brokers count them.

    \b
    Examples:
      eruca topic stats orders --watch
      eruca topic stats orders -o json | jq '.consumed[].minute_rate'
    """

    async def ask(admin: Admin) -> View:
        traffic = await admin.topics.traffic(topic)
        rows = [("stored", row) for row in traffic.stored]
        rows += [(row.key.partition("@")[2], row) for row in traffic.consumed]
        if not rows:
            say(f"topic {topic} was not used since its brokers started")
        return View(
            value=traffic,
            draw=lambda: [make_table(RATE_COLUMNS, [(who, *draw_rate(row)) for who, row in rows])],
            problems=traffic.problems,
        )

    view.show(ask)


#: The columns of `draw_rate`, after one that says what is counted.
RATE_COLUMNS = ["what", "broker", ">last minute", ">per s", ">last hour", ">per s", ">last day", ">per s"]


def draw_rate(row: Rate) -> Sequence[str]:
    """Return the cells of a counter: sums and rates over the last minute, hour and day."""
    minute = (str(row.minute_sum), f"{row.minute_rate:.1f}")
    hour = (str(row.hour_sum), f"{row.hour_rate:.1f}")
    return (row.broker, *minute, *hour, str(row.day_sum), f"{row.day_rate:.1f}")


# --- changing ---------------------------------------------------------------------------------------------------------

_COUNT = click.IntRange(min=1)


@topic.command()
@add_topic_argument
@click.option(
    "--queues", type=_COUNT, metavar="N", default=8, show_default=True, help="The number of queues on each broker."
)
@click.option("--read-queues", type=_COUNT, metavar="N", help="Queues that consumers read [default: as --queues].")
@click.option("--write-queues", type=_COUNT, metavar="N", help="Queues that producers write to [default: as --queues].")
@click.option("--permission", type=click.Choice(PERMISSIONS), default="RW", show_default=True, help="Who may use it.")
@click.option(
    "--ordered", is_flag=True, help="Report queues of brokers that are away too, so that the order of keys is kept."
)
@click.option("--system-flag", type=int, default=0, hidden=True)
@add_place_options
@add_change_options()
def create(change: Changing, **settings: Any) -> None:
    """Create TOPIC on all masters, or on some.

    A broker that has it with the same settings is left alone; with other settings the command fails, and
    `eruca topic update` changes them.

    \b
    Examples:
      eruca topic create orders
      eruca topic create orders --queues 16 --cluster DefaultCluster
      eruca topic create audit --queues 1 --broker broker-a
    """
    change.apply(lambda admin, dry_run: admin.topics.create(**settings, dry_run=dry_run))


@topic.command()
@add_topic_argument
@click.option("--queues", type=_COUNT, metavar="N", help="The number of queues on each broker, to read and to write.")
@click.option("--read-queues", type=_COUNT, metavar="N", help="Queues that consumers read.")
@click.option("--write-queues", type=_COUNT, metavar="N", help="Queues that producers write to.")
@click.option("--permission", type=click.Choice(PERMISSIONS), help="Who may use it.")
@click.option("--ordered/--no-ordered", default=None, help="Report queues of brokers that are away too, or not.")
@click.option("--system-flag", type=int, hidden=True)
@add_place_options
@add_change_options(asks=True)
def update(change: Changing, **settings: Any) -> None:
    """Change settings of TOPIC on the brokers that have it; what is not given stays.

    It asks first if consumers would read fewer queues, or if a permission is taken away. To have fewer queues without
    losing messages, lower --write-queues first; when the groups have consumed the rest, lower --read-queues.

    \b
    Examples:
      eruca topic update orders --queues 32
      eruca topic update orders --write-queues 4 --dry-run
    """
    if all(settings[name] is None for name in _SETTINGS):
        raise click.UsageError("nothing to change: pass at least one of --queues, --permission, --ordered")
    change.apply(
        lambda admin, dry_run: admin.topics.update(**settings, dry_run=dry_run),
        losing=f"Change topic {settings['topic']}?",
    )


_SETTINGS = ("queues", "read_queues", "write_queues", "permission", "ordered", "system_flag")


@topic.command()
@add_topic_argument
@click.argument("permission", type=click.Choice(PERMISSIONS))
@add_place_options
@add_change_options(asks=True)
def permission(change: Changing, topic: str, permission: str, **where: Any) -> None:
    """Set who may use TOPIC: RW, R (no new messages; consumers continue), W, or - (nobody).

    \b
    Examples:
      eruca topic permission orders R
      eruca topic permission orders RW --broker broker-a
    """
    change.apply(
        lambda admin, dry_run: admin.topics.set_permission(topic, permission, **where, dry_run=dry_run),
        "" if permission == "RW" else f"Set the permission of topic {topic} to {permission}?",
    )


@topic.command()
@add_topic_argument
@add_place_options
@add_change_options(asks=True)
def delete(change: Changing, topic: str, **where: Any) -> None:
    """Delete TOPIC with its messages on all brokers, or on some.

    Creating it again does not bring the messages back. Brokers that create topics automatically create it again
    when a producer sends to it.

    \b
    Examples:
      eruca topic delete orders --dry-run
      eruca topic delete orders --yes
      eruca topic delete orders --broker broker-b
    """
    change.apply(
        lambda admin, dry_run: admin.topics.delete(topic, **where, dry_run=dry_run),
        f"Delete topic {topic} and its messages?",
    )

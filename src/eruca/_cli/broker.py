"""`eruca broker`: start a broker, and look after those that run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import click

from eruca._admin.targets import explain_no_broker
from eruca._cli.changing import Changing, add_change_options
from eruca._cli.choosing import add_one_place_options
from eruca._cli.completing import suggest_brokers, suggest_clusters, suggest_keys
from eruca._cli.grouping import CommandGroup, ServerGroup
from eruca._cli.output import format_bytes, format_time
from eruca._cli.serve import broker as start
from eruca._cli.serverconfig import add_settings_argument, hide_changes, view_configs
from eruca._cli.tables import make_table
from eruca._cli.topic import RATE_COLUMNS, draw_rate
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, view_list
from eruca._ground.printable import format_duration
from eruca.admin import Admin, Changed, Health, Runtime

# Clocks that differ by less are not worth a number.
_CLOCK_STEP = timedelta(seconds=2)


@click.group(cls=ServerGroup)
def broker() -> None:
    """Start a broker; list, show, configure and clean those that run.

    With options only it starts one: `eruca broker -c broker.conf` is `eruca broker start -c broker.conf`. BROKER is
    the name of a broker, or HOST:PORT for a slave.

    \b
    Examples:
      eruca broker -c broker.conf                 start one
      eruca broker list                           who answers; disks, clocks
      eruca broker show broker-a                  what it reports
      eruca broker config get flushDiskType
      eruca broker config set fileReservedTime=48 --broker broker-a
      eruca broker permission broker-a R          let producers leave it
    """


broker.add_command(start, "start")

# --- looking ----------------------------------------------------------------------------------------------------------


@broker.command("list")
@click.option("--cluster", metavar="NAME", shell_complete=suggest_clusters, help="Only brokers of this cluster.")
@add_limit_option
@add_view_options
def list_(view: Viewing, cluster: str | None, limit: int | None) -> None:
    """List the registered brokers: whether each answers, its version, disk and clock.

    The exit status is 3 if one does not answer.

    \b
    Examples:
      eruca broker list
      eruca broker list -o json | jq -r 'select(.answers | not) | .address'
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.brokers.health(cluster=cluster, limit=view.choose_limit(limit))
        columns = ["broker", ">id", "address", "version", ">answer", ">disk", ">clock", "problem"]
        if not listed.items:
            raise explain_no_broker()
        silent = any(not row.answers for row in listed.items)
        return view_list(listed, columns, _draw_health, empty="", is_wrong=silent)

    view.show(ask)


def _draw_health(row: Health) -> tuple[str, ...]:
    disk = "-" if row.log_disk_ratio is None else f"{100 * row.log_disk_ratio:.0f}%"
    version = " ".join(word for word in (row.kind, row.version) if word) or "-"
    times = (format_duration(row.round_trip), disk, _say_clock(row.clock_ahead))
    return (row.broker, str(row.broker_id), row.address, version, *times, row.problem)


def _say_clock(ahead: timedelta | None) -> str:
    if ahead is None:
        return "-"
    # Brokers of other makes report whole seconds.
    return "right" if abs(ahead) < _CLOCK_STEP else format_duration(ahead)


@broker.command()
@click.argument("name", metavar="BROKER", shell_complete=suggest_brokers)
@click.option("--raw", is_flag=True, help="Every key that it reports, as it is.")
@add_view_options
def show(view: Viewing, name: str, raw: bool) -> None:
    """Show what BROKER reports about itself: rates, counts, disk, backlog.

    \b
    Examples:
      eruca broker show broker-a
      eruca broker show broker-a --watch 5
      eruca broker show 10.0.0.2:10911 --raw
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.brokers.runtime(name)
        if raw:
            return View(
                value=[row.raw for row in listed.items],
                draw=lambda: [make_table([row.broker, row.address], sorted(row.raw.items())) for row in listed.items],
                is_list=True,
                problems=listed.problems,
            )
        return View(
            value=listed.items,
            draw=lambda: [make_table([row.broker, row.address], _list_facts(row)) for row in listed.items],
            is_list=True,
            problems=listed.problems,
        )

    view.show(ask)


def _list_facts(row: Runtime) -> Iterable[tuple[str, str]]:
    facts = [
        ("version", row.version),
        ("started", f"{format_time(row.started_at)}, {format_duration(row.uptime)} ago" if row.started_at else None),
        ("messages in per s", _say_rates(row.put_rates)),
        ("messages out per s", _say_rates(row.transferred_rates)),
        ("pulls per s", _say_rates(row.get_rates)),
        ("pulls with nothing per s", _say_rates(row.missed_rates)),
        ("in today, yesterday, ever", _say_counts(row.put_today, row.put_yesterday, row.put_total)),
        ("out today, yesterday, ever", _say_counts(row.get_today, row.get_yesterday, row.get_total)),
        ("refused", None if row.failed_puts is None else str(row.failed_puts)),
        ("mean size", None if row.mean_size is None else format_bytes(round(row.mean_size))),
        ("slowest store in a minute", None if row.put_time_max is None else format_duration(row.put_time_max)),
        ("log", None if row.log_end is None else f"{row.log_begin} to {row.log_end}"),
        ("oldest message", None if row.earliest_at is None else format_time(row.earliest_at)),
        ("disk of log, of queues", _say_ratios(row.log_disk_ratio, row.queue_disk_ratio)),
        ("free", None if row.disk_free_bytes is None else format_bytes(row.disk_free_bytes)),
        ("to dispatch", None if row.dispatch_behind_bytes is None else format_bytes(row.dispatch_behind_bytes)),
        ("not on disk yet", None if row.unflushed_bytes is None else format_bytes(row.unflushed_bytes)),
        ("requests waiting", ", ".join(f"{count} {name}" for name, count in row.waiting.items() if count)),
    ]
    return [(name, value) for name, value in facts if value]


def _say_rates(rates: list[float]) -> str | None:
    spans = ("10 s", "1 min", "10 min")
    return ", ".join(f"{rate:.1f} ({span})" for rate, span in zip(rates, spans, strict=False)) or None


def _say_counts(*counts: int | None) -> str | None:
    if all(count is None for count in counts):
        return None
    return ", ".join("-" if count is None else str(count) for count in counts)


def _say_ratios(*ratios: float | None) -> str | None:
    if all(ratio is None for ratio in ratios):
        return None
    return ", ".join("-" if ratio is None else f"{100 * ratio:.0f}%" for ratio in ratios)


@broker.command()
@add_one_place_options
@add_limit_option
@add_view_options
def stats(view: Viewing, broker: str | None, cluster: str | None, limit: int | None) -> None:
    """Show messages in and out of each broker: per second, today and yesterday.

    `eruca topic stats` has them for a topic and its groups, `eruca broker counter` any counter of RocketMQ.

    \b
    Examples:
      eruca broker stats --watch 5
      eruca broker stats -o json | jq '{broker, put_rates}'
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.brokers.runtime(broker, cluster=cluster, limit=view.choose_limit(limit))
        columns = ["broker", "address", ">in/s", ">out/s", ">in today", ">out today", ">in yesterday", ">out yesterday"]
        return view_list(listed, columns, _draw_traffic, empty="")

    view.show(ask)


def _draw_traffic(row: Runtime) -> tuple[str, ...]:
    rates = [f"{each[0]:.1f}" if each else "-" for each in (row.put_rates, row.transferred_rates)]
    counts = [
        "-" if count is None else str(count)
        for count in (row.put_today, row.get_today, row.put_yesterday, row.get_yesterday)
    ]
    return (row.broker, row.address, *rates, *counts)


@broker.command()
@click.argument("name")
@click.argument("key")
@click.option("-b", "--broker", metavar="BROKER", shell_complete=suggest_brokers, help="Only this broker.")
@add_view_options
def counter(view: Viewing, name: str, key: str, broker: str | None) -> None:
    """Show a counter of RocketMQ: NAME is for example TOPIC_PUT_NUMS, KEY what it counts for.

    Others are TOPIC_PUT_SIZE (a topic), GROUP_GET_NUMS, GROUP_GET_SIZE and SNDBCK_PUT_NUMS (topic@group),
    BROKER_PUT_NUMS and BROKER_GET_NUMS (the name of the cluster), GROUP_GET_LATENCY (queue@topic@group).

    \b
    Examples:
      eruca broker counter TOPIC_PUT_NUMS orders
      eruca broker counter GROUP_GET_NUMS orders@billing --broker broker-a
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.brokers.statistics(name, key, broker=broker)
        empty = f"no broker has counted {name} of {key}; `eruca topic stats` shows what is counted for a topic"
        return view_list(
            listed,
            RATE_COLUMNS,
            lambda row: (row.name, *draw_rate(row)),
            empty=empty,
            is_wrong=not listed.items,
        )

    view.show(ask)


# --- options ----------------------------------------------------------------------------------------------------------


@broker.group(cls=CommandGroup)
def config() -> None:
    """The options of running brokers. `eruca config explain KEY` says what an option does.

    \b
    Examples:
      eruca broker config get
      eruca broker config get flushDiskType fileReservedTime
      eruca broker config set fileReservedTime=48
    """


@config.command("get")
@click.argument("keys", metavar="[KEY]...", nargs=-1, shell_complete=suggest_keys)
@add_one_place_options
@add_view_options
def get_(view: Viewing, keys: tuple[str, ...], broker: str | None, cluster: str | None) -> None:
    """Show the options in force, or those named KEY. Secrets are hidden.

    The exit status is 3 if no broker has such an option.

    \b
    Examples:
      eruca broker config get --broker broker-a
      eruca broker config get flushDiskType -o json | jq -r .options.flushDiskType
    """

    async def ask(admin: Admin) -> View:
        return view_configs(await admin.brokers.config(broker, cluster=cluster, limit=view.choose_limit(0)), keys)

    view.show(ask)


@config.command("set")
@add_settings_argument
@add_one_place_options
@add_change_options(asks=True)
def set_(change: Changing, options: dict[str, str], broker: str | None, cluster: str | None) -> None:
    """Change options while brokers run: of one, of those of a cluster, or of all masters.

    `eruca config list --mutable` lists the options of Eruca that can change. A broker writes them to its .conf file, so
    that they stay after a restart.

    \b
    Examples:
      eruca broker config set fileReservedTime=48
      eruca broker config set brokerPermission=4 --broker broker-a --dry-run
    """

    async def work(admin: Admin, dry_run: bool) -> Changed[dict[str, str]]:
        changed = await admin.brokers.set_config(options, broker=broker, cluster=cluster, dry_run=dry_run)
        return hide_changes(changed)

    change.apply(work, losing="Change the configuration?")


# --- permission and cleaning ------------------------------------------------------------------------------------------


@broker.command()
@click.argument("broker", metavar="BROKER", shell_complete=suggest_brokers)
@click.argument("permission", type=click.Choice(["R", "RW"]))
@add_change_options(asks=True)
def permission(change: Changing, broker: str, permission: str) -> None:
    """Have name servers report BROKER as read-only (R), so that producers leave it, or as usual again (RW).

    Use R before a broker is shut down for good: consumers read what is left. It counts until the broker registers with
    changed topics. RW lets producers write to every topic of the broker, also to those that were read-only before.

    \b
    Examples:
      eruca broker permission broker-a R
      eruca broker permission broker-a RW
    """
    if permission == "R":
        change.apply(
            lambda admin, dry_run: admin.brokers.wipe_write_permission(broker, dry_run=dry_run),
            f"Make all topics of {broker} read-only?",
            label="topics that producers may write to",
        )
    else:
        change.apply(
            lambda admin, dry_run: admin.brokers.add_write_permission(broker, dry_run=dry_run),
            label="topics that producers may write to",
        )


@broker.command()
@click.argument("what", type=click.Choice(["queues", "topics", "log"]))
@add_one_place_options
@add_change_options(asks=True)
def clean(change: Changing, what: str, broker: str | None, cluster: str | None) -> None:
    """Have brokers delete files now that they would delete later, or keep.

    `queues`: consume queues whose messages are gone. `topics`: queue files of topics that were deleted. `log`: segments
    of the log that are older than fileReservedTime, whatever the hour. This cannot be undone.

    \b
    Examples:
      eruca broker clean log --broker broker-a --dry-run
      eruca broker clean topics --yes
    """

    async def work(admin: Admin, dry_run: bool) -> Changed[str]:
        brokers = admin.brokers
        call = {
            "queues": brokers.clean_expired_queues,
            "topics": brokers.clean_unused_topics,
            "log": brokers.delete_expired_log,
        }[what]
        return await call(broker, cluster=cluster, dry_run=dry_run)

    where = broker or (f"the brokers of {cluster}" if cluster else "all brokers")
    change.apply(work, f"Delete {_CLEANED[what]} on {where}?", label=_CLEANED[what])


_CLEANED = {
    "queues": "expired consume queues",
    "topics": "the queue files of deleted topics",
    "log": "expired segments of the log",
}

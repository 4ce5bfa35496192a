"""`eruca cluster`: masters and slaves, how far behind they are, and changing the master."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import click

from eruca._admin.members import JAVA
from eruca._admin.targets import explain_no_broker
from eruca._cli.administer import operate
from eruca._cli.changing import add_dry_run_option
from eruca._cli.clusterforget import forget
from eruca._cli.completing import suggest_brokers, suggest_members
from eruca._cli.connecting import add_nameserver_option, name_cluster
from eruca._cli.grouping import CommandGroup
from eruca._cli.output import add_output_option, format_bytes, format_time, print_document, to_plain
from eruca._cli.saying import say
from eruca._cli.tables import make_table
from eruca._cli.viewing import View, Viewing, add_view_options, view_list
from eruca._ground.commandlines import write_command
from eruca._ground.printable import format_duration
from eruca._wire.names import MASTER, MASTER_ID, SLAVE
from eruca.admin import Admin, DivergedRow, Lag, Member, Promotion
from eruca.errors import NoRoute

Function = TypeVar("Function", bound=Callable[..., Any])

_SECOND_MS = 1000


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Masters and slaves: list them, measure lag, change the master.

    Brokers with the same name are its members: one master, which accepts messages, and slaves, which copy its log.
    BROKER is the address of a member (HOST:PORT) or its name and id (broker-a:1).

    \b
    Examples:
      eruca cluster list                all members: role, epoch, lag
      eruca cluster replicas broker-a   the members of one name in detail
      eruca cluster lag                 one line per slave
      eruca cluster promote broker-a:1  make this slave the master, without loss
      eruca cluster demote broker-a:0   make the master step down
      eruca cluster diverged            what only a replaced master had
      eruca cluster forget HOST:PORT    a member that is gone for good
    """


cluster.add_command(forget)

# --- looking ----------------------------------------------------------------------------------------------------------


@cluster.command("list")
@add_view_options
def list_(view: Viewing) -> None:
    """List all members of all brokers: id, address, role, epoch, end of the log, lag.

    An epoch is one mastership: a restart of the master adds 1, a promotion moves on to the next thousand (plus
    hundreds, depending on the id of the member). FENCED is a master that may not accept messages. JAVA is a Java
    broker, which has no epochs and does not report its links. The exit status is 3 if a broker has no master, or if a
    member does not answer.

    \b
    Examples:
      eruca cluster list
      eruca cluster list --watch
      eruca cluster list -o json | jq -r 'select(.role == "MASTER") | .address'
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.cluster.members()
        _require_some(listed.items, None)
        columns = ["cluster", "broker", ">id", "address", "role", ">epoch", ">log ends at", ">behind", "problem"]
        shown = view_list(listed, columns, _draw_member, empty="", describe=_describe)
        return _judge(shown, listed.items)

    view.show(ask)


def _judge(view: View, members: Sequence[Member]) -> View:
    """Return a view with what is wrong with the members: names without a master, members that do not answer."""
    return replace(
        view, warnings=list(_list_missing_masters(members)), is_wrong=any(not member.role for member in members)
    )


def _describe(member: Member) -> dict[str, object]:
    """Return a line of `list` for programs; `replicas` shows more."""
    state, (lag_bytes, lag_ms) = member.state, _find_lag(member)
    return {
        "cluster": member.cluster,
        "broker": member.broker,
        "broker_id": member.broker_id,
        "address": member.address,
        "role": member.role,
        "epoch": None if state is None else state.epoch,
        "tail": member.tail,
        "writable": None if state is None else state.writable,
        "lag_bytes": lag_bytes,
        "lag_seconds": None if lag_ms is None or lag_ms < 0 else lag_ms / _SECOND_MS,
        "problem": member.problem,
    }


def _find_lag(member: Member) -> tuple[int | None, int | None]:
    followed = member.state.master if member.state is not None else None
    return (None, None) if followed is None else (followed.lag_bytes, followed.lag_ms)


def _draw_member(member: Member) -> Sequence[str]:
    state, (lag_bytes, lag_ms) = member.state, _find_lag(member)
    number = str(member.broker_id) if member.broker_id >= 0 else "-"
    role = member.role or "does not answer"
    where = (member.cluster, member.broker, number, member.address, role)
    if state is None:
        return (*where, "-", "-" if member.tail is None else str(member.tail), "-", member.problem)
    behind = "-" if lag_bytes is None or lag_ms is None else _say_lag(lag_bytes, lag_ms)
    if state.master is not None and not state.master.connected:
        behind = "not connected"
    return (*where, str(state.epoch), str(state.tail), behind, member.problem)


def _say_lag(lag_bytes: int, lag_ms: int) -> str:
    if lag_bytes < 0:
        return "unknown"
    return f"{format_bytes(lag_bytes)}, {max(lag_ms, 0) / _SECOND_MS:.1f} s"


@cluster.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=suggest_brokers)
@add_view_options
def replicas(view: Viewing, name: str | None) -> None:
    """Show what the members of a broker NAME (or of all) report: epochs, log, links, copies they wait for.

    \b
    Examples:
      eruca cluster replicas broker-a
      eruca cluster replicas broker-a -o json | jq '.state.epochs'
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.cluster.members(name)
        _require_some(listed.items, name)
        shown = View(
            value=listed.items,
            draw=lambda: [make_table(*_draw_facts(member)) for member in listed.items],
            is_list=True,
            problems=listed.problems,
        )
        return _judge(shown, listed.items)

    view.show(ask)


def _draw_facts(member: Member) -> tuple[list[str], list[tuple[str, str]]]:
    title = [f"{member.broker}:{member.broker_id}" if member.broker_id >= 0 else member.broker, member.address]
    state = member.state
    if state is None:
        return title, [("role", member.role or "does not answer"), ("problem", member.problem)]
    epochs = ", ".join(f"{each.epoch} from {each.start}" for each in state.epochs)
    facts = [
        ("role", state.role + ("" if state.writable else ", accepts no messages")),
        ("epoch", f"{state.epoch} ({epochs or 'none started'})"),
        ("log", f"{state.log_start} to {state.tail}, on disk to {state.flushed}"),
        ("last message", format_time(state.last_store_time)),
        ("failover", state.failover or "by an operator"),
    ]
    if state.role != SLAVE:
        mode = f"{state.required} members have a message" if state.sync and state.required > 1 else "it has a message"
        facts.append(("acknowledges when", mode))
        facts.append(("confirmed", f"to {state.confirmed}"))
    if state.master is not None:
        followed = state.master
        link = _say_lag(followed.lag_bytes, followed.lag_ms) if followed.connected else "not connected"
        facts.append(("master", f"{followed.address or 'not known'}, epoch {followed.epoch}, behind: {link}"))
    for slave in state.slaves:
        kind = ("in sync" if slave.in_sync else "too far behind") + ("" if slave.fenced else ", as a Java slave")
        facts.append((f"slave {slave.address}", f"{kind}, behind: {_say_lag(slave.lag_bytes, slave.lag_ms)}"))
    if state.diverged:
        facts.append(("set aside", f"{len(state.diverged)} parts of its log; see eruca cluster diverged"))
    return title, facts


def _list_missing_masters(members: Sequence[Member]) -> Iterator[str]:
    """Yield a line about each broker name that accepts no messages, because no master answers."""
    names = {member.broker for member in members}
    led = {m.broker for m in members if m.role == MASTER or (m.role == JAVA and m.broker_id == MASTER_ID)}
    for name in sorted(names - led):
        yield f"{name} has no master: it accepts no messages; `eruca cluster promote` makes a slave the master"


def _require_some(members: Sequence[Member], name: str | None) -> None:
    if members:
        return
    if name is None:
        raise explain_no_broker()
    raise NoRoute(f"no broker is named {name}", hint="eruca cluster list shows all; -n sets the name servers to ask")


@cluster.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=suggest_brokers)
@add_view_options
def lag(view: Viewing, name: str | None) -> None:
    """Show how far each slave (of broker NAME) is behind its master, in bytes of the log and in time.

    The time is how long ago the master stored what the slave receives next. If the master does not report a slave, the
    slave's own report is shown. For Java brokers the ends of the logs are compared. The exit status is 3 as for `list`.

    \b
    Examples:
      eruca cluster lag --watch
      eruca cluster lag broker-a -o json | jq 'select(.lag_bytes > 1000000)'
    """

    async def ask(admin: Admin) -> View:
        members = (await admin.cluster.members(name)).items
        listed = await admin.cluster.lag(name)
        _require_some(members, name)
        columns = ["broker", "slave", ">id", "master", "link", ">position", ">bytes behind", ">time behind", "in sync"]
        shown = view_list(listed, columns, _draw_lag, empty="there are no slaves: a message is on one broker only")
        return _judge(shown, members)

    view.show(ask)


def _draw_lag(row: Lag) -> Sequence[str]:
    link = ("fenced" if row.fenced else "as Java") if row.connected else "not connected"
    synced = {True: "yes", False: "no", None: "-"}[row.in_sync]
    late = "-" if row.lag_seconds is None else format_duration(row.lag_seconds)
    behind = ("-" if row.lag_bytes < 0 else format_bytes(row.lag_bytes), late)
    number = str(row.broker_id) if row.broker_id >= 0 else "-"
    return (row.broker, row.address, number, row.master or "-", link, str(row.position), *behind, synced)


@cluster.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=suggest_brokers)
@add_view_options
def diverged(view: Viewing, name: str | None) -> None:
    """List the parts of logs that members (of broker NAME) have set aside.

    The log of a slave must be that of its master. A master that is replaced may have messages that no other member has;
    they are removed from its log when it comes back as a slave, and kept in a file below its store directory, which
    `eruca store diverged DIR FILE` shows. With SYNC_MASTER none of them was acknowledged,
    unless the promotion was forced.

    \b
    Examples:
      eruca cluster diverged
      eruca store diverged DIR 1-4096-8192.log   on the machine of that member
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.cluster.diverged(name)
        columns = ["broker", "member", "file", ">epoch", ">begin", ">end", ">size", "found"]
        return view_list(listed, columns, _draw_diverged, empty="no member has set anything aside")

    view.show(ask)


def _draw_diverged(row: DivergedRow) -> Sequence[str]:
    places = (str(row.epoch), str(row.begin), str(row.end), format_bytes(row.end - row.begin))
    return (row.broker, row.address, row.file, *places, format_time(row.found_at))


# --- changing ---------------------------------------------------------------------------------------------------------


def add_change_options(function: Function) -> Function:
    """Add the options of a change of roles to a command."""
    for option in reversed(
        [
            click.option("--force", is_flag=True, help="Do it even if acknowledged messages are lost."),
            click.option(
                "--members", type=click.IntRange(min=1), help="How many members there are, if one is gone for good."
            ),
            click.option(
                "--wait",
                "wait",
                type=click.FloatRange(min=0),
                default=30.0,
                show_default=True,
                help="Seconds to wait for a slave to copy what it lacks.",
            ),
            add_dry_run_option,
        ]
    ):
        function = option(function)
    return function


@cluster.command()
@click.argument("broker", metavar="BROKER", shell_complete=suggest_members)
@add_change_options
@add_nameserver_option
@add_output_option
def promote(broker: str, nameservers: str, output: str, **how: Any) -> None:
    """Make BROKER (HOST:PORT, or name and id) the master of its name.

    If the master answers, it stops accepting messages, BROKER copies what it lacks, and they swap roles; producers wait
    for a moment and nothing is lost. If the master does not answer, BROKER is promoted only if no acknowledged message
    can be lost: it must have more of the log than any other member that answers, and enough members must answer that
    the silent ones cannot have acknowledged anything among themselves (with n members and r copies, n - r + 1). An
    ASYNC_MASTER does not wait for slaves, so what a dead one acknowledged last is unknown, and promotion needs --force.
    A refusal states what would be lost.

    When the old master comes back, it follows the new one automatically. Messages that only it had are kept in a file;
    see `eruca cluster diverged`.

    \b
    Examples:
      eruca cluster promote broker-a:1 --dry-run
      eruca cluster promote broker-a:1
      eruca cluster promote 10.0.0.2:10911 --force
      eruca cluster promote broker-a:2 --members 2   if a third is gone for good
    """
    _show_change(operate(nameservers, lambda admin: admin.cluster.promote(broker, tell=_say, **how)), output)


@cluster.command()
@click.argument("broker", metavar="BROKER", shell_complete=suggest_members)
@click.option("--no-successor", is_flag=True, help="Promote no other member: the broker name accepts no messages then.")
@add_change_options
@add_nameserver_option
@add_output_option
def demote(broker: str, no_successor: bool, nameservers: str, output: str, **how: Any) -> None:
    """Make the master BROKER step down; its slave with the most data becomes the master.

    Use this before restarting the machine of a master: nothing is lost, and producers wait for a moment. With
    --no-successor it only stops accepting messages; consumers can still read from it. Members that elect their master
    in etcd elect another one.

    \b
    Examples:
      eruca cluster demote broker-a:0
      eruca cluster demote broker-a:0 --no-successor
    """
    _show_change(
        operate(
            nameservers,
            lambda admin: admin.cluster.demote(broker, successor=not no_successor, tell=_say, **how),
        ),
        output,
    )


def _say(step: str) -> None:
    say(step)


def _show_change(report: Promotion, output: str) -> None:
    for warning in report.warnings:
        say(f"warning: {warning}")
    facts = [
        ("broker", report.broker),
        ("master before", report.before or "not known"),
        ("master", report.master or "nobody"),
        ("epoch", str(report.epoch)),
        ("done", _say_done(report)),
        *[("would be refused" if not report.done else "forced although", reason) for reason in report.objections],
    ]
    undo = _write_undo(report)
    print_document(to_plain(report) | {"undo": undo}, output, lambda: [make_table(["change", ""], facts)])
    if output == "table":
        for command in undo:
            click.echo(f"undo: {command}")


def _say_done(report: Promotion) -> str:
    if report.unchanged:
        return "nothing to do: it is the master already"
    return "yes" if report.done else "no, this was a dry run"


def _write_undo(report: Promotion) -> list[str]:
    """Return the command that makes the old master the master again, once it follows the new one."""
    if not report.done or not report.before or not report.master or report.before == report.master:
        return []
    return [write_command("cluster", "promote", report.before, *name_cluster())]

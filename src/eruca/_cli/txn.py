"""`eruca txn`: transactions that are prepared, decided or given up."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from eruca._admin.transactionstore import count_log_bytes, read_store
from eruca._cli.administer import add_yes_option, confirm, end_with, operate, show_count
from eruca._cli.changing import add_dry_run_option
from eruca._cli.connecting import add_nameserver_option
from eruca._cli.grouping import CommandGroup
from eruca._cli.messagerows import describe_message, draw_message
from eruca._cli.output import add_output_option, format_bytes, format_time, print_rows, show_progress, to_plain
from eruca._cli.tables import make_table
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, print_view, view_list
from eruca._ground.printable import say_count
from eruca.admin import UNDECIDED, Admin, Deed, Listed, Problem, State, Transaction

_STATES = {state.value.replace(" ", "-"): frozenset({state}) for state in State}
_STATES |= {"undecided": UNDECIDED, "all": frozenset(State)}


@click.group(cls=CommandGroup)
def txn() -> None:
    """Transactions: what producers prepared, and what was decided.

    \b
    Examples:
      eruca txn list                         undecided or given up
      eruca txn list --state all --store DIR all of a store directory
      eruca txn show 7F000001000026A2...     one of them, with its body
      eruca txn resume 7F000001000026A2...   ask the producer again
      eruca txn discard 7F000001000026A2...  roll it back for the producer
    """


@txn.command("list")
@click.option(
    "--state",
    type=click.Choice(list(_STATES)),
    default="undecided",
    show_default=True,
    help="Only transactions in this state.",
)
@click.option("-g", "--group", help="Only transactions of this producer group.")
@click.option("-t", "--topic", help="Only messages for this topic.")
@click.option(
    "--store",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Read this store directory instead of asking brokers.",
)
@add_limit_option
@add_view_options
def list_(
    view: Viewing,
    state: str,
    group: str | None,
    topic: str | None,
    directory: Path | None,
    limit: int | None,
) -> None:
    """List transactions: state, position and size in the commit log, time, producer group, message.

    A prepared transaction waits for its producer, which is asked about it from time to time. One that was asked about
    too often is given up and kept in TRANS_CHECK_MAX_TIME_TOPIC. For decided transactions brokers are asked for each
    message, which takes a while if there are many. With --store no broker is needed, although one may be running: the
    list is made from the commit log alone.

    \b
    Examples:
      eruca txn list
      eruca txn list --state given-up --group payments
      eruca txn list --state all --store eruca-data/store -o json
    """
    wanted, rows_max = _STATES[state], view.choose_limit(limit)

    def choose(rows: Iterable[Transaction], problems: Sequence[Problem] = ()) -> View:
        fitting = [
            row
            for row in rows
            if row.state in wanted and group in (None, row.producer_group) and topic in (None, row.topic)
        ]
        listed = Listed(items=fitting[:rows_max], cut=len(fitting) > rows_max, problems=list(problems))
        columns = ["state", ">position", ">size", "prepared", "producer group", "topic", ">checks", "message id"]
        return view_list(listed, columns, _draw, empty=_EMPTY[state != "undecided"])

    if directory is not None:
        print_view(choose(_read_store(directory)), view.output)
        return

    async def ask(admin: Admin) -> View:
        with show_count("records read") as advance:
            found = await admin.transactions.list(wanted, limit=view.choose_limit(0), progress=advance)
        return choose(found.items, found.problems)

    view.show(ask)


_EMPTY = ("no transaction is undecided: nothing to do; --state all lists the others", "there is no such transaction")


def _read_store(directory: Path) -> list[Transaction]:
    with show_progress("reading the commit log", count_log_bytes(directory)) as advance:
        return read_store(directory, progress=advance)


def _draw(row: Transaction) -> Sequence[str]:
    where = (str(row.position), format_bytes(row.size), format_time(row.born_at))
    return (row.state.value, *where, row.producer_group, row.topic, str(row.checks), row.message_id)


@txn.command()
@click.argument("name", metavar="ID")
@add_view_options
def show(view: Viewing, name: str) -> None:
    """Show one transaction with its message. ID is its message id, or the offset id that `list -o json` shows.

    \b
    Examples:
      eruca txn show 7F000001000026A20000000000000000
      eruca txn show 7F000001000026A20000000000000000 -o json |
          jq -r .message.body_base64 | base64 -d
    """

    async def ask(admin: Admin) -> View:
        row = await admin.transactions.find(name)
        message = await admin.transactions.view(row)
        return View(
            value=to_plain(row) | {"message": describe_message(message)},
            draw=lambda: [make_table(["transaction", ""], _list_facts(row)), *draw_message(message)],
        )

    view.show(ask)


def _list_facts(row: Transaction) -> list[tuple[str, str]]:
    facts = [
        ("state", row.state.value),
        ("topic", row.topic),
        ("producer group", row.producer_group),
        ("prepared", format_time(row.born_at)),
        ("checks", str(row.checks)),
        ("broker", row.broker),
        ("message id", row.message_id),
    ]
    if row.committed_position is not None:
        facts.append(("committed at", f"position {row.committed_position}"))
    return facts


@txn.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All transactions that were given up.")
@click.option("-g", "--group", help="With --all: only transactions of this producer group.")
@add_dry_run_option
@add_nameserver_option
@add_output_option
def resume(
    ids: tuple[str, ...], everything: bool, group: str | None, dry_run: bool, nameservers: str, output: str
) -> None:
    """Make brokers ask producers again about transactions that were given up.

    They are asked as often as about a new transaction. A producer of the group must be connected to answer.
    Transactions that were not given up are left alone.

    \b
    Examples:
      eruca txn resume 7F000001000026A20000000000000000
      eruca txn resume --all --group payments
    """
    _check_choice(ids, everything, group)

    async def work(admin: Admin) -> list[Deed]:
        rows = await _choose(admin, ids, State.GIVEN_UP, group)
        return [row if isinstance(row, Deed) else await admin.transactions.resume(row, dry_run=dry_run) for row in rows]

    _show_deeds(operate(nameservers, work), output)


@txn.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All prepared transactions.")
@click.option("-g", "--group", help="With --all: only transactions of this producer group.")
@add_dry_run_option
@add_yes_option
@add_nameserver_option
@add_output_option
def discard(
    ids: tuple[str, ...],
    everything: bool,
    group: str | None,
    dry_run: bool,
    yes: bool,
    nameservers: str,
    output: str,
) -> None:
    """Roll back prepared transactions in place of their producer. This cannot be undone.

    Consumers never see the message. Transactions that were given up need no discarding: they stay in
    TRANS_CHECK_MAX_TIME_TOPIC, where `resume` finds them, until they expire.

    \b
    Examples:
      eruca txn discard 7F000001000026A20000000000000000
      eruca txn discard --all --group payments --dry-run
      eruca txn discard --all --group payments --yes
    """
    _check_choice(ids, everything, group)
    if not dry_run:
        confirm(
            f"Roll back {'all prepared transactions' if everything else say_count(len(ids), 'transaction')} for good?",
            yes,
        )

    async def work(admin: Admin) -> list[Deed]:
        rows = await _choose(admin, ids, State.PREPARED, group)
        return [
            row if isinstance(row, Deed) else await admin.transactions.discard(row, dry_run=dry_run) for row in rows
        ]

    _show_deeds(operate(nameservers, work), output)


def _check_choice(ids: tuple[str, ...], everything: bool, group: str | None) -> None:
    if bool(ids) == everything:
        raise click.UsageError("pass either the IDs of transactions or --all")
    if group and not everything:
        raise click.UsageError("--group needs --all")


async def _choose(admin: Admin, ids: tuple[str, ...], state: State, group: str | None) -> list[Transaction | Deed]:
    """Return the selected transactions, and an outcome for each id that is unknown."""
    if not ids:
        rows = (await admin.transactions.list({state}, limit=sys.maxsize)).items
        return [row for row in rows if group in (None, row.producer_group)]
    known: dict[str, Transaction] = {}
    for row in (await admin.transactions.list(frozenset(State), limit=sys.maxsize)).items:
        known |= {row.message_id: row, row.offset_id: row}
    return [
        known.get(name) or Deed(message_id=name, outcome="failed", state=None, reason="no such transaction is known")
        for name in ids
    ]


def _show_deeds(deeds: list[Deed], output: str) -> None:
    print_rows(deeds, output, ["message id", "outcome", "was", "reason"], _draw_deed)
    end_with(deed.outcome for deed in deeds)


def _draw_deed(deed: Deed) -> Sequence[str]:
    return (deed.message_id, deed.outcome, deed.state.value if deed.state else "-", deed.reason)

"""Transactions in doubt: what the broker knows of them, resuming and discarding one."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from eruca._admin.transactions import Deed
from eruca._admin.transactiontable import UNDECIDED, State, Transaction
from eruca._console.identity.rights import Need
from eruca._console.messages.reading import make_viewer, may_see
from eruca._console.messages.viewing import FORMATS
from eruca._console.pages.commands import write_flags
from eruca._console.pages.forms import change
from eruca._console.pages.outcomes import Difference, OutcomeRow, Outcomes
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca.errors import ErucaError

_STATES: Final = {"doubt": UNDECIDED, "all": frozenset(State)}
_TONES: Final = {State.PREPARED: "accent", State.GIVEN_UP: "error", State.COMMITTED: "ok", State.ROLLED_BACK: "muted"}
_OUTCOMES: Final = {"resumed": "done", "discarded": "done", "skipped": "unchanged"}


def name_state(state: State) -> str:
    """Return a state as a part of the keys of texts."""
    return state.value.replace(" ", "_")


_COLUMNS: tuple[Column[Transaction], ...] = (
    Column("stored_at", "transactions.since", lambda row: row.stored_at, kind="time"),
    Column("message_id", "messages.id", lambda row: row.message_id,
           link=lambda visit, row: visit.url("transactions", row.topic, row.message_id)),
    Column("topic", "transactions.topic", lambda row: row.topic),
    Column("producer_group", "transactions.group", lambda row: row.producer_group),
    Column("state", "transactions.state", lambda row: name_state(row.state), kind="tag", texts="transactions.state",
           tone=lambda row: _TONES[row.state]),
    Column("checks", "transactions.checks", lambda row: row.checks, kind="number"),
    Column("broker", "transactions.broker", lambda row: row.broker, is_minor=True),
    Column("size", "messages.size", lambda row: row.size, kind="bytes", is_minor=True),
)  # fmt: skip


async def list_transactions(visit: Visit) -> Shown | Response:
    """Show the transactions that are neither committed nor rolled back, or all."""
    kind = visit.query.get("state", "doubt")
    kind = kind if kind in _STATES else "doubt"
    listed = await visit.admin.transactions.list(_STATES[kind])
    rows = [row for row in listed.items if may_see(visit, topic=row.topic)]
    table = make_table(
        visit,
        "transactions",
        _COLUMNS,
        rows,
        cut=listed.cut,
        sort="stored_at",
        search=lambda row: " ".join((row.message_id, row.topic, row.producer_group)),
    )
    return show_table(
        visit,
        "transactions/list.html",
        table,
        problems=listed.problems,
        kind=kind,
        kinds=tuple(_STATES),
        command=visit.command("txn", "list", *write_flags(state="all" if kind == "all" else None)),
    )


async def show_transaction(visit: Visit) -> Shown:
    """Show what the broker knows of a transaction, its message, and what can be done."""
    row = await _find(visit)
    view, problem = None, ""
    try:
        view = await make_viewer(visit, row.topic)(await visit.admin.transactions.view(row))
    except ErucaError as error:
        problem = str(error.args[0])
    deed = {State.PREPARED: "discard", State.GIVEN_UP: "resume"}.get(row.state, "")
    return visit.show(
        "transactions/transaction.html",
        {"transaction": row, "message": None if view is None else view.make_row()},
        row=row,
        state=name_state(row.state),
        tone=_TONES[row.state],
        view=view,
        body=None if view is None else view.show(visit.query.get("format", FORMATS[0])),
        problem=problem,
        deed=deed if visit.user.may(Need.OPERATE, topic=row.topic) else "",
        command=visit.command("txn", "show", row.message_id),
    )


async def resume(visit: Visit) -> Shown:
    """Have the broker ask the producers again about a transaction that it has given up."""
    return await _decide(visit, "resume")


async def discard(visit: Visit) -> Shown:
    """Roll a prepared transaction back in place of its producer."""
    return await _decide(visit, "discard")


async def _decide(visit: Visit, verb: str) -> Shown:
    row = await _find(visit)

    async def deed(dry_run: bool) -> Deed:
        transactions = visit.admin.transactions
        return await (transactions.resume if verb == "resume" else transactions.discard)(row, dry_run=dry_run)

    return await change(
        visit,
        action=f"transaction.{verb}",
        target=row.message_id,
        words=["txn", verb, row.message_id],
        deed=deed,
        then=visit.url("transactions"),
        is_dangerous=verb == "discard",
        read=lambda result: _read_deed(result, row, verb),
    )


def _read_deed(result: Deed, row: Transaction, verb: str) -> Outcomes:
    after = {"resume": State.PREPARED, "discard": State.ROLLED_BACK}[verb]
    return Outcomes(
        rows=[
            OutcomeRow(
                where=f"{row.broker} {row.topic}",
                outcome=_OUTCOMES.get(result.outcome, result.outcome),
                reason=result.reason,
                differences=[Difference(name="state", before=row.state.value, after=after.value)],
            )
        ],
        before=msgspec.to_builtins(row),
        after={"state": after.value},
    )


async def _find(visit: Visit) -> Transaction:
    """Return the transaction of the path: an undecided one if there is one, because those are quick to find."""
    topic, name = visit.path["topic"], visit.path["message_id"]
    listed = await visit.admin.transactions.list(UNDECIDED)
    row = next((each for each in listed.items if each.message_id == name), None)
    row = row or await visit.admin.transactions.find(name)
    if row.topic != topic:
        raise HTTPException(404, visit.text("transactions.unknown", name=name))
    return row


ROUTES: tuple[Route, ...] = (
    Route(
        "/c/{cluster}/transactions",
        list_transactions,
        Need.VIEW,
        nav=Nav("data", 80, "nav.transactions", "transactions", "x"),
        summary="List transactions.",
        fields={"state": "doubt or all"},
    ),
    Route(
        "/c/{cluster}/transactions/{topic}/{message_id}",
        show_transaction,
        Need.VIEW,
        names={"topic": "topic"},
        summary="Show a transaction.",
    ),
    *(
        Route(
            f"/c/{{cluster}}/transactions/{{topic}}/{{message_id}}/{handler.__name__}",
            handler,
            Need.OPERATE,
            ("POST",),
            names={"topic": "topic"},
            summary=str(handler.__doc__),
        )
        for handler in (resume, discard)
    ),
)

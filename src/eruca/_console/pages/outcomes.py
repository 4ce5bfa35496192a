"""Results of changes as rows: where, what it was, what it becomes, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from eruca._admin.moving import Moved
from eruca._admin.plain import hide_secrets, to_plain
from eruca._admin.results import Changed


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One value that changes; None where there is nothing."""

    name: str
    before: str | None
    after: str | None


class OutcomeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a change."""

    where: str
    outcome: str
    reason: str = ""
    differences: list[Difference] = []


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """All parts of a change, and what the audit log keeps of it."""

    rows: list[OutcomeRow]
    before: Any = None
    after: Any = None

    @property
    def outcome(self) -> str:
        """The worst outcome of all parts: failed, planned, done or unchanged."""
        found = {row.outcome for row in self.rows}
        for name in ("failed", "planned"):
            if name in found:
                return name
        # A move has been told to members, or written; whatever is not known has changed something.
        return "done" if found - {"unchanged"} else "unchanged"

    @property
    def counts(self) -> dict[str, int]:
        """How many parts have which outcome."""
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row.outcome] = counts.get(row.outcome, 0) + 1
        return counts


def read_outcomes(result: Any) -> Outcomes:
    """Return the rows of a `Changed` or a `Moved`, or of a list of structs with an outcome."""
    if isinstance(result, Moved):
        rows = [
            OutcomeRow(
                where=f"{move.topic} {move.broker}:{move.queue}",
                outcome=move.outcome,
                reason=move.reason,
                differences=[Difference(name="offset", before=_write(move.before), after=_write(move.after))],
            )
            for move in result.moves
        ]
        places = [(f"{move.topic} {move.broker}:{move.queue}", move) for move in result.moves]
        return Outcomes(
            rows=rows,
            before={where: move.before for where, move in places},
            after={where: move.after for where, move in places},
        )
    if isinstance(result, Changed):
        return Outcomes(
            rows=[
                OutcomeRow(
                    where=each.where,
                    outcome=each.outcome,
                    reason=each.reason,
                    differences=list_differences(each.before, each.after),
                )
                for each in result.changes
            ],
            before={each.where: to_plain(each.before) for each in result.changes},
            after={each.where: to_plain(each.after) for each in result.changes},
        )
    plain = [result] if not isinstance(result, list) else result
    return Outcomes(
        rows=[
            OutcomeRow(
                where=str(getattr(each, "where", "") or getattr(each, "id", "")),
                outcome=str(getattr(each, "outcome", "done")),
                reason=str(getattr(each, "reason", "")),
            )
            for each in plain
        ],
        after=to_plain(plain),
    )


def list_differences(before: Any, after: Any) -> list[Difference]:
    """Return the values that differ, or all of them if there is nothing before or after."""
    old, new = hide_secrets(_name_values(before)), hide_secrets(_name_values(after))
    return [
        Difference(name=name, before=_write(old.get(name)), after=_write(new.get(name)))
        for name in old | new
        if before is None or after is None or old.get(name) != new.get(name)
    ]


def _name_values(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    plain = to_plain(value) if isinstance(value, msgspec.Struct | Mapping) else {"": value}
    return plain if isinstance(plain, dict) else {"": plain}


def _write(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

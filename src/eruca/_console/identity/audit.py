"""The audit log: every change with who, when, what, before and after. Rows are added, expire, and never change."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from eruca._admin.plain import hide_secrets, to_plain
from eruca._console.state import Row, State
from eruca._ground import limits
from eruca._ground.clock import Clock
from eruca._ground.times import from_epoch_ms, to_epoch_ms

_DAY_MS: Final = 86_400_000
# Expired rows are looked for when this many rows were added, and at the first.
_ROWS_BETWEEN: Final = 256
_NAME_CHARS_MAX: Final = 512
_COLUMNS: Final = "id, at_ms, user, address, cluster, action, target, command, before, after, outcome, reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One change."""

    id: int
    at: datetime | None
    user: str
    # Where the user came from.
    address: str
    # Empty for a change of the console itself, such as its users.
    cluster: str
    action: str
    target: str
    # The command that does the same.
    command: str
    # JSON.
    before: str
    after: str
    # `done`, `failed`, `refused` and what a change reports of itself.
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which rows: all that fit every given field. Texts are parts of the user, action or target."""

    user: str = ""
    cluster: str = ""
    text: str = ""
    after: datetime | None = None
    before: datetime | None = None


class Audit:
    """Adds and reads rows. Nothing else: no method changes or deletes a row that has not expired."""

    def __init__(self, state: State, clock: Clock, *, days: int) -> None:
        self._state = state
        self._clock = clock
        self._kept_ms = days * _DAY_MS
        self._added = 0

    async def add(
        self,
        *,
        user: str,
        action: str,
        target: str,
        outcome: str,
        cluster: str = "",
        command: str = "",
        before: Any = None,
        after: Any = None,
        reason: str = "",
        address: str = "",
    ) -> None:
        """Note a change; returns when it is in the file. Secrets are replaced, long texts are cut."""
        now = self._clock.now_ms()
        texts = [text[:_NAME_CHARS_MAX] for text in (user, address, cluster, action, target)]
        more = [
            _cut(text) for text in (command, write_facts(before), write_facts(after), outcome, hide_secrets(reason))
        ]
        is_due, self._added = self._added % _ROWS_BETWEEN == 0, self._added + 1

        def insert(db: sqlite3.Connection) -> None:
            db.execute(
                f"INSERT INTO audit ({_COLUMNS.removeprefix('id, ')}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (now, *texts, *more),
            )
            if is_due:
                db.execute("DELETE FROM audit WHERE at_ms < ?", (now - self._kept_ms,))
                db.execute(
                    "DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", (limits.CONSOLE_AUDIT_ROWS_MAX,)
                )

        await self._state.run(insert)

    async def list(self, wanted: AuditFilter, *, limit: int, offset: int = 0) -> list[AuditRow]:
        """Return rows, the latest first."""
        where, values = _write_filter(wanted)
        rows = await self._state.read(
            f"SELECT {_COLUMNS} FROM audit{where} ORDER BY id DESC LIMIT ? OFFSET ?", *values, limit, offset
        )
        return [_read_row(row) for row in rows]

    async def count(self, wanted: AuditFilter) -> int:
        """Return how many rows there are."""
        where, values = _write_filter(wanted)
        rows = await self._state.read(f"SELECT count(*) FROM audit{where}", *values)
        return int(rows[0][0])


def write_facts(facts: Any) -> str:
    """Return facts as JSON without secrets; nothing for None."""
    if facts is None:
        return ""
    return json.dumps(hide_secrets(to_plain(facts)), ensure_ascii=False, sort_keys=True)


def _cut(text: str) -> str:
    longest = limits.CONSOLE_AUDIT_TEXT_MAX
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"


def _write_filter(wanted: AuditFilter) -> tuple[str, Sequence[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    for column, text in (("user", wanted.user), ("cluster", wanted.cluster)):
        if text:
            parts.append(f"{column} = ?")
            values.append(text)
    if wanted.text:
        parts.append("(instr(lower(target), ?) OR instr(lower(action), ?) OR instr(lower(user), ?))")
        values += [wanted.text.lower()] * 3
    for sign, moment in ((">=", wanted.after), ("<", wanted.before)):
        if moment is not None:
            parts.append(f"at_ms {sign} ?")
            values.append(to_epoch_ms("time", moment))
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), values


def _read_row(row: Row) -> AuditRow:
    facts = {name: row[name] for name in _COLUMNS.split(", ") if name != "at_ms"}
    return AuditRow(at=from_epoch_ms(row["at_ms"]), **facts)

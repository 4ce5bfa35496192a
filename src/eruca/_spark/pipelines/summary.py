"""The summary of a job: rows, bytes, first and last time, what was set aside and why, and the paths of the output."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eruca._ground.times import from_epoch_ms

if TYPE_CHECKING:
    from rich.table import Table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(slots=True)
class JobSummary:
    """The outcome of one run of a job; the job fills it in as it runs."""

    job: str
    rows: int = 0
    bytes: int = 0
    # When the first and last message were stored.
    first: datetime | None = None
    last: datetime | None = None
    # Records that were set aside: the reason, and how many.
    bad: dict[str, int] = field(default_factory=dict)
    # What was written: a readable name, and the path.
    outputs: dict[str, str] = field(default_factory=dict)
    # Figures specific to this job.
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def bad_records(self) -> int:
        """The number of records that were set aside, for any reason."""
        return sum(self.bad.values())

    def add(
        self, rows: int, size: int, first: datetime | int | None = None, last: datetime | int | None = None
    ) -> None:
        """Count more rows, with their bytes and when the first and last of them was stored.

        Jobs pass times as Spark returns them: milliseconds since 1970, or local times without a zone.
        """
        self.rows += rows
        self.bytes += size
        began, ended = _to_time(first), _to_time(last)
        if began is not None:
            self.first = began if self.first is None else min(self.first, began)
        if ended is not None:
            self.last = ended if self.last is None else max(self.last, ended)

    def set_aside(self, reason: str, count: int) -> None:
        """Count records that were set aside for a reason."""
        if count:
            self.bad[reason] = self.bad.get(reason, 0) + count

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON types; times are ISO 8601 in UTC."""
        return {
            "job": self.job,
            "rows": self.rows,
            "bytes": self.bytes,
            "first": _show_time(self.first),
            "last": _show_time(self.last),
            "badRecords": self.bad_records,
            "bad": dict(sorted(self.bad.items())),
            "outputs": dict(self.outputs),
            "facts": dict(self.facts),
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 3),
        }

    def write(self, path: str | Path) -> None:
        """Write it as a JSON file, atomically."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.write_text(json.dumps(self.as_dict(), indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
        draft.replace(target)

    def draw(self) -> Table:
        """Return a table for the terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{self.job}", title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        rate = f" ({self.rows / self.seconds:,.0f} per second)" if self.seconds > 0 and self.rows else ""
        lines: list[tuple[str, str]] = [("rows", f"{self.rows:,}{rate}"), ("bytes", _show_bytes(self.bytes))]
        if self.first is not None:
            lines.append(("stored from", str(_show_time(self.first))))
            lines.append(("stored to", str(_show_time(self.last))))
        lines.append(("set aside", f"{self.bad_records:,}"))
        lines += [(f"  {reason}", f"{count:,}") for reason, count in sorted(self.bad.items())]
        lines += [(name, _show_fact(value)) for name, value in self.facts.items()]
        lines += list(self.outputs.items())
        lines += [("warning", warning) for warning in self.warnings]
        lines.append(("seconds", f"{self.seconds:.1f}"))
        for name, value in lines:
            table.add_row(name, Text(value))
        return table


def _to_time(time: datetime | int | None) -> datetime | None:
    if isinstance(time, datetime):
        return time.astimezone(UTC)
    return None if time is None else from_epoch_ms(time)


def _show_time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="milliseconds")


def _show_bytes(count: int) -> str:
    size, at = float(count), 0
    while size >= 1024 and at < len(_UNITS) - 1:
        size, at = size / 1024, at + 1
    return f"{count:,} B" if not at else f"{size:,.1f} {_UNITS[at]}"


def _show_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_show_fact(each)}" for name, each in value.items()) or "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)

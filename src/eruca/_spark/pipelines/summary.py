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


def count_rows(
    summary: JobSummary,
    rows: int,
    size: int,
    first: datetime | int | None = None,
    last: datetime | int | None = None,
) -> None:
    """Count more rows, with their bytes and when the first and last of them was stored.

    Jobs pass times as Spark returns them: milliseconds since 1970, or local times without a zone.
    """
    summary.rows += rows
    summary.bytes += size
    began, ended = _to_time(first), _to_time(last)
    if began is not None:
        summary.first = began if summary.first is None else min(summary.first, began)
    if ended is not None:
        summary.last = ended if summary.last is None else max(summary.last, ended)


def count_bad(summary: JobSummary, reason: str, count: int) -> None:
    """Count records that were set aside for a reason."""
    if count:
        summary.bad[reason] = summary.bad.get(reason, 0) + count


def draw_summary(summary: JobSummary) -> Table:
    """Return a table for the terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{summary.job}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rate = f" ({summary.rows / summary.seconds:,.0f} per second)" if summary.seconds > 0 and summary.rows else ""
    lines: list[tuple[str, str]] = [("rows", f"{summary.rows:,}{rate}"), ("bytes", _show_bytes(summary.bytes))]
    if summary.first is not None:
        lines.append(("stored from", str(_show_time(summary.first))))
        lines.append(("stored to", str(_show_time(summary.last))))
    lines.append(("set aside", f"{summary.bad_records:,}"))
    lines += [(f"  {reason}", f"{count:,}") for reason, count in sorted(summary.bad.items())]
    lines += [(name, _show_fact(value)) for name, value in summary.facts.items()]
    lines += list(summary.outputs.items())
    lines += [("warning", warning) for warning in summary.warnings]
    lines.append(("seconds", f"{summary.seconds:.1f}"))
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

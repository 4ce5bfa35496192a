"""Tables: filtered, sorted, paged and exported in one way.

    COLUMNS = [
        Column("name", "topics.name", lambda row: row.name, link=lambda visit, row: visit.url("topics", row.name)),
        Column("queues", "topics.queues", lambda row: row.queues, kind="number"),
    ]
    table = make_table(visit, "topics", COLUMNS, rows, cut=listed.cut)
    table.rows = await add_rates(table.rows)      # only the rows of this page, or all of them for an export
    return show_table(visit, "topics/list.html", table, ...)

In the template: `{{ table_view(table) }}`. The query is `q` (filter), `sort` (`-lag`: descending), `page` and `format`
(`csv`, `json`). A second table on a page has a prefix: `make_table(visit, "queues", ..., prefix="queues.")`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from starlette.responses import JSONResponse, Response

from eruca._admin.plain import to_plain
from eruca._admin.results import Problem
from eruca._console.pages.visit import Shown, Visit

Row = TypeVar("Row")

#: Rows of a page, and of an export.
PAGE_ROWS = 100
EXPORT_ROWS_MAX = 50_000
_WORD_CHARS_MAX = 200
# A spreadsheet would run these as formulas; some read the wide forms of East Asia as the same characters.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column: its key in the query and in exports, the key of its text, and its value.

    `kind` decides how a value is shown and aligned: text, place (one line), prose (wide enough to be read), code,
    number, rate, bytes, percent, duration, time, tag, flag, or html, whose value is Markup and is not exported.
    """

    key: str
    text: str
    value: Callable[[Row], Any]
    kind: str = "text"
    link: Callable[[Visit, Row], str] | None = None
    # ok, warning, error or muted.
    tone: Callable[[Row], str] | None = None
    # The values of a tag have texts: `topics.kind` for `topics.kind.retry`.
    texts: str = ""
    # Rows that are read only for one page cannot be sorted by.
    can_sort: bool = True
    # Narrow windows leave it out.
    is_minor: bool = False
    # Pages show it in another way.
    is_exported_only: bool = False

    @property
    def is_number(self) -> bool:
        """Whether its values are aligned at the right."""
        return self.kind in ("number", "rate", "bytes", "percent", "duration")


@dataclass(slots=True)
class Table(Generic[Row]):
    """The rows of one page of a list."""

    id: str
    columns: Sequence[Column[Row]]
    # Those of this page; for an export all of them.
    rows: list[Row]
    # How many rows there are after filtering, and before.
    count: int
    count_all: int
    page: int
    pages: int
    sort: str
    descending: bool
    word: str
    # Whether the cluster has more rows than were asked for.
    cut: bool
    prefix: str
    path: str
    # The other parameters of the query, which links keep.
    kept: dict[str, str] = field(default_factory=dict)
    # csv or json if the rows are exported.
    format: str = ""
    # A checkbox before each row: its value, for forms that act on the selected rows.
    select: Callable[[Row], str] | None = None

    def link(self, **changes: object) -> str:
        """Return the address of this list with another page, order or format."""
        query = dict(self.kept)
        own: dict[str, object] = {
            "q": self.word,
            "sort": ("-" if self.descending else "") + self.sort if self.sort else "",
            "page": self.page if self.page > 1 else "",
            **changes,
        }
        query |= {
            # `table` says which list is exported, so these need no prefix.
            name if name in ("format", "table") else f"{self.prefix}{name}": str(value)
            for name, value in own.items()
            if value not in ("", None)
        }
        return f"{self.path}?{urlencode(query)}" if query else self.path

    def link_sort(self, column: Column[Row]) -> str:
        """Return the address of the list sorted by a column, or in the other direction if it already is."""
        is_same = self.sort == column.key
        descending = not self.descending if is_same else column.is_number or column.kind == "time"
        return self.link(sort=("-" if descending else "") + column.key, page="")

    @property
    def shown(self) -> list[Column[Row]]:
        """The columns of the page."""
        return [column for column in self.columns if not column.is_exported_only]

    @property
    def first(self) -> int:
        """The number of the first row of this page, from 1."""
        return (self.page - 1) * PAGE_ROWS + 1 if self.rows else 0


def make_table(
    visit: Visit,
    name: str,
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    *,
    cut: bool = False,
    sort: str = "",
    prefix: str = "",
    select: Callable[[Row], str] | None = None,
    search: Callable[[Row], str] | None = None,
) -> Table[Row]:
    """Filter, sort and page rows as the query of a visit asks; `sort` is the order without one (`-lag`).

    The filter looks at `search`, or at the first column.
    """
    query = visit.query
    word = query.get(f"{prefix}q", "")[:_WORD_CHARS_MAX].strip()
    look = search or (lambda row: str(columns[0].value(row)))
    found = [row for row in rows if word.lower() in look(row).lower()] if word else list(rows)
    wanted = query.get(f"{prefix}sort", sort)
    descending, key = wanted.startswith("-"), wanted.removeprefix("-")
    column = next((each for each in columns if each.key == key and each.can_sort), None)
    if column is not None:
        found = _sort(found, column.value, descending=descending)
    exported = query.get("format", "")
    exported = exported if exported in ("csv", "json") and query.get("table", name) == name else ""
    pages = max(1, -(-len(found) // PAGE_ROWS))
    page = min(_read_page(query.get(f"{prefix}page", "")), pages)
    is_whole = exported or (visit.is_api and query.get("page") is None)
    shown = found[:EXPORT_ROWS_MAX] if is_whole else found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    own = {f"{prefix}{each}" for each in ("q", "sort", "page")} | {"format", "table"}
    return Table(
        id=name,
        columns=columns,
        rows=shown,
        count=len(found),
        count_all=len(rows),
        page=page,
        pages=pages,
        sort=column.key if column is not None else "",
        descending=descending,
        word=word,
        cut=cut or (bool(is_whole) and len(found) > EXPORT_ROWS_MAX),
        prefix=prefix,
        path=visit.request.scope["path_quoted"],
        kept={name: value for name, value in query.items() if name not in own},
        format=exported,
        select=select,
    )


def show_table(
    visit: Visit, template: str, table: Table[Any], *, problems: Sequence[Problem] = (), **context: Any
) -> Shown | Response:
    """Return the page of a list, or the export that the query asks for."""
    if table.format:
        return export_table(visit, table)
    value = {"items": table.rows, "count": table.count, "cut": table.cut, "problems": list(problems)}
    return Shown(template, value, {"table": table, **context}, problems=problems)


def export_table(visit: Visit, table: Table[Any]) -> Response:
    """Return the rows as a file."""
    columns = [column for column in table.columns if column.kind != "html"]
    head = {"Content-Disposition": f'attachment; filename="{table.id}.{table.format}"'}
    if table.format == "json":
        rows = [{column.key: to_plain(column.value(row)) for column in columns} for row in table.rows]
        return JSONResponse({"items": rows, "count": table.count, "cut": table.cut}, headers=head)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column.key for column in columns])
    for row in table.rows:
        writer.writerow([write_cell(column.value(row)) for column in columns])
    if table.cut:
        writer.writerow([visit.text("tables.cut.export", count=len(table.rows))])
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=head)


def write_cell(value: Any) -> str:
    """Return a value as a cell of a CSV file; a text that a spreadsheet would run as a formula is quoted."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    if isinstance(value, list | tuple | set):
        value = " ".join(map(str, value))
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def _sort(rows: Iterable[Row], value: Callable[[Row], Any], *, descending: bool) -> list[Row]:
    """Sort by a value; rows without one are last, whatever the direction."""
    keyed = [(value(row), row) for row in rows]
    known = [(key, row) for key, row in keyed if key is not None]
    known.sort(key=lambda each: _make_key(each[0]), reverse=descending)
    return [row for _, row in known] + [row for key, row in keyed if key is None]


def _make_key(value: Any) -> Any:
    if isinstance(value, str):
        return value.lower()
    return len(value) if isinstance(value, list | tuple | set | dict) else value


def _read_page(text: str) -> int:
    return max(1, int(text)) if text.isdecimal() and len(text) <= 9 else 1

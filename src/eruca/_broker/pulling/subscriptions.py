"""From a subscription to the filter a pull uses: parsed once, kept, evaluated often."""

from __future__ import annotations

from collections.abc import Callable

from eruca._filter.sql import compile_sql
from eruca._filter.tags import ExpressionError, parse_tags
from eruca._ground.limits import FILTERS_BYTES_MAX, TAGS_CHARS_MAX
from eruca._net.apart import run_apart
from eruca._net.budget import show
from eruca._store.reading.slices import Filter
from eruca._wire.properties import parse_properties
from eruca._wire.record import RecordView, inspect_record

TAG = "TAG"
# What a compiled expression takes besides its text, for each tag code, and for each character of SQL; measured.
_FILTER_BYTES = 1024
_CODE_BYTES = 100
_SQL_CHAR_BYTES = 64


class PullFilter:
    """What a pull wants: of entries by their tags code, and of records by their properties."""

    __slots__ = ("accept", "wants", "weight")

    def __init__(self, accept: Filter | None, wants: Callable[[int], bool] | None, weight: int = 0) -> None:
        # For a read; None takes every message.
        self.accept = accept
        # For a held pull that is told of a new message; None is woken by every one.
        self.wants = wants
        # Bytes of memory it takes, as it is estimated.
        self.weight = weight


EVERYTHING = PullFilter(None, None)


class PullFilters:
    """Compiled filters by expression: kept, because clients use them again and again, and weighed, because peers choose
    them. The oldest make room."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], PullFilter] = {}
        self.weight = 0
        show("filters_bytes", "Memory taken by compiled filters, as it is estimated.", self, lambda it: it.weight)

    def get(self, expression_type: str | None, expression: str | None) -> PullFilter:
        """The filter of an expression. Raises ExpressionError."""
        kind = expression_type or TAG
        text = expression or "*"
        if kind == TAG and text == "*":
            return EVERYTHING
        found = self._kept.get((kind, text))
        if found is None:
            found = _compile_tags(text) if kind == TAG else _compile_sql(text)
            self._keep(kind, text, found)
        return found

    def takes_long(self, expression_type: str | None, expression: str | None) -> bool:
        """Would it take long to compile an expression? `prepare` does that beside the loop."""
        kind = expression_type or TAG
        return kind != TAG and expression is not None and (kind, expression) not in self._kept

    async def prepare(self, expression_type: str, expression: str) -> None:
        """Compile an SQL92 expression. Raises ExpressionError."""
        self._keep(expression_type, expression, await run_apart(_compile_sql, expression))

    def _keep(self, kind: str, text: str, compiled: PullFilter) -> None:
        before = self._kept.pop((kind, text), None)
        self._kept[kind, text] = compiled
        self.weight += compiled.weight - (0 if before is None else before.weight)
        while self.weight > FILTERS_BYTES_MAX:
            oldest = next(iter(self._kept))
            self.weight -= self._kept.pop(oldest).weight


def _compile_tags(text: str) -> PullFilter:
    if len(text) > TAGS_CHARS_MAX:
        raise ExpressionError(f"the expression has {len(text)} characters, the most is {TAGS_CHARS_MAX}")
    codes = parse_tags(text).codes
    if not codes:
        return EVERYTHING
    weight = _FILTER_BYTES + len(text) + _CODE_BYTES * len(codes)
    return PullFilter(lambda code, _: code in codes, codes.__contains__, weight)


def _compile_sql(text: str) -> PullFilter:
    matches = compile_sql(text).matches

    def accept(_: int, record: memoryview) -> bool:
        view = inspect_record(record, 0, len(record), False)
        if type(view) is not RecordView:
            return True  # it cannot be judged, and the store sees that it is not a record
        return matches(parse_properties(bytes(record[view.properties_at : view.properties_end])))

    return PullFilter(accept, None, _FILTER_BYTES + _SQL_CHAR_BYTES * len(text))

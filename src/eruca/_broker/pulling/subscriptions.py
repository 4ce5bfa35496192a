"""Compiles a subscription to the filter of a pull: parsed once, cached, evaluated often."""

from __future__ import annotations

from collections.abc import Callable

from eruca._filter.sql import compile_sql
from eruca._filter.tags import ExpressionError, parse_tags
from eruca._ground.limits import FILTERS_BYTES_MAX, TAGS_CHARS_MAX
from eruca._net.apart import run_apart
from eruca._net.meters import show
from eruca._store.reading.slices import Filter
from eruca._wire.properties import parse_properties
from eruca._wire.record import RecordView, inspect_record

TAG = "TAG"
# Measured memory of a compiled expression besides its text, per tag code, and per character of SQL.
_FILTER_BYTES = 1024
_CODE_BYTES = 100
_SQL_CHAR_BYTES = 64


class PullFilter:
    """A pull's filter: of entries by their tags code, and of records by their properties."""

    __slots__ = ("accept", "wants", "weight")

    def __init__(self, accept: Filter | None, wants: Callable[[int], bool] | None, weight: int = 0) -> None:
        # For reading; None accepts every message.
        self.accept = accept
        # For waking a held pull; None wakes it for every message.
        self.wants = wants
        # Estimated memory in bytes.
        self.weight = weight


EVERYTHING = PullFilter(None, None)


class PullFilters:
    """Compiled filters by expression: cached, because clients reuse them, and limited in total size, because peers
    choose them. The oldest are evicted first."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], PullFilter] = {}
        self.weight = 0
        show("filters_bytes", "Estimated memory of compiled filters.", self, lambda it: it.weight)

    def get(self, expression_type: str | None, expression: str | None) -> PullFilter:
        """Return the filter of an expression. Raises ExpressionError."""
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
        """Whether compiling an expression would take long; if so, `prepare` does it outside the loop."""
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
        raise ExpressionError(f"the expression has {len(text)} characters, the maximum is {TAGS_CHARS_MAX}")
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
            return True  # cannot be evaluated; the store detects that it is not a record
        return matches(parse_properties(bytes(record[view.properties_at : view.properties_end])))

    return PullFilter(accept, None, _FILTER_BYTES + _SQL_CHAR_BYTES * len(text))

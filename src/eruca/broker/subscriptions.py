"""From a subscription to the filter a pull uses: parsed once, kept, evaluated often."""

from __future__ import annotations

from collections.abc import Callable

from eruca.filter.sql import compile_sql
from eruca.filter.tags import parse_tags
from eruca.store.read import Filter
from eruca.wire.properties import parse_properties
from eruca.wire.record import RecordView, inspect_record

TAG = "TAG"
# Compiled expressions that are kept; a bound, because peers choose them.
_KEPT_MAX = 10_000


class PullFilter:
    """What a pull wants: of entries by their tags code, and of records by their properties."""

    __slots__ = ("accept", "wants")

    def __init__(self, accept: Filter | None, wants: Callable[[int], bool] | None) -> None:
        # For a read; None takes every message.
        self.accept = accept
        # For a held pull that is told of a new message; None is woken by every one.
        self.wants = wants


EVERYTHING = PullFilter(None, None)


class PullFilters:
    """Compiled filters by expression."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], PullFilter] = {}

    def get(self, expression_type: str | None, expression: str | None) -> PullFilter:
        """The filter of an expression. Raises ExpressionError."""
        kind = expression_type or TAG
        text = expression or "*"
        if kind == TAG and text == "*":
            return EVERYTHING
        found = self._kept.get((kind, text))
        if found is None:
            found = _compile_tags(text) if kind == TAG else _compile_sql(text)
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[kind, text] = found
        return found


def _compile_tags(text: str) -> PullFilter:
    codes = parse_tags(text).codes
    if not codes:
        return EVERYTHING
    return PullFilter(lambda code, _: code in codes, codes.__contains__)


def _compile_sql(text: str) -> PullFilter:
    matches = compile_sql(text).matches

    def accept(_: int, record: memoryview) -> bool:
        view = inspect_record(record, 0, len(record), False)
        if type(view) is not RecordView:
            return False
        return matches(parse_properties(bytes(record[view.properties_at : view.properties_end])))

    return PullFilter(accept, None)

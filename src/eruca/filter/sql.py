"""SQL92 expressions over message properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eruca.filter.tags import ExpressionError


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """A compiled expression."""

    text: str

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Is a message with these properties wanted?"""
        raise NotImplementedError


def compile_sql(text: str) -> SqlExpression:
    """Read an expression. Raises ExpressionError."""
    raise ExpressionError(f"cannot read {text!r}")

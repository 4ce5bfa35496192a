"""Values of an SQL92 expression, compared as Java's broker compares them.

Every message must be accepted or rejected exactly as by a 4.9 broker: `a > 1` with a property of "1.5" is an
error there and not true, because 1 is an Integer and "1.5" does not parse as one.
"""

from __future__ import annotations

import enum
import math
import re
from typing import Final, NamedTuple, TypeAlias

from eruca._filter.tags import ExpressionError


class EvaluationError(ExpressionError):
    """The properties of a message do not fit an expression; the message does not match."""


class NumberKind(enum.Enum):
    """Java's class of a number."""

    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"


class Number(NamedTuple):
    """A number and its class."""

    kind: NumberKind
    value: int | float


Value: TypeAlias = str | bool | Number

INTEGER_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

# What Integer.valueOf and Long.valueOf accept: any decimal digits, no spaces, no underscores.
_WHOLE: Final = re.compile(r"[+-]?\d+")
# What Double.valueOf accepts, after characters up to U+0020 are stripped from both ends.
_DECIMAL: Final = re.compile(r"([+-]?(?:NaN|Infinity))|([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_CONTROL_OR_BLANK: Final = "".join(map(chr, range(0x21)))
# Longer texts are never a number worth comparing, and Python parses long integers in quadratic time.
_DIGITS_MAX: Final = 1000


def read_number(text: str, kind: NumberKind) -> int | float:
    """Parse a property as a number of this class; raise EvaluationError where Java's valueOf throws."""
    if kind is NumberKind.DOUBLE:
        return read_double(text)
    if len(text) <= _DIGITS_MAX and _WHOLE.fullmatch(text):
        value = int(text)
        most = INTEGER_MAX if kind is NumberKind.INTEGER else LONG_MAX
        if -most - 1 <= value <= most:
            return value
    raise EvaluationError(f"{text[:64]!r} is not a valid {kind.value}")


def read_double(text: str) -> float:
    """Parse a text as Double.valueOf does."""
    trimmed = text.strip(_CONTROL_OR_BLANK)
    if match := _DECIMAL.fullmatch(trimmed):
        return float(match[1] or match[2])
    if match := _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    raise EvaluationError(f"{text[:64]!r} is not a valid number")


def compare_numbers(left: int | float, right: int | float) -> int:
    """Compare two numbers of one class; for doubles, NaN is the largest and -0.0 comes before 0.0, as in Java."""
    if left < right:
        return -1
    if left > right:
        return 1
    if isinstance(left, int) or isinstance(right, int):
        return 0
    left_rank, right_rank = _rank_double(left), _rank_double(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _rank_double(value: float) -> int:
    """Order of doubles that are neither `<` nor `>`."""
    if math.isnan(value):
        return 2
    return 0 if value == 0 and math.copysign(1, value) < 0 else 1


def compare_values(left: Value, right: Value) -> int:
    """Below 0, 0 or above 0; a text is parsed as the type of the other side."""
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        if isinstance(right, bool):
            return (left.lower() == "true") - right
        return compare_numbers(read_number(left, right.kind), right.value)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise EvaluationError("a boolean on the left cannot be compared with a string: swap the sides")
        return left - right if isinstance(right, bool) else -1
    if isinstance(right, str):
        return compare_numbers(left.value, read_number(right, left.kind))
    if isinstance(right, bool):
        return -1
    if NumberKind.DOUBLE in (left.kind, right.kind):
        return compare_numbers(float(left.value), float(right.value))
    return compare_numbers(left.value, right.value)


def compare_order(left: Value, right: Value) -> int:
    """As `compare_values`, for `<`, `>`, `<=` and `>=`: two texts are compared as numbers, never as texts."""
    if isinstance(left, str) and isinstance(right, str):
        return compare_numbers(read_double(left), read_double(right))
    return compare_values(left, right)

"""Tag expressions: `*` or `TagA || TagB`.

The broker compares hashes, because a consume queue has nothing else; the client compares the tags themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from eruca._wire.javahash import tags_code
from eruca.errors import ErucaError

ALL = "*"
_OR = "||"


class ExpressionError(ErucaError):
    """A subscription expression cannot be parsed."""


@dataclass(frozen=True, slots=True)
class TagExpression:
    """The tags of a subscription; empty means all."""

    text: str
    tags: frozenset[str]
    codes: frozenset[int]


def parse_tags(text: str | None) -> TagExpression:
    """Parse a tag expression."""
    if text is None or text in ("", ALL):
        return TagExpression(ALL, frozenset(), frozenset())
    parts = text.split(_OR)
    tags = [tag.strip() for tag in parts if tag.strip()]
    if not tags:
        raise ExpressionError(f"the expression {text!r} contains no tag")
    return TagExpression(text, frozenset(tags), frozenset(map(tags_code, tags)))

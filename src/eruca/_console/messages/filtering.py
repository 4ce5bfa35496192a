"""Filter expressions over messages: `body.amount > 100 and tags in ('paid', 'sent')`.

The language is small and has no functions, loops or slow patterns. Names are those of a message as JSON (`eruca message
find -o json`); `body.amount` looks into the decoded body, `properties.region` at a property. A missing field makes any
comparison false, so `tags <> 'paid'` takes messages without tags too. Numbers are compared as numbers, also if a
property has one as text. A list matches if one of its members does. How much is compared in one message is bounded: a
message with more does not match, and is counted.

The SQL92 of subscriptions (`eruca._filter.sql`) is another language: it has the oddities of Java's broker, knows only
properties, and orders only numbers.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final, Protocol, TypeAlias, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from eruca._ground.limits import (
    CONSOLE_FILTER_CHARS_MAX,
    CONSOLE_FILTER_DEPTH_MAX,
    CONSOLE_FILTER_VALUES_MAX,
    CONSOLE_PATTERN_CHARS_MAX,
)
from eruca._ground.suggestions import suggest_name
from eruca.errors import ConfigError

#: The first part of a name. Only the body and the properties have parts below it.
FIELDS: Final = (
    "topic",
    "stored_in",
    "broker",
    "queue",
    "offset",
    "message_id",
    "offset_id",
    "origin_id",
    "tags",
    "keys",
    "properties",
    "body",
    "born_at",
    "stored_at",
    "born_host",
    "store_host",
    "tries",
    "size",
)
_DEEP: Final = ("body", "properties")

_GRAMMAR: Final = r"""
start: either
?either: both (_OR both)*
?both: single (_AND single)*
?single: _NOT single -> negation
    | "(" either ")"
    | operand ORDER operand -> order
    | operand _BETWEEN operand _AND operand -> between
    | operand _NOT _BETWEEN operand _AND operand -> not_between
    | operand _IN "(" literal ("," literal)* ")" -> is_in
    | operand _NOT _IN "(" literal ("," literal)* ")" -> is_not_in
    | operand _LIKE TEXT -> like
    | operand _NOT _LIKE TEXT -> not_like
    | operand _CONTAINS TEXT -> contains
    | operand _NOT _CONTAINS TEXT -> contains_not
    | operand _IS _NULL -> is_null
    | operand _IS _NOT _NULL -> is_not_null
?operand: name | literal
name: _first ("." _part | "[" WHOLE "]")*
_first: NAME | QUOTED
_part: NAME | QUOTED | WHOLE
literal: TEXT -> text
    | "-" number -> minus
    | number
    | TRUE -> true
    | FALSE -> false
?number: WHOLE -> whole
    | FRACTION -> fraction

ORDER: "<=" | ">=" | "<>" | "!=" | "==" | "<" | ">" | "="
FRACTION.2: /[0-9]+\.[0-9]+([eE][+-]?[0-9]{1,3})?|[0-9]+[eE][+-]?[0-9]{1,3}/
WHOLE: /[0-9]{1,30}/
TEXT: /'(''|[^'])*'/
QUOTED: /"[^"]+"/
NAME: /[^\W\d][\w$-]*/
BLANK: /[ \t\n\r\f]+/
%ignore BLANK
%declare _AND _OR _NOT _BETWEEN _IN _IS _NULL _LIKE _CONTAINS TRUE FALSE
"""
_KEYWORDS: Final = {
    **{word: f"_{word}" for word in ("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "LIKE", "CONTAINS")},
    "TRUE": "TRUE",
    "FALSE": "FALSE",
}
# How each token is called in an error.
_SPOKEN: Final = {"TEXT": "a text in 'quotes'", "WHOLE": "a number", "NAME": "a name", "ORDER": "a comparison"}


class Fields(Protocol):
    """What a filter looks at: the fields of a message, and its decoded body as `decoded`."""

    def __getitem__(self, name: str, /) -> Any: ...


class _TooLarge(Exception):
    """A message has more to compare than a filter may look at."""


@dataclass(slots=True)
class _Look:
    """The fields of one message, and how many values may still be compared."""

    fields: Fields
    left: int = CONSOLE_FILTER_VALUES_MAX

    def spend(self, values: int) -> None:
        self.left -= values
        if self.left < 0:
            raise _TooLarge


_Decide: TypeAlias = Callable[[_Look], bool]


class FilterError(ConfigError):
    """A filter expression cannot be parsed; `position` is the first wrong character (from 0)."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(
            f"the filter is wrong at character {position + 1}: {problem}",
            hint="for example: body.amount > 100 and tags = 'paid' and not properties.region = 'eu'",
        )
        self.position = position


_NOTHING: Final = _Look(dict[str, Any]())


@dataclass(slots=True)
class Filter:
    """A parsed expression."""

    text: str
    #: The fields it looks at: `tags`, `body.amount`.
    names: frozenset[str]
    _decide: _Decide
    #: Messages that were not matched because they are too large or too deep for it.
    too_large: int = 0

    def matches(self, fields: Fields) -> bool:
        """Return whether a message with these fields matches."""
        try:
            return self._decide(_Look(fields))
        except (_TooLarge, RecursionError):
            self.too_large += 1
            return False


@dataclass(slots=True)
class _Node:
    run: Callable[[_Look], Any]
    depth: int = 1
    decides: bool = False


def parse_filter(text: str) -> Filter:
    """Parse an expression. Raises FilterError."""
    if len(text) > CONSOLE_FILTER_CHARS_MAX:
        raise FilterError(CONSOLE_FILTER_CHARS_MAX, f"it has more than {CONSOLE_FILTER_CHARS_MAX} characters")
    compiler = _Compiler()
    try:
        node = compiler.transform(_make_parser().parse(text))
    except VisitError as error:
        if isinstance(error.orig_exc, FilterError):
            raise error.orig_exc from None
        raise
    except UnexpectedInput as error:
        raise _explain(text, error) from None
    return Filter(text, frozenset(compiler.names), node.run)


def _explain(text: str, error: UnexpectedInput) -> FilterError:
    at = cast(int, error.pos_in_stream)  # unless the text ends
    if isinstance(error, UnexpectedCharacters):
        if text[at] == "'":
            return FilterError(at, "the text has no closing quote")
        return FilterError(at, f"{text[at]!r} is not part of the language")
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        return FilterError(at, f"{str(error.token)[:40]!r} is not expected here; {_name_expected(error)}")
    return FilterError(len(text), "it ends too early")


def _name_expected(error: UnexpectedToken) -> str:
    names = sorted(_SPOKEN.get(name, name.strip("_").lower()) for name in error.accepts or error.expected)
    return f"expected {', '.join(name for name in names if name != '$end')}"


@cache
def _make_parser() -> Lark:
    # The other lexer would read keywords as names where a name may be.
    return Lark(
        _GRAMMAR, parser="lalr", lexer="basic", lexer_callbacks={"NAME": _find_keyword}, propagate_positions=True
    )


def _find_keyword(token: Token) -> Token:
    kind = _KEYWORDS.get(token.upper())
    return token if kind is None else Token.new_borrow_pos(kind, token, token)


@v_args(inline=True)
class _Compiler(Transformer[Token, _Node]):
    """Turns parse results into closures."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def start(self, node: _Node) -> _Node:
        return _require_decision(node)

    # -- conditions --------------------------------------------------------------------------------------------------

    def either(self, *parts: _Node) -> _Node:
        runs = [_require_decision(part).run for part in parts]
        return _decide(lambda look: any(run(look) for run in runs), *parts)

    def both(self, *parts: _Node) -> _Node:
        runs = [_require_decision(part).run for part in parts]
        return _decide(lambda look: all(run(look) for run in runs), *parts)

    def negation(self, part: _Node) -> _Node:
        return _negate(_require_decision(part))

    def order(self, left: _Node, sign: Token, right: _Node) -> _Node:
        if sign in ("<>", "!="):
            return _negate(_compare(left, "=", right))
        return _compare(left, "=" if sign == "==" else str(sign), right)

    def between(self, value: _Node, low: _Node, high: _Node) -> _Node:
        return self.both(_compare(value, ">=", low), _compare(value, "<=", high))

    def not_between(self, value: _Node, low: _Node, high: _Node) -> _Node:
        return _negate(self.between(value, low, high))

    def is_in(self, value: _Node, *members: _Node) -> _Node:
        return self.either(*[_compare(value, "=", member) for member in members])

    def is_not_in(self, value: _Node, *members: _Node) -> _Node:
        return _negate(self.is_in(value, *members))

    def like(self, value: _Node, pattern: Token) -> _Node:
        wanted = _unquote(pattern)
        if len(wanted) > CONSOLE_PATTERN_CHARS_MAX:
            raise FilterError(
                pattern.start_pos or 0, f"the pattern has more than {CONSOLE_PATTERN_CHARS_MAX} characters"
            )
        # Each `_` is one more step at every place where the pattern may begin.
        return _test_text(value, lambda text: match_like(text, wanted), 1 + wanted.count("_"))

    def not_like(self, value: _Node, pattern: Token) -> _Node:
        return _negate(self.like(value, pattern))

    def contains(self, value: _Node, part: Token) -> _Node:
        wanted = _unquote(part).casefold()
        return _test_text(value, lambda text: wanted in text.casefold())

    def contains_not(self, value: _Node, part: Token) -> _Node:
        return _negate(self.contains(value, part))

    def is_null(self, value: _Node) -> _Node:
        run = value.run

        def decide(look: _Look) -> bool:
            members = list(_each(run(look)))
            look.spend(len(members))
            return all(each is None for each in members)

        return _decide(decide, value)

    def is_not_null(self, value: _Node) -> _Node:
        return _negate(self.is_null(value))

    # -- values ------------------------------------------------------------------------------------------------------

    def name(self, first: Token, *rest: Token) -> _Node:
        at = first.start_pos or 0
        path = tuple(str(part).strip('"') for part in (first, *rest))
        if path[0] not in FIELDS:
            guess = suggest_name(path[0], FIELDS, f"there are {', '.join(FIELDS)}")
            raise FilterError(at, f"a message has no field {path[0][:40]!r}; {guess}")
        if len(path) > 1 and path[0] not in _DEEP:
            raise FilterError(at, f"{path[0]} has no parts; only body and properties have")
        if path[0] == "properties" and len(path) != 2:
            raise FilterError(at, "name one property: properties.region")
        self.names.add(".".join(path))
        return _Node(lambda look: _look_up(look, path))

    def text(self, token: Token) -> _Node:
        value = _unquote(token)
        return _Node(lambda _: value)

    def whole(self, token: Token) -> _Node:
        value = int(token)
        return _Node(lambda _: value)

    def fraction(self, token: Token) -> _Node:
        value = float(token)
        return _Node(lambda _: value)

    def minus(self, number: _Node) -> _Node:
        value = -number.run(_NOTHING)
        return _Node(lambda _: value)

    def literal(self, number: _Node) -> _Node:
        return number

    def true(self, _: Token) -> _Node:
        return _Node(lambda _: True)

    def false(self, _: Token) -> _Node:
        return _Node(lambda _: False)


def _decide(run: _Decide, *parts: _Node) -> _Node:
    depth = 1 + max(part.depth for part in parts)
    if depth > CONSOLE_FILTER_DEPTH_MAX:
        raise FilterError(0, f"more than {CONSOLE_FILTER_DEPTH_MAX} conditions are nested")
    return _Node(run, depth, decides=True)


def _negate(node: _Node) -> _Node:
    run = node.run
    return _decide(lambda look: not run(look), node)


def _require_decision(node: _Node) -> _Node:
    if not node.decides:
        raise FilterError(0, "a value alone is not a condition; compare it with something")
    return node


def _unquote(token: Token) -> str:
    return token[1:-1].replace("''", "'")


# -- looking up --------------------------------------------------------------------------------------------------------


def _look_up(look: _Look, path: tuple[str, ...]) -> Any:
    """Return the value of a field; None if it is missing. `body` alone is its text."""
    fields = look.fields
    if path[0] == "body" and len(path) > 1:
        return _find_parts(look, fields["decoded"], path[1:])
    if path[0] == "properties":
        return fields["properties"].get(path[1])
    return fields[path[0]]


def _find_parts(look: _Look, value: Any, path: tuple[str, ...]) -> Any:
    """Return what is at a path of a decoded body. A name is looked for in every member of a list."""
    for number, part in enumerate(path):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else None
        elif isinstance(value, list):
            look.spend(len(value))
            found = [_find_parts(look, each, path[number:]) for each in value]
            return [each for each in found if each is not None] or None
        else:
            return None
    return value


# -- comparing ---------------------------------------------------------------------------------------------------------

_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_NUMBER_CHARS_MAX: Final = 40
# Looking through this number of characters takes as long as comparing two values.
_CHARS_OF_A_VALUE: Final = 256


def _each(value: Any) -> Iterator[Any]:
    """Yield a value, or the members of a list."""
    if isinstance(value, list) and value:
        for each in value:
            yield from _each(each)
    else:
        yield value


def _compare(left: _Node, sign: str, right: _Node) -> _Node:
    run_left, run_right, test = left.run, right.run, _TESTS[sign]

    def run(look: _Look) -> bool:
        members = list(_each(run_right(look)))
        for one in _each(run_left(look)):
            look.spend(len(members))
            if any(_compare_values(one, two, test) for two in members):
                return True
        return False

    return _decide(run, left, right)


def _compare_values(left: Any, right: Any, test: Callable[[Any, Any], bool]) -> bool:
    if left is None or right is None:
        return False
    if isinstance(left, bool) or isinstance(right, bool):
        one, two = _read_bool(left), _read_bool(right)
        return one is not None and two is not None and test(one, two)
    if isinstance(left, str) and isinstance(right, str):
        return test(left, right)
    first, second = _read_number(left), _read_number(right)
    return first is not None and second is not None and test(first, second)


def _read_bool(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def _read_number(value: Any) -> int | float | None:
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str) or len(value) > _NUMBER_CHARS_MAX or "_" in value:
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return None


def _test_text(value: _Node, test: Callable[[str], bool], steps: int = 1) -> _Node:
    """Return a test of a text; `steps` is how much it does at each of its characters."""
    run = value.run

    def decide(look: _Look) -> bool:
        for each in _each(run(look)):
            text = str(each) if isinstance(each, str | int | float) else None
            look.spend(1 + len(text or "") * steps // _CHARS_OF_A_VALUE)
            if text is not None and test(text):
                return True
        return False

    return _decide(decide, value)


@lru_cache(maxsize=64)
def _split_pattern(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Return the parts between the % of a pattern, each of a fixed length, so that searching one cannot backtrack."""
    return tuple(
        re.compile("".join("." if each == "_" else re.escape(each) for each in part), re.DOTALL)
        for part in pattern.split("%")
    )


def match_like(text: str, pattern: str) -> bool:
    """Return whether a text is like a pattern with % (any characters) and _ (one character)."""
    first, *others = _split_pattern(pattern)
    if not others:
        return first.fullmatch(text) is not None
    found = first.match(text)
    for part in others[:-1]:
        found = found and part.search(text, found.end())
    if found is None:
        return False
    start = len(text) - len(pattern.rpartition("%")[2])
    return start >= found.end() and others[-1].fullmatch(text, start) is not None

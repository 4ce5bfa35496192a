"""SQL92 expressions over message properties: read once by lark, evaluated as closures.

The language and its oddities are those of a 4.9 broker, so that a subscription means the same on either. The ones a
user meets first:

- the expression ends where it cannot go on: `a > 1 garbage` is read as `a > 1`, and `a like 'x%'` as a bare `a`;
- a missing property makes a comparison null, and null is not true; but `1 <> a` and `a = b` are true without them;
- `<`, `>` and BETWEEN are for numbers, IN is for texts, `= NULL` and the literal `0.0` are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeAlias, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

from eruca.filter.javanumbers import (
    INTEGER_MAX,
    LONG_MAX,
    EvaluationError,
    Number,
    NumberKind,
    Value,
    compare_numbers,
    compare_order,
    compare_values,
    read_number,
)
from eruca.filter.tags import ExpressionError
from eruca.limits import SQL_CHARS_MAX, SQL_DEPTH_MAX

Properties: TypeAlias = Mapping[str, str]
Evaluate: TypeAlias = Callable[[Properties], "Value | None"]
# The same for an expression that is true, false or null.
Decide: TypeAlias = Callable[[Properties], "bool | None"]
# From the outcome of a comparison (below 0, 0, above 0) to its truth.
_Test: TypeAlias = Callable[[int], bool]

_GRAMMAR: Final = r"""
start: or_expression
or_expression: and_expression (OR and_expression)*
and_expression: equality (AND equality)*
equality: comparison equality_tail*
equality_tail: EQUAL comparison -> equal
    | DIFFERENT comparison -> different
    | IS NULL -> is_null
    | IS NOT NULL -> is_not_null
comparison: unary comparison_tail*
comparison_tail: ORDER unary -> order
    | BETWEEN unary AND unary -> between
    | NOT BETWEEN unary AND unary -> not_between
    | IN "(" TEXT ("," TEXT)* ")" -> is_in
    | NOT IN "(" TEXT ("," TEXT)* ")" -> is_not_in
unary: "+" unary -> plus
    | MINUS unary -> minus
    | NOT unary -> negation
    | primary -> plus
primary: TEXT -> text
    | WHOLE -> whole
    | FRACTION -> fraction
    | (TRUE | FALSE | NULL) -> constant
    | NAME -> property
    | "(" or_expression ")" -> plus

ORDER: ">=" | "<=" | ">" | "<"
DIFFERENT.2: "<>"
EQUAL: "="
MINUS: "-"
FRACTION.2: /[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
WHOLE: /0|[1-9][0-9]*[lL]?/
TEXT: /'(''|[^'])*'/
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
LINE_COMMENT.3: /--[^\n\r]*[\n\r]/
BLOCK_COMMENT.3: /\/\*[^*]*\*+([^*\/][^*]*\*+)*\//
BLANK: /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
%ignore BLANK
%declare AND OR NOT BETWEEN IN IS NULL TRUE FALSE
"""
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"})

_TESTS: Final[dict[str, _Test]] = {
    ">": lambda outcome: outcome > 0,
    ">=": lambda outcome: outcome >= 0,
    "<": lambda outcome: outcome < 0,
    "<=": lambda outcome: outcome <= 0,
}


class SqlError(ExpressionError):
    """An SQL92 expression cannot be read; `position` is the first character (from 0) that is wrong."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        super().__init__(f"at character {position + 1} of {_shorten(text, position)}: {problem}")
        self.position = position


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """A compiled expression."""

    text: str
    _decide: Decide

    def evaluate(self, properties: Properties) -> bool | None:
        """True, false or null (None). Raises EvaluationError when the properties do not fit the expression."""
        return self._decide(properties)

    def matches(self, properties: Properties) -> bool:
        """Is a message with these properties wanted? Null and errors say no."""
        try:
            return self._decide(properties) is True
        except EvaluationError:
            return False


def compile_sql(text: str) -> SqlExpression:
    """Read an expression. Raises SqlError."""
    if len(text) > SQL_CHARS_MAX:
        raise SqlError(text, SQL_CHARS_MAX, f"the expression has {len(text)} characters, the most is {SQL_CHARS_MAX}")
    parser: Any = _make_parser().parse_interactive(text)
    last: Token | None = None
    try:
        for last in parser.lexer_thread.lex(parser.parser_state):
            try:
                parser.feed_token(last)
            except UnexpectedToken as error:
                # Java stops reading here as well, if what it has so far is an expression.
                return SqlExpression(text, _finish(text, parser, last, error))
        return SqlExpression(text, _finish(text, parser, last, None))
    except UnexpectedCharacters as error:
        at = cast(int, error.pos_in_stream)
        raise SqlError(text, at, f"{text[at]!r} is not part of the language") from None
    except _Misuse as error:
        raise SqlError(text, error.position, error.problem) from None


def _finish(text: str, parser: Any, last: Token | None, error: UnexpectedToken | None) -> Decide:
    try:
        node: _Node = parser.feed_eof(last)
    except UnexpectedToken as ending:
        if error is None or last is None:
            raise SqlError(text, len(text), f"the expression ends too early{_hint(ending)}") from None
        raise SqlError(text, last.start_pos or 0, f"{str(last)!r} cannot stand here{_hint(error)}") from None
    return _as_decision(node)


def _hint(error: UnexpectedToken) -> str:
    names = sorted(error.accepts or error.expected)
    return f"; expected one of {', '.join(name for name in names if name != '$END')}" if names else ""


def _shorten(text: str, position: int, around: int = 30) -> str:
    """The expression around a position, as it is quoted in an error."""
    start, end = max(0, position - around), position + around
    return f"{'...' if start else ''}{text[start:end]!r}{'...' if end < len(text) else ''}"


@cache
def _make_parser() -> Lark:
    # The basic lexer reads tokens whatever may come next, as Java's does: `!` is an error, `like` is a name.
    return Lark(
        _GRAMMAR, parser="lalr", lexer="basic", transformer=_Compiler(), lexer_callbacks={"NAME": _find_keyword}
    )


def _find_keyword(token: Token) -> Token:
    word = token.upper()
    return Token.new_borrow_pos(word, token, token) if word in _KEYWORDS else token


# --- what is compiled ---------------------------------------------------------------------------------------------


class _Misuse(Exception):
    """Operands that cannot stand together."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


@dataclass(slots=True)
class _Node:
    """A part of an expression, compiled."""

    at: int
    run: Evaluate
    depth: int = 1
    # The name, for a bare property.
    name: str | None = None
    # Its value never depends on a message.
    fixed: bool = False
    value: Value | None = None
    # It was written as a literal: rules that look at values look at these only, so `-1` escapes some of them.
    literal: bool = False
    # It is true, false or null.
    decides: bool = False


def _make_fixed(at: int, value: Value | None, *, literal: bool = True) -> _Node:
    decides = literal and (value is None or isinstance(value, bool))
    return _Node(at, lambda _: value, fixed=True, value=value, literal=literal, decides=decides)


def _make_decision(at: int, run: Decide, *parts: _Node) -> _Node:
    depth = 1 + max([part.depth for part in parts])
    if depth > SQL_DEPTH_MAX:
        raise _Misuse(at, f"more than {SQL_DEPTH_MAX} operators are nested here")
    return _Node(at, run, depth=depth, decides=True)


def _as_decision(node: _Node) -> Decide:
    """The expression as a condition; a bare property is one, but a text is never true."""
    if node.decides:
        return node.run  # type: ignore[return-value]
    if node.name is not None:
        name = node.name
        return lambda properties: False if name in properties else None
    raise _Misuse(node.at, "this is not a condition")


def _negate(decide: Decide) -> Decide:
    def run(properties: Properties) -> bool | None:
        outcome = decide(properties)
        return None if outcome is None else not outcome

    return run


def _join(parts: list[Decide], decisive: bool) -> Decide:
    """AND (false decides) or OR (true decides) of many; null unless one decides or all agree."""

    def run(properties: Properties) -> bool | None:
        unsure = False
        for part in parts:
            outcome = part(properties)
            if outcome is decisive:
                return decisive
            unsure |= outcome is None
        return None if unsure else not decisive

    return run


def _equate(left: _Node, right: _Node) -> Decide:
    run_left, run_right = left.run, right.run
    if left.name is not None and right.fixed and isinstance(right.value, str):
        name, wanted = left.name, right.value

        def run_text(properties: Properties) -> bool | None:
            found = properties.get(name)
            return None if found is None else found == wanted

        return run_text

    def run(properties: Properties) -> bool | None:
        first = run_left(properties)
        second = run_right(properties)
        if first is None:
            return True if second is None else None
        return False if second is None else compare_values(first, second) == 0

    return run


def _order(left: _Node, right: _Node, test: _Test) -> Decide:
    for side in (left, right):
        if side.decides or (side.literal and not isinstance(side.value, Number)):
            raise _Misuse(side.at, "only numbers and properties can be ordered")
    if left.name is not None and isinstance(right.value, Number):
        name, (kind, wanted) = left.name, right.value

        def run_number(properties: Properties) -> bool | None:
            found = properties.get(name)
            return None if found is None else test(compare_numbers(read_number(found, kind), wanted))

        return run_number
    run_left, run_right = left.run, right.run

    def run(properties: Properties) -> bool | None:
        first = run_left(properties)
        if first is None:
            return None
        second = run_right(properties)
        return None if second is None else test(compare_order(first, second))

    return run


_Tail: TypeAlias = Callable[[_Node], _Node]


class _Compiler(Transformer[Token, _Node]):
    """From what the grammar finds to closures; called by the parser as it goes, so there is never a tree."""

    def start(self, parts: list[_Node]) -> _Node:
        return parts[0]

    plus = start

    def or_expression(self, parts: list[Any]) -> _Node:
        return _join_nodes(parts, decisive=True)

    def and_expression(self, parts: list[Any]) -> _Node:
        return _join_nodes(parts, decisive=False)

    def equality(self, parts: list[Any]) -> _Node:
        node: _Node = parts[0]
        for tail in parts[1:]:
            node = tail(node)
        return node

    comparison = equality

    # -- conditions: each gives what is to be done with the expression on its left -----------------------------------

    def equal(self, parts: list[Any]) -> _Tail:
        sign, right = parts
        return lambda left: _make_equality(sign, left, right, _equate)

    def different(self, parts: list[Any]) -> _Tail:
        sign, right = parts
        return lambda left: _make_equality(sign, left, right, lambda one, two: _negate(_equate(one, two)))

    def is_null(self, parts: list[Token]) -> _Tail:
        return lambda left: _make_decision(_place(parts[0]), _equate(left, _NULL), left)

    def is_not_null(self, parts: list[Token]) -> _Tail:
        return lambda left: _make_decision(_place(parts[0]), _negate(_equate(left, _NULL)), left)

    def order(self, parts: list[Any]) -> _Tail:
        sign, right = parts
        return lambda left: _make_decision(_place(sign), _order(left, right, _TESTS[sign]), left, right)

    def between(self, parts: list[Any]) -> _Tail:
        word, low, _, high = parts

        def build(left: _Node) -> _Node:
            ends = [side.value for side in (low, high) if side.literal and isinstance(side.value, Number)]
            if len(ends) == 2 and compare_values(*ends) > 0:
                raise _Misuse(low.at, "the lower end of BETWEEN is above the upper one")
            both = [_order(left, low, _TESTS[">="]), _order(left, high, _TESTS["<="])]
            return _make_decision(_place(word), _join(both, False), left, low, high)

        return build

    def not_between(self, parts: list[Any]) -> _Tail:
        word, _, low, _, high = parts

        def build(left: _Node) -> _Node:
            either = [_order(left, low, _TESTS["<"]), _order(left, high, _TESTS[">"])]
            return _make_decision(_place(word), _join(either, True), left, low, high)

        return build

    def is_in(self, parts: list[Token]) -> _Tail:
        return lambda left: _make_membership(left, parts[0], parts[1:], True)

    def is_not_in(self, parts: list[Token]) -> _Tail:
        return lambda left: _make_membership(left, parts[0], parts[2:], False)

    # -- single values -----------------------------------------------------------------------------------------------

    def negation(self, parts: list[Any]) -> _Node:
        word, right = parts
        return _make_decision(_place(word), _negate(_as_decision(right)), right)

    def minus(self, parts: list[Any]) -> _Node:
        sign, right = parts
        value = right.value
        if isinstance(value, Number):
            return _make_fixed(_place(sign), Number(value.kind, -value.value), literal=False)

        def run(properties: Properties) -> None:
            # Only numbers have a negative; what goes wrong on the way goes wrong all the same.
            right.run(properties)

        # A condition that is used as a value: the same bound on its depth.
        return replace(_make_decision(_place(sign), run, right), decides=False)

    def text(self, parts: list[Token]) -> _Node:
        return _make_fixed(_place(parts[0]), _unquote(parts[0]))

    def whole(self, parts: list[Token]) -> _Node:
        digits = parts[0].rstrip("lL")
        value = int(digits) if len(digits) < len(str(LONG_MAX)) + 1 else LONG_MAX + 1
        if value > LONG_MAX:
            raise _Misuse(_place(parts[0]), "the number is too large")
        kind = NumberKind.INTEGER if value <= INTEGER_MAX else NumberKind.LONG
        return _make_fixed(_place(parts[0]), Number(kind, value))

    def fraction(self, parts: list[Token]) -> _Node:
        value = float(parts[0])
        if value == 0 or value == float("inf"):
            raise _Misuse(_place(parts[0]), "a number with a fraction must be above 0 and finite; write 0 for zero")
        return _make_fixed(_place(parts[0]), Number(NumberKind.DOUBLE, value))

    def constant(self, parts: list[Token]) -> _Node:
        return _make_fixed(_place(parts[0]), {"TRUE": True, "FALSE": False}.get(parts[0].type))

    def property(self, parts: list[Token]) -> _Node:
        name = str(parts[0])
        return _Node(_place(parts[0]), lambda properties: properties.get(name), name=name)


_NULL: Final = _make_fixed(0, None)


def _place(token: Token) -> int:
    return token.start_pos or 0


def _unquote(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _operands(parts: list[Any]) -> Iterator[_Node]:
    return (part for part in parts if isinstance(part, _Node))


def _join_nodes(parts: list[Any], *, decisive: bool) -> _Node:
    nodes = list(_operands(parts))
    if len(nodes) == 1:
        return nodes[0]
    return _make_decision(nodes[0].at, _join([_as_decision(node) for node in nodes], decisive), *nodes)


def _make_equality(sign: Token, left: _Node, right: _Node, build: Callable[[_Node, _Node], Decide]) -> _Node:
    for side in (left, right):
        if side.literal and side.value is None:
            raise _Misuse(side.at, "nothing equals NULL; write IS NULL")
    if left.literal and right.literal and left.decides and not right.decides:
        raise _Misuse(right.at, "a truth value cannot be compared with this")
    return _make_decision(_place(sign), build(left, right), left, right)


def _make_membership(left: _Node, word: Token, members: list[Token], wanted: bool) -> _Node:
    if left.name is None:
        raise _Misuse(left.at, "IN wants a property on its left")
    name, texts = left.name, frozenset(map(_unquote, members))

    def run(properties: Properties) -> bool | None:
        found = properties.get(name)
        return None if found is None else (found in texts) is wanted

    return _make_decision(_place(word), run, left)

"""From the parts of an SQL92 expression to closures, with the checks a 4.9 broker makes when compiling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from lark import Token, Transformer

from eruca._filter.javanumbers import (
    INTEGER_MAX,
    LONG_MAX,
    Number,
    NumberKind,
    Value,
    compare_numbers,
    compare_order,
    compare_values,
    read_number,
)
from eruca._ground.limits import SQL_DEPTH_MAX

Properties: TypeAlias = Mapping[str, str]
Evaluate: TypeAlias = Callable[[Properties], "Value | None"]
# The same for an expression whose value is true, false or null.
Decide: TypeAlias = Callable[[Properties], "bool | None"]
# From the result of a comparison (below 0, 0, above 0) to true or false.
_Test: TypeAlias = Callable[[int], bool]

_TESTS: Final[dict[str, _Test]] = {
    ">": lambda outcome: outcome > 0,
    ">=": lambda outcome: outcome >= 0,
    "<": lambda outcome: outcome < 0,
    "<=": lambda outcome: outcome <= 0,
}


class Misuse(Exception):
    """Operands that cannot be combined."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


@dataclass(slots=True)
class Node:
    """A compiled part of an expression."""

    at: int
    run: Evaluate
    depth: int = 1
    # The name, for a bare property.
    name: str | None = None
    # Its value does not depend on a message.
    fixed: bool = False
    value: Value | None = None
    # It was written as a literal: rules about values only apply to these, so `-1` escapes some of them.
    literal: bool = False
    # It is true, false or null.
    decides: bool = False


def _make_fixed(at: int, value: Value | None, *, literal: bool = True) -> Node:
    decides = literal and (value is None or isinstance(value, bool))
    return Node(at, lambda _: value, fixed=True, value=value, literal=literal, decides=decides)


def _make_decision(at: int, run: Decide, *parts: Node) -> Node:
    depth = 1 + max([part.depth for part in parts])
    if depth > SQL_DEPTH_MAX:
        raise Misuse(at, f"more than {SQL_DEPTH_MAX} operators are nested here")
    return Node(at, run, depth=depth, decides=True)


def as_decision(node: Node) -> Decide:
    """The expression as a condition; a bare property is accepted as one, but a string is never true."""
    if node.decides:
        return node.run  # type: ignore[return-value]
    if node.name is not None:
        name = node.name
        return lambda properties: False if name in properties else None
    raise Misuse(node.at, "this is not a condition")


def _negate(decide: Decide) -> Decide:
    def run(properties: Properties) -> bool | None:
        outcome = decide(properties)
        return None if outcome is None else not outcome

    return run


def _join(parts: list[Decide], decisive: bool) -> Decide:
    """AND (false decides) or OR (true decides) of several; null unless one decides or all agree."""

    def run(properties: Properties) -> bool | None:
        unsure = False
        for part in parts:
            outcome = part(properties)
            if outcome is decisive:
                return decisive
            unsure |= outcome is None
        return None if unsure else not decisive

    return run


def _equate(left: Node, right: Node) -> Decide:
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


def _order(left: Node, right: Node, test: _Test) -> Decide:
    for side in (left, right):
        if side.decides or (side.literal and not isinstance(side.value, Number)):
            raise Misuse(side.at, "only numbers and properties can be ordered")
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


_Tail: TypeAlias = Callable[[Node], Node]


class Compiler(Transformer[Token, Node]):
    """Turns parse results into closures; called by the parser as it goes, so no tree is built."""

    def start(self, parts: list[Node]) -> Node:
        return parts[0]

    plus = start

    def or_expression(self, parts: list[Any]) -> Node:
        return _join_nodes(parts, decisive=True)

    def and_expression(self, parts: list[Any]) -> Node:
        return _join_nodes(parts, decisive=False)

    def equality(self, parts: list[Any]) -> Node:
        node: Node = parts[0]
        for tail in parts[1:]:
            node = tail(node)
        return node

    comparison = equality

    # -- conditions: each returns what to do with the expression on its left -------------------------------------------

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

        def build(left: Node) -> Node:
            ends = [side.value for side in (low, high) if side.literal and isinstance(side.value, Number)]
            if len(ends) == 2 and compare_values(*ends) > 0:
                raise Misuse(low.at, "the lower end of BETWEEN is above the upper one")
            both = [_order(left, low, _TESTS[">="]), _order(left, high, _TESTS["<="])]
            return _make_decision(_place(word), _join(both, False), left, low, high)

        return build

    def not_between(self, parts: list[Any]) -> _Tail:
        word, _, low, _, high = parts

        def build(left: Node) -> Node:
            either = [_order(left, low, _TESTS["<"]), _order(left, high, _TESTS[">"])]
            return _make_decision(_place(word), _join(either, True), left, low, high)

        return build

    def is_in(self, parts: list[Token]) -> _Tail:
        return lambda left: _make_membership(left, parts[0], parts[1:], True)

    def is_not_in(self, parts: list[Token]) -> _Tail:
        return lambda left: _make_membership(left, parts[0], parts[2:], False)

    # -- single values -----------------------------------------------------------------------------------------------

    def negation(self, parts: list[Any]) -> Node:
        word, right = parts
        return _make_decision(_place(word), _negate(as_decision(right)), right)

    def minus(self, parts: list[Any]) -> Node:
        sign, right = parts
        value = right.value
        if isinstance(value, Number):
            return _make_fixed(_place(sign), Number(value.kind, -value.value), literal=False)

        def run(properties: Properties) -> None:
            # Only numbers can be negated; an error in the operand is still raised.
            right.run(properties)

        # A condition used as a value: the same limit on its depth.
        return replace(_make_decision(_place(sign), run, right), decides=False)

    def text(self, parts: list[Token]) -> Node:
        return _make_fixed(_place(parts[0]), _unquote(parts[0]))

    def whole(self, parts: list[Token]) -> Node:
        digits = parts[0].rstrip("lL")
        value = int(digits) if len(digits) < len(str(LONG_MAX)) + 1 else LONG_MAX + 1
        if value > LONG_MAX:
            raise Misuse(_place(parts[0]), "the number is too large")
        kind = NumberKind.INTEGER if value <= INTEGER_MAX else NumberKind.LONG
        return _make_fixed(_place(parts[0]), Number(kind, value))

    def fraction(self, parts: list[Token]) -> Node:
        value = float(parts[0])
        if value == 0 or value == float("inf"):
            raise Misuse(_place(parts[0]), "a number with a fraction must be above 0 and finite; write 0 for zero")
        return _make_fixed(_place(parts[0]), Number(NumberKind.DOUBLE, value))

    def constant(self, parts: list[Token]) -> Node:
        return _make_fixed(_place(parts[0]), {"TRUE": True, "FALSE": False}.get(parts[0].type))

    def property(self, parts: list[Token]) -> Node:
        name = str(parts[0])
        return Node(_place(parts[0]), lambda properties: properties.get(name), name=name)


_NULL: Final = _make_fixed(0, None)


def _place(token: Token) -> int:
    return token.start_pos or 0


def _unquote(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _operands(parts: list[Any]) -> Iterator[Node]:
    return (part for part in parts if isinstance(part, Node))


def _join_nodes(parts: list[Any], *, decisive: bool) -> Node:
    nodes = list(_operands(parts))
    if len(nodes) == 1:
        return nodes[0]
    return _make_decision(nodes[0].at, _join([as_decision(node) for node in nodes], decisive), *nodes)


def _make_equality(sign: Token, left: Node, right: Node, build: Callable[[Node, Node], Decide]) -> Node:
    for side in (left, right):
        if side.literal and side.value is None:
            raise Misuse(side.at, "nothing equals NULL; write IS NULL")
    if left.literal and right.literal and left.decides and not right.decides:
        raise Misuse(right.at, "a boolean cannot be compared with this")
    return _make_decision(_place(sign), build(left, right), left, right)


def _make_membership(left: Node, word: Token, members: list[Token], wanted: bool) -> Node:
    if left.name is None:
        raise Misuse(left.at, "IN needs a property on its left")
    name, texts = left.name, frozenset(map(_unquote, members))

    def run(properties: Properties) -> bool | None:
        found = properties.get(name)
        return None if found is None else (found in texts) is wanted

    return _make_decision(_place(word), run, left)

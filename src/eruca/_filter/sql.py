"""SQL92 expressions over message properties: parsed once by lark, evaluated as closures.

The language and its oddities are those of a 4.9 broker, so that a subscription means the same on both. Users notice
these first:

- the expression ends where it cannot continue: `a > 1 garbage` is read as `a > 1`, and `a like 'x%'` as a bare `a`;
- a missing property makes a comparison null, and null is not true; but `1 <> a` and `a = b` are true without them;
- `<`, `>` and BETWEEN are for numbers, IN is for strings, `= NULL` and the literal `0.0` are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from lark import Lark, Token, UnexpectedCharacters, UnexpectedToken

from eruca._filter.javanumbers import EvaluationError
from eruca._filter.sqlcompiler import Compiler, Decide, Misuse, Node, Properties, as_decision
from eruca._filter.tags import ExpressionError
from eruca._ground.limits import SQL_CHARS_MAX

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


class SqlError(ExpressionError):
    """An SQL92 expression cannot be parsed; `position` is the first wrong character (from 0)."""

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
        """Does a message with these properties match? Not when the result is null or an error."""
        try:
            return self._decide(properties) is True
        except EvaluationError:
            return False


def compile_sql(text: str) -> SqlExpression:
    """Parse an expression. Raises SqlError."""
    if len(text) > SQL_CHARS_MAX:
        raise SqlError(
            text, SQL_CHARS_MAX, f"the expression has {len(text)} characters, the maximum is {SQL_CHARS_MAX}"
        )
    parser: Any = _make_parser().parse_interactive(text)
    last: Token | None = None
    try:
        for last in parser.lexer_thread.lex(parser.parser_state):
            try:
                parser.feed_token(last)
            except UnexpectedToken as error:
                # Java also stops reading here, if what it has so far is an expression.
                return SqlExpression(text, _finish(text, parser, last, error))
        return SqlExpression(text, _finish(text, parser, last, None))
    except UnexpectedCharacters as error:
        at = cast(int, error.pos_in_stream)
        raise SqlError(text, at, f"{text[at]!r} is not part of the language") from None
    except Misuse as error:
        raise SqlError(text, error.position, error.problem) from None


def _finish(text: str, parser: Any, last: Token | None, error: UnexpectedToken | None) -> Decide:
    try:
        node: Node = parser.feed_eof(last)
    except UnexpectedToken as ending:
        if error is None or last is None:
            raise SqlError(text, len(text), f"the expression ends too early{_hint(ending)}") from None
        raise SqlError(text, last.start_pos or 0, f"{str(last)!r} is not allowed here{_hint(error)}") from None
    return as_decision(node)


def _hint(error: UnexpectedToken) -> str:
    names = sorted(error.accepts or error.expected)
    return f"; expected one of {', '.join(name for name in names if name != '$END')}" if names else ""


def _shorten(text: str, position: int, around: int = 30) -> str:
    """The part of the expression around a position, for an error message."""
    start, end = max(0, position - around), position + around
    return f"{'...' if start else ''}{text[start:end]!r}{'...' if end < len(text) else ''}"


@cache
def _make_parser() -> Lark:
    # The basic lexer reads tokens regardless of context, as Java's does: `!` is an error, `like` is a name.
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=Compiler(), lexer_callbacks={"NAME": _find_keyword})


def _find_keyword(token: Token) -> Token:
    word = token.upper()
    return Token.new_borrow_pos(word, token, token) if word in _KEYWORDS else token

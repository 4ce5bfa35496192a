"""SQL92 expressions: the same results as a 4.9 broker, bounded, and errors with the position."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._filter.javanumbers import EvaluationError, Number, NumberKind, compare_values, read_double, read_number
from eruca._filter.sql import SqlError, compile_sql
from eruca._filter.tags import ExpressionError
from eruca._ground.limits import SQL_CHARS_MAX, SQL_DEPTH_MAX

# Each line is an answer of the official classes (rocketmq-filter 4.9.7), an expression and the properties it was
# evaluated with: true, false, null, error (while evaluating) or refused (it does not compile).
VECTORS = [json.loads(line) for line in (Path(__file__).parent / "sql_vectors.jsonl").read_text("utf-8").splitlines()]


def answer(expression: str, properties: dict[str, str]) -> str:
    """What we make of an expression, in the words of the vectors."""
    try:
        compiled = compile_sql(expression)
    except SqlError:
        return "refused"
    try:
        outcome = compiled.evaluate(properties)
    except EvaluationError:
        outcome = None
        assert not compiled.matches(properties)
        return "error"
    assert compiled.matches(properties) is (outcome is True)
    return {None: "null", True: "true", False: "false"}[outcome]


@pytest.mark.parametrize(("expected", "expression", "properties"), VECTORS)
def test_answers_as_the_java_broker(expected: str, expression: str, properties: dict[str, str]) -> None:
    assert answer(expression, properties) == expected


def test_there_are_many_vectors_of_every_kind() -> None:
    kinds = [expected for expected, _, _ in VECTORS]
    assert len(VECTORS) >= 300
    assert all(kinds.count(kind) >= 40 for kind in ("true", "false", "null", "error", "refused"))


@pytest.mark.parametrize(
    ("expression", "position", "word"),
    [
        ("a >> 5", 3, "'>' is not allowed here"),
        ("a != 1", 2, "'!' is not part of the language"),
        ("a in (1, 2)", 6, "TEXT"),
        ("(a > 1", 6, "ends too early"),
        ("", 0, "ends too early"),
        ("a = 1 and b = NULL", 14, "IS NULL"),
        ("a between 3 and 1", 10, "above the upper one"),
        ("a > 0.0", 4, "write 0"),
        ("a > 'x'", 4, "only numbers"),
        ("b = 1 or 'x' in ('x')", 9, "property"),
        ("a > 99999999999999999999", 4, "too large"),
        ("a = 1 and 5", 10, "not a condition"),
        ("true = 1", 7, "boolean"),
    ],
)
def test_an_error_points_at_the_position(expression: str, position: int, word: str) -> None:
    with pytest.raises(SqlError, match=f"at character {position + 1} of") as caught:
        compile_sql(expression)
    assert caught.value.position == position
    assert word in str(caught.value)


def test_an_error_in_a_long_expression_quotes_only_what_is_near() -> None:
    with pytest.raises(SqlError) as caught:
        compile_sql("a = 1 and " * 100 + "!" + " and a = 1" * 100)
    assert caught.value.position == 1000
    assert len(str(caught.value)) < 200


def test_trailing_text_is_read_as_java_reads_it() -> None:
    assert compile_sql("a > 1 whatever follows !!").matches({"a": "2"})
    # Java's scanner looks one token ahead, so what comes next must at least be a token.
    with pytest.raises(SqlError):
        compile_sql("a > 1 !")
    # What could continue the expression must do so.
    with pytest.raises(SqlError):
        compile_sql("a > 1 and")


def test_length_is_bounded() -> None:
    fits = "a = 1" + " " * (SQL_CHARS_MAX - 5)
    assert compile_sql(fits).matches({"a": "1"})
    with pytest.raises(SqlError, match=f"the maximum is {SQL_CHARS_MAX}"):
        compile_sql(fits + " ")


@pytest.mark.parametrize(
    ("opening", "core", "closing"),
    [("not ", "a = 1", ""), ("(1 = 1 and ", "a = 1", ")"), ("", "a = 1", " = true"), ("1 = - (", "a = 1", ")")],
)
def test_depth_is_bounded(opening: str, core: str, closing: str) -> None:
    deep = SQL_DEPTH_MAX + 1
    with pytest.raises(SqlError, match=f"more than {SQL_DEPTH_MAX}"):
        compile_sql(opening * deep + core + closing * deep)
    half = SQL_DEPTH_MAX // 2 - 1
    assert answer(opening * half + core + closing * half, {"a": "1"}) != "refused"


def test_long_chains_and_parentheses_do_not_count_as_depth() -> None:
    many = " or ".join([f"a = {number}" for number in range(700)])
    assert compile_sql(many).matches({"a": "699"})
    assert compile_sql("(" * 3000 + "a = 1" + ")" * 3000).matches({"a": "1"})


def test_the_broker_never_sees_another_error() -> None:
    with pytest.raises(ExpressionError):
        compile_sql("\x00")


@given(st.text(max_size=60))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    assert answer(text, {}) in {"true", "false", "null", "error", "refused"}


WORDS = "a b > >= < <= = <> ( ) , + - AND OR NOT BETWEEN IN IS NULL TRUE FALSE 1 2.5 'x' 99999999999 /*c*/"
TOKENS = st.sampled_from(WORDS.split())
VALUES = st.one_of(st.text(max_size=8), st.integers().map(str), st.floats().map(repr), st.sampled_from(["true", "5"]))


@given(st.lists(TOKENS, max_size=14).map(" ".join), st.dictionaries(st.sampled_from("ab"), VALUES))
def test_any_words_compile_or_are_refused(expression: str, properties: dict[str, str]) -> None:
    assert answer(expression, properties) in {"true", "false", "null", "error", "refused"}


NUMBERS = st.integers(-(2**63) + 1, 2**63 - 1)


@given(NUMBERS, NUMBERS)
def test_whole_numbers_compare_as_numbers(found: int, wanted: int) -> None:
    # A literal between 32-bit bounds reads the property as an Integer, so only larger ones take every value.
    wanted = wanted if abs(wanted) > 2**31 else wanted + 2**32 * (1 if wanted >= 0 else -1)
    properties = {"a": str(found)}
    for sign, outcome in (
        (">", found > wanted),
        (">=", found >= wanted),
        ("<", found < wanted),
        ("<=", found <= wanted),
        ("=", found == wanted),
        ("<>", found != wanted),
    ):
        assert compile_sql(f"a {sign} {wanted}").matches(properties) is outcome


CONDITIONS = st.sampled_from(["a = 1", "a = 2", "b = 1", "TRUE", "FALSE", "NULL"])


@given(CONDITIONS, CONDITIONS)
def test_de_morgan_holds_in_three_valued_logic(one: str, two: str) -> None:
    properties = {"a": "1"}
    left = compile_sql(f"not ({one} and {two})").evaluate(properties)
    assert left == compile_sql(f"not {_wrap(one)} or not {_wrap(two)}").evaluate(properties)


def _wrap(condition: str) -> str:
    return f"({condition})"


@given(st.text().map(lambda text: text.replace("\x00", "")))
def test_a_text_literal_is_read_back(text: str) -> None:
    quoted = text[:1000].replace("'", "''")
    assert compile_sql(f"a = '{quoted}'").matches({"a": text[:1000]})
    assert compile_sql(f"a in ('{quoted}')").matches({"a": text[:1000]})


@given(st.floats())
def test_doubles_are_read_as_python_writes_them(value: float) -> None:
    text = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
    number = Number(NumberKind.DOUBLE, value)
    assert compare_values(number, Number(NumberKind.DOUBLE, read_double(text))) == 0
    assert compare_values(text, number) == 0


@pytest.mark.parametrize("text", ["", "1_0", "1 000", "0x10", "one", "1e", "--1", "9" * 5000])
def test_what_is_no_number_is_an_evaluation_error(text: str) -> None:
    for kind in NumberKind:
        if kind is NumberKind.DOUBLE and text.isdigit():
            continue
        with pytest.raises(EvaluationError, match="is not a valid"):
            read_number(text, kind)


def test_hexadecimal_doubles_are_java_s() -> None:
    assert read_double("0x1.8p1") == 3.0
    assert read_double("-0x1p99999") == float("-inf")
    with pytest.raises(EvaluationError):
        read_double("0x1.8")

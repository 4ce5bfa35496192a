"""The SQL92 suite: what the rules say, what our filter says, what Java's classes say, and what either broker sends."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import eruca._broker.pulling.subscriptions as broker_subscriptions
from eruca import MessageQueue, Producer, PullConsumer, Sql
from eruca._client.group.subscriptions import SQL92
from eruca._filter.javanumbers import EvaluationError
from eruca._filter.sql import SqlError, SqlExpression, compile_sql
from eruca._ground.limits import SQL_CHARS_MAX, SQL_DEPTH_MAX
from eruca._wire.bodies import SubscriptionData
from eruca._wire.codes import ResponseCode
from eruca._wire.properties import parse_properties
from eruca.errors import RequestRefused
from tests.clients.stage import create_topic, fetch_queue, find_broker
from tests.delivery.sqlcases import ERROR, REFUSED, SQL_CASES, F, N, SqlCase, T
from tests.figures import note_figures
from tests.interop.brokers import Cluster
from tests.interop.javapeer import JavaProgram, Peer

TOPIC = "sql92-table"
CASES_MIN = 200
RANDOM_CASES = 3000
SEED = 20_064
RULES = sorted({case.rule for case in SQL_CASES})
READABLE = {case.expression: compile_sql(case.expression) for case in SQL_CASES if case.answer != REFUSED}
UNREADABLE = sorted({case.expression for case in SQL_CASES if case.answer == REFUSED})
# Each expression is put to every one of them, not only to those of its own cases.
MESSAGES = [dict(pairs) for pairs in sorted({tuple(sorted(case.properties.items())) for case in SQL_CASES})]


def answer(expression: str, properties: dict[str, str]) -> str:
    """What our filter makes of an expression."""
    try:
        outcome = compile_sql(expression).evaluate(properties)
    except SqlError:
        return REFUSED
    except EvaluationError:
        return ERROR
    return N if outcome is None else T if outcome else F


def list_differences(answers: Iterable[tuple[SqlCase, str]]) -> list[str]:
    """The cases that were answered in another way than the table says."""
    return [
        f"{case.expression!r} with {case.properties}: {found}, not {case.answer} ({case.rule})"
        for case, found in answers
        if found != case.answer
    ]


def test_the_table_is_large_enough() -> None:
    answers = Counter(case.answer for case in SQL_CASES)
    expressions = len(READABLE) + len(UNREADABLE)
    assert expressions >= CASES_MIN
    assert set(answers) == {T, F, N, ERROR, REFUSED}
    assert not set(READABLE) & set(UNREADABLE)
    assert len({(case.expression, str(case.properties)) for case in SQL_CASES}) == len(SQL_CASES)
    note_figures(f"{len(SQL_CASES)} cases, {expressions} expressions, {len(RULES)} rules, answers: {dict(answers)}")


@pytest.mark.parametrize("rule", RULES)
def test_our_filter_follows_the_rules(rule: str) -> None:
    cases = [case for case in SQL_CASES if case.rule == rule]
    assert list_differences((case, answer(case.expression, case.properties)) for case in cases) == []


@pytest.mark.parametrize("expression", UNREADABLE)
def test_a_refusal_points_at_the_position(expression: str) -> None:
    with pytest.raises(SqlError) as caught:
        compile_sql(expression)
    position = caught.value.position
    assert 0 <= position <= len(expression)
    assert str(caught.value).startswith(f"at character {position + 1} of ")
    # All that comes before is good: a wrong character in its place is the first thing that is wrong.
    with pytest.raises(SqlError) as shorter:
        compile_sql(expression[:position] + "!")
    assert shorter.value.position == position


def test_the_classes_of_java_answer_the_same(peer: Peer, tmp_path: Path) -> None:
    with JavaProgram(peer, "eruca.interop.SqlAnswers", tmp_path) as program:
        matrix = [(expression, have) for expression in (*READABLE, *UNREADABLE) for have in MESSAGES]
        answers = program.ask({"cases": [[case.expression, case.properties] for case in SQL_CASES]})
        all_answers = program.ask({"cases": matrix})
    assert list_differences(zip(SQL_CASES, answers, strict=True)) == []
    # Every expression with every message, where there is no rule to read but ours and Java's can be compared.
    found = [answer(*one) for one in matrix]
    differing = [one for one in zip(matrix, found, all_answers, strict=True) if one[1] != one[2]]
    assert differing == []
    note_figures(f"{len(SQL_CASES)} cases as the table says, {len(matrix)} more as ours: {dict(Counter(found))}")


def make_expression(dice: random.Random, depth: int) -> str:
    """Any expression of the grammar, most of them such as a broker takes."""

    def value() -> str:
        return dice.choice(["a", "a", "b", "1", "2", "-5", "1.5", "100000000000", "'x'", "'1'", "TRUE", "NULL"])

    def number() -> str:
        return dice.choice(["a", "a", "b", "c", "1", "2", "-5", "1.5", "100000000000", "1e2", ".5", "+3"])

    def condition() -> str:
        shape = dice.randrange(6)
        if shape == 0:
            return f"{value()} {dice.choice(['=', '<>'])} {value()}"
        if shape == 1:
            return f"{number()} {dice.choice(['<', '<=', '>', '>='])} {number()}"
        if shape == 2:
            return f"{number()} {dice.choice(['', 'NOT '])}BETWEEN {number()} AND {number()}"
        if shape == 3:
            return f"{dice.choice('ab')} {dice.choice(['', 'NOT '])}IN ('x', '{dice.choice(['1', '2', 'y'])}')"
        if shape == 4:
            return f"{value()} IS {dice.choice(['', 'NOT '])}NULL"
        return dice.choice(["TRUE", "FALSE", "NULL", "a", "b"])

    if depth == 0 or dice.random() < 0.2:
        return condition()
    left, right = make_expression(dice, depth - 1), make_expression(dice, depth - 1)
    shapes = [f"{left} AND {right}", f"{left} OR {right}", f"NOT ({left})", f"NOT {left}", f"({left}) = ({right})"]
    return dice.choice([*shapes, f"({left} OR {right}) AND {left}", f"({left}) IS NULL"])


def test_random_expressions_are_answered_as_by_java(peer: Peer, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    cases = [(make_expression(dice, dice.randrange(4)), dice.choice(MESSAGES)) for _ in range(RANDOM_CASES)]
    with JavaProgram(peer, "eruca.interop.SqlAnswers", tmp_path) as program:
        answers = program.ask({"cases": cases})
    found = [answer(*one) for one in cases]
    assert [one for one in zip(cases, found, answers, strict=True) if one[1] != one[2]] == []
    counts = Counter(found)
    assert min(counts[kind] for kind in (T, F, N, ERROR, REFUSED)) > RANDOM_CASES // 50
    note_figures(f"{RANDOM_CASES} random expressions, seed {SEED}: {dict(counts)}")


# --- brokers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["eruca", "java"], indirect=True)
async def test_a_broker_sends_what_the_table_says(system: Cluster) -> None:
    async with (
        Producer(system.name_server, group=TOPIC) as producer,
        PullConsumer(system.name_server, group=TOPIC) as consumer,
    ):
        await create_topic(producer, TOPIC, 1)
        (queue,) = await consumer.list_queues(TOPIC)
        for have in MESSAGES:
            properties = {name: value for name, value in have.items() if name not in {"TAGS", "KEYS"}}
            keys = [have["KEYS"]] if "KEYS" in have else []
            await producer.send(TOPIC, b"x", tags=have.get("TAGS"), keys=keys, properties=properties)
        stored = await fetch_queue(producer._session, queue, len(MESSAGES))
        kept = [parse_properties(message.record.properties) for message in stored]
        assert all(have.items() <= found.items() for have, found in zip(MESSAGES, kept, strict=True))
        differing = []
        pulled = 0
        for text, compiled in READABLE.items():
            found = await _pull_all(consumer, queue, text)
            pulled += len(found)
            wanted = [number for number, have in enumerate(MESSAGES) if compiled.matches(have)]
            if found != wanted:
                differing.append((text, found, wanted))
    assert differing == []
    note_figures(f"{system.kind}: {len(READABLE)} expressions, {len(MESSAGES)} messages, {pulled} matches")


async def _pull_all(consumer: PullConsumer, queue: MessageQueue, text: str) -> list[int]:
    """The offsets of all messages that a broker sends for an expression; it must come to the end."""
    found: list[int] = []
    offset = 0
    while offset < len(MESSAGES):
        result = await consumer.pull(queue, offset, tags=Sql(text))
        found += [message.offset for message in result.messages]
        assert result.next_offset > offset
        offset = result.next_offset
    return found


async def _check(producer: Producer, text: str) -> RequestRefused | None:
    """Let the broker read an expression, as consumers do before they subscribe; gives its refusal."""
    session = producer._session
    data = SubscriptionData(topic=TOPIC, sub_string=text, sub_version=1, expression_type=SQL92)
    try:
        await session.calls.check_subscription(await find_broker(session), session.client_id, TOPIC, data)
    except RequestRefused as refused:
        return refused
    return None


@pytest.mark.parametrize("system", ["eruca", "java"], indirect=True)
async def test_a_broker_refuses_what_the_table_says(system: Cluster) -> None:
    async with Producer(system.name_server, group=TOPIC) as producer:
        refusals = {text: await _check(producer, text) for text in (*UNREADABLE, *READABLE)}
    refused = {text: refusal for text, refusal in refusals.items() if refusal is not None}
    assert sorted(refused) == UNREADABLE
    assert {refusal.code for refusal in refused.values()} == {ResponseCode.SUBSCRIPTION_PARSE_FAILED}
    if system.kind == "eruca":
        assert all("at character " in str(refusal) for refusal in refused.values())
    note_figures(f"{system.kind}: {len(UNREADABLE)} expressions refused, {len(READABLE)} taken")


@pytest.mark.parametrize("system", ["eruca"], indirect=True)
async def test_length_and_depth_are_bounded_at_the_broker(system: Cluster) -> None:
    longest = "a = 1" + " " * (SQL_CHARS_MAX - 5)
    half = SQL_DEPTH_MAX // 2
    async with Producer(system.name_server, group=TOPIC) as producer:
        assert await _check(producer, longest) is None
        assert await _check(producer, "NOT " * half + "a") is None
        for text, why in (
            (longest + " ", f"the most is {SQL_CHARS_MAX}"),
            ("a = 1 OR " * 100_000 + "a = 2", f"the most is {SQL_CHARS_MAX}"),
            ("NOT " * (SQL_DEPTH_MAX + 1) + "a", f"more than {SQL_DEPTH_MAX}"),
            ("(1 = 1 AND " * 600 + "a" + ")" * 600, f"more than {SQL_DEPTH_MAX}"),
        ):
            refusal = await _check(producer, text)
            assert refusal is not None
            assert (refusal.code, why in str(refusal)) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True), str(refusal)


def test_an_expression_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def count(text: str) -> SqlExpression:
        parsed.append(text)
        return compile_sql(text)

    monkeypatch.setattr(broker_subscriptions, "compile_sql", count)
    filters = broker_subscriptions.PullFilters()
    pulls = [filters.get(SQL92, text) for _ in range(50) for text in READABLE]
    assert parsed == list(READABLE)
    assert len(set(map(id, pulls))) == len(READABLE)

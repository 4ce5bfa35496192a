"""The filter language: what matches, what is refused, and that it stays fast and shallow."""

from __future__ import annotations

import time
from typing import Any

import pytest

from eruca._console.messages.filtering import FilterError, match_like, parse_filter
from eruca._ground.limits import CONSOLE_FILTER_CHARS_MAX, CONSOLE_PATTERN_CHARS_MAX

BODY: dict[str, Any] = {
    "amount": 120.5,
    "count": 3,
    "paid": True,
    "name": "O'Neil",
    "none": None,
    "items": [{"sku": "a-1", "price": 5}, {"sku": "b-2", "price": 70}],
    "nested": {"deep": {"er": "x"}},
    "城市": "上海",
}
FIELDS: dict[str, Any] = {
    "topic": "orders",
    "broker": "broker-a",
    "queue": 3,
    "offset": 4711,
    "tags": "paid",
    "keys": ["order-7", "customer-3"],
    "properties": {"region": "eu", "weight": "12.5", "x-id": "9", "whole": "0010"},
    "body": '{"amount": 120.5, ...}',
    "decoded": BODY,
    "stored_at": "2026-11-15T07:21:06.000Z",
    "size": 210,
    "tries": 0,
}


@pytest.mark.parametrize(
    "text",
    [
        "body.amount > 100",
        "body.amount >= 120.5 and body.amount <= 120.5",
        "BODY.amount = 1 or body.amount = 120.5".replace("BODY", "body"),
        "body.amount BETWEEN 100 AND 200",
        "body.amount not between 1 and 2",
        "body.count = 3 and body.count == 3 and body.count <> 4 and body.count != 4",
        "body.paid = true and not body.paid = false",
        "body.name = 'O''Neil'",
        "body.name like 'O%l' and body.name like '_''%' and body.name not like 'o%'",
        "body.name contains 'NEIL'",
        "body.items.sku = 'b-2'",
        "body.items.price > 60",
        "body.items[0].sku = 'a-1'",
        "body.items[7].sku is null",
        "body.nested.deep.er = 'x'",
        "body.none is null and body.missing is null and body.amount is not null",
        "body.missing.more is null",
        "body.城市 = '上海'",
        "body.\"城市\" = '上海'",
        "body contains '120.5'",
        "properties.region in ('us', 'eu')",
        "properties.region not in ('us')",
        "properties.weight > 12 and properties.weight < 13",
        "properties.whole = 10 and properties.whole <> '10'",
        "properties.x-id = '9'",
        'properties."x-id" = 9',
        "keys = 'order-7' and keys = 'customer-3'",
        "keys in ('customer-3') and not keys = 'order-8'",
        "tags = 'paid' AND (queue = 1 OR offset > 4000)",
        "queue > -1",
        "stored_at > '2026-11-15T07' and stored_at < '2026-11-15T08'",
        "tags <> 'sent'",
        "body.missing <> 1",
        "not body.missing = 1",
        "body.nested.deep is not null",
        "100 < body.amount",
        "body.count < body.amount",
    ],
)
def test_matches(text: str) -> None:
    assert parse_filter(text).matches(FIELDS)


@pytest.mark.parametrize(
    "text",
    [
        "body.amount > 'text'",
        "body.missing > 1",
        "body.missing < 1",
        "body.missing = 'a'",
        "body.missing like '%'",
        "body.missing between 1 and 2",
        "body.paid = 1",
        "body.paid > 0",
        "properties.region > 1",
        "tags = 'paid' and queue = 4",
        "tags = 'sent' or tags = 'lost'",
        "body.items.sku = 'c'",
        "body.name contains 'x'",
        "keys = 'order'",
        "properties.missing is not null",
        "body.nested = 'x'",
    ],
)
def test_does_not_match(text: str) -> None:
    assert not parse_filter(text).matches(FIELDS)


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "ends too early"),
        ("body.amount >", 13, "ends too early"),
        ("body.amount > 100 garbage", 18, "'garbage' is not expected"),
        ("amout > 100", 0, "no field 'amout'"),
        ("tag = 'a'", 0, "did you mean tags"),
        ("tags.x = 'a'", 0, "tags has no parts"),
        ("properties = 'a'", 0, "name one property"),
        ("tags = 'a", 7, "no closing quote"),
        ("tags = 'a' && queue = 1", 11, "'&' is not part of the language"),
        ("__import__('os')", 10, "not expected"),
        ("tags", 4, "ends too early"),
        ("(tags)", 5, "not expected"),
        ("not 5", 5, "ends too early"),
        ("body.x like 5", 12, "expected a text"),
        ("true", 4, "ends too early"),
    ],
)
def test_refusals_name_the_position(text: str, position: int, problem: str) -> None:
    with pytest.raises(FilterError, match=problem) as caught:
        parse_filter(text)
    assert caught.value.position == position


def test_a_name_of_python_is_only_a_name() -> None:
    """Nothing of an object of Python can be reached: only keys of the decoded body."""
    for text in ("body.__class__ is null", "body.amount.__class__ is null", "properties.__class__ is null"):
        assert parse_filter(text).matches(FIELDS)


def test_long_and_deep_expressions_are_refused() -> None:
    with pytest.raises(FilterError, match="more than"):
        parse_filter("tags = '" + "a" * CONSOLE_FILTER_CHARS_MAX + "'")
    with pytest.raises(FilterError, match="nested"):
        parse_filter("not " * 60 + "tags = 'a'")
    assert parse_filter("(" * 300 + "tags = 'paid'" + ")" * 300).matches(FIELDS)
    with pytest.raises(FilterError, match="the pattern has more than"):
        parse_filter("tags like '" + "%" * (CONSOLE_PATTERN_CHARS_MAX + 1) + "'")


def test_the_names_are_known() -> None:
    parsed = parse_filter("body.card = '1' and properties.region = 'eu' and not (keys = 'a' or body contains 'b')")
    assert parsed.names == {"body.card", "properties.region", "keys", "body"}


@pytest.mark.parametrize(
    ("text", "pattern", "wanted"),
    [
        ("", "", True),
        ("", "%", True),
        ("a", "", False),
        ("abc", "abc", True),
        ("abc", "a%", True),
        ("abc", "%c", True),
        ("abc", "%b%", True),
        ("abc", "a%b%c", True),
        ("abc", "a%d", False),
        ("ab", "ab%b", False),
        ("abb", "ab%b", True),
        ("a\nc", "a_c", True),
        ("a.c", "a.c", True),
        ("abc", "a.c", False),
        ("aXbXc", "%X%X%", True),
        ("aXb", "%X%X%", False),
        ("abc", "%%%", True),
        ("abc", "___", True),
        ("abc", "____", False),
    ],
)
def test_like(text: str, pattern: str, wanted: bool) -> None:
    assert match_like(text, pattern) is wanted


def test_like_cannot_be_made_slow() -> None:
    """A pattern with many % is searched part by part, never again from an earlier place."""
    text, pattern = "a" * 250_000, "%a" * 99 + "%b"
    begin = time.process_time()
    assert not match_like(text, pattern)
    assert time.process_time() - begin < 1


def nest(depth: int) -> list[Any]:
    """Return lists in lists."""
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("text", "body"),
    [
        # All pairs of two long lists: hours without a limit.
        ("body.a > body.b", {"a": [0] * 60_000, "b": [1] * 60_000}),
        ("body.a like 'x' or " * 99 + "body.a is null", {"a": [None] * 60_000}),
        ("not body.items.sku = 'x' and " * 60 + "tags = 'paid'", {"items": [{}] * 60_000}),
        ("not (" + " or ".join(["body like '%" + "_" * 150 + "x%'"] * 10) + ")", {}),
        # As deep as a body can be.
        ("body.a.b = 1", {"a": nest(900)}),
    ],
)
def test_a_message_cannot_make_a_filter_slow(text: str, body: dict[str, Any]) -> None:
    """It is not matched and counted; the next one is looked at as ever."""
    filter = parse_filter(text)
    begin = time.process_time()
    assert not filter.matches({**FIELDS, "decoded": body, "body": "a" * 250_000})
    assert time.process_time() - begin < 5
    assert filter.too_large == 1
    filter.matches(FIELDS)
    assert filter.too_large == 1

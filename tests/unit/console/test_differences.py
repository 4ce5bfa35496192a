"""What differs between two values of the audit log, as lines for its page."""

from __future__ import annotations

import json
import re

from eruca._console.auditing.pages import draw_differences


def read(before: object, after: object) -> list[str]:
    drawn = draw_differences(json.dumps(before), json.dumps(after))
    return [re.sub(r"<[^>]+>", "", line) for line in re.findall(r"<li>(.*?)</li>", drawn)]


def test_only_what_differs_is_shown() -> None:
    before = {"broker-a": {"queues": 4, "permission": "RW"}}
    assert read(before, {"broker-a": {"queues": 6, "permission": "RW"}}) == ["broker-a queues 4 → 6"]
    assert read({"broker-a": None}, before) == ["broker-a queues 4", "broker-a permission RW"]
    assert read(before, {"broker-a": None}) == ["broker-a queues 4 → –", "broker-a permission RW → –"]  # noqa: RUF001
    assert read(before, before) == []


def test_many_differences_are_counted() -> None:
    assert read({}, {str(number): number for number in range(10)})[-1] == "+4"


def test_values_are_escaped_and_need_not_be_json() -> None:
    drawn = draw_differences("<b>", json.dumps({"<i>": "<script>"}))
    assert "<b>" not in drawn and "<i>" not in drawn and "<script>" not in drawn
    assert draw_differences("", "") == ""

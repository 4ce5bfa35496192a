"""What differs between two values of the audit log, as lines for its page."""

from __future__ import annotations

import json
import re

from eruca._console.auditing.pages import COLUMNS, draw_differences
from eruca._console.pages.texts import texts_of


def read(before: object, after: object, action: str = "", language: str = "en") -> list[str]:
    drawn = draw_differences(json.dumps(before), json.dumps(after), action, texts_of(language))
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
    drawn = draw_differences("<b>", json.dumps({"<i>": "<script>"}), "topic.change", texts_of("en"))
    assert "<b>" not in drawn and "<i>" not in drawn and "<script>" not in drawn
    assert draw_differences("", "", "", texts_of("en")) == ""


def test_values_have_the_labels_of_the_forms() -> None:
    rule = {"name": "late", "kind": "lag", "threshold": 100.0, "duration": 60.0, "channels": [1, 2], "enabled": True}
    assert read(None, rule, "alarm.rule.create") == [
        "Name late",
        "Watches waiting messages",
        "Fires from this value on 100",
        "For at least 1 min",
        "Delivered to 1, 2",
        "Enabled yes",
    ]
    user = {"console": {"role": "viewer", "rights": ["topic * none", "topic shop- viewer"], "disabled": False}}
    assert read(None, user, "user.create", "zh") == [
        f"{texts_of('zh')('users.role')} {texts_of('zh')('users.role.viewer')}",
        f"{texts_of('zh')('users.grants')} topic * none, topic shop- viewer",
        f"{texts_of('zh')('users.disabled')} {texts_of('zh')('app.no')}",
    ]


def test_outcomes_and_reasons_are_translated() -> None:
    texts = texts_of("zh")
    named = {column.key: column.texts for column in COLUMNS}
    for outcome in ("done", "failed", "unchanged", "planned", "refused"):
        assert texts.has(f"{named['outcome']}.{outcome}"), outcome
    assert texts(f"{named['reason']}.password") == "使用密码"

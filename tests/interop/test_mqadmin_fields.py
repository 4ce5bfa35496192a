"""The tool of `test_mqadmin_commands.py` finds every difference between the answers."""

from __future__ import annotations

from typing import cast

import pytest

from tests.interop.mqadmin import JAVA, OURS, Answer, Ask, Side, find_differences, parse_fields

TABLE = "#Broker Name  #QID  #Max Offset\nbroker-a      0     5\nbroker-a      1     7\n"
WANTED = Answer(parse_fields(TABLE), failed=False)


class FakeSide:
    """A system whose answers are given, by tool."""

    def __init__(self, kind: str, **answers: Answer) -> None:
        self.kind = kind
        self._answers = answers

    def answer(self, ask: Ask, tool: str) -> Answer:
        """What the tool is to say."""
        return self._answers.get(tool, WANTED)


def compare(answer: Answer, *, tool: str = OURS, kind: str = "eruca", refused: str = "") -> str:
    """What differs if one tool on one system answers something else than the others."""
    sides = [FakeSide(each, **({tool: answer} if each == kind else {})) for each in ("eruca", "java")]
    return find_differences(cast("list[Side]", sides), [Ask("topicStatus -t orders", refused=refused)])


def test_texts_are_cut_into_fields() -> None:
    assert parse_fields(TABLE)[1:] == [
        {"Broker Name": "broker-a", "QID": "0", "Max Offset": "5"},
        {"Broker Name": "broker-a", "QID": "1", "Max Offset": "7"},
    ]
    assert parse_fields("Queue ID:   3\nperm = RW\n") == [{"Queue ID": "3"}, {"perm": "RW"}]
    assert parse_fields('{"table":{0:"a"}}') == [{"table": {"0": "a"}}]
    assert parse_fields("create topic to b success.\n") == [["create", "topic", "to", "b", "success."]]


def test_the_same_answers_do_not_differ() -> None:
    assert compare(WANTED) == ""


@pytest.mark.parametrize(("tool", "kind"), [(OURS, "eruca"), (OURS, "java"), (JAVA, "eruca")])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TABLE.replace("7", "8"), '"Max Offset": "8"'),
        (TABLE.replace("broker-a      1     7\n", ""), "lacks"),
        (TABLE + "broker-b      0     1\n", '"broker-b"'),
        (TABLE.replace("#QID", "#Queue"), '"Queue"'),
        ("", "lacks"),
    ],
    ids=["another value", "a row less", "a row more", "another heading", "nothing"],
)
def test_a_difference_is_found(tool: str, kind: str, text: str, said: str) -> None:
    assert said in compare(Answer(parse_fields(text), failed=False), tool=tool, kind=kind)


def test_all_are_compared_with_the_official_tool_on_java() -> None:
    found = compare(Answer(parse_fields("nothing to show\n"), failed=False), tool=JAVA, kind="java")
    for who in (f"{JAVA} on eruca", f"{OURS} on java", f"{OURS} on eruca"):
        assert f"{who}: lacks" in found


def test_another_order_and_a_failure_are_differences() -> None:
    turned = Answer([WANTED.fields[0], *reversed(WANTED.fields[1:])], failed=False)
    assert "another order" in compare(turned)
    assert "failed: True" in compare(Answer(WANTED.fields, failed=True))
    assert "is not refused" in compare(WANTED, refused="it has secrets")
    assert compare(Answer([], failed=True), refused="it has secrets", kind="java").count("is not refused") == 1

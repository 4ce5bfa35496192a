"""Offsets as JSON: what a checkpoint keeps, and what users write."""

from __future__ import annotations

import json

import pytest

from eruca._spark.offsets import QueueTree, decode_offsets, encode_offsets, read_offset, read_tree
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError, OffsetLost

A0, A1, A10 = (MessageQueue("broker-a", number, "orders") for number in (0, 1, 10))
B0 = MessageQueue("broker-b", 0, "orders")
P0 = MessageQueue("broker-a", 0, "payments")


def test_the_text_does_not_depend_on_the_order_of_the_queues() -> None:
    offsets = {P0: 5, A10: 3, B0: 4, A1: 2, A0: 1}
    one = json.dumps(encode_offsets(offsets, group="g"))
    other = json.dumps(encode_offsets(dict(sorted(offsets.items())), group="g"))
    assert one == other
    assert json.loads(one) == {
        "group": "g",
        "topics": {
            "orders": {"broker-a": {"0": 1, "1": 2, "10": 3}, "broker-b": {"0": 4}},
            "payments": {"broker-a": {"0": 5}},
        },
    }
    assert decode_offsets(one) == decode_offsets(json.loads(one)) == offsets


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"topics": {"t": 1}}', '{"topics": {"t": {"b": {"x": 1}}}}', "3"])
def test_what_is_no_checkpoint_of_ours(text: str) -> None:
    with pytest.raises(OffsetLost, match="no offsets of this source"):
        decode_offsets(text)


def test_a_value_counts_for_everything_below_it() -> None:
    tree = read_tree(
        '{"orders": {"broker-a": {"0": 7, "1": "latest"}, "broker-b": -2}, "payments": 9}', read_offset, ""
    )
    assert [tree.find(queue) for queue in (A0, A1, A10, B0, P0)] == [7, -1, None, -2, 9]
    assert tree.find(MessageQueue("broker-c", 0, "orders")) is None
    assert tree.find(MessageQueue("broker-a", 0, "refunds")) is None
    assert sorted(tree.list_values()) == [-2, -1, 7, 9]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "expected for example"),
        ("{}", "expected for example"),
        ('{"t": {"b": {"x": 1}}}', "a queue is a number"),
        ('{"t": {"b": {"0": {"y": 1}}}}', "deeper than topic, broker and queue"),
        ('{"t": {"b": {"0": -3}}}', "is not an offset"),
        ('{"t": {"b": {"0": 1.5}}}', "is not an offset"),
        ('{"t": {"b": {"0": true}}}', "is not an offset"),
        ('{"t": "soon"}', "is not an offset"),
    ],
)
def test_wrong_trees(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_tree(text, read_offset, "an example")


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({"order": 1}, r"startingOffsets contains order, which is not a topic .*did you mean orders"),
        ({"orders": {"broker-aa": 1}}, r"not a broker of orders .*did you mean broker-a"),
        ({"orders": {"broker-a": {"7": 1}}}, r"contains 7, which is not a queue of orders on broker-a .*0, 1, 10"),
    ],
)
def test_names_that_are_not_read_are_refused(tree: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        QueueTree(tree).check("startingOffsets", [A0, A1, A10, B0, P0])
    QueueTree({"orders": {"broker-b": {"0": 3}}, "payments": 1}).check("startingOffsets", [A0, B0, P0])

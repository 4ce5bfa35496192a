"""The comparison of shapes distinguishes same from different; otherwise the replays would prove nothing."""

from __future__ import annotations

import pytest

from eruca._wire.codes import SerializeType
from eruca._wire.frame import Command
from tests.golden.shapes import compare_answers, compare_bodies

SAME = [
    (b"", b""),
    (b'{"a":1,"b":"x"}', b'{"b":"other","a":2}'),
    (b'{"topicList":["a"]}', b'{"topicList":[]}'),
    (b'{"topicList":[]}', b'{"topicList":["a"]}'),
    (b'{"table":{"a":"x"}}', b'{"table":{"b":"y","c":"z"}}'),
    (b'{"brokerAddrs":{0:"x"}}', b'{"brokerAddrs":{"1":"y"}}'),
    (b'{"o":{{"brokerName":"b","queueId":0,"topic":"T"}:{"n":1}}}', b'{"o":{}}'),
    (b'{"l":[{"a":1},{"a":1,"b":2}]}', b'{"l":[{"a":3,"b":4}]}'),
    (b"a=1\nb=2\n", b"b=x\nc=y\na=\n"),
    (b"\x00\x01", b"\xff\xfe\x00"),
]
DIFFERENT = [
    (b"", b"{}"),
    (b'{"a":1}', b'{"a":"1"}'),
    (b'{"a":1}', b'{"a":1.0}'),
    (b'{"a":1}', b'{"a":true}'),
    (b'{"a":1}', b'{"a":1,"b":2}'),
    (b'{"a":1,"b":2}', b'{"a":1}'),
    (b'{"a":{"b":{"c":1}}}', b'{"a":{"b":{"d":1}}}'),
    (b'{"table":{"a":"x"}}', b'{"table":{"b":1}}'),
    (b'{"l":[{"a":1}]}', b'{"l":[{"a":1},{"b":1}]}'),
    (b'{"l":[1]}', b'{"l":{}}'),
    (b"a=1\nb=2\n", b"a=1\n"),
    (b'{"a":1}', b"a=1\n"),
]


@pytest.mark.parametrize(("java", "ours"), SAME)
def test_same_shape(java: bytes, ours: bytes) -> None:
    assert list(compare_bodies(java, ours)) == []


@pytest.mark.parametrize(("java", "ours"), DIFFERENT)
def test_different_shape(java: bytes, ours: bytes) -> None:
    assert len(list(compare_bodies(java, ours))) == 1


def test_code_and_header_count() -> None:
    java = Command(0, ext={"a": "1"}, body=b"{}")
    assert compare_answers(java, Command(0, ext={"a": "2"}, body=b"{}")) == []
    others = [
        Command(1, ext={"a": "1"}, body=b"{}"),
        Command(0, ext={"b": "1"}, body=b"{}"),
        Command(0, ext={"a": "1"}, body=b"{}", serialization=SerializeType.ROCKETMQ),
        Command(0, ext={"a": "1"}),
    ]
    for other in others:
        assert len(compare_answers(java, other)) == 1
    assert compare_answers(Command(0, ext={}), Command(0)) == ["extFields: Java has map"]

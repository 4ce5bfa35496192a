"""Names: what may become a directory."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.names import (
    DLQ_PREFIX,
    FORBIDDEN_TO_SEND,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    check_group,
    check_topic,
    is_system_topic,
)
from eruca.errors import InvalidName


@pytest.mark.parametrize(
    "name",
    [
        *("a", "TBW102", "order-events_2", f"{RETRY_PREFIX}g", f"{DLQ_PREFIX}g", "%LMQ%a|b", "-", "t" * 127),
        *(SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC),
    ],
)
def test_a_good_name_is_given_back(name: str) -> None:
    assert check_topic(name) == name
    assert check_group(name) == name


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "empty"),
        ("t" * 128, "128 characters, the maximum is 127"),
        ("a/b", "character"),
        ("..", "character"),
        (".", "character"),
        ("a.b", "character"),
        ("a b", "character"),
        ("a\n", "character"),
        ("\na", "character"),
        ("a\0", "character"),
        ("é", "character"),
        ("٣", "character"),
        ("a\\b", "character"),
    ],
)
def test_a_bad_name_is_refused_with_the_rule(name: str, rule: str) -> None:
    with pytest.raises(InvalidName, match=rule):
        check_topic(name)


def test_a_group_may_be_longer_than_a_topic() -> None:
    assert check_group("g" * 255)
    with pytest.raises(InvalidName, match="the group name has 256 characters, the maximum is 255"):
        check_group("g" * 256)


@given(st.text(max_size=140))
def test_what_passes_is_one_path_part_of_ascii(name: str) -> None:
    try:
        check_topic(name)
    except InvalidName:
        return
    assert PurePosixPath(name).parts == (name,)
    assert name.isascii() and name not in (".", "..")
    assert len(name.encode()) <= 127


def test_topics_of_brokers_own_are_known_by_name_or_prefix() -> None:
    assert all(
        map(is_system_topic, [*FORBIDDEN_TO_SEND, "TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x"])
    )
    assert not any(map(is_system_topic, ["orders", "RMQ_SYS_OF_A_USER", "%RETRY%billing", "tbw102"]))

"""How deep maps and lists nest."""

from __future__ import annotations

from typing import Any

import pytest

from eruca._ground.nesting import nests_deeper


def nest(levels: int) -> Any:
    value: Any = 1
    for number in range(levels):
        value = {"a": value, "b": 2} if number % 2 else [3, value]
    return value


@pytest.mark.parametrize(
    ("value", "depth"), [(1, 0), ("[[", 0), ([0], 1), ({"a": 0}, 1), ({"a": [1, {"b": 2}]}, 3), (nest(90), 90)]
)
def test_each_map_and_list_is_a_level(value: Any, depth: int) -> None:
    assert not nests_deeper(value, depth)
    assert depth == 0 or nests_deeper(value, depth - 1)


def test_it_does_not_recurse() -> None:
    assert nests_deeper(nest(100_000), 99_999) and not nests_deeper(nest(100_000), 100_000)

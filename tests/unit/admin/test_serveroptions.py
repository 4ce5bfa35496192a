"""A server has taken an option whichever way it writes its value."""

from __future__ import annotations

import pytest

from eruca._admin.serveroptions import choose_options, list_different


@pytest.mark.parametrize(
    ("wanted", "told", "is_same"),
    [
        ("TRUE", "true", True),
        ("072", "72", True),
        (" 72 ", "72", True),
        ("debug", "DEBUG", True),
        ("72", "73", False),
        ("72", "x72", False),
        ("", "72", False),
    ],
)
def test_values_that_mean_the_same(wanted: str, told: str, is_same: bool) -> None:
    assert list_different({"key": wanted}, {"key": told, "other": "1"}) == ([] if is_same else ["key"])


def test_an_option_that_a_server_does_not_have() -> None:
    assert list_different({"a": "1", "b": "2"}, {"a": "1"}) == ["b"]
    assert choose_options({"a": "1", "c": "3"}, {"a": "9", "b": "2"}) == {"a": "1"}

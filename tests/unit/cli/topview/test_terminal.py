"""Keys as terminals send them."""

from __future__ import annotations

import pytest

from eruca._cli.topview.state import Key
from eruca._cli.topview.terminal import split_keys


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1b[Bj", [Key.UP, Key.DOWN, "j"]),
        ("\x1bOA", [Key.UP]),
        ("\x1b[5~\x1b[6~", [Key.PAGE_UP, Key.PAGE_DOWN]),
        ("\x1b", [Key.ESCAPE]),
        ("\r\t\x7f", [Key.ENTER, Key.TAB, Key.BACK]),
        ("\x1b[1;5Cq", ["q"]),  # Ctrl and right
        ("\x1b[<0;1;1Mq", ["q"]),  # a mouse
        ("\x1bxq", ["q"]),  # Alt and x
        ("\x1b[", []),
        ("", []),
    ],
)
def test_keys(sent: str, keys: list[str]) -> None:
    assert split_keys(sent) == keys

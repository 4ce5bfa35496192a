"""Receipt handles: the texts that Java's clients and proxies split."""

from __future__ import annotations

import pytest

from eruca._wire.handle import ORDERED_QUEUE, RETRY, Handle, decode_handle
from eruca.errors import WireError


def test_both_forms() -> None:
    handle = Handle(5, 1700000000000, 60000, ORDERED_QUEUE, RETRY, "broker-a", 3, 9, 4096)
    assert handle.encode_short() == "5 1700000000000 60000 999 1 broker-a 3 9"
    assert handle.encode() == "5 1700000000000 60000 999 1 broker-a 3 9 4096"
    assert decode_handle(handle.encode()) == handle
    assert decode_handle(handle.encode_short()).position == -1
    assert decode_handle(handle.encode_short()).encode() == handle.encode_short()
    assert handle.is_ordered
    assert handle.due_ms == 1700000060000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3",
        "1 2 3 4 5 b 6 7 8 9",
        "x 2 3 4 5 b 6 7",
        "-1 2 3 4 5 b 6 7",
        "1 2 3 4 5 b 6 ٣",
        "1" * 19 + " 2 3 4 5 b 6 7",
    ],
)
def test_a_text_that_is_none(text: str) -> None:
    with pytest.raises(WireError):
        decode_handle(text)

"""The log of popping: its items as bytes, which are on disks and must stay readable."""

from __future__ import annotations

import pytest

from eruca._wire.poplog import (
    Cursor,
    Forgotten,
    InOrder,
    Item,
    Mark,
    Moved,
    Ordered,
    Settled,
    Taken,
    decode_items,
    encode_items,
)
from eruca.errors import WireError

ITEMS: list[Item] = [
    Taken("g", "t", 0, 1, 100, 1700000000000, 60000, 132, [], 0xFFFFFFFF),
    Settled("g", "t", 1, 0, 100, 1700000000000, 5),
    Cursor("g", "t", 0, 1, 132),
    Ordered("g", "t", 0, 2, 7, 10, 20, "id", 9, [InOrder(7, 10, 30, 1), InOrder(8, 10, 30, 1, True)]),
    Moved("g", "t", 4096, "%RETRY%g_t", 0, 3, 1),
    Forgotten("g", ""),
    Mark(256),
]


def test_both_ways() -> None:
    assert decode_items(encode_items(ITEMS)) == ITEMS


def test_the_bytes() -> None:
    assert encode_items([Mark(256), Settled("g", "t", 0, 1, 100, 5, 3)]).hex() == ("929207cd01009802a167a1740001640503")


@pytest.mark.parametrize("data", [b"", b"\x91", b"\x91\x92\x63\x01", b"\xc0"])
def test_other_bytes(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_items(data)

"""Which address of a broker is the one in an offset id."""

from __future__ import annotations

import pytest

from eruca._client.session.cluster import _is_at
from eruca._wire.ids import OffsetId


@pytest.mark.parametrize(
    ("address", "ip", "port", "expected"),
    [
        ("10.0.0.1:10911", "10.0.0.1", 10911, True),
        ("10.0.0.1:10911", "10.0.0.1", 10912, False),
        ("10.0.0.1:10911", "10.0.0.2", 10911, False),
        ("[2001:db8::1]:10911", "2001:db8:0:0::1", 10911, True),
        ("localhost:10911", "127.0.0.1", 10911, True),
        ("localhost:10911", "127.0.0.2", 10911, False),
        ("no-such-host.invalid:10911", "127.0.0.1", 10911, False),
        ("", "127.0.0.1", 10911, False),
    ],
)
async def test_an_id_has_numbers_and_a_broker_may_have_a_name(address: str, ip: str, port: int, expected: bool) -> None:
    assert await _is_at(address, OffsetId(ip, port, 0)) is expected

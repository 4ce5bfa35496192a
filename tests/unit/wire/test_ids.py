"""Offset ids and unique ids."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.host import pack_host
from eruca._wire.ids import OffsetId, UniqueIds, decode_offset_id, decode_unique_id, encode_offset_id
from eruca.errors import WireError

POSITIONS = st.integers(0, (1 << 63) - 1)


class SetClock:
    """A clock that is set by the test."""

    def __init__(self, now: int) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


def find_ms(year: int, month: int, day: int, hour: int = 0) -> int:
    return int(time.mktime((year, month, day, hour, 0, 0, 0, 0, -1))) * 1000


def test_known_offset_ids() -> None:
    assert encode_offset_id(pack_host("127.0.0.1", 10911), 576) == "7F00000100002A9F0000000000000240"
    assert decode_offset_id("7F00000100002A9F0000000000000240") == OffsetId("127.0.0.1", 10911, 576)
    v6 = encode_offset_id(pack_host("2001:db8::1", 10911), 576)
    assert v6 == "20010DB800000000000000000000000100002A9F0000000000000240"
    assert decode_offset_id(v6) == OffsetId("2001:db8::1", 10911, 576)


@given(st.sampled_from(["10.0.0.1", "255.255.255.255", "fe80::1", "2001:db8::42"]), st.integers(0, 65535), POSITIONS)
def test_offset_ids_come_back(ip: str, port: int, position: int) -> None:
    text = encode_offset_id(pack_host(ip, port), position)
    assert len(text) == (56 if ":" in ip else 32)
    assert decode_offset_id(text) == decode_offset_id(text.lower()) == OffsetId(ip, port, position)


@pytest.mark.parametrize("text", ["", "7F", "X" * 32, "0" * 31, "0" * 33, "0" * 40, " " * 32, "00 " * 16, "é" * 32])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(WireError, match="is not a message id"):
        decode_offset_id(text)
    with pytest.raises(WireError, match="is not a message id"):
        decode_unique_id(text, 0)


def test_a_java_unique_id_decodes() -> None:
    since_month = 0x4996EF14
    now = find_ms(2026, 11, 30)
    decoded = decode_unique_id("7F00000115625FFD2B274996EF140007", now)
    assert (decoded.ip, decoded.pid, decoded.salt, decoded.counter) == ("127.0.0.1", 0x1562, 0x5FFD2B27, 7)
    assert decoded.timestamp == find_ms(2026, 11, 1) + since_month
    # Seen on the second of December, the same id must be of November: this December it is not that late yet.
    assert decode_unique_id("7F00000115625FFD2B274996EF140007", find_ms(2026, 12, 2)).timestamp == decoded.timestamp


@pytest.mark.parametrize("ip", ["192.168.7.9", "fe80::7"])
def test_unique_ids_have_the_java_layout(ip: str) -> None:
    clock = SetClock(find_ms(2026, 10, 31, 23) + 123)
    ids = UniqueIds(ip, 0x12345, clock, salt=0xDEADBEEF)
    text = ids.create()
    assert len(text) == (56 if ":" in ip else 32)
    assert text == text.upper()
    decoded = decode_unique_id(text, clock.now)
    assert (decoded.ip, decoded.pid, decoded.salt) == (ip, 0x2345, 0xDEADBEEF)
    assert (decoded.timestamp, decoded.counter) == (clock.now, 0)
    assert decode_unique_id(ids.create(), clock.now).counter == 1


def test_the_month_turns() -> None:
    clock = SetClock(find_ms(2026, 12, 31, 23) + 3_599_999)
    ids = UniqueIds("127.0.0.1", 1, clock)
    assert decode_unique_id(ids.create(), clock.now).timestamp == clock.now
    clock.now += 1
    first = ids.create()
    assert first[20:28] == "00000000"
    assert decode_unique_id(first, clock.now).timestamp == find_ms(2027, 1, 1) == clock.now


def test_ids_differ_between_processes_and_when_the_clock_steps_back() -> None:
    clock = SetClock(find_ms(2026, 11, 15))
    one = UniqueIds("172.17.0.2", 1, clock)
    other = UniqueIds("172.17.0.2", 1, clock)
    # 2**-32 that two random salts are equal.
    assert one.create() != other.create()
    seen = {one.create() for _ in range(65536)}
    assert len(seen) == 65536
    clock.now -= 1
    before = one.create()
    assert before[12:20] != next(iter(seen))[12:20]
    # Even into the month before.
    clock.now = find_ms(2026, 10, 31)
    assert decode_unique_id(one.create(), clock.now).timestamp == clock.now

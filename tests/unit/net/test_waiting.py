"""Which connection makes room for a newcomer."""

from __future__ import annotations

import pytest

from eruca._net.waiting import Waiting, choose_to_go


@pytest.fixture
def waiting() -> Waiting[str]:
    found: Waiting[str] = Waiting()
    for number, host in enumerate(["10.0.0.1", "10.0.0.2", "2001:db8::1", "10.0.0.2", "2001:db8::2"]):
        found.add(f"{number}", host)
    return found


@pytest.mark.parametrize(
    ("host", "chosen"),
    [("10.0.0.2", "1"), ("10.0.0.1", "0"), ("10.0.0.3", "0"), ("2001:db8::ffff", "2"), ("2001:db9::1", "0")],
)
def test_the_oldest_of_ones_own_address_goes(waiting: Waiting[str], host: str, chosen: str) -> None:
    """An IPv6 network of 64 bits has one owner, who can use any number of addresses."""
    assert waiting.choose(host) == chosen


@pytest.mark.parametrize(
    ("host", "chosen"), [("10.0.0.2", "1"), ("10.0.0.3", None), ("2001:db8::ffff", "2"), ("2001:db9::1", None)]
)
def test_the_oldest_of_an_address(waiting: Waiting[str], host: str, chosen: str | None) -> None:
    assert waiting.choose_from(host) == chosen


def test_what_is_gone_makes_no_room(waiting: Waiting[str]) -> None:
    assert waiting.discard("1") and not waiting.discard("1")
    assert waiting.choose("10.0.0.2") == "3"
    assert "1" not in waiting and list(waiting) == ["0", "2", "3", "4"]
    for item in list(waiting):
        waiting.discard(item)
    assert waiting.choose("10.0.0.2") is None and len(waiting) == 0 and not waiting._of


def test_of_a_few() -> None:
    assert choose_to_go([("a", "10.0.0.1"), ("b", "10.0.0.2")], "10.0.0.2") == "b"
    assert choose_to_go([], "10.0.0.2") is None

"""Who may connect: by address, where an IPv6 network counts as one."""

from __future__ import annotations

import pytest

from eruca._net.admission import Admission
from eruca._net.limitoptions import LimitOptions
from eruca._net.link import Link
from eruca._net.networks import find_network
from eruca._observe.metrics import SERVER
from eruca.errors import RequestRefused
from tests.unit.net.test_link import make_link


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
    ],
)
def test_what_counts_as_one_address(host: str, network: str) -> None:
    assert find_network(host) == network


def make_from(host: str) -> Link:
    link, _, _ = make_link()
    link.peer_host = (host, 1)
    return link


async def test_each_address_has_its_own_room_and_what_leaves_makes_room() -> None:
    limits = LimitOptions(connections_max=4, connections_per_address_max=2)
    admission = Admission(lambda: limits, lambda: 0.0)
    first = [make_from("10.0.0.1") for _ in range(3)]
    assert [bool(admission.enter(link)) for link in first] == [False, False, True]
    assert [bool(admission.enter(make_from("2001:db8::1"))) for _ in range(3)] == [False, False, True]
    assert "serverMaxConnections allows" in admission.enter(make_from("10.0.0.3"))
    assert (len(admission), SERVER.snapshot()["eruca_server_connections"] >= 4) == (4, True)
    admission.leave(first[2])  # it never entered
    admission.leave(first[0])
    admission.leave(first[0])
    assert len(admission) == 3
    assert admission.enter(make_from("10.0.0.1")) == ""


async def test_an_address_is_forgotten_when_its_requests_would_be_allowed_again() -> None:
    now = [0.0]
    limits = LimitOptions(refusals_per_second_max=2)
    admission = Admission(lambda: limits, lambda: now[0])

    def refuse_all(link: Link) -> int:
        for number in range(10):
            try:
                admission.on_stranger(link)
            except RequestRefused:
                return number
        return 10

    for again in range(3):  # reconnecting does not help
        link = make_from("10.0.0.1")
        assert admission.enter(link) == ""
        assert refuse_all(link) == (0 if again else 2)
        admission.leave(link)
        admission.forget_addresses()
    assert len(admission._addresses) == 1
    now[0] = 2.0  # three too many were sent, so it takes longer
    assert admission.enter(link) == ""
    assert refuse_all(link) == 1
    admission.leave(link)
    now[0] = 4.0
    admission.forget_addresses()
    assert not admission._addresses
    admission.on_stranger(link)  # a connection that is gone


async def test_the_more_an_address_exceeds_the_limit_the_longer_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(Link, "pause_for", lambda link, seconds: pauses.append(seconds))
    limits = LimitOptions(refusals_per_second_max=10)
    admission = Admission(lambda: limits, lambda: 0.0)
    links = [make_from("10.0.0.1") for _ in range(500)]
    for link in links:
        assert admission.enter(link) == ""
        try:
            admission.on_stranger(link)
        except RequestRefused as refusal:
            assert "more than 10 refused requests in a second" in refusal.remark
    assert len(pauses) == 490 and pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1.0, 10.0)

"""The gate that acknowledgements pass, and where a slave looks for its master."""

from __future__ import annotations

import pytest

from eruca._broker.options import BrokerOptions
from eruca._broker.replication.acknowledging import Gate
from eruca._broker.replication.masteraddress import NOWHERE, MasterAddress
from eruca._broker.standing import Standing
from eruca._testing.clock import VirtualClock


def test_the_gate_is_open_while_the_lease_lives() -> None:
    clock = VirtualClock()
    gate = Gate(clock)
    assert not gate.is_open()
    gate.open_until(2.0)
    clock.advance(1999)
    assert gate.is_open()
    clock.advance(1)
    assert not gate.is_open()
    gate.open_until(10.0)
    gate.close()
    assert not gate.is_open()


@pytest.mark.parametrize(
    ("ha_master", "place", "expected"),
    [
        ("", NOWHERE, NOWHERE),
        ("", ("10.0.0.2:10911", ""), ("10.0.0.2:10911", "10.0.0.2:10912")),
        ("", ("10.0.0.2:10911", "10.0.0.3:20912"), ("10.0.0.2:10911", "10.0.0.3:20912")),
        ("10.0.0.4:10912", ("10.0.0.2:10911", "10.0.0.3:20912"), ("10.0.0.2:10911", "10.0.0.4:10912")),
        ("10.0.0.4:10912", NOWHERE, ("10.0.0.4:10911", "10.0.0.4:10912")),
        ("nowhere", NOWHERE, ("", "nowhere")),
        ("", ("10.0.0.1:10911", ""), NOWHERE),
    ],
)
def test_a_slave_finds_service_and_log_of_its_master_but_never_itself(
    ha_master: str, place: tuple[str, str], expected: tuple[str, str]
) -> None:
    options = BrokerOptions(host="10.0.0.1", port=10911, ha_master=ha_master)
    master = MasterAddress(options, Standing(options))
    master.take(place)
    assert master.find() == expected

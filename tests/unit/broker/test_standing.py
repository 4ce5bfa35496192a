"""The current state of a broker, and the options in force: the two things that change while it runs."""

from __future__ import annotations

import dataclasses

import pytest

from eruca._broker.options import BrokerOptions, BrokerRole, LiveOptions
from eruca._broker.standing import Standing
from eruca._wire.host import pack_host
from eruca._wire.names import FENCED, MASTER, SLAVE
from eruca.errors import WireError


def make_standing(**options: object) -> Standing:
    return Standing(BrokerOptions(**{"host": "10.0.0.1", "port": 0, **options}))  # type: ignore[arg-type]


def test_options_are_never_written() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BrokerOptions().port = 1  # type: ignore[misc]


def test_a_change_of_options_is_seen_by_who_asks_again() -> None:
    given = BrokerOptions(permission=6, name="b")
    live = LiveOptions(given)
    live.change(permission=4)
    assert (live.now.permission, live.now.name, given.permission) == (4, "b", 6)


def test_a_broker_that_starts_takes_nothing() -> None:
    standing = make_standing(role=BrokerRole.SYNC_MASTER)
    assert (standing.state, standing.writable, standing.epoch) == (FENCED, False, None)
    assert standing.reason


def test_the_port_is_known_when_the_broker_listens() -> None:
    standing = make_standing(ha_host="10.0.0.2")
    standing.listen(20911)
    assert (standing.address, standing.ha_address) == ("10.0.0.1:20911", "10.0.0.2:20912")
    assert standing.store_host == pack_host("10.0.0.1", 20911)


def test_a_host_that_is_not_an_address_is_refused_when_the_broker_starts() -> None:
    standing = make_standing(host="member0")
    assert standing.address == "member0:0"
    with pytest.raises(WireError, match="member0"):
        standing.listen(20911)


def test_a_master_registers_when_it_leads_and_not_before() -> None:
    standing = make_standing(role=BrokerRole.SLAVE, broker_id=3)
    standing.prepare_to_lead(BrokerRole.SYNC_MASTER)
    assert (standing.broker_id, standing.may_register, standing.writable) == (0, False, False)
    assert standing.is_sync and not standing.is_slave
    standing.lead(7, "store")
    assert (standing.state, standing.epoch, standing.store_id, standing.reason) == (MASTER, 7, "store", "")
    assert standing.may_register and standing.writable


def test_a_fenced_broker_keeps_what_it_was_but_takes_nothing() -> None:
    standing = make_standing(role=BrokerRole.SYNC_MASTER)
    standing.lead(7, "store")
    standing.fence("somebody says so")
    assert (standing.state, standing.reason) == (FENCED, "somebody says so")
    assert (standing.role, standing.epoch) == (BrokerRole.SYNC_MASTER, 7)
    assert not standing.writable and not standing.may_register


def test_a_slave_registers_with_an_id_of_its_own_only() -> None:
    standing = make_standing()
    standing.lead(7, "store")
    standing.fence("it was replaced")
    standing.prepare_to_follow()
    standing.follow("it was replaced")
    assert standing.is_slave and (standing.state, standing.epoch, standing.writable) == (SLAVE, None, False)
    registered = []
    for wanted in (0, 2, -1):
        standing.take_id(wanted)
        registered.append((standing.may_register, standing.broker_id))
    assert registered == [(False, 0), (True, 2), (False, 2)]

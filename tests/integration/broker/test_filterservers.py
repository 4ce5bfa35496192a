"""Filter servers register with a broker that accepts them, appear in its routes, and are removed when they stop."""

from __future__ import annotations

import pytest

from eruca._testing.clock import VirtualClock
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import RegisterFilterServerHeader
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.test_registration import MakeNames, make_names
from tests.unit.net.rawpeer import turn_until

__all__ = ["make_names"]

CODE = RequestCode.REGISTER_FILTER_SERVER
FIRST, SECOND, THIRD = (RegisterFilterServerHeader(filter_server_addr=f"10.0.0.{n}:30000") for n in (1, 2, 3))


async def test_none_is_taken_by_default(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker()
    answer = await make_peer(broker).ask(CODE, FIRST)
    assert (answer.code, "filterServerNums" in (answer.remark or "")) == (ResponseCode.NO_PERMISSION, True)
    assert broker.filter_servers.list_addresses() == []


async def test_as_many_as_allowed_are_in_the_route_until_they_go(
    make_names: MakeNames, make_broker: MakeBroker, make_peer: MakePeer
) -> None:
    names = await make_names()
    broker = await make_broker(nameservers=names.address, filter_servers_max=2, register_interval_ms=3_600_000)

    def in_route() -> dict[str, list[str]]:
        route = names.routes.find_route("TBW102")
        assert route is not None
        return route.filter_server_table

    peer, other = make_peer(broker), make_peer(broker)
    answer = await peer.expect(CODE, FIRST)
    assert (answer.header.broker_name, answer.header.broker_id) == ("broker-a", 0)
    await other.expect(CODE, SECOND)
    await peer.expect(CODE, FIRST)
    assert (await peer.ask(CODE, THIRD)).code == ResponseCode.NO_PERMISSION
    both = {broker.standing.address: ["10.0.0.1:30000", "10.0.0.2:30000"]}
    await turn_until(lambda: in_route() == both)
    await peer.close()
    await turn_until(lambda: in_route() == {broker.standing.address: ["10.0.0.2:30000"]})
    await other.close()
    await turn_until(lambda: in_route() == {})


async def test_a_silent_one_is_forgotten(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, filter_servers_max=2, client_scan_ms=10)
    peer = make_peer(broker)
    await peer.expect(CODE, FIRST)
    clock.advance(20_000)
    await peer.expect(CODE, SECOND)
    clock.advance(20_000)
    await turn_until(lambda: broker.filter_servers.list_addresses() == ["10.0.0.2:30000"])
    assert (await peer.expect(CODE, FIRST)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("address", ["", "nowhere", "a:1;b:2", f"{'x' * 300}:1"])
async def test_what_is_no_address_is_refused(make_broker: MakeBroker, make_peer: MakePeer, address: str) -> None:
    broker = await make_broker(filter_servers_max=2)
    answer = await make_peer(broker).ask(CODE, RegisterFilterServerHeader(filter_server_addr=address))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert broker.filter_servers.list_addresses() == []

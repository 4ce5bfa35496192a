"""Replication metrics follow the state of a broker, and what is gone is no longer shown."""

from __future__ import annotations

from eruca._broker.replication.meters import REGISTRY, ReplicationMeter
from eruca._observe.metrics import Registry
from eruca._wire.bodies import ReplicationState
from eruca._wire.bodies.replication import DivergedTail, FollowedMaster, SlaveState
from eruca._wire.codes import RequestCode
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.unit.client.scripted import wait_until


def make(**fields: object) -> ReplicationState:
    state = ReplicationState(broker_name="a", address="h:1", epoch=3, role="MASTER", tail=100)
    for name, value in fields.items():
        setattr(state, name, value)
    return state


def read(registry: Registry) -> dict[str, float]:
    """All values without what every name has in common."""
    same = 'broker="a",cluster="c",member="h:1"'
    return {
        key.removeprefix("eruca_broker_replication_").replace(f"{{{same}}}", "").replace(f"{same},", ""): value
        for key, value in registry.snapshot().items()
    }


def test_a_master_shows_its_slaves() -> None:
    registry = Registry("eruca_broker_")
    meter = ReplicationMeter("c", registry)
    slaves = [
        SlaveState(address="s:1", lag_bytes=10, lag_ms=1500, in_sync=True),
        SlaveState(address="s:2", lag_bytes=20, lag_ms=0),
    ]
    meter.show(make(slaves=slaves, diverged=[DivergedTail(file="f")]))
    assert read(registry) == {
        'role{role="MASTER"}': 1,
        'role{role="SLAVE"}': 0,
        'role{role="FENCED"}': 0,
        "epoch": 3,
        "log_end_bytes": 100,
        "slaves": 2,
        "slaves_in_sync": 1,
        "connected": 1,
        "diverged_files": 1,
        'lag_bytes{slave="s:1"}': 10,
        'lag_seconds{slave="s:1"}': 1.5,
        'lag_bytes{slave="s:2"}': 20,
        'lag_seconds{slave="s:2"}': 0,
    }
    meter.show(make(slaves=slaves[1:]))
    assert [key for key in read(registry) if key.startswith("lag")] == [
        'lag_bytes{slave="s:2"}',
        'lag_seconds{slave="s:2"}',
    ]


def test_a_slave_shows_itself() -> None:
    registry = Registry("eruca_broker_")
    meter = ReplicationMeter("c", registry)
    meter.show(make(slaves=[SlaveState(address="s:1")]))
    followed = FollowedMaster(address="m:1", connected=False, lag_bytes=7, lag_ms=250)
    meter.show(make(role="SLAVE", master=followed))
    values = read(registry)
    assert (values["connected"], values['lag_bytes{slave="h:1"}'], values['lag_seconds{slave="h:1"}']) == (0, 7, 0.25)
    assert 'lag_bytes{slave="s:1"}' not in values and values['role{role="SLAVE"}'] == 1


def test_a_broker_that_stops_or_moves_leaves_nothing_behind() -> None:
    registry = Registry("eruca_broker_")
    meter = ReplicationMeter("c", registry)
    meter.show(make(slaves=[SlaveState(address="s:1")]))
    meter.show(make(address="h:2"))
    assert all('member="h:2"' in key for key in registry.snapshot())
    meter.close()
    meter.close()
    assert registry.snapshot() == {}


async def test_a_running_broker_shows_itself(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(name="shown")
    table = (await make_peer(broker).expect(RequestCode.GET_BROKER_RUNTIME_INFO)).body.table
    assert (table["erucaRole"], table["erucaEpoch"], table["erucaSlaves"]) == ("MASTER", "1", "0")
    assert "erucaLagBytes" not in table
    names = f'broker="broker-a",cluster="DefaultCluster",member="{broker.standing.address}"'
    key = f'eruca_broker_replication_role{{{names},role="MASTER"}}'
    await wait_until(lambda: REGISTRY.snapshot().get(key) == 1)
    await broker.stop()
    assert key not in REGISTRY.snapshot()

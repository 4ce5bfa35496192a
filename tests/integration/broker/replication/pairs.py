"""A master and its slaves in one process, on loopback, with intervals that tests can wait for."""

from __future__ import annotations

from typing import Any

from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from tests.integration.broker.conftest import MakeBroker
from tests.unit.store.samples import wait_for

# Short, so that no test waits long, but never shorter than what a test measures.
INTERVALS: dict[str, Any] = {"ha_reconnect_ms": 20, "ha_metadata_ms": 50, "ha_catch_up_bytes": 0}


async def make_slave(make_broker: MakeBroker, master: Broker, number: int = 1, **options: Any) -> Broker:
    """A broker that follows another one."""
    usual = INTERVALS | {"name": f"slave-{number}", "role": BrokerRole.SLAVE, "broker_id": number}
    host, port = master.options.host, master.standing.port
    usual["ha_master"] = f"{host}:{port + 1}"
    return await make_broker(**usual | options)


async def wait_until_equal(master: Broker, *slaves: Broker) -> None:
    """Wait until slaves have the log of their master, and it knows."""
    tail = master.store.log.readable_end
    for slave in slaves:
        await wait_for(lambda slave=slave: slave.store.log.readable_end >= tail)  # type: ignore[misc]
    await wait_for(lambda: all(link.position >= tail for link in master.replication.server.links))


def read_log(broker: Broker) -> bytes:
    """All of a broker's log."""
    commitlog = broker.store.log
    found = commitlog.read_bytes(commitlog.start, commitlog.readable_end)
    assert found is not None
    return found

"""Brokers of one name with a name server, in this process, with short intervals: the basis of the role tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eruca._access.options import AccessOptions
from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions, BrokerRole
from eruca._ground.clock import Clock, SystemClock
from eruca._ground.config import StoreOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._net.tlsoptions import TlsOptions
from eruca._wire.signature import Credentials
from tests.integration.broker.peer import Peer, find_port
from tests.patience import PATIENCE_S

HURRY: dict[str, Any] = {
    "register_interval_ms": 200,
    "ha_heartbeat_ms": 100,
    "ha_reconnect_ms": 20,
    "ha_metadata_ms": 20,
    # No test waits for it: members that are up respond, however busy the machine is.
    "slave_timeout_ms": 8000,
    "transaction_check_interval_ms": 3_600_000,
}


async def wait_until(is_so: Callable[[], object], what: str = "") -> None:
    """Wait until a condition holds."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():  # noqa: ASYNC110 - whatever it is tells nobody
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not so after {PATIENCE_S} s: {what or is_so}") from None


class ShiftedClock(SystemClock):
    """The system's time plus a shift, so that tests need not wait."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch, shifted."""
        return super().now_ms() + self.shift_ms

    def monotonic(self) -> float:
        """Seconds, shifted as well: time has passed, and no clock was set."""
        return super().monotonic() + self.shift_ms / 1000


class Group:
    """The members of one broker name, their name server, and their clients."""

    def __init__(self, root: Path, access: AccessOptions | None = None, tls: TlsOptions | None = None) -> None:
        """`access` and `tls` are those of the name server."""
        self._root = root
        self.nameserver = NameServer(
            NameServerOptions(
                listen_port=0,
                kv_config_path=str(root / "kv.json"),
                config_store_path=str(root / "namesrv.conf"),
            ),
            access=access,
            tls=tls,
        )
        self._running: list[Broker] = []
        self._peers: list[Peer] = []

    async def start(self) -> None:
        """Start the name server."""
        await self.nameserver.start()

    async def stop(self) -> None:
        """Stop everything."""
        for peer in self._peers:
            await peer.close()
        for broker in self._running:
            await broker.stop()
        await self.nameserver.stop()

    async def add(
        self,
        number: int,
        role: BrokerRole | None = None,
        *,
        clock: Clock | None = None,
        access: AccessOptions | None = None,
        tls: TlsOptions | None = None,
        **options: Any,
    ) -> Broker:
        """Start a member by its configured id: 0 is the master unless a role is given."""
        usual = BrokerRole.SLAVE if number else BrokerRole.ASYNC_MASTER
        store_names = set(StoreOptions.__dataclass_fields__)
        small = {
            "commitlog_segment_bytes": 1 << 20,
            "consumequeue_segment_bytes": 2000,
            "index_slots": 500,
            "index_entries": 2000,
        }
        for_store = small | {key: value for key, value in options.items() if key in store_names}
        chosen = HURRY | {key: value for key, value in options.items() if key not in store_names}
        broker = Broker(
            BrokerOptions(
                **{"broker_id": number, "port": find_port(), "nameservers": self.nameserver.address, **chosen},
                role=role or usual,
            ),
            StoreOptions(**for_store),
            self._root / f"{options.get('name', '')}store{number}",
            clock=clock,
            access=access,
            tls=tls,
        )
        await broker.start()
        self._running.append(broker)
        return broker

    async def remove(self, broker: Broker) -> None:
        """Stop a member."""
        self._running.remove(broker)
        await broker.stop()

    def connect(self, broker: Broker, credentials: Credentials | None = None) -> Peer:
        """A client of one member."""
        self._peers.append(Peer(broker, credentials=credentials))
        return self._peers[-1]

    def route(self, name: str = "broker-a") -> dict[int, str]:
        """The addresses the name server knows, by id."""
        broker = self.nameserver.routes.describe_clusters().broker_addr_table.get(name)
        return {} if broker is None else dict(broker.broker_addrs)


def tail_of(broker: Broker) -> int:
    """Where the log of a member ends."""
    return broker.store.log.readable_end


async def wait_for_copy(slave: Broker, master: Broker) -> None:
    """Wait until a slave has the whole log of its master."""
    await wait_until(lambda: tail_of(slave) >= tail_of(master), "the slave has the log")


def read_log(broker: Broker) -> bytes:
    """The log of a member."""
    log = broker.store.log
    data = b""
    position = log.start
    while position < log.readable_end:
        start, end, whole = log.view_segment(position)
        stop = min(end, log.readable_end)
        data += bytes(whole[position - start : stop - start])
        position = stop
    return data

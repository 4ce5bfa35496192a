"""A real broker on loopback, with small files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._ground.clock import Clock
from eruca._ground.config import StoreOptions
from eruca._store.filesystem import FileSystem
from tests.integration.broker.peer import Peer, find_port

MakeBroker = Callable[..., Awaitable[Broker]]
MakePeer = Callable[..., Peer]


def excuse_new_files(buster: BlockBuster) -> None:
    """Allow the store to create a file, or wait for one, on the loop: the first message in it cannot wait."""
    for name in ("os.rename", "os.mkdir", "os.stat", "os.fsync"):
        buster.functions[name].can_block_in("eruca/_store/filesystem.py", {"create", "make_directory"})
    buster.functions["threading.Lock.acquire"].can_block_in("eruca/_store/log/chain.py", {"segment_for"})


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the stores of this test make files."""
    excuse_new_files(forbid_blocking_calls)


@pytest.fixture(autouse=True)
def give_held_pulls_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a slice may end after any held pull: `test_hold` tests that."""
    monkeypatch.setattr("eruca._broker.pulling.hold.SLICE_SECONDS", 3600.0)


@pytest.fixture
async def make_broker(tmp_path: Path) -> AsyncIterator[MakeBroker]:
    """Starts brokers; options by name are the broker's or the store's."""
    running: list[Broker] = []

    async def make(
        *, clock: Clock | None = None, disk: FileSystem | None = None, name: str = "store", **options: Any
    ) -> Broker:
        store_names = set(StoreOptions.__dataclass_fields__)
        small = {
            "commitlog_segment_bytes": 1 << 20,
            "consumequeue_segment_bytes": 2000,
            "index_slots": 500,
            "index_entries": 2000,
        }
        for_store = small | {key: value for key, value in options.items() if key in store_names}
        for_broker = {"port": find_port()} | {key: value for key, value in options.items() if key not in store_names}
        broker = Broker(BrokerOptions(**for_broker), StoreOptions(**for_store), tmp_path / name, clock=clock, disk=disk)
        await broker.start()
        running.append(broker)
        return broker

    yield make
    for broker in running:
        await broker.stop()


@pytest.fixture
async def broker(make_broker: MakeBroker) -> Broker:
    """A broker with nothing in it."""
    return await make_broker()


@pytest.fixture
async def make_peer() -> AsyncIterator[MakePeer]:
    """Connects clients, each with its own connection."""
    peers: list[Peer] = []

    def make(broker: Broker, **how: Any) -> Peer:
        peers.append(Peer(broker, **how))
        return peers[-1]

    yield make
    for peer in peers:
        await peer.close()


@pytest.fixture
def peer(broker: Broker, make_peer: MakePeer) -> Peer:
    """One client of the broker."""
    return make_peer(broker)

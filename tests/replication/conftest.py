"""The Java peer, prepared once for all tests of this suite, and members that elect a master in a real etcd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca._net.etcd import open_etcd
from tests.interop.javapeer import Peer, prepare_peer
from tests.needs import starts
from tests.replication.electing import Cluster
from tests.replication.etcdserver import EtcdServer


@pytest.fixture(scope="session")
@starts("java")
def peer() -> Peer:
    return prepare_peer()


@pytest.fixture
@starts("etcd")
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdServer]:
    async with EtcdServer(tmp_path / "etcd") as server:
        yield server


@pytest.fixture
async def cluster(etcd: EtcdServer) -> AsyncIterator[Cluster]:
    cluster = Cluster(etcd, await open_etcd([etcd.endpoint], timeout_s=5))
    yield cluster
    etcd.thaw()
    await cluster.stop()

"""Brokers that copy each other, and what they may do in tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from eruca._broker.app import Broker
from tests.integration.broker.replication.keys import MakeAccess, write_members
from tests.integration.broker.replication.members import Group
from tests.integration.broker.replication.rawslave import Connect, RawSlave
from tests.integration.client.conftest import make_producer

__all__ = ["make_producer"]


@pytest.fixture(autouse=True)
def allow_cuts(forbid_blocking_calls: BlockBuster) -> None:
    """Allow the loop to block while a log is cut: no reader may run meanwhile, and it happens once after a failover."""
    for function in forbid_blocking_calls.functions.values():
        function.can_block_in("eruca/_store/lineage/lineage.py", {"truncate"})
        # A topic was deleted and made again.
        function.can_block_in("eruca/_store/lineage/replicalog.py", {"_begin_queue_anew"})
        # An empty log begins in the middle.
        function.can_block_in("eruca/_store/log/commitlog.py", {"start_copy_at"})


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    """A broker name without members yet."""
    group = Group(tmp_path)
    await group.start()
    yield group
    await group.stop()


@pytest.fixture
def make_access(tmp_path: Path) -> MakeAccess:
    """Makes the options of servers with accounts: which keys one has, and whether it requires accounts."""
    return write_members(tmp_path / "plain_acl.yml")


@pytest.fixture
async def guarded(tmp_path: Path, make_access: MakeAccess) -> AsyncIterator[Group]:
    """A broker name without members yet, at a name server with accounts."""
    group = Group(tmp_path, make_access("none"))
    await group.start()
    yield group
    await group.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects slaves that are made of a socket."""
    slaves: list[RawSlave] = []

    async def open_link(broker: Broker, kind: type[RawSlave] = RawSlave) -> RawSlave:
        reader, writer = await asyncio.open_connection(broker.options.host, broker.standing.port + 1, limit=1 << 22)
        slaves.append(kind(reader, writer))
        return slaves[-1]

    yield open_link
    for slave in slaves:
        await slave.close()

"""Readers of members that elect their master in a real etcd: they see nothing that an election takes back."""

from __future__ import annotations

import pytest

from eruca._broker.app import Broker
from eruca._wire.codes import ResponseCode
from eruca._wire.record import decode_records
from tests.integration.broker.replication.members import wait_until
from tests.integration.broker.requests import try_pull, try_send
from tests.replication.test_failover_brokers import Elected, allow_disk_work, elected

__all__ = ["allow_disk_work", "elected"]
pytestmark = pytest.mark.whole


async def read(elected: Elected, broker: Broker, offset: int = 0) -> list[bytes]:
    """Return what a reader gets from an offset on."""
    answer = await try_pull(elected.group.connect(broker), queue_offset=offset)
    return [message.body for message in decode_records(answer.command.body)] if answer.code == 0 else []


async def test_what_only_a_dead_master_had_was_never_shown(elected: Elected) -> None:
    await elected.start(0, 1, 2)
    master = await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1, 2)
    peer = elected.group.connect(master)
    await peer.send("T", body=b"all")
    for number in (1, 2):
        await elected.brokers[number].replication.follower.stop()
    await wait_until(lambda: not master.replication.server.links)
    assert (await try_send(peer, body=b"one")).code != ResponseCode.SUCCESS
    seen = await read(elected, master)
    assert seen == [b"all"]
    await elected.kill(0)
    master = await elected.wait_for_master(1, 2)
    await elected.group.connect(master).send("T", body=b"acknowledged")
    assert await read(elected, master, len(seen)) == [b"acknowledged"]


@pytest.mark.parametrize("count", [1, 5])
async def test_the_last_member_shows_what_was_acknowledged_and_what_is_not(elected: Elected, count: int) -> None:
    await elected.start(0, 1)
    master = await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1)
    peer = elected.group.connect(master)
    sent = [b"%d" % number for number in range(count)]
    for body in sent:
        await peer.send("T", body=body)
    await elected.kill(0)
    last = await elected.wait_for_master(1)
    assert (await try_send(elected.group.connect(last), body=b"alone")).code == ResponseCode.SLAVE_NOT_AVAILABLE
    # It may have died before it confirmed the last one; nothing else is shown before it has left the set.
    assert await read(elected, last) in (sent[:-1], sent, [*sent, b"alone"])
    await wait_until(lambda: last.acknowledgement.condition.members == frozenset(), "it is alone in the set")
    # No other member can be elected, so nothing can be taken back.
    assert await read(elected, last) == [*sent, b"alone"]

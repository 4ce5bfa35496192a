"""Every way into the log is acknowledged in one way: a SYNC_MASTER answers success only when its slaves have it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._ground.config import FlushMode
from eruca._store.tables.saving import Saved
from eruca._wire.batch import BatchItem, encode_batch
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import EndTransactionHeader, SendBackHeader
from eruca._wire.once import ONCE_GROUP
from eruca._wire.properties import encode_properties
from eruca._wire.sysflag import TRANSACTION_COMMIT
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Answer, Peer
from tests.integration.broker.replication.rawslave import Connect, RawSlave
from tests.integration.broker.requests import send_header, try_send
from tests.unit.store.samples import wait_for

Way = Callable[[Peer], Awaitable[Answer]]
HALF = encode_properties({"TRAN_MSG": "true", "PGROUP": "payers", "UNIQ_KEY": "0" * 32}).decode()


async def send_one(peer: Peer) -> Answer:
    return await try_send(peer)


async def send_batch(peer: Peer) -> Answer:
    items = [BatchItem(0, b"a", b"")] * 3
    return await peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), encode_batch(items))


async def send_odd_batch(peer: Peer) -> Answer:
    """One that has to be decoded."""
    peer.broker.store.append_encoded = lambda *_: None  # type: ignore[method-assign]
    return await send_batch(peer)


async def send_delayed(peer: Peer) -> Answer:
    return await try_send(peer, properties="DELAY\x0118")


async def send_half(peer: Peer) -> Answer:
    return await try_send(peer, properties=HALF, sys_flag=4, producer_group="payers")


async def send_once(peer: Peer) -> Answer:
    return await try_send(peer, producer_group=ONCE_GROUP, properties="ERUCA_ONCE\x01q:0:0:1")


async def commit_half(peer: Peer) -> Answer:
    found = peer.broker.store.reader.read("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
    position = int.from_bytes(found.slices[0][28:36], "big")
    header = EndTransactionHeader(
        producer_group="payers", half_offset=0, position=position, decision=TRANSACTION_COMMIT, message_id="m"
    )
    return await peer.ask(RequestCode.END_TRANSACTION, header)


async def give_back(peer: Peer) -> Answer:
    header = SendBackHeader(offset=0, group="workers", delay_level=18, origin_topic="T")
    return await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


WAYS: list[Way] = [send_one, send_batch, send_odd_batch, send_delayed, send_half, send_once, commit_half, give_back]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


async def prepare(broker: Broker, peer: Peer) -> None:
    """Prepare a message that can be sent back, a half that can be committed, and the topics of both."""
    assert (await try_send(peer)).code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert (await send_half(peer)).code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert (await give_back(peer)).code == ResponseCode.SUCCESS  # without a slave there is nothing to wait for
    await broker.saver.wait_until_saved("topics")


async def join(broker: Broker, connect: Connect) -> RawSlave:
    """Connect a slave that has everything so far."""
    slave = await connect(broker)
    slave.report(0)
    tail = broker.store.log.tail
    await slave.read_log(tail)
    slave.report(tail)
    await wait_for(lambda: broker.replication.server.links[0].position == tail)
    return slave


@ways
async def test_the_answer_waits_for_the_slave(
    make_broker: MakeBroker, make_peer: MakePeer, connect: Connect, way: Way
) -> None:
    broker = await make_broker(role=BrokerRole.SYNC_MASTER, slave_timeout_ms=8000)
    peer = make_peer(broker)
    await prepare(broker, peer)
    slave = await join(broker, connect)
    commitlog = broker.store.log
    before = commitlog.tail
    asking = asyncio.ensure_future(way(peer))
    await wait_for(lambda: commitlog.tail > before)
    await slave.read_log(commitlog.tail)
    slave.report(commitlog.tail - 1)
    await wait_for(lambda: broker.replication.server.links[0].position == commitlog.tail - 1)
    assert not asking.done()
    slave.report(commitlog.tail)
    assert (await asking).code == ResponseCode.SUCCESS


@ways
async def test_a_slave_that_does_not_report_is_said(
    make_broker: MakeBroker, make_peer: MakePeer, connect: Connect, way: Way
) -> None:
    broker = await make_broker(role=BrokerRole.SYNC_MASTER, slave_timeout_ms=20)
    peer = make_peer(broker)
    await prepare(broker, peer)
    await join(broker, connect)
    answer = await way(peer)
    if way is give_back:
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "FLUSH_SLAVE_TIMEOUT")
    else:
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_what_is_here_already_waits_for_the_slave_too(
    make_broker: MakeBroker, make_peer: MakePeer, connect: Connect
) -> None:
    broker = await make_broker(role=BrokerRole.SYNC_MASTER, slave_timeout_ms=20)
    peer = make_peer(broker)
    await prepare(broker, peer)
    slave = await join(broker, connect)
    for _ in range(2):  # the second time it is not stored again
        assert (await send_once(peer)).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert broker.once.dropped == 1
    slave.report(broker.store.log.tail)
    await wait_for(lambda: broker.replication.server.list_slaves()[0].lag_bytes == 0)
    assert (await send_once(peer)).code == ResponseCode.SUCCESS


async def test_a_topic_that_is_made_by_the_way_is_waited_for_as_well(
    make_broker: MakeBroker, make_peer: MakePeer, connect: Connect
) -> None:
    broker = await make_broker(role=BrokerRole.SYNC_MASTER, slave_timeout_ms=8000, flush_mode=FlushMode.SYNC)
    slave = await connect(broker)
    slave.report(0)
    await wait_for(lambda: bool(broker.replication.server.list_slaves()))
    asking = asyncio.ensure_future(try_send(make_peer(broker), topic="New"))
    commitlog = broker.store.log
    await wait_for(lambda: commitlog.tail > 0)
    await slave.read_log(commitlog.tail)
    slave.report(commitlog.tail)
    assert (await asking).code == ResponseCode.SUCCESS
    assert broker.store.flusher.flushed == commitlog.tail
    assert "topics" not in broker.saver.unsaved


async def test_a_mastership_that_ends_while_a_topic_is_saved_acknowledges_nothing(
    make_broker: MakeBroker, make_peer: MakePeer
) -> None:
    broker = await make_broker()
    waiting: list[Saved] = []
    broker.saver.when_saved = lambda name, then: waiting.append(then)  # type: ignore[method-assign]
    asking = asyncio.ensure_future(try_send(make_peer(broker), topic="New"))
    await wait_for(lambda: bool(waiting))
    await broker.replication.roles.become_master(5000, why="a test says so")
    waiting[0](None)
    assert (await asking).code == ResponseCode.FLUSH_SLAVE_TIMEOUT

"""The master's port for slaves: what it sends, what it believes, and what it refuses."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import cast

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import HA_PORT_ABOVE, BrokerRole
from eruca._broker.replication.primary import ReplicationServer
from eruca._ground.limits import HA_LINKS_MAX
from eruca._wire.codes import ResponseCode
from eruca._wire.replication import (
    HELLO_MAGIC,
    Chunk,
    Hello,
    LogReport,
    Report,
    encode_fenced,
    encode_report,
)
from eruca.errors import ConnectFailed
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.replication.pairs import read_log
from tests.integration.broker.replication.rawslave import Connect, FencedSlave, RawSlave
from tests.integration.broker.requests import try_send
from tests.unit.store.samples import make_message, wait_for

SEGMENT_BYTES = 1 << 20


async def connect_fenced(connect: Connect, broker: Broker) -> FencedSlave:
    slave = await connect(broker, FencedSlave)
    assert isinstance(slave, FencedSlave)
    return slave


def fill(broker: Broker, count: int, size: int = 100) -> None:
    """Store messages."""
    for _ in range(count):
        broker.store.append(make_message(body=b"x" * size))


# -- a classic slave ---------------------------------------------------------------------------------------------------


async def test_an_empty_slave_gets_the_whole_log_and_then_what_is_new(broker: Broker, connect: Connect) -> None:
    fill(broker, 2500, 1000)  # three segments
    slave = await connect(broker)
    slave.report(0)
    before = read_log(broker)
    assert await slave.read_log(len(before)) == before
    assert not slave.chunks[0].data and slave.chunks[0].position == 0  # a heartbeat
    assert max(len(chunk.data) for chunk in slave.chunks) == 32_768
    slave.report(len(before))
    fill(broker, 3)
    after = read_log(broker)
    assert await slave.read_log(len(after)) == after


async def test_an_empty_slave_gets_the_last_segment_only_as_from_java_if_the_option_says_so(
    make_broker: MakeBroker, connect: Connect
) -> None:
    broker = await make_broker(ha_copy_oldest=False)
    fill(broker, 2500, 1000)
    slave = await connect(broker)
    slave.report(0)
    tail = broker.store.log.tail
    await slave.read_log(tail - 2 * SEGMENT_BYTES)
    assert slave.chunks[0].position == 2 * SEGMENT_BYTES


async def test_what_came_between_connection_and_report_is_not_forgotten(broker: Broker, connect: Connect) -> None:
    slave = await connect(broker)
    report = encode_report(LogReport(0))
    slave.say(report[:1])
    await wait_for(lambda: len(broker.replication.server.links) == 1)
    fill(broker, 3)
    slave.say(report[1:])
    log = read_log(broker)
    assert await slave.read_log(len(log)) == log


async def test_a_slave_goes_on_where_it_says(broker: Broker, connect: Connect) -> None:
    fill(broker, 10)
    slave = await connect(broker)
    slave.report(77)  # in the middle of a record
    log = read_log(broker)
    assert await slave.read_log(len(log) - 77) == log[77:]


async def test_messages_of_one_turn_go_out_together(broker: Broker, connect: Connect) -> None:
    slave = await connect(broker)
    slave.report(0)
    await wait_for(lambda: bool(broker.replication.server.list_slaves()))
    fill(broker, 50)
    log = read_log(broker)
    assert await slave.read_log(len(log)) == log
    assert [len(chunk.data) for chunk in slave.chunks] == [0, len(log)]


async def test_a_slave_that_reads_slowly_gets_everything_in_the_end(make_broker: MakeBroker, connect: Connect) -> None:
    broker = await make_broker(commitlog_segment_bytes=32 << 20)
    slave = await connect(broker)
    slave.report(0)
    await wait_for(lambda: bool(broker.replication.server.list_slaves()))
    fill(broker, 240, 100_000)
    size = len(read_log(broker))
    (link,) = broker.replication.server.links
    await wait_for(lambda: link.machine.position > 0)
    assert link.machine.position < size  # the window is full, or the socket
    got = 0
    while got < size:
        got = len(await slave.read_log(got + 1))
        slave.report(got)
    assert await slave.read_log(size) == read_log(broker)


async def test_a_silent_slave_gets_heartbeats_and_is_closed_after_a_while(
    make_broker: MakeBroker, connect: Connect
) -> None:
    broker = await make_broker(ha_heartbeat_ms=10, ha_housekeeping_ms=2000)
    slave = await connect(broker)
    slave.report(0)
    await slave.wait_until_closed()
    assert len(slave.chunks) > 2
    assert not any(chunk.data for chunk in slave.chunks)
    await wait_for(lambda: not broker.replication.server.links)


# -- what is believed --------------------------------------------------------------------------------------------------


async def test_what_a_slave_reports_answers_a_send(
    make_broker: MakeBroker, make_peer: MakePeer, connect: Connect
) -> None:
    broker = await make_broker(role=BrokerRole.SYNC_MASTER, slave_timeout_ms=8000)
    peer = make_peer(broker)
    assert (await try_send(peer)).code == ResponseCode.SLAVE_NOT_AVAILABLE
    slave = await connect(broker)
    slave.report(0)
    await slave.read_log(1)
    sending = asyncio.ensure_future(try_send(peer))
    log = broker.store.log
    before = log.tail
    await wait_for(lambda: log.tail > before)
    await slave.read_log(log.tail)
    slave.report(log.tail - 1)
    await wait_for(lambda: broker.replication.server.links[0].position == log.tail - 1)
    assert not sending.done()
    slave.report(log.tail)
    assert (await sending).code == ResponseCode.SUCCESS


async def test_a_slave_that_does_not_report_in_time_is_said(
    make_broker: MakeBroker, make_peer: MakePeer, connect: Connect
) -> None:
    broker = await make_broker(role=BrokerRole.SYNC_MASTER, slave_timeout_ms=30)
    slave = await connect(broker)
    slave.report(0)
    await wait_for(lambda: bool(broker.replication.server.list_slaves()))
    peer = make_peer(broker)
    assert (await try_send(peer)).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    answer = await try_send(peer, properties="WAIT\x01false")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext is not None and "msgId" in answer.ext


async def test_of_several_reports_at_once_the_last_counts(broker: Broker, connect: Connect) -> None:
    fill(broker, 3)
    slave = await connect(broker)
    slave.report(0)
    size = len(await slave.read_log(len(read_log(broker))))
    slave.say(b"".join([encode_report(LogReport(position)) for position in range(1, size + 1)]))
    (link,) = broker.replication.server.links
    await wait_for(lambda: link.position == size)
    assert link.machine.confirmed == size


async def test_the_lag_of_a_slave_is_told(broker: Broker, connect: Connect) -> None:
    slave = await connect(broker)
    slave.report(0)
    await wait_for(lambda: bool(broker.replication.server.list_slaves()))
    fill(broker, 1)
    size = len(await slave.read_log(1))
    await wait_for(lambda: broker.replication.server.list_slaves()[0].lag_ms > 0)
    (state,) = broker.replication.server.list_slaves()
    assert (state.broker_id, state.fenced, state.in_sync, state.lag_bytes) == (-1, False, True, size)
    slave.report(size)
    await wait_for(lambda: broker.replication.server.list_slaves()[0].lag_bytes == 0)
    assert broker.replication.server.list_slaves()[0].lag_ms == 0


# -- a fenced slave ----------------------------------------------------------------------------------------------------


async def test_a_fenced_slave_gets_the_log_with_what_is_confirmed(broker: Broker, connect: Connect) -> None:
    fill(broker, 2500, 1000)
    slave = await connect_fenced(connect, broker)
    slave.hello(broker)
    log = read_log(broker)
    assert await slave.read_log(len(log)) == log
    slave.say(encode_fenced(Report(broker.replication.roles.epoch, len(log))))
    await wait_for(lambda: broker.acknowledgement.condition.confirmed == len(log))
    fill(broker, 1)
    await slave.read_log(len(log) + 1)
    last = slave.log_chunks[-1]
    assert isinstance(last, Chunk)
    assert (last.epoch, last.confirmed, last.tail) == (broker.replication.roles.epoch, len(log), len(read_log(broker)))
    (state,) = broker.replication.server.list_slaves()
    assert (state.broker_id, state.fenced, state.address) == (1, True, "me:1")


async def test_a_fenced_slave_is_taken_only_with_the_same_log(broker: Broker, connect: Connect) -> None:
    fill(broker, 20)
    log = read_log(broker)
    slave = await connect_fenced(connect, broker)
    slave.hello(broker, 1000, check=log[500:1000])
    assert await slave.read_log(len(log) - 1000) == log[1000:]
    other = await connect_fenced(connect, broker)
    other.hello(broker, 1000, broker_id=2, check=b"?" + log[501:1000])
    await other.wait_until_closed()
    assert "is not this master's" in other.refusal


async def test_a_fenced_slave_of_another_mastership_is_refused(broker: Broker, connect: Connect) -> None:
    slave = await connect_fenced(connect, broker)
    slave.say(HELLO_MAGIC + encode_fenced(Hello(77, 1, 0, 0, 0, "me:1")))
    await slave.wait_until_closed()
    assert "mastership 77" in slave.refusal


async def test_a_slave_that_comes_again_takes_the_place_of_its_old_link(broker: Broker, connect: Connect) -> None:
    first = await connect_fenced(connect, broker)
    first.hello(broker)
    await wait_for(lambda: len(broker.replication.server.list_slaves()) == 1)
    second = await connect_fenced(connect, broker)
    second.hello(broker)
    await first.wait_until_closed()
    assert "reconnected" in first.refusal
    assert len(broker.replication.server.list_slaves()) == 1


# -- refused connections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nonsense",
    [
        encode_report(LogReport(10**6)),
        struct.pack(">q", -1),
        b"GET / HTTP/1.1\r\n\r\n",
        HELLO_MAGIC + struct.pack(">iI", 2**31 - 1, 0),
        HELLO_MAGIC + struct.pack(">iI", 40, 1) + bytes(40),
        HELLO_MAGIC + encode_fenced(Chunk(1, 0, 0, 0, 0, b"data")),
        HELLO_MAGIC + encode_fenced(Report(1, 0)),
    ],
    ids=["beyond the log", "negative", "http", "huge", "bad crc", "a master's frame", "report before hello"],
)
async def test_who_sends_nonsense_is_dropped_and_said_once(
    broker: Broker, connect: Connect, nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "eruca._broker.replication.primary"):
        for _ in range(3):
            slave = await connect_fenced(connect, broker)
            slave.say(nonsense)
            await slave.wait_until_closed()
    await wait_for(lambda: not broker.replication.server.links)
    assert len(caplog.records) == 1
    assert broker.acknowledgement.condition.confirmed == 0


async def test_too_many_slaves_are_refused(broker: Broker, connect: Connect) -> None:
    slaves = [await connect(broker) for _ in range(HA_LINKS_MAX)]
    for slave in slaves:
        slave.report(0)
    await wait_for(lambda: len(broker.replication.server.list_slaves()) == HA_LINKS_MAX)
    another = await connect(broker)
    another.report(0)
    await another.wait_until_closed()
    assert len(broker.replication.server.list_slaves()) == HA_LINKS_MAX


@pytest.mark.parametrize("said", [b"", encode_report(LogReport(0))[:1]], ids=["nothing", "one byte"])
async def test_a_crowd_that_says_little_keeps_no_slave_out(broker: Broker, connect: Connect, said: bytes) -> None:
    slave = await connect(broker)
    slave.report(0)
    await wait_for(lambda: len(broker.replication.server.list_slaves()) == 1)
    crowd = [await connect(broker) for _ in range(HA_LINKS_MAX + 10)]
    for stranger in crowd:
        stranger.say(said)
    await crowd[0].wait_until_closed()
    another = await connect(broker)
    another.report(0)
    await wait_for(lambda: len(broker.replication.server.list_slaves()) == 2)
    assert len(broker.replication.server.links) == (HA_LINKS_MAX if said else 2)


async def test_a_crowd_from_one_address_ends_no_handshake_of_another(broker: Broker, connect: Connect) -> None:
    port, started = broker.standing.port + HA_PORT_ABOVE, encode_report(LogReport(0))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    slave = RawSlave(reader, writer)
    slave.say(started[:1])
    server = broker.replication.server
    await wait_for(lambda: [link.peer_host for link in server.links] == ["127.0.0.2"])
    crowd = [await connect(broker) for _ in range(HA_LINKS_MAX + 10)]
    for stranger in crowd:
        stranger.say(started[:1])
    for stranger in crowd[:11]:
        await stranger.wait_until_closed()
    slave.say(started[1:])
    await wait_for(lambda: len(server.list_slaves()) == 1)
    assert [link.peer_host for link in server.links if link.is_joined] == ["127.0.0.2"]
    writer.close()


async def test_a_slave_feeds_nobody(make_broker: MakeBroker, connect: Connect) -> None:
    broker = await make_broker(role=BrokerRole.SLAVE, broker_id=1)
    slave = await connect(broker)
    slave.report(0)
    await slave.wait_until_closed()
    assert not slave.chunks


async def test_a_master_that_becomes_a_slave_drops_its_slaves(broker: Broker, connect: Connect) -> None:
    slave = await connect_fenced(connect, broker)
    slave.hello(broker)
    await wait_for(lambda: len(broker.replication.server.list_slaves()) == 1)
    listeners = broker.store.dispatched
    assert broker.replication.server.on_dispatched in listeners
    await broker.replication.roles.become_slave(None, why="a test says so")
    await slave.wait_until_closed()
    assert "slave" in slave.refusal
    assert not broker.replication.server.links
    assert broker.replication.server.on_dispatched not in listeners


async def test_slaves_that_come_and_go_are_in_the_log(
    broker: Broker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, 3)
    with caplog.at_level(logging.INFO, "eruca._broker.replication.primary"):
        slave = await connect_fenced(connect, broker)
        slave.hello(broker)
        size = len(await slave.read_log(len(read_log(broker))))
        slave.say(encode_fenced(Report(broker.replication.roles.epoch, size)))
        await wait_for(lambda: broker.replication.server.list_slaves()[0].lag_bytes == 0)
        await slave.close()
        await wait_for(lambda: not broker.replication.server.links)
    assert [record.getMessage() for record in caplog.records] == [
        f"slave me:1 (configured id 1) connected (fenced) at position 0, {size} bytes behind",
        f"lost slave me:1 (configured id 1) at position {size}: it closed the connection",
    ]


async def test_a_port_that_is_taken_is_said(broker: Broker) -> None:
    with pytest.raises(ConnectFailed, match="the port for slaves"):
        await ReplicationServer(
            broker.live,
            broker.standing,
            broker.clock,
            broker.store,
            broker.acknowledgement,
            broker._membership,
        ).start()


async def test_a_second_slave_with_the_same_id_is_refused_and_told_why(
    make_broker: MakeBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    master = await make_broker()
    first, second, again = [cast(FencedSlave, await connect(master, FencedSlave)) for _ in range(3)]
    first.hello(master)
    await wait_for(lambda: len(master.replication.server.list_slaves()) == 1)
    second.hello(master, address="other:1")
    await second.wait_until_closed()
    assert "brokerId 1 is used by me:1" in second.refusal
    (slave,) = master.replication.server.list_slaves()
    assert slave.address == "me:1" and "brokerId 1 is used by me:1" in caplog.text
    # The same broker may connect again before its first connection is known to be lost.
    again.hello(master)
    await first.wait_until_closed()
    assert [slave.address for slave in master.replication.server.list_slaves()] == ["me:1"]


async def test_a_slave_that_comes_and_goes_without_getting_further_is_logged_once(
    make_broker: MakeBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    master = await make_broker()
    with caplog.at_level(logging.INFO, "eruca._broker.replication.primary"):
        for _ in range(12):
            slave = cast(FencedSlave, await connect(master, FencedSlave))
            slave.hello(master)
            await wait_for(lambda: len(master.replication.server.list_slaves()) == 1)
            await slave.close()
            await wait_for(lambda: not master.replication.server.links)
    said = [record.getMessage() for record in caplog.records if record.name == "eruca._broker.replication.primary"]
    assert len([text for text in said if "connected" in text]) == 1
    assert len([text for text in said if "lost slave" in text]) == 1

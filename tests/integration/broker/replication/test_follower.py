"""A slave copies its master's log: from nothing, after a pause, over a bad connection, and after divergence."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._broker.replication.state import StateHandlers
from eruca._ground.config import FlushMode
from eruca._net.link import Link
from eruca._store.filesystem import translate_os_error
from eruca._store.queues.dispatch import Grown
from eruca._store.retention import Retention
from eruca._wire.bodies import EpochStart, ReplicationState
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command
from eruca._wire.record import Record
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.replication.pairs import INTERVALS, make_slave, read_log, wait_until_equal
from tests.integration.broker.requests import try_send
from tests.unit.store.samples import make_message, read_aside, wait_for

SEGMENT_BYTES = 1 << 20
LOGGER = "eruca._broker.replication.replica"


@pytest.fixture
async def master(make_broker: MakeBroker) -> Broker:
    """A master with an empty log."""
    return await make_broker(name="master", **INTERVALS)


def fill(broker: Broker, count: int, size: int = 100, *, mark: bytes = b"x") -> list[Record]:
    """Store messages."""
    store = broker.store
    return [store.append(make_message(body=mark * size, KEYS="k")) for _ in range(count)]


def be_java(broker: Broker) -> None:
    """Make a master refuse Eruca's own requests, and send an empty slave only its last segment, as Java does."""
    del broker.ports.handlers[RequestCode.REPLICATION_STATE]
    broker.live.change(ha_copy_oldest=False)


def is_connected(slave: Broker) -> bool:
    return slave.replication.follower.state.connected


async def wait_until_gone(master: Broker) -> None:
    await wait_for(lambda: not master.replication.server.links)


# -- copying -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("java", [False, True])
async def test_an_empty_slave_copies_the_whole_log_and_then_what_is_new(
    make_broker: MakeBroker, master: Broker, java: bool
) -> None:
    if java:
        be_java(master)
    fill(master, 2500, 1000)  # three segments
    slave = await make_slave(make_broker, master)
    await wait_for(lambda: is_connected(slave))
    await wait_until_equal(master, slave)
    fill(master, 1500, 1000)
    await wait_until_equal(master, slave)
    assert read_log(slave) == read_log(master)
    chains = [broker.store.log.chain for broker in (master, slave)]
    assert [segment.path.name for segment in chains[0].segments[:4]] == [
        segment.path.name for segment in chains[1].segments[:4]
    ]
    queue = slave.store.queues.get("orders", 0)
    assert queue is not None and queue.max_offset == 4000
    assert slave.replication.follower.state.lag_bytes == 0
    assert master.replication.server.list_slaves()[0].fenced is not java


@pytest.mark.parametrize("java", [False, True])
async def test_a_log_that_does_not_begin_at_zero_is_copied_from_its_beginning(
    make_broker: MakeBroker, master: Broker, java: bool
) -> None:
    fill(master, 2500, 1000)
    store = master.store
    store.log.chain.detach_first()  # it has expired
    assert store.log.start == SEGMENT_BYTES
    if java:
        be_java(master)
    slave = await make_slave(make_broker, master)
    await wait_until_equal(master, slave)
    assert slave.store.log.start == SEGMENT_BYTES
    assert read_log(slave) == read_log(master)


async def test_with_the_option_off_a_java_master_gives_its_last_segment(
    make_broker: MakeBroker, master: Broker
) -> None:
    be_java(master)
    fill(master, 2500, 1000)
    slave = await make_slave(make_broker, master, ha_copy_oldest=False)
    await wait_until_equal(master, slave)
    assert slave.store.log.start == 2 * SEGMENT_BYTES
    assert read_log(slave) == read_log(master)[2 * SEGMENT_BYTES :]


@pytest.mark.parametrize("java", [False, True])
async def test_an_empty_master_is_followed_too(make_broker: MakeBroker, master: Broker, java: bool) -> None:
    if java:
        be_java(master)
    slave = await make_slave(make_broker, master)
    await wait_for(lambda: bool(master.replication.server.list_slaves()))
    fill(master, 3)
    await wait_until_equal(master, slave)
    assert read_log(slave) == read_log(master)


async def test_many_slaves_copy_at_once(make_broker: MakeBroker) -> None:
    master = await make_broker(name="master", role=BrokerRole.SYNC_MASTER, in_sync_replicas=3, **INTERVALS)
    fill(master, 100)
    slaves = [await make_slave(make_broker, master, number) for number in (1, 2, 3)]
    await wait_for(lambda: len(master.replication.server.list_slaves()) == 3)
    fill(master, 100)
    await wait_until_equal(master, *slaves)
    assert {read_log(slave) for slave in slaves} == {read_log(master)}
    assert [state.broker_id for state in master.replication.server.list_slaves()] == [1, 2, 3]


async def test_a_held_pull_on_a_slave_is_answered_by_what_arrives(make_broker: MakeBroker, master: Broker) -> None:
    slave = await make_slave(make_broker, master)
    await wait_for(lambda: bool(master.replication.server.list_slaves()))
    heard: list[tuple[str, int, int, int]] = []

    def note(grown: Grown) -> None:
        heard.extend([(queue.topic, queue.queue_id, begin, queue.max_offset) for queue, begin in grown])

    slave.store.dispatched.listen(note)
    fill(master, 3)
    await wait_until_equal(master, slave)
    assert heard[0][:3] == ("orders", 0, 0)
    assert heard[-1][3] == 3


# -- pauses ------------------------------------------------------------------------------------------------------------


async def test_a_slave_that_was_away_goes_on_where_it_was(make_broker: MakeBroker, master: Broker) -> None:
    fill(master, 10)
    slave = await make_slave(make_broker, master)
    await wait_until_equal(master, slave)
    await slave.stop()
    await wait_until_gone(master)
    fill(master, 2000, 1000)
    again = await make_slave(make_broker, master)
    await wait_until_equal(master, again)
    assert read_log(again) == read_log(master)


async def test_a_master_that_was_away_is_found_again(make_broker: MakeBroker, master: Broker) -> None:
    fill(master, 10)
    slave = await make_slave(make_broker, master)
    await wait_until_equal(master, slave)
    port = master.standing.port
    await master.stop()
    await wait_for(lambda: not is_connected(slave))
    master = await make_broker(name="master", port=port, **INTERVALS)
    fill(master, 10)
    await wait_until_equal(master, slave)
    assert read_log(slave) == read_log(master)
    epochs = slave.store.lineage.epochs
    assert epochs == master.store.lineage.epochs
    assert len(epochs) == 2


@pytest.mark.whole
async def test_the_link_survives_silence(make_broker: MakeBroker) -> None:
    quick = INTERVALS | {"ha_heartbeat_ms": 20, "ha_housekeeping_ms": 3000}
    master = await make_broker(name="master", **quick)
    slave = await make_slave(make_broker, master, **quick)
    await wait_for(lambda: bool(master.replication.server.list_slaves()))
    (link,) = master.replication.server.links
    await asyncio.sleep(3.5)  # shows that nothing happens; tests/unit/core/replication shows it without waiting
    assert master.replication.server.links == [link]
    assert is_connected(slave)


# -- what is reported --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", list(FlushMode))
async def test_a_slave_with_synchronous_flush_reports_what_its_disk_has(
    make_broker: MakeBroker, make_peer: MakePeer, flush: FlushMode
) -> None:
    master = await make_broker(name="master", role=BrokerRole.SYNC_MASTER, slave_timeout_ms=8000, **INTERVALS)
    slave = await make_slave(make_broker, master, flush_mode=flush, flush_interval_ms=10**9)
    # It counts from its first report on.
    await wait_for(lambda: master.acknowledgement.condition.is_available(0))
    flusher = slave.store.flusher
    # Without synchronous flush, the slave reports although nothing can be synced.
    with flusher.guard if flush is FlushMode.ASYNC else nullcontext():
        answers = await asyncio.gather(*[try_send(make_peer(master), body=b"x" * 1000) for _ in range(50)])
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert flusher.flushed == (master.store.log.tail if flush is FlushMode.SYNC else 0)


# -- diverged logs -----------------------------------------------------------------------------------------------------


async def test_what_only_the_slave_has_is_set_aside_and_cut_off(make_broker: MakeBroker) -> None:
    first = await make_broker(name="first", **INTERVALS)
    fill(first, 10)
    second = await make_slave(make_broker, first)
    await wait_until_equal(first, second)
    common = read_log(first)
    # The second takes over while the first does not notice, and both store something.
    await second.replication.roles.become_master(1000, why="a test says so")
    fill(second, 5, mark=b"2")
    lost = fill(first, 3, mark=b"1")
    tail = first.store.log.tail
    await first.replication.roles.become_slave(
        (second.standing.address, second.standing.ha_address), why="a test says so"
    )
    await wait_until_equal(second, first)
    await wait_for(lambda: read_log(first) == read_log(second))
    store = first.store
    assert store.lineage.epochs == second.store.lineage.epochs
    (row,) = store.lineage.record.diverged
    assert (row.epoch, row.begin, row.end) == (1, len(common), tail)
    found = await asyncio.to_thread(read_aside, store, row.file)
    assert found == [message.body for message in lost]
    # And it stays a slave like any other.
    fill(second, 5, mark=b"2")
    await wait_until_equal(second, first)
    assert read_log(first) == read_log(second)


async def test_a_master_that_was_replaced_is_not_followed(
    make_broker: MakeBroker, master: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        slave = await make_slave(make_broker, master, ha_master="")
        await asyncio.to_thread(slave.store.lineage.adopt_epochs, [], 5000)
        await slave.stop()
        slave = await make_slave(make_broker, master)
        await wait_for(lambda: "but epoch 5000 has started since" in caplog.text)
    assert not is_connected(slave)
    assert not master.replication.server.links


async def test_a_slave_whose_log_is_too_old_says_what_to_do(
    make_broker: MakeBroker, master: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    fill(master, 10)
    slave = await make_slave(make_broker, master)
    await wait_until_equal(master, slave)
    kept = read_log(slave)
    await slave.stop()
    fill(master, 2500, 1000)
    master.store.log.chain.detach_first()
    with caplog.at_level(logging.WARNING, LOGGER):
        slave = await make_slave(make_broker, master)
        await wait_for(lambda: "move its store directory away" in caplog.text)
    assert read_log(slave) == kept


async def test_only_a_master_of_the_same_name_is_followed(
    make_broker: MakeBroker, master: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    first = await make_slave(make_broker, master, 1)
    await wait_for(lambda: is_connected(first))
    with caplog.at_level(logging.WARNING, LOGGER):
        await make_slave(make_broker, first, 2)
        await wait_for(lambda: "is not a master at the moment" in caplog.text)
        assert is_connected(first)
        master.live.change(name="another")
        first.replication.follower._drop_link("a test says so")
        await wait_for(lambda: "has the broker name another" in caplog.text)


async def test_the_same_trouble_is_not_said_every_time(
    make_broker: MakeBroker, master: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    address, ha_address = master.standing.address, master.standing.ha_address
    await master.stop()
    asked = 0

    def find_master() -> tuple[str, str]:
        nonlocal asked
        asked += 1
        return (address, ha_address) if asked % 2 else ("", "")  # two problems alternate

    with caplog.at_level(logging.WARNING, LOGGER):
        slave = await make_broker(
            name="slave", role=BrokerRole.SLAVE, broker_id=1, **INTERVALS | {"ha_reconnect_ms": 1}
        )
        slave.replication.follower._find_master = find_master
        await wait_for(lambda: asked > 30)
    said = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert len(said) == 2
    assert any(f"cannot connect to {address}" in text for text in said)


async def test_a_full_disk_is_said_once_and_with_what_to_do(
    make_broker: MakeBroker, master: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    slave = await make_slave(make_broker, master, ha_reconnect_ms=1)
    await wait_for(lambda: is_connected(slave))
    fill(master, 3)
    await wait_until_equal(master, slave)
    tries = 0

    def refuse(_: object) -> int:
        nonlocal tries
        tries += 1
        raise translate_os_error(OSError(errno.ENOSPC, ""), "create a segment")

    with caplog.at_level(logging.INFO, LOGGER):
        with monkeypatch.context() as patch:
            patch.setattr(slave.store.log, "copy_in", refuse)
            fill(master, 3)
            await wait_for(lambda: tries > 10)
        await wait_until_equal(master, slave)
    said = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert len(said) == 2
    assert "create a segment: No space left on device (free space" in said[0]
    assert said[1] == f"copying the log of the master at {master.standing.ha_address} again"


# -- a bad connection --------------------------------------------------------------------------------------------------

Change = Callable[[int, bytearray], None]
MakeProxy = Callable[[Broker, Change], Awaitable[str]]


@pytest.fixture
async def make_proxy() -> AsyncIterator[MakeProxy]:
    """A proxy between slave and master that changes what the master sends on its n-th connection."""
    servers: list[asyncio.Server] = []
    tasks: set[asyncio.Task[None]] = set()

    async def make(master: Broker, change: Change) -> str:
        count = 0

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            count += 1
            number = count
            up_reader, up_writer = await asyncio.open_connection(master.options.host, master.standing.port + 1)

            async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, down: bool) -> None:
                try:
                    while data := bytearray(await source.read(1 << 16)):
                        if down:
                            change(number, data)
                        sink.write(data)
                        await sink.drain()
                except ConnectionError:
                    pass
                finally:
                    sink.close()

            for work in (pump(reader, up_writer, down=False), pump(up_reader, writer, down=True)):
                task = asyncio.ensure_future(work)
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield make
    for server in servers:
        server.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def make_slave_behind(make_broker: MakeBroker, master: Broker, proxy: str, **options: Any) -> Broker:
    """A slave that copies through a proxy, and asks the master directly for its state."""
    slave = await make_broker(name="slave", role=BrokerRole.SLAVE, broker_id=1, ha_master=proxy, **INTERVALS | options)
    slave.replication.follower._find_master = lambda: (master.standing.address, proxy)
    return slave


@pytest.mark.parametrize("java", [False, True])
async def test_bytes_that_change_on_the_way_are_fetched_again(
    make_broker: MakeBroker, master: Broker, make_proxy: MakeProxy, java: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if java:
        be_java(master)
    fill(master, 800, 1000)

    def change(number: int, data: bytearray) -> None:
        # In a body, however the reads were cut: not every field of a record has a checksum.
        at = data.find(b"x" * 16, 15_000)
        if number <= 2 and at >= 0:
            data[at + 8] ^= 0x40

    proxy = await make_proxy(master, change)
    with caplog.at_level(logging.WARNING, LOGGER):
        slave = await make_slave_behind(make_broker, master, proxy)
        await wait_until_equal(master, slave)
    assert read_log(slave) == read_log(master)
    assert ("not a record" if java else "CRC") in caplog.text


async def test_a_connection_that_breaks_in_the_middle_is_made_again(
    make_broker: MakeBroker, master: Broker, make_proxy: MakeProxy
) -> None:
    fill(master, 3000, 1000)

    def cut(number: int, data: bytearray) -> None:
        if number <= 5 and len(data) > 1000:
            del data[1000:]

    proxy = await make_proxy(master, cut)
    slave = await make_slave_behind(make_broker, master, proxy, ha_housekeeping_ms=200)
    await wait_until_equal(master, slave)
    assert read_log(slave) == read_log(master)


async def test_retention_is_left_to_each_broker(make_broker: MakeBroker, master: Broker) -> None:
    fill(master, 2500, 1000)
    slave = await make_slave(make_broker, master)
    await wait_until_equal(master, slave)
    assert isinstance(slave.background.retention, Retention)
    master.store.log.chain.detach_first()
    fill(master, 10)
    await wait_until_equal(master, slave)
    assert read_log(slave)[SEGMENT_BYTES:] == read_log(master)


async def test_a_slave_far_behind_says_when_it_has_caught_up(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    master = await make_broker(name="master", commitlog_segment_bytes=32 << 20, **INTERVALS)
    fill(master, 60, 100_000)
    with caplog.at_level(logging.INFO, "eruca._broker.replication"):
        slave = await make_slave(make_broker, master, commitlog_segment_bytes=32 << 20)
        await wait_until_equal(master, slave)
    said = [record.getMessage() for record in caplog.records]
    size = len(read_log(master))
    assert f"copying {size} missing bytes of the master's log" in said
    assert f"caught up with the master at {master.standing.ha_address}" in said
    assert f"slave {slave.standing.address} (configured id 1) has caught up" in said


async def test_what_came_before_the_link_broke_is_reported_on_the_next_one(
    make_broker: MakeBroker, master: Broker
) -> None:
    slave = await make_slave(make_broker, master, flush_mode=FlushMode.SYNC, flush_interval_ms=10**9)
    await wait_for(lambda: bool(master.replication.server.list_slaves()))
    group_commit = slave.background.group_commit
    want = group_commit.when_flushed

    def never(position: int) -> asyncio.Future[bool]:
        return asyncio.get_running_loop().create_future()

    group_commit.when_flushed = never  # type: ignore[method-assign]
    fill(master, 3)
    tail = master.store.log.tail
    await wait_for(lambda: slave.store.log.tail == tail)
    assert master.replication.server.links[0].position == 0
    group_commit.when_flushed = want  # type: ignore[method-assign]
    slave.replication.follower._flushing = None
    master.replication.server.drop_links("a test says so")
    await wait_for(lambda: [link.position for link in master.replication.server.links] == [tail])
    assert slave.store.flusher.flushed == tail


async def test_a_flush_that_was_given_up_is_asked_for_again(make_broker: MakeBroker, master: Broker) -> None:
    slave = await make_slave(make_broker, master, flush_mode=FlushMode.SYNC, flush_interval_ms=10**9)
    await wait_for(lambda: bool(master.replication.server.list_slaves()))
    group_commit = slave.background.group_commit
    want = group_commit.when_flushed

    def give_up(position: int) -> asyncio.Future[bool]:
        """As when the log is cut while the disk works."""
        group_commit.when_flushed = want  # type: ignore[method-assign]
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        future.set_result(False)
        return future

    group_commit.when_flushed = give_up  # type: ignore[method-assign]
    fill(master, 3)
    await wait_until_equal(master, slave)
    assert slave.store.flusher.flushed == master.store.log.tail


async def test_nothing_is_cut_for_epochs_that_cannot_be(
    make_broker: MakeBroker, master: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(master, 3)
    slave = await make_slave(make_broker, master)
    await wait_until_equal(master, slave)
    kept, describe = read_log(slave), StateHandlers.describe

    def describe_wrong(handlers: StateHandlers, check_crc: int = -1) -> ReplicationState:
        state = describe(handlers, check_crc)
        if handlers is master.replication.state:
            state.epochs = [EpochStart(epoch=9, start=0), EpochStart(epoch=1, start=10)]
        return state

    with caplog.at_level(logging.WARNING, LOGGER):
        monkeypatch.setattr(StateHandlers, "describe", describe_wrong)
        master.replication.server.drop_links("a test says so")
        await wait_for(lambda: "cannot follow" in caplog.text)
    assert read_log(slave) == kept
    assert slave.store.lineage.record.diverged == []


@pytest.mark.parametrize(("before", "after"), [(b'"epoch":1', b'"epoch":7'), (b'"code":0', b'"code":3')])
async def test_a_state_with_a_digit_that_changed_on_its_way_is_not_believed(
    make_broker: MakeBroker, master: Broker, before: bytes, after: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    fill(master, 3)
    handlers = master.ports.handlers
    tell = handlers[RequestCode.REPLICATION_STATE]

    def tell_wrong(link: Link, command: Command) -> bytes:
        data = tell(link, command)
        assert isinstance(data, bytes) and before in data
        return data.replace(before, after)

    handlers[RequestCode.REPLICATION_STATE] = tell_wrong
    with caplog.at_level(logging.WARNING, LOGGER):
        slave = await make_slave(make_broker, master)
        await wait_for(lambda: "corrupted" in caplog.text or "did not return its state" in caplog.text)
    assert not is_connected(slave)
    assert slave.store.lineage.seen_epoch == 0
    handlers[RequestCode.REPLICATION_STATE] = tell
    await wait_until_equal(master, slave)
    assert read_log(slave) == read_log(master)

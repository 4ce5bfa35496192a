"""When a sender is told that its message is safe: disk and slaves, which takes precedence, and timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from eruca._broker.administering.rates import PutTimes
from eruca._broker.options import BrokerOptions, BrokerRole, LiveOptions
from eruca._broker.replication.acknowledging import Acknowledgement, Gate
from eruca._broker.replication.readlimit import ReadLimit
from eruca._broker.standing import Standing
from eruca._ground.clock import SystemClock
from eruca._ground.config import FlushMode
from eruca._store.background import StoreBackground
from eruca._store.messagestore import MessageStore, open_store
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._wire.codes import ResponseCode
from tests.unit.store.samples import ROOT, make_disk, make_message, make_options, wait_for

NEVER_MS = 10**9
SYNC_MASTER: dict[str, Any] = {"role": BrokerRole.SYNC_MASTER}
LINK = 1


class Desk:
    """A store, and the acknowledgement of what is stored in it."""

    def __init__(self, store: MessageStore, background: StoreBackground, options: BrokerOptions) -> None:
        self.store = store
        self.options = LiveOptions(options)
        self.times = PutTimes()
        self.clock = VirtualClock()
        self.gate = Gate(self.clock)
        self.gate.open_until(1.0)
        standing = Standing(options)
        self.acknowledgement = Acknowledgement(
            self.options,
            standing,
            store,
            background.group_commit,
            self.times,
            ReadLimit(self.options, standing, store),
            self.gate,
        )
        self.told: list[tuple[int, ResponseCode]] = []

    def put(self, *, waits: bool = True) -> int:
        """Store a message and wait for it; return where it ends."""
        message = self.store.append(make_message())
        end = message.position + message.size
        self.acknowledgement.when_done(end, lambda code: self.told.append((end, code)), waits=waits)
        return end

    def join(self, link: int = LINK, *, position: int = 0) -> None:
        """A slave connects."""
        self.acknowledgement.condition.add(link)
        self.report(position, link)

    def report(self, position: int, link: int = LINK) -> None:
        """Report the position of a slave."""
        self.acknowledgement.condition.report(link, position)
        self.acknowledgement.release()

    @property
    def codes(self) -> list[ResponseCode]:
        """The results so far."""
        return [code for _, code in self.told]


@asynccontextmanager
async def open_desk(disk: SimulatedDisk | None = None, **options: Any) -> AsyncIterator[Desk]:
    for_broker = {key: options.pop(key) for key in list(options) if key in BrokerOptions.__dataclass_fields__}
    intervals = {"flush_interval_ms": NEVER_MS, "queue_flush_interval_ms": NEVER_MS}
    store = open_store(ROOT, make_options(**(intervals | options)), disk=disk or make_disk(), clock=SystemClock())
    background = StoreBackground(store, retention_interval_ms=NEVER_MS)
    background.start()
    try:
        yield Desk(store, background, BrokerOptions(**for_broker))
    finally:
        await background.stop()


# -- who waits at all --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "flush", "copies", "waits", "needs"),
    [
        (BrokerRole.ASYNC_MASTER, FlushMode.ASYNC, 2, True, False),
        (BrokerRole.ASYNC_MASTER, FlushMode.SYNC, 2, True, True),
        (BrokerRole.SYNC_MASTER, FlushMode.ASYNC, 2, True, True),
        (BrokerRole.SYNC_MASTER, FlushMode.ASYNC, 1, True, True),
        (BrokerRole.SYNC_MASTER, FlushMode.SYNC, 2, False, False),
        (BrokerRole.SYNC_MASTER, FlushMode.ASYNC, 2, False, False),
    ],
)
async def test_who_waits(role: BrokerRole, flush: FlushMode, copies: int, waits: bool, needs: bool) -> None:
    async with open_desk(role=role, flush_mode=flush, in_sync_replicas=copies) as desk:
        assert desk.acknowledgement.needs_wait(waits) is needs


async def test_nobody_waits_for_a_disk_that_is_asynchronous() -> None:
    async with open_desk() as desk:
        desk.put()
        assert desk.codes == [ResponseCode.SUCCESS]
        assert desk.store.flusher.flushed == 0


# -- the disk ----------------------------------------------------------------------------------------------------------


async def test_with_synchronous_flush_the_disk_has_it_first() -> None:
    async with open_desk(flush_mode=FlushMode.SYNC) as desk:
        for _ in range(20):
            desk.put()
        assert not desk.told
        await wait_for(lambda: len(desk.told) == 20)
        assert set(desk.codes) == {ResponseCode.SUCCESS}
        assert desk.store.flusher.flushed == desk.store.log.tail
        assert await desk.acknowledgement.wait(desk.store.log.tail) is ResponseCode.SUCCESS


async def test_a_disk_that_takes_too_long_is_said_and_left_alone() -> None:
    disk = make_disk()
    async with open_desk(disk, flush_mode=FlushMode.SYNC, sync_flush_timeout_ms=200) as desk:
        desk.put()
        await wait_for(lambda: len(desk.told) == 1)
        disk.broken_sync = True
        desk.put()
        desk.put()
        await wait_for(lambda: len(desk.told) == 3)
        assert desk.codes[1:] == [ResponseCode.FLUSH_DISK_TIMEOUT] * 2
        disk.broken_sync = False
        # From now on it may be slow.
        desk.store.options = replace(desk.store.options, sync_flush_timeout_ms=NEVER_MS)
        desk.put()
        await wait_for(lambda: len(desk.told) == 4)
        assert desk.codes[3] is ResponseCode.SUCCESS


# -- slaves ------------------------------------------------------------------------------------------------------------


async def test_without_a_slave_that_is_said_at_once() -> None:
    async with open_desk(**SYNC_MASTER) as desk:
        desk.put()
        assert desk.codes == [ResponseCode.SLAVE_NOT_AVAILABLE]


async def test_without_a_slave_the_disk_is_waited_for_all_the_same() -> None:
    async with open_desk(flush_mode=FlushMode.SYNC, **SYNC_MASTER) as desk:
        desk.put()
        assert not desk.told
        await wait_for(lambda: len(desk.told) == 1)
        assert desk.codes == [ResponseCode.SLAVE_NOT_AVAILABLE]
        assert desk.store.flusher.flushed == desk.store.log.tail


async def test_one_copy_is_there_at_once() -> None:
    async with open_desk(in_sync_replicas=1, **SYNC_MASTER) as desk:
        desk.put()
        assert desk.codes == [ResponseCode.SUCCESS]


async def test_those_whose_messages_a_slave_has_are_told_together() -> None:
    async with open_desk(**SYNC_MASTER) as desk:
        desk.join()
        ends = [desk.put() for _ in range(5)]
        assert not desk.told
        desk.report(ends[0] - 1)
        assert not desk.told
        desk.report(ends[2])
        assert desk.told == [(end, ResponseCode.SUCCESS) for end in ends[:3]]
        desk.report(ends[4] + 100)
        assert [end for end, _ in desk.told] == ends
        assert desk.acknowledgement.waiting == 0


async def test_a_slave_that_takes_too_long_is_said() -> None:
    async with open_desk(slave_timeout_ms=20, **SYNC_MASTER) as desk:
        desk.join()
        first, second = desk.put(), desk.put()
        await wait_for(lambda: len(desk.told) == 2)
        assert desk.codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2
        desk.report(second)
        assert len(desk.told) == 2  # no sender is told twice
        third = desk.put()
        desk.report(third)
        assert desk.codes[2] is ResponseCode.SUCCESS
        assert first < second < third


async def test_a_slave_that_goes_is_waited_for_until_it_comes_back_or_time_is_over() -> None:
    async with open_desk(**SYNC_MASTER) as desk:
        desk.join()
        end = desk.put()
        desk.acknowledgement.condition.remove(LINK)
        desk.put()  # too late to wait for any slave
        assert desk.codes == [ResponseCode.SLAVE_NOT_AVAILABLE]
        desk.join(2, position=end)
        assert desk.told[1] == (end, ResponseCode.SUCCESS)


async def test_a_slave_too_far_behind_is_none() -> None:
    async with open_desk(behind_bytes_max=1000, **SYNC_MASTER) as desk:
        desk.join()
        desk.put()
        assert not desk.told
        while desk.store.log.tail < 1000:
            desk.store.append(make_message())
        desk.put()
        assert desk.codes == [ResponseCode.SLAVE_NOT_AVAILABLE]


async def test_as_many_slaves_as_the_option_says_must_have_it() -> None:
    async with open_desk(in_sync_replicas=3, **SYNC_MASTER) as desk:
        desk.join(1)
        desk.put()
        assert desk.codes == [ResponseCode.SLAVE_NOT_AVAILABLE]
        desk.join(2)
        end = desk.put()
        desk.report(end, 1)
        assert len(desk.told) == 1
        desk.report(end, 2)
        assert desk.told[1] == (end, ResponseCode.SUCCESS)
        desk.options.change(in_sync_replicas=2)  # an operator may change it
        end = desk.put()
        desk.report(end, 1)
        assert desk.told[2] == (end, ResponseCode.SUCCESS)


# -- both --------------------------------------------------------------------------------------------------------------


async def test_both_must_have_it() -> None:
    disk = make_disk()
    async with open_desk(disk, flush_mode=FlushMode.SYNC, **SYNC_MASTER) as desk:
        desk.join()
        end = desk.put()
        await wait_for(lambda: desk.store.flusher.flushed == end)
        assert not desk.told  # the slave has not confirmed
        desk.report(end)
        assert desk.codes == [ResponseCode.SUCCESS]
        disk.broken_sync = True
        end = desk.put()
        desk.report(end)
        await wait_for(lambda: desk.store.flusher.sync_failures > 0)
        assert len(desk.told) == 1  # the disk has not confirmed
        disk.broken_sync = False
        await wait_for(lambda: len(desk.told) == 2)
        assert desk.codes[1] is ResponseCode.SUCCESS


async def test_the_slaves_word_counts_more_than_the_disks() -> None:
    disk = make_disk()
    async with open_desk(
        disk, flush_mode=FlushMode.SYNC, sync_flush_timeout_ms=40, slave_timeout_ms=20, **SYNC_MASTER
    ) as desk:
        desk.join()
        end = desk.put()
        desk.report(end)
        await wait_for(lambda: len(desk.told) == 1)
        disk.broken_sync = True
        end = desk.put()  # the disk is late, the slave is not
        desk.report(end)
        desk.put()  # both are late
        await wait_for(lambda: len(desk.told) == 3)
        assert desk.codes[1:] == [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT]
        desk.acknowledgement.condition.remove(LINK)
        desk.put()  # no slave, and the disk is late
        await wait_for(lambda: len(desk.told) == 4)
        assert desk.codes[3] is ResponseCode.SLAVE_NOT_AVAILABLE


# -- changes of the master ---------------------------------------------------------------------------------------------


async def test_nothing_that_waits_is_acknowledged_when_a_mastership_ends() -> None:
    async with open_desk(flush_mode=FlushMode.SYNC, **SYNC_MASTER) as desk:
        desk.join()
        end = desk.put()
        term = desk.acknowledgement.term
        desk.acknowledgement.abandon()
        assert desk.codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
        assert desk.acknowledgement.term != term
        desk.report(end)
        assert len(desk.told) == 1


async def test_what_slaves_confirmed_before_says_nothing_about_a_new_mastership() -> None:
    async with open_desk(**SYNC_MASTER) as desk:
        desk.join()
        desk.report(10**6)
        desk.put()
        assert desk.codes == [ResponseCode.SUCCESS]
        desk.acknowledgement.begin()
        desk.join(2)
        desk.put()
        assert len(desk.told) == 1


@pytest.mark.parametrize("role", list(BrokerRole))
async def test_a_broker_that_may_not_acknowledge_does_not(role: BrokerRole) -> None:
    async with open_desk(role=role, slave_timeout_ms=20) as desk:
        desk.join()
        desk.report(desk.put())
        assert desk.codes == [ResponseCode.SUCCESS]
        desk.clock.advance(1000)  # the lease is over
        for waits in (True, False):
            assert desk.acknowledgement.needs_wait(waits)
            desk.report(desk.put(waits=waits))
        await wait_for(lambda: len(desk.told) == 3)
        assert desk.codes[1:] == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2


async def test_the_members_of_the_in_sync_set_must_all_have_it() -> None:
    async with open_desk(in_sync_replicas=1, **SYNC_MASTER) as desk:
        condition = desk.acknowledgement.condition
        for link, member in ((1, 11), (2, 12)):
            condition.add(link, member)
            desk.report(0, link)
        condition.set_members(frozenset({11, 12}))
        assert desk.acknowledgement.needs_wait(True)
        end = desk.put()
        desk.report(end, 1)
        assert not desk.told
        desk.report(end, 2)
        assert desk.codes == [ResponseCode.SUCCESS]


async def test_many_wait_without_a_task_each() -> None:
    async with open_desk(commitlog_segment_bytes=1 << 20, **SYNC_MASTER) as desk:
        desk.join()
        before = len(asyncio.all_tasks())
        for _ in range(1000):
            desk.put()
        assert len(asyncio.all_tasks()) == before
        assert desk.acknowledgement.waiting == 1000
        desk.report(desk.store.log.tail)
        assert len(desk.told) == 1000

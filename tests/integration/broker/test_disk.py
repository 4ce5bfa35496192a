"""The disk of a broker: full, with space again, and with segments that are no longer needed."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from pathlib import Path

import pytest

from eruca._broker.app import Broker
from eruca._store.background import StoreBackground
from eruca._store.filesystem import LocalFileSystem, Mapping
from eruca._testing.clock import VirtualClock
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import PullMessageAnswerHeader
from eruca._wire.record import decode_records
from eruca.errors import StoreFull
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Peer
from tests.integration.broker.requests import EXPRESSION, HOLD, pull_header, send_header, try_pull, try_send
from tests.unit.net.rawpeer import SECONDS_MAX

ALWAYS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
HOUR_MS = 3_600_000


class TestedDisk(LocalFileSystem):
    """The machine's disk, as full and as old as a test requires."""

    __test__ = False

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.used = 0.1
        self.has_room = True
        self._clock = clock
        self._written_ms: dict[Path, int] = {}

    def used_ratio(self, path: Path) -> float:
        return self.used

    def create(self, path: Path, size: int, *, staging: Path, durable: bool) -> Mapping:
        if not self.has_room:
            raise StoreFull(f"create {path.name}: No space left on device")
        if self._clock is not None:
            self._written_ms[path] = self._clock.now_ms()
        return super().create(path, size, staging=staging, durable=durable)

    def modified_ms(self, path: Path) -> int:
        return self._written_ms.get(path) or super().modified_ms(path)


@pytest.fixture
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the disk every millisecond instead of every ten seconds."""
    monkeypatch.setattr(StoreBackground.__init__, "__kwdefaults__", {"retention_interval_ms": 1})


async def send_until(peer: Peer, code: int) -> None:
    """Send until the expected response arrives."""
    async with asyncio.timeout(SECONDS_MAX):
        while (await try_send(peer)).code != code:
            pass


@pytest.mark.usefixtures("look_often")
async def test_a_disk_that_fills_refuses_sends_and_takes_them_again_by_itself(
    make_broker: MakeBroker, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk = TestedDisk()
    broker = await make_broker(disk=disk)
    peer = make_peer(broker)
    await peer.send("T", body=b"before")
    disk.used = 0.91
    await send_until(peer, ResponseCode.SERVICE_NOT_AVAILABLE)
    for _ in range(20):
        answer = await try_send(peer)
        assert (answer.code, answer.ext) == (ResponseCode.SERVICE_NOT_AVAILABLE, ALWAYS)
        assert (answer.remark or "").startswith("service not available now, the disk is more than 90 percent full")
    # Existing messages can be read, and offsets committed.
    pulled = await try_pull(peer, sys_flag=EXPRESSION | 1, commit_offset=1)
    assert decode_records(pulled.command.body)[0].body == b"before"
    assert broker.offsets.get("readers", "T", 0) == 1
    disk.used = 0.89
    await send_until(peer, ResponseCode.SUCCESS)
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "90 percent full" in line]) == 1
    assert len([line for line in said if "has space again" in line]) == 1


@pytest.mark.parametrize("batch", [False, True])
async def test_every_kind_of_send_is_refused(make_broker: MakeBroker, make_peer: MakePeer, batch: bool) -> None:
    disk = TestedDisk()
    broker = await make_broker(disk=disk)
    peer = make_peer(broker)
    await peer.send("T")
    disk.used = 0.95
    await broker.background.retain()
    body = b"\0\0\0\x17" + b"\0" * 12 + b"\0\0\0\1x\0\0"
    header = send_header(batch=batch)
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        answer = await peer.ask(code, header, body)
        assert (answer.code, answer.ext) == (ResponseCode.SERVICE_NOT_AVAILABLE, ALWAYS)


async def test_a_held_pull_outlives_a_full_disk(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    disk = TestedDisk()
    broker = await make_broker(disk=disk)
    sender, reader = make_peer(broker), make_peer(broker)
    await sender.send("T")
    held = asyncio.create_task(
        reader.ask(RequestCode.PULL_MESSAGE, pull_header(queue_offset=1, sys_flag=EXPRESSION | HOLD))
    )
    disk.used = 0.95
    await broker.background.retain()
    assert (await try_send(sender)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert not held.done()
    disk.used = 0.5
    await broker.background.retain()
    await sender.send("T", body=b"after")
    assert decode_records((await held).command.body)[0].body == b"after"


async def test_no_room_for_the_next_segment(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    """The disk does not count as full yet when a file cannot be created: the sender gets an error, nothing breaks."""
    disk = TestedDisk()
    broker = await make_broker(disk=disk, commitlog_segment_bytes=1 << 16)
    peer = make_peer(broker)
    await peer.send("T", body=b"first")
    disk.has_room = False
    taken = 1
    async with asyncio.timeout(SECONDS_MAX):
        while (answer := await try_send(peer, body=b"x" * 1000)).code == ResponseCode.SUCCESS:
            taken += 1
    assert taken < 500
    assert (answer.code, answer.ext) == (ResponseCode.SERVICE_NOT_AVAILABLE, ALWAYS)
    assert "No space left" in (answer.remark or "")
    assert decode_records((await try_pull(peer)).command.body)[0].body == b"first"
    disk.has_room = True
    await send_until(peer, ResponseCode.SUCCESS)
    queue = broker.store.queues.get("T", 0)
    assert queue is not None
    assert queue.max_offset == taken + 1  # refused messages left no gap
    await broker.stop()
    again = await make_broker(disk=disk, commitlog_segment_bytes=1 << 16)
    queue = again.store.queues.get("T", 0)
    assert queue is not None
    assert queue.max_offset == taken + 1


# -- segments that go ------------------------------------------------------------------------------------------------


def at_hour(day: int, hour: int, minute: int = 0) -> int:
    """A local time in milliseconds."""
    return int(datetime(2026, 3, day, hour, minute).timestamp() * 1000)


async def fill_segments(broker: Broker, peer: Peer, count: int) -> None:
    """Send until the log has this many segments, all of them synced."""
    store = broker.store
    while len(store.log.chain.segments) < count:
        await peer.send("T", body=b"x" * 10_000)
    await asyncio.to_thread(store.flusher.sync_log)
    await asyncio.to_thread(store.flusher.sync_derived)


def let_pass(clock: VirtualClock, until_ms: int) -> None:
    """Advance the clock to a time."""
    clock.advance(until_ms - clock.now_ms())


async def make_old_broker(
    make_broker: MakeBroker, make_peer: MakePeer, **options: int | str
) -> tuple[Broker, Peer, VirtualClock, TestedDisk]:
    clock = VirtualClock(at_hour(1, 10))
    disk = TestedDisk(clock)
    broker = await make_broker(clock=clock, disk=disk, commitlog_segment_bytes=1 << 16, idle_seconds=3600, **options)
    peer = make_peer(broker)
    await fill_segments(broker, peer, 5)
    return broker, peer, clock, disk


async def test_expired_segments_go_at_their_hour(make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path) -> None:
    broker, peer, clock, _ = await make_old_broker(make_broker, make_peer)
    store = broker.store
    retain = broker.background.retain
    folder = tmp_path / "store" / "commitlog"
    let_pass(clock, at_hour(4, 4))  # at the hour, but kept for 66 of 72 hours
    assert await retain() == 0
    let_pass(clock, at_hour(5, 3, 59))  # expired, but not at the hour
    assert await retain() == 0
    let_pass(clock, at_hour(5, 5))
    assert await retain() == 0
    assert store.log.start == 0
    clock.set_ms(at_hour(5, 4, 30))  # half an hour back, which has no effect
    assert await retain() >= 4
    start = store.log.start
    assert start >= 4 << 16
    # The next segment is created in advance, and may just have appeared.
    assert await asyncio.to_thread(lambda: min(path.name for path in folder.iterdir())) == f"{start:020d}"
    # A reader of deleted messages is told where to continue, and finds the rest there.
    moved = await try_pull(peer)
    header = moved.command.decode_header(PullMessageAnswerHeader)
    assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL")
    assert header.next_begin_offset == header.min_offset > 0
    found = await try_pull(peer, queue_offset=header.next_begin_offset)
    assert found.code == ResponseCode.SUCCESS
    assert decode_records(found.command.body)[0].position >= start
    await peer.send("T", body=b"goes on")


@pytest.mark.usefixtures("look_often")
async def test_the_timer_of_the_broker_does_it(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker, _, clock, _ = await make_old_broker(make_broker, make_peer)
    store = broker.store
    let_pass(clock, at_hour(5, 4))
    async with asyncio.timeout(SECONDS_MAX):
        while store.log.start < 4 << 16:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert store.log.start % (1 << 16) == 0


async def test_the_hour_and_the_age_are_options(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker, _, clock, _ = await make_old_broker(make_broker, make_peer, delete_hours="13;22", retention_hours=2)
    retain = broker.background.retain
    let_pass(clock, at_hour(1, 12, 30))
    assert await retain() == 0
    let_pass(clock, at_hour(1, 13, 1))
    assert await retain() >= 4


async def test_a_disk_that_fills_does_not_wait_for_the_hour(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker, _, clock, disk = await make_old_broker(make_broker, make_peer)
    retain = broker.background.retain
    disk.used = 0.8
    assert await retain() == 0  # nothing is expired
    disk.used = 0.86
    assert await retain() >= 4  # now they are deleted anyway
    clock.advance(HOUR_MS)
    assert len(broker.store.log.chain.segments) >= 1

"""What is in flight survives: a clean stop, a crash at any record, a log that was kept short."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from eruca._broker.app import Broker
from eruca._broker.popping import poplog
from eruca._core.popping import pages
from eruca._testing.clock import VirtualClock
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import UpdateConsumerOffsetHeader
from eruca._wire.names import POP_TOPIC
from eruca._wire.record import Record, decode_record
from eruca.errors import StoreFull
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import cut_unheard
from tests.integration.broker.peer import Peer
from tests.integration.broker.popping.popper import (
    GROUP,
    INVISIBLE_MS,
    TOPIC,
    Got,
    ack,
    bodies,
    change,
    pop,
    revive,
    try_ack,
)
from tests.integration.broker.replication.members import wait_until


async def restart(broker: Broker, make_broker: MakeBroker, clock: VirtualClock, **options: object) -> Broker:
    """Stop a broker and start another one on its directory."""
    await broker.stop()
    return await make_broker(clock=clock, **options)


async def fill(peer: Peer, count: int, queues: int = 2) -> None:
    await peer.make_topic(TOPIC, queues)
    for number in range(count):
        await peer.send(TOPIC, number % queues, b"%03d" % number)


async def pop_all(peer: Peer, **fields: object) -> list[Got]:
    """Pop until there is nothing."""
    got: list[Got] = []
    while more := await pop(peer, **fields):
        got += more
    return got


async def test_handles_outlive_a_restart(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    await fill(peer, 20)
    got = await pop(peer)
    await ack(peer, *got[:4])
    moved = await change(peer, got[4], 2 * INVISIBLE_MS)
    broker = await restart(broker, make_broker, clock)
    peer = make_peer(broker)
    assert broker.popping.service.in_flight == 16
    assert await pop(peer) == []
    assert (await try_ack(peer, got[0])).code == ResponseCode.NO_MESSAGE
    await ack(peer, *got[5:10])
    clock.advance(INVISIBLE_MS + 1000)
    revive(broker)
    assert bodies(await pop(peer)) == bodies(got[10:])
    await ack(peer, moved)


async def test_a_crash_at_any_record(make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path) -> None:
    """Acknowledged before the cut: never again. In flight or not popped: exactly one copy is left."""
    clock = VirtualClock()
    seed = random.randrange(1 << 32)
    print("seed", seed)
    choose = random.Random(seed)
    for round_number in range(6):
        name = f"store{round_number}"
        broker = await make_broker(clock=clock, name=name)
        peer = make_peer(broker)
        await fill(peer, 24)
        acked: dict[str, int] = {}
        for _ in range(3):
            got = await pop(peer, max_message_nums=choose.randrange(1, 12))
            for each in choose.sample(got, len(got) // 3):
                await ack(peer, each)
                acked[each.body] = broker.store.log.tail
            clock.advance(INVISIBLE_MS + 1000)
            revive(broker)
        ends = list_ends(broker)
        await broker.stop()
        # A clean stop saved them; a crash would have come before.
        await asyncio.to_thread((tmp_path / name / "config" / "consumerOffset.json").unlink)
        cut = choose.choice(ends[:-1])  # behind the last one there is nothing to cut
        await asyncio.to_thread(cut_unheard, tmp_path / name, cut)
        broker = await make_broker(clock=clock, name=name)
        peer = make_peer(broker)
        clock.advance(INVISIBLE_MS + 1000)
        revive(broker)
        left = bodies(await pop_all(peer))
        before_cut = {body for body, end in acked.items() if end <= cut}
        assert left == sorted({f"{number:03}" for number in range(24)} - before_cut)
        await broker.stop()


def list_ends(broker: Broker) -> list[int]:
    """The ends of the records after the last message that was sent."""
    ends = []
    position = max(queue.end_position for queue in broker.store.queues if queue.topic == TOPIC)
    while position < broker.store.log.tail:
        view = broker.store.reader.view_record(position)
        assert view is not None
        position += decode_record(view).size
        ends.append(position)
    return ends


async def test_the_log_is_kept_short(
    make_broker: MakeBroker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poplog, "RECORDS_MAX", 8)
    monkeypatch.setattr(poplog, "PAGE_RECORDS", 4)
    monkeypatch.setattr(pages, "PAGE_RECORDS", 4)
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    await fill(peer, 60)
    old = await pop(peer, max_message_nums=5, invisible_time=100 * INVISIBLE_MS)
    await ack(peer, *old[:2])
    for _ in range(50):
        await ack(peer, *await pop(peer, max_message_nums=1))
        while broker.popping.redelivery.keep_short():
            pass
    queue = broker.store.queues.get(POP_TOPIC, 0)
    assert queue is not None
    broker = await restart(broker, make_broker, clock)
    peer = make_peer(broker)
    assert broker.popping.service.in_flight == 3
    assert broker.popping.redelivery.low > queue.max_offset - 30
    await ack(peer, *old[2:])
    assert len(await pop_all(peer)) == 5


async def test_an_offset_that_was_reset_outlives_a_restart(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    await fill(peer, 10, queues=1)
    await ack(peer, *await pop(peer))
    header = UpdateConsumerOffsetHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=4)
    await peer.expect(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    broker = await restart(broker, make_broker, clock)
    assert len(await pop(make_peer(broker))) == 6


async def test_offsets_come_from_the_log(make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path) -> None:
    """The table of offsets was not saved before the crash."""
    broker = await make_broker()
    peer = make_peer(broker)
    await fill(peer, 10, queues=1)
    got = await pop(peer)
    await ack(peer, *got)
    await broker.stop()
    # No topics either: they are found again by their queues.
    await asyncio.to_thread(shutil.rmtree, tmp_path / "store" / "config")
    broker = await make_broker()
    peer = make_peer(broker)
    await peer.make_topic(TOPIC, 1)
    assert await pop(peer) == []


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_copy_that_could_not_be_stored_is_owed(
    make_broker: MakeBroker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    await fill(peer, 4, queues=1)
    await pop(peer)
    clock.advance(INVISIBLE_MS + 1000)
    append = broker.store.append
    stored: list[Record] = []

    def fail(record: Record) -> Record:
        if record.topic.startswith("%RETRY%") and len(stored) == 2:
            raise StoreFull("the test says so")
        stored.append(record)
        return append(record)

    stored.append(Record(TOPIC))  # the announcement makes two
    monkeypatch.setattr(broker.store, "append", fail)
    revive(broker)
    monkeypatch.setattr(broker.store, "append", append)
    if restarts:
        broker = await restart(broker, make_broker, clock)
        peer = make_peer(broker)
    await wait_until(lambda: broker.store.queues.find_end(f"%RETRY%{GROUP}_{TOPIC}", 0) == 4)
    assert bodies(await pop_all(peer)) == ["000", "001", "002", "003"]

"""Messages that are stored once: dropped when they are sent again, even after a crash, and no others."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.sending.once import TABLE_NAME
from eruca._observe.metrics import SERVER
from eruca._testing.faults import SimulatedDisk
from eruca._wire.batch import BatchItem, encode_batch
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.once import ONCE_GROUP, OnceMark, drop_mark, read_mark
from eruca._wire.record import Record, decode_record
from eruca.errors import MessageIllegal
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import append_to, cut_unheard, stored
from tests.integration.broker.peer import Answer, Peer
from tests.integration.broker.requests import send_header, try_send


def make_mark(sequence: int, batch: int = 0, partition: int = 0, query: str = "q") -> str:
    return f"ERUCA_ONCE\x01{query}:{batch}:{partition}:{sequence}"


async def send_rows(
    peer: Peer, rows: Iterable[int], batch: int = 0, partition: int = 0, query: str = "q", **fields: Any
) -> Answer:
    items = [BatchItem(0, b"row-%d" % row, make_mark(row, batch, partition, query).encode()) for row in rows]
    header = send_header(producer_group=ONCE_GROUP, batch=True, **fields)
    return await peer.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(items))


async def send_row(peer: Peer, row: int, batch: int = 0, extra: str = "", **fields: Any) -> Answer:
    properties = make_mark(row, batch) + extra
    return await try_send(peer, body=b"row-%d" % row, producer_group=ONCE_GROUP, properties=properties, **fields)


async def copy_as_killed(tmp_path: Path, to: str = "killed") -> str:
    """The files of a running broker at this moment are what `kill -9` leaves."""

    def copy() -> None:
        while True:
            try:
                shutil.copytree(tmp_path / "store", tmp_path / to)
                return
            except shutil.Error:  # a new segment or table got its name while the directory was read
                shutil.rmtree(tmp_path / to)

    await asyncio.to_thread(copy)
    return to


def bodies(broker: Broker, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in stored(broker, topic, queue_id)]


def rows(*numbers: int) -> list[bytes]:
    return [b"row-%d" % number for number in numbers]


async def test_what_comes_again_is_dropped_and_answered_as_stored(broker: Broker, peer: Peer) -> None:
    first = await send_rows(peer, range(5))
    assert first.code == ResponseCode.SUCCESS
    for again in (range(5), range(2), range(3, 5)):
        answer = await send_rows(peer, again)
        assert answer.code == ResponseCode.SUCCESS
        assert answer.ext is not None
        assert (answer.ext["queueOffset"], answer.ext["msgId"]) == ("-1", "")
    assert bodies(broker) == rows(0, 1, 2, 3, 4)
    assert broker.once.dropped == 9


async def test_of_a_batch_only_what_is_new_is_stored(broker: Broker, peer: Peer) -> None:
    await send_rows(peer, range(3))
    await send_rows(peer, range(6))
    assert bodies(broker) == rows(0, 1, 2, 3, 4, 5)


async def test_sequences_may_have_gaps(broker: Broker, peer: Peer) -> None:
    await send_rows(peer, [0, 4, 8])
    await send_rows(peer, [4, 8, 13])
    assert bodies(broker) == rows(0, 4, 8, 13)


async def test_queues_partitions_topics_and_queries_are_told_apart(broker: Broker, peer: Peer) -> None:
    await send_rows(peer, range(2))
    await send_rows(peer, range(2), queue_id=1)
    await send_rows(peer, range(2), partition=1)
    await send_rows(peer, range(2), topic="U")
    await send_rows(peer, range(2), query="p")
    assert bodies(broker) == rows(0, 1) * 3
    assert bodies(broker, queue_id=1) == bodies(broker, topic="U") == rows(0, 1)


async def test_a_newer_batch_begins_again_and_an_older_one_is_over(broker: Broker, peer: Peer) -> None:
    await send_rows(peer, range(2), batch=7)
    await send_rows(peer, range(2), batch=8)
    await send_rows(peer, range(9), batch=7)  # from a task that was abandoned
    await send_rows(peer, range(9), batch=7, queue_id=3)
    assert bodies(broker) == rows(0, 1, 0, 1)
    assert bodies(broker, queue_id=3) == []


async def test_a_newer_batch_in_another_topic_ends_nothing(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    """Whoever can read a topic knows the names of its queries, and may be able to publish to some other topic."""
    broker = await make_broker()
    peer = make_peer(broker)
    await send_rows(peer, range(2), batch=7)
    await send_rows(peer, range(1), batch=10**17, topic="U")
    await send_rows(peer, range(3), batch=7)
    assert bodies(broker) == rows(0, 1, 2)
    await broker.stop()
    again = await make_broker()
    other = make_peer(again)
    await send_rows(other, range(4), batch=7)
    await send_rows(other, range(2), batch=7, topic="U")
    assert bodies(again) == rows(0, 1, 2, 3)
    assert bodies(again, topic="U") == rows(0)


async def test_single_messages_are_dropped_too(broker: Broker, peer: Peer) -> None:
    for row in (0, 1, 1, 0, 2):
        assert (await send_row(peer, row)).code == ResponseCode.SUCCESS
    await send_rows(peer, range(4))
    assert bodies(broker) == rows(0, 1, 2, 3)


@pytest.mark.parametrize("delay", ["\x02DELAY\x0118", "\x02TIMER_DELAY_MS\x01600000"])
async def test_a_delayed_message_counts_for_the_queue_it_goes_to(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path, delay: str
) -> None:
    broker = await make_broker()
    peer = make_peer(broker)
    await send_row(peer, 0, queue_id=2)
    await send_row(peer, 1, extra=delay, queue_id=2)
    await send_row(peer, 1, queue_id=2)
    assert bodies(broker, queue_id=2) == rows(0)
    again = await make_broker(name=await copy_as_killed(tmp_path))
    await send_row(make_peer(again), 1, queue_id=2)
    await send_row(make_peer(again), 2, queue_id=2)
    assert bodies(again, queue_id=2) == rows(0, 2)


async def test_marks_of_others_are_not_looked_at_and_not_kept(broker: Broker, peer: Peer) -> None:
    for _ in range(2):
        await try_send(peer, body=b"row-0", properties=f"a\x01b\x02{make_mark(0)}\x02c\x01d")
    assert bodies(broker) == rows(0, 0)
    assert stored(broker, "T", 0)[0].properties == b"a\x01b\x02c\x01d\x02CLUSTER\x01DefaultCluster"
    assert not broker.once.is_ready


@pytest.mark.parametrize(
    "mark", ["", "q:1:2", "q:1:2:x", ":1:2:3", "q:1:2:-3", "q:1:2:" + "9" * 19, "q" * 65 + ":1:2:3"]
)
async def test_a_mark_that_is_none_is_refused(peer: Peer, mark: str) -> None:
    answer = await try_send(peer, producer_group=ONCE_GROUP, properties=f"ERUCA_ONCE\x01{mark}")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    items = [BatchItem(0, b"x", f"ERUCA_ONCE\x01{mark}".encode())]
    header = send_header(producer_group=ONCE_GROUP, batch=True)
    answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(items))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_marks_of_a_batch_out_of_order_are_refused(peer: Peer) -> None:
    for wrong in ([2, 1], [1, 1]):
        assert (await send_rows(peer, wrong)).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await send_row(peer, 1, queue_id=-1)).code == ResponseCode.MESSAGE_ILLEGAL


async def test_nothing_is_forgotten_by_a_kill(make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path) -> None:
    broker = await make_broker()
    peer = make_peer(broker)
    await send_rows(peer, range(5), batch=3)
    await send_rows(peer, range(5, 7), batch=3, queue_id=1)
    table = tmp_path / "store" / "config" / TABLE_NAME
    assert await asyncio.to_thread(table.exists)  # before the first message was stored
    killed = await make_broker(name=await copy_as_killed(tmp_path))
    peer = make_peer(killed)
    await send_rows(peer, range(8), batch=3)
    await send_rows(peer, range(5, 9), batch=3, queue_id=1)
    await send_rows(peer, range(5), batch=2)
    assert bodies(killed) == rows(0, 1, 2, 3, 4, 5, 6, 7)
    assert bodies(killed, queue_id=1) == rows(5, 6, 7, 8)


async def test_nothing_is_forgotten_by_a_clean_stop(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker()
    await send_rows(make_peer(broker), range(5))
    await broker.stop()
    broker = await make_broker()
    await send_rows(make_peer(broker), range(7))
    assert bodies(broker) == rows(0, 1, 2, 3, 4, 5, 6)


async def test_a_saved_table_and_the_log_behind_it_make_one(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path
) -> None:
    broker = await make_broker()
    once, saver = broker.once, broker.saver
    peer = make_peer(broker)
    await send_rows(peer, range(3))
    once.save_if_changed()
    assert "once" not in saver.unsaved  # the disk does not have the log yet
    await asyncio.to_thread(broker.store.flusher.sync_log)
    once.save_if_changed()
    await saver.wait_until_saved("once")
    await send_rows(peer, range(3, 6))
    await send_rows(peer, range(6), batch=1, query="other")
    killed = await make_broker(name=await copy_as_killed(tmp_path))
    peer = make_peer(killed)
    await send_rows(peer, range(7))
    await send_rows(peer, range(7), batch=1, query="other")
    assert bodies(killed) == rows(0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 6)


async def test_a_table_about_a_longer_log_is_not_believed(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path
) -> None:
    broker = await make_broker()
    await send_rows(make_peer(broker), range(3))
    early = await copy_as_killed(tmp_path, to="early")
    await send_rows(make_peer(broker), range(3, 6))
    await broker.stop()
    # A power loss: the table of the end, and the log of the middle.
    late, table = (tmp_path / name / "config" / TABLE_NAME for name in ("store", early))
    await asyncio.to_thread(shutil.copyfile, late, table)
    lost = await make_broker(name=early)
    await send_rows(make_peer(lost), range(6))
    assert bodies(lost) == rows(0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("is_longer", [False, True])
async def test_a_cut_that_nobody_was_told_of_is_noticed_when_the_table_is_loaded(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path, is_longer: bool
) -> None:
    broker = await make_broker()
    await send_rows(make_peer(broker), range(3))
    position = broker.store.log.tail
    await send_rows(make_peer(broker), range(3, 6))
    await broker.stop()
    await asyncio.to_thread(cut_unheard, tmp_path / "store", position)
    if is_longer:  # than the table knows
        other = Record(topic="Other", queue_id=0, body=bytes(10_000), properties=b"")
        await asyncio.to_thread(append_to, tmp_path / "store", other)
    again = await make_broker()
    await send_rows(make_peer(again), range(6))
    assert bodies(again) == rows(0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.whole] if n >= 6 else []) for n in range(40)])
async def test_after_power_losses_a_replay_completes_what_the_log_has(
    make_broker: MakeBroker, make_peer: MakePeer, seed: int
) -> None:
    """Rows are sent, acknowledged or not; the power fails; all is sent again from the start, until it succeeds."""
    rng = random.Random(seed)
    disk = SimulatedDisk(seed=seed)
    total = rng.randrange(20, 200)
    options: dict[str, Any] = {"hold_scan_ms": 60_000, "offsets_interval_ms": 60_000, "flush_interval_ms": 60_000}
    for life in range(4):
        broker = await make_broker(disk=disk, consumequeue_segment_bytes=20_000, **options)
        peer = make_peer(broker)
        at = 0
        # Only the last run gets to the end.
        while at < (total if life == 3 else rng.randrange(1, total)):
            upto = min(total, at + rng.randrange(1, 40))
            assert (await send_rows(peer, range(at, upto), batch=5)).code == ResponseCode.SUCCESS
            at = upto
            if rng.random() < 0.4:
                await asyncio.to_thread(broker.store.flusher.sync_log)
            if rng.random() < 0.6:
                broker.once.save_if_changed()
                await broker.saver.wait_until_saved("once")
        if life < 3:
            twin = await asyncio.to_thread(rng.choice([disk.crash, disk.kill]))
            await broker.stop()
            disk = twin
    store = broker.store
    queue = store.queues.get("T", 0)
    assert queue is not None
    views = [store.reader.view_record(position) for position, _, _ in queue.entries(0, queue.max_offset)]
    found = Counter(decode_record(view).body for view in views if view is not None)
    assert found == {body: 1 for body in rows(*range(total))}


async def test_the_query_not_heard_of_for_longest_is_forgotten(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(once_places_max=4)
    peer = make_peer(broker)
    for query in ("a", "b"):
        for queue_id in range(2):
            await send_rows(peer, range(1), query=query, queue_id=queue_id)
    await send_rows(peer, range(2), query="a")  # used again
    await send_rows(peer, range(1), query="c")
    once = broker.once
    found = {query: once.find_stored("T", 0, OnceMark(query, 0, 0, 0)) for query in "abc"}
    assert found == {"a": 1, "b": -1, "c": 0}


@pytest.mark.parametrize("option", ["once_queries_max", "once_places_max"])
async def test_queries_of_one_topic_do_not_push_out_those_of_another(
    make_broker: MakeBroker, make_peer: MakePeer, option: str
) -> None:
    """Others may publish to that one only."""
    broker = await make_broker(**{option: 6})
    peer = make_peer(broker)
    for query in ("a", "b"):
        await send_rows(peer, range(1), query=query)
    for restart in (False, True):
        if restart:
            await broker.stop()
            broker = await make_broker(**{option: 6})
            peer = make_peer(broker)
        for number in range(20):
            await send_rows(peer, range(1), query=f"x{number}", topic="Evil")
        once = broker.once
        assert [once.find_stored("T", 0, OnceMark(query, 0, 0, 0)) for query in "ab"] == [0, 0]
        left = [number for number in range(20) if once.find_stored("Evil", 0, OnceMark(f"x{number}", 0, 0, 0)) == 0]
        assert left == [16, 17, 18, 19]
    # A topic without any gets room.
    await send_rows(peer, range(1), query="new", topic="New")
    assert once.find_stored("New", 0, OnceMark("new", 0, 0, 0)) == 0
    shown = SERVER.snapshot()
    assert shown["eruca_server_once_queries"] >= 6 <= shown["eruca_server_once_places"]


async def test_one_query_alone_cannot_fill_the_memory(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    peer = make_peer(await make_broker(once_places_max=2))
    codes = [(await send_rows(peer, range(1), partition=partition)).code for partition in range(3)]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE]


async def test_what_a_broker_says_of_itself(broker: Broker, peer: Peer) -> None:
    await send_rows(peer, range(2))
    await send_rows(peer, range(2))
    table = (await peer.expect(RequestCode.GET_BROKER_RUNTIME_INFO)).body.table
    assert (table["erucaOnce"], table["erucaOnceDropped"]) == ("1", "2")


def test_marks_are_read_as_they_are_written() -> None:
    assert read_mark(b"a\x01b\x02ERUCA_ONCE\x01q:1:2:3") == OnceMark("q", 1, 2, 3)
    assert read_mark(b"a\x01b") is None
    with pytest.raises(MessageIllegal, match="query:batch"):
        read_mark(b"ERUCA_ONCE\x01nonsense")
    assert drop_mark("ERUCA_ONCE\x01q:1:2:3\x02a\x01b") == "a\x01b"

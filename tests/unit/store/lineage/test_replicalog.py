"""The log of a slave: the same bytes as its master's, whatever the chunks, and never a part of a record for readers."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from eruca._store.lineage.replicalog import ReplicaLog
from eruca._store.messagestore import MessageStore, open_store
from eruca._store.queues.dispatch import Grown
from eruca._store.reading.slices import ReadStatus
from eruca._store.retention import Retention
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import CrashMode, Fault
from eruca._wire.record import decode_record, encode_record
from eruca._wire.sysflag import TRANSACTION_PREPARED
from eruca.errors import ReplicaCorrupt, StoreError, StoreFull, StoreReadOnly
from tests.retaining import retain
from tests.unit.store.replicas import copy_log, expect_same, expect_sound, make_master, make_slave, read_log
from tests.unit.store.samples import (
    ROOT,
    SEGMENT_BYTES,
    get_queue,
    make_disk,
    make_message,
    make_options,
    open_small,
    read_bodies,
    sized_message,
)


def fill_simply(store: MessageStore, count: int, size: int = 500) -> list[int]:
    """Append records of one size to one queue; returns where they begin, and where the last one ends."""
    places = [store.append(sized_message(size)).position for _ in range(count)]
    return [*places, store.log.tail]


# --- the same bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_any_chunks_make_the_same_files(seed: int) -> None:
    rng = random.Random(f"chunks:{seed}")
    master = make_master(seed, rng.choice((1, 20, 80)))
    slave = make_slave()
    replica = ReplicaLog(slave)
    while replica.tail < master.log.tail:
        copy_log(master, replica, rng, end=rng.randint(replica.tail, master.log.tail))
        assert replica.dispatched <= replica.tail
        assert slave.queues.end_position() <= replica.dispatched
    expect_same(slave, master)
    slave.close()
    expect_sound(slave.disk)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_a_slave_that_is_stopped_or_killed_between_chunks_goes_on(seed: int) -> None:
    rng = random.Random(f"restarts:{seed}")
    master = make_master(seed, 60)
    slave = make_slave()
    disk = slave.disk
    while True:
        replica = ReplicaLog(slave)
        copy_log(master, replica, rng, end=min(master.log.tail, replica.tail + rng.randint(1, 6000)))
        dispatched = replica.dispatched
        if dispatched == master.log.tail:
            break
        if rng.random() < 0.5:
            slave.close()
        else:
            assert disk is slave.disk
            disk = disk.kill()  # type: ignore[attr-defined]
        slave = make_slave(disk)  # type: ignore[arg-type]
        # An end-of-segment record whose first bytes have arrived counts as complete: the rest is irrelevant.
        assert slave.log.tail in (dispatched, dispatched - dispatched % SEGMENT_BYTES + SEGMENT_BYTES)
    expect_same(slave, master)


def test_a_chunk_may_end_at_a_segment_and_the_next_begin_one() -> None:
    master, slave = open_small(make_disk()), make_slave()
    places = fill_simply(master, 20)
    replica = ReplicaLog(slave)
    borders = [0, places[3], SEGMENT_BYTES, 2 * SEGMENT_BYTES, places[-1]]
    for begin, end in pairwise(borders):
        replica.append(begin, read_log(master, begin, end))
        assert (replica.tail, replica.dispatched) == (end, end)
    expect_same(slave, master)


def test_segments_are_made_in_the_background_for_a_slave_too() -> None:
    master = make_master(1, 80)
    with ThreadPoolExecutor(1) as executor:
        slave = open_small(make_disk(), executor=executor)
        copy_log(master, ReplicaLog(slave), random.Random(1))
        slave.log.chain.settle()
        assert slave.log.chain.end == master.log.chain.end + SEGMENT_BYTES
        expect_same(slave, master)
        slave.close()


def test_properties_that_end_in_a_zero_byte_are_a_record_here() -> None:
    """Another implementation's master may write them; they look cut short only at the end of a log after a crash."""
    message = make_message(body=b"x" * 40)
    message.properties = b"KEYS\x01k\x02NOTE\x01n\0"
    data = encode_record(message)
    slave = make_slave()
    replica = ReplicaLog(slave)
    replica.append(0, data[:-1])
    assert replica.dispatched == 0
    replica.append(len(data) - 1, data[-1:])
    assert replica.dispatched == len(data)
    assert read_bodies(slave) == [message.body]


def test_a_transient_buffer_stays_out_of_it() -> None:
    master = make_master(2, 60)
    slave = make_slave(transient_enabled=True)
    replica = ReplicaLog(slave)
    copy_log(master, replica, random.Random(2))
    slave.commit()  # its timer keeps running
    expect_same(slave, master)
    replica.finish()
    slave.fence("")
    stored = slave.append(make_message())
    assert stored.position == slave.log.readable_end == master.log.tail
    slave.commit()
    assert slave.log.readable_end == slave.log.tail == stored.position + stored.size
    assert bytes(slave.reader.view_record(stored.position) or b"")


# --- parts of records -----------------------------------------------------------------------------------------------


def test_readers_never_see_a_part_of_a_record_and_the_flusher_syncs_it() -> None:
    master, slave = open_small(make_disk()), make_slave()
    places = fill_simply(master, 3)
    replica = ReplicaLog(slave)
    middle = places[2] + 499
    replica.append(0, read_log(master, 0, middle))
    assert (replica.tail, replica.dispatched, slave.log.readable_end) == (middle, places[2], places[2])
    assert slave.flusher.sync_log() == slave.flusher.flushed == middle
    slave.flusher.sync_derived()
    assert slave.checkpoint.position == places[2]
    assert len(read_bodies(slave)) == 2
    assert slave.reader.read("orders", 0, 2).status is ReadStatus.OFFSET_OVERFLOW_ONE
    assert slave.reader.view_record(places[2]) is None
    assert slave.log.view(places[2], 10) is None
    assert slave.log.read_bytes(0, middle) == read_log(master, 0, middle)
    replica.append(middle, read_log(master, middle, places[3]))
    assert len(read_bodies(slave)) == 3


@pytest.mark.parametrize("end", ["close", "kill", "power"])
def test_a_store_with_a_part_of_a_record_opens_at_the_last_whole_one(end: str) -> None:
    master = open_small(make_disk())
    places = fill_simply(master, 3)
    for cut in (1, 3, 4, 5, 8, 9, 36, 87, 88, 90, 91, 120, 491, 497):  # the last two bytes are zeros anyway
        disk = make_disk()
        slave = make_slave(disk)
        replica = ReplicaLog(slave)
        replica.append(0, read_log(master, 0, places[2] + cut))
        slave.flusher.sync_log()
        if end == "close":
            slave.close()
            again = make_slave(disk)
            assert again.recovered is not None
            assert not again.recovered.torn
        else:
            again = make_slave(disk.kill() if end == "kill" else disk.crash(CrashMode.DROP))
        assert again.log.tail == places[2]
        copy_log(master, ReplicaLog(again))
        expect_same(again, master)


def test_who_waits_is_told_when_all_of_a_queue_is_there() -> None:
    master, slave = open_small(make_disk()), make_slave()
    for number in range(12):
        master.append(make_message("orders" if number % 3 else "bills", number % 2))
    master.append(make_message("bills", 0, sys_flag=TRANSACTION_PREPARED))
    told: list[tuple[str, int, int, int]] = []

    def note(grown: Grown) -> None:
        for queue, begin in grown:
            topic, queue_id, end = queue.topic, queue.queue_id, queue.max_offset
            assert slave.reader.read(topic, queue_id, begin).count == end - begin
            told.append((topic, queue_id, begin, end))

    slave.dispatched.listen(note)
    replica = ReplicaLog(slave)
    half = master.log.tail // 2
    replica.append(0, read_log(master, 0, half))
    replica.append(half, read_log(master, half, master.log.tail))
    queues = {(topic, queue_id) for topic, queue_id, _, _ in told}
    assert queues == {("orders", 0), ("orders", 1), ("bills", 0), ("bills", 1)}
    for topic, queue_id in queues:
        runs = [(begin, end) for name, number, begin, end in told if (name, number) == (topic, queue_id)]
        assert runs[0][0] == 0
        assert runs[-1][1] == get_queue(master, topic, queue_id).max_offset
        assert all(earlier[1] == later[0] for earlier, later in pairwise(runs))
    assert slave.flusher.last_store_time == master.flusher.last_store_time


# --- where it continues ---------------------------------------------------------------------------------------------


def test_an_empty_log_begins_where_its_master_sends_from() -> None:
    master = make_master(3, 80)
    last = master.log.tail - master.log.tail % SEGMENT_BYTES
    slave = make_slave()
    replica = ReplicaLog(slave)
    assert replica.tail == 0
    replica.append(last, read_log(master, last, master.log.tail))
    assert slave.log.start == last
    assert slave.flusher.sync_log() == master.log.tail
    for queue in slave.queues:
        assert queue.max_offset == get_queue(master, queue.topic, queue.queue_id).max_offset
    before = {(queue.topic, queue.queue_id): read_bodies(slave, queue.topic, queue.queue_id) for queue in slave.queues}
    slave.close()
    expect_sound(slave.disk)  # type: ignore[arg-type]
    again = make_slave(slave.disk)  # type: ignore[arg-type]
    assert (again.log.start, again.log.tail) == (last, master.log.tail)
    assert before == {
        (queue.topic, queue.queue_id): read_bodies(again, queue.topic, queue.queue_id) for queue in again.queues
    }
    assert not again.damage.items


def test_an_empty_log_with_a_segment_made_in_advance_begins_elsewhere_too() -> None:
    master = make_master(3, 80)
    last = master.log.tail - master.log.tail % SEGMENT_BYTES
    with ThreadPoolExecutor(1) as executor:
        disk = make_disk()
        for _ in range(2):  # the second time the file is there already
            slave = open_small(disk, executor=executor)
            ReplicaLog(slave)
            slave.close()
        slave = open_small(disk, executor=executor)
        copy_log_from(last, master, ReplicaLog(slave))
        assert slave.log.start == last
        slave.close()
    assert next(int(path.name) for path in disk.files() if path.parent == ROOT / "commitlog") == last


def copy_log_from(position: int, master: MessageStore, replica: ReplicaLog) -> None:
    """Send an empty slave the log from a position on."""
    replica.append(position, read_log(master, position, master.log.tail))


def test_a_first_position_inside_a_segment_leaves_a_known_hole() -> None:
    master = open_small(make_disk())
    places = fill_simply(master, 12)
    slave = make_slave()
    copy_log_from(places[10], master, ReplicaLog(slave))
    assert slave.log.start == SEGMENT_BYTES < places[10]
    known = slave.damage.items
    assert [(item.position, item.end) for item in known] == [(SEGMENT_BYTES, places[10])]
    assert (get_queue(slave).min_offset, get_queue(slave).max_offset) == (10, 12)
    assert len(read_bodies(slave)) == 2
    slave.flusher.sync_log()
    again = make_slave(slave.disk.crash(CrashMode.DROP))  # type: ignore[attr-defined]
    assert again.damage.items == known
    assert len(read_bodies(again)) == 2


def test_bytes_for_another_place_are_refused() -> None:
    master, slave = make_master(4), make_slave()
    replica = ReplicaLog(slave)
    replica.append(0, read_log(master, 0, 1000))
    for position in (0, 999, 1001, 5000):
        with pytest.raises(StoreError, match="the log ends at 1000"):
            replica.append(position, read_log(master, position, position + 10))
    copy_log(master, replica)
    expect_same(slave, master)


# --- after a crash ----------------------------------------------------------------------------------------------------


def crash_slave(master: MessageStore, synced: int, end: int) -> MessageStore:
    """A slave that had synced a part of the log, had copied some more, and was killed."""
    slave = make_slave()
    replica = ReplicaLog(slave)
    copy_log(master, replica, end=synced)
    slave.flusher.sync_log()
    slave.flusher.sync_derived()
    copy_log(master, replica, end=end)
    disk = slave.disk.kill()  # type: ignore[attr-defined]
    return make_slave(disk)


def test_what_was_not_synced_is_compared_with_the_master() -> None:
    master = open_small(make_disk())
    places = fill_simply(master, 30)
    slave = crash_slave(master, places[5], places[20])
    assert slave.lineage.record.unsure == places[5]
    assert slave.log.tail == places[20]
    again = make_slave(slave.disk.kill())  # type: ignore[attr-defined]
    assert again.lineage.record.unsure == places[5]  # a second crash does not make it surer
    replica = ReplicaLog(again)
    assert replica.start_from(0) == replica.tail == places[5]
    assert len(read_bodies(again)) == 20  # readers have it all the same
    with pytest.raises(StoreError, match="expected those for"):
        replica.append(places[20], read_log(master, places[20], places[21]))
    copy_log(master, replica, random.Random(1), end=places[12])
    assert replica.tail == places[12]
    assert again.lineage.record.unsure == places[5]
    copy_log(master, replica, random.Random(2))
    assert again.lineage.record.unsure == -1
    assert not again.lineage.record.diverged
    expect_same(again, master)


def test_what_expires_while_it_is_compared_ends_the_comparison() -> None:
    master = open_small(make_disk())
    places = fill_simply(master, 30)
    slave = crash_slave(master, places[5], places[20])
    replica = ReplicaLog(slave)
    assert replica.start_from(0) == places[5]
    while slave.log.start <= places[5]:
        slave.log.chain.detach_first()
    with pytest.raises(StoreError, match="have expired"):
        replica.append(places[5], read_log(master, places[5], places[6]))
    assert not slave.lineage.record.diverged
    # The next link begins where the log does.
    assert replica.start_from(0) == slave.log.start


@pytest.mark.parametrize("chunk", [100, 3000, 100_000])
@pytest.mark.parametrize("at", [4, 95, 493])
def test_where_the_log_differs_after_a_crash_it_is_cut(chunk: int, at: int) -> None:
    master = open_small(make_disk())
    master.lineage.begin_epoch(7)
    places = fill_simply(master, 30)
    slave = crash_slave(master, places[5], places[20])
    slave.lineage.adopt_epochs(master.lineage.epochs, 7)
    segment = slave.log.chain.find(places[9])
    assert segment is not None
    segment.buffer[places[9] - segment.start + at] ^= 1  # a byte of the topic has no checksum
    replica = ReplicaLog(slave)
    position = replica.start_from(0)
    corrupt = 0
    while position < master.log.tail:
        try:
            replica.append(position, read_log(master, position, min(master.log.tail, position + chunk)))
        except ReplicaCorrupt:
            corrupt += 1
        position = replica.tail
    assert corrupt <= 1
    (row,) = slave.lineage.record.diverged
    assert (row.begin, row.end) == (places[9], places[20])
    assert slave.lineage.record.unsure == -1
    assert slave.lineage.epochs == master.lineage.epochs
    expect_same(slave, master)


def test_a_master_that_crashed_has_its_slaves_compare() -> None:
    master = open_small(make_disk())
    master.lineage.begin_epoch(1)
    places = fill_simply(master, 30)
    slave = make_slave()
    slave.lineage.adopt_epochs(master.lineage.epochs, 1)
    copy_log(master, ReplicaLog(slave))
    again = open_small(master.disk.kill())  # type: ignore[attr-defined]
    assert again.lineage.record.unsure == 0
    again.lineage.begin_epoch(2)
    assert again.lineage.record.unsure == -1
    assert again.lineage.epochs[-1].unsure == 0
    for _ in range(2):  # the second time it is known that the epoch was followed already
        slave.lineage.adopt_epochs(again.lineage.epochs, 2)
        assert slave.lineage.record.unsure == 0
    replica = ReplicaLog(slave)
    assert replica.start_from(places[3]) == places[3]  # the master does not have more
    copy_log(again, replica)
    assert slave.lineage.record.unsure == -1
    slave.lineage.adopt_epochs(again.lineage.epochs, 2)
    assert slave.lineage.record.unsure == -1
    expect_same(slave, again)


def test_nothing_is_compared_where_the_master_has_nothing() -> None:
    master = open_small(make_disk())
    places = fill_simply(master, 30)
    slave = crash_slave(master, places[5], places[20])
    replica = ReplicaLog(slave)
    assert replica.start_from(places[25]) == places[20]
    assert slave.lineage.record.unsure == -1


# --- becoming master ------------------------------------------------------------------------------------------------


def test_a_promoted_slave_cuts_a_part_of_a_record_and_goes_on_at_the_right_offsets() -> None:
    master, disk = open_small(make_disk()), make_disk()
    places = fill_simply(master, 10)
    master.append(make_message("bills"))
    slave = make_slave(disk)
    with pytest.raises(StoreReadOnly, match="slave"):
        slave.append(make_message())
    replica = ReplicaLog(slave)
    replica.append(0, read_log(master, 0, places[9] + 300))
    slave.flusher.sync_log()
    assert slave.flusher.flushed == places[9] + 300
    assert replica.finish() == slave.log.tail == places[9] == slave.flusher.flushed
    assert not any(disk.read_file(ROOT / "commitlog" / f"{SEGMENT_BYTES:020d}")[places[9] - SEGMENT_BYTES :])
    slave.fence("")
    stored = slave.append(make_message(body=b"mine"))
    assert (stored.position, stored.queue_offset) == (places[9], 9)
    assert slave.append(make_message("bills")).queue_offset == 0
    assert len(read_bodies(slave)) == 10
    slave.close()
    expect_sound(disk)


def test_a_slave_that_was_master_knows_what_its_new_master_wrote_to_its_topics() -> None:
    store = open_small(make_disk())
    store.append(make_message())  # the topic and its queue are known to the appender now
    slave = make_slave()
    copy_log(store, ReplicaLog(slave))
    replica = ReplicaLog(store)
    slave.fence("")
    for _ in range(3):
        slave.append(make_message())
    copy_log(slave, replica)
    replica.finish()
    assert store.append(make_message()).queue_offset == 4


def test_being_a_slave_and_a_full_disk_are_two_reasons() -> None:
    store = make_slave()
    assert (store.refusal, store.full_reason) == ("this broker is a slave", "")
    store.refuse("the disk is full")
    with pytest.raises(StoreReadOnly):
        store.append(make_message())
    store.fence("")
    with pytest.raises(StoreFull):
        store.append_batch([make_message()])
    store.fence("replaced")
    store.refuse("")
    with pytest.raises(StoreReadOnly, match="replaced"):
        store.append_batch([make_message()])
    store.fence("")
    assert store.append(make_message()).queue_offset == 0


# --- trouble --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 3, 4, 7, 8, 28, 35, 84, 87, 88, 300, 491])
def test_a_chunk_that_changed_on_its_way_is_cut_off_and_fetched_again(at: int) -> None:
    master = open_small(make_disk())
    places = fill_simply(master, 12)
    slave = make_slave()
    replica = ReplicaLog(slave)
    data = bytearray(read_log(master, 0, places[12]))
    data[places[10] + at] ^= 0x40
    with pytest.raises(ReplicaCorrupt, match=str(places[10])):
        for begin in range(0, len(data), 1000):
            replica.append(begin, bytes(data[begin : begin + 1000]))
        # A length that became longer is known to be wrong when as much has come.
        fill_simply(master, 20)
        copy_log(master, replica)
    assert replica.tail == replica.dispatched == places[10]
    assert len(read_bodies(slave)) == 10
    assert not any(list(slave.log.chain.segments)[-1].buffer[places[10] % SEGMENT_BYTES :])
    copy_log(master, replica, random.Random(at))
    expect_same(slave, master)


def test_damage_of_the_masters_own_log_is_stepped_over() -> None:
    disk = make_disk()
    master = open_small(disk)
    places = fill_simply(master, 30)
    master.close()
    for place in (5, 13, 14, 15):  # one record; then the last of a segment and the first of the next
        disk.flip_bit(ROOT / "commitlog" / f"{places[place] // SEGMENT_BYTES * SEGMENT_BYTES:020d}",
                      places[place] % SEGMENT_BYTES + 4, 3)  # fmt: skip
    master = open_store(ROOT, make_options(), disk=disk.kill(), clock=VirtualClock())
    (master.disk).write_file(ROOT / "abort", b"")
    crashed = master.disk.kill()  # type: ignore[attr-defined]
    master = open_store(ROOT, make_options(), disk=crashed, clock=VirtualClock())
    assert len(master.damage.items) == 2
    slave = make_slave()
    replica = ReplicaLog(slave)
    for number in range(2):
        with pytest.raises(ReplicaCorrupt):
            copy_log(master, replica, random.Random(number))
        assert slave.log.tail == master.damage.items[number].position
    copy_log(master, replica, random.Random(2))
    assert [(item.position, item.end) for item in slave.damage.items] == [
        (item.position, item.end) for item in master.damage.items
    ]
    assert read_bodies(slave) == read_bodies(master)
    assert get_queue(slave).max_offset == 30
    assert read_log(slave, 0, slave.log.tail) == read_log(master, 0, master.log.tail)
    slave.flusher.sync_log()
    again = make_slave(slave.disk.crash(CrashMode.DROP))  # type: ignore[attr-defined]
    assert [item.position for item in again.damage.items] == [item.position for item in slave.damage.items]
    assert read_bodies(again) == read_bodies(master)


@pytest.mark.parametrize("operation", ["create", "allocate"])
def test_a_full_disk_loses_nothing_that_was_copied(operation: str) -> None:
    master = make_master(5, 80)
    slave = make_slave()
    replica = ReplicaLog(slave)
    disk = slave.disk
    failures = 0
    for call in range(200):
        try:
            copy_log(master, replica, random.Random(call))
        except StoreFull:
            failures += 1
            continue
        if call % 2 == 0 and failures < 12 and replica.tail == master.log.tail:
            break
        disk.fail_next(operation, Fault.ENOSPC)  # type: ignore[attr-defined]
    copy_log(master, replica)
    expect_same(slave, master)


def test_each_call_of_the_disk_may_fail_while_a_slave_copies() -> None:
    master = make_master(6, 60)
    slave = make_slave()
    before = slave.disk.calls  # type: ignore[attr-defined]
    copy_log(master, ReplicaLog(slave), random.Random(6))
    calls = slave.disk.calls - before  # type: ignore[attr-defined]
    assert calls > 20
    for call in range(1, calls + 1):
        disk = make_disk()
        slave = make_slave(disk)
        replica = ReplicaLog(slave)
        disk.fail(disk.calls + call, Fault.ENOSPC)
        with pytest.raises(StoreError):
            copy_log(master, replica, random.Random(6))
        copy_log(master, replica, random.Random(7))
        expect_same(slave, master)


def test_retention_works_on_a_slave() -> None:
    master = make_master(7, 120)
    slave = make_slave(retention_hours=1)
    replica = ReplicaLog(slave)
    copy_log(master, replica, random.Random(7), end=master.log.tail - 900)
    slave.flusher.sync_log()
    slave.disk.usage = 0.99  # type: ignore[attr-defined]
    retention = Retention(slave)
    while retain(retention).delete_count:
        pass
    assert slave.log.start == slave.log.tail - slave.log.tail % SEGMENT_BYTES
    assert slave.full_reason
    copy_log(master, replica, random.Random(8))
    assert slave.log.tail == master.log.tail
    for queue in slave.queues:
        assert queue.max_offset == get_queue(master, queue.topic, queue.queue_id).max_offset


# --- topics that are deleted and created again ------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [300, 100_000])
def test_a_topic_made_again_on_the_master_is_made_again_here(chunk: int) -> None:
    master, slave = open_small(make_disk()), make_slave()
    for number in range(9):
        master.append(make_message("orders", number % 2, body=b"old"))
    master.append(make_message("orders", 2, body=b"old"))  # the first of its queue, behind the others
    master.append(make_message("bills"))
    master.detach_topic("orders")()
    for number in range(4):
        master.append(make_message("orders", (3, 2, 1, 0)[number], body=b"new %d" % number))
    master.append(make_message("orders", 0, body=b"newer"))
    replica = ReplicaLog(slave)
    for begin in range(0, master.log.tail, chunk):
        replica.append(begin, read_log(master, begin, min(master.log.tail, begin + chunk)))
    expect_same(slave, master)
    assert read_bodies(slave, "orders", 0) == [b"new 3", b"newer"]
    assert read_bodies(slave, "orders", 3) == [b"new 0"]
    slave.flusher.sync_log()
    again = make_slave(slave.disk.crash(CrashMode.DROP))  # type: ignore[attr-defined]
    for queue_id in range(4):
        assert read_bodies(again, "orders", queue_id) == read_bodies(master, "orders", queue_id)


def test_a_record_is_decoded_from_the_slave_as_from_the_master() -> None:
    master, slave = make_master(9), make_slave()
    copy_log(master, ReplicaLog(slave))
    queue = next(iter(slave.queues))
    entry = queue.entry(queue.min_offset)
    assert entry is not None
    mine, theirs = slave.reader.view_record(entry.position), master.reader.view_record(entry.position)
    assert mine is not None
    assert theirs is not None
    assert decode_record(mine) == decode_record(theirs)

"""The store as a whole: what append promises, what a restart keeps, and a plain model beside it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eruca._store.messagestore import MessageStore, open_store
from eruca._store.queues.dispatch import Dispatched, Grown
from eruca._store.reading.slices import ReadStatus
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import Fault, SimulatedDisk
from eruca._wire.javahash import java_hash
from eruca._wire.names import SCHEDULE_TOPIC
from eruca._wire.properties import parse_properties
from eruca._wire.record import Record, decode_record
from eruca._wire.sysflag import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from eruca.errors import InvalidName, MessageIllegal, StoreClosed, StoreError, StoreFull, StoreLocked, WireError
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

FOREVER = 2**60


def reopen(disk: SimulatedDisk, store: MessageStore, **changes: Any) -> MessageStore:
    """Close a store and open it again."""
    store.close()
    return open_small(disk, **changes)


# --- appending ------------------------------------------------------------------------------------------------------


def test_append_fills_in_where_and_when() -> None:
    clock = VirtualClock()
    store = open_small(make_disk(), clock)
    first = store.append(make_message(body=b"one", TAGS="a"))
    clock.advance(5)
    second = store.append(make_message(body=b"two"))
    other = store.append(make_message("payments", 3))
    assert (first.position, first.queue_offset, first.store_timestamp) == (0, 0, clock.now_ms() - 5)
    assert (second.position, second.queue_offset, second.store_timestamp) == (first.size, 1, clock.now_ms())
    assert (other.position, other.queue_offset) == (first.size + second.size, 0)
    stored = decode_record(store.reader.read("orders", 0, 0).slices[0])
    assert stored.body == b"one" and stored.size == first.size and stored.position == 0
    entry = get_queue(store).entry(0)
    assert entry == (0, first.size, java_hash("a"))


def test_arrivals_are_told_in_order() -> None:
    store = open_small(make_disk())
    seen: list[list[tuple[str, int, int]]] = []
    store.dispatched.listen(
        lambda grown: seen.append([(queue.topic, begin, queue.max_offset) for queue, begin in grown])
    )
    store.append(make_message(TAGS="a"))
    store.append_batch([make_message(), make_message(TAGS="b")])
    store.append(make_message(sys_flag=TRANSACTION_PREPARED))
    # Also for records that are in no queue: slaves need them.
    assert seen == [[("orders", 0, 1)], [("orders", 1, 3)], []]


def test_an_arrival_can_be_read_at_once() -> None:
    for transient in (False, True):
        store = open_small(make_disk(), transient_enabled=transient)
        seen: list[bytes] = []

        def note(grown: Grown, store: MessageStore = store, seen: list[bytes] = seen) -> None:
            for queue, begin in grown:
                views = store.reader.read(queue.topic, queue.queue_id, begin).slices
                seen.extend([decode_record(view).body for view in views])

        store.dispatched.listen(note)
        for number in range(3):
            store.append(make_message(body=b"%d" % number))
        store.commit()
        assert seen == [b"0", b"1", b"2"]


def test_what_a_full_disk_kept_from_its_queue_and_index_comes_with_the_next_commit() -> None:
    disk = make_disk()
    store = open_small(disk, transient_enabled=True, index_entries=5, commitlog_segment_bytes=1 << 16)
    seen: list[int] = []
    store.dispatched.listen(lambda grown: seen.extend([queue.max_offset for queue, _ in grown]))
    sent = [store.append(make_message(KEYS=f"a{number} b{number} c{number}")) for number in range(8)]
    disk.full = True
    with pytest.raises(StoreFull):
        store.commit()
    done = get_queue(store).max_offset
    assert 0 < done < 8
    with pytest.raises(StoreFull):
        store.commit()
    disk.full = False
    sent.append(store.append(make_message(KEYS="a8 b8 c8")))
    store.commit()
    assert get_queue(store).max_offset == 9
    assert (seen[0], seen[-1]) == (done, 9)
    for number, message in enumerate(sent):
        for name in "abc":
            found = store.reader.find_by_key("orders", f"{name}{number}", 0, FOREVER)
            assert [position for position, _ in found] == [message.position]


@pytest.mark.parametrize("flag", [TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
def test_undecided_records_are_in_the_log_alone(flag: int) -> None:
    store = open_small(make_disk())
    store.append(make_message())
    hidden = store.append(make_message(sys_flag=flag, KEYS="k"))
    assert (hidden.queue_offset, get_queue(store).max_offset) == (0, 1)
    assert store.reader.view_record(hidden.position) is not None
    found = [position for position, _ in store.reader.find_by_key("orders", "k", 0, FOREVER)]
    assert found == ([hidden.position] if flag == TRANSACTION_PREPARED else [])


def test_hosts_of_both_kinds_come_back() -> None:
    disk = make_disk()
    store = open_small(disk)
    v6 = bytes(range(20))
    for flag in (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6):
        message = make_message(body=b"%d" % flag, sys_flag=flag)
        message.born_host = v6 if flag & BORN_HOST_V6 else message.born_host
        message.store_host = v6 if flag & STORE_HOST_V6 else message.store_host
        store.append(message)
    store = reopen(disk, store)
    for view in store.reader.read("orders", 0, 0).slices:
        stored = decode_record(view)
        assert (len(stored.born_host) == 20, len(stored.store_host) == 20) == (
            bool(stored.sys_flag & BORN_HOST_V6),
            bool(stored.sys_flag & STORE_HOST_V6),
        )


def test_a_batch_goes_to_one_segment_as_a_whole() -> None:
    disk = make_disk()
    store = open_small(disk)
    store.append(sized_message(3500))
    batch = store.append_batch([sized_message(300) for _ in range(3)])
    assert [message.position for message in batch] == [SEGMENT_BYTES, SEGMENT_BYTES + 300, SEGMENT_BYTES + 600]
    assert [message.queue_offset for message in batch] == [1, 2, 3]
    assert disk.read_file(ROOT / "commitlog" / f"{0:020d}")[3500:3508] == bytes.fromhex("00000254cbd43194")
    assert len({message.store_timestamp for message in batch}) == 1
    assert len(read_bodies(reopen(disk, store))) == 4


def test_a_batch_at_the_border_needs_its_sum_and_eight() -> None:
    for spare in range(6, 11):
        store = open_small(make_disk())
        store.append(sized_message(SEGMENT_BYTES - 600 - spare))
        first, _ = store.append_batch([sized_message(300), sized_message(300)])
        assert (first.position == SEGMENT_BYTES) is (spare < 8)


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        ([], "at least one"),
        ([make_message(), make_message("other")], "one queue"),
        ([make_message(), make_message(queue_id=1)], "one queue"),
        ([make_message(), make_message(sys_flag=TRANSACTION_PREPARED)], "transactional"),
        ([make_message(body=b"x" * 600), make_message(body=b"x" * 401)], "larger than 1000"),
        ([make_message(NOTE="x" * 33_000)], "properties"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused_whole(batch: list[Record], what: str) -> None:
    store = open_small(make_disk(), message_bytes_max=1000)
    store.append(make_message())
    with pytest.raises(MessageIllegal, match=what):
        store.append_batch(batch)
    assert store.append(make_message()).queue_offset == 1


@pytest.mark.parametrize("transient", [False, True])
def test_a_batch_with_one_bad_message_leaves_nothing_behind(transient: bool) -> None:
    """Neither a hole in the queue's offsets nor records that a restart would find."""
    disk = make_disk()
    store = open_small(disk, transient_enabled=transient)
    store.append(make_message(body=b"first"))
    bad = make_message()
    bad.born_host = bytes(20)  # but the flag bit is not set
    with pytest.raises(WireError):
        store.append_batch([make_message(body=b"ghost"), make_message(body=b"ghost"), bad])
    with pytest.raises(WireError):
        store.append(bad)
    store.commit()
    killed = open_small(disk.kill(), transient_enabled=transient)
    assert read_bodies(killed) == [b"first"]
    assert store.append(make_message(body=b"second")).queue_offset == 1
    store = reopen(disk, store, transient_enabled=transient)
    assert read_bodies(store) == [b"first", b"second"]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (make_message(body=b"x" * 1001), MessageIllegal),
        (make_message(NOTE="x" * 33_000), MessageIllegal),
        (make_message(topic=""), InvalidName),
        (make_message(topic="a/b"), InvalidName),
        (make_message(topic="t" * 128), InvalidName),
        (make_message(queue_id=-1), InvalidName),
        (make_message(queue_id=2**31), InvalidName),
    ],
)
def test_an_illegal_message_is_refused_and_changes_nothing(message: Record, error: type[Exception]) -> None:
    disk = make_disk()
    store = open_small(disk, message_bytes_max=1000)
    store.append(make_message())
    store.flusher.sync_log()
    before = disk.snapshot()
    for attempt in (lambda: store.append(message), lambda: store.append_batch([message])):
        with pytest.raises(error):
            attempt()
    assert disk.snapshot() == before
    assert store.log.tail == store.flusher.flushed


def test_the_largest_body_and_properties_are_taken() -> None:
    store = open_small(make_disk(), message_bytes_max=1000, commitlog_segment_bytes=65_536)
    store.append(make_message(body=b"x" * 1000))
    message = make_message(NOTE="n" * (32_767 - 5))
    assert len(message.properties) == 32_767
    store.append(message)
    assert len(store.reader.read("orders", 0, 0).slices) == 2


def test_properties_that_end_in_a_zero_get_a_separator() -> None:
    """Recovery recognizes a torn record by zeros at its end."""
    store = open_small(make_disk())
    message = make_message()
    message.properties = b"NOTE\x01a\0"
    stored = store.append(message)
    assert stored.properties == b"NOTE\x01a\0\x02"
    assert parse_properties(stored.properties) == {"NOTE": "a\0"}
    longest = make_message()
    longest.properties = b"N\x01" + bytes(32_765)
    with pytest.raises(MessageIllegal):
        store.append(longest)


@pytest.mark.parametrize("operation", ["create", "allocate", "make_directory"])
@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_an_append_that_fails_can_be_made_again(operation: str, fault: Fault) -> None:
    for batch in (False, True):
        disk = make_disk()
        store = open_small(disk)
        for attempt in range(1, 8):
            disk.fail_next(operation, fault, times=1 if attempt < 4 else 0)
            try:
                message = make_message(body=b"x" * 900, KEYS="k")
                store.append_batch([message]) if batch else store.append(message)
            except StoreError:
                continue
        disk.plan.clear()
        count = get_queue(store).max_offset
        assert count >= 4
        assert [decode_record(view).queue_offset for view in store.reader.read("orders", 0, 0).slices] == list(
            range(count)
        )
        assert len(store.reader.find_by_key("orders", "k", 0, FOREVER)) == count
        assert len(read_bodies(open_small(disk.kill()))) == count
        assert disk.bus_errors == []


# --- opening and closing --------------------------------------------------------------------------------------------


def test_a_closed_store_refuses() -> None:
    disk = make_disk()
    store = open_small(disk)
    store.append(make_message())
    store.close()
    store.close()
    for attempt in (lambda: store.append(make_message()), lambda: store.append_batch([make_message()])):
        with pytest.raises(StoreClosed):
            attempt()
    assert not disk.exists(ROOT / "abort")
    assert (disk.mapped, disk.locked) == ({}, set())


def test_a_store_object_may_be_opened_again() -> None:
    disk = make_disk()
    store = open_small(disk)
    for number in range(12):
        store.append(make_message(body=b"%d" % number))
    store.close()
    store.open()
    assert store.append(make_message(body=b"12")).queue_offset == 12
    assert read_bodies(store) == [b"%d" % number for number in range(13)]
    assert read_bodies(reopen(disk, store)) == [b"%d" % number for number in range(13)]


def test_one_directory_is_open_once() -> None:
    disk = make_disk()
    store = open_small(disk)
    with pytest.raises(StoreLocked):
        open_small(disk)
    store.append(make_message())
    store.close()
    assert len(read_bodies(open_small(disk))) == 1


def test_an_open_that_fails_gives_the_lock_back() -> None:
    disk = make_disk()
    disk.make_directory(ROOT / "commitlog")
    disk.write_file(ROOT / "commitlog" / "odd", b"")
    with pytest.raises(StoreError):
        open_small(disk)
    assert (disk.locked, disk.mapped) == (set(), {})
    disk.remove(ROOT / "commitlog" / "odd")
    assert open_small(disk).log.tail == 0


def test_the_abort_marker_is_there_while_the_store_is_open() -> None:
    disk = make_disk()
    store = open_small(disk)
    assert disk.exists(ROOT / "abort")
    assert store.recovered is not None and store.recovered.clean
    killed = open_small(disk.kill())
    assert killed.recovered is not None and not killed.recovered.clean
    store.close()
    assert not disk.exists(ROOT / "abort")


def test_a_close_that_cannot_sync_leaves_the_marker_and_lets_go() -> None:
    disk = make_disk()
    store = open_small(disk)
    store.append(make_message())
    disk.broken_sync = True
    with pytest.raises(StoreError):
        store.close()
    disk.broken_sync = False
    assert disk.exists(ROOT / "abort")
    assert (disk.locked, disk.mapped) == (set(), {})
    assert len(read_bodies(open_small(disk))) == 1


def test_an_empty_store_closes_and_opens() -> None:
    disk = make_disk()
    for _ in range(3):
        store = open_small(disk)
        assert (store.log.tail, len(store.queues)) == (0, 0)
        store.close()


def test_a_store_without_any_key_is_not_read_from_its_beginning() -> None:
    """A missing index file does not mean a lost index if nothing was ever indexed."""
    disk = make_disk()
    clock = VirtualClock()
    store = open_small(disk, clock)
    for _ in range(10):
        store.append(sized_message(3000))
        clock.advance(5000)
    store.flusher.sync_log()
    store.flusher.sync_derived()
    killed = open_small(disk.kill(), clock).recovered
    assert killed is not None and killed.scanned_from >= 8 * SEGMENT_BYTES
    store.close()
    clean = open_small(disk, clock).recovered
    assert clean is not None and (clean.scanned_from, clean.index_from) == (7 * SEGMENT_BYTES, None)


def test_a_lost_index_is_made_again() -> None:
    disk = make_disk()
    store = open_small(disk)
    for number in range(10):
        store.append(make_message(body=b"x" * 2000, KEYS=f"k{number}"))
    store.close()
    for name in disk.list(ROOT / "index"):
        disk.remove(ROOT / "index" / name)
    again = open_small(disk)
    assert [len(again.reader.find_by_key("orders", f"k{number}", 0, FOREVER)) for number in range(10)] == [1] * 10


def test_a_store_on_the_real_disk(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        store = open_store(tmp_path, make_options(), executor=executor)
        for number in range(50):
            store.append(make_message(queue_id=number % 2, body=b"%d" % number * 50, KEYS=f"k{number}"))
        assert len(store.reader.find_by_key("orders", "k7", 0, FOREVER)) == 1
        store.close()
        again = open_store(tmp_path, make_options(), executor=executor)
        assert len(read_bodies(again)) + len(read_bodies(again, queue_id=1)) == 50
        again.close()


def test_appends_go_on_while_a_thread_flushes() -> None:
    disk = make_disk()
    store = open_small(disk)
    done = threading.Event()
    errors: list[BaseException] = []

    def flush() -> None:
        try:
            while not done.is_set():
                store.flusher.sync_log()
                store.flusher.sync_derived()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    for number in range(500):
        store.append(make_message(queue_id=number % 3, body=b"%d" % number, KEYS=f"k{number % 7}"))
    done.set()
    thread.join()
    assert errors == []
    store.flusher.sync_log()
    store.flusher.sync_derived()
    left = open_small(disk.crash("drop"))
    assert sum(len(read_bodies(left, queue_id=queue_id)) for queue_id in range(3)) == 500


# --- topics ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transient", [False, True])
def test_a_removed_topic_can_be_made_again(transient: bool) -> None:
    disk = make_disk()
    store = open_small(disk, transient_enabled=transient)
    for _ in range(12):
        store.append(make_message(body=b"old"))
    store.append(make_message("other"))
    store.detach_topic("orders")()
    assert store.reader.read("orders", 0, 0).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    assert not disk.exists(ROOT / "consumequeue" / "orders")
    for number in range(3):
        store.append(make_message(body=b"new%d" % number))
    store.commit()
    assert read_bodies(store) == [b"new0", b"new1", b"new2"]
    assert len(read_bodies(store, "other")) == 1
    assert disk.list(ROOT / "consumequeue" / "orders" / "0") == [f"{0:020d}"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_topic_made_again_keeps_its_new_messages_over_a_restart(clean: bool) -> None:
    disk = make_disk()
    store = open_small(disk)
    store.append(make_message("other", KEYS="k"))
    for _ in range(5):
        store.append(make_message(body=b"old"))
    store.detach_topic("orders")()
    if clean:
        store.close()
        assert open_small(disk).queues.get("orders", 0) is None
        return
    for number in range(3):
        store.append(make_message(body=b"new%d" % number))
    assert read_bodies(open_small(disk.kill())) == [b"new0", b"new1", b"new2"]


# --- looking things up ----------------------------------------------------------------------------------------------


def test_a_key_is_found_at_the_very_time_its_message_was_stored() -> None:
    """Index entries know whole seconds only; the record knows better."""
    clock = VirtualClock()
    store = open_small(make_disk(), clock)
    stored = []
    for _ in range(10):
        stored.append(store.append(make_message(KEYS="k")))
        clock.advance(333)
    for message in stored:
        time = message.store_timestamp
        assert [at for at, _ in store.reader.find_by_key("orders", "k", time, time)] == [message.position]
        later = [item.position for item in stored if item.store_timestamp >= time]
        assert [at for at, _ in store.reader.find_by_key("orders", "k", time, FOREVER)] == later
        earlier = [item.position for item in stored if item.store_timestamp <= time]
        assert [at for at, _ in store.reader.find_by_key("orders", "k", 0, time)] == earlier


def test_a_message_that_has_a_key_twice_is_found_once() -> None:
    store = open_small(make_disk())
    store.append(make_message(KEYS="k a k", UNIQ_KEY="k"))
    assert len(store.reader.find_by_key("orders", "k", 0, FOREVER)) == 1


def test_equal_hashes_are_told_apart() -> None:
    assert java_hash("Aa") == java_hash("BB")
    store = open_small(make_disk())
    first = store.append(make_message(KEYS="Aa"))
    second = store.append(make_message(UNIQ_KEY="BB"))
    assert [at for at, _ in store.reader.find_by_key("orders", "Aa", 0, FOREVER)] == [first.position]
    assert [at for at, _ in store.reader.find_by_key("orders", "BB", 0, FOREVER)] == [second.position]
    assert store.reader.find_by_key("payments", "Aa", 0, FOREVER) == []


def test_without_index_no_key_is_found() -> None:
    disk = make_disk()
    store = open_small(disk, index_enabled=False)
    store.append(make_message(KEYS="k"))
    assert store.reader.find_by_key("orders", "k", 0, FOREVER) == []
    store.flusher.sync_derived()
    assert disk.list(ROOT / "index") == []


def test_only_the_start_of_a_record_is_one() -> None:
    store = open_small(make_disk())
    first = store.append(make_message())
    second = store.append(make_message())
    for position in range(-1, store.log.tail + 2):
        view = store.reader.view_record(position)
        expected = {0: first.size, second.position: second.size}.get(position)
        assert (None if view is None else len(view)) == expected


def test_the_delay_topic_keeps_when_a_message_is_due() -> None:
    clock = VirtualClock()
    store = open_small(make_disk(), clock)
    store.append(make_message(SCHEDULE_TOPIC, 2, DELAY="3", TAGS="x"))
    entry = get_queue(store, SCHEDULE_TOPIC, 2).entry(0)
    assert entry is not None and entry.tags_code == clock.now_ms() + 10_000


# --- the transient buffer -------------------------------------------------------------------------------------------


def test_uncommitted_messages_have_offsets_but_cannot_be_read() -> None:
    disk = make_disk()
    store = open_small(disk, transient_enabled=True)
    assert [store.append(make_message(body=b"%d" % n, KEYS="k")).queue_offset for n in range(15)] == list(range(15))
    assert get_queue(store).max_offset == 0
    assert store.reader.find_by_key("orders", "k", 0, FOREVER) == []
    store.commit()
    assert read_bodies(store) == [b"%d" % number for number in range(15)]
    assert len(store.reader.find_by_key("orders", "k", 0, FOREVER)) == 15
    store.append(make_message(body=b"15"))
    assert read_bodies(reopen(disk, store)) == [b"%d" % number for number in range(16)]


def test_the_bound_of_the_buffer_refuses_until_a_commit() -> None:
    store = open_small(make_disk(), transient_enabled=True, transient_pool_size=1)
    for _ in range(4):
        store.append(sized_message(1000))
    for attempt in (lambda: store.append(sized_message(1000)), lambda: store.append_batch([sized_message(1000)])):
        with pytest.raises(StoreFull, match="waiting in the transient buffer"):
            attempt()
    store.commit()
    assert store.append(sized_message(1000)).queue_offset == 4


def test_a_commit_that_fails_shows_nothing_and_is_made_again() -> None:
    disk = make_disk()
    store = open_small(disk, transient_enabled=True)
    for number in range(3):
        store.append(make_message(body=b"%d" % number))
    disk.fail_next("write", Fault.EIO)
    with pytest.raises(StoreError):
        store.commit()
    assert get_queue(store).max_offset == 0
    store.commit()
    assert read_bodies(store) == [b"0", b"1", b"2"]


def test_a_flush_in_the_middle_of_a_commit_does_not_promise_entries_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The flush thread may run between the commit of many segments and the entries of their records."""
    disk = make_disk()
    store = open_small(disk, transient_enabled=True, transient_pool_size=20)
    for number in range(9):
        store.append(make_message(body=b"%d" % number * 2000))
    run_records = store.dispatch.run_records

    def flush_first(*where: Any) -> Dispatched:
        store.flusher.sync_log()
        store.flusher.sync_derived()
        return run_records(*where)

    monkeypatch.setattr(store.dispatch, "run_records", flush_first)
    store.commit()
    left = open_small(disk.crash("drop"))
    assert read_bodies(left) == [b"%d" % number * 2000 for number in range(9)]


# --- a model beside it ----------------------------------------------------------------------------------------------


@dataclass
class Model:
    """What a store holds, in plain lists: the messages of each queue, and which of them are on the disk."""

    queues: dict[tuple[str, int], list[tuple[bytes, str, int]]] = field(default_factory=dict)
    synced: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, message: Record, body: bytes, key: str) -> None:
        """Note a message that was appended."""
        held = self.queues.setdefault((message.topic, message.queue_id), [])
        assert message.queue_offset == len(held)
        held.append((body, key, message.store_timestamp))

    def sync(self) -> None:
        """Everything is on the disk."""
        self.synced = {queue: len(held) for queue, held in self.queues.items()}


QUEUES = st.sampled_from([("orders", 0), ("orders", 1), ("%RETRY%g", 0)])
KEYS = st.sampled_from(["", "a", "b", "Aa", "BB"])
SIZES = st.integers(0, 1500)


class StoreMachine(RuleBasedStateMachine):
    """Appends, flushes, closes, kills and power losses in any order; the store always holds what the model holds."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(clock=self.clock)
        self.disk.make_directory(ROOT)
        self.model = Model()
        self.number = 0
        self.options: dict[str, Any] = {}
        self.store: MessageStore | None = None

    @initialize(
        segment=st.sampled_from([4096, 5003]),
        entries=st.integers(2, 12),
        index_entries=st.sampled_from([5, 64]),
        seed=st.integers(0, 2**32),
    )
    def begin(self, segment: int, entries: int, index_entries: int, seed: int) -> None:
        """Choose the sizes of files."""
        self.disk.seed = seed
        self.options = {
            "commitlog_segment_bytes": segment,
            "consumequeue_segment_bytes": 20 * entries,
            "index_entries": index_entries,
        }
        self.store = open_small(self.disk, self.clock, **self.options)

    def opened(self) -> MessageStore:
        """The store; the rules that need it ask for it to be open."""
        assert self.store is not None
        return self.store

    def make(self, queue: tuple[str, int], size: int, key: str) -> tuple[Record, bytes]:
        """A message with a unique body."""
        self.number += 1
        body = (b"%d-" % self.number).ljust(size, b"x")
        message = make_message(queue[0], queue[1], body, UNIQ_KEY=f"u{self.number}")
        if key:
            message.properties += f"\x02KEYS\x01{key}".encode()
        return message, body

    @precondition(lambda self: self.store is not None)
    @rule(queue=QUEUES, size=SIZES, key=KEYS, later=st.integers(0, 2000))
    def append(self, queue: tuple[str, int], size: int, key: str, later: int) -> None:
        """Store one message."""
        self.clock.advance(later)
        message, body = self.make(queue, size, key)
        self.model.add(self.opened().append(message), body, key)

    @precondition(lambda self: self.store is not None)
    @rule(queue=QUEUES, sizes=st.lists(st.integers(0, 400), min_size=1, max_size=5), key=KEYS)
    def append_batch(self, queue: tuple[str, int], sizes: list[int], key: str) -> None:
        """Store several messages at once."""
        made = [self.make(queue, size, key) for size in sizes]
        stored = self.opened().append_batch([message for message, _ in made])
        for message, (_, body) in zip(stored, made, strict=True):
            self.model.add(message, body, key)

    @precondition(lambda self: self.store is not None)
    @rule(operation=st.sampled_from(["create", "allocate"]), queue=QUEUES)
    def append_on_a_bad_disk(self, operation: str, queue: tuple[str, int]) -> None:
        """An append that may fail leaves nothing."""
        self.disk.fail_next(operation, Fault.ENOSPC)
        message, body = self.make(queue, 1500, "a")
        try:
            self.opened().append(message)
        except StoreError:
            return
        finally:
            self.disk.plan.clear()
        self.model.add(message, body, "a")

    @precondition(lambda self: self.store is not None)
    @rule(derived=st.booleans())
    def flush(self, derived: bool) -> None:
        """Sync the log, and perhaps queues and index."""
        self.opened().flusher.sync_log()
        if derived:
            self.opened().flusher.sync_derived()
        self.model.sync()

    @precondition(lambda self: self.store is not None)
    @rule()
    def close(self) -> None:
        """Stop cleanly."""
        self.opened().close()
        self.store = None
        self.model.sync()

    @rule()
    def kill(self) -> None:
        """End the process; the page cache stays."""
        self.disk = self.disk.kill()
        self.reopen()
        self.model.sync()  # recovery has synced all it kept

    @rule()
    def cut_the_power(self) -> None:
        """Lose all that was not synced; `tests/crash` has the worlds in which some of it survives."""
        self.disk = self.disk.crash("drop")
        self.reopen()
        for queue, held in list(self.model.queues.items()):
            left = self.opened().queues.get(*queue)
            count = 0 if left is None else left.max_offset
            assert self.model.synced.get(queue, 0) <= count <= len(held)
            del held[count:]
        self.model.sync()

    @precondition(lambda self: self.store is None)
    @rule()
    def reopen(self) -> None:
        """Start again."""
        self.store = open_small(self.disk, self.clock, **self.options)

    @invariant()
    def every_queue_is_as_in_the_model(self) -> None:
        """Offsets and bodies of all messages."""
        if self.store is None:
            return
        for (topic, queue_id), held in self.model.queues.items():
            if held:
                assert read_bodies(self.store, topic, queue_id) == [body for body, _, _ in held]
                assert get_queue(self.store, topic, queue_id).next_offset == len(held)
            else:
                assert self.store.reader.read(topic, queue_id, 0).slices == []
        assert self.disk.bus_errors == []

    @precondition(lambda self: self.store is not None)
    @rule(topic=st.sampled_from(["orders", "%RETRY%g"]), key=st.sampled_from(["a", "b", "Aa", "BB", "none"]))
    def look_up(self, topic: str, key: str) -> None:
        """Every message with a key is found, and no other."""
        records = self.opened().reader.find_by_key(topic, key, 0, FOREVER, 10_000)
        found = [decode_record(view).body for _, view in records]
        expected = [
            body
            for (name, _), held in self.model.queues.items()
            for body, held_key, _ in held
            if name == topic and held_key == key
        ]
        assert sorted(found) == sorted(expected)

    @precondition(lambda self: self.store is not None)
    @rule(queue=QUEUES, back=st.integers(-10, 20_000))
    def look_up_by_time(self, queue: tuple[str, int], back: int) -> None:
        """The message nearest to a time."""
        held = self.model.queues.get(queue, [])
        wanted = self.clock.now_ms() - back
        found = self.opened().reader.find_offset(*queue, wanted)
        if held:
            nearest = min(abs(time - wanted) for _, _, time in held)
            assert abs(held[found][2] - wanted) == nearest
        else:
            assert found == 0


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

"""Reading a queue: every status and bound of a 4.9 broker, damage, and the search by time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._store.log.scan import Damage
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import FILLER_SIZE
from eruca._store.reading.slices import (
    ReadBounds,
    ReadResult,
    ReadStatus,
    find_offset_by_time,
    read_queue,
    read_store_time,
)
from eruca._testing.clock import VirtualClock
from eruca._wire.javahash import java_hash
from eruca._wire.record import decode_record
from tests.unit.store.samples import get_queue, make_disk, make_message, open_small, sized_message


def make_store(count: int, **changes: Any) -> MessageStore:
    """A store with `count` messages in queue 0 of `orders`, alternately tagged red and green."""
    store = open_small(make_disk(), **changes)
    for number in range(count):
        store.append(make_message(body=b"%d" % number, TAGS="red" if number % 2 else "green"))
    return store


def bodies(result: ReadResult) -> list[int]:
    """The numbers in the bodies of what was read."""
    return [int(decode_record(view).body) for view in result.slices]


# --- status ---------------------------------------------------------------------------------------------------------


def test_a_queue_nobody_wrote_to() -> None:
    store = make_store(0)
    result = store.reader.read("orders", 0, 5)
    assert (result.status, result.next_offset, result.slices) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, [])
    store.queues.get_or_make("orders", 0)
    result = store.reader.read("orders", 0, 5)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (-1, ReadStatus.OFFSET_TOO_SMALL, 2),
        (1, ReadStatus.OFFSET_TOO_SMALL, 2),
        (2, ReadStatus.FOUND, 5),
        (4, ReadStatus.FOUND, 5),
        (5, ReadStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, ReadStatus.OFFSET_OVERFLOW_BADLY, 5),
        (10**9, ReadStatus.OFFSET_OVERFLOW_BADLY, 5),
    ],
)
def test_the_bounds_of_a_queue(offset: int, status: ReadStatus, following: int) -> None:
    store = make_store(5)
    get_queue(store).min_offset = 2
    result = store.reader.read("orders", 0, offset)
    assert (result.status, result.next_offset) == (status, following)
    assert (result.min_offset, result.max_offset) == (2, 5)
    assert bodies(result) == (list(range(offset, 5)) if status is ReadStatus.FOUND else [])


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("accept", [None, lambda code, view: True])
@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (1, ReadStatus.OFFSET_TOO_SMALL, 2),
        (2, ReadStatus.FOUND, 4),
        (3, ReadStatus.FOUND, 4),
        (4, ReadStatus.OFFSET_OVERFLOW_ONE, 4),
        (5, ReadStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, ReadStatus.OFFSET_OVERFLOW_ONE, 6),
        (7, ReadStatus.OFFSET_OVERFLOW_BADLY, 4),
    ],
)
def test_what_ends_behind_the_limit_is_waited_for(
    joined: bool, accept: Any, offset: int, status: ReadStatus, following: int
) -> None:
    store = make_store(6)
    queue = get_queue(store)
    queue.min_offset = 2
    entry = queue.entry(4)
    assert entry is not None
    for limit in (entry.position, entry.position + entry.size - 1):
        result = store.reader.read("orders", 0, offset, ReadBounds(joined=joined), accept, limit)
        assert (result.status, result.next_offset) == (status, following)
        assert (result.min_offset, result.max_offset) == (2, 4)
        assert result.count == (4 - offset if status is ReadStatus.FOUND else 0)


def test_a_limit_behind_everything_changes_nothing() -> None:
    store = make_store(6)
    assert store.reader.read("orders", 0, 1, limit=store.log.readable_end) == store.reader.read("orders", 0, 1)
    hidden = store.reader.read("orders", 0, 0, limit=0)
    assert (hidden.status, hidden.next_offset, hidden.max_offset) == (ReadStatus.OFFSET_OVERFLOW_ONE, 0, 0)


def test_nothing_that_matches() -> None:
    store = make_store(5)
    result = store.reader.read("orders", 0, 1, accept=lambda code, view: False)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 5)


def test_records_that_were_deleted_under_a_reader() -> None:
    store = open_small(make_disk())
    for _ in range(3):
        store.append(sized_message(3000))
    store.log.chain.dispose(store.log.chain.detach_first())
    result = store.reader.read("orders", 0, 0, ReadBounds(count_max=1))
    assert (result.status, result.next_offset, len(result.slices)) == (ReadStatus.FOUND, 2, 1)
    store.log.chain.dispose(store.log.chain.detach_first())
    store.log.chain.dispose(store.log.chain.detach_first())
    result = store.reader.read("orders", 0, 0)
    assert (result.status, result.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 3)


def test_an_offset_whose_entries_are_gone_leads_to_the_next_segment() -> None:
    store = make_store(25)
    queue = get_queue(store)
    queue.chain.dispose(queue.chain.detach_first())
    result = store.reader.read("orders", 0, 3)
    assert (result.status, result.next_offset) == (ReadStatus.OFFSET_FOUND_NULL, 10)
    assert bodies(store.reader.read("orders", 0, 10)) == list(range(10, 20))


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count_max", "expected"), [(1, 1), (3, 3), (32, 32), (100, 40), (0, 1)])
def test_the_count_is_bounded(count_max: int, expected: int) -> None:
    store = make_store(40, consumequeue_segment_bytes=20 * 1000)
    result = store.reader.read("orders", 0, 0, ReadBounds(count_max=count_max))
    assert (len(result.slices), result.next_offset) == (expected, expected)


def test_the_bytes_are_bounded_but_the_first_is_always_taken() -> None:
    store = open_small(make_disk())
    for _ in range(6):
        store.append(sized_message(1000))
    sizes = {999: 1, 1000: 1, 1999: 1, 2000: 2, 2999: 2, 3000: 3, 1: 1}
    for bytes_max, count in sizes.items():
        result = store.reader.read("orders", 0, 0, ReadBounds(bytes_max=bytes_max))
        assert (len(result.slices), result.size, result.next_offset) == (count, count * 1000, count)


def test_a_read_stays_in_one_segment_of_the_queue() -> None:
    store = make_store(25)
    assert bodies(store.reader.read("orders", 0, 7)) == [7, 8, 9]
    assert bodies(store.reader.read("orders", 0, 10)) == list(range(10, 20))
    assert bodies(store.reader.read("orders", 0, 20)) == list(range(20, 25))


def test_a_filter_that_lets_nothing_through_looks_at_800_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._store.reading.slices.PULL_FILTER_SECONDS", 3600)
    store = make_store(1000, consumequeue_segment_bytes=20 * 2000)
    result = store.reader.read("orders", 0, 10, accept=lambda code, view: False)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 810)
    result = store.reader.read("orders", 0, 10, ReadBounds(count_max=900), accept=lambda code, view: False)
    assert result.next_offset == 910


def test_a_filter_that_takes_long_stops_and_the_next_read_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._store.reading.slices.PULL_FILTER_SECONDS", 0)
    store = make_store(100, consumequeue_segment_bytes=20 * 2000)
    seen = 0

    def accept(code: int, view: memoryview) -> bool:
        nonlocal seen
        seen += 1
        return seen == 40

    found: list[int] = []
    offset = reads = 0
    while offset < 100:
        result = store.reader.read("orders", 0, offset, accept=accept)
        assert offset < result.next_offset <= offset + 8
        offset, found, reads = result.next_offset, found + bodies(result), reads + 1
    assert (found, seen) == ([39], 100)
    assert reads >= 13


def test_a_filter_that_takes_long_stops_also_when_it_lets_all_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._store.reading.slices.PULL_FILTER_SECONDS", 0)
    store = make_store(100, consumequeue_segment_bytes=20 * 2000)
    result = store.reader.read("orders", 0, 0, ReadBounds(100), accept=lambda code, view: True)
    assert (result.status, result.count, result.next_offset) == (ReadStatus.FOUND, 1, 1)


@pytest.mark.parametrize(("message_us", "read"), [(1, 800), (100, 10), (300, 4), (600, 2), (5000, 1)])
def test_a_filter_does_not_take_much_longer_than_it_may(
    monkeypatch: pytest.MonkeyPatch, message_us: int, read: int
) -> None:
    now_us = 0

    def accept(code: int, view: memoryview) -> bool:
        nonlocal now_us
        now_us += message_us
        return False

    monkeypatch.setattr("eruca._store.reading.slices.thread_time", lambda: now_us / 1e6)
    store = make_store(1000, consumequeue_segment_bytes=20 * 2000)
    assert store.reader.read("orders", 0, 0, accept=accept).next_offset == read
    assert now_us < 2000 or read == 1


def test_a_filter_sees_the_code_and_the_record() -> None:
    store = make_store(10)
    red = java_hash("red")
    result = store.reader.read("orders", 0, 0, accept=lambda code, view: code == red)
    assert (bodies(result), result.next_offset) == ([1, 3, 5, 7, 9], 10)
    result = store.reader.read("orders", 0, 0, ReadBounds(count_max=2), accept=lambda code, view: code == red)
    assert (bodies(result), result.next_offset) == ([1, 3], 4)
    result = store.reader.read("orders", 0, 0, accept=lambda code, view: decode_record(view).body == b"4")
    assert bodies(result) == [4]


def test_slices_are_the_stored_records_without_a_copy() -> None:
    store = make_store(2)
    (view, _) = store.reader.read("orders", 0, 0).slices
    store.log.chain.segments[0].buffer[88] = ord("7")
    assert decode_record(view, check_crc=False).body == b"7"


# --- damage ---------------------------------------------------------------------------------------------------------


def test_damaged_ranges_are_stepped_over() -> None:
    store = make_store(6)
    queue = get_queue(store)
    third = queue.entry(2)
    fifth = queue.entry(4)
    assert third is not None and fifth is not None
    damage = [Damage(third.position, fifth.position - third.position, "test")]
    result = read_queue(queue, store.log, 0, ReadBounds(), damage=damage)
    assert (bodies(result), result.next_offset) == ([0, 1, 4, 5], 6)
    only = read_queue(queue, store.log, 2, ReadBounds(count_max=1), damage=damage)
    assert (bodies(only), only.next_offset) == ([4], 5)
    everything = [Damage(0, store.log.tail, "test")]
    result = read_queue(queue, store.log, 0, ReadBounds(), damage=everything)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 6)


def test_fillers_are_stepped_over_also_behind_a_found_message() -> None:
    store = make_store(2)
    queue = get_queue(store)
    queue.reserve(2)
    queue.fill_to(4, store.log.tail, FILLER_SIZE)
    queue.next_offset = 4
    store.append(make_message(body=b"4"))
    seen: list[int] = []
    offset = 0
    while offset < queue.max_offset:
        result = store.reader.read("orders", 0, offset)
        assert result.next_offset > offset
        seen += bodies(result)
        offset = result.next_offset
    assert seen == [0, 1, 4]


# --- by time --------------------------------------------------------------------------------------------------------


def expected_offsets(times: dict[int, int], wanted: int, first: int) -> set[int]:
    """The offsets that are right, from the store times of all readable messages."""
    exact = {offset for offset, time in times.items() if time == wanted}
    if exact:
        return exact
    before = [time for time in times.values() if time < wanted]
    after = [time for time in times.values() if time > wanted]
    if not before and not after:
        return {first}
    if not after or (before and abs(wanted - max(before)) <= abs(wanted - min(after))):
        return {max(offset for offset, time in times.items() if time == max(before))}
    return {min(offset for offset, time in times.items() if time == min(after))}


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 30),
    st.integers(-3, 80),
)
def test_the_search_by_time_finds_what_a_look_at_all_would(
    steps: list[tuple[int, bool]], skipped: int, wanted: int
) -> None:
    """Also with messages lost to damage anywhere, and with the first ones expired."""
    clock = VirtualClock(1000)
    store = open_small(make_disk(), clock, index_enabled=False)
    times: dict[int, int] = {}
    for offset, (later, readable) in enumerate(steps):
        clock.advance(later)
        message = store.append(make_message())
        times[offset] = clock.now_ms()
        if not readable:
            del times[offset]
            segment = store.log.chain.segments[message.position // 4096]
            segment.buffer[message.position % 4096 + 4] = 0  # its magic
    queue = get_queue(store)
    queue.min_offset = min(skipped, len(steps) - 1)
    times = {offset: time for offset, time in times.items() if offset >= queue.min_offset}
    found = find_offset_by_time(queue, store.log, 1000 + wanted)
    assert found in expected_offsets(times, 1000 + wanted, queue.min_offset)


def test_before_the_first_the_first_and_after_the_last_the_last() -> None:
    clock = VirtualClock(1000)
    store = open_small(make_disk(), clock)
    for _ in range(4):
        store.append(make_message())
        clock.advance(100)
    asked = {0: 0, -1: 0, 999: 0, 1000: 0, 1050: 0, 1051: 1, 1299: 3, 1300: 3, 1301: 3, 2**62: 3}
    assert {time: store.reader.find_offset("orders", 0, time) for time in asked} == asked
    assert store.reader.find_offset("orders", 9, 1000) == 0
    assert store.reader.earliest_time("orders", 0) == 1000
    assert store.reader.earliest_time("orders", 9) == -1


def test_an_empty_queue_answers_zero() -> None:
    store = make_store(0)
    assert find_offset_by_time(store.queues.get_or_make("orders", 0), store.log, 5) == 0


def test_the_store_time_of_what_is_no_record_is_unknown() -> None:
    store = make_store(1)
    entry = get_queue(store).entry(0)
    assert entry is not None
    assert read_store_time(store.log, entry.position, entry.size) == VirtualClock().now_ms()
    assert read_store_time(store.log, entry.position + 1, entry.size - 1) == -1
    assert read_store_time(store.log, 10**9, 100) == -1


# --- all in one piece -----------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(0, 600), min_size=1, max_size=60),
    others=st.sets(st.integers(0, 60)),
    offset=st.integers(0, 60),
    count=st.integers(1, 100),
    bytes_max=st.integers(1, 20_000),
)
def test_a_joined_read_is_the_beginning_of_the_usual_one(
    sizes: list[int], others: set[int], offset: int, count: int, bytes_max: int
) -> None:
    store = open_small(make_disk())
    for number, size in enumerate(sizes):
        if number in others:  # between two messages of the queue
            store.append(make_message(queue_id=1, body=b"y" * 50))
        store.append(make_message(body=b"x" * size))
    usual = store.reader.read("orders", 0, offset, ReadBounds(count, bytes_max))
    joined = store.reader.read("orders", 0, offset, ReadBounds(count, bytes_max, joined=True))
    assert (joined.status, joined.min_offset, joined.max_offset) == (usual.status, usual.min_offset, usual.max_offset)
    assert usual.count == len(usual.slices)
    assert joined.count == joined.next_offset - offset if joined.slices else joined.next_offset == usual.next_offset
    whole = b"".join(usual.slices)
    piece = b"".join(joined.slices)
    # It ends where a segment of the log ends.
    assert whole.startswith(piece) and bool(piece) == bool(whole)
    assert joined.size == len(piece)


def test_a_joined_read_leaves_out_what_is_damaged() -> None:
    store = make_store(10)
    entries = list(get_queue(store).entries(0, 10))
    damage = [Damage(entries[3][0], entries[3][1], "test")]
    result = read_queue(get_queue(store), store.log, 0, ReadBounds(100, 10**6, joined=True), damage=damage)
    assert bodies(result) == [0, 1, 2, 4, 5, 6, 7, 8, 9] and result.count == 9

"""Entries that are found to be wrong when they are read."""

from __future__ import annotations

import pytest

from eruca._store.messagestore import MessageStore
from eruca._store.reading.slices import ReadBounds
from eruca._wire.record import decode_record
from tests.unit.store.samples import get_queue, make_disk, make_message, open_small

BOUNDS = pytest.mark.parametrize("joined", [False, True])


def fill(count: int = 30) -> MessageStore:
    store = open_small(make_disk(), consumequeue_segment_bytes=20 * 200)
    for number in range(count):
        store.append(make_message("orders", body=b"%d" % number, TAGS="red" if number % 3 else "blue"))
        store.append(make_message("payments", body=b"other"))
    return store


def read_bodies(store: MessageStore, *, joined: bool = False, tags: bool = False) -> list[bytes]:
    bodies: list[bytes] = []
    offset = 0
    queue = get_queue(store)
    right = queue.entry(1)
    assert right is not None
    while offset < queue.max_offset:
        accept = (lambda code, _: code == right.tags_code) if tags else None
        result = store.reader.read("orders", 0, offset, ReadBounds(8, 65536, joined=joined), accept)
        assert result.next_offset > offset, "the reader stands still"
        data = b"".join(result.slices)
        while data:
            message = decode_record(data)
            bodies.append(message.body)
            data = data[message.size :]
        offset = result.next_offset
    return bodies


@BOUNDS
@pytest.mark.parametrize("change", [(5, 0), (-5, 0), (0, 1), (0, -1), (100_000, 0), (-100_000, 0), (137, 3)])
def test_an_entry_that_points_elsewhere_is_put_right(
    change: tuple[int, int], joined: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = fill()
    queue = get_queue(store)
    for offset in (0, 11, 12, 29):
        entry = queue.entry(offset)
        assert entry is not None
        queue.correct(offset, entry.position + change[0], entry.size + change[1], entry.tags_code)
    assert read_bodies(store, joined=joined) == [b"%d" % number for number in range(30)]
    assert "orders queue 0: the entry of message 11 was damaged and is repaired" in caplog.text
    caplog.clear()
    assert read_bodies(store, joined=joined) == [b"%d" % number for number in range(30)]
    assert not caplog.records


def test_an_entry_that_points_at_another_message_is_put_right() -> None:
    store = fill()
    queue, other = get_queue(store), get_queue(store, "payments")
    found = other.entry(7)
    assert found is not None
    queue.correct(7, *found)
    assert read_bodies(store) == [b"%d" % number for number in range(30)]


def test_a_filter_on_tags_gets_what_it_wants_past_a_damaged_entry() -> None:
    store = fill()
    queue = get_queue(store)
    entry = queue.entry(10)
    assert entry is not None
    queue.correct(10, entry.position + 3, entry.size, entry.tags_code)
    assert read_bodies(store, tags=True) == [b"%d" % number for number in range(30) if number % 3]


@BOUNDS
@pytest.mark.parametrize("byte", [0, 3, 5, 15, 27, 33, 93], ids=lambda byte: f"byte {byte}")
def test_a_record_with_a_damaged_head_is_named_once_and_stepped_over(
    byte: int, joined: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = fill()
    entry = get_queue(store).entry(13)
    assert entry is not None
    segment = store.log.chain.find(entry.position)
    assert segment is not None
    segment.buffer[entry.position - segment.start + byte] ^= 0x10
    wanted = [b"%d" % number for number in range(30) if number != 13]
    for _ in range(3):
        assert read_bodies(store, joined=joined) == wanted
    assert caplog.text.count("orders queue 0: message 13 is damaged and skipped") == 1

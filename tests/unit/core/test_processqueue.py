"""The process queue: what is committed is never beyond what is not done."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from eruca._core.processqueue import ProcessQueue


@dataclass
class Item:
    queue_offset: int
    size: int = 10


def make(*offsets: int) -> ProcessQueue[Item]:
    queue: ProcessQueue[Item] = ProcessQueue()
    queue.put([Item(offset) for offset in offsets])
    return queue


def test_nothing_came_yet() -> None:
    queue: ProcessQueue[Item] = ProcessQueue()
    assert (queue.commit_offset, queue.count, queue.bytes, queue.span) == (None, 0, 0, 0)
    assert (queue.first_open, queue.last_open) == (None, None)
    assert not queue.finish(5)


def test_the_first_that_is_not_done_is_committed() -> None:
    queue = make(5, 6, 7, 9)
    assert (queue.commit_offset, queue.count, queue.bytes, queue.span) == (5, 4, 40, 4)
    assert queue.finish(6)
    assert queue.commit_offset == 5
    assert queue.finish(5)
    assert (queue.commit_offset, queue.count, queue.bytes) == (7, 2, 20)
    assert queue.finish(9)
    assert queue.finish(7)
    assert (queue.commit_offset, queue.count, queue.bytes, queue.span) == (10, 0, 0, 0)


def test_what_is_done_cannot_be_done_again() -> None:
    queue = make(5, 6)
    assert queue.finish(6)
    assert not queue.finish(6)
    assert (queue.count, queue.bytes) == (1, 10)


def test_what_came_before_is_not_taken_twice() -> None:
    queue = make(5, 6)
    assert [item.queue_offset for item in queue.put([Item(5), Item(6), Item(7)])] == [7]
    queue.finish(5)
    assert queue.put([Item(5), Item(7)]) == []
    assert queue.count == 2


def test_what_the_filter_took_is_passed_over() -> None:
    queue: ProcessQueue[Item] = ProcessQueue()
    queue.skip_to(100)
    assert queue.commit_offset == 100
    queue.put([Item(100)])
    queue.skip_to(200)
    assert queue.commit_offset == 100
    queue.finish(100)
    assert queue.commit_offset == 200
    queue.skip_to(150)
    assert queue.commit_offset == 200


@given(st.lists(st.integers(1, 4), min_size=1, max_size=60), st.randoms(use_true_random=False), st.integers(0, 1000))
def test_a_crash_never_skips_a_message(gaps: list[int], random: object, start: int) -> None:
    """In any order of ends: the commit is the first that is not done, and at the end it is behind the last."""
    offsets = []
    at = start
    for gap in gaps:
        offsets.append(at)
        at += gap
    queue = make(*offsets)
    order = list(offsets)
    random.shuffle(order)  # type: ignore[attr-defined]
    left = set(offsets)
    before = queue.commit_offset
    for offset in order:
        assert queue.is_open(offset)
        assert queue.finish(offset)
        left.discard(offset)
        committed = queue.commit_offset
        assert committed is not None and before is not None
        assert committed == (min(left) if left else offsets[-1] + 1)
        assert committed >= before
        assert queue.count == len(left)
        assert queue.bytes == 10 * len(left)
        before = committed


def test_what_is_done_behind_the_offset_to_commit() -> None:
    queue = make(5, 6, 7, 9, 10, 12)
    assert queue.list_done() == []
    for offset in (7, 9, 12):
        queue.finish(offset)
    # The filter dropped 8, so it belongs to the range.
    assert (queue.commit_offset, queue.list_done()) == (5, [(7, 10), (12, 13)])
    queue.finish(5)
    queue.finish(6)
    assert (queue.commit_offset, queue.list_done()) == (10, [(12, 13)])


def test_what_another_consumer_has_done_is_not_worked_on() -> None:
    queue: ProcessQueue[Item] = ProcessQueue()
    queue.expect_done([(5, 7), (9, 30)])
    assert queue.expects_done
    # Nothing has arrived yet, and it is still known.
    assert queue.list_done() == [(5, 7), (9, 30)]
    assert [item.queue_offset for item in queue.put([Item(5), Item(6), Item(7), Item(8)])] == [7, 8]
    assert (queue.commit_offset, queue.count, queue.bytes, queue.list_done()) == (7, 2, 20, [(9, 30)])
    assert queue.put([Item(9), Item(10)]) == []
    assert (queue.commit_offset, queue.list_done()) == (7, [(9, 11), (11, 30)])
    queue.expect_done([])
    assert [item.queue_offset for item in queue.put([Item(11)])] == [11]
    assert queue.list_done() == [(9, 11)]
    assert queue.finish(8)
    assert queue.finish(7)
    assert (queue.commit_offset, queue.list_done()) == (11, [])


@given(st.data())
def test_a_crash_repeats_what_was_not_done_and_nothing_else(data: st.DataObject) -> None:
    """Consumers that crash one after the other, each after any part of its work; some messages never arrive."""
    offsets = sorted(data.draw(st.sets(st.integers(0, 60), min_size=1)))
    finished: list[int] = []
    begin, done = 0, [(0, 0)][:0]
    for _ in range(data.draw(st.integers(1, 4))):
        queue: ProcessQueue[Item] = ProcessQueue()
        queue.expect_done(done)
        arrived = [offset for offset in offsets if offset >= begin][: data.draw(st.integers(0, 61))]
        fresh: list[int] = []
        while arrived:
            count = data.draw(st.integers(1, len(arrived)))
            fresh += [item.queue_offset for item in queue.put([Item(offset) for offset in arrived[:count]])]
            del arrived[:count]
        assert not set(fresh) & set(finished)
        for offset in data.draw(st.lists(st.sampled_from(fresh), unique=True)) if fresh else []:
            assert queue.finish(offset)
            finished.append(offset)
        begin, done = queue.commit_offset if queue.commit_offset is not None else begin, queue.list_done()
        open_ones = {offset for offset in offsets if offset >= begin} - {
            offset for first, end in done for offset in range(first, end)
        }
        assert open_ones == set(offsets) - set(finished)

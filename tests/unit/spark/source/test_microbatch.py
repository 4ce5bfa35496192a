"""Where a batch ends and what it reads, decided from offsets alone."""

from __future__ import annotations

import pytest

from eruca._spark.source.microbatch import Span, clip_spans, find_spans, find_waiting
from eruca._spark.source.queuewatch import Sight
from eruca._wire.bodies import MessageQueue

A, B, C = (MessageQueue("broker-a", number, "orders") for number in range(3))


def test_what_is_new_waits_to_be_read() -> None:
    waiting = find_waiting({A: 10, B: 5}, Sight(ends={A: 30, B: 5}, begins={A: 0}), None)
    assert (waiting.counts, waiting.losses) == ({A: 20}, [])
    assert waiting.advance({A: 10, B: 5}, {A: 7}) == {A: 17, B: 5}
    assert waiting.advance({A: 10, B: 5}, {}) == {A: 10, B: 5}


def test_a_new_queue_is_named_first_and_read_in_the_next_batch() -> None:
    start = {A: 10}
    sight = Sight(ends={A: 10, B: 40, C: 0}, begins={B: 25, C: 0})
    waiting = find_waiting(start, sight, None)
    end = waiting.advance(start, waiting.counts)
    assert end == {A: 10, B: 25}, "an empty queue is not worth a batch"
    assert find_spans(start, end) == []
    after = find_waiting(end, sight, None)
    assert find_spans(end, after.advance(end, after.counts)) == [Span(B, 25, 40)]
    assert waiting.losses == after.losses == []


def test_expired_messages_are_a_loss_and_the_rest_is_read() -> None:
    sight = Sight(ends={A: 30}, begins={A: 20})
    waiting = find_waiting({A: 10}, sight, None)
    assert len(waiting.losses) == 1
    end = waiting.advance({A: 10}, waiting.counts)
    assert end == {A: 30}
    assert clip_spans(find_spans({A: 10}, end), sight, lambda text: None) == [Span(A, 20, 30)]
    assert find_waiting({A: 20}, sight, None).losses == []


def test_a_queue_that_has_expired_altogether_does_not_wait_for_ever() -> None:
    waiting = find_waiting({A: 10}, Sight(ends={A: 30}, begins={A: 30}), None)
    assert len(waiting.losses) == 1
    end = waiting.advance({A: 10}, waiting.counts)
    assert end == {A: 30}


def test_a_queue_that_was_made_again_is_a_loss_and_is_read_from_its_beginning() -> None:
    start = {A: 100}
    sight = Sight(ends={A: 7}, begins={A: 0})
    waiting = find_waiting(start, sight, None)
    assert "created again" in waiting.losses[0]
    named = waiting.advance(start, waiting.counts)
    assert named == {A: 0}
    assert find_spans(start, named) == []
    after = find_waiting(named, sight, None)
    assert (after.losses, after.counts) == ([], {A: 7})


def test_a_queue_that_is_gone_is_a_loss_and_is_forgotten() -> None:
    waiting = find_waiting({A: 100, B: 3}, Sight(ends={B: 3}, gone={A}), None)
    assert len(waiting.losses) == 1
    assert waiting.advance({A: 100, B: 3}, {}) == {B: 3}


def test_a_queue_that_is_away_stays_where_it_is() -> None:
    waiting = find_waiting({A: 100, B: 3}, Sight(ends={B: 9}, begins={B: 0}, away={A}), None)
    assert waiting.losses == []
    assert waiting.advance({A: 100, B: 3}, waiting.counts) == {A: 100, B: 9}


def test_nothing_behind_the_end_that_was_given_is_read() -> None:
    target = {A: 20, B: 5}
    sight = Sight(ends={A: 30, B: 9, C: 4}, begins={A: 0, B: 0, C: 0})
    waiting = find_waiting({A: 10, B: 7}, sight, target)
    assert waiting.counts == {A: 10}
    assert waiting.named == {}, "a queue that came later is left alone"
    assert find_waiting({A: 20, B: 7}, sight, target).counts == {}
    assert find_waiting({A: 20}, sight, target).named == {B: 0}


def test_a_batch_that_is_run_again_reports_what_it_cannot_read() -> None:
    spans = find_spans({A: 0, B: 0, C: 10}, {A: 10, B: 10, C: 20})
    reports: list[str] = []
    sight = Sight(ends={A: 50, C: 15}, begins={A: 4, C: 0}, gone={B})
    assert clip_spans(spans, sight, reports.append) == [Span(A, 4, 10), Span(C, 10, 15)]
    assert len(reports) == 3
    with pytest.raises(ValueError, match="queue"):
        clip_spans(spans, sight, _refuse)


def _refuse(text: str) -> None:
    raise ValueError(text)

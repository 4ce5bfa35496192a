"""The timing wheel against a sorted list, whatever comes in whatever order."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca._core.timingwheel import AHEAD_MS, SLOT_MS, TimerEntry, TimingWheel, slot_of

START_MS = 1_700_000_000_000


class Saved:
    """A log in memory, beside the wheel."""

    def __init__(self) -> None:
        self.slots: dict[int, array[int]] = {}
        self.through_ms = START_MS

    def save(self, wheel: TimingWheel) -> None:
        while not wheel.is_saved:
            slot, entries = wheel.first_unsaved()
            self.slots.setdefault(slot, array("q")).extend(entries)
            wheel.mark_saved(slot)
        self.through_ms = wheel.through_ms

    def reopen(self) -> TimingWheel:
        first = slot_of(self.through_ms + 1)
        return TimingWheel(self.through_ms, sum(len(e) // 3 for s, e in self.slots.items() if s >= first))


def advance(wheel: TimingWheel, saved: Saved, now_ms: int, most: int = 1_000_000) -> list[TimerEntry]:
    """Let time pass; returns what is done by then."""
    done: list[TimerEntry] = []
    while True:
        while (slot := wheel.find_slot(now_ms)) is not None:
            wheel.load(slot, saved.slots.get(slot, array("q")))
            wheel.settle(now_ms)
        entry = wheel.peek(now_ms) if len(done) < most else None
        if entry is None:
            wheel.settle(now_ms)
            if len(done) >= most or wheel.find_slot(now_ms) is None:
                return done
            continue
        done.append(entry)
        wheel.finish()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(-30_000, 400_000)),
        st.tuples(st.just("wait"), st.integers(0, 60_000)),
        st.tuples(st.just("back"), st.integers(0, 30_000)),
        st.tuples(st.just("some"), st.integers(1, 3)),
        st.tuples(st.just("save"), st.just(0)),
        st.tuples(st.just("stop"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_what_a_sorted_list_gives_the_wheel_gives(steps: list[tuple[str, int]]) -> None:
    wheel, saved, now_ms = TimingWheel(START_MS), Saved(), START_MS
    expected: list[TimerEntry] = []
    advance(wheel, saved, now_ms)
    for position, (what, number) in enumerate(steps):
        match what:
            case "put":
                wheel.put(now_ms + number, position, 100)
                expected.append(TimerEntry(now_ms + number, position, 100))
                continue
            case "wait":
                now_ms += number
            case "back":
                now_ms -= number
            case "some":
                found = advance(wheel, saved, now_ms, number)
                assert len(found) <= number
                assert all(entry in expected and entry.due_ms <= now_ms for entry in found)
                expected = [entry for entry in expected if entry not in found]
                continue
            case "save":
                saved.save(wheel)
            case "stop":
                # What was late already is saved as due a millisecond later than all that is done: let that pass.
                now_ms = max(now_ms, wheel.through_ms) + 1
                done = advance(wheel, saved, now_ms)
                assert sorted(done) == sorted([entry for entry in expected if entry.due_ms <= now_ms])
                expected = [entry for entry in expected if entry.due_ms > now_ms]
                saved.save(wheel)
                wheel = saved.reopen()
        done = advance(wheel, saved, now_ms)
        assert sorted(done) == sorted([entry for entry in expected if entry.due_ms <= now_ms])
        expected = [entry for entry in expected if entry.due_ms > now_ms]
        assert wheel.pending == len(expected)
    assert sorted(advance(wheel, saved, now_ms + 1_000_000)) == sorted(expected)


def test_far_entries_are_not_in_memory_once_they_are_saved() -> None:
    wheel, saved = TimingWheel(START_MS), Saved()
    advance(wheel, saved, START_MS)
    for number in range(1000):
        wheel.put(START_MS + 100_000 + number, number, 1)
    wheel.put(START_MS + 1, 5, 1)
    saved.save(wheel)
    assert wheel.pending == 1001
    assert wheel._heap == [(START_MS + 1, 5, 1)]
    assert wheel.next_due_ms == START_MS + 1


def test_entries_of_a_crash_are_there_again() -> None:
    wheel, saved = TimingWheel(START_MS), Saved()
    advance(wheel, saved, START_MS)
    wheel.put(START_MS + 5000, 1, 1)
    wheel.put(START_MS + 6000, 2, 1)
    saved.save(wheel)
    assert [entry.position for entry in advance(wheel, saved, START_MS + 5500)] == [1]
    # What was delivered since the save is delivered again, the rest once.
    again = saved.reopen()
    assert [entry.position for entry in advance(again, saved, START_MS + 9000)] == [1, 2]


def test_overdue_slots_are_opened_one_by_one() -> None:
    wheel, saved = TimingWheel(START_MS), Saved()
    for number in range(100):
        wheel.put(START_MS + number * SLOT_MS, number, 1)
    saved.save(wheel)
    wheel = saved.reopen()
    late_ms = START_MS + 1_000_000
    while (slot := wheel.find_slot(late_ms)) is not None:
        wheel.load(slot, saved.slots.get(slot, array("q")))
        wheel.settle(late_ms)
    assert len(wheel._heap) == 1
    assert len(advance(wheel, saved, late_ms)) == 100


def test_slots_are_loaded_in_their_order() -> None:
    wheel = TimingWheel(START_MS)
    first = wheel.find_slot(START_MS)
    assert first == slot_of(START_MS)
    with pytest.raises(ValueError, match="not the next"):
        wheel.load(first + 1, array("q"))
    wheel.load(first, array("q"))
    wheel.load(first + AHEAD_MS // SLOT_MS, array("q"))
    assert wheel.find_slot(START_MS) is None

"""What is in flight: against a simple model, with reading the log again at any moment."""

from __future__ import annotations

import random

import pytest

from eruca._core.popping import pages
from eruca._core.popping.pages import Kept, Pages
from eruca._core.popping.state import Delivery, LineState, PopState, describe_line
from eruca._wire.poplog import Cursor, Forgotten, Item, Line, Settled, Taken

LINE = ("group", "topic", 0, 0)
ROUNDS = 60


def take(start: int, pop_ms: int, count: int, *, next_offset: int = -1, gaps: list[int] | None = None) -> Taken:
    return Taken(*LINE, start, pop_ms, 1000, next_offset, gaps or [], (1 << count) - 1)


def test_each_message_is_found_by_its_handle() -> None:
    state = PopState()
    state.apply([take(10, 5, 3, gaps=[0, 2, 300])], 0, 5)
    assert [state.find(LINE, 10, 5, offset) is not None for offset in (10, 11, 12, 310)] == [True, False, True, True]
    assert state.find(LINE, 10, 6, 10) is None
    assert state.find(("group", "topic", 1, 0), 10, 5, 10) is None
    found = state.find(LINE, 10, 5, 12)
    assert found is not None
    assert found[1] == 2
    assert found[0].list_open() == [(1, 10), (2, 12), (4, 310)]
    state.apply([Settled(*LINE, 10, 5, 2)], 1, 6)
    assert state.find(LINE, 10, 5, 12) is None
    assert (state.in_flight, state.deliveries) == (2, 1)
    state.apply([Settled(*LINE, 10, 5, 7)], 2, 7)
    assert (state.in_flight, state.deliveries, state.by_subscription) == (0, 0, {})


def test_settling_twice_changes_nothing() -> None:
    state = PopState()
    state.apply([take(0, 5, 4)], 0, 5)
    for at in (1, 2):
        state.apply([Settled(*LINE, 0, 5, 3)], at, 6)
        assert state.in_flight == 2
    state.apply([Settled("other", "topic", 0, 0, 0, 5, 3)], 3, 6)
    assert state.in_flight == 2


def test_a_new_delivery_has_a_name_of_its_own() -> None:
    state = PopState()
    state.apply([take(7, 100, 1)], 0, 100)
    assert state.find_free_time(LINE, 7, 100) == 101
    assert state.find_free_time(LINE, 8, 100) == 100


def test_what_ran_out_is_taken_once() -> None:
    state = PopState()
    state.apply([take(0, 0, 1), take(1, 500, 1), take(2, 5000, 1)], 0, 0)
    assert state.take_due(999, 10) == []
    due = state.take_due(2000, 10)
    assert sorted(each.start for each in due) == [0, 1]
    assert state.take_due(2000, 10) == []
    state.defer(due[0], 3000)
    assert state.take_due(4000, 10) == [due[0]]


def test_settled_while_it_is_taken() -> None:
    """Others in the same bucket are still there."""
    state = PopState()
    state.apply([take(start, 0, 1) for start in range(200)], 0, 0)
    got = []
    while due := state.take_due(2000, 1):
        got.append(due[0].start)
        state.apply([Settled(*LINE, due[0].start, 0, 1)], 1, 0)
    assert sorted(got) == list(range(200))


def test_a_deleted_group_is_forgotten() -> None:
    state = PopState()
    state.apply([take(0, 0, 2, next_offset=2)], 0, 0)
    state.apply([Forgotten("group", "")], 1, 0)
    assert (state.in_flight, state.lines) == (0, {})
    assert state.pages.find_low(2) == 2


def test_pages_know_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_RECORDS", 4)
    kept = Pages()
    things = [Kept() for _ in range(20)]
    for at, thing in enumerate(things):
        kept.keep(thing, at, at)
    assert kept.find_low(20) == 0
    for thing in things[:7]:
        kept.drop(thing)
    assert kept.find_low(20) == 4
    assert kept.list_oldest(20) == ([things[7]], 4)
    kept.keep(things[7], 20, 20)
    assert kept.find_low(21) == 8
    for thing in things:
        kept.drop(thing)
    assert kept.find_low(21) == 21
    assert len(kept) == 0


class Model:
    """What should be in flight: a message is popped, acknowledged, changed or runs out, one by one."""

    def __init__(self) -> None:
        # By offset: the name of the delivery, and when it is over.
        self.flying: dict[int, tuple[int, int, int]] = {}
        self.next = 0

    def list_due(self, now_ms: int) -> set[int]:
        return {offset for offset, (_, _, due_ms) in self.flying.items() if due_ms <= now_ms}


def describe(state: PopState) -> dict[int, tuple[int, int, int]]:
    found = {}
    for line in state.lines.values():
        for delivery in line.deliveries.values():
            for _, offset in delivery.list_open():
                assert offset not in found
                found[offset] = (delivery.start, delivery.pop_ms, delivery.due_ms)
    return found


@pytest.mark.parametrize("number", range(8))
def test_random_histories(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    choose = random.Random(seed)
    monkeypatch.setattr(pages, "PAGE_RECORDS", 4)
    state, model = PopState(), Model()
    log: list[tuple[list[Item], int]] = []
    now_ms = 1_000_000

    def write(*body: Item) -> None:
        log.append((list(body), now_ms))
        state.apply(list(body), len(log) - 1, now_ms)

    for _ in range(ROUNDS * 10):
        now_ms += choose.randrange(0, 400)
        act = choose.randrange(6)
        flying = sorted(model.flying)
        if act == 0:
            count = choose.randrange(1, 33)
            gaps = sorted({0, *[choose.randrange(1, 400) for _ in range(count - 1)]}) if choose.random() < 0.3 else []
            offsets = [model.next + gap for gap in gaps or range(count)]
            invisible_ms = choose.randrange(1, 20_000)
            following = offsets[-1] + choose.randrange(1, 5)
            write(Taken(*LINE, offsets[0], now_ms, invisible_ms, following, gaps, (1 << len(offsets)) - 1))
            model.flying |= {offset: (offsets[0], now_ms, now_ms + invisible_ms) for offset in offsets}
            model.next = following
        elif act in (1, 2) and flying:
            for offset in choose.sample(flying, min(len(flying), choose.randrange(1, 6))):
                start, pop_ms, _ = model.flying.pop(offset)
                found = state.find(LINE, start, pop_ms, offset)
                assert found is not None
                write(Settled(*LINE, start, pop_ms, found[1]))
                assert state.find(LINE, start, pop_ms, offset) is None
        elif act == 3 and flying:
            offset = choose.choice(flying)
            start, pop_ms, _ = model.flying[offset]
            found = state.find(LINE, start, pop_ms, offset)
            assert found is not None
            new_ms, invisible_ms = state.find_free_time(LINE, offset, now_ms), choose.randrange(0, 20_000)
            write(Settled(*LINE, start, pop_ms, found[1]), Taken(*LINE, offset, new_ms, invisible_ms, -1, [], 1))
            model.flying[offset] = (offset, new_ms, new_ms + invisible_ms)
        elif act == 4:
            due = model.list_due(now_ms - 125)
            got = set()
            for delivery in state.take_due(now_ms, 1 << 30):
                got |= {offset for _, offset in delivery.list_open()}
                write(Settled(*LINE, delivery.start, delivery.pop_ms, delivery.open))
            assert due <= got <= model.list_due(now_ms)
            for offset in got:
                del model.flying[offset]
        else:
            for thing in list(state.list_old(len(log), choose.randrange(4, 40), 0)):
                assert isinstance(thing, Delivery | LineState)
                if isinstance(thing, LineState):
                    write(describe_line(thing))
                else:
                    write(thing.describe(thing.due_ms - thing.pop_ms, -1))
        assert describe(state) == model.flying
        assert state.in_flight == len(model.flying) == sum(state.by_subscription.values())
        if choose.random() < 0.05:
            low = state.pages.find_low(len(log))
            state = PopState(low)
            for at in range(low, len(log)):
                state.apply(log[at][0], at, log[at][1])
            assert describe(state) == model.flying
            if LINE in state.lines:
                assert state.lines[LINE].next == model.next


def test_a_cursor_is_kept() -> None:
    state = PopState()
    state.apply([Cursor(*LINE, 17)], 0, 0)
    line = state.lines[LINE]
    assert describe_line(line) == Cursor(*LINE, 17)
    assert Line(*line.key) == Line(*LINE)

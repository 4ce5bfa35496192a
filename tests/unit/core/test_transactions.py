"""One pass over the half queue: which halves are checked, put back or given up, and where the next pass starts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._core.transactions import (
    PASS_MS_MAX,
    Action,
    CheckBack,
    CheckPass,
    Event,
    Finish,
    GiveUp,
    Half,
    HalfMissing,
    HalfRead,
    HalvesEnded,
    Op,
    OpsRead,
    PassStarted,
    PutBack,
    ReadHalf,
    ReadOps,
    Rules,
    Stored,
    StoreRefused,
)

RULES = Rules(timeout_ms=6000, checks_max=3, age_ms_max=3_600_000)
NOW = 1_000_000


@dataclass
class World:
    """Two queues in memory, and what a broker would do with the machine's actions."""

    now: int = NOW
    halves: list[Half | None] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    half_offset: int = 0
    op_offset: int = 0
    position: int = 0
    asked: list[tuple[int, int]] = field(default_factory=list)  # root, offset of the copy
    given_up: list[int] = field(default_factory=list)
    refuses: bool = False
    ops_at_once: int = 2

    def send(self, **facts: int | None) -> Half:
        """A producer sends a half."""
        self.position += 100
        born = facts.pop("born_ms", self.now)
        half = Half(len(self.halves), self.position, born or 0, **facts)  # type: ignore[arg-type]
        self.halves.append(half)
        return half

    def decide(self, half: Half) -> None:
        """A producer commits or rolls back."""
        for offset in dict.fromkeys((half.offset, half.root)):
            self.position += 100
            self.ops.append(Op(len(self.ops), self.position, offset))

    def run(self, rules: Rules = RULES) -> list[Action]:
        """Run one pass; returns what was written."""
        machine = CheckPass(rules)
        action = machine.handle(PassStarted(self.half_offset, self.op_offset, self.position + 100), self.now)
        written: list[Action] = []
        while not isinstance(action, Finish):
            if not isinstance(action, ReadHalf | ReadOps):
                written.append(action)
            action = machine.handle(self.do(action), self.now)
        self.half_offset, self.op_offset = action.half_offset, action.op_offset
        return written

    def do(self, action: Action) -> Event:
        match action:
            case ReadHalf(offset):
                if offset >= len(self.halves):
                    return HalvesEnded()
                half = self.halves[offset]
                return HalfMissing(offset + 1) if half is None else HalfRead(half)
            case ReadOps(offset):
                end = min(len(self.ops), offset + self.ops_at_once)
                return OpsRead(self.ops[offset:end], end, end == len(self.ops))
        if self.refuses:
            return StoreRefused()
        match action:
            case PutBack(half):
                self.copy(half, half.checks)
            case CheckBack(half, checks):
                self.asked.append((half.root, self.copy(half, checks).offset))
            case GiveUp(half):
                self.given_up.append(half.root)
        return Stored()

    def copy(self, half: Half, checks: int) -> Half:
        self.position += 100
        copy = replace(
            half,
            offset=len(self.halves),
            position=self.position,
            checks=checks,
            origin=half.root,
        )
        self.halves.append(copy)
        return copy


@pytest.fixture
def world() -> World:
    return World()


def test_nothing_to_do(world: World) -> None:
    assert world.run() == []
    assert (world.half_offset, world.op_offset) == (0, 0)


def test_a_young_half_is_left_alone(world: World) -> None:
    world.send()
    world.now += RULES.timeout_ms - 1
    assert world.run() == []
    assert world.half_offset == 0


def test_an_old_undecided_half_is_asked_about(world: World) -> None:
    half = world.send()
    world.now += RULES.timeout_ms
    assert world.run() == [CheckBack(half, 1)]
    assert world.asked == [(0, 1)]
    # The walk is past the first; the copy is too fresh.
    assert world.half_offset == 1
    world.now += 1
    assert world.run() == [CheckBack(replace(half, offset=1, position=200, checks=1, origin=0), 2)]


def test_decided_halves_are_passed_over(world: World) -> None:
    halves = [world.send() for _ in range(5)]
    for half in reversed(halves):
        world.decide(half)
    world.now += RULES.timeout_ms
    assert world.run() == []
    assert (world.half_offset, world.op_offset) == (5, 5)


def test_the_op_progress_stops_at_what_is_still_needed(world: World) -> None:
    early = [world.send() for _ in range(2)]
    world.now += RULES.timeout_ms
    undecided = world.send()
    ahead = world.send()
    for half in (ahead, *early):
        world.decide(half)
    assert world.run() == []
    # The walk stops at a young half, and the first op decides one behind it.
    assert (world.half_offset, world.op_offset) == (undecided.offset, 0)
    world.now += RULES.timeout_ms
    assert world.run() == [CheckBack(undecided, 1)]
    assert (world.half_offset, world.op_offset) == (4, 3)


def test_a_decision_about_the_original_decides_its_copies(world: World) -> None:
    original = world.send()
    world.now += RULES.timeout_ms
    world.run()
    world.now += 1
    # The producer was slow: its own decision comes after the first question.
    world.decide(original)
    assert world.run() == []
    assert world.asked == [(0, 1)]
    assert world.half_offset == 2
    assert world.op_offset == 1


def test_a_decision_about_any_copy_decides_younger_ones(world: World) -> None:
    world.send()
    world.now += RULES.timeout_ms
    world.run()
    world.now += 1
    world.run()
    assert world.asked == [(0, 1), (0, 2)]
    first_copy = world.halves[1]
    assert first_copy is not None
    world.decide(first_copy)
    world.now += 1
    assert world.run() == []
    assert world.half_offset == 3
    assert world.op_offset == 2


def test_a_late_decision_is_kept_until_its_copies_are_walked(world: World) -> None:
    world.send(immunity_ms=20_000)
    world.now += RULES.timeout_ms
    young = world.send()
    world.now += 1
    original = world.halves[0]
    assert original is not None
    # The young half is before the copy in the queue, so the pass stops before it sees the copy.
    assert world.run() == [PutBack(original)]
    world.decide(original)
    assert world.run() == []
    assert world.half_offset == young.offset
    assert world.op_offset == 0
    world.now += RULES.timeout_ms
    world.decide(young)
    assert world.run() == []
    assert (world.half_offset, world.op_offset) == (3, 2)
    assert world.asked == []


def test_an_immune_half_is_put_back_uncounted_and_asked_about_later(world: World) -> None:
    half = world.send(immunity_ms=60_000)
    for _ in range(5):
        world.now += 10_000
        written = world.run()
        assert [type(action) for action in written] == [PutBack]
        assert world.asked == []
    world.now += 10_000
    (asked,) = world.run()
    assert isinstance(asked, CheckBack)
    assert (asked.half.root, asked.checks) == (half.offset, 1)


def test_a_half_is_given_up_after_too_many_questions(world: World) -> None:
    world.send()
    world.now += RULES.timeout_ms
    for _ in range(RULES.checks_max):
        world.run()
        world.now += 1
    assert len(world.asked) == RULES.checks_max
    (last,) = world.run()
    assert isinstance(last, GiveUp)
    assert world.given_up == [0]
    world.now += 1
    assert world.run() == []
    assert world.half_offset == len(world.halves)


def test_a_half_older_than_files_are_kept_is_given_up_unasked(world: World) -> None:
    half = world.send(immunity_ms=RULES.age_ms_max * 2)
    world.now += RULES.age_ms_max + 1
    assert world.run() == [GiveUp(half)]


def test_a_half_from_the_future_is_asked_about_at_once(world: World) -> None:
    half = world.send(born_ms=NOW + 50_000)
    world.now += 1
    assert world.run() == [CheckBack(half, 1)]


def test_a_half_stored_since_the_pass_started_waits(world: World) -> None:
    half = world.send(born_ms=NOW - 50_000)
    machine = CheckPass(RULES)
    assert machine.handle(PassStarted(0, 0, half.position), NOW) == ReadHalf(0)
    assert machine.handle(HalfRead(half), NOW) == Finish(0, 0)
    assert world.run() == [CheckBack(half, 1)]


def test_a_decision_far_down_the_op_queue_is_found_before_anything_is_done(world: World) -> None:
    tired = world.send(checks=RULES.checks_max)
    others = [world.send() for _ in range(20)]
    for half in [*others, tired]:
        world.decide(half)
    world.now += RULES.timeout_ms
    assert world.run() == []
    assert world.given_up == []


def test_a_store_that_refuses_ends_the_pass_in_place(world: World) -> None:
    world.send()
    world.send()
    world.now += RULES.timeout_ms
    world.refuses = True
    assert len(world.run()) == 1
    assert world.half_offset == 0
    world.refuses = False
    assert len(world.run()) == 2
    assert world.half_offset == 2


def test_lost_halves_are_passed_over(world: World) -> None:
    world.send()
    last = world.send()
    world.halves[0] = None
    world.now += RULES.timeout_ms
    assert world.run() == [CheckBack(last, 1)]
    assert world.half_offset == 2


def test_op_records_that_cannot_be_read_do_not_hold_up_the_progress(world: World) -> None:
    half = world.send()
    world.ops.append(Op(0, 150, None))
    world.decide(half)
    world.now += RULES.timeout_ms
    assert world.run() == []
    assert world.op_offset == 2


def test_a_pass_ends_after_its_time() -> None:
    machine = CheckPass(RULES)
    assert machine.handle(PassStarted(0, 0, 100), NOW) == ReadHalf(0)
    half = Half(0, 0, NOW - 10_000)
    assert machine.handle(HalfRead(half), NOW) == ReadOps(0)
    assert machine.handle(OpsRead((), 0, True), NOW) == CheckBack(half, 1)
    assert machine.handle(Stored(), NOW + PASS_MS_MAX) == ReadHalf(1)
    assert machine.handle(HalfMissing(2), NOW + PASS_MS_MAX + 1) == Finish(2, 0)


STEPS = st.lists(
    st.one_of(
        st.just(("send", 0)),
        st.tuples(st.just("immune"), st.integers(0, 60)),
        st.tuples(st.just("decide"), st.integers(0, 30)),
        st.tuples(st.just("wait"), st.integers(1, 20_000)),
        st.just(("pass", 0)),
        st.just(("refuse", 0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 5))
def test_each_half_is_asked_about_until_it_is_decided_and_never_after(
    steps: list[tuple[str, int]], ops_at_once: int
) -> None:
    """Any events in any order; every pass uses a new machine, as after a restart."""
    world = World(ops_at_once=ops_at_once)
    decided: set[int] = set()
    rules = replace(RULES, checks_max=1000)
    for step, number in steps:
        if step == "send":
            world.send()
        elif step == "immune":
            world.send(immunity_ms=number * 1000)
        elif step == "decide" and number < len(world.halves):
            half = world.halves[number]
            assert half is not None
            if half.root not in decided:
                decided.add(half.root)
                world.decide(half)
        elif step == "wait":
            world.now += number
        elif step in ("pass", "refuse"):
            world.refuses = step == "refuse"
            known = len(world.asked)
            world.run(rules)
            assert not decided & {root for root, _ in world.asked[known:]}
    world.refuses = False
    world.now += 100_000
    known = len(world.asked)
    world.run(rules)
    roots = {half.root for half in world.halves if half is not None}
    assert {root for root, _ in world.asked[known:]} == roots - decided
    # Each once: no half is in the queue twice.
    assert len(world.asked[known:]) == len(roots - decided)

"""Thousands of simulated worlds in which members crash, pause and lose contact with etcd and with each other."""

from __future__ import annotations

import os

import pytest

from eruca._core.failover import machine
from eruca._core.failover.insync import InSync
from eruca._core.failover.machine import Failover
from eruca._core.failover.rules import Rules
from eruca._core.failover.view import Event, MemberEntry, Phase, Progress, View
from tests.figures import note_figures
from tests.unit.core.failover.failovermodel import Faults, World

SEEDS = int(os.environ.get("ERUCA_SEEDS", "100"))
TROUBLE_S = 40.0
HEALED_S = 30.0


def live(world: World) -> None:
    """One run: a start, trouble, and then peace, in which everything must recover automatically."""
    world.start()
    world.trouble(TROUBLE_S)
    world.run(TROUBLE_S)
    world.heal()
    before = len(world.acknowledged)
    world.at(TROUBLE_S + HEALED_S / 3, world.force_when_nobody_knows)
    world.run(TROUBLE_S + HEALED_S)
    leaders = world.find_leaders()
    assert len(leaders) == 1, "nobody leads after everything was well again"
    leader = leaders[0]
    assert len(world.acknowledged) > before, "no acknowledgements after everything was well again"
    assert world.etcd.view.state is not None
    assert world.etcd.view.state.in_sync == {0, 1, 2}, "not everybody came back into the set"
    for member in world.members:
        assert member.log[: len(world.acknowledged)] == world.acknowledged[: len(member.log)]
        assert len(leader.log) - len(member.log) < 200, "a slave does not keep up"


def run_seeds(name: str, first: int, count: int, faults: Faults, rules: Rules | None = None) -> list[World]:
    worlds = []
    for seed in range(first, first + count):
        world = World(seed, faults, rules)
        try:
            live(world)
        except AssertionError as error:
            error.add_note(f"seed {seed}, {faults}")
            raise
        worlds.append(world)
    note_figures(
        f"failover model, {name}: {count} seeds from {first}, {sum(w.elections for w in worlds)} elections, "
        f"{sum(len(w.acknowledged) for w in worlds)} acknowledged, 0 lost; "
        f"{sum(w.not_the_best for w in worlds)} times a living member with more was waited for in vain"
    )
    return worlds


def test_all_faults_together() -> None:
    worlds = run_seeds("all faults", 0, SEEDS, Faults())
    assert sum(world.elections for world in worlds) > SEEDS


def test_member_that_publishes_again_gets_time_to_claim() -> None:
    """A world in which a better member loses its lease in the middle of an election, while etcd is down."""
    assert run_seeds("published again", 1_001_246, 1, Faults())


def test_slow_networks() -> None:
    worlds = run_seeds("slow networks", 100_000, SEEDS // 4 + 1, Faults(slow=0.1))
    assert sum(len(world.acknowledged) for world in worlds)


def test_only_crashes_elect_the_one_with_the_most_data() -> None:
    only = Faults(
        slow=0.005,
        etcd_parts=False,
        member_parts=False,
        pauses=False,
        step_downs=False,
        etcd_outages=False,
        spite=False,
    )
    worlds = run_seeds("only crashes", 200_000, SEEDS // 4 + 1, only)
    assert sum(world.not_the_best for world in worlds) == 0


def test_what_is_written_to_etcd_is_damaged_on_its_way() -> None:
    worlds = run_seeds("damage", 400_000, SEEDS // 2 + 1, Faults(damage=0.2))
    damaged, forced = (sum(getattr(world, name) for world in worlds) for name in ("damaged", "forced"))
    assert damaged > SEEDS
    note_figures(f"failover model, damage: {damaged} writes damaged, {forced} times an operator had to help")


def test_etcd_loses_everything_and_members_start_alone() -> None:
    worlds = run_seeds("etcd losses", 500_000, SEEDS // 2 + 1, Faults(etcd_losses=True))
    only = Faults(etcd_losses=True, etcd_parts=False, member_parts=False, pauses=False, step_downs=False, spite=False)
    worlds += run_seeds("etcd losses and crashes only", 600_000, SEEDS // 2 + 1, only)
    losses = sum(world.losses for world in worlds)
    assert losses > SEEDS // 2
    note_figures(f"failover model, etcd losses: {losses} times etcd lost everything")


def test_clocks_that_lie_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that believes in its lease for twice its time: two may acknowledge, but not what the other lacks."""
    monkeypatch.setattr(World, "check_gates", lambda _: None)
    monkeypatch.setattr(World, "check_master", lambda *_: None)
    worlds = run_seeds("lying clocks", 300_000, SEEDS // 4 + 1, Faults(), Rules(margin=-1.0))
    assert sum(world.elections for world in worlds)


# --- would the model see a mistake? ---------------------------------------------------------------------------------


def find_mistake(faults: Faults, rules: Rules | None = None) -> str:
    """What the model reports about a deliberately broken machine; empty if it does not notice."""
    for seed in range(300):
        world = World(seed, faults, rules)
        world.start()
        world.trouble(TROUBLE_S)
        try:
            world.run(TROUBLE_S)
        except AssertionError as error:
            return str(error)
    return ""


def test_model_sees_a_master_that_outlives_its_lease() -> None:
    assert "acknowledge" in find_mistake(Faults(), Rules(margin=-0.5))


def test_model_sees_a_set_that_counts_before_etcd_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def need_only_members(self: InSync) -> frozenset[int]:
        return (self.members if self.pending is None else self.pending) - {self._me}

    monkeypatch.setattr(InSync, "needed", property(need_only_members))
    assert "lacks what was acknowledged" in find_mistake(Faults())


def test_model_sees_a_member_that_founds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_who_is_here(view: View) -> tuple[MemberEntry | None, str]:
        return max(view.members.values(), key=lambda m: (m.epoch, m.position, -m.member)), ""

    monkeypatch.setattr(machine, "judge_founding", take_who_is_here)
    assert "lacks what was acknowledged" in find_mistake(Faults(etcd_losses=True))


def test_model_sees_a_member_that_joins_with_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    def join_at_once(self: InSync, progress: Progress, now: float) -> None:
        for member in progress.reports.keys() - self.members:
            self._joining[member] = (0, now + 1)

    monkeypatch.setattr(InSync, "_court", join_at_once)
    assert "lacks what was acknowledged" in find_mistake(Faults())


def test_model_sees_an_election_of_a_member_outside_the_set(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Failover._learn

    def force_everybody(self: Failover, event: Event) -> None:
        original(self, event)
        self._forced_until = self._now + 1 if self.phase is Phase.WAITING else 0.0

    monkeypatch.setattr(Failover, "_learn", force_everybody)
    monkeypatch.setattr(World, "check_standing", lambda *_: None)
    assert "lacks what was acknowledged" in find_mistake(Faults())


@pytest.mark.whole
def test_thousands_of_worlds() -> None:
    worlds = run_seeds("all faults, whole", 1_000_000, 4000, Faults())
    assert len(worlds) == 4000

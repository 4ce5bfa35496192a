"""May a member be promoted? The rule, with members that answer and others that do not."""

from __future__ import annotations

import itertools

import pytest

from eruca._admin.promotion import (
    Situation,
    Standing,
    find_highest_epoch,
    find_objections,
    find_successor,
    measure,
)
from eruca._wire.bodies import ReplicationState
from eruca._wire.bodies.replication import EpochStart, FollowedMaster
from eruca._wire.names import FENCED, MASTER, SLAVE

M, A, B = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def make(
    address: str,
    *,
    role: str = SLAVE,
    tail: int = 1000,
    epochs: tuple[tuple[int, int], ...] = ((1, 0),),
    master: str = M,
    connected: bool = False,
    sync: bool = True,
    required: int = 2,
    members: tuple[str, ...] = (M, A),
) -> ReplicationState:
    followed = FollowedMaster(address=master, connected=connected, epoch=epochs[-1][0], sync=sync, required=required)
    return ReplicationState(
        address=address,
        broker_name="a",
        configured_id=0 if address == M else 1,
        role=role,
        writable=role == MASTER,
        epoch=epochs[-1][0],
        epochs=[EpochStart(epoch=epoch, start=start) for epoch, start in epochs],
        tail=tail,
        sync=sync,
        required=required,
        master=followed if role == SLAVE else None,
        members=list(members),
    )


def see(*states: ReplicationState, told: int | None = None, java: tuple[str, ...] = ()) -> Situation:
    known = {address for state in states for address in state.members} | {state.address for state in states}
    return Situation(
        name="a",
        states={state.address: state for state in states},
        known=frozenset(known),
        java=frozenset(java),
        told_count=told,
    )


# --- the master is gone -----------------------------------------------------------------------------------------------


def test_the_slave_of_a_pair_with_two_copies_may() -> None:
    assert find_objections(see(make(A)), A) == []


def test_the_slave_of_a_master_that_does_not_wait_may_not() -> None:
    (objection,) = find_objections(see(make(A, sync=False)), A)
    assert "ASYNC_MASTER" in objection.reason and objection.is_about_count
    assert f"1 of 2 members answer ({M} does not), and at least 2 must" in objection.reason
    (objection,) = find_objections(see(make(A, required=1)), A)
    assert "acknowledged when 1 members have it" in objection.reason


def test_of_three_with_two_copies_both_slaves_must_answer() -> None:
    everyone = (M, A, B)
    alone = see(make(A, members=everyone))
    (objection,) = find_objections(alone, A)
    assert (
        "1 of 3 members answer" in objection.reason and B in objection.reason and "at least 2 must" in objection.reason
    )
    both = see(make(A, members=everyone), make(B, members=everyone))
    assert find_objections(both, A) == find_objections(both, B) == []
    three_copies = see(make(A, members=everyone, required=3))
    assert find_objections(three_copies, A) == []


def test_the_operator_may_know_better() -> None:
    assert find_objections(see(make(A, members=(M, A, B)), told=2), A) == []
    assert find_objections(see(make(A), told=3), A)
    # Not fewer than those that answer.
    assert see(make(A), make(B), told=1).count == 2


def test_the_one_with_the_most_data_and_no_other() -> None:
    everyone = (M, A, B)
    situation = see(make(A, tail=900, members=everyone), make(B, tail=1000, members=everyone))
    (objection,) = find_objections(situation, A)
    assert f"{B} has more of the log" in objection.reason and "100 bytes would be lost" in objection.reason
    assert not objection.is_about_count
    assert find_objections(situation, B) == []


def test_a_newer_mastership_counts_more_than_a_longer_log() -> None:
    everyone = (M, A, B)
    longer = make(A, tail=5000, members=everyone)
    newer = make(B, tail=1200, epochs=((1, 0), (1000, 1100)), members=everyone)
    (objection,) = find_objections(see(longer, newer), A)
    assert "all since epoch 1 ended would be lost" in objection.reason
    assert find_objections(see(longer, newer), B) == []
    assert measure(longer) == Standing(1, 5000) and measure(newer) == Standing(1000, 1200)


def test_a_mastership_whose_log_is_not_there_yet_does_not_count() -> None:
    assert measure(make(A, tail=1000, epochs=((1, 0), (1000, 1100)))) == Standing(1, 1000)
    assert measure(make(A, tail=1100, epochs=((1, 0), (1000, 1100)))) == Standing(1000, 1100)


def test_a_slave_that_knows_nobody_may_not() -> None:
    (objection,) = find_objections(see(make(A, members=(A,))), A)
    assert "the number of members is unknown" in objection.reason
    assert find_objections(see(make(A, members=(A,)), told=2), A) == []


def test_a_slave_that_never_heard_its_master_may_not() -> None:
    (objection,) = find_objections(see(make(A, required=0)), A)
    assert "no member knows the last master" in objection.reason


def test_a_master_that_only_we_cannot_reach_is_alive() -> None:
    (objection,) = find_objections(see(make(A, connected=True)), A)
    assert "still hears from it" in objection.reason


def test_a_java_master_cannot_be_told() -> None:
    found = find_objections(see(make(A, sync=False), java=(M,)), A)
    assert "is a Java broker" in found[0].reason


def test_when_all_answer_nothing_can_be_lost_in_any_mode() -> None:
    retired = make(M, sync=False, master="", tail=1000)
    slave = make(A, sync=False, tail=1000)
    assert find_objections(see(retired, slave), A) == []
    (objection,) = find_objections(see(retired, make(A, sync=False, tail=999)), A)
    assert "1 bytes would be lost" in objection.reason
    assert find_objections(see(retired, make(A, sync=False, tail=999)), M) == []


def test_a_master_that_never_had_a_slave_and_retired_may_come_back() -> None:
    assert find_objections(see(make(M, members=(M,), required=0, sync=False)), M) == []


def test_a_master_with_an_empty_store_that_has_heard_of_another_may_not() -> None:
    begun_anew = make(M, members=(M,), required=0, sync=False, tail=0)
    begun_anew.epoch = 1100  # a name server said so
    (objection,) = find_objections(see(begun_anew), M)
    assert "the number of members is unknown" in objection.reason


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_whatever_was_acknowledged_is_with_the_chosen_one(count: int) -> None:
    """For every number of copies, every acknowledged set and every set that answers: allowed means nothing lost."""
    names = [f"10.0.1.{number}:1" for number in range(count)]
    for copies in range(1, count + 1):
        for has_it in itertools.combinations(range(count), copies):
            if 0 not in has_it:
                continue  # the master has what it acknowledged
            for size in range(1, count):
                for answer in itertools.combinations(range(1, count), size):
                    states = [
                        make(
                            names[number],
                            tail=2000 if number in has_it else 1000,
                            master=names[0],
                            required=copies,
                            members=tuple(names),
                        )
                        for number in answer
                    ]
                    situation = see(*states)
                    for number in answer:
                        if not find_objections(situation, names[number]):
                            assert number in has_it, (copies, has_it, answer, number)


# --- the master is here -----------------------------------------------------------------------------------------------


def test_a_slave_that_copies_from_the_master_may() -> None:
    master = make(M, role=MASTER, sync=False, tail=2000)
    assert find_objections(see(master, make(A, sync=False, connected=True)), A) == []


def test_a_slave_that_does_not_copy_from_it_may_not() -> None:
    master = make(M, role=MASTER, tail=2000)
    (objection,) = find_objections(see(master, make(A)), A)
    assert "does not copy from the master" in objection.reason and "lacks 1000 bytes" in objection.reason
    assert find_objections(see(master, make(A, connected=True, master=B)), A)


def test_the_newest_of_two_masters_is_the_master() -> None:
    old = make(M, role=MASTER)
    new = make(A, role=MASTER, epochs=((1, 0), (1000, 900)))
    situation = see(old, new)
    assert situation.master is new
    assert find_objections(situation, M)
    assert find_highest_epoch(situation.states) == 1000


def test_a_fenced_master_may_go_on_unless_it_was_replaced() -> None:
    fenced = make(M, role=FENCED)
    assert find_objections(see(fenced, make(A)), M) == []
    # Nobody else has heard of another one, so nobody need be asked.
    assert find_objections(see(fenced), M) == []
    replaced = make(A, epochs=((1, 0), (1000, 1000)))
    (objection,) = find_objections(see(fenced, replaced), M)
    assert "all since epoch 1 ended would be lost" in objection.reason


def test_a_fenced_master_that_has_heard_of_a_successor_needs_the_others() -> None:
    for sync, allowed in ((True, True), (False, False)):
        fenced = make(M, role=FENCED, sync=sync)
        fenced.epoch = 1000  # the one that was to come, and perhaps began
        assert (find_objections(see(fenced), M) == []) is allowed


def test_the_best_slave_succeeds() -> None:
    master = make(M, role=MASTER, tail=2000)
    slow, fast, away = make(A, tail=10, connected=True), make(B, tail=20, connected=True), make("c:1", tail=30)
    assert find_successor(see(master, slow, fast, away), master) is fast
    assert find_successor(see(master, away), master) is None

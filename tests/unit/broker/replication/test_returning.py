"""A master that starts again: it leads, follows the one that replaced it, or waits for an operator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from eruca._broker.options import BrokerOptions, LiveOptions
from eruca._broker.replication.members import KnownMembers, MembersTable
from eruca._broker.replication.returning import NewerMaster, Returning, judge_return
from eruca._broker.standing import Standing
from eruca._wire.bodies import ReplicationState
from eruca._wire.bodies.replication import EpochStart, FollowedMaster, SlaveState
from eruca._wire.epoch import Epoch

OWN, OTHER, THIRD = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
RETURNING = Returning(OWN, seen_epoch=1, led_epoch=1, epochs=(Epoch(1, 0),), tail=1000, sync=True)


def make(
    address: str = OTHER,
    role: str = "SLAVE",
    epoch: int = 1,
    *,
    tail: int = 1000,
    epochs: tuple[tuple[int, int], ...] = ((1, 0),),
    master: FollowedMaster | None = None,
) -> ReplicationState:
    return ReplicationState(
        address=address,
        ha_address=address.replace("10911", "10912"),
        broker_name="a",
        role=role,
        epoch=epoch,
        epochs=[EpochStart(epoch=number, start=start) for number, start in epochs],
        tail=tail,
        master=master,
    )


def test_it_leads_when_nobody_is_there() -> None:
    assert judge_return(RETURNING, []) is None


def test_it_leads_when_the_slaves_know_nobody_newer() -> None:
    assert judge_return(RETURNING, [make(), make(THIRD, tail=10)]) is None


def test_what_it_says_itself_does_not_count() -> None:
    assert judge_return(RETURNING, [make(OWN, "MASTER", 1000)]) is None


def test_it_follows_the_one_that_replaced_it() -> None:
    newer = judge_return(RETURNING, [make(OTHER, "MASTER", 1000), make(THIRD, "SLAVE", 1000)])
    assert newer is not None
    assert (newer.epoch, newer.place) == (1000, (OTHER, "10.0.0.2:10912"))
    assert "epoch 1000" in newer.reason


def test_it_follows_the_one_it_was_told_to_make_room_for() -> None:
    """It knew the epoch of its successor before it stopped, and must not start a later one."""
    newer = judge_return(replace(RETURNING, seen_epoch=1100), [make(OTHER, "MASTER", 1100)])
    assert newer is not None
    assert (newer.epoch, newer.place) == (1100, (OTHER, "10.0.0.2:10912"))


def test_a_master_of_the_same_or_an_older_epoch_is_none_to_follow() -> None:
    assert judge_return(RETURNING, [make(OTHER, "MASTER", 1)]) is None
    assert judge_return(replace(RETURNING, seen_epoch=2000), [make(OTHER, "MASTER", 1000)]) is None


def test_the_newest_of_several_masters_counts() -> None:
    newer = judge_return(RETURNING, [make(OTHER, "MASTER", 1000), make(THIRD, "MASTER", 2000)])
    assert newer is not None and newer.address == THIRD


def test_a_slave_that_has_heard_of_a_newer_one_keeps_it_back() -> None:
    followed = FollowedMaster(address=THIRD, ha_address="10.0.0.3:10912", epoch=1000)
    newer = judge_return(RETURNING, [make(OTHER, "SLAVE", 1000, master=followed)])
    assert newer is not None and newer.place == (THIRD, "10.0.0.3:10912")
    assert f"eruca cluster promote {OTHER}" in newer.reason
    unknown = judge_return(RETURNING, [make(OTHER, "SLAVE", 1000)])
    assert unknown is not None and unknown.place is None
    itself = judge_return(RETURNING, [make(OTHER, "SLAVE", 1000, master=FollowedMaster(address=OWN, epoch=1000))])
    assert itself is not None and itself.place is None
    both = judge_return(RETURNING, [make(OTHER, "MASTER", 1000), make(THIRD, "SLAVE", 2000)])
    assert both is not None and both.place is None and both.epoch == 2000


def test_a_slave_with_more_of_our_log_keeps_a_sync_master_back() -> None:
    """A power loss cost acknowledged messages, and the slave still has them."""
    newer = judge_return(RETURNING, [make(tail=1500)])
    assert isinstance(newer, NewerMaster) and newer.place is None
    assert "500 bytes of epoch 1" in newer.reason
    assert judge_return(replace(RETURNING, sync=False), [make(tail=1500)]) is None


def test_a_slave_with_a_mastership_that_a_power_loss_took_keeps_a_sync_master_back() -> None:
    """The log of that mastership is lost completely and more; its slave has what was acknowledged in it."""
    lost = replace(RETURNING, seen_epoch=2, epochs=(Epoch(1, 0), Epoch(2, 1200)))
    newer = judge_return(lost, [make(epoch=2, tail=1500, epochs=((1, 0), (2, 1200)))])
    assert newer is not None and newer.place is None
    assert "what epoch 2 wrote" in newer.reason
    nothing = replace(RETURNING, seen_epoch=2, epochs=())
    assert judge_return(nothing, [make(epoch=2, tail=900, epochs=((1, 0), (2, 800)))]) is not None


def test_a_mastership_that_wrote_nothing_is_no_reason() -> None:
    begun = make(epoch=2, tail=1000, epochs=((1, 0), (2, 1000)))
    assert judge_return(replace(RETURNING, seen_epoch=2), [begun]) is None


def test_the_tail_of_an_older_mastership_is_no_reason() -> None:
    restarted = replace(RETURNING, seen_epoch=2, epochs=(Epoch(1, 0), Epoch(2, 900)))
    assert judge_return(restarted, [make(tail=1500)]) is None


# --- members ----------------------------------------------------------------------------------------------------------


def make_known(table: MembersTable | None = None) -> KnownMembers:
    options = BrokerOptions(host="10.0.0.2", port=10911)
    return KnownMembers(LiveOptions(options), Standing(options), table or MembersTable(), lambda: 0)


@pytest.fixture
async def known() -> AsyncIterator[KnownMembers]:
    yield make_known()


def test_members_are_met_once(known: KnownMembers) -> None:
    assert known.members == [OTHER] and known.mode is None
    known.meet([OWN, "", OTHER, OWN])
    known.meet([THIRD])
    assert known.members == [OTHER, OWN, THIRD]
    assert known.snapshot().members == [OWN, THIRD]


def test_a_slave_learns_from_its_master(known: KnownMembers) -> None:
    master = make(OWN, "MASTER", 1)
    master.sync, master.required = True, 2
    master.members = [OWN, THIRD]
    master.slaves = [SlaveState(address="10.0.0.4:10911", fenced=True), SlaveState(address="10.0.0.5:4711")]
    known.hear(master)
    assert known.members == [OTHER, OWN, THIRD, "10.0.0.4:10911"]
    assert known.mode == (True, 2)
    older = make(THIRD, "MASTER", 0)
    older.sync = False
    known.hear(older)
    assert known.mode == (True, 2)


def test_what_was_saved_is_known_again() -> None:
    again = make_known(MembersTable(members=[OWN, OTHER], required=2, sync=True, master_epoch=3))
    assert again.members == [OTHER, OWN] and again.mode == (True, 2)

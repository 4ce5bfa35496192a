"""Promotion and demotion step by step, with members that answer, refuse, fall silent or are gone."""

from __future__ import annotations

import pytest

from eruca._client.options import ClientOptions
from eruca._wire.bodies.replication import DivergedTail
from eruca._wire.codes import ResponseCode
from eruca.admin import Admin
from eruca.errors import ConfigError, ErucaError, NetError, RequestRefused
from tests.integration.admin.fakemembers import FakeGroup


def make_admin(group: FakeGroup) -> Admin:
    return Admin(options=ClientOptions(nameservers=group.nameserver.address, call_timeout=10))


def refuse() -> None:
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, "not now")


# --- looking ----------------------------------------------------------------------------------------------------------


async def test_members_are_listed_with_those_that_only_members_know() -> None:
    async with FakeGroup(2) as group, make_admin(group) as admin:
        rows = (await admin.cluster.members()).items
        assert [(row.broker_id, row.role) for row in rows] == [(0, "MASTER"), (1, "SLAVE"), (2, "SLAVE")]
        await group.kill(0)
        rows = (await admin.cluster.members("a")).items
        assert [(row.broker_id, row.role) for row in rows] == [(1, "SLAVE"), (2, "SLAVE"), (-1, "")]
        assert rows[-1].address == group.members[0].known_address and "cannot connect" in rows[-1].problem
        assert (await admin.cluster.members("b")).items == []


async def test_lag_is_told_by_the_master_or_else_by_the_slave() -> None:
    async with FakeGroup(2) as group, make_admin(group) as admin:
        group.members[1].speed = 0
        group.members[0].tail = 1500
        rows = {row.broker_id: row for row in (await admin.cluster.lag()).items}
        assert (rows[1].lag_bytes, rows[1].told_by, rows[1].in_sync) == (500, "master", True)
        group.members[2].connected = False
        rows = {row.broker_id: row for row in (await admin.cluster.lag()).items}
        assert (rows[2].told_by, rows[2].connected, rows[2].in_sync) == ("slave", False, None)


async def test_lag_of_java_brokers_is_the_distance_of_their_ends() -> None:
    group = FakeGroup(2)
    for member in group.members:
        member.is_java = True
    async with group, make_admin(group) as admin:
        group.members[0].tail, group.members[2].tail = 5000, 4000
        rows = {row.broker_id: row for row in (await admin.cluster.lag()).items}
        assert (rows[1].lag_bytes, rows[1].lag_seconds, rows[1].told_by) == (4000, None, "both")
        assert rows[2].lag_bytes == 1000
        master = (await admin.cluster.members()).items[0]
        assert (master.role, master.tail) == ("JAVA", 5000)


async def test_what_was_set_aside_is_listed() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        assert (await admin.cluster.diverged()).items == []
        group.members[1].diverged = [DivergedTail(file="1-10-20.log", epoch=1, begin=10, end=20, found_ms=5)]
        (row,) = (await admin.cluster.diverged("a")).items
        assert (row.address, row.file, row.end - row.begin) == (group.members[1].address, "1-10-20.log", 10)


async def test_members_are_found_by_address_and_by_name_and_id() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        slave = group.members[1].address
        assert (await admin.cluster.find("a:1")).address == slave
        assert (await admin.cluster.find(slave)).broker_id == 1
        group.nameserver.routes.drop_link(group.members[1])  # alive, but nobody knows it
        assert (await admin.cluster.find(slave)).role == "SLAVE"
        for wrong, says in (("a:7", "no broker a:7"), ("a", "HOST:PORT"), ("127.0.0.1:1", "none answers there")):
            with pytest.raises(ConfigError, match=says):
                await admin.cluster.find(wrong)


# --- the master is here -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [True, False])
async def test_master_and_slave_change_places(sync: bool) -> None:
    async with FakeGroup(2, sync=sync) as group, make_admin(group) as admin:
        old, new, other = group.members
        old.tail, new.speed = 9000, 4000
        told: list[str] = []
        report = await admin.cluster.promote("a:1", tell=told.append)
        assert (report.done, report.before, report.master, report.epoch) == (True, old.address, new.address, 1100)
        assert report.objections == report.warnings == [] and told == report.steps
        assert (new.role, new.tail, new.epochs[-1]) == ("MASTER", 9000, (1100, 9000))
        assert old.role == other.role == "SLAVE" and old.master is other.master is new
        assert old.asked == [("FENCED", 1100), ("SLAVE", 1100)]  # it stopped before the other began
        assert group.registered[0] == new.address
        again = await admin.cluster.promote(new.address)
        assert again.done and "is already the master" in again.steps[0] and len(new.asked) == 1


async def test_there_and_back_again() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        assert (await admin.cluster.promote(group.members[1].address)).epoch == 1100
        assert (await admin.cluster.promote(group.members[0].address)).epoch == 2000
        assert group.registered == {0: group.members[0].address, 1: group.members[1].address}


async def test_a_slave_that_does_not_catch_up_stops_nobody() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        old, new = group.members
        old.tail, new.speed = 100_000_000, 1000
        with pytest.raises(NetError, match="bytes behind after"):
            await admin.cluster.promote("a:1", wait=0.3)
        assert old.asked == [] and old.role == "MASTER"


async def test_a_slave_that_fails_at_the_last_moment_gives_the_mastership_back() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        old, new = group.members
        old.tail, new.speed = 2000, 0  # near, but it never gets the rest
        with pytest.raises(NetError, match="bytes behind after"):
            await admin.cluster.promote("a:1", wait=0.3)
        assert old.asked == [("FENCED", 1100), ("MASTER", 2000)] and old.role == "MASTER"
        new.speed = 1000
        new.trouble["MASTER"] = refuse
        with pytest.raises(RequestRefused, match="not now"):
            await admin.cluster.promote("a:1")
        assert old.role == "MASTER" and new.role == "SLAVE"
        del new.trouble["MASTER"]
        assert (await admin.cluster.promote("a:1")).epoch == 5100


async def test_the_old_master_goes_on_only_when_the_new_one_cannot_begin_any_more() -> None:
    """The request to begin may still be under way: the slave hears of a later epoch before the old master continues."""
    async with FakeGroup() as group, make_admin(group) as admin:
        old, new = group.members
        new.trouble["MASTER"] = refuse
        with pytest.raises(RequestRefused, match="not now"):
            await admin.cluster.promote("a:1")
        assert new.asked == [("MASTER", 1100), ("SLAVE", 2000)] and old.asked[-1] == ("MASTER", 2000)
        # It does not answer.
        new.trouble["SLAVE"] = refuse
        with pytest.raises(NetError, match="does not answer whether it became the master"):
            await admin.cluster.promote("a:1")
        assert old.role == "FENCED"
        # It began after all, for a moment.
        new.trouble["SLAVE"] = lambda: new.epochs.append((4100, new.tail))
        with pytest.raises(NetError, match=r"was the master for a moment.*promote"):
            await admin.cluster.promote("a:1")
        assert old.role == "FENCED"


async def test_an_answer_that_is_lost_on_the_way_ends_no_promotion() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        old, new = group.members
        old.silent, new.silent = {"FENCED"}, {"MASTER"}
        report = await admin.cluster.promote("a:1")
        assert report.done and (new.role, old.role) == ("MASTER", "SLAVE")
        assert old.asked == [("FENCED", 1100), ("SLAVE", 1100)]


async def test_a_master_that_stopped_and_is_gone_then_is_told_of() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        old, _ = group.members
        old.silent = {"FENCED"}
        old.trouble["FENCED"] = lambda: setattr(old, "describe", refuse)
        with pytest.raises(NetError, match=r"does not answer whether it did.*run the command again"):
            await admin.cluster.promote("a:1")
        assert old.role == "FENCED"
        # It is back, and cannot be told to resume when the slave fails.
        vars(old).pop("describe")
        group.members[1].trouble["MASTER"] = refuse
        old.silent, old.trouble = set(), {"MASTER": refuse}
        with pytest.raises(NetError, match=r"cannot be told to resume.*eruca cluster promote"):
            await admin.cluster.promote("a:1")
        old.trouble.clear()
        assert (await admin.cluster.promote(old.address)).done and old.role == "MASTER"


async def test_an_operator_who_was_cut_off_can_go_on_or_go_back() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        old, new = group.members
        old.role = "FENCED"
        assert (await admin.cluster.promote("a:0")).master == old.address
        assert old.role == "MASTER" and new.master is old
        old.role = "FENCED"
        assert (await admin.cluster.promote(new.address)).before == old.address
        assert new.role == "MASTER" and old.master is new


async def test_a_slave_that_copies_from_nobody_is_refused() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        old, new = group.members
        new.connected = False
        old.tail = 1500
        with pytest.raises(ConfigError, match=r"lacks 500 bytes.*--force") as refused:
            await admin.cluster.promote("a:1")
        assert "--members" not in refused.value.hint
        assert old.asked == new.asked == []
        report = await admin.cluster.promote("a:1", force=True)
        assert report.done and "lacks 500 bytes" in report.warnings[0]
        assert new.role == "MASTER" and old.master is new


async def test_others_that_cannot_be_told_find_out_by_themselves() -> None:
    async with FakeGroup(2) as group, make_admin(group) as admin:
        group.members[2].trouble["SLAVE"] = refuse
        report = await admin.cluster.promote("a:1")
        assert report.done and "could not be told" in report.warnings[0]


# --- the master is gone -----------------------------------------------------------------------------------------------


async def test_the_slave_of_a_pair_takes_over() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        await group.kill(0)
        report = await admin.cluster.promote("a:1")
        assert (report.done, report.before, report.epoch) == (True, group.members[0].known_address, 1100)
        assert group.registered == {0: group.members[1].address}


async def test_nobody_takes_over_from_a_master_that_did_not_wait() -> None:
    async with FakeGroup(sync=False) as group, make_admin(group) as admin:
        await group.kill(0)
        with pytest.raises(ConfigError, match=r"ASYNC_MASTER.*--force"):
            await admin.cluster.promote("a:1")
        planned = await admin.cluster.promote("a:1", dry_run=True)
        assert not planned.done and "ASYNC_MASTER" in planned.objections[0]
        assert group.members[1].asked == []
        assert (await admin.cluster.promote("a:1", force=True)).done


async def test_of_three_the_better_slave_takes_over_and_the_other_is_told_first() -> None:
    async with FakeGroup(2) as group, make_admin(group) as admin:
        _, behind, ahead = group.members
        behind.speed, behind.tail, ahead.tail = 0, 900, 1000
        await group.kill(0)
        with pytest.raises(ConfigError, match=f"promote {ahead.address} instead"):
            await admin.cluster.promote("a:1")
        assert behind.asked == ahead.asked == []
        assert (await admin.cluster.promote("a:2")).done
        assert behind.asked == [("SLAVE", 1200)] and behind.master is ahead


async def test_one_of_three_is_too_few_unless_the_operator_knows() -> None:
    async with FakeGroup(2) as group, make_admin(group) as admin:
        await group.kill(0)
        await group.kill(2)
        with pytest.raises(ConfigError, match=r"1 of 3 members answer.*--members N"):
            await admin.cluster.promote("a:1")
        assert (await admin.cluster.promote("a:1", members=2)).done


async def test_one_that_falls_silent_while_it_is_told_counts_as_silent() -> None:
    async with FakeGroup(2) as group, make_admin(group) as admin:
        await group.kill(0)
        group.members[2].trouble["SLAVE"] = refuse
        with pytest.raises(ConfigError, match="1 of 3 members answer"):
            await admin.cluster.promote("a:1")
        assert group.members[1].role == "SLAVE"


async def test_a_master_that_its_slave_still_hears_is_not_gone() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        master, slave = group.members
        # Out of our reach only: whatever we ask it fails.
        group.nameserver.routes.drop_link(master)
        master.known_address = "127.0.0.1:1"
        with pytest.raises(ConfigError, match="still hears from it"):
            await admin.cluster.promote(slave.address)


async def test_a_java_broker_is_told_by_its_file() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        await group.kill(0)
        group.members[0].is_java = True
        await group.members[0].start()
        group.members[0].register()
        with pytest.raises(ConfigError, match="is a Java broker"):
            await admin.cluster.promote(group.members[0].address)
        with pytest.raises(ConfigError, match="cannot be told to step down"):
            await admin.cluster.promote("a:1")
        rows = (await admin.cluster.members()).items
        assert [row.role for row in rows if row.broker_id == 0] == ["JAVA"]


async def test_a_name_server_that_knows_better_is_told_of() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        await group.kill(0)
        slave = group.members[1]

        def step_down() -> None:
            slave.role, slave.seen = "SLAVE", 5000

        # Its registration is refused, for the name server has heard of a newer master.
        slave.register_as_master = step_down
        with pytest.raises(NetError, match="then it heard of epoch 5000"):
            await admin.cluster.promote("a:1")
        slave.register_as_master = None
        assert (await admin.cluster.promote(slave.address)).epoch == 6100


# --- stepping down ----------------------------------------------------------------------------------------------------


async def test_the_best_slave_succeeds() -> None:
    async with FakeGroup(2) as group, make_admin(group) as admin:
        group.members[1].speed, group.members[1].tail = 0, 10
        report = await admin.cluster.demote("a:0")
        assert report.master == group.members[2].address and group.members[0].role == "SLAVE"
        with pytest.raises(ConfigError, match="is already a slave"):
            await admin.cluster.demote(group.members[0].address)


async def test_without_a_slave_nobody_succeeds() -> None:
    async with FakeGroup(sync=False) as group, make_admin(group) as admin:
        await group.kill(1)
        with pytest.raises(ConfigError, match="--no-successor"):
            await admin.cluster.demote("a:0")
        assert (await admin.cluster.demote("a:0", successor=False, dry_run=True)).done is False
        report = await admin.cluster.demote("a:0", successor=False)
        assert report.done and report.master == "" and group.members[0].role == "SLAVE"
        with pytest.raises(ErucaError, match="1 of 2 members answer"):
            await admin.cluster.promote(group.members[0].address)
        assert (await admin.cluster.promote(group.members[0].address, members=1)).done


async def test_members_that_elect_their_master_are_left_to_it() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        old, new = group.members
        old.failover = new.failover = "etcd"
        with pytest.raises(ConfigError, match="elect their master"):
            await admin.cluster.promote("a:1")

        def elect() -> None:
            new.role, new.master, new.seen = "MASTER", None, 7
            new.epochs.append((7, new.tail))

        old.trouble["SLAVE"] = elect
        report = await admin.cluster.demote("a:0", wait=30)
        assert (report.master, report.epoch, report.done) == (new.address, 7, True)
        with pytest.raises(ConfigError, match="elect their master"):
            await admin.cluster.demote(new.address, successor=False)


async def test_an_election_that_does_not_come_is_an_error() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        group.members[0].failover = "etcd"
        with pytest.raises(NetError, match="no master was elected"):
            await admin.cluster.demote("a:0", wait=0.3)


async def test_members_that_cannot_elect_one_are_forced() -> None:
    async with FakeGroup() as group, make_admin(group) as admin:
        slave = group.members[1]
        slave.failover = "etcd"
        await group.kill(0)
        with pytest.raises(ConfigError, match="--force makes this one the master"):
            await admin.cluster.promote("a:1")
        assert not (await admin.cluster.promote("a:1", force=True, dry_run=True)).done

        def elect() -> None:
            slave.role, slave.master, slave.seen = "MASTER", None, 7
            slave.epochs.append((7, slave.tail))

        slave.trouble["MASTER"] = elect
        slave.answers_changes = False
        report = await admin.cluster.promote("a:1", force=True, wait=30)
        assert (report.done, report.master, report.epoch) == (True, slave.address, 7)


async def test_the_ids_of_lag_are_those_of_list_after_a_promotion() -> None:
    async with FakeGroup(2) as group, make_admin(group) as admin:
        await admin.cluster.promote(group.members[1].address)
        listed = {row.address: row.broker_id for row in (await admin.cluster.members("a")).items}
        assert listed[group.members[1].address] == 0
        for row in (await admin.cluster.lag("a")).items:
            assert row.broker_id == listed[row.address], row

"""The driver of automatic failover against a real etcd, with brokers that are only logs: who is master, and when."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from eruca._core.failover.view import Phase
from eruca._net.etcd import open_etcd
from eruca.errors import ConfigError
from tests.figures import note_figures
from tests.needs import needs
from tests.replication.electing import LEASE_S, Cluster
from tests.replication.etcdserver import run_cluster

pytestmark = pytest.mark.whole


async def test_first_start_waits_for_the_configured_master(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await cluster.start(1, 2)
        await cluster.wait_for(lambda: "waiting for the member that is configured" in caplog.text, "a word")
    assert await cluster.client.get(cluster.keys.state) is None
    await cluster.start(0)
    master = await cluster.wait_for_master(0)
    assert master.epoch == 1000
    await cluster.wait_for_set(0, 1, 2)
    assert master.needed == {1, 2}
    held = await cluster.client.get(cluster.keys.master)
    assert held is not None
    assert json.loads(held.value)["held"] == {
        "epoch": 1000,
        "configuredId": 0,
        "address": "member0:10911",
        "haAddress": "member0:10912",
    }
    member = await cluster.client.get(cluster.keys.member(1))
    assert member is not None
    assert member.lease
    assert member.lease != held.lease


async def test_killed_master_is_replaced_by_the_one_with_the_most_data(cluster: Cluster) -> None:
    await cluster.start(0, 1, 2)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1, 2)
    # Nothing is acknowledged here, so no member has to leave the set: one is a bit ahead of the other.
    slaves = cluster.brokers[1], cluster.brokers[2]
    for slave in slaves:
        slave.master = None
    slaves[0].position, slaves[1].position = 700, 800
    await master.kill()
    assert (await cluster.wait_for_master(2)).epoch == 2200
    await cluster.start(0)
    assert (await cluster.wait_for_master(2)).position == 800
    await cluster.wait_for_set(0, 1, 2)
    assert cluster.brokers[0].position == 800


async def test_stopped_master_does_not_let_others_wait(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    await master.driver.stop()
    assert await cluster.client.get(cluster.keys.member(0)) is None
    assert (await cluster.wait_for_master(1)).epoch == 2100


async def test_slave_leaves_the_set_and_comes_back(cluster: Cluster) -> None:
    await cluster.start(0, 1, 2)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1, 2)
    cluster.brokers[2].is_linked = False
    await cluster.wait_for_set(0, 1)
    await cluster.wait_for(lambda: master.needed == {1}, "the member to be needed no more")
    master.position = 500
    cluster.brokers[2].is_linked = True
    await cluster.wait_for_set(0, 1, 2)
    assert master.needed == {1, 2}


async def test_master_fences_itself_when_etcd_is_silent(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    cluster.etcd.freeze()
    frozen = asyncio.get_running_loop().time()
    await cluster.wait_for(lambda: not master.driver.gate.is_open(), "the gate to close")
    assert asyncio.get_running_loop().time() - frozen <= LEASE_S
    await cluster.wait_for(lambda: master.driver.phase is Phase.FENCED and not master.is_writable, "the fence")
    assert cluster.brokers[1].master is master, "slaves go on as they are"
    cluster.etcd.thaw()
    again = await cluster.wait_for_master(0, 1)
    assert again.epoch // 1000 == 2


async def test_member_outside_the_set_waits_until_it_is_forced(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start(0, 1)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    slave = cluster.brokers[1]
    slave.is_linked = False
    master.position = 100
    await cluster.wait_for_set(0)
    with pytest.raises(ConfigError, match="member 0 at member0:10911 is the master"):
        await slave.driver.force()
    await master.kill()
    await cluster.wait_for(lambda: "may lack acknowledged messages" in caplog.text, "a word")
    assert slave.driver.phase is Phase.WAITING
    await slave.driver.force()
    assert (await cluster.wait_for_master(1)).epoch == 2100
    assert "data that only other members have is lost" in caplog.text
    await cluster.wait_for_set(1)


async def test_operator_moves_the_mastership(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    stepping = asyncio.create_task(master.driver.step_down(5.0))
    await cluster.wait_for(lambda: not master.driver.gate.is_open(), "the gate to close")
    await stepping
    assert (await cluster.wait_for_master(1)).epoch == 2100
    assert master.history[-3:] == ["fenced", "alone", "slave of 1"]


async def test_member_that_cannot_be_master_leaves_it_to_another(cluster: Cluster) -> None:
    await cluster.start(0, 1, 2)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1, 2)
    cluster.brokers[1].refuses = True
    await master.kill()
    assert (await cluster.wait_for_master(2)).epoch == 3200


async def test_members_find_each_other_after_etcd_was_away(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    await cluster.etcd.stop()
    await cluster.wait_for(lambda: cluster.brokers[0].driver.phase is Phase.FENCED, "the fence")
    await cluster.etcd.start()
    assert (await cluster.wait_for_master(0, 1)).epoch >= 2000
    await cluster.wait_for_set(0, 1)


async def test_members_start_before_etcd(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.etcd.stop()
    await cluster.start(0, 1)
    await cluster.wait_for(lambda: "etcd cannot be reached" in caplog.text, "a word")
    assert cluster.brokers[0].history == ["alone"]
    await cluster.etcd.start()
    assert (await cluster.wait_for_master(0)).epoch == 1000


async def test_nobody_to_step_down_for(cluster: Cluster) -> None:
    await cluster.start(0)
    master = await cluster.wait_for_master(0)
    with pytest.raises(ConfigError, match="no other member"):
        await master.driver.step_down()
    assert master.is_master


async def test_force_does_not_wait_for_ever(cluster: Cluster) -> None:
    await cluster.start(1)
    broker = cluster.brokers[1]
    await cluster.wait_for(lambda: broker.driver.phase is Phase.WAITING, "a slave without a master")
    cluster.etcd.freeze()
    # A claim that was sent may take effect whenever etcd reads it, so there must be no lease to send one with.
    await cluster.wait_for(lambda: time.monotonic() > broker.driver.machine._deadline, "the end of the lease")
    with pytest.raises(ConfigError, match="is etcd reachable"):
        await broker.driver.force(0.2)
    cluster.etcd.thaw()
    # A request that the operator no longer waits for does not take effect later.
    await cluster.start(0)
    await cluster.wait_for_master(0)


async def test_etcd_that_went_back_in_time_is_not_believed(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.start(0)
    master = await cluster.wait_for_master(0)
    known = master.driver._known
    master.driver._known = replace(known, revision=known.revision + 1_000_000)
    await cluster.wait_for(lambda: "was restored from a backup" in caplog.text, "a word")
    await cluster.wait_for(lambda: "the key of the state in etcd is damaged" in caplog.text, "an election in vain")
    assert master.epoch == 1000 and not master.is_master
    assert caplog.text.count("etcd went back") == 1
    # As the log instructs.
    await cluster.client.delete_prefix(cluster.keys.prefix)
    assert (await cluster.wait_for_master(0)).epoch == 2000


async def test_etcd_that_is_emptied_gets_its_keys_from_the_members(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start(0, 1, 2)
    await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1, 2)
    work = asyncio.create_task(cluster.produce())
    try:
        for turn in range(2):
            before = cluster.acknowledged
            await cluster.wait_for(lambda before=before: cluster.acknowledged > before + 20, "acknowledgements")  # type: ignore[misc]
            await cluster.etcd.lose_data()
            await cluster.wait_for_master(0, 1, 2)
            assert caplog.text.count("etcd went back") <= 3 * (turn + 1), "every member says so once"
        await cluster.wait_for_set(0, 1, 2)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_a_member_alone_does_not_lead_after_etcd_lost_its_data(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start(0, 1, 2)
    first = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1, 2)
    await first.kill()
    work = asyncio.create_task(cluster.produce())
    await cluster.wait_for_master(1, 2)
    await cluster.wait_for(lambda: cluster.acknowledged > 20, "acknowledgements")
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    for number in (1, 2):
        await cluster.brokers[number].driver.stop()
    await cluster.etcd.lose_data()
    await cluster.start(0)
    await cluster.wait_for(lambda: "waiting for the members at member1:" in caplog.text, "a word")
    assert cluster.brokers[0].driver.phase is Phase.WAITING
    await cluster.start(1)
    await cluster.wait_for(lambda: "waiting for the members at member2:" in caplog.text, "a word")
    assert not any(broker.is_master for broker in cluster.brokers.values())
    await cluster.start(2)
    # It has everything, otherwise `become_master` complains.
    await cluster.wait_for_master(1, 2)


@needs("etcd")
async def test_one_of_three_etcd_servers_dies(tmp_path: Path) -> None:
    async with run_cluster(tmp_path, 3) as servers:
        client = await open_etcd([server.endpoint for server in servers], timeout_s=5)
        cluster = Cluster(servers[0], client, *servers[1:])
        await cluster.start(0, 1)
        master = await cluster.wait_for_master(0)
        await cluster.wait_for_set(0, 1)
        # All of them began with the first one.
        await servers[0].stop()
        slave = cluster.brokers[1]
        slave.is_linked = False
        await cluster.wait_for_set(0)
        slave.is_linked = True
        await cluster.wait_for_set(0, 1)
        await master.kill()
        assert (await cluster.wait_for_master(1)).epoch > 1000
        await cluster.stop()


@pytest.mark.parametrize("steps", [8, pytest.param(100, marks=pytest.mark.whole)])
async def test_trouble_of_all_kinds(cluster: Cluster, steps: int) -> None:
    chance = random.Random(steps)
    await cluster.start(0, 1, 2)
    await cluster.wait_for_master(0)
    producing = asyncio.create_task(cluster.produce())
    epochs: set[int] = set()
    for _ in range(steps):
        master = await cluster.wait_for_master(0, 1, 2)
        epochs.add(master.epoch)
        await cluster.wait_for_set(0, 1, 2)
        before = cluster.acknowledged
        await cluster.wait_for(lambda before=before: cluster.acknowledged > before, "acknowledgements")  # type: ignore[misc]
        trouble = chance.choice(["kill", "kill", "stop", "freeze", "unlink", "kill slave"])
        victim = master if trouble != "kill slave" else cluster.brokers[(master.number + 1) % 3]
        if trouble == "stop":
            await master.driver.stop()
        elif trouble == "freeze":
            cluster.etcd.freeze()
            await asyncio.sleep(chance.uniform(0.1, 1.5))
            cluster.etcd.thaw()
        elif trouble == "unlink":
            slave = cluster.brokers[(master.number + 1) % 3]
            slave.is_linked = False
            await asyncio.sleep(chance.uniform(0.1, 1.0))
            slave.is_linked = True
        else:
            await victim.kill()
        if not victim.is_running:
            await asyncio.sleep(chance.uniform(0.0, 2.0))
            await cluster.start(victim.number)
        assert not producing.done(), producing.exception()
    producing.cancel()
    await asyncio.gather(producing, return_exceptions=True)
    note_figures(
        f"failover driver with a real etcd: {steps} troubles, {len(epochs)} masters, {cluster.sent} sent,"
        f" {cluster.acknowledged} acknowledged, 0 lost"
    )
    assert len(epochs) > 1

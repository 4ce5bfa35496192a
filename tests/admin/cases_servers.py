"""Brokers, clusters and name servers: what they report, their configuration, permissions and members."""

from __future__ import annotations

from datetime import timedelta

import pytest

from eruca.admin import Listed
from eruca.errors import ConfigError, ErucaError, NoRoute, RequestRefused
from tests.admin.stage import BROKER, Stage, covers, outcomes


@covers("brokers.list", "brokers.runtime", "brokers.health")
async def case_what_brokers_report(stage: Stage) -> None:
    """Who is registered, and how each is."""
    brokers, topic = stage.admin.brokers, await stage.create_topic()
    await stage.send(topic, 3)
    (row,) = (await brokers.list()).items
    assert (row.cluster, row.broker, row.broker_id) == ("DefaultCluster", BROKER, 0)
    (runtime,) = (await brokers.runtime(BROKER)).items
    assert (runtime.broker, runtime.address, runtime.version) == (BROKER, row.address, "4.9.7")
    assert runtime.put_total is not None and runtime.put_total >= 3
    assert runtime.log_end is not None and runtime.log_end > 0 and runtime.log_begin == 0
    assert runtime.started_at is not None and runtime.uptime is not None
    # Java's broker does not find it in a log of one segment.
    assert (runtime.earliest_at is None) == stage.is_java
    assert runtime.log_disk_ratio is not None and 0 <= runtime.log_disk_ratio <= 1
    assert runtime.disk_total_bytes is not None and runtime.disk_free_bytes is not None
    assert 0 < runtime.disk_free_bytes < runtime.disk_total_bytes
    assert runtime.waiting.keys() == {"send", "pull", "query", "transaction"} and runtime.raw["brokerVersion"]
    assert runtime.unflushed_bytes is not None and runtime.dispatch_behind_bytes is not None
    (health,) = (await brokers.health()).items
    assert (health.answers, health.kind, health.problem) == (True, stage.kind, "")
    assert health.round_trip is not None and health.round_trip < timedelta(minutes=1)
    assert health.clock_ahead is not None and abs(health.clock_ahead) < timedelta(minutes=1)
    assert (await brokers.health(limit=0)).cut
    with pytest.raises(NoRoute, match="no broker broker-z is registered"):
        await brokers.runtime("broker-z")


@covers("brokers.config", "brokers.set_config")
async def case_configuration(stage: Stage) -> None:
    """Options are shown, changed, and changed back."""
    brokers = stage.admin.brokers
    (config,) = (await brokers.config(BROKER)).items
    assert (config.where, config.options["brokerName"]) == (BROKER, BROKER) and config.version is not None
    before = config.options["fileReservedTime"]
    planned = await brokers.set_config({"fileReservedTime": "71"}, broker=BROKER, dry_run=True)
    assert planned.changes[0].before == {"fileReservedTime": before} and outcomes(planned) == ["planned"]
    changed = await brokers.set_config({"fileReservedTime": "71"})
    assert (changed.changes[0].after, outcomes(changed)) == ({"fileReservedTime": "71"}, ["done"])
    assert outcomes(await brokers.set_config({"fileReservedTime": "71"})) == ["unchanged"]
    await stage.undo(changed)
    (config,) = (await brokers.config(cluster="DefaultCluster")).items
    assert config.options["fileReservedTime"] == before
    unknown = await brokers.set_config({"noSuchOption": "1"}, broker=BROKER)
    assert unknown.failed and "noSuchOption" in unknown.changes[0].reason
    with pytest.raises(ConfigError, match="no option is named"):
        await brokers.set_config({})


@covers("brokers.statistics", "brokers.consume_stats")
async def case_statistics(stage: Stage) -> None:
    """Counters of topics, and how far all groups are."""
    brokers, topic, group = stage.admin.brokers, await stage.create_topic(), stage.name("billing")
    await stage.send(topic, 4)
    await stage.raw.groups.create(group)
    await stage.raw.offsets.reset(group, topic, "earliest")
    (rate,) = (await brokers.statistics("TOPIC_PUT_NUMS", topic)).items
    assert (rate.broker, rate.name, rate.key) == (BROKER, "TOPIC_PUT_NUMS", topic)
    assert (await brokers.statistics("TOPIC_PUT_NUMS", stage.name("nothing"))).items == []
    rows = [row for row in (await brokers.consume_stats(BROKER)).items if row.group == group]
    assert [(row.topic, row.offset, row.lag) for row in rows] == [(topic, 0, row.end) for row in rows]
    assert sum(row.lag for row in rows) == 4
    behind = (await brokers.consume_stats(lag_min=1)).items
    assert behind and all(row.lag >= 1 for row in behind)
    assert (await brokers.consume_stats(limit=1)).cut
    assert isinstance((await brokers.consume_stats(ordered=True)).items, list)


@covers("brokers.wipe_write_permission", "brokers.add_write_permission")
async def case_write_permission(stage: Stage) -> None:
    """Producers leave a broker, and come back."""
    brokers, topic = stage.admin.brokers, await stage.create_topic()

    async def read_permission() -> str:
        return (await stage.raw.routes.show(topic)).brokers[0].permission

    assert outcomes(await brokers.wipe_write_permission(BROKER, dry_run=True)) == ["planned"]
    assert await read_permission() == "RW"
    wiped = await brokers.wipe_write_permission(BROKER)
    try:
        (change,) = wiped.changes
        assert (change.where, change.after, change.outcome) == (stage.nameserver, 0, "done")
        assert change.before is not None and change.before > 0
        assert await read_permission() == "R"
    finally:
        added = await brokers.add_write_permission(BROKER)
    assert added.changes[0].after is not None and added.changes[0].after > 0
    assert await read_permission() == "RW"
    again = await brokers.add_write_permission(BROKER)
    assert (outcomes(again), again.undo) == (["unchanged"], [])


@covers("brokers.clean_expired_queues", "brokers.clean_unused_topics", "brokers.delete_expired_log")
async def case_cleaning_up(stage: Stage) -> None:
    """Brokers clean up when they are told to; messages that are not old stay."""
    brokers, topic = stage.admin.brokers, await stage.create_topic()
    await stage.send(topic, 2)
    for clean in (brokers.clean_expired_queues, brokers.clean_unused_topics, brokers.delete_expired_log):
        assert outcomes(await clean(dry_run=True)) == ["planned"]
        assert outcomes(await clean(BROKER)) == ["done"]
    assert len([message async for message in stage.raw.messages.read(topic)]) == 2


@covers(
    "cluster.list",
    "cluster.members",
    "cluster.lag",
    "cluster.diverged",
    "cluster.find",
    "cluster.state",
    "cluster.promote",
    "cluster.demote",
    "cluster.forget",
)
async def case_members(stage: Stage) -> None:
    """One master without slaves: what is known of it, and that it stays the master."""
    cluster = stage.admin.cluster
    assert [(row.cluster, row.brokers) for row in (await cluster.list()).items] == [("DefaultCluster", [BROKER])]
    (member,) = (await cluster.members()).items
    assert (member.broker, member.broker_id, member.problem) == (BROKER, 0, "")
    assert member.role == ("JAVA" if stage.is_java else "MASTER")
    assert (await cluster.members("broker-z")).items == []
    assert (await cluster.lag()).items == [] == (await cluster.diverged()).items
    assert (await cluster.find(f"{BROKER}:0")).address == member.address
    with pytest.raises(ConfigError, match="answers: it is a member"):
        await cluster.forget(member.address)
    with pytest.raises(NoRoute, match="no member knows"):
        await cluster.forget("127.0.0.1:1", dry_run=True)
    told: list[str] = []
    if stage.is_java:
        with pytest.raises(RequestRefused):
            await cluster.state(member.address)
        for change in (cluster.promote, cluster.demote):
            with pytest.raises(ConfigError, match="is a Java broker"):
                await change(f"{BROKER}:0")
        return
    assert (await cluster.state(member.address)).role == "MASTER"
    promoted = await cluster.promote(f"{BROKER}:0", tell=told.append)
    assert promoted.done and told == promoted.steps and "already the master" in told[0]
    demoted = await cluster.demote(f"{BROKER}:0", successor=False, dry_run=True)
    assert (demoted.done, demoted.before) == (False, member.address)
    with pytest.raises(ConfigError, match="no slave copies"):
        await cluster.demote(f"{BROKER}:0")


@covers("nameservers.list", "nameservers.compare", "nameservers.config", "nameservers.set_config")
async def case_name_servers(stage: Stage) -> None:
    """What they know and how they are configured."""
    nameservers = stage.admin.nameservers
    (server,) = (await nameservers.list()).items
    assert (server.address, server.answers, server.brokers) == (stage.nameserver, True, 1) and server.topics > 0
    # A single one agrees with itself.
    assert await nameservers.compare() == Listed(items=[])
    (config,) = (await nameservers.config()).items
    before = config.options["orderMessageEnable"]
    wanted = {"orderMessageEnable": "true" if before == "false" else "false"}
    assert outcomes(await nameservers.set_config(wanted, dry_run=True)) == ["planned"]
    changed = await nameservers.set_config(wanted)
    assert (changed.changes[0].before, changed.changes[0].after) == ({"orderMessageEnable": before}, wanted)
    await stage.undo(changed)
    (config,) = (await nameservers.config()).items
    assert config.options["orderMessageEnable"] == before
    with pytest.raises(ConfigError, match="no option is named"):
        await nameservers.set_config({})


@covers("nameservers.kv_list", "nameservers.kv_get", "nameservers.kv_put", "nameservers.kv_delete")
async def case_keys_and_values(stage: Stage) -> None:
    """A value is put, read, replaced and deleted, and each time as it was before."""
    nameservers, namespace = stage.admin.nameservers, stage.name("space")
    assert (await nameservers.kv_list(namespace)).items == []
    assert outcomes(await nameservers.kv_put(namespace, "color", "red", dry_run=True)) == ["planned"]
    put = await nameservers.kv_put(namespace, "color", "red")
    assert (put.changes[0].before, put.changes[0].after) == (None, "red")
    replaced = await nameservers.kv_put(namespace, "color", "blue")
    await stage.undo(replaced)
    found = await nameservers.kv_get(namespace, "color")
    assert (found.value, found.agreed, found.values) == ("red", True, {stage.nameserver: "red"})
    assert [(row.key, row.value) for row in (await nameservers.kv_list(namespace)).items] == [("color", "red")]
    deleted = await nameservers.kv_delete(namespace, "color")
    assert (await nameservers.kv_get(namespace, "color")).value is None
    await stage.undo(deleted)
    await stage.undo(put)
    assert (await nameservers.kv_list(namespace)).items == []
    assert outcomes(await nameservers.kv_delete(namespace, "color")) == ["unchanged"]


@covers("accounts.list", "accounts.white_addresses", "accounts.versions", "accounts.create")
async def case_no_accounts(stage: Stage) -> None:
    """Brokers without access control have none."""
    accounts = stage.admin.accounts
    assert (await accounts.list()).items == [] == (await accounts.white_addresses()).items
    assert (await accounts.versions()).items == []
    with pytest.raises(ConfigError, match="no broker has access control"):
        await accounts.create("somebody", "secret-of-somebody")
    with pytest.raises(ErucaError):
        await accounts.list(broker="broker-z")

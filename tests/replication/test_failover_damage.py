"""Automatic failover when data written to or read from etcd is corrupted in transit, or in etcd itself."""

from __future__ import annotations

import asyncio
import base64
import json
import random

import pytest

from tests.figures import note_figures
from tests.replication.electing import LEASE_S, Cluster, FakeBroker

pytestmark = pytest.mark.whole


async def test_foreign_key_is_not_believed(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.start(0)
    await cluster.wait_for_master(0)
    await cluster.client.put(cluster.keys.member(7), b"not ours")
    await cluster.wait_for(lambda: "does not hold a valid value" in caplog.text, "a word")
    await cluster.client.delete_prefix(cluster.keys.member(7))
    assert (await cluster.wait_for_master(0)).epoch == 1000


@pytest.mark.parametrize("which", ["members/0", "members/1", "state", "master"])
async def test_a_key_that_is_damaged_in_etcd_is_made_good(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, which: str
) -> None:
    await cluster.start(0, 1)
    await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    key = cluster.keys.prefix + which
    found = await cluster.client.get(key)
    assert found is not None
    damaged = found.value.replace(b'"epoch":', b'"epoch":9')
    assert damaged != found.value
    await cluster.client.put(key, damaged, found.lease)
    await cluster.wait_for(lambda: f"{key} does not hold a valid value" in caplog.text, "a word")
    # A master whose key is damaged is no longer the master, and stands for election like any other member.
    await cluster.wait_for_master(0, 1)
    await cluster.wait_for(cluster.is_readable, "keys that can be read")
    await cluster.wait_for_set(0, 1)
    master = await cluster.wait_for_master(0, 1)
    await master.kill()
    await cluster.wait_for_master(1 - master.number)


class Damage:
    """Corrupts the calls of a member, as an unprotected network may."""

    def __init__(self, broker: FakeBroker, seed: int) -> None:
        gateway = broker.driver._client._gateway
        self._random = random.Random(seed)
        # The part of calls and of answers in which a bit is turned.
        self.rate = 0.0
        # Keys: corrupts each value that is written, once for each key here.
        self.targets: list[str] = []
        self.count = 0
        self._post = gateway._post
        gateway._post = self.post  # type: ignore[method-assign]

    async def post(self, url: str, content: bytes, token: str) -> tuple[int, bytes]:
        if self.targets and url.endswith("/txn"):
            content = self._damage_puts(content)
        status, found = await self._post(url, self._damage(content), token)
        return status, self._damage(found)

    def _damage_puts(self, content: bytes) -> bytes:
        body = json.loads(content)
        for put in (part["request_put"] for part in body["success"]):
            key = base64.b64decode(put["key"]).decode()
            if key in self.targets:
                self.targets.remove(key)
                value = base64.b64decode(put["value"]).replace(b'"epoch":', b'"epoch":9')
                put["value"] = base64.b64encode(value).decode()
                self.count += 1
        return json.dumps(body).encode()

    def _damage(self, content: bytes) -> bytes:
        if self._random.random() >= self.rate:
            return content
        changed = bytearray(content)
        changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(7)
        self.count += 1
        return bytes(changed)


@pytest.mark.parametrize(
    "which", [("master",), ("state",), ("master", "state"), ("state", "state", "state")], ids="-".join
)
async def test_a_claim_that_is_damaged_on_its_way_is_said_again(cluster: Cluster, which: tuple[str, ...]) -> None:
    await cluster.start(0, 1)
    await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    damage = Damage(cluster.brokers[1], 0)
    damage.targets = [cluster.keys.prefix + name for name in which]
    await cluster.brokers[0].kill()
    master = await cluster.wait_for_master(1)
    await cluster.wait_for(lambda: damage.count == len(which) and cluster.is_readable(), "keys that can be read")
    assert master.history[-1] == f"master {master.epoch}"


async def test_who_saw_the_state_before_it_was_damaged_goes_by_that(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    await cluster.brokers[0].kill()
    # As if the last thing the master wrote had been damaged.
    await cluster.client.put(cluster.keys.state, b"damaged")
    assert (await cluster.wait_for_master(1)).epoch > 1000
    await cluster.wait_for(cluster.is_readable, "keys that can be read")


async def test_who_did_not_see_it_waits_for_an_operator(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.start(0, 1)
    await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    for broker in cluster.brokers.values():
        await broker.kill()
    await cluster.client.put(cluster.keys.state, b"damaged")
    await cluster.start(0, 1)
    await cluster.wait_for(lambda: "the key of the state in etcd is damaged" in caplog.text, "a word")
    assert not any(broker.is_master for broker in cluster.brokers.values())
    await cluster.brokers[1].driver.force()
    await cluster.wait_for_master(1)
    await cluster.wait_for_set(0, 1)


@pytest.mark.parametrize("seed", range(3))
async def test_answers_and_calls_that_are_damaged_at_random(cluster: Cluster, seed: int) -> None:
    await cluster.start(0, 1, 2)
    await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1, 2)
    producing = asyncio.create_task(cluster.produce())
    dice, count = random.Random(seed), 0
    for _ in range(5):
        damages = [Damage(broker, dice.randrange(1 << 30)) for broker in cluster.brokers.values() if broker.is_running]
        for damage in damages:
            damage.rate = dice.choice((0.05, 0.2))
        victim = next((b for b in cluster.brokers.values() if b.is_master), cluster.brokers[0])
        await victim.kill()
        # The fault lasts for a while, and nothing that happens meanwhile may be believed wrongly.
        await asyncio.sleep(LEASE_S + 1.0)
        for damage in damages:
            damage.rate = 0.0
        count += sum(damage.count for damage in damages)
        await cluster.start(victim.number)
        await cluster.wait_for_master(0, 1, 2)
        await cluster.wait_for_set(0, 1, 2)
    producing.cancel()
    assert count > 20
    assert cluster.acknowledged > 100
    note_figures(f"failover driver, seed {seed}: {count} calls damaged, {cluster.acknowledged} acknowledged, 0 lost")

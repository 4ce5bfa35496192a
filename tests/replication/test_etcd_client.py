"""The etcd client against a real etcd: keys, leases, transactions, watches, endpoints that fail."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from eruca._net.etcd import Change, EtcdClient, Transaction, split_endpoints
from eruca.errors import CallTimeout, ConfigError, ConnectFailed, EtcdRefused, NetError
from tests.interop.javapeer import find_ports
from tests.patience import PATIENCE_S
from tests.replication.etcdserver import EtcdServer

WAIT_S = PATIENCE_S


@pytest.fixture
async def client(etcd: EtcdServer) -> AsyncIterator[EtcdClient]:
    client = EtcdClient([etcd.endpoint], timeout_s=20)
    yield client
    await client.close()


async def test_keys_are_written_and_read(client: EtcdClient) -> None:
    assert await client.get("/a/x") is None
    first = await client.put("/a/x", b"\x00\xff")
    second = await client.put("/a/y", b"")
    await client.put("/b", b"not ours")
    item = await client.get("/a/x")
    assert item is not None
    assert (item.value, item.mod_revision, item.create_revision, item.lease) == (b"\x00\xff", first, first, 0)
    snapshot = await client.get_prefix("/a/")
    assert list(snapshot.items) == ["/a/x", "/a/y"]
    assert snapshot.revision == second + 1
    await client.delete_prefix("/a/")
    assert not (await client.get_prefix("/a/")).items


async def test_transaction_happens_whole_or_not_at_all(client: EtcdClient) -> None:
    made = await client.commit(Transaction().expect("/master", 0).put("/master", b"1").put("/state", b"s"))
    assert made.succeeded
    again = await client.commit(Transaction().expect("/master", 0).put("/master", b"2").put("/state", b"t"))
    assert not again.succeeded
    assert again.revision == made.revision
    item = await client.get("/state")
    assert item is not None
    assert item.value == b"s"
    changed = await client.commit(Transaction().expect("/state", item.mod_revision).put("/state", b"u"))
    assert changed.succeeded
    assert changed.revision == made.revision + 1
    gone = await client.commit(Transaction().expect("/state", changed.revision).delete("/state"))
    assert gone.succeeded
    assert await client.get("/state") is None


async def test_lease_takes_its_keys_along(client: EtcdClient) -> None:
    lease = await client.grant_lease(60)
    assert lease.seconds >= 60
    await client.put("/leased", b"x", lease.id)
    item = await client.get("/leased")
    assert item is not None
    assert item.lease == lease.id
    assert await client.keep_lease(lease.id) == lease.seconds
    await client.revoke_lease(lease.id)
    assert await client.get("/leased") is None
    assert await client.keep_lease(lease.id) == 0
    await client.revoke_lease(lease.id)
    with pytest.raises(EtcdRefused, match="lease not found"):
        await client.put("/leased", b"x", lease.id)


async def test_lease_that_nobody_keeps_ends(client: EtcdClient) -> None:
    # Long enough to be there still when the key is written.
    lease = await client.grant_lease(4)
    revision = await client.put("/leased", b"x", lease.id)
    async with asyncio.timeout(WAIT_S):
        async for _, changes in client.watch("/leased", revision + 1):
            if changes:
                assert changes == [Change("/leased", revision + 1, None)]
                break


async def test_watch_tells_every_change_once_and_in_order(client: EtcdClient) -> None:
    start = await client.put("/w/0", b"0")
    seen: list[Change] = []
    ready = asyncio.Event()

    async def watch() -> None:
        async for _, changes in client.watch("/w/", start):
            seen.extend(changes)
            ready.set()
            if len(seen) >= 12:
                return

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(WAIT_S):
        await ready.wait()
        for number in range(1, 11):
            await client.put(f"/w/{number}", str(number).encode())
        await client.delete_prefix("/w/10")
        await watching
    assert [change.key for change in seen] == [f"/w/{number}" for number in range(11)] + ["/w/10"]
    assert [change.revision for change in seen] == list(range(start, start + 12))
    assert seen[-1].now is None


async def test_watch_goes_on_where_it_was_after_a_restart(etcd: EtcdServer, client: EtcdClient) -> None:
    start = await client.put("/w/0", b"0")
    seen: asyncio.Queue[Change] = asyncio.Queue()

    async def watch() -> None:
        revision = start
        while True:
            try:
                async for _, changes in client.watch("/w/", revision):
                    for change in changes:
                        revision = change.revision + 1
                        seen.put_nowait(change)
            except NetError:
                await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(WAIT_S):
        assert (await seen.get()).key == "/w/0"
        await etcd.stop()
        await etcd.start()
        await client.put("/w/1", b"1")
        assert (await seen.get()).key == "/w/1"
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert seen.empty()


async def test_watch_of_forgotten_changes_is_refused(etcd: EtcdServer, client: EtcdClient) -> None:
    for number in range(3):
        last = await client.put("/w", str(number).encode())
    async with httpx.AsyncClient(trust_env=False) as plain:
        answer = await plain.post(f"{etcd.endpoint}/v3/kv/compaction", json={"revision": str(last)})
        assert answer.status_code == 200
    with pytest.raises(EtcdRefused, match="no longer has revision"):
        async for _ in client.watch("/w", 1):
            pass


async def test_another_endpoint_is_asked_when_one_is_gone(etcd: EtcdServer) -> None:
    free = find_ports()
    client = EtcdClient([f"http://127.0.0.1:{free}", etcd.endpoint], timeout_s=20)
    revision = await client.put("/k", b"v")
    async with asyncio.timeout(WAIT_S):
        async for _, changes in client.watch("/k", revision):
            if changes:
                break
    assert (await client.get_prefix("/k")).revision == revision
    await client.close()


async def test_nobody_there(tmp_path: Path) -> None:
    free = find_ports()
    client = EtcdClient([f"127.0.0.1:{free}"])
    with pytest.raises(ConnectFailed, match="cannot be reached"):
        await client.get("/k")
    await client.close()


async def test_silent_etcd_is_a_timeout(etcd: EtcdServer, client: EtcdClient) -> None:
    await client.put("/k", b"v")
    hasty = EtcdClient([etcd.endpoint], timeout_s=0.2)
    etcd.freeze()
    with pytest.raises(CallTimeout):
        await hasty.put("/k", b"w")
    etcd.thaw()
    await hasty.close()


@pytest.mark.parametrize("endpoint", ["ftp://x", "http://", "http://user:secret@host:1"])
def test_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        EtcdClient([endpoint])
    assert "secret" not in str(refusal.value)


def test_no_endpoint_is_refused() -> None:
    with pytest.raises(ConfigError, match="etcdEndpoints"):
        EtcdClient(split_endpoints(" ; "))


def test_missing_library_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigError, match=r"pip install eruca\[etcd\]"):
        EtcdClient(["http://127.0.0.1:1"])

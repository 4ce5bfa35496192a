"""What servers and clients write can be read by their user only; what was there before keeps its modes."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from eruca import ClientOptions, Consumer, Producer
from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._store.filesystem import LocalFileSystem
from eruca._store.layout import StorePaths, detect_options
from tests.integration.broker.conftest import excuse_new_files
from tests.integration.broker.peer import find_port
from tests.paths import unpack_golden
from tests.patience import PATIENCE_S
from tests.security.attackers import SMALL, open_attacker, run_victims


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the stores of this test make files."""
    excuse_new_files(forbid_blocking_calls)


@pytest.fixture(autouse=True)
def hide_nothing() -> Iterator[None]:
    """A umask that leaves every mode as it was asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


def list_open(top: Path) -> list[str]:
    """What others can read. Blocks."""
    return [
        f"{path.relative_to(top)} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in sorted(top.rglob("*"))
        if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600)
    ]


async def test_all_that_servers_write_is_private(tmp_path: Path) -> None:
    async with run_victims(tmp_path) as victims:
        options = ClientOptions(nameservers=victims.nameserver.address)
        async with Producer(group="p", options=options) as producer:
            for number in range(50):
                await producer.send("orders", b"x" * 1000, keys=[str(number)], delay_level=number % 2)
        async with (
            Consumer(group="g", options=options, subscribe={"orders": "*"}, start="earliest") as consumer,
            asyncio.timeout(PATIENCE_S),
        ):
            await (await anext(consumer)).ack()
        async with open_attacker(victims.broker.standing.address) as operator:
            assert (await operator.ask(25, {}, b"flushIntervalCommitLog=400")).code == 0
        async with open_attacker(victims.nameserver.address) as operator:
            assert (await operator.ask(318, {}, b"orderMessageEnable=true")).code == 0
            assert (await operator.ask(100, {"namespace": "n", "key": "k", "value": "v"})).code == 0
    written = await asyncio.to_thread(victims.list_paths)
    assert {path.split("/")[3] for path in written if path.count("/") > 2} >= {
        "store",
        "broker.conf",
        "namesrv.properties",
        "kvConfig.json",
    }
    assert any("config/consumerOffset.json" in path for path in written)
    assert any(path.endswith(".bak") for path in written)
    assert any("consumequeue/orders/" in path for path in written)
    assert await asyncio.to_thread(list_open, tmp_path) == []


async def test_the_files_of_a_java_broker_keep_their_modes(tmp_path: Path) -> None:
    root = await asyncio.to_thread(unpack_golden, "clean", tmp_path)

    def widen() -> dict[Path, int]:
        for path in root.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        return {path: stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}

    before = await asyncio.to_thread(widen)
    options = await asyncio.to_thread(detect_options, LocalFileSystem(), StorePaths(root), SMALL)
    for _ in range(2):
        broker = Broker(BrokerOptions(port=find_port()), options, root)
        await broker.start()
        broker.topics.create_internal("New", 1)
        broker.groups.get("NewGroup")
        await broker.stop()

    def look() -> tuple[dict[Path, int], list[str]]:
        now = {path: stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}
        kept = {path: mode for path, mode in now.items() if path in before}
        new = [
            path.name
            for path, mode in now.items()
            if path not in before and mode != (0o700 if path.is_dir() else 0o600)
        ]
        return kept, new

    kept, wide = await asyncio.to_thread(look)
    # A file that marks a running broker is gone after a clean stop.
    assert {path.name for path in before.keys() - kept.keys()} <= {"abort", "lock"}
    assert kept == {path: mode for path, mode in before.items() if path in kept}
    assert b"NewGroup" in await asyncio.to_thread((root / "config" / "subscriptionGroup.json").read_bytes)
    assert wide == []


async def test_local_offsets_of_a_consumer_are_private(tmp_path: Path) -> None:
    from eruca._client.group.offsets import LocalOffsets

    offsets = LocalOffsets(tmp_path / "mine", "10.0.0.1@DEFAULT", "G")
    await offsets.open()
    await offsets.close()
    assert await asyncio.to_thread(list_open, tmp_path) == []

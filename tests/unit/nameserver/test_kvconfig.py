"""Key-value config: a value is on disk before it is acknowledged, in the file that Java uses."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from eruca._nameserver.kvconfig import KVConfig
from eruca._store.filesystem import LocalFileSystem
from eruca._wire.bodies import KVTable
from eruca.errors import InvalidName, StoreFull, TableCorrupt, TableFull, TableUnsaved


class SlowDisk(LocalFileSystem):
    """A disk that counts its writes, can be made to wait, and can be full."""

    def __init__(self) -> None:
        self.writes = 0
        self.full = False
        self.gate = threading.Event()
        self.gate.set()

    def write_file(self, path: Path, data: bytes) -> None:
        self.gate.wait(20)
        if self.full:
            raise StoreFull("no space")
        if not path.name.endswith(".bak.tmp"):
            self.writes += 1
        super().write_file(path, data)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


async def open_config(disk: SlowDisk, path: Path) -> KVConfig:
    config = KVConfig(disk, path)
    await config.load()
    return config


def read(path: Path) -> object:
    return json.loads(path.read_bytes())


async def test_values_are_kept_over_a_restart(disk: SlowDisk, path: Path) -> None:
    config = await open_config(disk, path)
    assert config.get("N", "k") is None and config.list("N") is None
    await config.put("N", "k", "v")
    await config.put("N", "k", "w")
    await config.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4;broker-b:4")
    again = await open_config(disk, path)
    assert again.get("N", "k") == "w"
    assert again.list("ORDER_TOPIC_CONFIG") == KVTable(table={"T": "broker-a:4;broker-b:4"})
    wanted = {"configTable": {"N": {"k": "w"}, "ORDER_TOPIC_CONFIG": {"T": "broker-a:4;broker-b:4"}}}
    assert await asyncio.to_thread(read, path) == wanted
    assert await asyncio.to_thread(read, path.with_name("kvConfig.json.bak")) == {"configTable": {"N": {"k": "w"}}}


async def test_deleted_values_are_gone_and_their_namespace_stays(disk: SlowDisk, path: Path) -> None:
    config = await open_config(disk, path)
    await config.put("N", "k", "v")
    await config.delete("N", "k")
    await config.delete("N", "k")
    await config.delete("nothing", "k")
    assert config.get("N", "k") is None and config.list("N") == KVTable(table={})
    assert await asyncio.to_thread(read, path) == {"configTable": {"N": {}}}


async def test_file_of_java_is_read(disk: SlowDisk, path: Path) -> None:
    text = b'{\n\t"configTable":{"ORDER_TOPIC_CONFIG":{"Ex_Order":"broker-a:4"}\n\t}\n}'
    await asyncio.to_thread(path.parent.mkdir)
    await asyncio.to_thread(path.write_bytes, text)
    assert (await open_config(disk, path)).get("ORDER_TOPIC_CONFIG", "Ex_Order") == "broker-a:4"


async def test_damaged_file_is_taken_from_its_backup_or_refused(disk: SlowDisk, path: Path) -> None:
    config = await open_config(disk, path)
    await config.put("N", "k", "old")
    await config.put("N", "k", "new")
    await asyncio.to_thread(path.write_bytes, b'{"configTable":{"N":{"k"')
    assert (await open_config(disk, path)).get("N", "k") == "old"
    await asyncio.to_thread(path.with_name("kvConfig.json.bak").write_bytes, b"[")
    with pytest.raises(TableCorrupt):
        await open_config(disk, path)


async def test_changes_that_wait_for_the_disk_share_a_write(disk: SlowDisk, path: Path) -> None:
    config = await open_config(disk, path)
    disk.gate.clear()
    changes = [asyncio.create_task(config.put("N", f"k{number}", "v")) for number in range(100)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(config.close())
    await asyncio.sleep(0)
    assert not any(task.done() for task in [*changes, closing])
    disk.gate.set()
    await asyncio.gather(*changes, closing)
    assert disk.writes <= 2
    assert (await open_config(disk, path)).list("N") == KVTable(table={f"k{number}": "v" for number in range(100)})


async def test_full_disk_is_told_and_what_was_refused_is_written_when_there_is_room(disk: SlowDisk, path: Path) -> None:
    config = await open_config(disk, path)
    disk.full = True
    with pytest.raises(TableUnsaved, match="no space"):
        await config.put("N", "a", "1")
    disk.full = False
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(path.exists):
            pass
    assert (await open_config(disk, path)).list("N") == KVTable(table={"a": "1"})
    disk.full = True
    with pytest.raises(TableUnsaved):
        await config.delete("N", "a")
    with pytest.raises(TableUnsaved, match="KV config could not be saved"):
        await config.close()


async def test_a_name_server_without_values_writes_no_file(disk: SlowDisk, path: Path) -> None:
    await (await open_config(disk, path)).close()
    assert disk.writes == 0


@pytest.mark.parametrize(
    ("namespace", "key", "value"),
    [
        ("", "k", "v"),
        ("N", "", "v"),
        ("n" * 513, "k", "v"),
        ("N", "k" * 513, "v"),
        ("N", "k", "v" * 32_769),
        ("N\n", "k", "v"),
    ],
)
async def test_names_and_values_that_are_none_are_refused(
    disk: SlowDisk, path: Path, namespace: str, key: str, value: str
) -> None:
    config = await open_config(disk, path)
    with pytest.raises(InvalidName):
        await config.put(namespace, key, value)
    assert config.list(namespace) is None and disk.writes == 0


async def test_the_config_is_bounded_and_what_is_deleted_makes_room(
    disk: SlowDisk, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = KVConfig(disk, path, lambda: 1000)
    await config.load()
    with pytest.raises(TableFull):
        for number in range(1000):
            await config.put("N", f"k{number:03}", "v" * 20)
    assert "(maxKVConfigBytes=1000)" in caplog.text
    await config.put("N", "k000", "w" * 20)
    with pytest.raises(TableFull):
        await config.put("N", "k000", "w" * 100)
    await config.delete("N", "k001")
    await config.put("N", "k999", "v" * 20)
    again = await open_config(disk, path)
    assert again._bytes == config._bytes
    assert (await asyncio.to_thread(path.stat)).st_size <= config._bytes + 100


async def test_all_values_can_be_logged(disk: SlowDisk, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = await open_config(disk, path)
    await config.put("N", "a", "1")
    await config.put("M", "b", "2")
    with caplog.at_level("INFO", "eruca._nameserver.kvconfig"):
        config.log_all()
    assert caplog.messages == ["KV config: N a=1", "KV config: M b=2"]

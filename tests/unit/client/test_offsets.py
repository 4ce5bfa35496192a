"""Offsets in a local file, as Java's broadcast consumers keep theirs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from eruca.client.offsets import LocalOffsets
from eruca.errors import ConfigError
from eruca.wire.bodies import MessageQueue

ONE, TWO = MessageQueue("b", 0, "T"), MessageQueue("b", 1, "T")
# As Java writes it: pretty, with objects for keys.
JAVA_FILE = """{
\t"offsetTable":{{
\t\t\t"brokerName":"b",
\t\t\t"queueId":0,
\t\t\t"topic":"T"
\t\t}:12,{
\t\t\t"brokerName":"b",
\t\t\t"queueId":1,
\t\t\t"topic":"T"
\t\t}:7
\t}
}"""


def path_in(directory: Path) -> Path:
    return directory / "10.0.0.1@DEFAULT" / "G" / "offsets.json"


async def open_offsets(directory: Path) -> LocalOffsets:
    offsets = LocalOffsets(directory, "10.0.0.1@DEFAULT", "G")
    await offsets.open()
    return offsets


async def test_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    offsets = await open_offsets(tmp_path)
    assert await offsets.read(ONE) is None
    await offsets.write({ONE: 5})
    await offsets.write({TWO: 9})
    await offsets.close()
    again = await open_offsets(tmp_path)
    assert (await again.read(ONE), await again.read(TWO)) == (5, 9)
    await again.close()


async def test_a_file_of_java_is_read(tmp_path: Path) -> None:
    file = path_in(tmp_path)
    await asyncio.to_thread(file.parent.mkdir, parents=True)
    await asyncio.to_thread(file.write_text, JAVA_FILE)
    offsets = await open_offsets(tmp_path)
    assert (await offsets.read(ONE), await offsets.read(TWO)) == (12, 7)
    await offsets.close()


async def test_a_broken_file_is_replaced_by_its_backup(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    offsets = await open_offsets(tmp_path)
    await offsets.write({ONE: 5})
    await offsets.write({ONE: 6})
    await offsets.close()
    await asyncio.to_thread(path_in(tmp_path).write_text, "{broken")
    again = await open_offsets(tmp_path)
    assert await again.read(ONE) == 5
    assert "backup" in caplog.text
    await again.close()


async def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    offsets = await open_offsets(tmp_path)
    with pytest.raises(ConfigError, match=r"another broadcast consumer.*instance="):
        await open_offsets(tmp_path)
    await offsets.close()
    await (await open_offsets(tmp_path)).close()


async def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    offsets = await open_offsets(tmp_path)
    await offsets.write({ONE: 5})
    before = (await asyncio.to_thread(path_in(tmp_path).stat)).st_mtime_ns
    await offsets.write({ONE: 5})
    assert (await asyncio.to_thread(path_in(tmp_path).stat)).st_mtime_ns == before
    content = await asyncio.to_thread(path_in(tmp_path).read_text)
    assert content.count("offsetTable") == 1
    with pytest.raises(json.JSONDecodeError):
        json.loads(content)  # objects as keys, which Java reads and plain JSON does not have
    await offsets.close()

"""Offsets in a local file, as Java's broadcast consumers keep theirs."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from eruca._client.group.offsets import LocalOffsets, Progress
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError, StoreFull

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
    await offsets.write({ONE: Progress(5)})
    await offsets.write({TWO: Progress(9)})
    await offsets.close()
    again = await open_offsets(tmp_path)
    assert (await again.read(ONE), await again.read(TWO)) == (Progress(5), Progress(9))
    await again.close()


async def test_a_file_of_java_is_read(tmp_path: Path) -> None:
    file = path_in(tmp_path)
    await asyncio.to_thread(file.parent.mkdir, parents=True)
    await asyncio.to_thread(file.write_text, JAVA_FILE)
    offsets = await open_offsets(tmp_path)
    assert (await offsets.read(ONE), await offsets.read(TWO)) == (Progress(12), Progress(7))
    await offsets.close()


async def test_a_broken_file_is_replaced_by_its_backup(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    offsets = await open_offsets(tmp_path)
    await offsets.write({ONE: Progress(5)})
    await offsets.write({ONE: Progress(6)})
    await offsets.close()
    await asyncio.to_thread(path_in(tmp_path).write_text, "{broken")
    again = await open_offsets(tmp_path)
    assert await again.read(ONE) == Progress(5)
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
    await offsets.write({ONE: Progress(5)})
    before = (await asyncio.to_thread(path_in(tmp_path).stat)).st_mtime_ns
    await offsets.write({ONE: Progress(5)})
    assert (await asyncio.to_thread(path_in(tmp_path).stat)).st_mtime_ns == before
    content = await asyncio.to_thread(path_in(tmp_path).read_text)
    assert content.count("offsetTable") == 1
    with pytest.raises(json.JSONDecodeError):
        json.loads(content)  # objects as keys, which Java reads and plain JSON does not have
    await offsets.close()


async def test_the_end_waits_for_a_write_whose_writer_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next consumer finds the file half replaced, and begins where the last one was a while ago."""
    offsets = await open_offsets(tmp_path)
    await offsets.write({ONE: Progress(5)})
    began, may_go_on, save = threading.Event(), threading.Event(), offsets._save

    def save_slowly(wanted: dict[MessageQueue, int]) -> None:
        began.set()
        may_go_on.wait(10)
        save(wanted)

    monkeypatch.setattr(offsets, "_save", save_slowly)
    writer = asyncio.create_task(offsets.write({ONE: Progress(6)}))
    await asyncio.to_thread(began.wait, 10)
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    last = asyncio.create_task(offsets.write({ONE: Progress(7)}))
    closing = asyncio.create_task(offsets.close())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not last.done() and not closing.done()
    may_go_on.set()
    await asyncio.gather(last, closing)
    again = await open_offsets(tmp_path)
    assert await again.read(ONE) == Progress(7)
    await again.close()


async def test_what_could_not_be_written_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = await open_offsets(tmp_path)

    def refuse(wanted: dict[MessageQueue, int]) -> None:
        raise StoreFull("as wanted")

    with monkeypatch.context() as patched:
        patched.setattr(offsets, "_save", refuse)
        with pytest.raises(StoreFull):
            await offsets.write({ONE: Progress(5)})
    await offsets.write({ONE: Progress(5)})
    await offsets.close()
    again = await open_offsets(tmp_path)
    assert await again.read(ONE) == Progress(5)
    await again.close()

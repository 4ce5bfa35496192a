"""Tables: saved when they change, in intervals, and at the stop; a disk that refuses is tried again."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from eruca._store.filesystem import LocalFileSystem
from eruca._store.tables.saving import TableSaver
from eruca._store.tables.tables import TableFile, Tables
from eruca._wire.bodies import ConsumerOffsets, GroupConfig, TopicConfigTable
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.ext import Header
from eruca._wire.headers import CreateTopicHeader, DeleteGroupHeader, TopicHeader, UpdateConsumerOffsetHeader
from eruca.errors import StoreError, StoreFull, TableUnsaved
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Peer
from tests.integration.broker.requests import try_send
from tests.unit.net.rawpeer import SECONDS_MAX, turn_until

NEW_TOPIC = CreateTopicHeader(topic="New", read_queue_nums=1, write_queue_nums=1, perm=6)


async def read_table(root: Path, name: str) -> Any:
    """A table as it is on the disk, None before it is there."""

    def read() -> Any:
        path = root / "config" / name
        return json.loads(path.read_bytes()) if path.exists() else None

    return await asyncio.to_thread(read)


async def wait_for_table(root: Path, name: str, words: str) -> None:
    """Wait until a table on the disk has some text in it."""
    async with asyncio.timeout(SECONDS_MAX):
        while words not in json.dumps(await read_table(root, name)):
            pass


async def commit(peer: Peer, offset: int, group: str = "G") -> None:
    header = UpdateConsumerOffsetHeader(consumer_group=group, topic="T", queue_id=3, commit_offset=offset)
    await peer.expect(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def test_topics_and_groups_are_saved_when_they_change(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path
) -> None:
    broker = await make_broker()
    await make_peer(broker).send("Fresh")
    await wait_for_table(tmp_path / "store", "topics.json", '"Fresh"')
    broker.groups.put(GroupConfig(group_name="Readers"))
    await wait_for_table(tmp_path / "store", "subscriptionGroup.json", '"Readers"')
    saved = await read_table(tmp_path / "store", "topics.json")
    assert saved["topicConfigTable"]["Fresh"]["writeQueueNums"] == 4


async def test_offsets_are_saved_in_intervals(make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path) -> None:
    peer = make_peer(await make_broker(offsets_interval_ms=1))
    for offset in (5, 6):
        await commit(peer, offset)
        await wait_for_table(tmp_path / "store", "consumerOffset.json", f'{{"3": {offset}}}')
    assert (await read_table(tmp_path / "store", "consumerOffset.json"))["offsetTable"] == {"T@G": {"3": 6}}


async def test_what_is_done_is_saved_and_cut_to_the_queue_at_the_next_start(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path
) -> None:
    """A crash may cost the log its end. The next messages there are not those that were done."""
    broker = await make_broker()
    peer = make_peer(broker)
    for _ in range(5):
        await peer.send("T", queue_id=3)
    header = UpdateConsumerOffsetHeader(
        consumer_group="G", topic="T", queue_id=3, commit_offset=1, eruca_done="1-2,7-9"
    )
    await peer.expect(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    await broker.stop()
    saved = await read_table(tmp_path / "store", "consumerOffset.json")
    # Java's clients look for "T@G" in this table, and find the offset only.
    assert saved == {
        "erucaDone": [{"done": "1-2,7-9", "group": "G", "queueId": 3, "topic": "T"}],
        "offsetTable": {"T@G": {"3": 1}},
    }
    again = await make_broker()
    assert again.offsets.get_done("G", "T", 3, 100) == "1-2"


async def test_offsets_that_did_not_change_are_not_saved_again(
    make_broker: MakeBroker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await make_broker(offsets_interval_ms=1)
    marked: list[str] = []
    monkeypatch.setattr(broker.saver, "mark", marked.append)
    peer = make_peer(broker)
    await commit(peer, 5)
    async with asyncio.timeout(SECONDS_MAX):
        while not marked:  # noqa: ASYNC110
            await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.to_thread(lambda: None)
    assert marked == ["offsets"]


@pytest.mark.parametrize(
    ("code", "header", "body", "table", "is_there"),
    [
        (RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC, None, "topics", True),
        (RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic="Old"), None, "topics", False),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, GroupConfig(group_name="New"), "groups", True),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupHeader(group_name="Old"), None, "groups", False),
    ],
)
async def test_operators_are_answered_when_a_crash_cannot_undo_it(
    make_broker: MakeBroker,
    make_peer: MakePeer,
    tmp_path: Path,
    code: RequestCode,
    header: Header | None,
    body: GroupConfig | None,
    table: str,
    is_there: bool,
) -> None:
    broker = await make_broker()
    broker.topics.create_internal("Old", 1)
    broker.groups.put(GroupConfig(group_name="Old"))
    await broker.saver.wait_until_saved("groups")
    file: TableFile[Any] = getattr(broker.tables, table)
    save, may_save = file.save, threading.Event()

    def save_later(table: Any) -> None:
        assert may_save.wait(SECONDS_MAX)
        save(table)

    file.save = save_later  # type: ignore[method-assign]
    answer = asyncio.create_task(make_peer(broker).expect(code, header, body))
    async with asyncio.timeout(SECONDS_MAX):
        while table not in broker.saver.unsaved:  # noqa: ASYNC110
            await asyncio.sleep(0)
    # A later request is answered earlier.
    await make_peer(broker).expect(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert not answer.done()
    may_save.set()
    await answer
    name = "topics.json" if table == "topics" else "subscriptionGroup.json"
    saved = json.dumps(await read_table(tmp_path / "store", name))
    assert ('"New"' in saved, '"Old"' in saved) == (is_there, is_there)


async def test_everything_is_saved_at_the_stop_and_there_at_the_next_start(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path
) -> None:
    broker = await make_broker(offsets_interval_ms=3_600_000)
    peer = make_peer(broker)
    await peer.send("T", body=b"kept")
    await peer.join("G", "c", "T")
    await commit(peer, 7)
    await broker.stop()
    assert (await read_table(tmp_path / "store", "consumerOffset.json"))["offsetTable"]["T@G"] == {"3": 7}
    again = await make_broker()
    assert again.offsets.get("G", "T", 3) == 7
    assert again.groups.find("G") is not None
    assert again.topics.get("T") is not None
    assert again.topics.get("%RETRY%G") is not None
    queue = again.store.queues.get("T", 0)
    assert queue is not None
    assert queue.max_offset == 1


class FullDisk(LocalFileSystem):
    """A disk that rejects tables as long as a test wants."""

    def __init__(self) -> None:
        self.is_full = False
        self.refused = 0

    def write_file(self, path: Path, data: bytes) -> None:
        if self.is_full:
            self.refused += 1
            raise StoreFull("no room")
        super().write_file(path, data)


def make_saver(folder: Path, disk: FullDisk) -> tuple[TableSaver, TableFile[ConsumerOffsets]]:
    """A saver with one table, whose content is always the same."""
    saver, file = TableSaver(), Tables(disk, folder).consumer_offsets
    saver.add("offsets", file, lambda: ConsumerOffsets(offset_table={"T@G": {0: 1}}))
    return saver, file


async def test_a_disk_that_refuses_is_said_and_tried_again_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk()
    saver, file = make_saver(tmp_path, disk)
    disk.is_full = True
    saver.mark("offsets")
    with pytest.raises(TableUnsaved, match="offsets could not be saved: no room"):
        await saver.wait_until_saved("offsets")
    assert "offsets could not be saved: no room" in caplog.text
    assert "offsets" in saver.unsaved
    # A further request waits for another attempt, and not for the longest pause.
    with pytest.raises(TableUnsaved):
        await saver.wait_until_saved("offsets")
    assert disk.refused == 2
    disk.is_full = False
    await turn_until(lambda: "offsets" not in saver.unsaved)
    assert "offsets was saved after" in caplog.text
    assert (await asyncio.to_thread(file.load)).offset_table == {"T@G": {0: 1}}
    await saver.close()


async def test_a_stop_that_cannot_save_says_which_table(tmp_path: Path) -> None:
    disk = FullDisk()
    saver, _ = make_saver(tmp_path, disk)
    disk.is_full = True
    with pytest.raises(TableUnsaved, match="offsets could not be saved: no room"):
        await saver.close()


async def test_a_mistake_of_ours_in_a_snapshot_does_not_end_the_saving(tmp_path: Path) -> None:
    saver, file = make_saver(tmp_path, FullDisk())
    is_wrong = True

    def snapshot() -> ConsumerOffsets:
        if is_wrong:
            raise ValueError("nobody thought of it")
        return ConsumerOffsets()

    saver.add("offsets", file, snapshot)
    saver.mark("offsets")
    with pytest.raises(TableUnsaved, match="nobody thought of it"):
        await saver.wait_until_saved("offsets")
    is_wrong = False
    await turn_until(lambda: "offsets" not in saver.unsaved)
    await saver.close()


async def test_a_full_disk_refuses_an_operator_and_the_change_is_saved_when_there_is_room(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path
) -> None:
    disk = FullDisk()
    broker = await make_broker(disk=disk)
    peer = make_peer(broker)
    disk.is_full = True
    code, remark = await peer.refused(RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC)
    assert code == ResponseCode.SYSTEM_ERROR
    assert "topics could not be saved: no room" in remark
    group = GroupConfig(group_name="NewGroup")
    assert (
        "groups could not be saved"
        in (await peer.refused(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group))[1]
    )
    # A message to a topic that is not saved is stored, but its sender is not told that it is safe.
    assert (await try_send(peer, "Another")).code == ResponseCode.FLUSH_DISK_TIMEOUT
    disk.is_full = False
    await wait_for_table(tmp_path / "store", "topics.json", '"New"')
    await wait_for_table(tmp_path / "store", "subscriptionGroup.json", '"NewGroup"')
    await turn_until(lambda: not broker.saver.unsaved)
    assert (await try_send(peer, "Another")).code == ResponseCode.SUCCESS


async def test_a_broker_that_could_not_save_an_offset_says_so_when_it_stops(
    make_broker: MakeBroker, make_peer: MakePeer
) -> None:
    disk = FullDisk()
    broker = await make_broker(disk=disk, offsets_interval_ms=3_600_000)
    await commit(make_peer(broker), 5)
    disk.is_full = True
    with pytest.raises(StoreError, match="offsets could not be saved: no room"):
        await broker.stop()
    disk.is_full = False
    assert (await make_broker()).store.log.tail == 0  # the store was closed and can be opened


async def test_a_send_waits_for_its_own_topic_only(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker()
    peer, *others = [make_peer(broker) for _ in range(21)]
    for sender in (peer, *others):
        await sender.send("Known")  # now it has everything it needs except the call
    save, may_save = broker.tables.topics.save, threading.Event()

    def save_later(table: TopicConfigTable) -> None:
        assert may_save.wait(SECONDS_MAX)
        save(table)

    broker.tables.topics.save = save_later  # type: ignore[method-assign]
    waiting = asyncio.create_task(try_send(peer, "New"))
    await turn_until(lambda: "New" in broker.topics.unsaved)
    tasks = len(asyncio.all_tasks())
    calls = [asyncio.create_task(try_send(sender, "New")) for sender in others]
    for number in range(3):
        assert (await peer.send("Known"))["queueOffset"] == str(number + 21)
    assert not waiting.done()
    # No task on the broker's side for each that waits: those there are belong to the callers.
    queue = broker.store.queues.get("New", 0)
    assert queue is not None
    await turn_until(lambda: queue.max_offset == 21)
    assert len(asyncio.all_tasks()) - tasks <= len(calls)
    may_save.set()
    assert [(await answer).code for answer in [waiting, *calls]] == [ResponseCode.SUCCESS] * 21


async def test_many_changes_make_few_writes(tmp_path: Path) -> None:
    saver = TableSaver()
    file = (await asyncio.to_thread(Tables, LocalFileSystem(), tmp_path)).consumer_offsets
    writes: list[int] = []
    file.save = lambda table: writes.append(table.offset_table["T@G"][0])  # type: ignore[method-assign]
    number = 0
    saver.add("offsets", file, lambda: ConsumerOffsets(offset_table={"T@G": {0: number}}))
    for number in range(1, 1001):  # noqa: B007
        saver.mark("offsets")
    await saver.close()
    assert writes[-1] == 1000
    assert len(writes) <= 3


async def test_an_answered_send_has_its_new_topic_on_the_disk(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path
) -> None:
    """A crash right after the answer must not lose the way to the message."""
    peer = make_peer(await make_broker())
    for name in ("One", "Two", "Three"):
        await peer.send(name)
        assert name in (await read_table(tmp_path / "store", "topics.json"))["topicConfigTable"]


async def test_a_topic_the_table_lost_is_known_again_by_its_messages(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path
) -> None:
    broker = await make_broker()
    peer = make_peer(broker)
    await peer.send("Lost", queue_id=2)
    await peer.send("Deleted")
    broker.topics.delete("Deleted")
    await broker.background.remove_topic("Deleted")
    await broker.stop()
    await asyncio.to_thread((tmp_path / "store" / "config" / "topics.json").rename, tmp_path / "lost.json")
    await asyncio.to_thread((tmp_path / "store" / "config" / "topics.json.bak").unlink, True)
    topics = (await make_broker()).topics
    found = topics.get("Lost")
    assert found is not None and found.read_queue_nums == 3
    assert topics.get("Deleted") is None
    assert topics.get("RMQ_SYS_TRANS_OP_HALF_TOPIC") is None

"""Bad input: each gets a clear error with a hint, or the documented repair, and no byte of good data is touched."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from eruca._ground.config import StoreOptions
from eruca._store.filesystem import LocalFileSystem
from eruca._store.layout import StorePaths
from eruca._store.messagestore import open_store
from eruca._store.tables.tables import TableFile, Tables
from eruca._storetools.dump import dump_records
from eruca._storetools.readonly import Kind
from eruca._storetools.rebuild import rebuild_store
from eruca._storetools.summary import describe_store
from eruca._storetools.verify import verify_store
from eruca._wire.bodies import TopicConfigTable
from eruca._wire.record import Record, encode_record
from eruca._wire.sysflag import TRANSACTION_PREPARED
from eruca.errors import InvalidName, MessageIllegal, StoreError, StoreLayoutError, StoreLocked, TableCorrupt
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tests.store_samples import (
    OPTIONS,
    PROPERTIES,
    START_MS,
    fill_store,
    find_segment,
    forget_promises,
    hash_files,
    make_message,
    patch,
    read_all,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def check_refused(root: Path, options: StoreOptions = OPTIONS) -> StoreError:
    """The store does not open, the error has a hint, and every file is unchanged."""
    before = hash_files(root)
    with pytest.raises(StoreError) as caught:
        open_store(root, options)
    assert caught.value.hint, "an error without a hint"
    assert hash_files(root) == before
    # The lock was given back: the next try gets as far as this one.
    with pytest.raises(type(caught.value)):
        open_store(root, options)
    assert hash_files(root) == before
    return caught.value


# --- sizes and names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"commitlog_segment_bytes": 16384}, "mappedFileSizeCommitLog"),
        ({"commitlog_segment_bytes": 4096}, "mappedFileSizeCommitLog"),
        ({"consumequeue_segment_bytes": 6_000_000}, "mappedFileSizeConsumeQueue"),
        ({"index_slots": 51}, "maxHashSlotNum"),
        ({"index_entries": 2000}, "maxIndexNum"),
    ],
)
def test_a_store_of_the_wrong_segment_size(root: Path, change: dict[str, Any], key: str) -> None:
    messages = fill_store(root)
    error = check_refused(root, replace(OPTIONS, **change))
    assert isinstance(error, StoreLayoutError)
    assert key in str(error)
    assert "set " in error.hint
    # With the right sizes, which the tools find from the files, everything is there.
    assert describe_store(root).messages == len(messages)
    store = open_store(root, OPTIONS)
    assert len(read_all(store)) == len(messages)
    store.close()


def put_note(root: Path) -> Path:
    path = root / "commitlog" / "notes.txt"
    path.write_bytes(b"mine")
    return path


def put_odd_start(root: Path) -> Path:
    path = root / "commitlog" / f"{12345:020d}"
    path.write_bytes(bytes(8192))
    return path


def put_short_segment(root: Path) -> Path:
    path = sorted((root / "commitlog").iterdir())[-1]
    path.write_bytes(path.read_bytes()[:-1])
    return path


def put_empty_segment(root: Path) -> Path:
    last = int(sorted((root / "commitlog").iterdir())[-1].name)
    path = root / "commitlog" / f"{last + 8192:020d}"
    path.touch()
    return path


def put_queue_note(root: Path) -> Path:
    path = root / "consumequeue" / "Orders" / "0" / "00000000000000000400.bak"
    path.write_bytes(bytes(400))
    return path


def put_file_for_topic(root: Path) -> Path:
    path = root / "consumequeue" / "stray"
    path.write_bytes(b"x")
    return path


def put_dotted_topic(root: Path) -> Path:
    path = root / "consumequeue" / "..."
    path.mkdir()
    return path


def put_named_queue(root: Path) -> Path:
    path = root / "consumequeue" / "Orders" / "first"
    path.mkdir()
    return path


def put_file_for_queue(root: Path) -> Path:
    path = root / "consumequeue" / "Orders" / "7"
    path.write_bytes(b"x")
    return path


def put_index_note(root: Path) -> Path:
    path = root / "index" / "readme"
    path.write_bytes(b"x")
    return path


def put_wrong_index(root: Path) -> Path:
    path = sorted((root / "index").iterdir())[0]
    path.write_bytes(path.read_bytes()[:-20])
    return path


@pytest.mark.parametrize(
    "put",
    [
        put_note,
        put_odd_start,
        put_short_segment,
        put_empty_segment,
        put_queue_note,
        put_file_for_topic,
        put_dotted_topic,
        put_named_queue,
        put_file_for_queue,
        put_index_note,
    ],
)
def test_a_file_that_does_not_belong(root: Path, put: Callable[[Path], Path]) -> None:
    messages = fill_store(root)
    path = put(root)
    error = check_refused(root)
    assert isinstance(error, StoreLayoutError)
    assert path.name in str(error)
    # The tools read the rest and report the same file.
    before = hash_files(root)
    report = verify_store(root)
    assert not report.clean
    assert any(path.name in finding.path + finding.reason for finding in report.findings)
    assert len(list(dump_records(root))) == report.records
    assert report.records == len(messages) or put is put_short_segment
    assert hash_files(root) == before
    # The hint helps: without the file the store opens. The tools report what has to be rebuilt.
    if path.is_dir():
        path.rmdir()
    elif put is not put_short_segment:
        path.unlink()
        open_store(root, OPTIONS).close()


def test_a_wrong_index_is_repaired_by_a_rebuild(root: Path) -> None:
    fill_store(root)
    for path in (root / "index").iterdir():
        path.write_bytes(path.read_bytes()[:-20])
    log = {name: digest for name, digest in hash_files(root).items() if name.startswith("commitlog/")}
    assert "eruca store rebuild" in check_refused(root).hint
    report = rebuild_store(root, PROPERTIES)
    assert any((Path(kept) / path.name).exists() for kept in report.kept)
    assert verify_store(root).clean
    assert {name: digest for name, digest in hash_files(root).items() if name.startswith("commitlog/")} == log
    open_store(root, OPTIONS).close()


def test_a_wrong_index_beside_good_ones_is_made_again_by_the_start(root: Path) -> None:
    fill_store(root)
    assert len(list((root / "index").iterdir())) > 1
    put_wrong_index(root)
    open_store(root, OPTIONS).close()
    assert verify_store(root).clean


def test_a_gap_in_a_chain(root: Path) -> None:
    fill_store(root)
    missing = sorted((root / "commitlog").iterdir())[1]
    missing.unlink()
    error = check_refused(root)
    assert isinstance(error, StoreLayoutError)
    assert missing.name in str(error)
    assert "put the missing file back" in error.hint
    assert not verify_store(root).clean


# --- tables ---------------------------------------------------------------------------------------------------------


def load_tables(root: Path) -> Tables:
    return Tables(LocalFileSystem(), StorePaths(root).config)


@pytest.mark.parametrize("keep", [0, 1, 0.5, 0.99])
def test_a_half_written_table_is_read_from_its_backup(root: Path, keep: float) -> None:
    fill_store(root)
    path = root / "config" / "topics.json"
    data = path.read_bytes()
    whole = load_tables(root).topics.load()
    path.write_bytes(data[: int(len(data) * keep)] if keep < 1 else data[:1])
    before = hash_files(root)
    assert load_tables(root).topics.load() == whole
    assert verify_store(root).clean
    assert hash_files(root) == before


def test_saving_after_damage_keeps_the_good_backup(root: Path) -> None:
    fill_store(root)
    path, backup = root / "config" / "topics.json", root / "config" / "topics.json.bak"
    good = backup.read_bytes()
    path.write_bytes(b'{"topicConfigTable": {"Orders"')
    tables = load_tables(root)
    table = tables.topics.load()
    tables.topics.save(table)
    assert backup.read_bytes() == good
    assert load_tables(root).topics.load() == table


@pytest.mark.parametrize("name", ["topics", "consumerOffset", "delayOffset", "subscriptionGroup"])
def test_a_half_written_table_without_a_good_backup_is_an_error(root: Path, name: str) -> None:
    fill_store(root)
    path = root / "config" / f"{name}.json"
    path.write_bytes(b'{"offsetTable":{"T@G":{0:1')
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    before = hash_files(root)
    tables = load_tables(root)
    table: TableFile[Any] = {
        "topics": cast("TableFile[Any]", tables.topics),
        "consumerOffset": tables.consumer_offsets,
        "delayOffset": tables.delay_offsets,
        "subscriptionGroup": tables.groups,
    }[name]
    with pytest.raises(TableCorrupt, match=f"{name}.json") as caught:
        table.load()
    assert "by hand" in caught.value.hint
    assert [f.kind for f in verify_store(root).findings] == [Kind.TABLE]
    assert hash_files(root) == before


def test_a_table_of_another_shape_is_an_error(root: Path) -> None:
    fill_store(root)
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_bytes(b'{"topicConfigTable": [1, 2]}')
    with pytest.raises(TableCorrupt):
        load_tables(root).topics.load()


def test_missing_tables_are_empty(root: Path) -> None:
    fill_store(root)
    shutil.rmtree(root / "config")
    assert load_tables(root).topics.load() == TopicConfigTable()


# --- names ----------------------------------------------------------------------------------------------------------

BAD_TOPICS = ["../evil", "..", ".", "a/b", "/etc/passwd", "a\0b", "", "x" * 256, "tópico", "a b", "C:\\x"]


@pytest.mark.parametrize("topic", BAD_TOPICS)
@pytest.mark.parametrize("sys_flag", [0, TRANSACTION_PREPARED])
def test_a_topic_name_that_is_a_path_never_reaches_the_disk(root: Path, topic: str, sys_flag: int) -> None:
    fill_store(root, 10)
    store = open_store(root, OPTIONS)
    before = hash_files(root.parent)
    for message in (Record(topic, body=b"x", sys_flag=sys_flag), Record(topic, queue_id=1, sys_flag=sys_flag)):
        with pytest.raises((InvalidName, MessageIllegal)):
            store.append(message)
        with pytest.raises((InvalidName, MessageIllegal)):
            store.append_batch([message])
    with pytest.raises(InvalidName):
        store.queues.detach_topic(topic)()
    assert hash_files(root.parent) == before
    assert store.append(make_message(10)).queue_offset == 5
    store.close()


def test_a_negative_queue_is_refused(root: Path) -> None:
    store = open_store(root, OPTIONS)
    with pytest.raises(InvalidName):
        store.append(Record("T", queue_id=-1))
    store.close()


@pytest.mark.parametrize("topic", ["../evil", "../../x", "a/b"])
def test_a_record_with_a_path_for_a_topic_stays_in_the_log(root: Path, topic: str) -> None:
    messages = fill_store(root, 10)
    end = messages[-1].position + messages[-1].size
    path, at = find_segment(root, end)
    evil = encode_record(Record(topic, position=end, body=b"x", store_timestamp=START_MS))
    patch(path, at, evil)
    good = encode_record(replace_position(make_message(10), end + len(evil)))
    patch(path, at + len(evil), good)
    (root / "abort").touch()
    names = {name.name for name in root.parent.iterdir()}
    store = open_store(root, OPTIONS)
    assert {queue.topic for queue in store.queues} == {"Orders", "Bills"}
    assert len(read_all(store)) == 11
    store.close()
    assert {name.name for name in root.parent.iterdir()} == names
    report = rebuild_store(root)
    assert [f.kind for f in report.findings] == [Kind.RECORD]
    assert sorted(path.name for path in (root / "consumequeue").iterdir()) == ["Bills", "Orders"]


def replace_position(message: Record, position: int) -> Record:
    message.position = position
    message.queue_offset = 5
    message.store_timestamp = START_MS + 10_000_000
    return message


# --- records with wrong sizes ---------------------------------------------------------------------------------------

LIES: dict[str, tuple[int, bytes]] = {
    "size too large": (0, struct.pack(">i", 0x7FFFFFFF)),
    "size a little too large": (0, struct.pack(">i", 300)),
    "size too small": (0, struct.pack(">i", 90)),
    "size negative": (0, struct.pack(">i", -1)),
    "size zero": (0, struct.pack(">i", 0)),
    "position of another place": (28, struct.pack(">q", 0)),
    "IPv6 hosts": (36, struct.pack(">i", 0x30)),
    "body too large": (84, struct.pack(">i", 0x7FFFFFFF)),
    "body negative": (84, struct.pack(">i", -5)),
    "body one more": (84, struct.pack(">i", 73)),
    "blank that is too long": (0, struct.pack(">iI", 1 << 20, 0xCBD43194)),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("crashed", [False, True])
def test_a_record_whose_sizes_lie(root: Path, lie: str, crashed: bool) -> None:
    messages = fill_store(root)
    hurt = messages[110]  # in the last segment, which is checked after any stop
    assert len(hurt.body) == 72
    path, at = find_segment(root, hurt.position)
    offset, data = LIES[lie]
    patch(path, at + offset, data)
    if crashed:
        (root / "abort").touch()
    log = {name: digest for name, digest in hash_files(root).items() if name.startswith("commitlog/")}
    report = verify_store(root)
    damage = [finding for finding in report.findings if finding.kind is Kind.DAMAGE]
    assert [(f.position, f.length) for f in damage] == [(hurt.position, hurt.size)]
    store = open_store(root, OPTIONS)
    found = read_all(store)
    store.close()
    assert found.keys() == {(m.topic, m.queue_id, m.queue_offset) for m in messages if m is not hurt}
    after = {name: digest for name, digest in hash_files(root).items() if name.startswith("commitlog/")}
    assert {name: after[name] for name in log} == log


@pytest.mark.parametrize("lie", LIES)
def test_a_last_record_whose_sizes_lie_is_cut_off(root: Path, lie: str) -> None:
    messages = fill_store(root)
    hurt = messages[-1]
    path, at = find_segment(root, hurt.position)
    offset, data = LIES[lie]
    assert len(hurt.body) == 72
    patch(path, at + offset, data)
    (root / "abort").touch()
    forget_promises(root)
    good = path.read_bytes()[:at]
    store = open_store(root, OPTIONS)
    assert store.log.tail == hurt.position
    assert read_all(store).keys() == {(m.topic, m.queue_id, m.queue_offset) for m in messages[:-1]}
    store.close()
    assert path.read_bytes()[:at] == good


# --- a second process -----------------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from eruca._store.messagestore import open_store
from tests.store_samples import OPTIONS
store = open_store(Path(sys.argv[1]), OPTIONS)
print("open", flush=True)
sys.stdin.readline()
store.close()
"""


def test_a_second_process_on_the_same_directory(root: Path) -> None:
    messages = fill_store(root)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"},
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        before = hash_files(root)
        with pytest.raises(StoreLocked, match="another process") as caught:
            open_store(root, OPTIONS)
        assert "stop that broker" in caught.value.hint
        with pytest.raises(StoreLocked):
            rebuild_store(root)
        assert hash_files(root) == before
        # Looking is allowed.
        assert describe_store(root).aborted
        assert verify_store(root).clean
        assert len(list(dump_records(root))) == len(messages)
        assert hash_files(root) == before
    finally:
        holder.communicate("\n", timeout=PATIENCE_S)
    assert holder.returncode == 0
    store = open_store(root, OPTIONS)
    assert len(read_all(store)) == len(messages)
    store.close()


def test_a_second_store_in_the_same_process(root: Path) -> None:
    fill_store(root)
    store = open_store(root, OPTIONS)
    with pytest.raises(StoreLocked, match="this process"):
        open_store(root, OPTIONS)
    # The failed try must not have taken the lock of the first one with it.
    with pytest.raises(StoreLocked):
        open_store(root, OPTIONS)
    store.close()
    open_store(root, OPTIONS).close()

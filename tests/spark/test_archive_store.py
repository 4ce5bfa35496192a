"""Archives of store files: closed files of one broker, repeatedly, with what is damaged set aside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eruca._spark.pipelines.archive.compaction import compact_archive
from eruca._spark.pipelines.archive.job import read_archive, read_contents, run_archive
from eruca._spark.pipelines.audit import read_transactions
from eruca._spark.pipelines.inputs import MessageInput, open_messages
from eruca._store.filesystem import LocalFileSystem
from eruca._store.log.archived import ArchiveMark
from eruca._store.messagestore import MessageStore, open_store
from eruca._wire.sysflag import TRANSACTION_PREPARED
from tests.unit.store.samples import make_message, make_options

SEGMENT = 64 * 1024


def open_at(root: Path) -> MessageStore:
    return open_store(root, make_options(commitlog_segment_bytes=SEGMENT, index_slots=100, index_entries=400))


def fill(store: MessageStore, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        store.append(make_message("orders", number % 2, b"%06d" % number + b"x" * 994, KEYS=f"k{number}"))


def read_numbers(spark: Any, archive: Path) -> list[int]:
    rows = read_archive(spark, str(archive)).where("topic = 'orders'").collect()
    return sorted(int(bytes(row.body[:6])) for row in rows)


def test_closed_files_are_archived_and_the_last_one_when_asked(spark: Any, tmp_path: Path) -> None:
    root, archive = tmp_path / "store", tmp_path / "archive"
    store = open_at(root)
    fill(store, 100)
    store.append(make_message("%RETRY%group", body=b"a copy"))
    store.append(make_message("RMQ_SYS_TRANS_HALF_TOPIC", body=b"half", sys_flag=TRANSACTION_PREPARED))
    stores = {"broker-a": str(root)}
    # While the broker runs: what is in files that are full, and that is one and a half of them.
    start = store.log.chain.segments[-1].start
    assert start == SEGMENT
    summary = run_archive(spark, str(archive), stores=stores, mark=True)
    assert read_numbers(spark, archive) == list(range(summary.rows))
    assert 0 < summary.rows < 100 and summary.bad == {}
    assert read_contents(str(archive)).positions == {"broker-a": SEGMENT}
    assert ArchiveMark(LocalFileSystem(), root / "config" / "archived.json").read() == SEGMENT
    assert run_archive(spark, str(archive), stores=stores).rows == 0
    fill(store, 50, 100)
    again = run_archive(spark, str(archive), stores=stores)
    assert again.rows > 0
    assert read_numbers(spark, archive) == list(range(summary.rows + again.rows))
    tail = store.log.tail
    store.close()
    run_archive(spark, str(archive), stores=stores, everything=True, mark=True)
    assert read_numbers(spark, archive) == list(range(150))
    assert read_archive(spark, str(archive)).count() == 150
    assert read_contents(str(archive)).positions == {"broker-a": tail}
    store = open_at(root)
    assert store.options.archived_position == tail
    store.close()


def test_directories_with_names_like_patterns(spark: Any, tmp_path: Path) -> None:
    """Neither the store nor the archive is taken for a pattern: not when it is read, checked, queried or compacted."""
    root, archive = tmp_path / "store [1] *", tmp_path / "archive {a,b} [2]?"
    (tmp_path / "store 1 x").mkdir()
    stores = {"broker-a": str(root)}
    store = open_at(root)
    for first in range(0, 150, 50):
        fill(store, 50, first)
        run_archive(spark, str(archive), stores=stores, everything=True)
    store.close()
    assert read_numbers(spark, archive) == list(range(150))
    assert compact_archive(spark, str(archive), files_min=2) > 0
    assert read_numbers(spark, archive) == list(range(150))
    wanted = MessageInput(stores=stores, topics=["orders"])
    assert open_messages(spark, wanted).count() == 150
    assert read_transactions(spark, wanted).count() == 0


def test_damaged_records_are_set_aside_with_the_reason(spark: Any, tmp_path: Path) -> None:
    root, archive = tmp_path / "store", tmp_path / "archive"
    store = open_at(root)
    fill(store, 20)
    store.close()
    segment = root / "commitlog" / f"{0:020}"
    data = bytearray(segment.read_bytes())
    at = data.index(b"000007") + 100
    data[at] ^= 1  # a body with another CRC
    at = data.index(b"000012")
    data[at - 88 : at] = b"\xaa" * 88  # no record at all
    segment.write_bytes(data)
    summary = run_archive(spark, str(archive), stores={"b": str(root)}, everything=True)
    assert summary.rows == 18
    assert summary.bad == {"crc": 1, "damage": 1}
    assert read_numbers(spark, archive) == [n for n in range(20) if n not in (7, 12)]
    bad = spark.read.parquet(str(archive / "bad")).collect()
    assert {row.reason for row in bad} == {"crc", "damage"}
    (wrong,) = [row for row in bad if row.reason == "crc"]
    assert (bytes(wrong.body[:6]), wrong["keys"], wrong.queueOffset) == (b"000007", ["k7"], 3)
    (gone,) = [row for row in bad if row.reason == "damage"]
    assert gone.properties["DAMAGE"]
    assert summary.outputs["set aside"].endswith("/bad")
    assert run_archive(spark, str(archive), stores={"b": str(root)}, everything=True).bad == {}


@pytest.mark.whole
def test_files_go_on_where_the_network_ended(spark: Any, tmp_path: Path) -> None:
    """What was archived by asking the broker is not added again from its files."""
    from eruca._spark.pipelines.archive.ledger import Contents
    from eruca._spark.pipelines.archive.plan import plan_stores, read_stores
    from eruca._wire.bodies import MessageQueue

    root = tmp_path / "store"
    store = open_at(root)
    fill(store, 20)
    store.close()
    contents = Contents().advance({MessageQueue("b", 0, "orders"): 4, MessageQueue("b", 1, "orders"): 9})
    plan = plan_stores({"b": str(root)}, contents, everything=True)
    frame = read_stores(spark, {"b": str(root)}, plan, contents, [], "")
    found = sorted((row.queueId, row.queueOffset) for row in frame.collect())
    assert found == [(0, offset) for offset in range(4, 10)] + [(1, 9)]

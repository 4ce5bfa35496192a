"""`rebuild` makes the bytes that the broker made, ours or Java's; for a bad log those of `eruca store rebuild`."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from eruca._spark.pipelines.rebuild import run_rebuild
from eruca._store.filesystem import LocalFileSystem
from eruca._store.messagestore import open_store
from eruca._storetools.rebuild import rebuild_store
from eruca._storetools.verify import verify_store
from eruca.errors import ConfigError, StoreError, StoreLocked
from tests.figures import note_figures
from tests.paths import unpack_golden
from tests.spark.stores import (
    GOLDEN_NAMES,
    GOLDEN_SIZES,
    HARMS,
    Harm,
    compare_derived,
    copy_store,
    count_entries,
    expire,
    lose_a_page,
    make_options,
    make_removals_of_queues,
    make_rich_store,
    read_files,
    repeat_offsets,
)
from tests.store_samples import PROPERTIES, hash_files, make_message


def hash_log(root: Path) -> dict[str, str]:
    return {name: digest for name, digest in hash_files(root).items() if name.startswith("commitlog/")}


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_golden_store(spark: Any, tmp_path: Path, name: str) -> None:
    java = unpack_golden(name, tmp_path / "java")
    root = copy_store(java, "ours")
    log = hash_log(root)
    summary = run_rebuild(spark, [str(root)], properties=GOLDEN_SIZES)
    assert hash_log(root) == log
    one_by_one = copy_store(java, "one-by-one")
    report = rebuild_store(one_by_one, GOLDEN_SIZES)
    queues, index = compare_derived(root, one_by_one)
    assert queues > 40
    assert index == 3
    assert (summary.rows, summary.facts["queue entries"]) == (report.records, report.queue_entries)
    assert (summary.facts["index files"], summary.facts["index entries"]) == (3, report.index_entries)
    equal = "as a rebuild one by one"
    if name in ("clean", "killed"):
        compare_derived(root, java, only_written=True)
        equal = "as Java wrote them"
    note_figures(
        f"rebuild of golden store {name}: {summary.rows} records, {queues} segments of consume queues and {index} "
        f"index files, byte for byte {equal}"
    )


def test_our_brokers_own_bytes(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_rich_store(root)
    written = copy_store(root, "written")
    summary = run_rebuild(spark, [str(root)])
    queues, index = compare_derived(root, written)
    assert queues > 10
    assert index > 3
    assert summary.rows == 360
    # Halves of older clients, what was rolled back and the deleted topic's first messages have no entry.
    assert summary.facts["queue entries"] == 360 - 40 - 40 - 21 == count_entries(root)
    assert not list(root.glob("*.rebuilding"))
    assert not list(root.rglob(".eruca-new-*"))
    assert {path.name.partition(".old-")[0] for path in root.glob("*.old-*")} == {"consumequeue", "index"}
    with_old = verify_store(root)
    assert with_old.clean
    open_store(root, make_options()).close()
    compare_derived(root, written)


def test_queues_that_began_again(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_rich_store(root)
    make_removals_of_queues(root)
    written = copy_store(root, "written")
    summary = run_rebuild(spark, [str(root)])
    compare_derived(root, written)
    assert summary.facts["queue entries"] == 360 - 40 - 40 - 21 == count_entries(root)


# Those that every other way of reading a log meets too wait for the whole suite.
_IN_THE_SLICE = (lose_a_page, expire)


@pytest.mark.parametrize(
    "harm",
    [pytest.param(harm, id=harm.__name__, marks=() if harm in _IN_THE_SLICE else pytest.mark.whole) for harm in HARMS],
)
def test_what_a_rebuild_one_by_one_makes(spark: Any, tmp_path: Path, harm: Harm) -> None:
    root = tmp_path / "store"
    stored = make_rich_store(root)
    harm(root, stored)
    one_by_one = copy_store(root, "one-by-one")
    report = rebuild_store(one_by_one)
    summary = run_rebuild(spark, [str(root)], drop_old=True)
    compare_derived(root, one_by_one)
    assert not list(root.glob("*.old-*"))
    assert summary.rows == report.records
    assert summary.facts["index entries"] == report.index_entries
    damage = [finding for finding in report.findings if finding.position is not None and finding.length]
    assert summary.bad_records == len(damage)
    for finding in damage:
        assert any(f"{finding.length} bytes at position {finding.position}" in text for text in summary.warnings)


def test_offsets_that_come_twice_or_far_too_early(spark: Any, tmp_path: Path) -> None:
    """Such a log never comes from a broker; what is made of it is what a broker makes of it when it starts."""
    root = tmp_path / "store"
    repeat_offsets(root, make_rich_store(root))
    recovered = copy_store(root, "recovered")
    for name in ("consumequeue", "index"):
        shutil.rmtree(recovered / name)
    open_store(recovered, make_options()).close()
    summary = run_rebuild(spark, [str(root)])
    compare_derived(root, recovered)
    assert any("Bills/0" in text for text in summary.warnings)


def test_a_queue_whose_records_expired_keeps_its_offset(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_rich_store(root)
    store = open_store(root, make_options())
    queue = store.queues.get_or_make("Old", 0)
    queue.start_at(57)
    queue.reserve(1)
    queue.add(0, 2**31 - 1, 0)
    queue.sync()
    store.close()
    one_by_one = copy_store(root, "one-by-one")
    report = rebuild_store(one_by_one)
    summary = run_rebuild(spark, [str(root)])
    compare_derived(root, one_by_one)
    assert report.empty_queues == ["Old/0"]
    assert any("Old/0" in text for text in summary.warnings)


def test_several_stores_into_another_place_while_a_broker_has_them(spark: Any, tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("a", "b")]
    for root in roots:
        make_rich_store(root, 12)
    before = [hash_files(root) for root in roots]
    stores = [open_store(root, make_options()) for root in roots]
    out = tmp_path / "out"
    summary = run_rebuild(spark, [str(root) for root in roots], out=str(out))
    for store in stores:
        store.close()
    assert summary.rows == 2 * 9 * 12
    assert summary.outputs == {str(root): str(out / root.name) for root in roots}
    for root, files in zip(roots, before, strict=True):
        compare_derived(out / root.name, root)
        derived = {name: value for name, value in files.items() if name.startswith(("consumequeue", "index"))}
        assert derived.items() <= hash_files(root).items()
    with pytest.raises(ConfigError, match="is not empty"):
        run_rebuild(spark, [str(roots[0])], out=str(out / "a"))


def test_a_broker_that_goes_on_writing(spark: Any, tmp_path: Path) -> None:
    """The log is read more than once; each time up to where it ended in the beginning."""
    root, out = tmp_path / "store", tmp_path / "out"
    store = open_store(root, make_options())
    for number in range(100):
        store.append(make_message(number))
    ended = threading.Event()

    def go_on() -> None:
        number = 100
        while not ended.wait(0.005):
            store.append(make_message(number))
            number += 1

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        summary = run_rebuild(spark, [str(root)], out=str(out))
    finally:
        ended.set()
        writer.join()
        store.close()
    assert 100 <= summary.rows < count_entries(root)
    assert count_entries(out) == summary.facts["queue entries"] == summary.rows
    broker = read_files(root / "consumequeue")
    for name, data in read_files(out / "consumequeue").items():
        written = data.rstrip(b"\x00")
        assert broker[name].startswith(written), name
    assert summary.facts["index entries"] == 3 * summary.rows


@pytest.mark.whole
def test_other_sizes(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_rich_store(root)
    one_by_one = copy_store(root, "one-by-one")
    sizes = PROPERTIES | {"mappedFileSizeConsumeQueue": "60", "maxHashSlotNum": "7", "maxIndexNum": "31"}
    rebuild_store(one_by_one, sizes)
    run_rebuild(spark, [str(root)], properties=sizes)
    queues, index = compare_derived(root, one_by_one)
    assert queues > 60
    assert index > 20
    # Without index its old files stay.
    old = hash_files(root / "index")
    run_rebuild(spark, [str(root)], properties=sizes | {"messageIndexEnable": "false"})
    assert hash_files(root / "index") == old


def test_it_refuses_what_it_cannot_do(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_rich_store(root, 12)
    before = hash_files(root)
    lock = LocalFileSystem().lock(root / "lock")
    with pytest.raises(StoreLocked):
        run_rebuild(spark, [str(root)])
    lock.release()
    with pytest.raises(StoreError, match="not a store"):
        run_rebuild(spark, [str(tmp_path)])
    with pytest.raises(ConfigError, match="no store"):
        run_rebuild(spark, [])
    with pytest.raises(ConfigError, match="same name"):
        run_rebuild(spark, [str(root), str(root)], out=str(tmp_path / "out"))
    shutil.rmtree(tmp_path / "store" / "commitlog")
    (root / "commitlog").mkdir()
    with pytest.raises(StoreError, match="nothing to rebuild"):
        run_rebuild(spark, [str(root)])
    assert not list(root.glob("*.rebuilding"))
    assert before.keys() >= {name for name in hash_files(root) if name.startswith(("consumequeue", "index"))}

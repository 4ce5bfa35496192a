"""`fsck` finds what `eruca store verify` finds, in many stores at once."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eruca._spark.pipelines.fsck import find_faults, run_fsck
from eruca._store.messagestore import open_store
from eruca._storetools.readonly import Kind, Level
from eruca._storetools.verify import verify_store
from eruca.errors import ConfigError
from tests.paths import unpack_golden
from tests.spark.stores import (
    GOLDEN_NAMES,
    HARMS,
    make_options,
    make_removals_of_queues,
    make_rich_store,
    repeat_offsets,
)
from tests.store_samples import hash_files, make_message, patch

TORN_AT = 652926


def count_by_store(rows: list[Any]) -> dict[str, Counter[tuple[str, str]]]:
    found: dict[str, Counter[tuple[str, str]]] = {}
    for row in rows:
        found.setdefault(Path(row["store"]).name, Counter())[row["level"], row["kind"]] += 1
    return found


def test_the_golden_stores(spark: Any, tmp_path: Path) -> None:
    roots = [unpack_golden(name, tmp_path) for name in GOLDEN_NAMES]
    before = [hash_files(root) for root in roots]
    out = tmp_path / "findings"
    summary = run_fsck(spark, [str(root) for root in roots], out=str(out))
    assert [hash_files(root) for root in roots] == before
    assert summary.rows == 2127 + 2427 + 2426 + 2427
    assert summary.facts["stores"] == 4
    assert (summary.facts["errors"], summary.bad) == (1, {"torn-tail": 1})
    rows = spark.read.parquet(str(out)).collect()
    found = count_by_store(rows)
    assert found == {
        "store-killed": {("warning", "not-closed"): 1},
        "store-torn": {("warning", "not-closed"): 1, ("error", "torn-tail"): 1},
        "store-rebuild": {("warning", "not-closed"): 1, ("warning", "consume-queue"): 36},
    }
    (torn,) = [row for row in rows if row["kind"] == "torn-tail"]
    assert (torn["position"], Path(torn["path"]).name) == (TORN_AT, "00000000000000524288")
    assert any("torn" in text and str(TORN_AT) in text for text in summary.warnings)
    missing = [row["reason"] for row in rows if row["kind"] == "consume-queue"]
    assert sum(int(reason.split()[0]) for reason in missing) == 2427


def test_queues_that_began_again(spark: Any, tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("topics", "queues")]
    for root in roots:
        make_rich_store(root)
    make_removals_of_queues(roots[1])
    assert find_faults(spark, [str(root) for root in roots]).collect() == []


@pytest.mark.whole
def test_damaged_logs(spark: Any, tmp_path: Path) -> None:
    roots = []
    for harm in (*HARMS, repeat_offsets):
        root = tmp_path / harm.__name__
        harm(root, make_rich_store(root))
        roots.append(root)
    rows = find_faults(spark, [str(root) for root in roots]).collect()
    for root in roots:
        report = verify_store(root)
        mine = [row for row in rows if row["store"] == str(root)]
        damage = {f.position for f in report.findings if f.kind is Kind.DAMAGE}
        assert damage <= {row["position"] for row in mine if row["kind"] == "damage"}, root.name
        errors = [row for row in mine if row["level"] == "error"]
        if root.name == "go_bad_with_name":
            # A name that no directory can have: its offset is missing, its entry and its keys lead nowhere.
            assert {row["kind"] for row in errors} == {"lost", "consume-queue", "index", "record"}
            continue
        assert bool(errors) is not report.clean, (root.name, errors, report.findings)
        assert ("torn-tail" in {row["kind"] for row in mine}) is (
            Kind.TORN_TAIL in {finding.kind for finding in report.findings}
        )
    lost = {row["store"].rpartition("/")[2] for row in rows if row["kind"] == "lost"}
    assert lost >= {"lose_a_page", "lose_the_begin_of_a_segment", "repeat_offsets"}
    assert not [row for row in rows if row["store"].endswith(("keep_whole", "expire"))]


def test_damaged_queues_and_index(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_rich_store(root)
    queue = root / "consumequeue" / "Bills" / "0" / f"{0:020d}"
    patch(queue, 20 * 4, bytes(20))
    patch(queue, 20 * 7, struct.pack(">q", 12))
    patch(queue, 20 * 9 + 12, struct.pack(">q", 4711))
    first, second = sorted((root / "index").iterdir())[:2]
    entries_at = 40 + 4 * 50
    patch(first, entries_at + 20 * 5, struct.pack(">i", 99))
    patch(first, entries_at + 20 * 9 + 16, struct.pack(">i", 8))
    patch(second, 40 + 4 * 3, struct.pack(">i", 17))
    summary = run_fsck(spark, [str(root)])
    report = verify_store(root)
    assert not report.clean
    text = "\n".join(summary.warnings)
    for says in (
        "Bills/0: offset 4: position 0, size 0; its record of",
        "Bills/0: offset 7: position 12, size",
        "Bills/0: offset 9: tags code 4711 instead of",
        f"{first.name}: entry 5: no record with such a key",
        f"{first.name}: entry 9: its chain continues at entry 8 instead of",
        f"{second.name}: slot 3 leads to entry 17",
    ):
        assert says in text, says
    theirs = Counter(finding.kind.value for finding in report.findings if finding.level is Level.ERROR)
    assert set(summary.bad) == set(theirs) == {"consume-queue", "index"}


def test_a_broker_at_work_is_no_fault(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_store(root, make_options())
    for number in range(60):
        store.append(make_message(number))
    summary = run_fsck(spark, [str(root)])
    store.close()
    assert summary.facts["errors"] == 0
    assert [text for text in summary.warnings if "not-closed" not in text] == []
    assert summary.rows == 60
    with pytest.raises(ConfigError, match="no store"):
        run_fsck(spark, [])

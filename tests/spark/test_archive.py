"""Archives of topics: what is in them, repeatedly, and what a run that dies leaves behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from eruca import Outgoing
from eruca._spark.cluster import Access
from eruca._spark.pipelines.archive.compaction import compact_archive, plan_compaction
from eruca._spark.pipelines.archive.job import read_archive, read_contents, run_archive
from eruca._spark.pipelines.archive.ledger import Ledger
from eruca._spark.pipelines.directories import Directory, FileFacts
from eruca.errors import ConfigError
from tests.interop.brokers import Cluster, ErucaCluster
from tests.spark.producing import delete_topic, name_topic, send

Make = Callable[..., Any]


def list_files(archive: Path, part: str = "messages") -> list[Path]:
    return sorted((archive / part).rglob("*.parquet"))


def read_bodies(archive: Path) -> list[bytes]:
    """What a reader finds who knows nothing of our ledger."""
    return sorted(body for file in list_files(archive) for body in pq.ParquetFile(file).read()["body"].to_pylist())


def archive_topics(spark: Any, cluster: Cluster, archive: Path, *topics: str, **how: Any) -> Any:
    return run_archive(spark, str(archive), access=Access(cluster.name_server), topics=topics, **how)


def test_a_run_adds_what_is_new(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    first, second = name_topic("archived"), name_topic("archived")
    send(cluster, first, [Outgoing(b"body-%d" % n, tags="T", keys=[f"k{n}"]) for n in range(20)])
    send(cluster, second, 6)
    summary = archive_topics(spark, cluster, tmp_path / "a", first, second)
    assert (summary.rows, summary.bad, summary.warnings) == (26, {}, [])
    assert summary.bytes == sum(len(b"body-%d" % n) for n in range(20)) + 6 * len(b"message-0")
    assert summary.first is not None and summary.last is not None and summary.first <= summary.last
    again = archive_topics(spark, cluster, tmp_path / "a", first, second)
    assert (again.rows, again.as_dict()["badRecords"]) == (0, 0)
    send(cluster, first, [b"later-%d" % n for n in range(5)])
    third = archive_topics(spark, cluster, tmp_path / "a", first, second)
    assert third.rows == 5
    rows = read_archive(spark, str(tmp_path / "a")).collect()
    assert len(rows) == len({(row.topic, row.queueId, row.queueOffset) for row in rows}) == 31
    assert {row.topic for row in rows} == {first, second}
    # Days begin at midnight in UTC, wherever this machine is.
    assert {row.date for row in rows} == {row.storeTimestamp.astimezone(UTC).date() for row in rows}
    keyed = {tuple(row["keys"]): row for row in rows if row["keys"]}
    assert (keyed["k7",].body, keyed["k7",].tags, keyed["k7",].broker) == (b"body-7", "T", "broker-a")
    offsets = read_contents(str(tmp_path / "a")).read_offsets()
    assert sum(offsets.values()) == 31
    topics = {file.relative_to(tmp_path / "a" / "messages").parts[0] for file in list_files(tmp_path / "a")}
    assert topics == {f"topic={first}", f"topic={second}"}
    assert not (tmp_path / "a" / "_eruca" / "staging").exists() or not any((tmp_path / "a/_eruca/staging").iterdir())


def test_a_run_that_dies_leaves_no_duplicates(
    spark: Any, eruca_cluster: ErucaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, archive = [name_topic("archived"), name_topic("archived")], tmp_path / "archive"
    for topic in topics:
        send(eruca_cluster, topic, 5)
    archive_topics(spark, eruca_cluster, archive, *topics, compact=False)
    expected = [b"message-%d" % n for n in range(5)] * 2

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    # Before the entry: nothing has changed.
    for topic in topics:
        send(eruca_cluster, topic, [b"second-%d" % n for n in range(4)])
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            archive_topics(spark, eruca_cluster, archive, *topics, compact=False)
    assert read_bodies(archive) == sorted(expected)
    # Behind the entry, with some files moved and others not: readers by the ledger see the state before.
    moved = 0
    move = Directory.move

    def move_one(place: Directory, source: str, target: str) -> None:
        nonlocal moved
        moved += 1
        if moved > 1:
            die()
        move(place, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "move", move_one)
        with pytest.raises(KeyboardInterrupt):
            archive_topics(spark, eruca_cluster, archive, *topics, compact=False)
    assert moved == 2
    assert len(read_bodies(archive)) > 10
    assert read_archive(spark, str(archive)).count() == 10
    # The next run finishes it, and adds what came since.
    send(eruca_cluster, topics[0], [b"third-%d" % n for n in range(3)])
    assert archive_topics(spark, eruca_cluster, archive, *topics, compact=False).rows == 3
    expected += [b"second-%d" % n for n in range(4)] * 2 + [b"third-%d" % n for n in range(3)]
    assert read_bodies(archive) == sorted(expected)
    assert read_archive(spark, str(archive)).count() == 21


@pytest.mark.whole
def test_two_runs_at_once_do_not_add_twice(
    spark: Any, eruca_cluster: ErucaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, archive = name_topic("archived"), tmp_path / "archive"
    send(eruca_cluster, topic, 10)
    commit = Ledger.commit

    def commit_late(ledger: Ledger, entry: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "commit", commit)
            archive_topics(spark, eruca_cluster, archive, topic)
        commit(ledger, entry)

    monkeypatch.setattr(Ledger, "commit", commit_late)
    with pytest.raises(ConfigError, match="another run has changed"):
        archive_topics(spark, eruca_cluster, archive, topic)
    assert len(read_bodies(archive)) == 10


def test_small_files_are_put_together(spark: Any, eruca_cluster: ErucaCluster, tmp_path: Path) -> None:
    topic, archive = name_topic("archived"), tmp_path / "archive"
    for number in range(4):
        send(eruca_cluster, topic, [b"%d-%d" % (number, n) for n in range(8)])
        archive_topics(spark, eruca_cluster, archive, topic, compact=False)
    before, files = read_bodies(archive), len(list_files(archive))
    assert len(before) == 32 and files >= 4
    # More than one if it is midnight; a file that is alone in its day stays as it is.
    days = Counter(file.parent for file in list_files(archive))
    assert compact_archive(spark, str(archive), files_min=2) == sum(count for count in days.values() if count > 1)
    assert len(list_files(archive)) == len(days)
    assert read_bodies(archive) == before
    assert compact_archive(spark, str(archive), files_min=2) == 0
    assert archive_topics(spark, eruca_cluster, archive, topic).rows == 0


@pytest.mark.whole
def test_a_compaction_that_dies_is_not_read_twice(
    spark: Any, eruca_cluster: ErucaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, archive = name_topic("archived"), tmp_path / "archive"
    for _ in range(2):
        send(eruca_cluster, topic, 4)
        archive_topics(spark, eruca_cluster, archive, topic, compact=False)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "remove_file", die)
        with pytest.raises(KeyboardInterrupt):
            compact_archive(spark, str(archive), files_min=2)
    with pytest.raises(ConfigError, match="being merged"):
        read_archive(spark, str(archive))
    assert archive_topics(spark, eruca_cluster, archive, topic).rows == 0
    assert read_archive(spark, str(archive)).count() == 8


@pytest.mark.whole
def test_a_topic_that_was_made_again_is_left_out_and_said(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    again, other = name_topic("archived"), name_topic("archived")
    send(cluster, again, 12)
    send(cluster, other, 4)
    archive_topics(spark, cluster, tmp_path / "a", again, other)
    delete_topic(cluster, again)
    send(cluster, again, 2)
    send(cluster, other, 4)
    summary = archive_topics(spark, cluster, tmp_path / "a", again, other)
    assert summary.rows == 4
    assert any(again in warning and "created again" in warning for warning in summary.warnings)


def test_what_cannot_be_archived_is_said_in_one_line(spark: Any, eruca_cluster: ErucaCluster, tmp_path: Path) -> None:
    access = Access(eruca_cluster.name_server)
    with pytest.raises(ConfigError, match="there is no topic nowhere"):
        run_archive(spark, str(tmp_path), access=access, topics=["nowhere"])
    with pytest.raises(ConfigError, match="either a name server or store directories"):
        run_archive(spark, str(tmp_path))
    with pytest.raises(ConfigError, match="format orc is unknown"):
        run_archive(spark, str(tmp_path), access=access, form="orc")
    with pytest.raises(ConfigError, match="is not an archive"):
        read_contents(str(tmp_path / "none"))


def test_only_directories_with_many_small_files_are_compacted() -> None:
    files = [FileFacts(f"messages/topic=a/date=1/{n}.parquet", 10) for n in range(3)]
    files += [FileFacts(f"messages/topic=b/date=1/{n}.parquet", 10) for n in range(2)]
    files += [FileFacts("messages/topic=a/date=1/large.parquet", 60), FileFacts("messages/topic=a/date=1/x.crc", 1)]
    assert plan_compaction(files, 100, 3) == {"messages/topic=a/date=1": files[:3]}
    assert len(plan_compaction(files, 100, 2)) == 2
    assert plan_compaction([], 100, 2) == {}

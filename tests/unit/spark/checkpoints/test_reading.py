"""What is read from a checkpoint."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eruca._spark.checkpoints import reading
from eruca._spark.checkpoints.reading import find_last_write, open_local, read_checkpoint
from eruca.errors import ConfigError
from tests.unit.spark.checkpoints.store import CLICKS, KAFKA, NOTHING, Q0, Q1, Written, offsets


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_last_complete_batch_and_the_planned_one(tmp_path: Path, version: str) -> None:
    written = Written(tmp_path / "cp", version=version)
    written.add(9, offsets({Q0: 1}), KAFKA, NOTHING)
    written.add(10, offsets({Q0: 4, Q1: 2}), KAFKA, offsets({CLICKS: 7}))
    written.plan(11, offsets({Q0: 9, Q1: 2}), KAFKA, offsets({CLICKS: 7}))
    found = read_checkpoint(written.home)
    assert (found.query_id, found.committed, found.planned, found.stateful) == ("5f5e2a53", 10, 11, False)
    assert [(each.batch, each.committed) for each in found.batches] == [(9, True), (10, True), (11, False)]
    assert found.batches[0].planned_at == datetime(2026, 11, 18, 22, 47, 24, 483_000, tzinfo=UTC)
    rows = [(each.source, each.topic, each.queue_id, each.committed, each.planned) for each in found.queues]
    assert rows == [(0, "orders", 0, 4, 9), (0, "orders", 1, 2, 2), (2, "clicks", 0, 7, 7)]


def test_a_query_that_has_just_begun(tmp_path: Path) -> None:
    written = Written(tmp_path / "cp", is_stateful=True)
    written.plan(0, offsets({Q0: 4}))
    found = read_checkpoint(written.home)
    assert (found.committed, found.planned, found.stateful) == (None, 0, True)
    assert [(each.committed, each.planned) for each in found.queues] == [(None, 4)]


def test_what_is_no_checkpoint_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="is not the checkpoint of a stream: it has no offsets"):
        read_checkpoint(tmp_path / "gone")
    written = Written(tmp_path / "cp")
    written.add(0, KAFKA)
    with pytest.raises(ConfigError, match="the stream reads no topics of RocketMQ"):
        read_checkpoint(written.home)
    written.add(1, offsets({Q0: 4}))
    (written.home / "offsets" / "1").write_text("v9\n{}\n{}")
    with pytest.raises(ConfigError, match="is not a file of offsets that is understood here"):
        read_checkpoint(written.home)
    (written.home / "offsets" / "1").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not a file of offsets that is understood here"):
        read_checkpoint(written.home)
    monkeypatch.setattr(reading, "CHECKPOINT_FILE_BYTES_MAX", 1)
    with pytest.raises(ConfigError, match="is larger than 1 bytes"):
        read_checkpoint(written.home)


def test_only_local_disks() -> None:
    assert open_local("cp/orders") == Path("cp/orders")
    assert open_local("file:///cp/orders") == open_local("file:/cp/orders") == Path("/cp/orders")
    for place in ("hdfs://name/cp", "s3a://bucket/cp"):
        with pytest.raises(ConfigError, match=r"is not on a local disk .*copy its folders"):
            open_local(place)


def test_a_file_that_is_being_written_counts(tmp_path: Path) -> None:
    written = Written(tmp_path / "cp")
    written.add(0, offsets({Q0: 4}))
    old = datetime(2026, 1, 1, tzinfo=UTC)
    for folder in ("offsets", "commits"):
        for path in (written.home / folder).iterdir():
            os.utime(path, (old.timestamp(),) * 2)
        os.utime(written.home / folder, (old.timestamp(),) * 2)
    assert find_last_write(written.home) == old
    (written.home / "commits" / ".1.5f5e2a53.tmp").write_text("v1")
    assert (datetime.now(UTC) - find_last_write(written.home)).total_seconds() < 60

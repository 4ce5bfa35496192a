"""A slave of ours that copies the log of a Java master has the files that the Java broker made, byte by byte."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from eruca._store.lineage.replicalog import ReplicaLog
from eruca._store.messagestore import open_store
from tests.golden.test_stores import golden_options
from tests.paths import unpack_golden


def read_files(root: Path, part: str) -> dict[str, bytes]:
    """The files of a part of a store that are not all zeros; index files, whose names are times, by their order."""
    found = {str(path.relative_to(root)): path.read_bytes() for path in (root / part).rglob("*") if path.is_file()}
    if part == "index":
        found = {str(number): found[name] for number, name in enumerate(sorted(found))}
    return {name: data for name, data in found.items() if any(data)}


@pytest.mark.parametrize("seed", range(3))
def test_copied_files_are_those_that_java_made(tmp_path: Path, seed: int) -> None:
    rng = random.Random(f"java:{seed}")
    java = unpack_golden("clean", tmp_path)
    expected = {part: read_files(java, part) for part in ("commitlog", "consumequeue", "index")}
    master = open_store(java, golden_options())
    slave = open_store(tmp_path / "slave", golden_options())
    replica = ReplicaLog(slave)
    while replica.tail < master.log.tail:
        end = min(master.log.tail, replica.tail + rng.choice((1, 50, 1000, 32_768)))
        data = master.log.read_bytes(replica.tail, end)
        assert data is not None
        replica.append(replica.tail, data)
    assert replica.dispatched == master.log.tail
    slave.close()
    master.close()
    for part, files in expected.items():
        copied = read_files(tmp_path / "slave", part)
        assert sorted(copied) == sorted(files), part
        for name, data in files.items():
            assert copied[name] == data, name

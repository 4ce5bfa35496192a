"""Archives in Delta: the table and the ledger agree, also when a run dies between the two."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca._spark.pipelines.archive.delta import DELTA_PACKAGE
from tests.interop.brokers import ErucaCluster
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tests.spark.producing import name_topic, send

_VERSION = DELTA_PACKAGE.rpartition(":")[2]
_PARTS = ("delta-storage", "delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog")
_FETCH_SECONDS_MAX = 180


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The jars of Delta, from Maven."""
    where = tmp_path_factory.mktemp("jars")
    for artifact in (DELTA_PACKAGE, *[f"io.delta:{part}:{_VERSION}" for part in _PARTS]):
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={where}"]
        subprocess.run(command, cwd=where, check=True, timeout=_FETCH_SECONDS_MAX)
    yield ",".join(map(str, sorted(where.glob("*.jar"))))


@pytest.mark.whole
def test_table_and_ledger_agree(eruca_cluster: ErucaCluster, jars: str, tmp_path: Path) -> None:
    topic, archive = name_topic("delta"), tmp_path / "archive"
    send(eruca_cluster, topic, 10)
    command = [sys.executable, "-m", "tests.spark.deltascript", eruca_cluster.name_server, topic, str(archive), jars]
    script = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert script.stdin is not None and script.stdout is not None
    try:
        assert json.loads(script.stdout.readline()) == {"added": 10, "rows": 10, "distinct": 10}
        send(eruca_cluster, topic, 7)
        script.stdin.write("\n")
        script.stdin.flush()
        assert json.loads(script.stdout.readline()) == {"died": True}
        send(eruca_cluster, topic, 5)
        script.stdin.write("\n")
        script.stdin.flush()
        # What the dead run had added is noted, and not added again.
        assert json.loads(script.stdout.readline()) == {"added": 5, "rows": 22, "distinct": 22}
        assert script.wait(PATIENCE_S) == 0
    finally:
        script.kill()
        script.wait(30)
        script.stdin.close()
        script.stdout.close()
    assert (archive / "messages" / "_delta_log").is_dir()

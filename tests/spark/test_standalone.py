"""Jobs on a standalone cluster, one master and two workers, give what they give on this machine alone: exactly that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from eruca import Outgoing
from tests.figures import note_figures
from tests.interop.brokers import ErucaCluster
from tests.paths import REPOSITORY
from tests.patience import SPARK_S
from tests.spark.producing import name_topic, send
from tests.spark.standalone import CONF, StandaloneCluster
from tests.spark.stores import compare_derived, make_rich_store, read_files

pytestmark = pytest.mark.whole

LOCAL = "local[2]"
_MESSAGES = 3000
_LOCAL_CONF = {"spark.ui.enabled": "false", "spark.driver.memory": "1g"}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """The cluster; every job on it must have used both workers."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as started:
        yield started


@pytest.fixture(scope="module")
def topics(eruca_cluster: ErucaCluster) -> list[str]:
    """Two topics with tags, keys and bodies of several sizes."""
    names = [name_topic("standalone"), name_topic("standalone")]
    for name in names:
        messages = [
            Outgoing(b"%06d " % number * (1 + number % 9), tags=f"Tag{number % 3}", keys=[f"key-{number}"])
            for number in range(_MESSAGES)
        ]
        send(eruca_cluster, name, messages)
    return names


def run_both(standalone: StandaloneCluster, out: Path, job: str, *arguments: str) -> tuple[Path, Path]:
    """Run a job here and on the cluster as users do; `{out}` stands for where each leaves its files."""
    before = standalone.count_executors()
    summaries: list[dict[str, Any]] = []
    seconds: list[float] = []
    for name, master in (("here", LOCAL), ("there", standalone.master)):
        place = out / name
        conf = _LOCAL_CONF | (CONF if master != LOCAL else {})
        command = [sys.executable, "-m", "eruca", "pipeline", job, "--master", master]
        command += [argument.format(out=place) for argument in arguments]
        command += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        summary = out / f"{name}.json"
        ended = subprocess.run(
            [*command, "--summary", str(summary)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=SPARK_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
        found = json.loads(summary.read_text(encoding="utf-8"))
        seconds.append(found.pop("seconds"))
        # Where it went; all else is the same.
        found.pop("outputs")
        summaries.append(found)
    assert summaries[0] == summaries[1]
    assert summaries[0]["rows"] > 0
    after = standalone.count_executors()
    assert all(now > then for now, then in zip(after, before, strict=True)), "a worker had nothing to do"
    note_figures(
        f"{job} on {LOCAL} and on a standalone cluster of {len(after)} workers: {summaries[0]['rows']} rows each, "
        f"the same; {seconds[0]:.1f} s and {seconds[1]:.1f} s"
    )
    return out / "here", out / "there"


def read_archived(archive: Path) -> list[dict[str, Any]]:
    """All rows of an archive by place in their queue, each with the partition it lies in."""
    rows = [
        {"partition": str(file.parent.relative_to(archive)), **row}
        for file in sorted((archive / "messages").rglob("*.parquet"))
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["partition"], row["broker"], row["queueId"], row["queueOffset"]))


def test_archive(standalone: StandaloneCluster, eruca_cluster: ErucaCluster, topics: list[str], tmp_path: Path) -> None:
    wanted = [word for topic in topics for word in ("-t", topic)]
    here, there = run_both(
        standalone, tmp_path, "archive", "--archive", "{out}", "-n", eruca_cluster.name_server, *wanted
    )
    rows = read_archived(here)
    assert len(rows) == 2 * _MESSAGES
    assert rows == read_archived(there)


def test_stats(standalone: StandaloneCluster, eruca_cluster: ErucaCluster, topics: list[str], tmp_path: Path) -> None:
    wanted = [word for topic in topics for word in ("-t", topic)]
    # How long somebody waits now depends on when one looks.
    here, there = run_both(
        standalone, tmp_path, "stats", "-n", eruca_cluster.name_server, *wanted, "--no-lag", "--out", "{out}"
    )
    tables = {path.name: path.read_text(encoding="utf-8") for path in sorted(here.glob("*.csv"))}
    assert "traffic-by-hour.csv" in tables
    assert tables == {path.name: path.read_text(encoding="utf-8") for path in sorted(there.glob("*.csv"))}
    assert {path.name for path in here.rglob("*")} == {path.name for path in there.rglob("*")}


def test_rebuild(standalone: StandaloneCluster, tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_rich_store(store, 300)
    here, there = run_both(standalone, tmp_path, "rebuild", str(store), "--out", "{out}")
    files = read_files(here)
    assert any(name.endswith("index") or "index/" in name for name in files)
    assert files == read_files(there)
    (root,) = {path.parent for path in there.rglob("consumequeue")}
    queues, index = compare_derived(root, store)
    note_figures(f"rebuild: {queues} consume queue files and {index} index files, those of the store byte for byte")

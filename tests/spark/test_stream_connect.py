"""Spark Connect: batch, stream, listener and foreachBatch through a client that has no Spark in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.brokers import Cluster
from tests.paths import REPOSITORY
from tests.patience import SPARK_S
from tests.spark.producing import create_topic, name_topic, send
from tests.spark.streams import Sink, number_bodies, show_group
from tests.torture.killedbroker import make_environment


@pytest.mark.whole
def test_a_client_reads_batches_and_streams(cluster: Cluster, tmp_path: Path) -> None:
    topic = name_topic("connect")
    group = f"{topic}-group"
    create_topic(cluster, topic, queues=2)
    send(cluster, topic, number_bodies(0, 100))
    told = {
        "home": str(tmp_path),
        "nameServer": cluster.name_server,
        "topic": topic,
        "group": group,
        "conf": {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(tmp_path / "local"),
            "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        },
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connectscript", json.dumps(told)],
        cwd=REPOSITORY,
        env={**make_environment(), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=SPARK_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"batch": 100, "queues": 2, "committed": 1}
    assert Sink(tmp_path).list_bodies() == number_bodies(0, 100)
    assert show_group(cluster, group) == {0: (50, 0), 1: (50, 0)}
    batches = [int(path.read_text(encoding="utf-8")) for path in tmp_path.glob("batches-*")]
    assert sum(batches) == 100

"""One Spark session and the two systems, started once for all tests of this suite."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.logger import PySparkLogger

from tests.interop.brokers import PATIENCE, SETTINGS, Cluster, ErucaCluster, JavaCluster
from tests.interop.javapeer import prepare_peer
from tests.needs import needs

# Spark's loggers do not propagate, so pytest gives them its handler, and they would make it write JSON from then on:
# every later test of the run that reads what was logged would fail.
PySparkLogger.addHandler = logging.Logger.addHandler  # type: ignore[assignment, method-assign]

# Spark's own; ours are errors here as everywhere.
_FOREIGN_WARNINGS = (
    "ignore:::pyspark",
    "ignore:::py4j",
    "ignore:::pandas",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this suite starts Spark, which runs on Java; warnings of its own are not errors."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(needs("java"))
        for warning in _FOREIGN_WARNINGS:
            item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A small Spark on this machine, with both data sources."""
    from eruca._spark.session import make_session

    home = tmp_path_factory.mktemp("spark")
    # Workers find the tests too, so that functions of theirs can be pickled by name.
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    session = make_session(
        "eruca-tests",
        "local[2]",
        {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            # It is soon over: what Java compiles with much effort is not used for long. Loaded classes are no garbage,
            # however many there are.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "local"),
            "spark.pyspark.python": sys.executable,
        },
    )
    yield session
    session.stop()


def _start_eruca(home: Path) -> ErucaCluster:
    return ErucaCluster(home)


def _start_java(home: Path) -> JavaCluster:
    return JavaCluster(prepare_peer(), home, {**SETTINGS, **PATIENCE})


@pytest.fixture(scope="session")
def eruca_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    """A running Eruca."""
    with _start_eruca(tmp_path_factory.mktemp("eruca-spark")) as started:
        yield started
        # Some tests leave halves open, and the broker complains of these in the end.
        assert [line for line in started.list_complaints() if "undecided for too long" not in line] == []


@pytest.fixture(scope="session")
def java_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """The official servers, with the same settings."""
    with _start_java(tmp_path_factory.mktemp("java-spark")) as started:
        yield started


@pytest.fixture(scope="session", params=["eruca", "java"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A running system; every test that wants one runs once with each."""
    started: Cluster = request.getfixturevalue(f"{request.param}_cluster")
    return started

"""A batch read without Spark around it: planned and read in this process, as planner and tasks do it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from eruca._spark.columns import MESSAGE_COLUMNS
from eruca._spark.datasource import RocketMQSource
from eruca._spark.source.batch import TopicReader
from eruca._spark.source.options import check_for_batch, read_options
from tests.interop.brokers import Cluster


def make_reader(cluster: Cluster, options: Mapping[str, Any]) -> TopicReader:
    """What Spark gets for `spark.read...load()`."""
    texts = {"nameServer": cluster.name_server, **{name: str(value) for name, value in options.items()}}
    chosen = read_options(texts)
    check_for_batch(chosen)
    assert RocketMQSource(texts).schema()
    return TopicReader(chosen, MESSAGE_COLUMNS)


def read_rows(cluster: Cluster, **options: Any) -> list[dict[str, Any]]:
    """All rows, in the order of partitions."""
    reader = make_reader(cluster, options)
    return [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]


def read_numbers(cluster: Cluster, **options: Any) -> list[int]:
    """The numbers of `message-n`, sorted."""
    return sorted(int(row["body"].rpartition(b"-")[2]) for row in read_rows(cluster, **options))


def wait_for_next_millisecond() -> int:
    """Wait until the clock has moved on; returns a time that lies between what was before and what comes after."""
    begin = time.time_ns() // 1_000_000
    while (now := time.time_ns() // 1_000_000) < begin + 3:
        pass
    return now - 1

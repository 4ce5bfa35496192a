"""`read.format("rocketmq")`: reads what lies between two offsets of each queue when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from eruca._ground.clock import SystemClock
from eruca._spark.cluster import Cluster
from eruca._spark.columns import Column
from eruca._spark.source.bounds import find_batch
from eruca._spark.source.options import SourceOptions
from eruca._spark.source.partitions import plan_partitions

if TYPE_CHECKING:
    import pyarrow as pa


class TopicReader(DataSourceReader):
    """Reads a batch: what is between two offsets of each queue when the query is planned."""

    def __init__(self, options: SourceOptions, columns: Sequence[Column]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster what is available, and divide it into tasks."""
        options = self.options
        with Cluster(options.access) as cluster:
            ranges = find_batch(cluster, options, SystemClock().now_ms())
        return list(
            plan_partitions(
                ranges,
                min_partitions=options.partitions_min,
                max_partitions=options.partitions_max,
                records_max=options.partition_records_max,
            )
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one task."""
        from eruca._spark.source.pulling import read_partition

        return read_partition(partition, self.options, self.columns)

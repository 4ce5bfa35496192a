"""The data source `rocketmq`: topics of a cluster as a batch, a stream and a sink.

>>> spark.read.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "orders").load()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from eruca._spark.columns import Column
    from eruca._spark.source.options import SourceOptions


class RocketMQSource(DataSource):
    """Topics of a cluster. What needs an extra is imported when it is used."""

    @classmethod
    def name(cls) -> str:
        """What users write in `format(...)`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """All columns; without the properties if the user does not want them."""
        from eruca._spark.columns import MESSAGE_COLUMNS, make_schema
        from eruca._spark.source.options import read_options

        options = read_options(self.options)
        wanted = [each for each in MESSAGE_COLUMNS if options.include_properties or each.name != "properties"]
        return make_schema(wanted)

    def reader(self, schema: StructType) -> TopicReader:
        """Reads a batch."""
        from eruca._spark.columns import MESSAGE_COLUMNS, choose_columns
        from eruca._spark.source.options import check_for_batch, read_options

        options = read_options(self.options)
        check_for_batch(options)
        return TopicReader(options, choose_columns(schema, MESSAGE_COLUMNS))

    def streamReader(self, schema: StructType) -> Any:
        """Reads a stream."""
        from eruca._spark.columns import MESSAGE_COLUMNS, choose_columns
        from eruca._spark.source.options import check_for_stream, read_options
        from eruca._spark.source.streaming import TopicStreamReader

        options = read_options(self.options)
        check_for_stream(options)
        return TopicStreamReader(options, choose_columns(schema, MESSAGE_COLUMNS))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Writes a batch."""
        from eruca._spark.sink.writer import TopicWriter

        return TopicWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Writes a stream."""
        from eruca._spark.sink.writer import TopicStreamWriter

        return TopicStreamWriter(self.options, schema, overwrite)


class TopicReader(DataSourceReader):
    """Reads a batch: what is between two offsets of each queue when the query is planned."""

    def __init__(self, options: SourceOptions, columns: Sequence[Column]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster what there is, and cut it into tasks."""
        from eruca._ground.clock import SystemClock
        from eruca._spark.cluster import Cluster
        from eruca._spark.source.planning import plan_partitions
        from eruca._spark.source.starting import find_batch

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
        """Read what one task is to read."""
        from eruca._spark.source.pulling import read_partition

        return read_partition(partition, self.options, self.columns)

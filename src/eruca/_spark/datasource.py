"""The data source `rocketmq`: topics of a cluster as a batch, a stream and a sink.

>>> spark.read.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "orders").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RocketMQSource(DataSource):
    """The data source `rocketmq`: topics of a cluster."""

    # Modules are imported when they are used, so that tasks load only what they need.

    @classmethod
    def name(cls) -> str:
        """Return the name that users write in `format(...)`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return all columns, without `properties` if includeProperties is false."""
        from eruca._spark.columns import MESSAGE_COLUMNS, make_schema
        from eruca._spark.source.options import read_options

        options = read_options(self.options)
        wanted = [each for each in MESSAGE_COLUMNS if options.include_properties or each.name != "properties"]
        return make_schema(wanted)

    def reader(self, schema: StructType) -> Any:
        """Return the reader of a batch."""
        from eruca._spark.columns import MESSAGE_COLUMNS, choose_columns
        from eruca._spark.source.batch import TopicReader
        from eruca._spark.source.options import check_for_batch, read_options

        options = read_options(self.options)
        check_for_batch(options)
        return TopicReader(options, choose_columns(schema, MESSAGE_COLUMNS))

    def streamReader(self, schema: StructType) -> Any:
        """Return the reader of a stream."""
        from eruca._spark.columns import MESSAGE_COLUMNS, choose_columns
        from eruca._spark.source.options import check_for_stream, read_options
        from eruca._spark.source.stream import TopicStreamReader

        options = read_options(self.options)
        check_for_stream(options)
        return TopicStreamReader(options, choose_columns(schema, MESSAGE_COLUMNS))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer of a batch."""
        from eruca._spark.sink.writer import TopicWriter

        return TopicWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer of a stream."""
        from eruca._spark.sink.writer import TopicStreamWriter

        return TopicStreamWriter(self.options, schema, overwrite)

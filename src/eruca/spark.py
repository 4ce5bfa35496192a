"""Topics and store directories in Spark: the data sources, bodies into columns, and the jobs as functions.

Spark finds `format("rocketmq")` and `format("rocketmq-store")` by itself; what is here is for Python code around them.
"""

from __future__ import annotations

from eruca._spark.cluster import Access
from eruca._spark.datasource import RocketMQSource
from eruca._spark.decoding import decode_avro, decode_json, decode_protobuf, set_bad_aside, split_bad
from eruca._spark.pipelines.inputs import MessageInput, open_messages
from eruca._spark.pipelines.stats import count_traffic, make_histogram
from eruca._spark.session import make_session
from eruca._spark.source.groupcommits import commit_progress
from eruca._spark.store.datasource import StoreSource

__all__ = [
    "Access",
    "MessageInput",
    "RocketMQSource",
    "StoreSource",
    "commit_progress",
    "count_traffic",
    "decode_avro",
    "decode_json",
    "decode_protobuf",
    "make_histogram",
    "make_session",
    "open_messages",
    "set_bad_aside",
    "split_bad",
]

"""Topics and store directories in Spark: the data sources, decoding of bodies, and the jobs of `eruca pipeline`.

Spark finds `format("rocketmq")` and `format("rocketmq-store")` automatically; import this module for everything else.
"""

from __future__ import annotations

from eruca._spark.requirements import explain_missing

try:
    from eruca._spark.cluster import Access
    from eruca._spark.datasource import RocketMQSource
    from eruca._spark.decoding import (
        BatchWriter,
        SchemaRegistry,
        decode_avro,
        decode_json,
        decode_protobuf,
        set_bad_aside,
        split_bad,
    )
    from eruca._spark.pipelines.archive.compaction import compact_archive
    from eruca._spark.pipelines.archive.job import read_archive, run_archive
    from eruca._spark.pipelines.audit import run_audit
    from eruca._spark.pipelines.dlq import count_dead_letters, list_dead_letters, run_dlq
    from eruca._spark.pipelines.fsck import run_fsck
    from eruca._spark.pipelines.inputs import MessageInput, open_messages
    from eruca._spark.pipelines.query import QueryResult, run_query
    from eruca._spark.pipelines.rebuild import run_rebuild
    from eruca._spark.pipelines.replay import ReplayOptions, run_replay
    from eruca._spark.pipelines.stats import count_traffic, make_histogram, run_stats
    from eruca._spark.pipelines.summary import JobSummary
    from eruca._spark.session import make_session, register_sources
    from eruca._spark.source.groupcommits import ProgressCommits, commit_progress
    from eruca._spark.source.lag import LagListener, QueryLag, TopicLag, lag_of, watch_lag
    from eruca._spark.store.datasource import StoreSource
except ImportError as error:
    problem = explain_missing(error, __name__)
    if problem is None:
        raise
    raise ImportError("{} ({})".format(*problem), name=error.name) from error

__all__ = [
    "Access",
    "BatchWriter",
    "JobSummary",
    "LagListener",
    "MessageInput",
    "ProgressCommits",
    "QueryLag",
    "QueryResult",
    "ReplayOptions",
    "RocketMQSource",
    "SchemaRegistry",
    "StoreSource",
    "TopicLag",
    "commit_progress",
    "compact_archive",
    "count_dead_letters",
    "count_traffic",
    "decode_avro",
    "decode_json",
    "decode_protobuf",
    "lag_of",
    "list_dead_letters",
    "make_histogram",
    "make_session",
    "open_messages",
    "read_archive",
    "register_sources",
    "run_archive",
    "run_audit",
    "run_dlq",
    "run_fsck",
    "run_query",
    "run_rebuild",
    "run_replay",
    "run_stats",
    "set_bad_aside",
    "split_bad",
    "watch_lag",
]

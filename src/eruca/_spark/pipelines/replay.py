"""`replay`: sends messages again: those of a time range, with certain keys, or the dead letters of a group.

A replay has an id, derived from the options that select the messages and the destination. Eruca brokers drop messages
of a replay that they have already stored. An interrupted replay is simply run again: nothing is missing or sent twice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as sf

from eruca._ground.times import from_epoch_ms
from eruca._spark.cluster import Access, Cluster
from eruca._spark.pipelines.archive.frames import count_good
from eruca._spark.pipelines.archive.plan import make_access_options
from eruca._spark.pipelines.inputs import MessageInput, describe_input, open_messages
from eruca._spark.pipelines.summary import JobSummary, count_bad
from eruca._spark.pipelines.tracking import track_job
from eruca._wire.names import DLQ_PREFIX
from eruca._wire.properties import RESERVED, RETRY_TOPIC
from eruca.errors import ConfigError, RequestRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Properties of a replayed message: the id of the replay, and the id of the original message.
REPLAY: Final = "ERUCA_REPLAY"
REPLAY_OF: Final = "ERUCA_REPLAY_OF"

_ORDER: Final = ("storeTimestamp", "topic", "broker", "queueId", "queueOffset")
# Rows are passed in slices of this duration.
_SLICE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What a replay sends, where to, and how fast."""

    # The destination; empty: the topic each message came from.
    topic: str = ""
    # Messages that have one of these keys.
    keys: Sequence[str] = ()
    # Messages with one of these ids.
    ids: Sequence[str] = ()
    tags: Sequence[str] = ()
    # Replay the dead letters of this group instead of a topic.
    dead_letters_of: str = ""
    # At most this many messages per second; 0 is unlimited.
    rate: float = 0
    # Number of sending tasks; with more than one, messages are ordered by queue, not by time.
    parallel: int = 1
    # Part of the id; a new name sends the same messages again.
    name: str = ""
    dry_run: bool = False


# -- frames ------------------------------------------------------------------------------------------------------------


def choose_messages(messages: Any, options: ReplayOptions) -> Any:
    """Select the messages to send again."""
    if options.keys:
        messages = messages.where(sf.arrays_overlap("keys", sf.array(*[sf.lit(key) for key in options.keys])))
    if options.ids:
        messages = messages.where(sf.col("messageId").isin(list(options.ids)))
    if options.tags:
        messages = messages.where(sf.col("tags").isin(list(options.tags)))
    return messages


def prepare_replay(messages: Any, options: ReplayOptions, replay_id: str) -> Any:
    """Return the frame to write: the same messages always produce the same rows, in the same order and tasks.

    Properties that brokers and consumers added are dropped; all others are kept.
    """
    ways = [*sorted(RESERVED), REPLAY, REPLAY_OF]
    origin = sf.coalesce(sf.element_at("properties", RETRY_TOPIC), sf.col("topic"))
    spread = messages.repartition(options.parallel, "topic", "broker", "queueId")
    own = sf.map_filter("properties", lambda name, _: ~name.isin(ways))
    marks = sf.create_map(sf.lit(REPLAY), sf.lit(replay_id), sf.lit(REPLAY_OF), sf.col("messageId"))
    return spread.sortWithinPartitions(*_ORDER).select(
        (sf.lit(options.topic) if options.topic else origin).alias("topic"),
        "body",
        "tags",
        "keys",
        # Messages of one queue go to one queue again, so that their order is kept.
        sf.concat_ws("/", "topic", "broker", "queueId").alias("shardingKey"),
        "flag",
        sf.map_concat(sf.coalesce(own, sf.create_map().cast("map<string,string>")), marks).alias("properties"),
    )


def limit_rate(frame: Any, rows_per_second: float, tasks: int = 1) -> Any:
    """Limit the rows per second; `tasks` tasks run at the same time."""
    if rows_per_second <= 0:
        return frame
    return frame.mapInArrow(make_throttle(rows_per_second / tasks), frame.schema)


def make_throttle(
    rows_per_second: float, sleep: Callable[[float], None] | None = None, now: Callable[[], float] | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that passes batches in slices, at most at the given rate."""
    rows = max(1, int(rows_per_second * _SLICE_S))

    def throttle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Resolved in the task: what a closure holds would be pickled.
        wait_for, tell = sleep or time.sleep, now or time.monotonic
        begun, passed = tell(), 0
        for batch in batches:
            for at in range(0, batch.num_rows, rows):
                wait = begun + passed / rows_per_second - tell()
                if wait > 0:
                    wait_for(wait)
                part = batch.slice(at, rows)
                passed += part.num_rows
                yield part

    return throttle


# -- the job -----------------------------------------------------------------------------------------------------------


def name_replay(wanted: MessageInput, options: ReplayOptions) -> str:
    """Return the id of a replay: the same for the same messages and destination."""
    facts = {
        **describe_input(wanted),
        "to": options.topic,
        "keys": sorted(options.keys),
        "ids": sorted(options.ids),
        "tags": sorted(options.tags),
        "deadLettersOf": options.dead_letters_of,
        "parallel": options.parallel,
        "name": options.name,
    }
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=12).hexdigest()


def run_replay(session: SparkSession, wanted: MessageInput, options: ReplayOptions, target: Access) -> JobSummary:
    """Send messages of an input again. Without an end time, it ends now; the summary contains the time."""
    wanted = complete_input(wanted, options)
    replay_id = name_replay(wanted, options)
    with track_job(session, "replay") as summary:
        messages = choose_messages(open_messages(session, wanted, summary.warnings), options)
        until = "" if wanted.until is None else wanted.until.isoformat(timespec="milliseconds")
        summary.facts |= {"id": replay_id, "until": until}
        good = sf.col("body").isNotNull()
        messages, tell = count_good(messages, good)
        messages = messages.where(good)
        if options.dry_run:
            messages.write.format("noop").mode("overwrite").save()
            summary.facts["delivery"] = "none: a dry run"
        else:
            _send(messages, options, target, replay_id, summary)
        count_bad(summary, "body", tell(summary))
    return summary


def complete_input(wanted: MessageInput, options: ReplayOptions) -> MessageInput:
    """Return the input with the dead-letter topic and an end time. Raises ConfigError if no topic is selected."""
    if options.dead_letters_of:
        if wanted.topics or wanted.pattern:
            raise ConfigError("--dlq and --topic are mutually exclusive", hint="give only one of them")
        wanted = replace(wanted, topics=(f"{DLQ_PREFIX}{options.dead_letters_of}",))
    if not wanted.topics and not wanted.pattern:
        raise ConfigError("no messages are selected", hint="give --topic or --dlq")
    if wanted.until is None:
        wanted = replace(wanted, until=from_epoch_ms(int(time.time() * 1000)))
    return wanted


def _send(messages: Any, options: ReplayOptions, target: Access, replay_id: str, summary: JobSummary) -> None:
    frame = limit_rate(prepare_replay(messages, options, replay_id), options.rate, options.parallel)
    writer = frame.write.format("rocketmq").mode("append").options(**make_access_options(target))
    if options.topic:
        writer = writer.option("topic", options.topic)
    if _keeps_marks(target):
        writer = writer.option("delivery", "idempotent").option("writeId", f"replay-{replay_id}")
        summary.facts["delivery"] = "idempotent: running it again adds nothing"
    else:
        summary.facts["delivery"] = "at-least-once"
        summary.warnings.append("not all brokers are Eruca brokers: running this replay again sends all messages again")
    writer.save()
    summary.outputs["topic"] = options.topic or "the topic each message came from"


def _keeps_marks(access: Access) -> bool:
    """Whether all brokers drop messages of a replay that they have already stored."""

    async def ask() -> bool:
        for address in (await cluster.connection.list_masters()).values():
            try:
                if not await cluster.connection.calls.drops_duplicates(address):
                    return False
            except RequestRefused:
                return False  # Java brokers do this in their first seconds
        return True

    with Cluster(access) as cluster:
        return cluster.run(cluster.insist(ask))

"""`replay`: messages of a time range, with some keys, or the dead letters of a group, sent to a topic again.

A replay has an id, made of all that says what it sends and where to. Brokers of Eruca drop what they have stored of it
already, so a replay that was cut off is simply run again: nothing is missing then, and nothing is there twice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import functions as sf

from eruca._spark.cluster import Access, Cluster
from eruca._spark.pipelines.archive.frames import count_good
from eruca._spark.pipelines.archive.plan import make_access_options
from eruca._spark.pipelines.inputs import MessageInput, open_messages
from eruca._spark.pipelines.summary import JobSummary
from eruca._spark.pipelines.tracking import track_job
from eruca._wire.bodies import KVTable
from eruca._wire.codes import RequestCode
from eruca._wire.headers import EmptyHeader
from eruca._wire.names import DLQ_PREFIX
from eruca._wire.once import ONCE_KEY
from eruca._wire.properties import ERUCA_ONCE, RESERVED, RETRY_TOPIC
from eruca.errors import ConfigError, RequestRefused

# What a replayed message says of itself: which replay, and the id of the message it is.
REPLAY: Final = "ERUCA_REPLAY"
REPLAY_OF: Final = "ERUCA_REPLAY_OF"

_ORDER: Final = ("storeTimestamp", "topic", "broker", "queueId", "queueOffset")
# Rows that pass a bound on the rate at once.
_SLICE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What is sent again, where to and how fast."""

    # Where to; empty: each message to the topic it came from.
    topic: str = ""
    # Messages that have one of these keys.
    keys: Sequence[str] = ()
    # Messages with one of these ids.
    ids: Sequence[str] = ()
    tags: Sequence[str] = ()
    # The dead letters of this group, and no topic.
    dead_letters_of: str = ""
    # Messages a second at most; 0: as fast as can be.
    rate: float = 0
    # Tasks that send; with more than one, messages are in order by queue and not by time.
    parallel: int = 1
    # Part of the id, to send the same messages a second time on purpose.
    name: str = ""
    dry_run: bool = False


# -- frames ------------------------------------------------------------------------------------------------------------


def choose_messages(messages: Any, options: ReplayOptions) -> Any:
    """Only the messages that are to be sent again."""
    if options.keys:
        messages = messages.where(sf.arrays_overlap("keys", sf.array(*[sf.lit(key) for key in options.keys])))
    if options.ids:
        messages = messages.where(sf.col("messageId").isin(list(options.ids)))
    if options.tags:
        messages = messages.where(sf.col("tags").isin(list(options.tags)))
    return messages


def prepare_replay(messages: Any, options: ReplayOptions, replay_id: str) -> Any:
    """The frame that is written: always the same rows, in the same order and tasks, for the same messages.

    What brokers and consumers wrote on a message goes away, and all else goes along.
    """
    ways = [*sorted(RESERVED), ERUCA_ONCE, REPLAY, REPLAY_OF]
    origin = sf.coalesce(sf.element_at("properties", RETRY_TOPIC), sf.col("topic"))
    spread = messages.repartition(options.parallel, "topic", "broker", "queueId")
    own = sf.map_filter("properties", lambda name, _: ~name.isin(ways))
    marks = sf.create_map(sf.lit(REPLAY), sf.lit(replay_id), sf.lit(REPLAY_OF), sf.col("messageId"))
    return spread.sortWithinPartitions(*_ORDER).select(
        (sf.lit(options.topic) if options.topic else origin).alias("topic"),
        "body",
        "tags",
        "keys",
        # What was in one queue comes to one queue again, so that its order is kept.
        sf.concat_ws("/", "topic", "broker", "queueId").alias("shardingKey"),
        "flag",
        sf.map_concat(sf.coalesce(own, sf.create_map().cast("map<string,string>")), marks).alias("properties"),
    )


def limit_rate(frame: Any, rows_per_second: float, tasks: int = 1) -> Any:
    """The same rows, but no more of them in a second; `tasks` of them run at the same time."""
    if rows_per_second <= 0:
        return frame
    return frame.mapInArrow(make_throttle(rows_per_second / tasks), frame.schema)


def make_throttle(
    rows_per_second: float, sleep: Callable[[float], None] | None = None, now: Callable[[], float] | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that lets batches of rows pass, in slices, no faster than that."""
    rows = max(1, int(rows_per_second * _SLICE_S))

    def throttle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Found here, in the task: a function that is sent there takes along what it holds.
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
    """The id of a replay: the same for the same messages to the same place."""
    facts = {
        **wanted.describe(),
        "to": options.topic,
        "keys": sorted(options.keys),
        "ids": sorted(options.ids),
        "tags": sorted(options.tags),
        "deadLettersOf": options.dead_letters_of,
        "parallel": options.parallel,
        "name": options.name,
    }
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=12).hexdigest()


def run_replay(session: Any, wanted: MessageInput, options: ReplayOptions, target: Access) -> JobSummary:
    """Send messages of an input to a topic again. Without an end in time it ends now, and the summary says when."""
    wanted = complete_input(wanted, options)
    replay_id = name_replay(wanted, options)
    with track_job(session, "replay") as summary:
        messages = choose_messages(open_messages(session, wanted, summary.warnings), options)
        summary.facts |= {"id": replay_id, "until": wanted.until_ms}
        good = sf.col("body").isNotNull()
        messages, tell = count_good(messages, good)
        messages = messages.where(good)
        if options.dry_run:
            messages.write.format("noop").mode("overwrite").save()
            summary.facts["delivery"] = "none: a dry run"
        else:
            _send(messages, options, target, replay_id, summary)
        summary.set_aside("body", tell(summary))
    return summary


def complete_input(wanted: MessageInput, options: ReplayOptions) -> MessageInput:
    """The input with the topic of dead letters and with an end in time, and without what would be endless."""
    if options.dead_letters_of:
        if wanted.topics or wanted.pattern:
            raise ConfigError("--dlq and --topic name different messages", hint="give one of them")
        wanted = replace(wanted, topics=(f"{DLQ_PREFIX}{options.dead_letters_of}",))
    if not wanted.topics and not wanted.pattern:
        raise ConfigError("which messages?", hint="give --topic or --dlq")
    if wanted.until_ms is None:
        wanted = replace(wanted, until_ms=int(time.time() * 1000))
    return wanted


def _send(messages: Any, options: ReplayOptions, target: Access, replay_id: str, summary: JobSummary) -> None:
    frame = limit_rate(prepare_replay(messages, options, replay_id), options.rate, options.parallel)
    writer = frame.write.format("rocketmq").mode("append").options(**make_access_options(target))
    if options.topic:
        writer = writer.option("topic", options.topic)
    if _keeps_marks(target):
        writer = writer.option("delivery", "idempotent").option("writeId", f"replay-{replay_id}")
        summary.facts["delivery"] = "idempotent: run again, it adds nothing"
    else:
        summary.facts["delivery"] = "at-least-once"
        summary.warnings.append("these brokers are not Eruca's: run again, this replay sends all messages again")
    writer.save()
    summary.outputs["topic"] = options.topic or "the topic each message came from"


def _keeps_marks(access: Access) -> bool:
    """Do all brokers know what they have stored of a replay?"""

    async def ask() -> bool:
        for address in (await cluster.admin.list_masters()).values():
            try:
                _, body = await cluster.admin.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, EmptyHeader())
            except RequestRefused:
                return False  # as Java's do in their first seconds
            if not isinstance(body, KVTable) or ONCE_KEY not in body.table:
                return False
        return True

    with Cluster(access) as cluster:
        return cluster.run(cluster.insist(ask))

"""Our Spark sources and sink compared with the Kafka connector: same session, same rows, brokers on the same cores.

Both brokers run all the time, each with its own defaults (neither waits for the disk), and both sides alternate. A
read goes to a sink that drops its rows, a write comes from rows that Spark generates. CPU is that of all
processes involved: the JVM, the Python workers it starts, and the respective broker. Compared with an earlier checkout
each has its own session and brokers, and Kafka's side is not measured.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.parts.beside import compare_rows
from bench.parts.spark_kafka import KafkaBroker, fetch_jars, make_kafka_topic
from bench.parts.spark_session import CpuMeter, started_session
from bench.parts.spark_store import RECORD_BYTES, fill_store
from bench.runner import Aim, BenchError, Figure, Measurement, Run, Sample
from eruca._client.produce.producer import Producer
from eruca._spark.columns import MESSAGE_COLUMNS, make_schema
from tests.clients.stage import create_topic
from tests.interop.brokers import ErucaCluster

KNOWS_BEFORE = True
STORE_AIM = Aim(800_000)
READ_TOPIC = "BenchRead"
BODY_BYTES = 300
QUEUES = 16
OURS = "Eruca"
KAFKA = "Kafka"
# The aim is to be faster than Kafka.
DREAM = 1.5
_REPEATS = 3
# The aim is a rate, and the JVM needs about ten seconds of work until the copying of rows is fully compiled.
_STORE_WARM_UPS = 4
_SETTINGS = {"mappedFileSizeCommitLog": 268_435_456}
# The columns that Kafka's source has too.
_COMMON_COLUMNS = ("topic", "queueId", "queueOffset", "keys", "body", "storeTimestamp")
_CPU = "CPU us a row"
# Spark's timings of a batch.
_BATCH_PARTS = ("latestOffset", "queryPlanning", "walCommit", "getBatch", "addBatch", "commitOffsets")
_STREAM_SECONDS_MAX = 120
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class _Size:
    """How much a run does."""

    rows: int
    sink_rows: int
    batch_rows: int
    batches: int
    # The first batches of a stream, which are not counted because everything is still warming up.
    warm_batches: int


WHOLE = _Size(2_000_000, 1_000_000, 1000, 20, 5)
QUICK = _Size(20_000, 10_000, 200, 3, 1)
# In a comparison with an earlier checkout: more rounds, each with less work.
BESIDE = _Size(600_000, 300_000, 1000, 10, 3)
_LIVES = 2


@dataclass(frozen=True, slots=True)
class _Stage:
    """The session and the brokers of a run."""

    session: SparkSession
    meter: CpuMeter
    name_server: str
    store: Path
    kafka: str
    cores: int
    home: Path

    def read_ours(self, topic: str, columns: tuple[str, ...] = ()) -> DataFrame:
        """A topic of ours; all columns unless some are named."""
        reader = self.session.read.format("rocketmq").option("nameServer", self.name_server).option("subscribe", topic)
        if columns:
            reader = reader.schema(_choose_schema(columns))
        return reader.load()

    def read_kafka(self, topic: str, *, headers: bool) -> DataFrame:
        """A topic of Kafka's."""
        reader = self.session.read.format("kafka").option("kafka.bootstrap.servers", self.kafka)
        return reader.option("subscribe", topic).option("includeHeaders", str(headers).lower()).load()

    def read_store(self, directory: Path) -> DataFrame:
        """All records of a store."""
        return self.session.read.format("rocketmq-store").load(str(directory))

    def make_topic(self, name: str) -> None:
        """Make a topic of the same name and width in both."""

        async def create() -> None:
            async with Producer(self.name_server, group="bench") as producer:
                await create_topic(producer, name, QUEUES)

        asyncio.run(create())
        make_kafka_topic(self.session, self.kafka, name, QUEUES)

    def write_ours(self, rows: DataFrame, topic: str) -> None:
        """Write rows to a topic of ours."""
        writer = rows.write.format("rocketmq").option("nameServer", self.name_server).option("topic", topic)
        writer.mode("append").save()

    def write_kafka(self, rows: DataFrame, topic: str) -> None:
        """Write rows to a topic of Kafka's."""
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self.kafka).option("topic", topic)
        writer.save()

    def make_rows(self, count: int) -> DataFrame:
        """Orders: a body of 300 bytes, a key, a tag."""
        start = """concat('{"order":', id, ',"sku":"sku-', id % 1000, '","quantity":', id % 7 + 1, ',"note":"')"""
        return self.session.range(0, count, 1, 2 * self.cores).selectExpr(
            f"""cast(concat(rpad({start}, {BODY_BYTES - 2}, 'x'), '"}}') as binary) body""",
            "concat('order-', id) key",
            "concat('Tag', id % 4) tag",
            "id",
        )


def run_bench(run: Run) -> None:
    """Measure the network source, the store source, the sink and the latency of a small batch."""
    if run.before is not None:
        compare_rows(run, "spark", asdict(QUICK if run.quick else BESIDE), lives=_LIVES)
        return
    run.repeats = min(run.repeats, _REPEATS)
    size = QUICK if run.quick else WHOLE
    with run.scratch() as directory, _set_up(run, directory) as stage:
        with run.show("fill both topics", 2) as step:
            _fill(stage, size.rows, step)
        _measure_network(run, stage, size.rows)
        _measure_store(run, stage, size.rows)
        _measure_batches(run, stage, size)
        _measure_sink(run, stage, size.sink_rows)


@contextmanager
def _set_up(run: Run, directory: Path) -> Iterator[_Stage]:
    jars = fetch_jars()
    cores = len(os.sched_getaffinity(0))
    with (
        ErucaCluster(directory / "eruca", _SETTINGS) as ours,
        KafkaBroker(jars, directory / "kafka") as kafka,
        started_session(directory / "spark", cores, jars.connector) as (session, driver),
    ):
        run.note(
            f"Spark {pyspark.__version__} on local[{cores}], Kafka connector {jars.connector_version}, "
            f"Kafka broker {jars.broker_version}; bodies of {BODY_BYTES} B in {QUEUES} queues"
        )
        run.note(f"Java options of the session, for both sides: {session.conf.get('spark.driver.defaultJavaOptions')}")
        run.note("of these and the Unix sockets to Python workers, only the collector matters to the Kafka connector")
        run.note("CPU is that of the JVM, of the Python processes it starts, and of the broker in question")
        meter = CpuMeter(driver, {OURS: ours.pid, KAFKA: kafka.pid})
        store = directory / "eruca" / "data" / "store"
        yield _Stage(session, meter, ours.name_server, store, kafka.address, cores, directory)


def _choose_schema(columns: tuple[str, ...]) -> Any:
    return make_schema([column for column in MESSAGE_COLUMNS if column.name in columns])


def _choose_ours(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("body", "array(key) keys", "tag tags")


def _choose_kafkas(rows: DataFrame, *more_headers: str) -> DataFrame:
    headers = ", ".join(("struct('TAGS' as key, cast(tag as binary) as value)", *more_headers))
    return rows.selectExpr("body value", "cast(key as binary) key", f"array({headers}) headers")


def _fill(stage: _Stage, count: int, step: Callable[[], None]) -> None:
    stage.make_topic(READ_TOPIC)
    rows = stage.make_rows(count)
    stage.write_ours(_choose_ours(rows), READ_TOPIC)
    step()
    # Every message of ours has an id, so there is one among Kafka's headers too.
    message_id = "struct('UNIQ_KEY' as key, cast(lpad(hex(id), 32, '0') as binary) as value)"
    stage.write_kafka(_choose_kafkas(rows, message_id), READ_TOPIC)
    step()
    ours, kafka = stage.read_ours(READ_TOPIC), stage.read_kafka(READ_TOPIC, headers=True)
    _check_rows(OURS, ours.select("body"), count)
    _check_rows(KAFKA, kafka.select(F.col("value").alias("body")), count)


def _check_rows(whose: str, bodies: DataFrame, count: int) -> None:
    """Check that the source leaves nothing out."""
    found = bodies.agg(F.count("*"), F.sum(F.length("body"))).first()
    if found is None or tuple(found) != (count, count * BODY_BYTES):
        raise BenchError(f"{whose}: {count} rows of {BODY_BYTES} B were written, and (rows, bytes) {found} are read")


def _drop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _time(stage: _Stage, whose: str, rows: int, work: Callable[[], None]) -> Sample:
    """Return rows per second, and the CPU time of all processes involved."""
    before = stage.meter.read()
    begun = time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    after = stage.meter.read()
    parts = {name: (after[name] - before[name]) / rows * 1e6 for name in ("JVM", "Python", whose)}
    details = {_CPU: sum(parts.values()), "JVM": parts["JVM"], "Python": parts["Python"], "broker": parts[whose]}
    return Sample(rows / seconds, details)


def _measure(
    run: Run,
    name: str,
    ours: Measurement,
    peers: dict[str, Measurement],
    *,
    ahead_of: str = "",
    aim: Aim | None = None,
    warm_ups: int = 1,
) -> Figure:
    """Measure after a warm-up; the aim may be to be ahead of a peer. Then the same by CPU."""
    for measurement in (ours, *peers.values()) * warm_ups:
        measurement()
    figure = run.measure(name, "rows/s", ours, peers, aim=aim)
    if ahead_of:
        figure.aim = Aim(statistics.median([sample.value for sample in figure.peers[ahead_of]]))
        ratio = figure.ratio_to(ahead_of)
        run.note(f"{name}: {ratio:.2f} times Kafka's rows/s; the stretch goal is {DREAM}")

    def convert(samples: list[Sample]) -> Sample:
        return Sample(max(0.01, statistics.median([sample.details[_CPU] for sample in samples])))

    peer_samples = {peer: convert(samples) for peer, samples in figure.peers.items()}
    run.add_figure(f"{name}, CPU", "us/row", convert(figure.samples), peer_samples)
    return figure


# -- sources -----------------------------------------------------------------------------------------------------------


def _measure_network(run: Run, stage: _Stage, rows: int) -> None:
    def read_ours(columns: tuple[str, ...] = ()) -> Measurement:
        return lambda: _time(stage, OURS, rows, lambda: _drop(stage.read_ours(READ_TOPIC, columns)))

    def read_kafka(*, headers: bool) -> Measurement:
        return lambda: _time(stage, KAFKA, rows, lambda: _drop(stage.read_kafka(READ_TOPIC, headers=headers)))

    names = tuple(column.name for column in MESSAGE_COLUMNS if column.name != "properties")
    _measure(
        run,
        "network source, without properties",
        read_ours(names),
        {
            "Kafka connector, without headers": read_kafka(headers=False),
            "the network source, only columns that Kafka has": read_ours(_COMMON_COLUMNS),
        },
        ahead_of="Kafka connector, without headers",
    )
    _measure(
        run,
        "network source, all columns",
        read_ours(),
        {"Kafka connector, with headers": read_kafka(headers=True)},
        ahead_of="Kafka connector, with headers",
    )


def _measure_store(run: Run, stage: _Stage, rows: int) -> None:
    """Read files with records of the published size, and those of the running broker before more is written to them."""
    directory = stage.home / "store"
    with run.show("write a store", 1) as step:
        fill_store(directory, rows)
        step()

    def read(place: Path) -> Measurement:
        return lambda: _time(stage, OURS, rows, lambda: _drop(stage.read_store(place)))

    _check_store(stage.read_store(directory), rows)
    _measure(
        run,
        f"store source, all columns, records of {RECORD_BYTES} B",
        read(directory),
        {
            "the store of the running broker, its records as Kafka's": read(stage.store),
            "Kafka connector, with headers": lambda: _time(
                stage, KAFKA, rows, lambda: _drop(stage.read_kafka(READ_TOPIC, headers=True))
            ),
        },
        aim=STORE_AIM,
        warm_ups=1 if run.quick else _STORE_WARM_UPS,
    )


def _check_store(records: DataFrame, count: int) -> None:
    """Check that all records are there, with all properties and correct CRCs, and have the stated size."""
    found = records.agg(
        F.count("*"), F.count_if("crcOk"), F.sum(F.size("properties")), F.min("size"), F.max("size")
    ).first()
    assert found is not None
    smallest, largest = found[3:]
    if tuple(found[:3]) != (count, count, 3 * count) or not RECORD_BYTES - 6 <= smallest <= largest <= RECORD_BYTES:
        raise BenchError(f"{count} records of {RECORD_BYTES} B were written, and {found} are read")


# -- small batches -----------------------------------------------------------------------------------------------------


def _measure_batches(run: Run, stage: _Stage, size: _Size) -> None:
    """How long one small batch of a stream takes, from looking for new rows to having committed them."""
    peer = "Kafka connector"
    numbers = iter(range(1_000_000))

    def measure(source: str, options: dict[str, str]) -> Measurement:
        return lambda: _stream(stage, source, options, size, stage.home / f"checkpoint-{next(numbers)}")

    ours = {"nameServer": stage.name_server}
    kafka = {"kafka.bootstrap.servers": stage.kafka}
    figure = run.measure(
        f"micro-batch of {size.batch_rows} rows", "ms", measure("rocketmq", ours), {peer: measure("kafka", kafka)}
    )
    limit = statistics.median([sample.value for sample in figure.peers[peer]])
    figure.aim = Aim(limit, at_least=False)


def _stream(stage: _Stage, source: str, options: dict[str, str], size: _Size, checkpoint: Path) -> Sample:
    rows = stage.session.readStream.format(source).options(**options).option("subscribe", READ_TOPIC)
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(size.batch_rows))
    writer = rows.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    wanted = size.warm_batches + size.batches
    deadline = time.monotonic() + _STREAM_SECONDS_MAX
    try:
        while True:
            done = [each for each in query.recentProgress if each["numInputRows"]]
            if len(done) >= wanted:
                break
            if query.exception() is not None or time.monotonic() > deadline:
                raise BenchError(f"{source}: {len(done)} of {wanted} batches came: {query.exception()}")
            time.sleep(_POLL_S)
    finally:
        query.stop()
    counted = done[size.warm_batches : wanted]
    spans = [each["durationMs"] for each in counted]
    details = {part: statistics.median([span.get(part, 0) for span in spans]) for part in _BATCH_PARTS}
    rest = [span["triggerExecution"] - sum([span.get(part, 0) for part in _BATCH_PARTS]) for span in spans]
    details["other"] = statistics.median(rest)
    details["rows a batch"] = statistics.median([each["numInputRows"] for each in counted])
    return Sample(statistics.median([span["triggerExecution"] for span in spans]), details)


# -- sink --------------------------------------------------------------------------------------------------------------


def _measure_sink(run: Run, stage: _Stage, count: int) -> None:
    peer = "Kafka connector"
    numbers = iter(range(1_000_000))
    written: list[str] = []

    def write(whose: str, save: Callable[[DataFrame, str], None], choose: Callable[[DataFrame], DataFrame]) -> Sample:
        topic = f"BenchSink{next(numbers)}"
        stage.make_topic(topic)
        rows = choose(stage.make_rows(count))
        sample = _time(stage, whose, count, lambda: save(rows, topic))
        if whose == OURS:
            _check_rows(whose, stage.read_ours(topic, ("body",)), count)
        else:
            written.append(topic)
        return sample

    _measure(
        run,
        "sink",
        lambda: write(OURS, stage.write_ours, _choose_ours),
        {peer: lambda: write(KAFKA, stage.write_kafka, _choose_kafkas)},
        ahead_of=peer,
    )
    # Kafka's side is only checked once.
    bodies = stage.read_kafka(written[-1], headers=False).select(F.col("value").alias("body"))
    _check_rows(KAFKA, bodies, count)

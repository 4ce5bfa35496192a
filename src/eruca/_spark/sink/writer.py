"""Write frames and streams to topics.

Each task sends its rows in requests of many rows. Several requests are in flight at a time, but never two for the same
queue, so rows of a queue stay in order, and a retry starts with the first row that was not acknowledged.

With `delivery=idempotent` every row is marked with the query, the batch, the partition and its number in the partition,
and the broker drops rows it has already stored (`broker.sending.once`). This is correct as long as a partition that is
written again has the same rows in the same order, and each row goes to the same queue again:

- The rows are those of a replayed micro-batch or of a task that is run again. Spark computes the same rows if the
  source can be read again (files, topics, tables) and nothing in between depends on time or chance
  (`current_timestamp`, `rand` without a seed, the order in which shuffled rows happened to arrive).
- Queues are looked up when a batch is planned, and sent to its tasks. If the queues of the topic or `batchRows` change
  between an interrupted batch and its replay, rows of this one batch may be stored twice. The same is true for topics
  named by a column: each task looks up their queues itself.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from eruca._client.produce.choosing import explain_not_writable
from eruca._client.produce.sending import Parcel, Sender
from eruca._client.session.calls import explain_refusal
from eruca._ground.durations import to_ms
from eruca._spark.cluster import RETRIES, Cluster
from eruca._spark.sink.encoding import Request, RowPacker
from eruca._spark.sink.options import SinkOptions, check_columns, wants_timer
from eruca._spark.worker import prepare_worker
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.once import ONCE_GROUP
from eruca._wire.properties import WAIT
from eruca.errors import ConfigError, ErucaError, NetError, NoRoute, RequestRefused, SendFailed, WireError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

# The producer group of rows that are sent at least once.
SINK_GROUP: Final = "ERUCA_SPARK_SINK"
# How long a broker may take to register with a restarted name server, and how often to look for it.
_REGISTRATION_S: Final = 30.0
_PAUSE_S: Final = 0.1
# Answers after which a message is stored: with SLAVE_NOT_AVAILABLE there is no slave to wait for.
_STORED: Final = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.SLAVE_NOT_AVAILABLE)})
# Stored, but not yet on disk or on the slave; a retry may confirm it.
_UNSURE: Final = frozenset({int(ResponseCode.FLUSH_DISK_TIMEOUT), int(ResponseCode.FLUSH_SLAVE_TIMEOUT)})


@dataclass(slots=True)
class Written(WriterCommitMessage):
    """The result of a task."""

    partition: int
    rows: int
    bytes: int
    skipped: int
    # Why the first skipped row was skipped.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What the driver sends to its tasks."""

    options: SinkOptions
    # The queues of the topic in the options, in the order that sharding keys refer to.
    queues: Sequence[MessageQueue]


def plan_sink(given: Mapping[str, str], schema: StructType, *, overwrite: bool, patient: bool = False) -> SinkPlan:
    """Check the options and columns, and look up the queues. Raises ConfigError and NoRoute."""
    if overwrite:
        raise ConfigError(
            "a topic cannot be overwritten", hint='write with .mode("append"), a stream with .outputMode("append")'
        )
    options = SinkOptions.of(given)
    check_columns(schema, options)
    with Cluster(options.access) as cluster:
        queues: Sequence[MessageQueue] = ()
        if options.topic:
            queues = cluster.run(_find_queues(cluster, options.topic, patient=patient))
        if options.is_idempotent:
            _refuse_java(cluster, queues, "delivery=idempotent", "drops rows it has already stored")
        if wants_timer(schema, options):
            _refuse_java(cluster, queues, "delay and deliverAt", "supports arbitrary delays", hint="use delay levels")
    return SinkPlan(options, queues)


async def _find_queues(cluster: Cluster, topic: str, *, patient: bool) -> Sequence[MessageQueue]:
    """Return the queues of a topic; if `patient`, wait for a broker that has not registered again yet."""
    deadline = asyncio.get_running_loop().time() + _REGISTRATION_S
    while True:
        try:
            route = await cluster.insist(lambda: cluster.connection.routes.get_for_send(topic))
            break
        except NoRoute:
            if not patient or asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_PAUSE_S)
    if not route.write_queues:
        raise explain_not_writable(route)
    return route.write_queues


def _refuse_java(
    cluster: Cluster, queues: Sequence[MessageQueue], what: str, ability: str, hint: str = "use delivery=at-least-once"
) -> None:
    """Raise ConfigError unless every broker that receives rows is an Eruca broker."""
    if queues:
        masters = {queue.broker_name: cluster.connection.find_master(queue.broker_name) for queue in queues}
    else:
        masters = cluster.run(cluster.insist(cluster.connection.list_masters))
    for name, address in sorted(masters.items()):
        if not cluster.run(cluster.insist(partial(cluster.connection.calls.drops_duplicates, address))):
            raise ConfigError(
                f"{what} needs Eruca brokers: only an Eruca broker {ability}, and {name} at {address} is not one",
                hint=hint,
            )


# -- tasks -------------------------------------------------------------------------------------------------------------


class Lanes:
    """Sends requests: one at a time per queue, to several queues at a time."""

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        self._routes = cluster.connection.routes
        self._options = options
        self._timeout_ms = to_ms("timeout", options.access.timeout)
        self._sender = Sender(cluster.connection.session, ONCE_GROUP if options.is_idempotent else SINK_GROUP)
        self._batch_properties = f"{WAIT}\x01{'true' if options.wait_store_ok else 'false'}"
        self._waiting: dict[MessageQueue, deque[Request]] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None

    async def put(self, request: Request) -> None:
        """Accept a request, and wait while too many are in flight. Raises the error of an earlier request."""
        while self._count >= self._options.in_flight:
            await self._wait()
        self._count += 1
        self._waiting.setdefault(request.queue, deque()).append(request)
        if request.queue not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._send_all(request.queue))
            self._tasks[request.queue] = task
        # Send the request before the next rows are packed.
        await asyncio.sleep(0)
        self._raise_failure()

    async def finish(self) -> None:
        """Wait until all requests are stored. Raises the first error."""
        while self._count:
            await self._wait()
        self._raise_failure()

    async def stop(self) -> None:
        """Cancel all requests."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self) -> None:
        self._raise_failure()
        self._changed.clear()
        await self._changed.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _send_all(self, queue: MessageQueue) -> None:
        requests = self._waiting[queue]
        try:
            while requests:
                await self._deliver(requests[0])
                requests.popleft()
                self._count -= 1
                self._changed.set()
        except Exception as error:
            self._failure = error
            self._changed.set()
        finally:
            del self._tasks[queue]

    async def _deliver(self, request: Request) -> None:
        """Send a request until it is stored or the retries are used up."""
        parcel = self._make_parcel(request)
        attempts: list[str] = []
        while len(attempts) <= self._options.access.retries:
            if attempts:
                await asyncio.sleep(RETRIES.after(len(attempts)))
                await self._refresh(parcel.topic)
            try:
                answer = await self._sender.begin(parcel, request.queue, self._timeout_ms)
                if answer.code in _STORED:
                    return
                if answer.code not in _UNSURE:
                    raise explain_refusal(answer, f"broker {request.queue.broker_name}")
                attempts.append(f"{request.queue.broker_name}: {ResponseCode(answer.code).name}")
            except (NetError, RequestRefused, WireError) as error:
                if isinstance(error, RequestRefused) and not error.retryable:
                    raise
                attempts.append(str(error))
        what = f"{request.rows} rows for {request.queue.topic}"
        raise SendFailed(
            f"{what} were not stored after {len(attempts)} attempts: {attempts[-1]}",
            attempts,
            hint="increase the option retries if brokers are unavailable for longer",
        )

    async def _refresh(self, topic: str) -> None:
        """Look up the route again, as the broker may have moved; a failure is only logged."""
        try:
            await self._routes.refresh(topic)
        except ErucaError as error:
            log.info("the route of %s could not be looked up: %s", topic, error)

    def _make_parcel(self, request: Request) -> Parcel:
        if request.properties is None:
            code, properties = RequestCode.SEND_BATCH_MESSAGE, self._batch_properties
        else:
            code, properties = RequestCode.SEND_MESSAGE_V2, request.properties
        return Parcel(
            request.queue.topic, request.body, properties, "", request.sys_flag, flag=request.flag, code=int(code)
        )


def write_rows(
    plan: SinkPlan, batches: Iterable[pa.RecordBatch], partition: int, once_prefix: str | None = None
) -> Written:
    """Send the rows of a partition; returns when all are stored."""
    prepare_worker()
    with Cluster(plan.options.access) as cluster:
        packer = RowPacker(plan.options, partition, cluster.connection.session.unique_ids, once_prefix)
        return cluster.run(_write(cluster, plan, packer, batches, partition))


async def _write(
    cluster: Cluster, plan: SinkPlan, packer: RowPacker, batches: Iterable[pa.RecordBatch], partition: int
) -> Written:
    lanes = Lanes(cluster, plan.options)
    sent_bytes = 0
    try:
        for batch in batches:
            for topic in packer.list_unknown_topics(batch):
                queues = await _find_queues(cluster, topic, patient=True)
                # Use the queues that the driver found, so that every attempt of the task uses the same ones.
                packer.add_topic(topic, plan.queues if topic == plan.options.topic else queues)
            for request in packer.pack(batch):
                await lanes.put(request)
                sent_bytes += len(request.body)
        await lanes.finish()
    finally:
        await lanes.stop()
    bad = packer.bad
    if bad.count:
        log.warning("%d rows of partition %d were skipped: %s", bad.count, partition, bad.first)
    return Written(partition, packer.rows - bad.count, sent_bytes, bad.count, bad.first)


def name_query(query: str) -> str:
    """Return the short name of a query in marks: 22 characters, from a UUID or from a hash of another name."""
    try:
        raw = uuid.UUID(query).bytes
    except ValueError:
        raw = hashlib.blake2b(query.encode(), digest_size=16).digest()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _log_written(what: str, messages: Iterable[WriterCommitMessage | None]) -> None:
    written = [each for each in messages if isinstance(each, Written)]
    skipped = sum(each.skipped for each in written)
    log.info("%s: %d rows in %d tasks", what, sum(each.rows for each in written), len(written))
    if skipped:
        first = next(each.reason for each in written if each.skipped)
        log.warning("%s: %d rows were skipped; %s", what, skipped, first)


def _get_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written in a Spark task"
    return context


class TopicWriter(DataSourceArrowWriter):
    """Writes a frame."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.plan = plan_sink(options, schema, overwrite=overwrite)
        # All attempts of this write share it; another write has it only if writeId is the same.
        self.query = name_query(self.plan.options.write_id or str(uuid.uuid4()))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a task."""
        partition = _get_context().partitionId()
        prefix = f"{self.query}:0:{partition}" if self.plan.options.is_idempotent else None
        return write_rows(self.plan, iterator, partition, prefix)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        _log_written("batch", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed; rows that were sent stay sent."""
        _log_written("batch that failed", messages)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        # Each batch is planned again, possibly right after a restart of a broker.
        self.plan = plan_sink(options, schema, overwrite=overwrite, patient=True)
        if self.plan.options.write_id:
            raise ConfigError("writeId is for batches only", hint="the id of a stream is in its checkpoint")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a task."""
        context = _get_context()
        partition, prefix = context.partitionId(), None
        if self.plan.options.is_idempotent:
            # Spark has no other way to tell a stream writer its batch.
            query = context.getLocalProperty("sql.streaming.queryId")
            batch = context.getLocalProperty("streaming.sql.batchId")
            if query is None or batch is None:
                raise ConfigError("Spark did not provide the query and batch of a task")
            prefix = f"{name_query(query)}:{int(batch)}:{partition}"
        return write_rows(self.plan, iterator, partition, prefix)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a micro-batch are done."""
        _log_written(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed; rows that were sent stay sent."""
        _log_written(f"batch {batchId} that failed", messages)

"""`readStream.format("rocketmq")`: plans micro-batches over the queues of topics.

The planner runs in a separate process, which lives as long as the query and handles one call at a time. Tasks get a
copy of the reader without connections, and read like those of a batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from eruca._ground.clock import Clock, SystemClock
from eruca._spark.cluster import Cluster, describe_access
from eruca._spark.columns import Column
from eruca._spark.offsets import Offsets, decode_offsets, encode_offsets, sum_behind
from eruca._spark.source.bounds import check_filter, check_offsets, find_offsets, find_queues
from eruca._spark.source.dataloss import report_loss
from eruca._spark.source.groupcommits import GroupCommits, describe_group
from eruca._spark.source.microbatch import Waiting, clip_spans, find_spans, find_waiting
from eruca._spark.source.options import SourceOptions
from eruca._spark.source.partitions import PulledPartition, QueueRange, plan_partitions
from eruca._spark.source.positions import AT_LATEST
from eruca._spark.source.queuewatch import ClusterView, QueueWatch, Sight, Subscribed, View
from eruca._spark.source.readlimits import Counts, Patience, ReadLimits, RecordSizes, share_out
from eruca.errors import ErucaError

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

# Spark asks for new data every 10 ms while there is none; this is too often for brokers.
_IDLE_S: Final = 0.05

Sleep = Callable[[float], None]


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream."""

    def __init__(self, options: SourceOptions, columns: Sequence[Column]) -> None:
        self._options = options
        self._columns = tuple(columns)
        # Set only in the process of the planner.
        self._planner: StreamPlanner | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint starts."""
        return self._get_planner().find_start()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the configured limit of batches."""
        return self._get_planner().limits.describe()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; `start` if there is nothing to read yet."""
        return self._get_planner().find_end(start, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the queues ended when they were last checked."""
        return self._get_planner().describe_ends()

    def prepareForTriggerAvailableNow(self) -> None:
        """Record where all queues end now: the query stops there."""
        self._get_planner().pin_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[PulledPartition]:
        """Return the tasks of a batch."""
        return self._get_planner().plan(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of a task, in its own process."""
        from eruca._spark.source.pulling import read_partition

        assert isinstance(partition, PulledPartition)
        return read_partition(partition, self._options, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit `end` to the group, if there is one."""
        self._get_planner().commit(end)

    def stop(self) -> None:
        """Close all connections."""
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()

    def _get_planner(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self._options)
        return self._planner


class StreamPlanner:
    """Decides what each batch reads."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        cluster: Cluster | None = None,
        view: View | None = None,
        clock: Clock | None = None,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._options = options
        self.limits = ReadLimits(
            options.trigger_offsets_max,
            options.trigger_bytes_max,
            options.trigger_offsets_min,
            options.trigger_delay_max_ms,
            options.topic_offsets_min,
        )
        self._cluster = cluster or Cluster(options.access)
        self._view = view or ClusterView(self._cluster, options)
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._watch = QueueWatch(self._view, Subscribed.of(options), self._clock)
        self._patience = Patience(self._clock)
        self._sizes = RecordSizes()
        self._turn = 0
        self._sight = Sight()
        self._idle_since: float | None = None
        # Where the last batch ended.
        self._reached: Offsets = {}
        # The end of a query that reads what is available now.
        self._target: Offsets | None = None
        # The last batch: its offsets, and its tasks once they are planned.
        self._decided: tuple[Offsets, Offsets] | None = None
        self._planned: tuple[Offsets, Offsets, list[PulledPartition]] | None = None
        self._commits = GroupCommits(options.access) if options.commit_group else None

    # -- offsets -----------------------------------------------------------------------------------------------------

    def find_start(self) -> dict[str, Any]:
        """Return where a query without a checkpoint starts."""
        position = self._options.start or AT_LATEST
        queues = find_queues(self._cluster, self._options)
        check_filter(self._cluster, self._options, sorted({queue.topic for queue in queues}))
        found = find_offsets(self._cluster, queues, position, self._clock.now_ms(), no_message=self._options.no_message)
        if not position.is_end and found:
            begins, ends = self._cluster.find_begins(queues), self._cluster.find_ends(queues)
            found = check_offsets(found, begins, ends, self._options.loss)
        return self._encode(found)

    def pin_end(self) -> None:
        """Record where all queues end now."""
        self._target = dict(self._watch.look({}, must_answer=True).ends)

    def find_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; `start` if there is nothing to read yet."""
        if self._idle_since is not None:
            self._sleep(max(0.0, self._idle_since + _IDLE_S - self._clock.monotonic()))
        begin = decode_offsets(start)
        # A query that stops when everything is read must not stop because a broker is unavailable.
        self._sight = self._watch.look(begin, must_answer=self._target is not None)
        waiting = find_waiting(begin, self._sight, self._target)
        for loss in waiting.losses:
            report_loss(self._options.loss, loss)
        limits = self.limits.narrow(limit)
        end = waiting.advance(begin, self._choose_counts(waiting, limits))
        self._idle_since = self._clock.monotonic() if end == begin else None
        self._reached = end
        if end == begin:
            # Spark compares offsets as text.
            return start
        self._decided = begin, end
        return self._encode(end)

    def describe_ends(self) -> dict[str, Any] | None:
        """Return where the queues ended when they were last checked; None before that.

        Spark only reports it, so it has more: how many messages of each topic the last batch left, and how a listener
        reaches the cluster.
        """
        if not self._sight.ends:
            return None
        behind = sum_behind(self._reached, self._sight.ends)
        return encode_offsets(self._sight.ends, behind=behind, **describe_access(self._options.access))

    def _choose_counts(self, waiting: Waiting, limits: ReadLimits) -> Counts:
        """Return how many messages of each queue the next batch reads."""
        counts = waiting.counts
        total = sum(counts.values())
        # With a fixed end there is nothing to wait for.
        if self._target is None and self._patience.has_to_wait(total, limits):
            return {}
        self._turn += 1
        topic_min = limits.topic_rows_min or 0
        if limits.rows_max is not None:
            counts = share_out(limits.rows_max, counts, turn=self._turn, topic_min=topic_min)
        if limits.bytes_max is not None:
            self._measure(waiting, counts)
            costs = {queue: self._sizes.estimate(queue) for queue in counts}
            counts = share_out(limits.bytes_max, counts, turn=self._turn, costs=costs, topic_min=topic_min)
        return counts

    def _measure(self, waiting: Waiting, counts: Counts) -> None:
        """Estimate the size of messages at the start and in the middle of the batch."""
        for part in (0, 2):
            places = {q: waiting.begins[q] + (count // part if part else 0) for q, count in counts.items()}
            for queue, sizes in self._view.measure(places).items():
                self._sizes.learn(queue, sizes)

    def _encode(self, offsets: Offsets) -> dict[str, Any]:
        return encode_offsets(offsets, **describe_group(self._options.commit_group, self._options.access))

    # -- tasks -------------------------------------------------------------------------------------------------------

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[PulledPartition]:
        """Return the tasks of a batch. Spark may ask for the same batch more than once."""
        begin, last = decode_offsets(start), decode_offsets(end)
        if self._planned is not None and self._planned[:2] == (begin, last):
            return self._planned[2]
        spans = find_spans(begin, last)
        if spans:
            if self._decided == (begin, last):
                # Data loss was reported when the batch was decided.
                spans = clip_spans(spans, self._sight, lambda text: None)
            else:
                # A batch of an earlier run: much may have changed since.
                asked = {span.queue: span.begin for span in spans}
                self._sight = self._watch.look(asked, must_answer=True, only=asked)
                spans = clip_spans(spans, self._sight, lambda text: report_loss(self._options.loss, text))
        partitions = plan_partitions(
            [QueueRange(span.queue, span.begin, span.end, self._view.find_address(span.queue)) for span in spans],
            min_partitions=self._options.partitions_min,
            max_partitions=self._options.partitions_max,
            records_max=self._options.partition_records_max,
        )
        self._planned = begin, last, partitions
        return partitions

    # -- groups ------------------------------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Commit `end` to the group."""
        if self._commits is None:
            return
        try:
            self._commits.commit(self._options.commit_group, decode_offsets(end))
        except ErucaError as error:
            # The group is informational; the checkpoint is authoritative.
            log.warning("offsets of group %s could not be committed: %s", self._options.commit_group, error)

    def close(self) -> None:
        """Close all connections."""
        self._cluster.close()
        if self._commits is not None:
            self._commits.close()

"""Reads ranges of queues in a task: many pulls in flight, whose answers are taken in order as Arrow batches.

Nothing is decoded into objects. The broker decides how much one answer contains: a Java broker returns 32 messages or
256 KB (8 messages or 64 KB if they are on disk), Eruca as much as was requested. The first answer of a broker shows it;
from then on its queues are requested in ranges of that size, several at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from eruca._client.group.pulling import make_peek_header
from eruca._client.session.calls import PulledBytes, PullStatus
from eruca._ground.durations import to_seconds
from eruca._ground.limits import PULL_COUNT_MAX
from eruca._spark.cluster import RETRIES, Cluster
from eruca._spark.columns import Column
from eruca._spark.offsets import name_queue
from eruca._spark.parsing import BATCH_BYTES, BATCH_ROWS, RecordParser, split
from eruca._spark.source.answers import PullAnswer, check_answers
from eruca._spark.source.dataloss import report_loss
from eruca._spark.source.options import SourceOptions
from eruca._spark.source.partitions import QueueRange
from eruca._spark.worker import prepare_worker
from eruca._wire.codes import ResponseCode
from eruca.errors import ConnectFailed, NetError, RequestRefused, WireError

log = logging.getLogger(__name__)

# A call itself does not time out; it fails when its connection is silent while its answer is needed. A timeout would
# also count the time in which Spark processes the last batch and the answer waits in the socket.
_CALL_MS: Final = 3_600_000
# What most brokers return at once.
_SPAN_USUAL: Final = 32
# After this many complete answers in a row, a short one before them counts as an exception.
_FULL_MIN: Final = 4
# How often to ask again if a queue ends too early: a starting broker, or a slave, may catch up.
_SHORT_MAX: Final = 20
_SHORT_PAUSE_S: Final = 0.1
# Answers of a broker that is starting, stopping or overloaded.
_PASSING: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})


def read_partition(partition: Any, options: SourceOptions, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Read the ranges of a task. Raises OffsetLost, and NetError if a broker does not come back."""
    prepare_worker()
    ranges: list[QueueRange] = getattr(partition, "ranges", [])
    if not ranges:
        return  # Spark passes this for a plan without partitions
    parser = RecordParser(columns, decompress_bodies=options.decompress)
    with Cluster(options.access) as cluster:
        puller = _Puller(cluster, ranges, options)
        try:
            while answers := cluster.run(puller.take()):
                records = check_answers(answers, options)
                for part in split(records, BATCH_BYTES):
                    yield parser.parse(part, answers[0].range.queue.broker_name)
        finally:
            cluster.run(puller.close())


# -- pulling -----------------------------------------------------------------------------------------------------------


class _Stride:
    """How many offsets to request from a broker at once; learnt from its answers.

    A single short answer means nothing: brokers stop at the end of a file. Two in a row mean that there is a limit. The
    span doubles until a limit is met; then it grows in small steps, and less often after each step that was too large.
    """

    def __init__(self) -> None:
        # None: not known yet; a probe finds out.
        self.span: int | None = None
        self.is_asked = False
        self._is_bound_met = False
        self._full = 0
        self._patience = _FULL_MIN
        self._short = 0

    def learn(self, asked: int, covered: int) -> None:
        """Learn from an answer that covered `covered` of the `asked` offsets."""
        if self.span is None:
            # A complete answer shows no limit, only that there was nothing more to request.
            self.span = min(PULL_COUNT_MAX, max(covered, _SPAN_USUAL) if covered >= asked else covered)
        elif covered > asked:
            # A filter dropped messages, and there was room for more.
            self.span = min(PULL_COUNT_MAX, max(self.span, covered))
        elif covered < asked:
            self._full = 0
            if asked >= self.span > covered:
                if self._short:
                    self._shrink(max(covered, self._short))
                else:
                    self._short = covered
        elif asked == self.span:
            self._full += 1
            if self._full >= _FULL_MIN:
                self._short = 0
            if self._full >= self._patience and self.span < PULL_COUNT_MAX:
                step = max(1, self.span // 8) if self._is_bound_met else self.span
                self.span, self._full, self._short = min(PULL_COUNT_MAX, self.span + step), 0, 0

    def _shrink(self, covered: int) -> None:
        # A limit in bytes is a different number of messages each time; slightly less nearly always fits.
        self.span = covered if covered <= 64 else covered - covered // 16
        self._patience = min(4096, max(32, self._patience * 2))
        self._is_bound_met, self._short = True, 0


class _Puller:
    """Pulls ranges one after the other, with several requests in flight."""

    def __init__(self, cluster: Cluster, ranges: Sequence[QueueRange], options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._retries = options.access.retries
        self._timeout_s = to_seconds("timeout", options.access.timeout)
        self._todo = deque(ranges)
        self._at = ranges[0].begin
        self._strides: dict[str, _Stride] = {}
        self._waiting: deque[asyncio.Task[list[PullAnswer]]] = deque()
        self._ready: deque[PullAnswer] = deque()
        # Where queues turned out to begin or end; offsets outside are not requested again.
        self._floors: dict[QueueRange, int] = {}
        self._ceilings: dict[QueueRange, int] = {}
        # Addresses by broker name, as planned; updated from the routes after a failure.
        self._addresses = {each.queue.broker_name: each.address for each in ranges}
        self._kinds = {each.queue.topic: options.make_subscription(each.queue.topic) for each in ranges}
        # Increases with every answer taken: after progress, a failing request gets all its retries again.
        self._progress = 0

    async def take(self) -> list[PullAnswer]:
        """Return the next answers, of one topic and broker, enough for a batch; none at the end."""
        taken: list[PullAnswer] = []
        rows = size = 0
        while rows < BATCH_ROWS and size < BATCH_BYTES:
            if not self._ready:
                # Not one by one: requests that are made together are sent together.
                if len(self._waiting) <= self._options.pulls_in_flight // 2:
                    self._ask_ahead()
                if not self._waiting:
                    break
                head = self._waiting[0]
                self._ready.extend(head.result() if head.done() else await self._wait(head))
                self._waiting.popleft()
                self._progress += 1
                continue
            answer = self._ready[0]
            if taken and not _is_alike(taken[0], answer):
                break
            taken.append(self._ready.popleft())
            rows += answer.end - answer.begin
            size += len(answer.body)
        # The broker works on these while Spark processes the batch.
        self._ask_ahead()
        await asyncio.sleep(0)
        return taken

    async def close(self) -> None:
        """Cancel all requests."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
        self._waiting.clear()

    def _ask_ahead(self) -> None:
        loop = asyncio.get_running_loop()
        while self._todo and len(self._waiting) < self._options.pulls_in_flight:
            each = self._todo[0]
            self._at = max(self._at, self._floors.get(each, 0))
            if self._at >= min(each.end, self._ceilings.get(each, each.end)):
                self._todo.popleft()
                if self._todo:
                    self._at = self._todo[0].begin
                continue
            stride = self._strides.setdefault(each.queue.broker_name, _Stride())
            if stride.span is None:
                if stride.is_asked:
                    return
                stride.is_asked = True
                self._waiting.append(loop.create_task(self._probe(each, self._at, stride)))
                return
            end = min(each.end, self._at + stride.span)
            self._waiting.append(loop.create_task(self._pull_all(each, self._at, end, stride)))
            self._at = end

    async def _wait(self, task: asyncio.Task[list[PullAnswer]]) -> list[PullAnswer]:
        """Wait for the next answer; close the connection to a broker that is silent for too long."""
        loop = asyncio.get_running_loop()
        while True:
            since = loop.time()
            done, _ = await asyncio.wait((task,), timeout=self._timeout_s)
            if done:
                return task.result()
            for address in set(self._addresses.values()):
                link = self._cluster.calls.caller.find_link(address)
                if link is not None and link.calls.waiting and link.last_active <= since:
                    log.warning("no data received from broker %s for %.1f s", address, self._timeout_s)
                    link.abort()

    async def _probe(self, each: QueueRange, begin: int, stride: _Stride) -> list[PullAnswer]:
        """Request as much as possible once, and continue where the answer ends."""
        answers: list[PullAnswer] = []
        try:
            self._at = await self._pull_once(each, begin, min(each.end, begin + PULL_COUNT_MAX), stride, answers)
        finally:
            stride.is_asked = False
        if stride.span is None:
            stride.span = _SPAN_USUAL  # the answer had no messages
        return answers

    async def _pull_all(self, each: QueueRange, begin: int, end: int, stride: _Stride) -> list[PullAnswer]:
        """Request offsets until `end` is reached."""
        answers: list[PullAnswer] = []
        at = begin
        while at < end:
            at = await self._pull_once(each, at, end, stride, answers)
        return answers

    async def _pull_once(self, each: QueueRange, at: int, end: int, stride: _Stride, answers: list[PullAnswer]) -> int:
        """Request offsets from `at` up to `end`; returns where to continue."""
        known_end = 0
        for turn in range(_SHORT_MAX):
            pulled = await self._insist(each, at, end - at)
            if pulled is None:
                self._lose(each, at, "the topic no longer exists", ceiling=at)
                return end
            if pulled.status is PullStatus.ILLEGAL_OFFSET and at < pulled.min_offset:
                self._lose(each, at, f"the queue now begins at {pulled.min_offset}", floor=pulled.min_offset)
                return min(end, pulled.min_offset)
            if pulled.status is not PullStatus.ILLEGAL_OFFSET and pulled.next_offset > at:
                if pulled.status is not PullStatus.NO_NEW:
                    stride.learn(end - at, pulled.next_offset - at)
                reached = min(end, pulled.next_offset)
                answers.append(PullAnswer(each, at, reached, pulled.next_offset, pulled.body))
                return reached
            if pulled.status is PullStatus.FOUND:
                raise WireError(
                    f"a broker returned {pulled.next_offset} as the next offset of {name_queue(each.queue)}"
                )
            known_end = pulled.max_offset
            if turn + 1 < _SHORT_MAX:
                await asyncio.sleep(_SHORT_PAUSE_S)
        self._lose(each, at, f"the queue ends at {known_end}", ceiling=at)
        return end

    def _lose(
        self, each: QueueRange, at: int, why: str, *, floor: int | None = None, ceiling: int | None = None
    ) -> None:
        """Report missing messages, once per queue. Raises OffsetLost if failOnDataLoss is true."""
        is_news = each not in self._floors and each not in self._ceilings
        if floor is not None:
            self._floors[each] = max(floor, self._floors.get(each, 0))
        if ceiling is not None:
            self._ceilings[each] = min(ceiling, self._ceilings.get(each, each.end))
        if is_news:
            report_loss(
                self._options.loss,
                f"{name_queue(each.queue)}, should be read from {each.begin} to {each.end}, but at {at} {why}",
            )

    async def _insist(self, each: QueueRange, at: int, span: int) -> PulledBytes | None:
        """Pull, and retry while the broker is unavailable; returns None if the topic no longer exists."""
        failures, seen = 0, self._progress
        while True:
            try:
                return await self._pull(each, at, span)
            except RequestRefused as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    # A broker that has just started may return this too; then the name server still knows the topic.
                    if await self._cluster.connection.find_route(each.queue.topic) is None:
                        return None
                elif error.code not in _PASSING:
                    raise
                failure: NetError | RequestRefused = error
            except NetError as error:
                failure = error
            if seen != self._progress:
                failures, seen = 0, self._progress
            failures += 1
            if failures > self._retries:
                raise failure
            pause = RETRIES.after(failures)
            log.info("%s, at %d: retrying in %.1f s: %s", name_queue(each.queue), at, pause, failure)
            await asyncio.sleep(pause)
            await self._find_again(each)

    async def _find_again(self, each: QueueRange) -> None:
        """Look up the address of a broker again: it may have moved, or a slave may have taken over."""
        routes, broker = self._cluster.connection.routes, each.queue.broker_name
        try:
            await self._cluster.connection.find_route(each.queue.topic)
        except NetError as error:
            log.info("no name server answers: %s", error)
        self._addresses[broker] = routes.find_address(broker) or self._addresses[broker]

    async def _pull(self, each: QueueRange, at: int, span: int) -> PulledBytes:
        queue, subscription = each.queue, self._kinds[each.queue.topic]
        address = self._addresses[queue.broker_name]
        if not address:
            raise ConnectFailed(f"broker {queue.broker_name} has no known address", hint="is it running?")
        header = make_peek_header(
            self._options.consumer_group,
            queue,
            at,
            min(span, PULL_COUNT_MAX),
            expression=subscription.text,
            kind=subscription.kind,
            bytes_max=self._options.pull_bytes,
        )
        return await self._cluster.calls.pull_bytes(address, header, _CALL_MS)


def _is_alike(one: PullAnswer, other: PullAnswer) -> bool:
    """Whether two answers may be in one batch."""
    mine, yours = one.range.queue, other.range.queue
    return mine.broker_name == yours.broker_name and mine.topic == yours.topic

"""Taking messages out of queues for one pop: reading them, writing down that they are in flight, moving the offsets."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from time import perf_counter
from typing import Final, TypeAlias

from eruca._broker.administering.stats import Stats
from eruca._broker.groups.offsets import Offsets
from eruca._broker.options import LiveOptions
from eruca._broker.popping.contract import Popped, PopRequest, PopResult, PopStatus
from eruca._broker.popping.poplog import PopLog
from eruca._broker.replication.readlimit import ReadLimit
from eruca._broker.topics import Topics
from eruca._ground.limits import SLICE_SECONDS
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._store.reading.slices import Filter, ReadBounds, ReadResult
from eruca._wire.handle import NORMAL, RETRY, Handle
from eruca._wire.kernel.record import find_shift
from eruca._wire.names import READ, name_pop_retry
from eruca._wire.poplog import Item, Line, Taken
from eruca._wire.properties import ORIGIN_GROUP, get_property
from eruca._wire.record import RecordView, inspect_record

#: The messages that one pop delivers at most, as in RocketMQ 5.
COUNT_MAX: Final = 32
# The share of pops that look at the retry topic first; the others look at it last.
_RETRY_FIRST: Final = 0.2
# A pop looks into many queues for at most this long; the next one begins with another queue.
_SECONDS_MAX: Final = 4 * SLICE_SECONDS
# How often one pop reads on in a queue because nothing matched.
_READS_MAX: Final = 4
_ORIGIN_GROUP: Final = ORIGIN_GROUP.encode()
_PLACE: Final = struct.Struct(">qqi")  # queue offset, position, sysFlag
_PLACE_AT: Final = 20
_TIMES: Final = struct.Struct(">i")
_TIMES_AT: Final = 72

Record: TypeAlias = "memoryview | bytearray"


@dataclass(slots=True)
class Source:
    """A queue to take messages from."""

    line: Line
    # The topic whose queue it is.
    topic: str

    @property
    def key(self) -> tuple[str, str, int, int]:
        """The names of the line."""
        return self.line.group, self.line.topic, self.line.kind, self.line.queue_id


@dataclass(slots=True)
class Found:
    """What one queue has for a pop."""

    source: Source
    records: list[Record]
    offsets: list[int]
    positions: list[int]
    attempts: list[int]
    size: int
    next: int


@dataclass(eq=False)
class Taking:
    """Takes messages that are not read in order; see `ordering` for the others."""

    _options: LiveOptions
    _store: MessageStore
    _topics: Topics
    _offsets: Offsets
    _stats: Stats
    _reads: ReadLimit
    _log: PopLog

    def __post_init__(self) -> None:
        #: Whether a pop got less because too much is in flight.
        self.is_capped = False
        #: Whether the last pop found nothing in the time it had, and did not look into all queues.
        self.was_cut = False

    def take(self, request: PopRequest, accept: Filter | None, now_ms: int) -> PopResult:
        """Deliver what there is. Raises StoreError if that cannot be written down."""
        options, state = self._options.now, self._log.state
        count = min(request.count, COUNT_MAX, max(0, options.pop_in_flight_max - state.in_flight))
        self.is_capped |= not count
        bytes_left = options.transfer_bytes_memory
        found: list[Found] = []
        end = perf_counter() + _SECONDS_MAX
        sources = self.list_sources(request)
        self.was_cut = False
        for source in sources:
            if count <= 0 or (found and bytes_left <= 0):
                break
            if perf_counter() >= end:
                self.was_cut = not found
                break
            taken = self._look(source, request, accept, count, max(1, bytes_left))
            if taken is not None:
                found.append(taken)
                count -= len(taken.records)
                bytes_left -= taken.size
        result = PopResult(PopStatus.FOUND if found else PopStatus.NOTHING)
        if found:
            self._deliver(request, found, now_ms, result)
            result.rest = sum([self.count_waiting(source) for source in sources])
        return result

    # -- queues ------------------------------------------------------------------------------------------------------

    def list_sources(self, request: PopRequest) -> list[Source]:
        """List the queues of a request in the order in which they are looked at: another one each time."""
        topic = self._topics.get(request.topic)
        count = 0 if topic is None or not topic.perm & READ else topic.read_queue_nums
        group, name = request.group, request.topic
        if request.queue_id >= 0:
            numbers = [request.queue_id] if request.queue_id < count else []
        else:
            first = random.randrange(count) if count else 0
            numbers = [*range(first, count), *range(first)]
        sources = [Source(Line(group, name, NORMAL, number), name) for number in numbers]
        if not request.fifo:
            retry = name_pop_retry(group, name)
            if self._store.queues.get(retry, 0) is not None:
                at = 0 if random.random() < _RETRY_FIRST else len(sources)
                sources.insert(at, Source(Line(group, name, RETRY, 0), retry))
        return sources

    def find_next(self, source: Source, queue: ConsumeQueue, *, latest: bool) -> int:
        """Return the offset at which a group continues in a queue; a new one is committed. Raises ErucaError."""
        line = source.line
        offset = self._find_committed(source)
        if offset < 0:
            # A queue that still has its first message is read from there, as RocketMQ does: whoever sends the first
            # messages and then starts a consumer wants them.
            is_late = latest and line.kind == NORMAL and queue.min_offset > 0
            offset = queue.max_offset if is_late else queue.min_offset
            self._offsets.commit(line.group, source.topic, line.queue_id, offset)
        return offset

    def _find_committed(self, source: Source) -> int:
        """Return the offset of a group in a queue; -1 if it has none.

        The first pop from a queue is in the log before it is in the table of offsets: should the log lose it in a
        crash, its messages have to be popped again. From then on the log has the offset, and a start follows it.
        """
        offset = self._offsets.get(source.line.group, source.topic, source.line.queue_id)
        known = self._log.state.lines.get(source.key)
        if known is not None and known.unsafe_end:
            if offset == known.unsafe_from:
                return known.next
            known.unsafe_end = 0
        return offset

    def count_waiting(self, source: Source) -> int:
        """Return how many messages of a queue a group has not popped yet."""
        queue = self._store.queues.get(source.topic, source.line.queue_id)
        offset = self._find_committed(source)
        return 0 if queue is None or offset < 0 else max(0, self._reads.find_max(queue) - offset)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _look(
        self, source: Source, request: PopRequest, accept: Filter | None, count: int, bytes_max: int
    ) -> Found | None:
        """Read the next messages of a queue; None if there are none for this request."""
        queue = self._store.queues.get(source.topic, source.line.queue_id)
        if queue is None:
            return None
        options, line = self._options.now, self._log.state.lines.get(source.key)
        if options.pop_threshold and line is not None:
            count = min(count, options.pop_queue_in_flight_max - line.in_flight)
            if count <= 0:
                self.is_capped = True
                return None
        offset = self.find_next(source, queue, latest=request.latest)
        if source.line.kind == RETRY:
            accept = _accept_own(request.group, accept)
        result = self.read(source, offset, count, bytes_max, accept)
        if not result.slices:
            if result.next_offset != offset and (line is None or not line.unsafe_end):
                self._offsets.put(request.group, source.topic, source.line.queue_id, result.next_offset)
            return None
        found = Found(source, [], [], [], [], result.size, result.next_offset)
        for record in result.slices:
            place, position, times = read_place(record)
            found.records.append(record)
            found.offsets.append(place)
            found.positions.append(position)
            found.attempts.append(times + 1)
        return found

    def read(self, source: Source, offset: int, count: int, bytes_max: int, accept: Filter | None) -> ReadResult:
        """Read from an offset on, past what does not match or is gone."""
        limit = self._reads.find_position() if self._reads.is_bounding else None
        bounds = ReadBounds(count, bytes_max)
        read = self._store.reader.read
        result = read(source.topic, source.line.queue_id, offset, bounds, accept, limit)
        for _ in range(_READS_MAX):
            if result.slices or result.next_offset == offset:
                break
            offset = result.next_offset
            result = read(source.topic, source.line.queue_id, offset, bounds, accept, limit)
        return result

    # -- delivering --------------------------------------------------------------------------------------------------

    def _deliver(self, request: PopRequest, found: list[Found], now_ms: int, result: PopResult) -> None:
        state = self._log.state
        for each in found:
            now_ms = state.find_free_time(each.source.key, each.offsets[0], now_ms)
        body: list[Item] = [_describe(each, now_ms, request.invisible_ms) for each in found]
        new = {each.source.key for each in found if each.source.key not in state.lines}
        end = self._log.write(body)
        for each in found:
            if each.source.key in new:
                line = each.source.line
                state.lines[each.source.key].unsafe_end = end
                state.lines[each.source.key].unsafe_from = self._offsets.get(
                    line.group, each.source.topic, line.queue_id
                )
        result.pop_ms, result.invisible_ms = now_ms, request.invisible_ms
        broker = self._options.now.name
        for each in found:
            line = each.source.line
            if not state.lines[each.source.key].unsafe_end:
                self._offsets.put(line.group, each.source.topic, line.queue_id, each.next)
            start = each.offsets[0]
            for record, offset, position, attempt in zip(
                each.records, each.offsets, each.positions, each.attempts, strict=True
            ):
                handle = Handle(
                    start, now_ms, request.invisible_ms, 0, line.kind, broker, line.queue_id, offset, position
                )
                result.messages.append(Popped(record, request.topic, line.queue_id, offset, handle, attempt))
            self._stats.on_get(
                request.group, each.source.topic, len(each.records), each.size, line.queue_id, next_offset=each.next
            )


def _describe(found: Found, pop_ms: int, invisible_ms: int) -> Taken:
    line, start, offsets = found.source.line, found.offsets[0], found.offsets
    is_run = offsets[-1] - start == len(offsets) - 1
    return Taken(
        line.group,
        line.topic,
        line.kind,
        line.queue_id,
        start,
        pop_ms,
        invisible_ms,
        found.next,
        [] if is_run else [offset - start for offset in offsets],
        (1 << len(offsets)) - 1,
    )


def read_place(record: Record) -> tuple[int, int, int]:
    """Return the queue offset, the position and the reconsumeTimes of a record."""
    offset, position, sys_flag = _PLACE.unpack_from(record, _PLACE_AT)
    return offset, position, _TIMES.unpack_from(record, _TIMES_AT + find_shift(sys_flag))[0]


def _accept_own(group: str, accept: Filter | None) -> Filter:
    """Return a filter for a retry topic, whose name may be that of another group and topic, too."""
    wanted = group.encode()

    def is_own(tags_code: int, record: memoryview) -> bool:
        view = inspect_record(record, 0, len(record), False)
        if type(view) is RecordView:
            properties = bytes(record[view.properties_at : view.properties_end])
            if get_property(properties, _ORIGIN_GROUP) != wanted:
                return False
        return accept is None or accept(tags_code, record)

    return is_own

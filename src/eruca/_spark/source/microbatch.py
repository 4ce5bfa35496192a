"""How far the next micro-batch of a stream goes: decisions without I/O.

What a batch reads depends only on its two offsets: a batch that is run again after a crash reads the same messages,
whatever has arrived or expired since. So a new queue is first recorded at its beginning, and read in the next batch. A
queue that ends before the position up to which it was read was deleted and created again: it counts as new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eruca._spark.offsets import Offsets, name_queue
from eruca._spark.source.queuewatch import Sight
from eruca._spark.source.readlimits import Counts
from eruca._wire.bodies import MessageQueue


@dataclass
class Waiting:
    """What a stream can read next."""

    # The next offset of each queue.
    begins: Offsets = field(default_factory=dict)
    # The number of messages available in each queue.
    counts: Counts = field(default_factory=dict)
    # Queues to record at their beginning; they are read in the next batch.
    named: Offsets = field(default_factory=dict)
    # Queues that no longer exist.
    gone: set[MessageQueue] = field(default_factory=set)
    # Descriptions of messages that should be read but cannot.
    losses: list[str] = field(default_factory=list)

    def advance(self, start: Mapping[MessageQueue, int], counts: Mapping[MessageQueue, int]) -> Offsets:
        """Return the offsets after a batch that reads `counts` messages of each queue."""
        end = {queue: offset for queue, offset in start.items() if queue not in self.gone} | self.named
        for queue, count in counts.items():
            end[queue] = self.begins[queue] + count
        return end


def find_waiting(start: Mapping[MessageQueue, int], sight: Sight, target: Mapping[MessageQueue, int] | None) -> Waiting:
    """Compare the position of a stream with what is available, up to `target` if there is one."""
    waiting = Waiting(gone=set(sight.gone))
    waiting.losses += [f"{name_queue(queue)} no longer exists" for queue in sorted(sight.gone)]
    for queue, last in sight.ends.items():
        at = start.get(queue)
        if at == last or (target is not None and queue not in target):
            continue
        begin = sight.begins[queue]
        end = last if target is None else min(last, target[queue])
        if at is None:
            if begin < end:
                waiting.named[queue] = begin
        elif at > last:
            waiting.losses.append(
                f"{name_queue(queue)} ends at {last} and was read up to {at}: it was deleted or created again"
            )
            waiting.named[queue] = begin
        else:
            if at < begin:
                waiting.losses.append(f"{name_queue(queue)} begins at {begin}, but was only read up to {at}")
                waiting.named[queue] = at = begin
            if at < end:
                waiting.begins[queue] = at
                waiting.counts[queue] = end - at
    return waiting


@dataclass(frozen=True, slots=True)
class Span:
    """Messages of one queue that a batch reads."""

    queue: MessageQueue
    begin: int
    end: int


def find_spans(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[Span]:
    """Return what a batch reads, given only its offsets."""
    return [Span(queue, start[queue], last) for queue, last in end.items() if start.get(queue, last) < last]


def clip_spans(spans: list[Span], sight: Sight, report: Callable[[str], None]) -> list[Span]:
    """Drop what is no longer available, and report it."""
    kept = []
    for span in spans:
        if span.queue in sight.gone:
            report(f"{_name_span(span)} should be read, but the queue no longer exists")
            continue
        # Without information, the task that reads it finds out.
        begin, end = sight.begins.get(span.queue, span.begin), sight.ends.get(span.queue, span.end)
        if begin > span.begin or end < span.end:
            report(f"{_name_span(span)} should be read, but the queue contains {begin} to {end}")
        begin, end = max(begin, span.begin), min(end, span.end)
        if begin < end:
            kept.append(Span(span.queue, begin, end))
    return kept


def _name_span(span: Span) -> str:
    return f"{name_queue(span.queue)}, from {span.begin} to {span.end}"

"""How far the next micro-batch of a stream goes: decisions without I/O.

What a batch reads follows from its two offsets alone: a batch that is run again after a crash reads the same messages,
whatever has come or expired since. So a new queue is first named, at its beginning, and read in the batch after that. A
queue that ends before where it was read to was deleted and made again: it is new.
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
    """What there is to read, seen from where a stream is."""

    # Where each queue goes on.
    begins: Offsets = field(default_factory=dict)
    # How many messages wait in each queue.
    counts: Counts = field(default_factory=dict)
    # Queues that are to be named at their beginning, to be read in the next batch.
    named: Offsets = field(default_factory=dict)
    # Queues that exist no more.
    gone: set[MessageQueue] = field(default_factory=set)
    # What cannot be read although it should, in words.
    losses: list[str] = field(default_factory=list)

    def advance(self, start: Mapping[MessageQueue, int], counts: Mapping[MessageQueue, int]) -> Offsets:
        """The offsets behind a batch that reads so many messages of each queue."""
        end = {queue: offset for queue, offset in start.items() if queue not in self.gone} | self.named
        for queue, count in counts.items():
            end[queue] = self.begins[queue] + count
        return end


def find_waiting(start: Mapping[MessageQueue, int], sight: Sight, target: Mapping[MessageQueue, int] | None) -> Waiting:
    """Compare where a stream is with what there is, and with the end it was given if any."""
    waiting = Waiting(gone=set(sight.gone))
    waiting.losses += [f"{name_queue(queue)} does not exist any more" for queue in sorted(sight.gone)]
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
                f"{name_queue(queue)} ends at {last} and was read up to {at}: it was deleted or made again"
            )
            waiting.named[queue] = begin
        else:
            if at < begin:
                waiting.losses.append(f"{name_queue(queue)} begins at {begin} and was read up to {at} only")
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
    """What a batch reads, from its offsets alone."""
    return [Span(queue, start[queue], last) for queue, last in end.items() if start.get(queue, last) < last]


def clip_spans(spans: list[Span], sight: Sight, report: Callable[[str], None]) -> list[Span]:
    """Leave out what is not there any more, and report it."""
    kept = []
    for span in spans:
        if span.queue in sight.gone:
            report(f"{_name_span(span)} is to be read, and the queue does not exist any more")
            continue
        # Who knows better, the one that reads it, finds out.
        begin, end = sight.begins.get(span.queue, span.begin), sight.ends.get(span.queue, span.end)
        if begin > span.begin or end < span.end:
            report(f"{_name_span(span)} is to be read, and the queue has {begin} to {end}")
        begin, end = max(begin, span.begin), min(end, span.end)
        if begin < end:
            kept.append(Span(span.queue, begin, end))
    return kept


def _name_span(span: Span) -> str:
    return f"{name_queue(span.queue)}, from {span.begin} to {span.end}"

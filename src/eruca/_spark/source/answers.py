"""Combines the answers of pulls: finds their records and checks that they are those that were requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eruca._spark.columns import MESSAGE_COLUMNS
from eruca._spark.kernel import columns
from eruca._spark.offsets import name_queue
from eruca._spark.parsing import RecordParser, Records, check_crcs, find_records, read_int32, read_int64
from eruca._spark.source.dataloss import report_loss
from eruca._spark.source.options import SourceOptions
from eruca._spark.source.partitions import QueueRange
from eruca.errors import WireError

# The fixed fields of a record; no record is smaller.
_RECORD_BYTES_MIN: Final = 91
_TAGS: Final = tuple(column for column in MESSAGE_COLUMNS if column.name == "tags")


@dataclass(slots=True)
class PullAnswer:
    """One answer: the records of some offsets of a queue, as they came."""

    range: QueueRange
    begin: int
    # The requested range ends here.
    end: int
    # The next offset according to the broker: after `end` if a filter dropped messages.
    next_offset: int
    body: bytes


def check_answers(answers: Sequence[PullAnswer], options: SourceOptions) -> Records:
    """Find the records of answers of one topic and broker, and check that they are those that were requested."""
    queue = answers[0].range.queue
    buffer = answers[0].body if len(answers) == 1 else b"".join([answer.body for answer in answers])
    covered = sum(answer.next_offset - answer.begin for answer in answers)
    count_max = min(covered, len(buffer) // _RECORD_BYTES_MIN) + 1
    records = find_records(buffer, count_max=count_max, topics={queue.topic.encode()})
    rows = records.spans.reshape(-1, columns.SPAN)[: records.count]
    if records.end != len(buffer) or records.count_bytes(0, 4) != len(buffer):
        raise WireError(f"broker {queue.broker_name} returned records that do not belong to {queue.topic}")
    if not records.count:
        _report_gaps(answers, np.zeros(len(answers), np.int64), records, options)
        return records
    # The rows of each answer are those that start in its part of the buffer.
    edges = np.cumsum([len(answer.body) for answer in answers])
    counts = np.diff(np.searchsorted(rows[:, 0], edges), prepend=np.searchsorted(rows[:, 0], 0))
    offsets = read_int64(records, 20)
    lows, ends, nexts, numbers = (
        np.repeat(np.array(values, np.int64), counts)
        for values in zip(
            *[(answer.begin, answer.end, answer.next_offset, answer.range.queue.queue_id) for answer in answers],
            strict=True,
        )
    )
    firsts = np.zeros(records.count, np.bool_)
    firsts[(np.cumsum(counts) - counts)[counts > 0]] = True
    rises = np.empty(records.count, np.bool_)
    rises[0] = True
    rises[1:] = np.diff(offsets) > 0
    is_right = (read_int32(records, 12) == numbers) & (offsets >= lows) & (offsets < nexts) & (rises | firsts)
    if not is_right.all():
        wrong = int(np.argmin(is_right))
        raise WireError(
            f"broker {queue.broker_name} returned records that do not belong to {queue.topic}, queue"
            f" {numbers[wrong]}: offset {offsets[wrong]} between {lows[wrong]} and {nexts[wrong]}"
        )
    inside = offsets < ends
    if not inside.all():
        records = records.select(inside)
        counts = _recount(counts, inside)
    if not options.is_filtered:
        _report_gaps(answers, counts, records, options)
    if options.verify_crc:
        records = _drop_wrong(records, queue.topic, options)
    return _keep_tagged(records, options, queue.topic)


def _recount(counts: npt.NDArray[np.int64], kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    sums = np.concatenate(([0], np.cumsum(kept)))
    ends = np.cumsum(counts)
    return np.asarray(sums[ends] - sums[ends - counts], np.int64)


def _report_gaps(
    answers: Sequence[PullAnswer], counts: npt.NDArray[np.int64], records: Records, options: SourceOptions
) -> None:
    """Queues normally have no gaps: missing messages were deleted, or lost by the broker's disk."""
    if options.is_filtered:
        return
    at = 0
    for answer, count in zip(answers, counts.tolist(), strict=True):
        wanted = answer.end - answer.begin
        if count < wanted:
            there = read_int64(records, 20)[at : at + count]
            missing = np.setdiff1d(np.arange(answer.begin, answer.end), there, assume_unique=True)
            report_loss(
                options.loss,
                f"{name_queue(answer.range.queue)}: {len(missing)} of the messages from {answer.begin} to"
                f" {answer.end} are missing, the first at {missing[0]}",
            )
        at += count


def _drop_wrong(records: Records, topic: str, options: SourceOptions) -> Records:
    """Drop records whose body does not match its CRC."""
    is_right = check_crcs(records)
    if is_right.all():
        return records
    wrong = int(np.argmin(is_right))
    report_loss(
        options.loss,
        f"{topic}, queue {read_int32(records, 12)[wrong]}: the body of the message at"
        f" {read_int64(records, 20)[wrong]} does not match its CRC",
    )
    return records.select(is_right)


def _keep_tagged(records: Records, options: SourceOptions, topic: str) -> Records:
    """Drop records with other tags: brokers compare hashes, and two tags may have the same hash."""
    tags = options.make_subscription(topic).tags
    if tags is None or not tags.tags or not records.count:
        return records
    found = RecordParser(_TAGS).parse(records).column(0)
    wanted = pa.compute.is_in(found, value_set=pa.array(sorted(tags.tags), pa.string()))
    return records.select(wanted.to_numpy(zero_copy_only=False))

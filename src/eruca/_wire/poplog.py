"""The log of popping: what a broker writes down about messages in flight, as bodies of records in its own topic.

A body is a MessagePack array of items, and each item an array that begins with its kind. All items of one body take
effect together. A line is a queue as one group reads it: group, topic of the requests, kind (`wire.handle`), queue.

    1 Taken      group topic kind queue start popMs invisibleMs next gaps open suspended
    2 Settled    group topic kind queue start popMs bits
    3 Cursor     group topic kind queue next
    4 Ordered    group topic kind queue next popMs invisibleMs attempt end messages
                 messages: [[offset popMs dueMs count done suspended], ...]
    5 Moved      group topic position toTopic toQueue toOffset times
    6 Forgotten  group topic
    7 Mark       low

Whoever reads the log from `low` of the last mark to the end knows everything.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from eruca.errors import WireError


class Line(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A queue as one group reads it."""

    group: str
    topic: str
    kind: int
    queue_id: int


class Taken(Line, frozen=True, array_like=True, tag=1, gc=False):
    """Messages were delivered; also written again for those still in flight when the record gets old."""

    # The offset of the first message, and the time of the pop: together they name the delivery in its line.
    start: int
    pop_ms: int
    invisible_ms: int
    # Where the group continues; -1: unchanged.
    next: int
    # The distance of each message to the first one; empty: they are consecutive.
    gaps: list[int]
    # A bit for each message that is in flight.
    open: int
    # The next delivery has the same number of attempts.
    suspended: bool = False


class Settled(Line, frozen=True, array_like=True, tag=2, gc=False):
    """Messages of a delivery are no longer in flight."""

    start: int
    pop_ms: int
    bits: int


class Cursor(Line, frozen=True, array_like=True, tag=3, gc=False):
    """Where a group continues."""

    next: int


class InOrder(msgspec.Struct, array_like=True, gc=False):
    """One message that was delivered in order, from its first delivery until all before it are acknowledged."""

    offset: int
    pop_ms: int
    # When it is visible again.
    due_ms: int
    # The number of deliveries that count.
    count: int
    done: bool = False
    # The current delivery does not count once it is over.
    suspended: bool = False


class Ordered(Line, frozen=True, array_like=True, tag=4, gc=False):
    """The whole state of a line that is read in order; replaces the one before."""

    # The first message that is not acknowledged: where the group continues after a restart.
    next: int
    pop_ms: int
    invisible_ms: int
    attempt: str
    # The offset after the last message that was read.
    end: int
    messages: list[InOrder]


class Moved(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """A copy of a message is stored next, in the retry topic or the dead letters: who does not find it there stores it.

    The topic is the one of the requests.
    """

    group: str
    topic: str
    # Of the message that is copied, in the commit log.
    position: int
    to_topic: str
    to_queue: int
    to_offset: int
    # The reconsumeTimes of the copy.
    times: int


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """A group, or a topic, was deleted; the other name is empty."""

    group: str
    topic: str


class Mark(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """No record before an offset of this topic is needed any more."""

    low: int


Item: TypeAlias = Taken | Settled | Cursor | Ordered | Moved | Forgotten | Mark

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Item])


def encode_items(items: list[Item]) -> bytes:
    """Return the body of a record."""
    return _encoder.encode(items)


def decode_items(body: bytes | memoryview) -> list[Item]:
    """Read the body of a record. Raises WireError."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise WireError(f"not a record of the log of popping: {error}") from error

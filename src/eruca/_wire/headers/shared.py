"""Headers that many codes share, and the base of those that name their broker."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from eruca._wire.ext import Header, Int32, Int64


class BrokerNamed(Header, kw_only=True):
    """Base of requests with the name of their broker (`bname`, clients from 4.9.5 on). Brokers ignore it."""

    inherited: ClassVar[frozenset[str]] = frozenset({"bname"})

    broker_name: str | None = msgspec.field(default=None, name="bname")


class EmptyHeader(Header):
    """A header without fields. Java sends `"extFields":{}` for it, and some clients read that map unconditionally."""


class TopicHeader(Header):
    """A request about one topic."""

    topic: str


class TopicGroupHeader(Header):
    """A request about one topic as one group sees it."""

    topic: str
    group: str


class ConsumerGroupHeader(Header):
    """A request or notice about one consumer group."""

    consumer_group: str


class ProducerGroupHeader(Header):
    """A request about one producer group."""

    producer_group: str


class QueueHeader(BrokerNamed):
    """A request about one queue: its ends (30, 31), or its earliest store time (32)."""

    topic: str
    queue_id: Int32


class OffsetAnswerHeader(Header):
    """One offset of a queue: the answer to 29, 30 and 31."""

    offset: Int64


class TimestampAnswerHeader(Header):
    """Milliseconds since the epoch, -1 for none: the answer to 32."""

    timestamp: Int64

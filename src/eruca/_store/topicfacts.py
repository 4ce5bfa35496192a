"""What every append to a topic needs, computed once."""

from __future__ import annotations

from dataclasses import dataclass, field

from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._wire.digest import index_prefix
from eruca._wire.names import SCHEDULE_TOPIC, check_topic
from eruca._wire.record import FIXED_BYTES_V4

# How many topics are cached; bounded, because topics come and go.
TOPICS_KEPT_MAX = 65536


@dataclass(slots=True)
class TopicFacts:
    """The name of a topic as it is written, and the queues that were appended to."""

    encoded: bytes
    # Size of a record of this topic without body and properties, for two IPv4 hosts.
    fixed_bytes: int
    prefix: int
    # Its tags codes are hashes of tags; those of the delay topic are times.
    is_plain: bool
    queues: dict[int, ConsumeQueue] = field(default_factory=dict)


def find_facts(topic: str, bytes_max: int) -> TopicFacts:
    """Check a topic's name and compute what every append to it needs."""
    check_topic(topic, bytes_max)
    encoded = topic.encode()
    return TopicFacts(encoded, FIXED_BYTES_V4 + len(encoded), index_prefix(topic), topic != SCHEDULE_TOPIC)

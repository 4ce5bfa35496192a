"""The topics and groups that a request concerns: each row of the catalog declares where they are in the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from eruca._wire.bodies import BatchAckBody, CheckClientBody, HeartbeatData, LockBody
from eruca._wire.names import name_pop_retry


class Names(NamedTuple):
    """Topics and groups."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


#: The topic of the record at a position of the log; None if there is no record.
ReadTopic: TypeAlias = Callable[[int], str | None]


@dataclass(frozen=True, slots=True)
class Concerns:
    """Where the topics and groups of a request are."""

    #: Header fields, by their names on the wire: most requests are checked without decoding their header. A field that
    #: was not sent concerns nothing; if it is required, the request fails later.
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    #: The attribute of the header with the position of a record, whose topic the request concerns; empty: none.
    position: str = ""
    #: Whether the retry topic of the group for a topic stands for that topic.
    is_popped: bool = False
    #: Finds the names in the decoded body.
    in_body: Callable[[Any], Names] | None = None


#: A request that concerns no topic and no group, or all of them.
NOTHING: Final = Concerns()


def names_of_heartbeat(body: HeartbeatData) -> Names:
    """The consumer groups of a client and their topics. Its producer groups are only labels."""
    consumers = body.consumer_data_set
    topics = {one.topic: None for consumer in consumers for one in consumer.subscription_data_set}
    return Names(tuple(topics), tuple([consumer.group_name for consumer in consumers]))


def names_of_lock(body: LockBody) -> Names:
    """The group that locks, and the topics of its queues."""
    return Names(tuple({queue.topic: None for queue in body.mq_set}), (body.consumer_group,))


def names_of_check(body: CheckClientBody) -> Names:
    """The group and the topic of an expression to check."""
    return Names((body.subscription_data.topic,), (body.group,))


def names_of_batch_ack(body: BatchAckBody) -> Names:
    """The groups and topics of the messages."""
    topics = {name_popped_topic(ack.group, ack.topic): None for ack in body.acks}
    return Names(tuple(topics), tuple({ack.group: None for ack in body.acks}))


def name_popped_topic(group: str, topic: str) -> str:
    """Return the topic that a group popped, where a client may name the retry topic in which the message was."""
    prefix = name_pop_retry(group, "")
    return topic[len(prefix) :] if topic.startswith(prefix) else topic

"""Namespaces: `namespace%name` on the broker, `name` for the user. System topics and groups have no namespace."""

from __future__ import annotations

from collections.abc import Iterable

from eruca._client.arguments import check_type
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    check_group,
    check_topic,
    is_system_topic,
)
from eruca.errors import ConfigError

_SEPARATOR = "%"
_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"


def wrap(namespace: str, name: str) -> str:
    """Return a topic or group as the broker knows it."""
    if not namespace or is_system_topic(name) or name.startswith(_SYSTEM_GROUP_PREFIX):
        return name
    prefix, rest = _split(name)
    return name if rest.startswith(namespace + _SEPARATOR) else f"{prefix}{namespace}{_SEPARATOR}{rest}"


def wrap_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """Return a queue as the broker knows it."""
    topic = wrap(namespace, queue.topic)
    return queue if topic == queue.topic else MessageQueue(queue.broker_name, queue.queue_id, topic)


def name_topic(namespace: str, topic: str, argument: str = "topic") -> str:
    """Return a topic that a user passed, as the broker knows it. Raises ConfigError and InvalidName."""
    check_type(argument, topic, str)
    return wrap(namespace, check_topic(topic))


def name_queue(namespace: str, queue: MessageQueue, argument: str = "queue") -> MessageQueue:
    """Return a queue that a user passed, as the broker knows it. Raises ConfigError if it is something else."""
    check_type(argument, queue, MessageQueue)
    return wrap_queue(namespace, queue)


def name_queues(namespace: str, queues: Iterable[MessageQueue] | None) -> list[MessageQueue] | None:
    """Do the same for several queues; None stays None."""
    if queues is None:
        return None
    check_type("queues", queues, Iterable)
    return [name_queue(namespace, queue, f"queues[{number}]") for number, queue in enumerate(queues)]


def unwrap(namespace: str, name: str) -> str:
    """Return a topic or group as the user knows it."""
    if not namespace:
        return name
    prefix, rest = _split(name)
    return prefix + rest.removeprefix(namespace + _SEPARATOR)


def unwrap_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """Return a queue as the user knows it."""
    topic = unwrap(namespace, queue.topic)
    return queue if topic == queue.topic else MessageQueue(queue.broker_name, queue.queue_id, topic)


def _split(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def check_own_group(group: str, reserved: str) -> str:
    """Return the group of a client. Raises InvalidName, and ConfigError for the reserved group."""
    check_type("group", group, str)
    check_group(group)
    if group == reserved:
        raise ConfigError(f"the group {group} is reserved", hint="name the group after your application")
    return group

"""Namespaces: `namespace%name` on the broker, `name` for the user. System topics and groups belong to no namespace."""

from __future__ import annotations

from eruca.errors import ConfigError
from eruca.wire.bodies import MessageQueue
from eruca.wire.names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    MAX_CHECK_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TEMPLATE_TOPIC,
    check_group,
)

_SEPARATOR = "%"
_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
_SYSTEM_PREFIX = "rmq_sys_"
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_SYSTEM_TOPICS = frozenset(
    {
        TEMPLATE_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        OP_HALF_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
        MAX_CHECK_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)


def wrap(namespace: str, name: str) -> str:
    """A topic or group as the broker knows it."""
    if not namespace or name in _SYSTEM_TOPICS or name.startswith((_SYSTEM_PREFIX, _SYSTEM_GROUP_PREFIX)):
        return name
    prefix, rest = _split(name)
    return name if rest.startswith(namespace + _SEPARATOR) else f"{prefix}{namespace}{_SEPARATOR}{rest}"


def wrap_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """A queue as the broker knows it."""
    topic = wrap(namespace, queue.topic)
    return queue if topic == queue.topic else MessageQueue(queue.broker_name, queue.queue_id, topic)


def unwrap(namespace: str, name: str) -> str:
    """A topic or group as the user knows it."""
    if not namespace:
        return name
    prefix, rest = _split(name)
    return prefix + rest.removeprefix(namespace + _SEPARATOR)


def unwrap_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """A queue as the user knows it."""
    topic = unwrap(namespace, queue.topic)
    return queue if topic == queue.topic else MessageQueue(queue.broker_name, queue.queue_id, topic)


def _split(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def check_own_group(group: str, reserved: str) -> str:
    """Give the group of a client back; raises InvalidName, and ConfigError for the one that nobody may use."""
    check_group(group)
    if group == reserved:
        raise ConfigError(f"the group {group} is reserved", hint="name the group after your application")
    return group

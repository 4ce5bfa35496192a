"""Namespaces: `namespace%name` on the broker, `name` for the user. System topics and groups belong to no namespace."""

from __future__ import annotations

from eruca.wire.names import DLQ_PREFIX, HALF_TOPIC, OP_HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC

_SEPARATOR = "%"
_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
_SYSTEM_PREFIX = "rmq_sys_"
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        OP_HALF_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)


def wrap(namespace: str, name: str) -> str:
    """A topic or group as the broker knows it."""
    if not namespace or name in _SYSTEM_TOPICS or name.startswith((_SYSTEM_PREFIX, _SYSTEM_GROUP_PREFIX)):
        return name
    prefix, rest = _split(name)
    return name if rest.startswith(namespace + _SEPARATOR) else f"{prefix}{namespace}{_SEPARATOR}{rest}"


def unwrap(namespace: str, name: str) -> str:
    """A topic or group as the user knows it."""
    if not namespace:
        return name
    prefix, rest = _split(name)
    return prefix + rest.removeprefix(namespace + _SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name

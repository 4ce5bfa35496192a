"""Names: the rules, checked before a name reaches a path or becomes a key of a table, and the reserved names."""

from __future__ import annotations

import re
from typing import Final

from eruca._ground.limits import GROUP_BYTES_MAX, LABEL_CHARS_MAX, TOPIC_BYTES_MAX
from eruca.errors import InvalidName

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
# Eruca's own: what is in flight (`wire.poplog`).
POP_TOPIC: Final = "rmq_sys_ERUCA_POP_LOG"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
MAX_CHECK_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
# The template for topics that are created automatically.
TEMPLATE_TOPIC: Final = "TBW102"
# Only brokers write to these.
FORBIDDEN_TO_SEND: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        POP_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        MAX_CHECK_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
# Topics of brokers, in addition to those whose name starts with the prefix.
SYSTEM_TOPICS: Final = FORBIDDEN_TO_SEND | {TEMPLATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC}
SYSTEM_PREFIX: Final = "rmq_sys_"
# Groups that no client may join: they mean "no name was given".
DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
# The groups tools use for reading and sending. Every broker has the first one, so reading leaves no trace.
TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"
TOOLS_PRODUCER_GROUP: Final = "CLI_SENDERS"
# The group every client announces in addition to its own, and with which consumers send.
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
# The namespace of name servers with the order of topics: `broker-a:4;broker-b:4`.
ORDER_TOPICS: Final = "ORDER_TOPIC_CONFIG"
# The id of the broker that accepts messages, among those of one name.
MASTER_ID: Final = 0
# The roles of a broker; a fenced one is neither master nor slave until it gets a role.
MASTER: Final = "MASTER"
SLAVE: Final = "SLAVE"
FENCED: Final = "FENCED"
# The runtime information of an Eruca broker has a key with this prefix and the name of each group whose members have
# the same client id, or different subscriptions.
CONFLICTS_PREFIX: Final = "consumerGroupConflicts_"
# Permissions of a broker, a topic or a queue.
READ: Final = 4
WRITE: Final = 2
INHERIT: Final = 1

# No dot, no slash: a name that passes is safe as a directory name.
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_system_topic(topic: str) -> bool:
    """Is it a topic that brokers create for themselves?"""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def check_topic(topic: str, length_max: int = TOPIC_BYTES_MAX) -> str:
    """Return the topic, or raise InvalidName with the rule it breaks.

    `length_max` is the limit for new topics from the options; existing topics may be as long as a record can hold.
    """
    return _check("topic", topic, length_max)


def check_group(group: str) -> str:
    """Return the group, or raise InvalidName with the rule it breaks."""
    return _check("group", group, GROUP_BYTES_MAX)


def name_pop_retry(group: str, topic: str) -> str:
    """Return the topic with the messages of a topic that a group popped and did not acknowledge."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def check_label(kind: str, label: str) -> str:
    """Return a name that is only a key of a table (of a client, a broker, a cluster), or raise InvalidName.

    Peers choose it freely and no file is named after it, so it may have any printable characters.
    """
    if not label:
        raise InvalidName(f"the {kind} is empty")
    if len(label) > LABEL_CHARS_MAX:
        raise InvalidName(f"the {kind} has {len(label)} characters, the maximum is {LABEL_CHARS_MAX}")
    if not label.isprintable():
        raise InvalidName(f"the {kind} {label!r} has an unprintable character")
    return label


def _check(kind: str, name: str, length_max: int) -> str:
    if not name:
        raise InvalidName(f"the {kind} name is empty")
    if len(name) > length_max:
        raise InvalidName(f"the {kind} name has {len(name)} characters, the maximum is {length_max}")
    if not _NAME.fullmatch(name):
        raise InvalidName(f"the {kind} name {name!r} has a character other than letters, digits, % | _ and -")
    return name

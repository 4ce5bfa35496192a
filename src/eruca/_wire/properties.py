"""Message properties: the string `name 0x01 value 0x02 name 0x01 value`, and the names with a meaning in RocketMQ.

The format has no escaping, so a name or value that contains a separator is refused when we write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eruca.errors import WireError

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
UNIQ_KEY: Final = "UNIQ_KEY"
CLUSTER: Final = "CLUSTER"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MSG_TYPE: Final = "MSG_TYPE"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
ARRIVE_TIME: Final = "ARRIVE_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
BUYER_ID: Final = "BUYER_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"

# Arbitrary delays, with the names of RocketMQ 5; to a 4.x broker these are ordinary properties.
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
# Set by the broker: when the message is due. A message that has it is never delayed again.
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
# Set by our broker in a message that it stored again because its record was old: the position of that record.
TIMER_ROLLED_FROM: Final = "TIMER_ROLLED_FROM"
# Set by our Spark sink and idempotent producers: query, batch, partition and row of a message that our broker must
# store once (`wire.once`).
ERUCA_ONCE: Final = "ERUCA_ONCE"
# Messages that were popped and not acknowledged, with the names of RocketMQ 5: when it was delivered first, and the
# group of a message in a retry topic, whose name does not tell where the group ends and the topic begins.
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
# Set by our broker in such a copy: the position of the original.
ERUCA_POPPED_FROM: Final = "ERUCA_POPPED_FROM"

# The DELAY of a message that is redelivered for the first time, unless specified: 10 s, and more each time.
RETRY_LEVEL_FIRST: Final = 3

# Names that are not allowed for user properties; clients and brokers set them.
RESERVED: Final = frozenset(
    {
        KEYS,
        TAGS,
        WAIT,
        DELAY,
        UNIQ_KEY,
        CLUSTER,
        RETRY_TOPIC,
        REAL_TOPIC,
        REAL_QID,
        TRAN_MSG,
        PGROUP,
        MIN_OFFSET,
        MAX_OFFSET,
        ORIGIN_MESSAGE_ID,
        RECONSUME_TIME,
        MAX_RECONSUME_TIMES,
        CONSUME_START_TIME,
        TRANSACTION_CHECK_TIMES,
        TRAN_PREPARED_QUEUE_OFFSET,
        CHECK_IMMUNITY_TIME_IN_SECONDS,
        INSTANCE_ID,
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        TTL,
        MSG_TYPE,
        PUSH_REPLY_TIME,
        ARRIVE_TIME,
        MSG_REGION,
        TRACE_ON,
        BUYER_ID,
        TRANSFER_FLAG,
        CORRECTION_FLAG,
        MQ2_FLAG,
        INNER_MULTI_DISPATCH,
        INNER_MULTI_QUEUE_OFFSET,
        TIMER_DELAY_MS,
        TIMER_DELAY_SEC,
        TIMER_DELIVER_MS,
        TIMER_DEL_UNIQKEY,
        TIMER_OUT_MS,
        TIMER_ROLLED_FROM,
        ERUCA_ONCE,
    }
)

# The same names as bytes for `get_property`, for those the store looks up in every record.
RAW_KEYS: Final = b"KEYS"
RAW_TAGS: Final = b"TAGS"
RAW_UNIQ_KEY: Final = b"UNIQ_KEY"
RAW_DELAY: Final = b"DELAY"
RAW_WAIT: Final = b"WAIT"
RAW_TRAN_MSG: Final = b"TRAN_MSG"

_PROPERTY_SEPARATOR_BYTE = 2


def parse_properties(raw: bytes | str) -> dict[str, str]:
    """Parse a properties string; like Java, drop entries without separator, name or value, and let the last one win."""
    text = raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
    result: dict[str, str] = {}
    for entry in text.split("\x02"):
        name, _, value = entry.partition("\x01")
        if name and value:
            result[name] = value
    return result


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode properties in the mapping's order, without a trailing separator."""
    text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
    if properties and (text.count("\x01") != len(properties) or text.count("\x02") != len(properties) - 1):
        raise WireError("a property name or value contains a separator character (0x01 or 0x02)")
    return text.encode()


def get_property(raw: bytes, name: bytes) -> bytes | None:
    """Find one property without parsing the others; returns what `parse_properties` would, or None."""
    needle = name + b"\x01"
    at = raw.rfind(needle)
    while at >= 0:
        # A match inside a value or at the end of a longer name is not an entry.
        if at == 0 or raw[at - 1] == _PROPERTY_SEPARATOR_BYTE:
            value_at = at + len(needle)
            value_end = raw.find(b"\x02", value_at)
            value = raw[value_at:] if value_end < 0 else raw[value_at:value_end]
            if value and name:
                return value
        at = raw.rfind(needle, 0, at + len(needle) - 1)
    return None


def does_wait(raw: bytes) -> bool:
    """Does the sender wait for disk and slaves? Yes unless WAIT is present and not "true", as Java reads it."""
    value = get_property(raw, RAW_WAIT)
    return value is None or value.lower() == b"true"


def is_half(raw: bytes) -> bool:
    """Is this the half message of a transaction?"""
    value = get_property(raw, RAW_TRAN_MSG)
    return value is not None and value.lower() == b"true"


def split_keys(keys: str) -> list[str]:
    """Split a KEYS value into its index keys: separated by single spaces, empty ones dropped."""
    return [key for key in keys.split(" ") if key]

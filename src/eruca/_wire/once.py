"""The mark of a message that is stored once although it may be sent again: by an idempotent Spark sink or producer.

The mark is the property ERUCA_ONCE. It says which row of which query a message is:

    <query>:<batch>:<partition>:<sequence>      3q2-7wEdQkSxJmA1bFzQhg:17:3:40961

The sender chooses the name of the query; the rest are numbers. For a producer, the query is its name, the batch is 0
and the partition is a lane, which carries one request at a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eruca._ground.limits import ONCE_QUERY_CHARS_MAX
from eruca._wire.properties import ERUCA_ONCE, get_property
from eruca.errors import MessageIllegal

# A broker that honours marks has this key among its runtime figures, so that a sink can rely on it.
ONCE_KEY: Final = "erucaOnce"
ONCE_VERSION: Final = 1
# Brokers read marks only from producers of this group: a program that copies messages to another topic with all their
# properties does not mean the mark.
ONCE_GROUP: Final = "ERUCA_ONCE_SINK"
# The names of producers start with this; those of queries never do.
PRODUCER_PREFIX: Final = "p."
ONCE_MARK: Final = f"{ERUCA_ONCE}\x01"
RAW_ONCE_MARK: Final = ONCE_MARK.encode()

_RAW_ONCE: Final = ERUCA_ONCE.encode()
_MARK_PARTS: Final = 4
_NUMBER_DIGITS_MAX: Final = 18


class OnceMark(NamedTuple):
    """Which row of which query a message is."""

    query: str
    batch: int
    partition: int
    sequence: int


def read_mark(properties: bytes) -> OnceMark | None:
    """Return the mark of a message, or None if it has none. Raises MessageIllegal if the mark is malformed."""
    raw = get_property(properties, _RAW_ONCE)
    if raw is None:
        return None
    parts = raw.split(b":")
    if len(parts) == _MARK_PARTS and 0 < len(parts[0]) <= ONCE_QUERY_CHARS_MAX and parts[0].isascii():
        batch, partition, sequence = parts[1:]
        if all(part.isdigit() and len(part) <= _NUMBER_DIGITS_MAX for part in (batch, partition, sequence)):
            return OnceMark(parts[0].decode(), int(batch), int(partition), int(sequence))
    raise MessageIllegal(f"{ERUCA_ONCE} is {raw[:100]!r}: expected query:batch:partition:sequence")


def drop_mark(properties: str) -> str:
    """Return properties without the mark: a message that another program sends again is another message."""
    return "\x02".join([entry for entry in properties.split("\x02") if not entry.startswith(ONCE_MARK)])

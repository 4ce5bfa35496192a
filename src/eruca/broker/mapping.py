"""Where a message really goes: the delay topic, the half topic, the dead letters.

A message that is mapped keeps its destination in its properties (REAL_TOPIC, REAL_QID), exactly as a Java broker writes
them, so that either broker can deliver it.
"""

from __future__ import annotations

from eruca.config import parse_delay_levels
from eruca.wire.names import HALF_TOPIC, SCHEDULE_TOPIC
from eruca.wire.properties import DELAY, REAL_QID, REAL_TOPIC, encode_properties, parse_properties
from eruca.wire.record import Message
from eruca.wire.sysflag import TRANSACTION_MASK


class DelayLevels:
    """The delay of each level."""

    def __init__(self, text: str) -> None:
        self.delays_ms = parse_delay_levels(text)

    @property
    def highest(self) -> int:
        """The longest delay's level."""
        return len(self.delays_ms)

    def map(self, message: Message, level: int) -> None:
        """Send a message to the delay topic instead; a level above the highest is taken for it."""
        level = min(level, self.highest)
        properties = parse_properties(message.properties)
        properties[DELAY] = str(level)
        properties[REAL_TOPIC] = message.topic
        properties[REAL_QID] = str(message.queue_id)
        message.properties = encode_properties(properties)
        message.topic = SCHEDULE_TOPIC
        message.queue_id = level - 1


def map_half(message: Message) -> None:
    """Send a message to the half topic instead, until its transaction is decided."""
    properties = parse_properties(message.properties)
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QID] = str(message.queue_id)
    message.properties = encode_properties(properties)
    message.topic = HALF_TOPIC
    message.queue_id = 0
    message.sys_flag &= ~TRANSACTION_MASK

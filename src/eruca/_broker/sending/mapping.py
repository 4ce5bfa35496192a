"""The real destination of a message: the delay topic, the half topic, the dead letters.

A mapped message keeps its destination in its properties (REAL_TOPIC, REAL_QID), exactly as a Java broker writes them,
so that either broker can deliver it.
"""

from __future__ import annotations

from eruca._broker.refusals import refuse
from eruca._ground.config import parse_delay_levels
from eruca._ground.digits import read_digits
from eruca._wire.codes import ResponseCode
from eruca._wire.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from eruca._wire.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRAN_PREPARED_QUEUE_OFFSET,
    encode_properties,
    parse_properties,
)
from eruca._wire.record import Record
from eruca._wire.sysflag import TRANSACTION_MASK

_WAIT = b"\x02WAIT\x01true"
_WAIT_AMONG = _WAIT + b"\x02"


class DelayLevels:
    """The delay of each level."""

    def __init__(self, text: str) -> None:
        self.delays_ms = parse_delay_levels(text)

    @property
    def highest(self) -> int:
        """The level of the longest delay."""
        return len(self.delays_ms)

    def find_ms(self, level: int) -> int:
        """The delay of a level; a level above the highest counts as the highest."""
        return self.delays_ms[min(level, self.highest) - 1]

    def map(self, message: Record, level: int) -> None:
        """Redirect a message to the delay topic; a level above the highest counts as the highest."""
        level = min(level, self.highest)
        properties = parse_properties(message.properties)
        properties[DELAY] = str(level)
        properties[REAL_TOPIC] = message.topic
        properties[REAL_QID] = str(message.queue_id)
        message.properties = encode_properties(properties)
        message.topic = SCHEDULE_TOPIC
        message.queue_id = level - 1


# The prefix of all timer properties that clients use.
TIMER_MARK = b"TIMER_D"
_TIME_DIGITS_MAX = 15


def find_due_time(raw: bytes, now_ms: int, delay_max_ms: int) -> int | None:
    """Return when a message is due that uses the timer, or None if it does not; refuses invalid times.

    A message that cancels another is due at the same time as that message; it is handled at once and discarded then.
    """
    properties = parse_properties(raw)
    if TIMER_OUT_MS in properties:
        return None  # it has been delayed already
    due_ms = None
    for name, unit_ms, start_ms in (
        (TIMER_DELAY_SEC, 1000, now_ms),
        (TIMER_DELAY_MS, 1, now_ms),
        (TIMER_DELIVER_MS, 1, 0),
    ):
        text = properties.get(name)
        if text is None or due_ms is not None:
            continue
        number = read_digits(text, _TIME_DIGITS_MAX)
        if number is None:
            refuse(ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal, {name} is not a valid time: {text[:40]}")
        due_ms = start_ms + number * unit_ms
    if due_ms is None:
        return now_ms + delay_max_ms if TIMER_DEL_UNIQKEY in properties else None
    if due_ms > now_ms + delay_max_ms:
        refuse(
            ResponseCode.MESSAGE_ILLEGAL,
            f"timer message illegal, the delay time should not be bigger than the max delay {delay_max_ms}ms",
        )
    # A message that is already due needs no timer, but a cancellation always does.
    return due_ms if due_ms > now_ms or TIMER_DEL_UNIQKEY in properties else None


def map_timer(message: Record, due_ms: int) -> None:
    """Redirect a message to the timer topic until it is due."""
    properties = parse_properties(message.properties)
    properties[TIMER_OUT_MS] = str(due_ms)
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QID] = str(message.queue_id)
    message.properties = encode_properties(properties)
    message.topic = TIMER_TOPIC
    message.queue_id = 0


def map_half(message: Record) -> None:
    """Redirect a message to the half topic until its transaction is decided."""
    properties = parse_properties(message.properties)
    # It names the half that a copy was made from. Brokers write it; of a producer it would decide the half of another.
    properties.pop(TRAN_PREPARED_QUEUE_OFFSET, None)
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QID] = str(message.queue_id)
    message.properties = encode_properties(properties)
    message.topic = HALF_TOPIC
    message.queue_id = 0
    message.sys_flag &= ~TRANSACTION_MASK


def add_property(raw: bytes, added: bytes, *, drop_wait: bool) -> bytes:
    """Return the properties with one added by the broker, and without WAIT if it is no longer needed."""
    if drop_wait:
        # The place where nearly every message of a Java client has it.
        raw = raw[: -len(_WAIT)] if raw.endswith(_WAIT) else raw.replace(_WAIT_AMONG, b"\x02", 1)
    name = added[: added.index(b"\x01") + 1]
    if name in raw or (drop_wait and b"WAIT\x01" in raw):
        entries = [
            entry
            for entry in raw.split(b"\x02")
            if entry and not entry.startswith(name) and not (drop_wait and entry.startswith(b"WAIT\x01"))
        ]
        entries.append(added)
        return b"\x02".join(entries)
    if not raw:
        return added
    return raw + added if raw.endswith(b"\x02") else raw + b"\x02" + added

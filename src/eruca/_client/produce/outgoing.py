"""Outgoing messages: checks the arguments of a send and converts them to the fields of a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec

from eruca._ground.clock import SystemClock
from eruca._ground.config import StoreOptions, parse_delay_levels
from eruca._ground.durations import Duration, to_seconds
from eruca._ground.limits import MESSAGE_BODY_BYTES_MAX, PROPERTIES_BYTES_MAX, TIMER_DELAY_SECONDS_MAX
from eruca._ground.times import to_epoch_ms
from eruca._wire.bodies import MessageQueue
from eruca._wire.properties import (
    DELAY,
    KEYS,
    RESERVED,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WAIT,
)
from eruca.errors import ConfigError, MessageIllegal, WrongType

# The default delays of a 4.x broker (its messageDelayLevel may differ), in milliseconds; level 1 is the first.
DELAY_LEVELS_MS = tuple(parse_delay_levels(StoreOptions().delay_levels))
_BLANK = " "
_TAGS_BEFORE = f"{TAGS}\x01"
_WAITS = {True: "true", False: "false"}
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


class SendStatus(Enum):
    """The status that the broker returns for a stored message."""

    STORED = "SEND_OK"
    # Stored, but a condition of the broker's acknowledgement was not met in time.
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class Receipt(msgspec.Struct, frozen=True):
    """Confirms that a message is stored: where, and under which ids."""

    status: SendStatus
    # The id from the producer. For a batch, the ids of all messages, separated by commas.
    message_id: str
    # The id from the broker: its address and the position in its log.
    offset_id: str
    queue: MessageQueue
    offset: int
    transaction_id: str = ""
    region: str = ""
    trace_on: bool = True


@dataclass(slots=True, init=False)
class Outgoing:
    """One message to send.

    >>> await producer.send_batch("orders", [Outgoing(b"1", tags="vip"), Outgoing(b"2", keys=["o-2"])])
    """

    body: Any
    tags: str | None = None
    keys: str | Iterable[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    # A number for the application's own use, stored with the message.
    flag: int = 0
    # If False, the broker may answer before the message is on disk and on the slaves, whatever its mode.
    wait: bool = True
    # A batch cannot be delayed: `send_batch` raises MessageIllegal if one of these is given.
    delay: Duration | None = None
    delay_level: int | None = None
    timer: Duration | datetime | None = None

    # Written by hand, because a batch has many: `__post_init__` would cost twice as much.
    def __init__(
        self,
        body: Any,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait: bool = True,
        delay: Duration | None = None,
        delay_level: int | None = None,
        timer: Duration | datetime | None = None,
    ) -> None:
        if tags is not None and tags.__class__ is not str:
            read_text("tags", tags)
        if keys.__class__ is not str and not hasattr(keys, "__iter__"):
            join_keys(keys)
        if properties is None:
            properties = {}
        elif properties.__class__ is not dict and not isinstance(properties, Mapping):
            raise _explain_properties(properties)
        if flag:
            check_flag(flag)
        if wait is not True and wait is not False:
            raise _explain_wait(wait)
        if delay is not None or delay_level is not None or timer is not None:
            describe_delay(delay, delay_level, timer)
        self.body = body
        self.tags = tags
        self.keys = keys
        self.properties = properties
        self.flag = flag
        self.wait = wait
        self.delay = delay
        self.delay_level = delay_level
        self.timer = timer


def build_properties(
    unique_id: str,
    tags: str | None = None,
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    wait: bool = True,
    extra: Mapping[str, str] | None = None,
) -> str:
    """Return the properties of a message in the format of a request. Raises MessageIllegal and WrongType.

    `extra` holds properties that the client adds; a property that the user set takes precedence.
    """
    try:
        text = f"{UNIQ_KEY}\x01{unique_id}\x02{WAIT}\x01{_WAITS[wait]}"
    except (KeyError, TypeError):
        raise _explain_wait(wait) from None
    if not (tags or keys or properties or extra):
        return text
    parts = [text]
    count = 2
    if tags:
        # Concatenated, not formatted: this accepts only strings, and uses the value of a member of a string enum.
        try:
            parts.append(_TAGS_BEFORE + tags)
        except TypeError:
            read_text("tags", tags)
            raise
        count += 1
    if keys:
        joined = join_keys(keys)
        if joined:
            parts.append(f"{KEYS}\x01{joined}")
            count += 1
    if properties:
        if not isinstance(properties, Mapping):
            raise _explain_properties(properties)
        for name, value in properties.items():
            if name in RESERVED:
                raise MessageIllegal(f"the property name {name} is reserved", hint="choose another name")
            if not name or not value:
                raise MessageIllegal(f"the property {name!r} has an empty name or value")
            try:
                parts.append("\x01".join((name, value)))
            except TypeError:
                read_text("the name of a property", name)
                read_text(f"the property {name}", value)
                raise
        count += len(properties)
    if extra:
        added = [f"{name}\x01{value}" for name, value in extra.items() if not properties or name not in properties]
        parts += added
        count += len(added)
    text = "\x02".join(parts)
    _check_text(text, count)
    return text


def _explain_wait(wait: object) -> WrongType:
    return WrongType(f"wait must be True or False, not {wait!r:.80}")


def _explain_properties(properties: object) -> WrongType:
    return WrongType(f"properties must be a dict, not {type(properties).__name__}: {properties!r:.80}")


def _check_text(text: str, count: int) -> None:
    if text.count("\x01") != count or text.count("\x02") != count - 1:
        raise MessageIllegal("tags, keys or a property contain a separator character (0x01 or 0x02)")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise MessageIllegal("tags, keys or a property contain a lone surrogate, which cannot be encoded") from None
    if size > PROPERTIES_BYTES_MAX:
        raise MessageIllegal(
            f"tags, keys and properties have {size} bytes, at most {PROPERTIES_BYTES_MAX} are allowed",
            hint="put long values into the body",
        )


def read_text(what: str, text: object) -> str:
    """Return a user's text as a plain str. Raises WrongType for anything else, rather than send its str()."""
    if not isinstance(text, str):
        raise WrongType(f"{what} must be a str, not {type(text).__name__}: {text!r:.80}")
    return str.__str__(text)  # the value, for a member of a string enum


def join_keys(keys: str | Iterable[str]) -> str:
    """Return the keys of a message as the value of its property. Raises MessageIllegal and WrongType."""
    if isinstance(keys, str):
        return str.__str__(keys)
    try:
        found = list(keys)
        joined = _BLANK.join(found)
    except TypeError as error:
        raise WrongType(f"keys must be a str or several of them, not {type(keys).__name__}: {keys!r:.80}") from error
    if joined.count(_BLANK) >= len(found) > 0:
        wrong = next(key for key in found if _BLANK in key)
        raise MessageIllegal(f"the key {wrong!r} contains a space, which separates keys")
    return joined


def check_body(body: bytes | bytearray | memoryview, size_max: int = MESSAGE_BODY_BYTES_MAX) -> bytes:
    """Return the body as bytes. Raises MessageIllegal and WrongType."""
    if body.__class__ is not bytes:
        if not isinstance(body, bytes | bytearray | memoryview):
            raise WrongType(
                f"body must be bytes, not {type(body).__name__}: encode it, or use Producer(serializer=...)"
            )
        body = bytes(body)
    if not body:
        raise MessageIllegal("the body is empty", hint="other brokers refuse empty messages; send at least one byte")
    if len(body) > size_max:
        raise MessageIllegal(
            f"the body has {len(body)} bytes, at most {size_max} are allowed",
            hint="split it, or raise message_bytes_max here and maxMessageSize on the broker",
        )
    return body


def check_flag(flag: int) -> int:
    """Return the flag if it is valid. Raises MessageIllegal and WrongType."""
    if isinstance(flag, bool) or not isinstance(flag, int):
        raise WrongType(f"flag must be an int, not {type(flag).__name__}: {flag!r:.80}")
    if not _INT32_MIN <= flag <= _INT32_MAX:
        raise MessageIllegal(f"the flag {flag} has more than 32 bits")
    return flag


def describe_delay(
    delay: Duration | None, delay_level: int | None, timer: Duration | datetime | None
) -> dict[str, str]:
    """Return the property that asks a broker to deliver a message later. Raises MessageIllegal and ConfigError."""
    given = {"delay": delay, "delay_level": delay_level, "timer": timer}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise MessageIllegal(f"{' and '.join(names)} are mutually exclusive", hint="pass one of them")
    if timer is not None:
        return _describe_timer(timer)
    level = 0
    if delay_level is not None:
        level = _check_delay_level(delay_level)
    elif delay is not None:
        level = find_delay_level(delay)
    return {DELAY: str(level)} if level else {}


def _check_delay_level(level: int) -> int:
    if isinstance(level, bool) or not isinstance(level, int):
        raise WrongType(f"delay_level must be an int, not {type(level).__name__}: {level!r:.80}; seconds are delay=")
    if not 0 <= level <= len(DELAY_LEVELS_MS):
        raise MessageIllegal(
            f"delay_level={level}: must be between 1 and {len(DELAY_LEVELS_MS)}",
            hint="timer= takes any delay (Eruca and RocketMQ 5)",
        )
    return level


def find_delay_level(delay: Duration, *, instead: str = "timer= takes any delay (Eruca and RocketMQ 5)") -> int:
    """Return the level of a delay, which must be one of the 18 that brokers have; 0 means not delayed.

    Raises MessageIllegal, with the nearest levels and the alternative in `instead` as its hint.
    """
    wanted = round(to_seconds("delay", delay) * 1000)
    if wanted == 0:
        return 0
    if wanted in DELAY_LEVELS_MS:
        return DELAY_LEVELS_MS.index(wanted) + 1
    below = [level for level in DELAY_LEVELS_MS if level < wanted][-1:]
    above = [level for level in DELAY_LEVELS_MS if level > wanted][:1]
    near = " and ".join(_show_level(level) for level in (*below, *above))
    raise MessageIllegal(
        f"delay={wanted / 1000:g} s: brokers have no such delay level",
        hint=f"the nearest {'are' if below and above else 'is'} {near}" + (f"; {instead}" if instead else ""),
    )


def _show_level(level_ms: int) -> str:
    for unit, seconds in (("h", 3600), ("min", 60)):
        if level_ms % (seconds * 1000) == 0:
            return f"{level_ms // (seconds * 1000)} {unit}"
    return f"{level_ms // 1000} s"


def _describe_timer(timer: Duration | datetime) -> dict[str, str]:
    """Return the property that asks a broker's timer for a delay, or for a time of delivery."""
    if isinstance(timer, datetime):
        at_ms = max(0, to_epoch_ms("timer", timer))
        _check_timer(timer, (at_ms - SystemClock().now_ms()) / 1000)
        return {TIMER_DELIVER_MS: str(at_ms)}
    seconds = to_seconds("timer", timer)
    _check_timer(timer, seconds)
    return {TIMER_DELAY_MS: str(round(seconds * 1000))}


def _check_timer(timer: Duration | datetime, seconds: float) -> None:
    if seconds > TIMER_DELAY_SECONDS_MAX:
        raise ConfigError(f"timer={timer!r}: must be at most {TIMER_DELAY_SECONDS_MAX} seconds (40 days) from now")

"""Options, declared once: a dataclass field carries default, unit, bounds, Java key, mutability and explanation.

Command-line flags, environment variables, `.conf` keys, the CONFIG page and the console form are all generated from
these fields, so an option cannot be in one of them and missing in another.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints

from eruca._ground import limits
from eruca._ground.digits import read_digits
from eruca.errors import ConfigError

Options = TypeVar("Options")

# Shown in place of a secret.
HIDDEN = "******"
_SHOWN_CHARS_MAX = 40
_HOURS_OF_DAY = 24


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """The facts about one option apart from its default."""

    java: str
    doc: str
    unit: str = ""
    low: int | None = None
    high: int | None = None
    mutable: bool = False
    secret: bool = False
    # Raises ConfigError for a text that is not a valid value.
    check: Callable[[str], None] | None = None
    # The default of RocketMQ 3.x, where it differs.
    older: int | str | None = None


def option(default: Any, java: str, doc: str, **facts: Any) -> Any:
    """Declare one option as a dataclass field. Bounds of numbers default to 0 and the largest int of Java.

    So values computed from options are safe: a wait is finite, and a product fits into 64 bits.
    """
    if type(default) is int:
        facts = {"low": 0, "high": limits.OPTION_MAX, **facts}
    if facts.get("secret") and facts.get("mutable"):
        raise ValueError(f"{java} is secret: an option that changes while a server runs is logged and saved in a file")
    is_shown = not facts.get("secret", False)
    return field(default=default, repr=is_shown, metadata={"option": OptionInfo(java=java, doc=doc, **facts)})


def info_of(options: type[Any] | Any) -> dict[str, OptionInfo]:
    """The declared facts about every option of a class, by attribute name."""
    return {f.name: f.metadata["option"] for f in dataclasses.fields(options) if "option" in f.metadata}


def from_properties(options: type[Options], properties: Mapping[str, str]) -> Options:
    """Make an options object from Java-style `key=value` pairs; keys of other classes are ignored."""
    hints = get_type_hints(options)
    values: dict[str, Any] = {}
    for name, info in info_of(options).items():
        if info.java in properties:
            values[name] = parse_value(info.java, properties[info.java], hints[name])
    made = options(**values)
    check_bounds(made)
    return made


def parse_value(key: str, text: str, kind: Any) -> Any:
    """Convert the text of a property to the type its option declares."""
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}={text}: expected true or false")
        return text.lower() == "true"
    if kind is int:
        number = read_digits(text.removeprefix("-"))
        if number is None:
            raise ConfigError(f"{key}={shorten(text)}: expected a whole number")
        return -number if text.startswith("-") else number
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(text)
        except ValueError:
            known = ", ".join(str(member.value) for member in kind)
            raise ConfigError(f"{key}={text}: expected one of {known}") from None
    return text


def write_value(value: object) -> str:
    """Return the text of a property: what `parse_value` reads."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value if isinstance(value, enum.Enum) else value)


def show_value(text: str, info: OptionInfo) -> str:
    """The text of an option as it may be shown: a secret is hidden."""
    return HIDDEN if info.secret and text else text


def shorten(text: str) -> str:
    """A user's value, shortened for an error message."""
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}..."


def check_bounds(options: Any) -> None:
    """Refuse a number outside the bounds its option declares, and a text its check refuses."""
    for name, info in info_of(options).items():
        value = getattr(options, name)
        if info.check is not None:
            info.check(value)
        if info.low is not None and value < info.low:
            raise ConfigError(f"{info.java}={value}: the minimum is {info.low} {info.unit}".rstrip())
        if info.high is not None and value > info.high:
            raise ConfigError(f"{info.java}={value}: the maximum is {info.high} {info.unit}".rstrip())


def check_hours(text: str) -> None:
    """Refuse a `deleteWhen` that does not name hours of the day."""
    hours = [hour.strip() for hour in text.split(";") if hour.strip()]
    for hour in hours or [text]:
        number = read_digits(hour, len("23"))
        if number is None or number >= _HOURS_OF_DAY:
            raise ConfigError(f"deleteWhen={shorten(text)}: expected hours from 00 to 23, separated by `;`")


class FlushMode(enum.Enum):
    """When an append may be acknowledged: at once, or after it is on the disk."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """All options of the store room."""

    commitlog_segment_bytes: int = option(
        limits.COMMITLOG_SEGMENT_BYTES,
        "mappedFileSizeCommitLog",
        "size of one commit-log segment; a store keeps the size it was made with",
        unit="bytes",
        low=4096,
    )
    consumequeue_segment_bytes: int = option(
        limits.CONSUMEQUEUE_SEGMENT_BYTES,
        "mappedFileSizeConsumeQueue",
        "size of one consume-queue segment, rounded up to whole 20-byte entries",
        unit="bytes",
        low=20,
    )
    index_enabled: bool = option(True, "messageIndexEnable", "index messages by key and unique id")
    index_slots: int = option(
        limits.INDEX_SLOTS, "maxHashSlotNum", "hash slots of one index file", unit="slots", low=1, high=2**31 - 1
    )
    index_entries: int = option(
        limits.INDEX_ENTRIES, "maxIndexNum", "entries of one index file", unit="entries", low=2, high=2**31 - 1
    )
    message_bytes_max: int = option(
        limits.MESSAGE_BODY_BYTES_MAX,
        "maxMessageSize",
        "largest body of one message or one whole batch",
        unit="bytes",
        low=1,
        high=limits.MESSAGE_BODY_BYTES_CEILING,
        mutable=True,
    )
    topic_bytes_max: int = option(
        limits.TOPIC_BYTES_MAX,
        "topicNameLengthMax",
        "longest topic name; Java 4.9 cannot read a store with names longer than 127",
        unit="characters",
        low=1,
        high=limits.RECORD_TOPIC_BYTES_MAX,
        older=255,
    )
    properties_bytes_max: int = option(
        limits.PROPERTIES_BYTES_MAX,
        "propertiesLengthMax",
        "largest size of the properties of one message; Java 4.9 cannot read a store with more than 32767",
        unit="bytes",
        low=1,
        high=limits.RECORD_PROPERTIES_BYTES_MAX,
        older=65_535,
    )
    flush_mode: FlushMode = option(FlushMode.ASYNC, "flushDiskType", "acknowledge at once, or after a sync to the disk")
    flush_interval_ms: int = option(
        500,
        "flushIntervalCommitLog",
        "how often the commit log is synced",
        unit="ms",
        low=1,
        mutable=True,
        older=1000,
    )
    flush_pages_min: int = option(
        4, "flushCommitLogLeastPages", "dirty 4 KiB pages that make a sync worthwhile", unit="pages", mutable=True
    )
    flush_thorough_ms: int = option(
        10_000, "flushCommitLogThoroughInterval", "sync at least this often, however little is dirty", unit="ms"
    )
    sync_flush_timeout_ms: int = option(
        5000, "syncFlushTimeout", "how long a sync-flush append waits for the disk", unit="ms", low=1, mutable=True
    )
    queue_flush_interval_ms: int = option(
        1000, "flushIntervalConsumeQueue", "how often consume queues, index and checkpoint are synced", unit="ms", low=1
    )
    transient_enabled: bool = option(
        False, "transientStorePoolEnable", "write to memory first and commit to the file on a timer"
    )
    transient_pool_size: int = option(
        5, "transientStorePoolSize", "how many segments' worth of uncommitted bytes may wait", unit="segments", low=1
    )
    commit_interval_ms: int = option(
        200, "commitIntervalCommitLog", "how often the transient buffer is committed to the file", unit="ms", low=1
    )
    warm_segments: bool = option(
        False, "warmMapedFileEnable", "touch every page of a new segment before it is used (slower to create)"
    )
    retention_hours: int = option(
        72,
        "fileReservedTime",
        "age after which a segment may be deleted",
        unit="hours",
        mutable=True,
    )
    delete_hours: str = option(
        "04", "deleteWhen", "hours of the day for deletion, separated by `;`", check=check_hours, mutable=True
    )
    disk_ratio_percent_max: int = option(
        75,
        "diskMaxUsedSpaceRatio",
        "above this, expired segments are deleted at any hour",
        unit="percent",
        low=10,
        high=95,
        mutable=True,
    )
    disk_ratio_percent_force: int = option(
        85,
        "diskSpaceCleanForciblyRatio",
        "above this, segments are deleted before they expire",
        unit="percent",
        low=1,
        high=100,
    )
    disk_ratio_percent_refuse: int = option(
        90,
        "diskSpaceWarningLevelRatio",
        "above this, appends are refused",
        unit="percent",
        low=1,
        high=100,
        older=85,
    )
    clean_forcibly: bool = option(True, "cleanFileForciblyEnable", "allow deletion before expiry on a full disk")
    delete_segments_per_pass: int = option(
        10, "deleteFilesBatchMax", "segments one pass may delete", unit="segments", low=1, mutable=True
    )
    delete_only_archived: bool = option(
        False,
        "deleteOnlyArchived",
        "delete only segments before archivedPosition; a full disk then refuses messages rather than lose them"
        " (not in 4.9)",
        mutable=True,
    )
    archived_position: int = option(
        0,
        "archivedPosition",
        "everything in the log before this is archived; `eruca pipeline archive --mark` moves it, and it is kept"
        " (not in 4.9)",
        unit="bytes",
        high=limits.POSITION_MAX,
        mutable=True,
    )
    check_crc_on_recover: bool = option(True, "checkCRCOnRecover", "verify every body when the store opens")
    page_cache_busy_ms: int = option(
        1000, "osPageCacheBusyTimeOutMills", "an append that waited longer marks the disk busy", unit="ms", low=1
    )
    delay_levels: str = option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "messageDelayLevel",
        "the delay of each level, level 1 first",
    )

    def __post_init__(self) -> None:
        entry = 20
        rounded = -(-self.consumequeue_segment_bytes // entry) * entry
        object.__setattr__(self, "consumequeue_segment_bytes", rounded)
        if self.transient_enabled and self.flush_mode is FlushMode.SYNC:
            raise ConfigError(
                "transientStorePoolEnable=true needs flushDiskType=ASYNC_FLUSH: "
                "a buffer in memory cannot promise what a sync promises"
            )


_DELAY_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> list[int]:
    """The delay in milliseconds of each level of a `messageDelayLevel` string, level 1 first."""
    levels: list[int] = []
    for word in text.split():
        unit = _DELAY_UNITS_MS.get(word[-1])
        number = read_digits(word[:-1])
        if unit is None or number is None or number * unit > limits.DELAY_LEVEL_MS_MAX:
            raise ConfigError(
                f"messageDelayLevel: {shorten(word)!r} is not a number followed by s, m, h or d, at most "
                f"{limits.DELAY_LEVEL_MS_MAX // 86_400_000} days"
            )
        levels.append(number * unit)
    if not levels:
        raise ConfigError("messageDelayLevel is empty")
    return levels

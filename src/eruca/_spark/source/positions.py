"""Where a query starts or ends, as users write it: a word, an offset, a group or a time, for all queues or for some."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from eruca._ground.suggestions import suggest_name
from eruca._spark.offsets import EARLIEST, LATEST, OFFSET_WORDS, QueueTree, read_offset, read_tree
from eruca._spark.timestamps import Timestamp, read_timestamp
from eruca._wire.names import check_group
from eruca.errors import ErucaError

GROUP_PREFIX: Final = "group:"
OFFSETS_EXAMPLE: Final = (
    '{"orders": {"broker-a": {"0": 120, "1": "latest"}}, "clicks": "earliest", "payments": "-10m", "audit": "group:x"}'
)
TIMES_EXAMPLE: Final = '{"orders": "-10m", "payments": "2026-11-15T08:00:00Z", "clicks": "latest"}'
_PLACES: Final = "an offset, earliest, latest, group:NAME or a time such as -10m"
_TIMES: Final = "a time such as -10m or 2026-11-15T08:00:00Z, earliest or latest"


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offset of a group."""

    group: str


# An offset, EARLIEST or LATEST; the offset of a group; or that of the first message stored at a time or later.
Place: TypeAlias = int | Committed | Timestamp


@dataclass(frozen=True, slots=True)
class Position:
    """Where a query starts or ends: exactly one of the first two fields is set."""

    # In all queues.
    everywhere: Place | None = None
    # By queue. Queues that are not listed start at their first message and end at their last.
    places: QueueTree | None = None
    # The option that said so.
    option: str = field(default="", compare=False)

    @property
    def is_end(self) -> bool:
        """Whether it is one end of every queue, so that it is always within the queue."""
        return self.everywhere in (EARLIEST, LATEST)

    @property
    def has_offsets(self) -> bool:
        """Whether the user wrote offsets of queues, which can contradict others."""
        return self.places is not None and any(isinstance(place, int) for place in self.places.list_values())

    def contains(self, place: Place) -> bool:
        """Whether a place is the one of all queues, or of some."""
        return self.everywhere == place or (self.places is not None and place in self.places.list_values())


AT_EARLIEST: Final = Position(EARLIEST)
AT_LATEST: Final = Position(LATEST)


def read_position(text: str) -> Position:
    """Read startingOffsets or endingOffsets."""
    if text.startswith("{"):
        return Position(places=read_tree(text, _read_place, OFFSETS_EXAMPLE))
    # Elsewhere, a single offset or time would be a mistake: times have options of their own.
    if text.lower() in OFFSET_WORDS or text.lower().startswith(GROUP_PREFIX):
        return Position(_read_place(text))
    guess = suggest_name(text.lower(), OFFSET_WORDS)
    raise ValueError(
        f"expected earliest, latest, group:NAME or JSON, for example {OFFSETS_EXAMPLE}" + (guess and f"; {guess}")
    )


def read_times(text: str) -> Position:
    """Read startingOffsetsByTimestamp or endingOffsetsByTimestamp."""
    return Position(places=read_tree(text, _read_time, TIMES_EXAMPLE))


def read_time(text: str) -> Position:
    """Read startingTimestamp or endingTimestamp."""
    return Position(read_timestamp(text))


def read_group(text: str) -> str:
    """Read the name of a group."""
    try:
        return check_group(text)
    except ErucaError as error:
        raise ValueError(str(error)) from None


def _read_place(value: Any) -> Place:
    """Read a place; a number is an offset."""
    text = str(value).strip()
    if text.lower().startswith(GROUP_PREFIX):
        return Committed(read_group(text[len(GROUP_PREFIX) :].strip()))
    if text.removeprefix("-").isdecimal():
        return read_offset(value)
    return _read_word_or_time(value, _PLACES)


def _read_time(value: Any) -> Place:
    """Read a time; a number is one too."""
    return _read_word_or_time(value, _TIMES)


def _read_word_or_time(value: Any, expected: str) -> Place:
    text = str(value).strip().lower()
    if text in OFFSET_WORDS:
        return OFFSET_WORDS[text]
    try:
        return read_timestamp(value)
    except ValueError:
        guess = suggest_name(text, OFFSET_WORDS)
        raise ValueError(f"{value!r} is not a place: expected {expected}" + (guess and f"; {guess}")) from None

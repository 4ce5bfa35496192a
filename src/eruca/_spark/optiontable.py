"""Options of a data source, declared once: each with its reader, its default and a line of help.

Spark passes options as text and ignores their case. An unknown name fails when the query is planned, with a suggestion:
a misspelt `startingOffset` must not read everything from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from eruca._ground.suggestions import suggest_name
from eruca.errors import ConfigError

Reader = Callable[[str], Any]

# Options that Spark itself adds to those of a source or sink.
_SPARKS_OWN: Final = frozenset(
    {
        "path",
        "paths",
        "checkpointlocation",
        "queryname",
        "outputmode",
        "mode",
        "mergeschema",
        "__paths__",
        "sourcearchivedir",
    }
)
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_DURATIONS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class SourceOption:
    """One option."""

    name: str
    read: Reader
    default: Any
    help: str

    def show_default(self) -> str:
        """Return the default as a user would write it; empty if there is none, or if the help says it."""
        if self.default is None or isinstance(self.default, tuple | list | dict):
            return ""
        if self.read is read_duration_ms:
            return show_duration(self.default) if self.default else "0"
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


class OptionTable:
    """The options of one source or sink."""

    def __init__(self, who: str, options: Iterable[SourceOption]) -> None:
        self.who = who
        self.options = tuple(options)
        self._by_name = {option.name.lower(): option for option in self.options}

    def read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return the value of every option by name. Raises ConfigError for an unknown name or a wrong value."""
        values = {option.name: option.default for option in self.options}
        for name, text in given.items():
            option = self._by_name.get(name.lower())
            if option is None:
                if name.lower() in _SPARKS_OWN or name.lower().startswith("spark."):
                    continue
                raise self._refuse_name(name)
            try:
                values[option.name] = option.read(text.strip())
            except ConfigError:
                raise
            except ValueError as error:
                raise ConfigError(f"option {option.name}={text!r}: {error}", hint=option.help) from None
        return values

    def _refuse_name(self, name: str) -> ConfigError:
        names = [option.name for option in self.options]
        guess = suggest_name(name, names, f"the options are {', '.join(names)}")
        return ConfigError(f"{self.who} has no option {name}", hint=guess)


# -- readers of values -------------------------------------------------------------------------------------------------


def read_text(text: str) -> str:
    """Read a text that is not empty."""
    if not text:
        raise ValueError("it is empty")
    return text


def read_flag(text: str) -> bool:
    """Read true or false."""
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("expected true or false")


def read_choice(*choices: str) -> Reader:
    """Return a reader of one of some words, in any case."""

    def read(text: str) -> str:
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        guess = suggest_name(text.lower(), choices)
        raise ValueError(f"expected one of {', '.join(choices)}" + (guess and f"; {guess}"))

    return read


def read_count(least: int = 1) -> Reader:
    """Return a reader of whole numbers with a lower bound."""

    def read(text: str) -> int:
        try:
            number = int(text.replace("_", "").replace(",", ""))
        except ValueError:
            raise ValueError("expected a whole number") from None
        if number < least:
            raise ValueError(f"expected at least {least}")
        return number

    return read


def read_bytes(text: str) -> int:
    """Read a number of bytes, optionally with the suffix k, m or g."""
    number, unit = text.lower().removesuffix("b").removesuffix("i"), ""
    if number[-1:] in _UNITS:
        number, unit = number[:-1], number[-1:]
    try:
        size = int(float(number) * _UNITS[unit])
    except ValueError:
        raise ValueError("expected bytes, for example 1048576, 512k or 64m") from None
    if size < 1:
        raise ValueError("expected at least 1")
    return size


def read_duration_ms(text: str) -> int:
    """Return the milliseconds of a time span: `500ms`, `10s`, `5m`, `2h`, `1d`, or a number of seconds."""
    lower = text.lower()
    for unit in ("ms", "s", "m", "h", "d"):
        if lower.endswith(unit):
            number = lower[: -len(unit)].strip()
            break
    else:
        number, unit = lower, "s"
    try:
        span = round(float(number) * _DURATIONS_MS[unit])
    except (ValueError, OverflowError):
        raise ValueError("expected a time span, for example 500ms, 10s, 5m, 2h or 1d") from None
    if span < 0:
        raise ValueError("expected a time span of at least 0")
    return span


def show_duration(span_ms: int) -> str:
    """Return a time span as `read_duration_ms` reads it, in the largest unit that divides it."""
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if span_ms % _DURATIONS_MS[unit] == 0)
    return f"{span_ms // _DURATIONS_MS[unit]}{unit}"

"""Options of servers as texts: which of them are wanted, and which a server did not take."""

from __future__ import annotations

from collections.abc import Mapping

from eruca._ground.digits import read_digits


def choose_options(options: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return those that are wanted."""
    return {name: options[name] for name in wanted if name in options}


def list_different(wanted: Mapping[str, str], options: Mapping[str, str]) -> list[str]:
    """Return the names whose values are not the wanted ones. `TRUE` is `true`, and `072` is `72`."""
    return [name for name, text in wanted.items() if name not in options or _read(text) != _read(options[name])]


def _read(text: str) -> str | int:
    text = text.strip()
    number = read_digits(text)
    return text.casefold() if number is None else number

"""Offsets of a group in a JSON file, for `eruca offset export` and `import`."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec

from eruca._cli.output import to_plain
from eruca.admin import SavedOffsets
from eruca.errors import ConfigError


def write_offsets(path: Path, saved: SavedOffsets) -> None:
    """Write offsets to a file, or to stdout for `-`. Raises ConfigError."""
    text = json.dumps(to_plain(saved), indent=2) + "\n"
    try:
        with click.open_file(str(path), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="choose another file") from error


def read_offsets(path: Path) -> SavedOffsets:
    """Read offsets from a file, or from stdin for `-`. Raises ConfigError."""
    try:
        with click.open_file(str(path), "rb") as file:
            return msgspec.json.decode(file.read(), type=SavedOffsets)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="is the path right?") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} has no saved offsets: {error}", hint="eruca offset export writes them") from error

"""Results of the admin API as plain maps, lists and scalars, without secrets."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import msgspec

_HIDDEN = "***"
_SECRET_NAME = re.compile(r"secret|passw|token|credential|access_?key|private", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(://)[^/@\s:]*:[^/@\s]+@")


def to_plain(value: Any) -> Any:
    """Return maps, lists and scalars; times as ISO 8601, durations in seconds, bytes as text."""
    return _write_scalars(msgspec.to_builtins(value, builtin_types=(timedelta, bytes)))


def _write_scalars(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _write_scalars(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_write_scalars(item) for item in value]
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def hide_secrets(value: Any) -> Any:
    """Replace the values of options that are secret by their name, and passwords in addresses."""
    if isinstance(value, dict):
        return {
            key: _HIDDEN if isinstance(item, str) and item and _SECRET_NAME.search(key) else hide_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [hide_secrets(item) for item in value]
    return _SECRET_IN_URL.sub(rf"\1{_HIDDEN}@", value) if isinstance(value, str) else value

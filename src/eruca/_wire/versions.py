"""Names of the versions that peers announce as numbers."""

from __future__ import annotations

from typing import Final

from eruca._wire.codes import VERSION_HIGHER

# From 4.0 on every release from x.y.0 to x.y.9 has two numbers, its snapshot and itself, whether it exists or not.
_FIRST: Final = 212
_OF_MINOR: Final = 20
_MINORS: Final = 10
_MAJOR: Final = 4


def name_version(number: int) -> str:
    """Return the release that a peer announces: `4.9.7` for 407."""
    if number >= VERSION_HIGHER:
        return "6 or later"
    if number < _FIRST:
        return "before 4.0"
    minors, rest = divmod(number - _FIRST, _OF_MINOR)
    major, minor = divmod(minors, _MINORS)
    return f"{_MAJOR + major}.{minor}.{rest // 2}" + ("" if rest % 2 else "-SNAPSHOT")

"""`make torture ONLY=spark`: its parts one after the other, each in its own module."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

# By module and function; each gets the number of minutes, prints what it saw, and returns 0 when all is well.
PARTS: Final = {
    "spark-stream": ("tests.torture.sparkstream", "run_stream"),
    "spark-sink": ("tests.torture.sparksink", "run_sink"),
    "spark-rebuild": ("tests.torture.sparkrebuild", "run_rebuild"),
}


def find_part(name: str) -> Callable[[float | None], int]:
    """What runs a part; its module is imported only now, because Spark is large."""
    module, function = PARTS[name]
    found: Callable[[float | None], int] = getattr(import_module(module), function)
    return found


def torture(minutes: float | None) -> int:
    """Run all parts, also when one failed; 0 when all is well."""
    return max([find_part(name)(minutes) for name in PARTS])

"""How deep maps and lists nest: what looks into them by recursion has to ask first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nests_deeper(value: Any, levels: int) -> bool:
    """Return whether anything is in more than `levels` maps and lists. Does not recurse itself."""
    found = [value]
    for _ in range(levels + 1):
        found = [
            each
            for item in found
            if isinstance(item, Mapping | list | tuple)
            for each in (item.values() if isinstance(item, Mapping) else item)
        ]
        if not found:
            return False
    return True

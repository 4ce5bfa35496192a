"""Suggestions for misspelt names, used in the hints of errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# How similar two names must be, from 0 to 1.
_LIKENESS = 0.5


def suggest_name(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return "did you mean X?" for the closest known name, or `otherwise` if none is close."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_LIKENESS)
    return f"did you mean {by_lower[near[0]]}?" if near else otherwise

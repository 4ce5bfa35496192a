"""The right name for a wrong one, which hints of errors say."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# How alike two names must be, from 0 to 1.
_LIKENESS = 0.5


def suggest_name(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The nearest of the known names as a question; `otherwise` when none is near."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_LIKENESS)
    return f"did you mean {by_lower[near[0]]}?" if near else otherwise

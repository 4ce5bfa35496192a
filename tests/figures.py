"""What a run counted: seeds, messages sent, lost, repeated. Shown at the end of the run, also when all is well."""

from __future__ import annotations

_LINES: list[str] = []


def note_figures(text: str) -> None:
    """Show a line (or some) at the end of this run of tests."""
    _LINES.extend(text.strip("\n").splitlines())


def list_figures() -> list[str]:
    """All that was noted so far."""
    return list(_LINES)

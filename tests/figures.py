"""What a run counted: seeds, messages sent, lost, repeated. Shown at the end of the run, also when all is well."""

from __future__ import annotations

_noted: list[str] = []


def note_figures(text: str) -> None:
    """Show a line or several at the end of this run of tests."""
    _noted.extend(text.strip("\n").splitlines())


def take_figures() -> list[str]:
    """Return what was noted since the last call, and forget it."""
    taken = list(_noted)
    _noted.clear()
    return taken

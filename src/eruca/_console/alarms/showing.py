"""What the pages of alarms have in common."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from eruca._console.pages.times import show_duration, show_number
from eruca._console.pages.visit import Visit
from eruca._console.watching.rules import UNITS, RuleKind

# A slave that is not connected is behind by more than any threshold.
_NO_END_S = 1e8


def show_value(visit: Visit, kind: RuleKind, value: float) -> str:
    """Return a value of a rule's kind with its unit."""
    unit = UNITS[kind]
    if unit == "seconds":
        return visit.text("alarms.no_end") if value > _NO_END_S else show_duration(visit.texts, value)
    return visit.text(f"alarms.unit.{unit}", value=show_number(round(value, 1)))


def go_to(visit: Visit, *parts: str) -> Response:
    """Return the way to another page after a form was posted."""
    return RedirectResponse(visit.url(*parts), 303)

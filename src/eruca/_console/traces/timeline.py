"""The steps of a message as a timeline: who did what, when, and how long it took."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec
from markupsafe import Markup

from eruca._admin.storedmessages import StoredMessage
from eruca._admin.tracing import TraceRow
from eruca._console.pages.texts import Texts
from eruca._console.pages.times import show_duration, show_exact

_WIDTH: Final = 1000
_LANE_PX: Final = 52
_TOP_PX: Final = 4
_LABEL_PX: Final = 230
_RIGHT_PX: Final = 90
_BAR_PX: Final = 10
_CHAR_PX: Final = 6
_LABEL_CHARS: Final = 30
_LANES_MAX: Final = 40
_ORDER: Final = {"produced": 0, "sent": 0, "stored": 1}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One step."""

    # produced, stored, sent, delivered, consumed or decided.
    kind: str
    at: datetime
    # The client, broker or group that did it.
    who: str
    seconds: float | None = None
    # ok, warning, error or muted.
    tone: str = "muted"
    # How many times it had been delivered before.
    tries: int = 0
    outcome: str = ""
    # Since the first step.
    after: float = 0.0


def list_events(message: StoredMessage | None, steps: Sequence[TraceRow]) -> list[Event]:
    """Return the events of a message, oldest first."""
    events: list[Event] = []
    if message is not None:
        traced = any(step.step == "sent" for step in steps)
        if message.born_at is not None and not traced:
            events.append(Event(kind="produced", at=message.born_at, who=message.born_host))
        if message.stored_at is not None:
            events.append(Event(kind="stored", at=message.stored_at, who=message.broker, tone="ok"))
    delivered = {step.request_id: step for step in steps if step.step == "delivered" and step.request_id}
    for step in steps:
        begin = delivered.get(step.request_id)
        if step.at is not None:
            # Outcomes do not repeat how often the message had been delivered before.
            events.append(_read_step(step, step.at, begin.tries if begin else step.tries))
    # In one millisecond a message is sent, then stored, and then delivered.
    events.sort(key=lambda event: (event.at, _ORDER.get(event.kind, len(_ORDER))))
    first = events[0].at if events else None
    return [
        msgspec.structs.replace(event, after=(event.at - first).total_seconds() if first else 0.0) for event in events
    ]


def _read_step(step: TraceRow, at: datetime, tries: int) -> Event:
    who = f"{step.group} @ {step.client_host}" if step.client_host else step.group
    kind = {"sent": "sent", "delivered": "delivered", "consumed": "consumed"}.get(step.step, "decided")
    tone = {True: "ok", False: "error", None: "muted"}[step.succeeded]
    if kind == "consumed" and step.succeeded and step.outcome not in ("", "SUCCESS"):
        tone = "warning"
    # A client notes the end of a consumption, and how long it took.
    if kind == "consumed" and step.seconds:
        at = _shift(at, -step.seconds)
    return Event(kind=kind, at=at, who=who, seconds=step.seconds, tone=tone, tries=tries, outcome=step.outcome)


# -- drawing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scale:
    """Times to pixels: a gap is as wide as the logarithm of its length, so that steps of milliseconds and of hours are
    both visible."""

    times: Sequence[datetime]
    places: Sequence[float]

    def find(self, moment: datetime) -> float:
        """Return the place of one of the times."""
        return self.places[self.times.index(moment)]


def _make_scale(events: Sequence[Event]) -> _Scale:
    times = sorted({moment for event in events for moment in (event.at, _end(event))})
    sums = [0.0]
    for before, after in itertools.pairwise(times):
        sums.append(sums[-1] + 1 + math.log1p((after - before).total_seconds() * 1000))
    room = _WIDTH - _LABEL_PX - _RIGHT_PX
    widest = sums[-1] or 1.0
    return _Scale(times, [_LABEL_PX + room * each / widest for each in sums])


def _end(event: Event) -> datetime:
    return _shift(event.at, event.seconds or 0)


def _shift(moment: datetime, seconds: float) -> datetime:
    """Return a time some seconds later; the time itself for a number that a client made up."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return moment


def draw_timeline(events: Sequence[Event], texts: Texts) -> Markup:
    """Return the events as SVG: a lane for each who, a dot or a bar for each event. A table has the same as text."""
    lanes = list(dict.fromkeys(event.who for event in events))[:_LANES_MAX]
    if not lanes:
        return Markup("")
    scale = _make_scale(events)
    height = _TOP_PX + _LANE_PX * len(lanes)
    parts = [
        Markup('<svg class="timeline" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            _WIDTH, height, texts("traces.timeline")
        )
    ]
    for number, lane in enumerate(lanes):
        y = _TOP_PX + _LANE_PX * number + _LANE_PX / 2
        name = lane if len(lane) <= _LABEL_CHARS else f"{lane[: _LABEL_CHARS - 1]}…"
        parts.append(Markup('<text class="lane" x="0" y="{}">{}<title>{}</title></text>').format(y + 4, name, lane))
        parts.append(Markup('<line class="rail" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(_LABEL_PX, _WIDTH, y, y))
    ends: dict[tuple[str, bool], float] = {}
    for event in events:
        if event.who in lanes:
            y = _TOP_PX + _LANE_PX * lanes.index(event.who) + _LANE_PX / 2
            parts.append(_draw_event(event, scale, y, texts, ends))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _draw_event(event: Event, scale: _Scale, y: float, texts: Texts, ends: dict[tuple[str, bool], float]) -> Markup:
    """Return one event; its label is above the line, or below it, where none ends later (`ends`), or nowhere."""
    x, end = scale.find(event.at), scale.find(_end(event))
    label = texts(f"traces.kind.{event.kind}")
    about = f"{label} · {show_exact(event.at)}"
    if event.seconds:
        about += f" · {show_duration(texts, event.seconds)}"
    if end - x > _BAR_PX:
        box = Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="4"/>')
        shape = box.format(x, y - _BAR_PX / 2, end - x, _BAR_PX)
    else:
        shape = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="6"/>').format(x, y)
    words = f"{label} +{show_duration(texts, event.after)}"
    width = _CHAR_PX * len(words)
    start = min(x, _WIDTH - width)
    above = next((above for above in (True, False) if ends.get((event.who, above), 0.0) <= start), None)
    text = Markup("")
    if above is not None:
        ends[event.who, above] = start + width + _CHAR_PX
        place = y - 11 if above else y + 20
        text = Markup('<text class="step" x="{:.1f}" y="{:.1f}">{}</text>').format(start, place, words)
    return Markup('<g class="event {}">{}{}<title>{}</title></g>').format(event.tone, shape, text, about)

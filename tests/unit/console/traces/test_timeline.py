"""The timeline of a message: its events in order, and the drawing."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from eruca._admin.tracing import TraceRow
from eruca._console.pages.texts import texts_of
from eruca._console.traces.timeline import draw_timeline, list_events
from tests.unit.admin.test_drafts import make_message

BEGIN = datetime(2026, 11, 15, tzinfo=UTC)


def at(milliseconds: int) -> datetime:
    return BEGIN + timedelta(milliseconds=milliseconds)


def step(kind: str, ms: int, group: str, **facts: object) -> TraceRow:
    known = {"step": kind, "at": at(ms), "group": group, "topic": "", "message_id": "7F", **facts}
    return TraceRow(**known)  # type: ignore[arg-type]


def test_events_are_in_order_with_what_each_took() -> None:
    steps = [
        step("sent", 0, "shop", client_host="10.0.0.7", seconds=0.004, succeeded=True),
        step("delivered", 10, "billing", client_host="10.0.0.8", request_id="r1", tries=0),
        step("consumed", 60, "billing", client_host="10.0.0.8", request_id="r1", seconds=0.05, succeeded=False),
        step("delivered", 10_000, "billing", client_host="10.0.0.9", request_id="r2", tries=1),
        step("consumed", 10_030, "billing", client_host="10.0.0.9", request_id="r2", seconds=0.02, succeeded=True,
             outcome="SUCCESS"),
        step("consumed", 10_050, "audit", seconds=0.01, succeeded=True, outcome="TIME_OUT"),
    ]  # fmt: skip
    events = list_events(make_message(born_at=at(0), stored_at=at(2)), steps)
    assert [(event.kind, event.tone, event.tries, round(event.after * 1000)) for event in events] == [
        ("sent", "ok", 0, 0),
        ("stored", "ok", 0, 2),
        ("delivered", "muted", 0, 10),
        ("consumed", "error", 0, 10),
        ("delivered", "muted", 1, 10_000),
        ("consumed", "ok", 1, 10_010),
        ("consumed", "warning", 0, 10_040),
    ]
    assert events[2].who == "billing @ 10.0.0.8" and events[6].who == "audit"


def test_what_happens_in_one_millisecond_is_in_the_order_of_its_causes() -> None:
    steps = [step("delivered", 0, "billing", request_id="r1"), step("sent", 0, "shop", succeeded=True)]
    events = list_events(make_message(born_at=at(0), stored_at=at(0)), steps)
    assert [event.kind for event in events] == ["sent", "stored", "delivered"]


def test_without_traces_there_is_what_the_broker_knows() -> None:
    events = list_events(make_message(born_at=at(0), stored_at=at(3)), [])
    assert [event.kind for event in events] == ["produced", "stored"]
    assert list_events(None, []) == [] and draw_timeline([], texts_of("en")) == ""


def test_the_drawing_is_svg_and_names_are_escaped() -> None:
    steps = [step("consumed", number * 7, f"<b>{number % 3}", seconds=0.03, succeeded=True) for number in range(30)]
    svg = draw_timeline(list_events(make_message(stored_at=at(0)), steps), texts_of("en"))
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == "Timeline"
    assert len(root.findall("g")) == 31
    lanes = [text.findtext("title") for text in root.findall("text[@class='lane']")]
    assert sorted(filter(None, lanes)) == ["<b>0", "<b>1", "<b>2", "broker-a"]
    for box in root.iter("rect"):
        assert float(box.get("x", "-1")) >= 0 and float(box.get("x", "0")) + float(box.get("width", "0")) <= 1000
    # Labels of one lane do not overlap.
    for y in {text.get("y") for text in root.iter("text") if text.get("class") == "step"}:
        labels = sorted(
            (float(each.get("x", "0")), 6 * len(each.text or "")) for each in root.iter("text")
            if each.get("class") == "step" and each.get("y") == y
        )  # fmt: skip
        for (left, width), (right, _) in itertools.pairwise(labels):
            assert left + width <= right + 1


@pytest.mark.parametrize("seconds", [1e15, -1e15, 3e11, 9.2e15, -5.0])
@pytest.mark.parametrize("kind", ["consumed", "sent"])
def test_times_that_a_client_made_up_are_drawn(kind: str, seconds: float) -> None:
    """Whoever may send to the topic of traces can write what he likes into it."""
    steps = [step(kind, 5, "liar", seconds=seconds, succeeded=True), step("delivered", 7, "billing")]
    events = list_events(make_message(stored_at=at(0)), steps)
    assert {event.who for event in events} >= {"liar", "billing"}
    assert len(ElementTree.fromstring(draw_timeline(events, texts_of("en"))).findall("g")) == len(events)

"""Sentences of a diagnosis in the language of the user, with the values set apart."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from markupsafe import Markup, escape

from eruca._console.groups.diagnosis import Sentence
from eruca._console.pages.rendering import draw_time
from eruca._console.pages.times import NONE, show_duration, show_number, show_rate
from eruca._console.pages.visit import Visit


def write_sentence(visit: Visit, sentence: Sentence) -> Markup:
    """Return a sentence as HTML."""
    key = f"diagnosis.{sentence.key}"
    if not visit.texts.has(key):
        key += ".one" if sentence.values["count"] == 1 else ".other"
    text = Markup(escape(visit.text(key)))
    return text.format(**{name: _write(visit, value) for name, value in sentence.values.items()})


def _write(visit: Visit, value: Any) -> Markup:
    if value is None:
        return escape(NONE)
    if isinstance(value, datetime):
        return draw_time(visit.texts, value)
    if isinstance(value, timedelta):
        return Markup("<strong>{}</strong>").format(show_duration(visit.texts, value))
    if isinstance(value, float):
        return Markup("<strong>{}</strong>").format(show_rate(value))
    if isinstance(value, int):
        return Markup("<strong>{}</strong>").format(show_number(value))
    return Markup("<code>{}</code>").format(value)

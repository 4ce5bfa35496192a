"""Options of data sources: how durations are read and shown."""

from __future__ import annotations

from datetime import timedelta

import pytest

from eruca._cli.pipelineoptions import parse_span
from eruca._spark.cluster import ACCESS_OPTIONS
from eruca._spark.optiontable import SourceOption, read_count, read_duration_ms, read_flag, show_duration
from eruca._spark.sink.options import SINK_OPTIONS
from eruca._spark.source.options import SOURCE_OPTIONS


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [("300", 300_000), ("0.5", 500), ("0", 0), ("500ms", 500), ("10s", 10_000), ("1.5m", 90_000), ("2H", 7_200_000)],
)
def test_a_bare_number_is_seconds(text: str, span_ms: int) -> None:
    assert read_duration_ms(text) == span_ms
    assert parse_span(text) == timedelta(milliseconds=span_ms)


@pytest.mark.parametrize("text", ["", "soon", "5 weeks", "nan", "inf", "-1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time span"):
        read_duration_ms(text)


@pytest.mark.parametrize("span_ms", [1, 500, 1000, 5000, 90_000, 900_000, 3_600_000, 86_400_000])
def test_a_duration_is_shown_as_it_is_read(span_ms: int) -> None:
    assert read_duration_ms(show_duration(span_ms)) == span_ms


def test_defaults_are_shown_as_users_write_them() -> None:
    shown = {option.name: option.show_default() for option in (*SOURCE_OPTIONS.options, *SINK_OPTIONS.options)}
    assert (shown["requestTimeout"], shown["maxTriggerDelay"], shown["delay"]) == ("5s", "15m", "0")
    assert (shown["tls"], shown["properties"], shown["nameServer"]) == ("false", "", "")
    assert SourceOption("n", read_count(), None, "").show_default() == ""
    assert SourceOption("n", read_flag, True, "").show_default() == "true"
    assert {option.name for option in ACCESS_OPTIONS} <= set(shown)

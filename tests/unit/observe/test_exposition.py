"""Figures as text: what Prometheus' own parsers read from it."""

from __future__ import annotations

import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from eruca._observe.exposition import TextFormat, choose_format, write_figures, write_number
from eruca._observe.figures import Buckets, Description, Figures, Kind

AWKWARD = 'a"b\\c\nd'
FIGURES = [
    Figures(Description("sent_total", Kind.COUNTER, "Sent.", ("topic",)), [(("orders",), 3), ((AWKWARD,), 1)]),
    Figures(Description("waiting", Kind.GAUGE, "With a \\ and\na line feed."), [((), 0.5)]),
    Figures(
        Description("seconds", Kind.HISTOGRAM, "How long.", ("topic",)),
        [(("orders",), Buckets([("0.1", 2), ("1.0", 3), ("+Inf", 4)], 30.65))],
    ),
    Figures(Description("nothing", Kind.GAUGE, "No values."), []),
]


def write(form: TextFormat) -> str:
    return "".join([line for each in FIGURES for line in write_figures(each, form)]) + form.end


def read_values(families: object) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families  # type: ignore[attr-defined]
        for sample in family.samples
    }


EXPECTED = {
    ("sent_total", (("topic", "orders"),)): 3,
    ("sent_total", (("topic", AWKWARD),)): 1,
    ("waiting", ()): 0.5,
    ("seconds_bucket", (("le", "0.1"), ("topic", "orders"))): 2,
    ("seconds_bucket", (("le", "1.0"), ("topic", "orders"))): 3,
    ("seconds_bucket", (("le", "+Inf"), ("topic", "orders"))): 4,
    ("seconds_sum", (("topic", "orders"),)): 30.65,
    ("seconds_count", (("topic", "orders"),)): 4,
}


def test_the_text_format_of_prometheus() -> None:
    families = list(parse_text(write(TextFormat.PROMETHEUS)))
    assert read_values(families) == EXPECTED
    assert [(family.name, family.type) for family in families] == [
        ("sent", "counter"),
        ("waiting", "gauge"),
        ("seconds", "histogram"),
        ("nothing", "gauge"),
    ]


def test_openmetrics() -> None:
    text = write(TextFormat.OPENMETRICS)
    assert text.endswith("# EOF\n")
    assert "# TYPE sent counter" in text
    families = list(parse_openmetrics(text))  # type: ignore[no-untyped-call]
    assert read_values(families) == EXPECTED
    assert families[1].documentation == "With a \\ and\na line feed."


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TextFormat.PROMETHEUS),
        ("*/*", TextFormat.PROMETHEUS),
        ("text/html", TextFormat.PROMETHEUS),
        ("application/openmetrics-text", TextFormat.OPENMETRICS),
        # What Prometheus 2.42 sends.
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            TextFormat.OPENMETRICS,
        ),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.9", TextFormat.PROMETHEUS),
        ("application/openmetrics-text;q=nonsense", TextFormat.PROMETHEUS),
    ],
)
def test_the_client_chooses_the_format(accept: str, form: TextFormat) -> None:
    assert choose_format(accept) is form


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), (0.25, "0.25"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")]
)
def test_numbers(value: float, text: str) -> None:
    assert write_number(value) == text

"""Charts: whatever the points are, the drawing is valid and names are escaped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._console.pages.charts import Series, draw_bars, draw_legend, draw_line, draw_meter, draw_spark

_VALUES = st.none() | st.floats(0, 1e15)
_POINTS = st.lists(st.tuples(st.floats(0, 4e9), _VALUES), max_size=30)


@given(st.lists(_POINTS, max_size=8))
def test_any_points_are_drawn_inside_the_plot(lines: list[list[tuple[float, float | None]]]) -> None:
    drawn = str(draw_line([Series(f"<{number}>", points) for number, points in enumerate(lines)], '"label"'))
    tree = ElementTree.fromstring(drawn)
    assert [tree.tag, *(child.tag for child in tree)] == ["figure", "ul", "svg", "ul"]
    places = [float(y) for path in tree.iter("path") for y in re.findall(r"[ML ][\d.]+ (-?[\d.]+)", path.get("d", ""))]
    assert all(-0.1 <= y <= 160.1 for y in places)


def test_a_gap_interrupts_a_line() -> None:
    drawn = draw_line([Series("lag", [(0, 1.0), (1, None), (2, 3.0)])], "lag")
    path = re.search(r'class="line s1" d="([^"]*)"', drawn)
    assert path is not None and path[1].count("M") == 2


def test_of_many_points_the_highest_are_kept() -> None:
    points = [(float(x), 100.0 if x == 7_777 else 0.0) for x in range(10_000)]
    drawn = draw_line([Series("lag", points)], "lag")
    assert len(drawn) < 30_000 and re.search(r"L[\d.]+ 0\.0 ", drawn)


@pytest.mark.parametrize(
    ("ratio", "tone"), [(None, "ok"), (0.5, "ok"), (0.8, "warning"), (0.95, "error"), (7.0, "error")]
)
def test_a_meter_changes_its_colour(ratio: float | None, tone: str) -> None:
    assert f'class="meter {tone}"' in draw_meter(ratio, "disk")


@given(st.lists(_VALUES, max_size=40))
def test_any_values_are_a_spark(values: list[float | None]) -> None:
    assert ElementTree.fromstring(str(draw_spark(values, "<lag>"))).tag == "svg"


def test_names_are_escaped() -> None:
    name = "<script>alert(1)</script>"
    drawn = draw_bars([(name, 1.0)]) + draw_legend([Series(name, [])]) + draw_line([Series(name, [])], name)
    assert "<script" not in drawn

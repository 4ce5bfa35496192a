"""Small charts as SVG, drawn on the server. Colours and lines are set by classes in console.css.

`draw_line` takes series of (x, y) and returns a chart with axes; `draw_spark` a line without them, for a row of a
table; `draw_bars` one bar for each value; `draw_meter` a share of a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor, log10

from markupsafe import Markup, escape

from eruca._console.pages.times import show_short

#: The ends that an axis of seconds may have: half of each is a round duration too.
SECONDS = (
    *(1, 2, 4, 10, 20, 30, 60, 120, 240, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200),
    *(86_400 * days for days in (1, 2, 4, 10, 20, 40)),
)
_SERIES_MAX = 6
_POINTS_MAX = 500
# The units of a plot across; it is stretched.
_WIDTH = 1000
_MARKS = 4


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: its name and its points, x in seconds since 1970. A y of None is a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]


def draw_line(
    series: Sequence[Series],
    label: str,
    *,
    height: int = 160,
    show: Callable[[float | None], str] = show_short,
    steps: Sequence[float] = (),
) -> Markup:
    """Return a chart of lines over time; `label` is what a screen reader says.

    `steps` are the ends that the y axis may have, for values that are not decimal.

    The plot is stretched to the width there is. The marks of the axes stand beside it as text, at equal distances, so
    that they keep their size.
    """
    shown = [Series(each.name, _thin(each.points)) for each in series[:_SERIES_MAX]]
    points = [point for each in shown for point in each.points]
    values = [y for _, y in points if y is not None]
    left, right = min((x for x, _ in points), default=0.0), max((x for x, _ in points), default=0.0)
    top = _round_up(max([*values, 0.0]), steps)

    def place(x: float, y: float) -> tuple[float, float]:
        return _WIDTH * (x - left) / max(right - left, 0.001), height * (1 - min(y, top) / top)

    parts = [
        Markup('<figure class="plot"><ul class="y" aria-hidden="true"><li>{}</li><li>{}</li><li>{}</li></ul>').format(
            show(top), show(top / 2), show(0)
        ),
        Markup('<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">').format(
            _WIDTH, height, label
        ),
    ]
    parts += [
        Markup('<line class="grid" x1="0" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(_WIDTH, y, y)
        for y in (height * mark / _MARKS for mark in range(_MARKS + 1))
    ]
    for number, each in enumerate(shown, 1):
        lines = _join(each.points, place)
        if len(shown) == 1:
            parts += [
                Markup('<path class="area s1" d="{} L{:.1f} {} L{:.1f} {} Z"/>').format(
                    line, end, height, begin, height
                )
                for line, begin, end in lines
            ]
        path = " ".join(line for line, _, _ in lines)
        parts.append(Markup('<path class="line s{}" d="{}"><title>{}</title></path>').format(number, path, each.name))
    clocks = [_show_clock(x, right - left) for x in (left, (left + right) / 2, right)] if right > left else []
    marks = Markup("").join(Markup("<li>{}</li>").format(clock) for clock in clocks)
    parts.append(Markup('</svg><ul class="x" aria-hidden="true">{}</ul></figure>').format(marks))
    return Markup("").join(parts)


def draw_spark(values: Sequence[float | None], label: str, *, width: int = 96, height: int = 24) -> Markup:
    """Return a line without axes."""
    known = [value for value in values if value is not None]
    head = Markup('<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(width, height, label)
    if len(known) < 2:
        return head + Markup("</svg>")
    top = max(*known, 0.0001)
    step = width / (len(values) - 1)
    lines = _join(
        [(float(number), value) for number, value in enumerate(values)],
        lambda x, y: (x * step, 2 + (height - 4) * (1 - y / top)),
    )
    path = " ".join(line for line, _, _ in lines)
    return head + Markup('<path class="line s1" d="{}"/></svg>').format(path)


def draw_bars(rows: Sequence[tuple[str, float]], *, show: Callable[[float | None], str] = show_short) -> Markup:
    """Return a horizontal bar for each value, with its name before it and its number behind it."""
    top = max([value for _, value in rows], default=0) or 1
    parts = [
        Markup(
            '<div class="bar"><dt>{name}</dt><dd>'
            '<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
            '<rect class="back" width="100" height="8"/><rect class="fill" width="{size:.1f}" height="8"/></svg>'
            "<span>{value}</span></dd></div>"
        ).format(name=name, size=100 * value / top, value=show(value))
        for name, value in rows
    ]
    return Markup('<dl class="bars">') + Markup("").join(parts) + Markup("</dl>")


def draw_meter(ratio: float | None, label: str, *, warn: float = 0.75, fail: float = 0.9) -> Markup:
    """Return a share of a whole as a bar that changes its colour when it is nearly full."""
    value = min(max(ratio or 0.0, 0.0), 1.0)
    tone = "error" if value >= fail else "warning" if value >= warn else "ok"
    return Markup(
        '<svg class="meter {}" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="back" width="100" height="6"/><rect class="fill" width="{:.1f}" height="6"/></svg>'
    ).format(tone, label, value * 100)


def draw_legend(series: Sequence[Series]) -> Markup:
    """Return the names of lines beside their colours."""
    items = [
        Markup('<li class="s{}">{}</li>').format(number, escape(each.name))
        for number, each in enumerate(series[:_SERIES_MAX], 1)
    ]
    return Markup('<ul class="legend">') + Markup("").join(items) + Markup("</ul>")


def _thin(points: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Return few enough points for a browser to draw; of each group that becomes one point, the largest is kept."""
    size = ceil(len(points) / _POINTS_MAX)
    if size <= 1:
        return list(points)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [max(group, key=lambda point: -1.0 if point[1] is None else point[1]) for group in groups]


def _join(
    points: Sequence[tuple[float, float | None]], place: Callable[[float, float], tuple[float, float]]
) -> list[tuple[str, float, float]]:
    """Return the path of each unbroken run of points, and where it begins and ends."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append(place(x, y))
    return [("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in run), run[0][0], run[-1][0]) for run in runs if run]


def _round_up(value: float, steps: Sequence[float]) -> float:
    """Return a round number that is not below the value: a step, or else at least 1."""
    if steps and value <= steps[-1]:
        return next(step for step in steps if step >= value)
    if value <= 1:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 4, 5, 10) if step * power >= value)


def _show_clock(x: float, span: float) -> str:
    moment = datetime.fromtimestamp(x, UTC)
    return moment.strftime("%m-%d %H:%M" if span > 86_400 else "%H:%M" if span > 600 else "%H:%M:%S")

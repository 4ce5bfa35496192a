"""Charts of statistics as PNG files, and a self-contained HTML page with all of them."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

Rows = Sequence[Mapping[str, Any]]

# The number of series that a chart shows separately; the rest is added up.
_SERIES_MAX: Final = 8
_OTHERS: Final = "others"
# Rows of a table on the page; the CSV file next to it has all of them.
_SHOWN_ROWS: Final = 200
_DPI: Final = 110

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #ddd; } th, td { border-color: #333; }
  img { background: #fff; } }
"""


def write_report(
    directory: Path, tables: Mapping[str, Rows], summary: Mapping[str, Any], *, with_charts: bool = True
) -> dict[str, str]:
    """Write the charts and one page with all of them; returns the paths of what was written, by name."""
    charts = draw_charts(tables) if with_charts else {}
    outputs: dict[str, str] = {}
    for name, image in charts.items():
        path = directory / f"{name}.png"
        path.write_bytes(image)
        outputs[f"chart {name}"] = str(path)
    page = directory / "report.html"
    page.write_text(make_page(tables, charts, summary), encoding="utf-8")
    return {**outputs, "report": str(page)}


# -- charts ------------------------------------------------------------------------------------------------------------


def draw_charts(tables: Mapping[str, Rows]) -> dict[str, bytes]:
    """Return a PNG image of each chart, by name."""
    topics = tables.get("topics-by-hour") or ()
    consumed = tables.get("consumed-by-hour") or ()
    charts: dict[str, bytes] = {}
    if topics:
        charts["messages"] = _draw_bars("Messages per hour, by topic", topics, "hour", "topic", "messages")
        charts["bytes"] = _draw_bars("Bytes per hour, by topic", topics, "hour", "topic", "bytes")
        charts["stored-latency"] = _draw_lines(
            "From sent to stored: 99th percentile in ms", topics, "hour", ("topic",), "storedP99Ms"
        )
    if consumed:
        charts["consumed"] = _draw_bars("Consumed per hour, by group", consumed, "hour", "group", "consumed")
        charts["consumed-latency"] = _draw_lines(
            "From sent to consumed: 99th percentile in ms",
            consumed,
            "hour",
            ("group", "topic"),
            "consumedP99Ms",
        )
    behind = [row for row in tables.get("lag") or () if row["behind"]]
    if behind:
        charts["lag"] = _draw_lag(behind)
    return charts


def _start_chart(title: str) -> tuple[Any, Any]:
    # Without pyplot: no windows, no state that threads share.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    return figure, axes


def _end_chart(figure: Any) -> bytes:
    stream = io.BytesIO()
    # No version and no date: the same numbers produce the same file.
    figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
    return stream.getvalue()


def _draw_bars(title: str, rows: Rows, time: str, series: str, value: str) -> bytes:
    """Draw stacked bars, the largest series first."""
    times = sorted({str(row[time]) for row in rows})
    totals: dict[str, float] = {}
    for row in rows:
        totals[str(row[series])] = totals.get(str(row[series]), 0) + row[value]
    names = sorted(totals, key=lambda name: (-totals[name], name))
    shown = names[:_SERIES_MAX]
    heights: dict[str, dict[str, float]] = {name: {} for name in [*shown, *([_OTHERS] if names[_SERIES_MAX:] else [])]}
    for row in rows:
        name = str(row[series]) if str(row[series]) in shown else _OTHERS
        at = str(row[time])
        heights[name][at] = heights[name].get(at, 0) + row[value]
    figure, axes = _start_chart(title)
    bottoms = [0.0] * len(times)
    for name, by_time in heights.items():
        own = [by_time.get(at, 0) for at in times]
        axes.bar(range(len(times)), own, bottom=bottoms, width=0.85, label=name)
        bottoms = [bottom + height for bottom, height in zip(bottoms, own, strict=True)]
    _label_times(axes, times)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return _end_chart(figure)


def _draw_lines(title: str, rows: Rows, time: str, series: Sequence[str], value: str) -> bytes:
    times = sorted({str(row[time]) for row in rows})
    lines: dict[str, dict[str, float]] = {}
    for row in rows:
        if row[value] is not None:
            lines.setdefault(" ← ".join(str(row[each]) for each in series), {})[str(row[time])] = row[value]
    figure, axes = _start_chart(title)
    for name in sorted(lines, key=lambda name: (-max(lines[name].values()), name))[:_SERIES_MAX]:
        places = [at for at, each in enumerate(times) if each in lines[name]]
        axes.plot(places, [lines[name][times[at]] for at in places], marker="o", markersize=3, label=name)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("ms")
    _label_times(axes, times)
    if lines:
        axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return _end_chart(figure)


def _draw_lag(rows: Rows) -> bytes:
    largest = sorted(rows, key=lambda row: (-row["behind"], row["group"], row["topic"]))[: 2 * _SERIES_MAX]
    figure, axes = _start_chart("Messages still to be consumed, by group and topic")
    names = [f"{row['group']} ← {row['topic']}" for row in largest]
    axes.barh(range(len(names)), [row["behind"] for row in largest])
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    return _end_chart(figure)


def _label_times(axes: Any, times: Sequence[str]) -> None:
    step = max(1, -(-len(times) // 12))
    axes.set_xticks(
        range(0, len(times), step), [_shorten(each) for each in times[::step]], rotation=30, ha="right", fontsize=8
    )


def _shorten(time: str) -> str:
    try:
        return f"{datetime.fromisoformat(time):%m-%d %H:%M}"
    except ValueError:
        return time


# -- the page ----------------------------------------------------------------------------------------------------------


def make_page(tables: Mapping[str, Rows], charts: Mapping[str, bytes], summary: Mapping[str, Any]) -> str:
    """Return one HTML page with all charts and tables."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Message statistics</title>",
        f"<style>{_STYLE}</style><h1>Message statistics</h1>",
        f"<p>{summary['rows']:,} messages, {summary['bytes']:,} bytes",
        f", stored from {html.escape(str(summary['first']))} to {html.escape(str(summary['last']))}</p>"
        if summary.get("first")
        else "</p>",
    ]
    parts += [f"<p>{html.escape(str(warning))}</p>" for warning in summary.get("warnings") or ()]
    for name, image in charts.items():
        data = base64.b64encode(image).decode()
        parts.append(f"<p><img alt='{html.escape(name)}' src='data:image/png;base64,{data}'></p>")
    for name, rows in tables.items():
        if rows:
            parts.append(_make_table(name, rows))
    return "\n".join([*parts, "</html>\n"])


def _make_table(name: str, rows: Rows) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in rows[0])
    lines = [f"<tr>{''.join(_make_cell(value) for value in row.values())}</tr>" for row in rows[:_SHOWN_ROWS]]
    left = f"<p>and {len(rows) - _SHOWN_ROWS:,} more in {html.escape(name)}.csv</p>" if len(rows) > _SHOWN_ROWS else ""
    return f"<h2>{html.escape(name)}</h2><table><tr>{head}</tr>{''.join(lines)}</table>{left}"


def _make_cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"<td>{html.escape('' if value is None else str(value))}</td>"
    return f"<td class='number'>{value:,.2f}</td>" if isinstance(value, float) else f"<td class='number'>{value:,}</td>"

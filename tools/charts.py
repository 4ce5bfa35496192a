"""Draw the charts of the benchmarks page: docs/benchmarks/NAME.json becomes docs/images/bench-NAME.svg.

`make bench` writes such a document into bench-results; copy the one to show. `--check` only compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

from bench.runner import format_number
from tools.project import REPOSITORY

RESULTS: Final = REPOSITORY / "docs" / "benchmarks"
IMAGES: Final = REPOSITORY / "docs" / "images"
_WIDTH, _LEFT, _BAR, _GAP, _TOP = 860, 250, 20, 14, 56
_OURS, _PEER, _INK, _SOFT = "#2f855a", "#a0aec0", "#1f2933", "#52606d"
# What a bar takes at most: the number stands to the right of it.
_SPAN: Final = _WIDTH - _LEFT - 170


def list_charts() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of each chart."""
    for path in sorted(RESULTS.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        yield IMAGES / f"bench-{path.stem}.svg", draw(document)


def draw(document: dict[str, Any]) -> str:
    """Return the chart of a document of `make bench`: a group of bars for each figure that has a peer."""
    parts: list[str] = []
    y = _TOP
    for figure in document["figures"]:
        if figure["peers"]:
            parts += _draw_figure(figure, y)
            y += 22 + (1 + len(figure["peers"])) * _BAR + _GAP
    machine = document["machine"]
    told = f"{document['time'][:10]}, {machine['cores']} cores, Python {machine['python']}"
    told += f", load before {machine['load_before']}"
    title = f"make bench ONLY={document['bench']}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img"'
            f' aria-label="{escape(title)}" font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">',
            f'<rect width="{_WIDTH}" height="{y}" rx="12" fill="#ffffff"/>',
            _write(20, 28, title, 16, _INK, weight=600),
            _write(_WIDTH - 20, 28, told, 12, _SOFT, anchor="end"),
            *parts,
            "</svg>\n",
        ]
    )


def _draw_figure(figure: dict[str, Any], y: int) -> Iterator[str]:
    rows = [
        ("Eruca", figure["value"], None),
        *((peer["name"], peer["value"], peer["ratio"]) for peer in figure["peers"]),
    ]
    most = max(value for _name, value, _ratio in rows) or 1
    yield _write(20, y + 14, f"{figure['name']} ({figure['unit']})", 13.5, _INK, weight=600)
    for number, (name, value, ratio) in enumerate(rows):
        top = y + 22 + number * _BAR
        length = max(1.0, _SPAN * value / most)
        yield _write(_LEFT - 10, top + 14, name, 12.5, _SOFT, anchor="end")
        colour = _PEER if number else _OURS
        yield f'<rect x="{_LEFT}" y="{top + 3}" width="{length:.1f}" height="{_BAR - 5}" rx="3" fill="{colour}"/>'
        said = format_number(value) + ("" if ratio is None else f"  (ratio {format_number(ratio)})")
        yield _write(_LEFT + length + 8, top + 14, said, 12, _INK)


def _write(x: float, y: float, text: str, size: float, fill: str, *, anchor: str = "start", weight: int = 400) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{fill}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{escape(text)}</text>'
    )


def main(*arguments: str) -> int:
    """Write all charts, or with --check only compare them; returns the exit status."""
    stale = []
    for path, text in list_charts():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.name)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in arguments:
        print(f"out of date, run `make generate`: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

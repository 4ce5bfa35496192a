"""Writes the tables of options in the guide from the options themselves.

    python -m tests.spark.guideoptions

A table stands between `<!-- options: NAME -->` and `<!-- end -->`. The Chinese page has its own words, so there only
names and defaults are held to be the same.
"""

from __future__ import annotations

import re
from pathlib import Path

from eruca._spark.cluster import ACCESS_OPTIONS
from eruca._spark.optiontable import SourceOption
from eruca._spark.sink.options import SINK_OPTIONS
from eruca._spark.source.options import SOURCE_OPTIONS
from eruca._spark.store.datasource import OPTIONS as STORE_OPTIONS
from tests.paths import REPOSITORY

GUIDE = REPOSITORY / "docs" / "guide" / "spark.md"
CHINESE = REPOSITORY / "docs" / "zh" / "guide" / "spark.md"
_COMMON = {option.name for option in ACCESS_OPTIONS}
TABLES: dict[str, list[SourceOption]] = {
    "source": list(SOURCE_OPTIONS.options),
    # How to reach a cluster is said once.
    "sink": [option for option in SINK_OPTIONS.options if option.name not in _COMMON],
    "store": list(STORE_OPTIONS.options),
}


def make_rows(options: list[SourceOption]) -> list[tuple[str, str, str]]:
    """Name, default and meaning of each."""
    return [(f"`{option.name}`", option.show_default(), option.help) for option in options]


def read_rows(text: str, name: str) -> list[tuple[str, ...]]:
    """The rows of a table in a page."""
    lines = _cut(text, name)[1].strip().splitlines()
    return [tuple(cell.strip() for cell in _split(line)) for line in lines[2:]]


def _split(line: str) -> list[str]:
    return [cell.replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _cut(text: str, name: str) -> tuple[str, str, str]:
    before, mark, rest = text.partition(f"<!-- options: {name} -->\n")
    assert mark, f"there is no table of options: {name}"
    table, mark, after = rest.partition("<!-- end -->")
    assert mark, f"the table of options has no end: {name}"
    return before, table, after


def fill(path: Path) -> None:
    """Write all tables of a page."""
    text = path.read_text(encoding="utf-8")
    for name, options in TABLES.items():
        before, _, after = _cut(text, name)
        rows = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in make_rows(options)]
        lines = ["| option | default | meaning |", "| --- | --- | --- |", *[f"| {row} |" for row in rows]]
        table = "\n".join(re.sub(r" {2,}", " ", line) for line in lines)
        text = f"{before}<!-- options: {name} -->\n{table}\n<!-- end -->{after}"
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    fill(GUIDE)

"""The page about Spark is right: every block runs and prints what it says, and its tables are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eruca._spark.columns import STORE_COLUMNS
from eruca._spark.sink.options import COLUMNS as SINK_COLUMNS
from tests.clients.guidepage import read_blocks
from tests.paths import REPOSITORY
from tests.patience import SPARK_S
from tests.spark.guideoptions import CHINESE, GUIDE, TABLES, make_rows, read_rows

_SUBMIT = "--master local[2] --driver-memory 1g --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2"


@pytest.mark.whole
def test_every_block_does_what_the_page_says(tmp_path: Path) -> None:
    without = {key: value for key, value in os.environ.items() if not key.startswith(("ERUCA_", "NAMESRV_"))}
    places = [str(REPOSITORY), str(REPOSITORY / "src")]
    run = subprocess.run(
        [sys.executable, "-m", "tests.clients.guidepage", str(GUIDE)],
        cwd=tmp_path,
        env={
            **without,
            "HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join(places),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{_SUBMIT} pyspark-shell",
        },
        capture_output=True,
        text=True,
        timeout=SPARK_S,
        check=False,
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(read_blocks(GUIDE))} blocks" in run.stdout


@pytest.mark.parametrize("name", TABLES)
def test_every_option_is_in_the_guide_as_it_is_declared(name: str) -> None:
    """`python -m tests.spark.guideoptions` writes the tables."""
    assert read_rows(GUIDE.read_text(encoding="utf-8"), name) == make_rows(TABLES[name])


@pytest.mark.parametrize("name", TABLES)
def test_every_option_is_in_the_chinese_guide(name: str) -> None:
    found = read_rows(CHINESE.read_text(encoding="utf-8"), name)
    assert [row[:2] for row in found] == [row[:2] for row in make_rows(TABLES[name])]
    assert all(len(row) == 3 and re.search(r"[\u4e00-\u9fff]", row[2]) for row in found), found


@pytest.mark.parametrize("page", [GUIDE, CHINESE], ids=["english", "chinese"])
def test_every_column_is_in_the_guide(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("&lt;", "<").replace("&gt;", ">")
    rows = re.findall(r"^\| (\w+) \| ([^|]*) \|", text, re.MULTILINE)
    columns = [(column.name, column.spark.simpleString()) for column in STORE_COLUMNS]
    at = rows.index(columns[0])
    assert rows[at : at + len(columns)] == columns
    at = next(number for number, (name, _) in enumerate(rows) if name == "body" and (name, "binary") != rows[number])
    assert [name for name, _ in rows[at : at + len(SINK_COLUMNS)]] == list(SINK_COLUMNS)


@pytest.mark.parametrize("page", [REPOSITORY / "README.md", REPOSITORY / "docs" / "zh" / "README.md"], ids=["en", "zh"])
def test_the_three_lines_of_the_readme_are_those_of_the_guide(page: Path) -> None:
    begin = "from pyspark.sql import SparkSession\n"
    (block,) = [block.text for block in read_blocks(GUIDE) if block.text.startswith(begin)]
    assert f"\n```\n{block}```\n" in page.read_text(encoding="utf-8")

"""The summary of a job: what it counts, and how it is shown."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from eruca._spark.pipelines.summary import JobSummary, count_bad, count_rows, draw_summary


def make_summary() -> JobSummary:
    summary = JobSummary("archive", seconds=2.0)
    count_rows(summary, 10, 2048, 5000, 9000)
    count_rows(summary, 5, 0, datetime.fromtimestamp(1, UTC), None)
    count_rows(summary, 0, 0)
    count_bad(summary, "crc", 2)
    count_bad(summary, "crc", 1)
    count_bad(summary, "body", 0)
    summary.facts["parts"] = {"a": 1, "b": 2.5}
    summary.outputs["archive"] = "/somewhere"
    summary.warnings.append("careful")
    return summary


def test_a_summary_adds_up(tmp_path: Path) -> None:
    summary = make_summary()
    assert (summary.rows, summary.bytes) == (15, 2048)
    assert (summary.first, summary.last) == (datetime.fromtimestamp(1, UTC), datetime.fromtimestamp(9, UTC))
    assert (summary.bad, summary.bad_records) == ({"crc": 3}, 3)
    summary.write(tmp_path / "deep" / "summary.json")
    written = json.loads((tmp_path / "deep" / "summary.json").read_text(encoding="utf-8"))
    assert written == summary.as_dict()
    assert (written["first"], written["last"]) == ("1970-01-01T00:00:01.000+00:00", "1970-01-01T00:00:09.000+00:00")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["summary.json"]


def test_a_summary_is_shown() -> None:
    stream = io.StringIO()
    Console(file=stream, width=100).print(draw_summary(make_summary()))
    text = stream.getvalue()
    for word in ("archive", "15 (8 per second)", "2.0 KiB", "set aside", "crc", "a 1, b 2.50", "/somewhere", "careful"):
        assert word in text
    stream = io.StringIO()
    Console(file=stream, width=100).print(draw_summary(JobSummary("empty")))
    assert "stored from" not in stream.getvalue()

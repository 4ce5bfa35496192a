"""Reports: charts are drawn only where matplotlib is installed, and that is checked before anything is read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from eruca._spark.pipelines.charts import write_report
from eruca._spark.pipelines.inputs import MessageInput
from eruca._spark.pipelines.stats import run_stats
from eruca.errors import ConfigError

SUMMARY: dict[str, Any] = {"rows": 3, "bytes": 30, "first": None, "warnings": []}
TABLES = {"topics-by-hour": [{"hour": "2026-11-15T08:00", "topic": "t", "messages": 3, "bytes": 30, "storedP99Ms": 1}]}


def test_without_matplotlib_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "report"
    with pytest.raises(ConfigError, match=r'needs matplotlib \(pip install "eruca\[charts\]"'):
        run_stats(cast(Any, None), MessageInput(), str(out))
    assert not out.exists()


def test_a_report_without_charts_needs_no_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert list(write_report(tmp_path, TABLES, SUMMARY, with_charts=False)) == ["report"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "topics-by-hour" in page and "<img" not in page


def test_a_report_with_charts(tmp_path: Path) -> None:
    written = write_report(tmp_path, TABLES, SUMMARY)
    assert set(written) == {"chart messages", "chart bytes", "chart stored-latency", "report"}
    assert (tmp_path / "messages.png").read_bytes().startswith(b"\x89PNG")

"""`make bench ONLY=up` runs and returns its figures; how fast anything is does not matter here."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_bench_smoke import check_figure, run_quickly


def test_up_bench_gives_its_document(tmp_path: Path) -> None:
    document = run_quickly("up", tmp_path)
    assert [(figure["name"], figure["aim"]["limit"]) for figure in document["figures"]] == [
        ("start to first send", 2000),
        ("anonymous memory after the first send", 120),
        ("stop with everything on the disk", 2000),
    ]
    for figure in document["figures"]:
        check_figure(figure)

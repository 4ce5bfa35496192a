"""`make bench ONLY=spark` runs and writes the document that readers expect; speed does not matter here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.figures import note_figures
from tests.integration.test_bench_smoke import check_figure, run_quickly


@pytest.mark.whole
def test_spark_bench_gives_its_document(tmp_path: Path) -> None:
    document = run_quickly("spark", tmp_path)
    figures = {figure["name"]: figure for figure in document["figures"]}
    assert list(figures) == [
        "network source, without properties",
        "network source, without properties, CPU",
        "network source, all columns",
        "network source, all columns, CPU",
        "store source, all columns, records of 378 B",
        "store source, all columns, records of 378 B, CPU",
        "micro-batch of 200 rows",
        "sink",
        "sink, CPU",
    ]
    for name, figure in figures.items():
        check_figure(figure)
        assert any(peer["name"].startswith("Kafka connector") for peer in figure["peers"])
        assert (figure["aim"] is None) == name.endswith("CPU")
        if not name.startswith("store"):
            continue
        assert not figure["aim"] or figure["aim"]["limit"] == 800_000
    sink = figures["sink"]
    assert sink["aim"]["limit"] == pytest.approx(sink["peers"][0]["value"], rel=0.01)
    assert sink["details"].keys() == {"CPU us a row", "JVM", "Python", "broker"}
    assert figures["micro-batch of 200 rows"]["details"]["rows a batch"] == 200
    versions = document["notes"][0]
    assert "Kafka connector 4.2" in versions and "Kafka broker 3.9" in versions
    note_figures(f"bench spark, quick: {versions}; {document['seconds']:.0f} s")

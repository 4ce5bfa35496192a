"""Figures of this process."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from eruca._observe import process
from eruca._observe.figures import Description, Figures
from eruca._observe.process import CPU, FILES_MAX, OPEN_FILES, RESIDENT, STARTED, read_process


def read() -> dict[Description, float]:
    def single(figures: Figures) -> float:
        ((labels, value),) = figures.rows
        assert labels == ()
        assert isinstance(value, float | int)
        return value

    return {figures.about: single(figures) for figures in read_process()}


def test_the_usual_names() -> None:
    values = read()
    assert values[RESIDENT] > 10_000_000
    assert values[CPU] > 0
    assert time.time() - 100_000 < values[STARTED] <= time.time()
    assert 0 < values[OPEN_FILES] < values[FILES_MAX]


def test_an_open_file_counts() -> None:
    before = read()[OPEN_FILES]
    with tempfile.TemporaryFile():
        assert read()[OPEN_FILES] == before + 1


def test_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Path(os.devnull) / "none"
    monkeypatch.setattr(process, "_STATM", nowhere)
    monkeypatch.setattr(process, "_FILES", nowhere)
    values = read()
    assert values[RESIDENT] > 10_000_000
    assert OPEN_FILES not in values

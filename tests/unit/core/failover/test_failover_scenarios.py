"""The scenarios of automatic failover, as files that can be read without knowing the code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.unit.core.failover.failoverscript import Script

FOLDER = REPOSITORY / "tests/scenarios/failover"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    played = Script().play(text)
    if os.environ.get("ERUCA_REWRITE"):
        file.write_text(played, encoding="utf-8")
    assert played == text


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 10

"""Every scenario file is what the machines do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.unit.core.replication.transcripts import EVENTS, MACHINES, replay

FILES = sorted((REPOSITORY / "tests" / "scenarios" / "replication").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_machine_does_what_the_file_says(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert replay(text) == text


def test_every_event_is_in_some_file() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in FILES)
    for kind, events in EVENTS.items():
        parts = [part for part in text.split("\n") if part.startswith("at ")]
        told = {part.split()[2] for part in parts}
        assert events.keys() <= told, kind
    assert len(FILES) >= len(MACHINES)


def test_a_file_that_expects_something_else_is_found_out() -> None:
    right = "primary tail=10\nat 0 report position=10\n  heartbeat 10\n  confirmed 10\n"
    assert replay(right) == right
    assert replay(right.replace("confirmed 10", "confirmed 11")) == right
    assert replay(right.replace("  confirmed 10\n", "")) == right

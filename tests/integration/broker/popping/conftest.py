"""Pops with as much time as they need."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def give_pops_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the time of a pop may end after any queue: `test_many_queues` tests that."""
    monkeypatch.setattr("eruca._broker.popping.taking._SECONDS_MAX", 3600.0)

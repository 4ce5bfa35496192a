"""The console's file, with the tables of watching."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca._console.state import State
from eruca._console.watching import alarmtables, history


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[State]:
    """An open file."""
    state = State(tmp_path / "console", [history.SCHEMA, alarmtables.SCHEMA])
    await state.open()
    yield state
    await state.close()

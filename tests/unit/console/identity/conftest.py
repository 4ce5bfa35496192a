"""A state file, a clock that stands still, and what is built on both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca._console.identity import passwords
from eruca._console.identity.identity import Identity
from eruca._console.identity.options import IdentityOptions
from eruca._console.identity.tables import IDENTITY
from eruca._console.state import State
from eruca._testing.clock import VirtualClock


@pytest.fixture(autouse=True)
def hash_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a password cost a millisecond."""
    monkeypatch.setattr(passwords, "_COST", 2**4)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[State]:
    state = State(tmp_path / "console", (IDENTITY,))
    await state.open()
    yield state
    await state.close()


@pytest.fixture
def identity(state: State, clock: VirtualClock) -> Identity:
    return Identity(IdentityOptions(), state, clock)

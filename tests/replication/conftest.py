"""The Java peer, prepared once for all tests of this suite."""

from __future__ import annotations

import pytest

# Failed assertions of what tests share are to say as much as those of tests.
pytest.register_assert_rewrite(
    "tests.clients.stage",
    *[f"tests.replication.{name}" for name in ("pairs", "groups", "following", "killing", "faults")],
)

from tests.interop.javapeer import Peer, prepare_peer  # noqa: E402


@pytest.fixture(scope="session")
def peer() -> Peer:
    return prepare_peer()

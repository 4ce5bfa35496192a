"""A broker that hurries, and an admin that is connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca._testing.embedded import EmbeddedBroker
from eruca.admin import Admin
from tests.integration.broker.conftest import allow_new_files

__all__ = ["allow_new_files"]


@pytest.fixture
async def broker(tmp_path: Path, allow_new_files: None) -> AsyncIterator[EmbeddedBroker]:
    """Asks about a half message once and then gives up on it."""
    async with EmbeddedBroker(tmp_path / "home", hurry=True, transaction_check_max=1) as started:
        yield started


@pytest.fixture
async def admin(broker: EmbeddedBroker) -> AsyncIterator[Admin]:
    async with Admin(broker.nameserver) as started:
        yield started

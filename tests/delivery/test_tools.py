"""`eruca dlq` and `eruca txn` against a running Eruca. test_tools_java.py has the same against the Java broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.delivery.toolcases import use_dead_letters, use_transactions
from tests.interop.brokers import SETTINGS, ErucaCluster

# A transaction is checked once, and given up soon after; the time is enough to discard one before that.
QUICK = {**SETTINGS, "transactionCheckMax": 1, "transactionTimeOut": 3000, "transactionCheckInterval": 500}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools")


@pytest.fixture(scope="module")
def system(home: Path) -> Iterator[ErucaCluster]:
    with ErucaCluster(home / "system", QUICK) as started:
        yield started


def test_dead_letters(system: ErucaCluster, home: Path) -> None:
    asyncio.run(use_dead_letters(system, home, "dlq"))
    assert system.list_complaints() == []


@pytest.mark.whole
def test_transactions(system: ErucaCluster, home: Path) -> None:
    asyncio.run(use_transactions(system, home / "system" / "data" / "store", "txn"))
    # Giving a transaction up is worth an error.
    assert all("TRANS_CHECK_MAX_TIME_TOPIC" in line for line in system.list_complaints())

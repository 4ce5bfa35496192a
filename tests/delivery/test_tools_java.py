"""`eruca dlq` and `eruca txn` work on the Java broker and its store as they do on ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.delivery.toolcases import use_dead_letters, use_transactions
from tests.interop.brokers import PATIENCE, SETTINGS, JavaCluster
from tests.interop.javapeer import Peer

pytestmark = pytest.mark.whole

QUICK = {**SETTINGS, **PATIENCE, "transactionCheckMax": 1, "transactionTimeOut": 3000, "transactionCheckInterval": 500}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools-java")


@pytest.fixture(scope="module")
def system(peer: Peer, home: Path) -> Iterator[JavaCluster]:
    with JavaCluster(peer, home / "system", QUICK) as started:
        yield started


def test_dead_letters(system: JavaCluster, home: Path) -> None:
    asyncio.run(use_dead_letters(system, home, "dlq"))
    assert (home / "journal").is_file()


def test_transactions(system: JavaCluster, home: Path) -> None:
    asyncio.run(use_transactions(system, home / "system" / "store", "txn"))
    assert (home / "system" / "store" / "commitlog").is_dir()

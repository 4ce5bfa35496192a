"""Our slave follows an official master, and the official client continues from our slave when the master is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.figures import note_figures
from tests.interop.javapeer import Peer
from tests.replication.following import Settings, run

pytestmark = pytest.mark.whole


async def test_our_slave_has_the_log_of_a_java_master_and_takes_over_its_readers(peer: Peer, tmp_path: Path) -> None:
    result = await run(Settings("java", "eruca"), tmp_path, peer)
    note_figures(result.summarise())
    assert result.violations == []
    assert result.statuses == {"SEND_OK": 50_000}


@pytest.mark.parametrize("copies_all", [True, False], ids=["whole-log", "last-segment"])
async def test_our_slave_comes_late_to_a_java_master(copies_all: bool, peer: Peer, tmp_path: Path) -> None:
    settings = Settings("java", "eruca", messages=20_000, late_share=0.5, copies_all=copies_all, consumes=False)
    result = await run(settings, tmp_path, peer)
    note_figures(result.summarise())
    assert result.violations == []
    assert result.statuses == {"SLAVE_NOT_AVAILABLE": 10_000, "SEND_OK": 10_000}


async def test_this_harness_finds_nothing_wrong_with_two_java_brokers(peer: Peer, tmp_path: Path) -> None:
    result = await run(Settings("java", "java"), tmp_path, peer)
    note_figures(result.summarise())
    assert result.violations == []

"""`kill -9` of the master under load: a small form of `make torture ONLY=replication-kills` and `-failover`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.figures import note_figures
from tests.needs import needs
from tests.replication.killing import Settings, run

# Choose another seed to explore, or the failed one to reproduce a failure.
SEED = int(os.environ.get("ERUCA_REPLICATION_SEED", "1"))


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.whole)])
async def test_nothing_acknowledged_is_lost_when_an_operator_promotes(kills: int, tmp_path: Path) -> None:
    result = await run(Settings(SEED, kills=kills), tmp_path)
    note_figures(result.summarise())
    assert result.violations == []
    assert result.kills == kills
    assert result.acknowledged > 0


@needs("etcd")
@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.whole)])
async def test_nothing_acknowledged_is_lost_when_etcd_elects(kills: int, tmp_path: Path) -> None:
    result = await run(Settings(SEED, kills=kills, etcd=True, members=3), tmp_path)
    note_figures(result.summarise())
    assert result.violations == []
    assert result.kills == kills
    assert len(result.pauses) == kills

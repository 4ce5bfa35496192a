"""Network faults between members: two seeds of each kind of `make torture ONLY=replication-faults`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.figures import note_figures
from tests.needs import needs
from tests.replication.faults import KINDS, Settings, run

# Choose another seed to explore, or the failed one to reproduce a failure.
SEED = int(os.environ.get("ERUCA_REPLICATION_SEED", "1"))


async def check(settings: Settings, directory: Path) -> None:
    """No rule was broken on the way, and the members did acknowledge something."""
    result = await run(settings, directory)
    note_figures(result.summarise())
    assert result.violations == []
    assert result.acknowledged > 0


async def test_one_silence_between_members(tmp_path: Path) -> None:
    await check(Settings("silence", SEED, episodes=1), tmp_path)


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
async def test_members_stay_one_log(kind: str, seed: int, tmp_path: Path) -> None:
    await check(Settings(kind, seed), tmp_path)


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
@needs("etcd")
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
async def test_members_that_elect_stay_one_log(kind: str, seed: int, tmp_path: Path) -> None:
    await check(Settings(kind, seed, etcd=True), tmp_path)

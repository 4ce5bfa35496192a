"""Strangers of the same name and forged frames, under load: `make torture ONLY=replication-strangers`, shortened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.figures import note_figures
from tests.replication import strangers


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.whole)])
@pytest.mark.timeout(600)
async def test_strangers_of_the_same_name_change_nothing(seed: int, tmp_path: Path) -> None:
    result = await strangers.run(strangers.Settings(seed, steps=6), tmp_path)
    note_figures(result.summarise())
    assert result.violations == []

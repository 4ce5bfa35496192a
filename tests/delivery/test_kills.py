"""`kill -9` of the broker in the middle of everything it does: a small form of `make torture ONLY=delivery`."""

from __future__ import annotations

import os
from pathlib import Path

from tests.figures import note_figures
from tests.torture.delivery import PARTS, Settings, run

KILLS = 3
# Choose another seed to explore, or the failed one to reproduce a failure.
SEED = int(os.environ.get("ERUCA_DELIVERY_SEED", "1"))


async def test_a_broker_that_is_killed_keeps_what_it_told_its_clients(tmp_path: Path) -> None:
    result = await run(Settings(SEED, kills=KILLS), tmp_path)
    note_figures(result.summarise())
    assert result.violations == []
    assert result.kills.keys() == PARTS.keys()
    assert min(result.kills.values()) >= KILLS

"""Handlers slower than heartbeats starve nothing: a small, quick form of `make torture ONLY=slow-handler`."""

from __future__ import annotations

from pathlib import Path

from blockbuster import BlockBuster

from tests.figures import note_figures
from tests.torture.slowhandler import Settings, run

# Were heartbeats to wait for handlers, they would be silent for as long as a handler takes.
SMALL = Settings(
    members=6,
    processes=2,
    concurrency=2,
    handler_s=5.0,
    seconds=12.0,
    heartbeat_ms=1000,
    rebalance_ms=1000,
    gap_s_max=4.0,
)


async def test_slow_handlers_cost_no_queue_and_no_heartbeat(tmp_path: Path, forbid_blocking_calls: BlockBuster) -> None:
    result = await run(SMALL, tmp_path)
    note_figures(result.summarise())
    assert not result.list_violations()
    assert result.heartbeats >= SMALL.members * 8
    assert result.handled >= SMALL.members

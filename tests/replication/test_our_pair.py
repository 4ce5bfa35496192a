"""Our slave follows our master: from the beginning, and from empty when the master has many segments already."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.figures import note_figures
from tests.interop.javapeer import Peer
from tests.replication.following import Settings, run


@pytest.mark.whole
async def test_our_slave_has_our_log_and_takes_over_the_readers(peer: Peer, tmp_path: Path) -> None:
    result = await run(Settings("eruca", "eruca"), tmp_path, peer)
    note_figures(result.summarise())
    assert result.violations == []
    assert result.statuses == {"SEND_OK": 50_000}


@pytest.mark.parametrize("messages", [10_000, pytest.param(50_000, marks=pytest.mark.whole)])
async def test_an_empty_slave_gets_the_whole_log(messages: int, tmp_path: Path) -> None:
    segment = 256 * 1024 if messages < 50_000 else 1024 * 1024
    settings = Settings(
        "eruca", "eruca", messages=messages, segment_bytes=segment, late_share=0.6, consumes=False, flush="SYNC_FLUSH"
    )
    result = await run(settings, tmp_path, None)
    note_figures(result.summarise())
    assert result.violations == []
    # Without a slave a SYNC_MASTER stores the message, and reports that no slave has it.
    late = int(messages * settings.late_share)
    assert result.statuses == {"SLAVE_NOT_AVAILABLE": late, "SEND_OK": messages - late}

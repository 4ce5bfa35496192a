"""An official slave follows our master, and the official client continues from the slave when the master is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.figures import note_figures
from tests.interop.javapeer import Peer
from tests.replication.following import Settings, run


@pytest.mark.parametrize("messages", [5_000, pytest.param(50_000, marks=pytest.mark.whole)])
async def test_a_java_slave_has_our_log_and_takes_over_its_readers(messages: int, peer: Peer, tmp_path: Path) -> None:
    segment = 256 * 1024 if messages < 50_000 else 1024 * 1024
    settings = Settings("eruca", "java", messages=messages, segment_bytes=segment)
    result = await run(settings, tmp_path, peer)
    note_figures(result.summarise())
    assert result.violations == []
    assert result.statuses == {"SEND_OK": messages}

"""Lists beside the log damaged by a crash or a disk: this is logged, and they start empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca._store.filesystem import LocalFileSystem
from eruca._store.log.damage import DamageList
from eruca._store.queues.removed import RemovedTopics

SPOILT = [b"", b"{", b"[1]", b'{"\xef((": 1}', b'[{"reason": "\xef(("}]']


@pytest.mark.parametrize("content", SPOILT)
def test_an_unreadable_list_is_said_and_begun_anew(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(content)
    damage, removed = DamageList(LocalFileSystem(), path), RemovedTopics(LocalFileSystem(), path)
    damage.load()
    removed.load(0)
    assert damage.items == []
    assert len(caplog.records) == 2
    assert "starting with an empty list" in caplog.text and "deleted topics may come back" in caplog.text

"""A small form of `make torture ONLY=send-soon`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.broker.serving import Serving
from tests.torture.sendsoon import Result, run


def test_a_tight_loop_loses_nothing_and_stays_small(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    try:
        result = asyncio.run(run(20_000, serving.names))
    finally:
        serving.end()
    assert result.list_violations() == []
    assert result.stored == 20_000


def test_what_goes_wrong_is_named() -> None:
    found = Result(3, failed=1, stored=2, growth=10**9, seconds=1.0).list_violations()
    assert [text.split(",")[0] for text in found] == [
        "1 sends failed",
        "2 of 3 messages are stored",
        "memory grew by 1000000000 bytes",
    ]

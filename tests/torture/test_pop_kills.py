"""A small form of `make torture ONLY=pop-kills`."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tests.torture.popkills import Ledger, run


def test_nothing_acknowledged_comes_again(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    ledger = asyncio.run(run(3, seed, tmp_path))
    assert ledger.list_violations() == []
    assert ledger.kills == 3
    assert len(ledger.acked) > 50


def test_what_goes_wrong_is_named() -> None:
    ledger = Ledger(sent={b"1": 0.0}, again=[b"2"])
    assert [text.split(":")[0] for text in ledger.list_violations()] == [
        "1 messages were never delivered",
        "1 came after their acknowledgement",
    ]
